//! Frame-pointer chain as a source of rules (signal room)
