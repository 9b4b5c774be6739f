//! Bounded, in-place interpreter of .eh_frame (signal room)
