//! Caches for plain frames, whose rules fit into one word: x86-64.

pub mod short;
pub mod steps;
