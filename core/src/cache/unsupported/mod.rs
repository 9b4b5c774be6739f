//! The same modules as in `plain`, for CPUs that have no rules in one word: every lookup misses.

pub mod short;
pub mod steps;
