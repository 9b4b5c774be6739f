//! The house rules, as functions that return breaches. `tests/rules.rs` applies them to the
//! project; the tests of each rule show that it can fail.

pub mod files;
pub mod languages;
pub mod layers;
pub mod objects;
pub mod outside;
pub mod unwind;
