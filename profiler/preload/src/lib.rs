//! The preloaded object: interposers, fault model, timers, sampling handler
