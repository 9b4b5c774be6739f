//! The same modules as in `x86_64/`, for CPUs that have no rules in one word: every lookup misses.

pub mod short;
pub mod steps;
