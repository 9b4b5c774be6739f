//! A CPU whose machine code is not understood: there are no rows.

use uunwind_core::rule::Rule;
use uunwind_sframe::row::Unwind;

/// A rule in SFrame's terms.
pub fn words(_: &Rule) -> Result<Unwind, &'static str> {
    Err("a rule of another CPU")
}
