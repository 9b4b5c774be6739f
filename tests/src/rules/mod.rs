//! The house rules, as functions from what is there to what is wrong with it. `tests/rules.rs` applies them to the
//! project; the tests beside each rule show that it can fail.

pub mod files;
pub mod layers;
pub mod objects;
pub mod unwind;
