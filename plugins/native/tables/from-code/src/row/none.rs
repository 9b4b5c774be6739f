//! A CPU whose machine code is not understood so far: nothing follows from facts, and there are none.

use crate::state::State;
use uunwind_core::rule::Rule;

/// Whether this CPU's machine code is understood.
pub const IS_SERVED: bool = false;

/// The rule of a frame: not known.
pub fn rule(_: &State) -> Option<Rule> {
    None
}

/// Whether what a rule says follows from the facts: never.
pub fn follows(_: &State, _: &Rule) -> bool {
    false
}

/// Whether a register of the caller is where a rule's slot says: never.
pub fn register_follows(_: &State, _: usize, _: i16, _: bool) -> bool {
    false
}
