//! AArch64's code that no unwind information tells of, or tells wrongly: where signal handlers return to, and stubs of the procedure
//! linkage table. Its instructions are compared, so nothing is guessed.

use uunwind_core::memory::Reader;
use uunwind_core::rule::Rule;

/// The rule at `pc` if it lies in code whose tables must not be asked, and which may lie in no object: where signal handlers return
/// to. Async-signal-safe.
pub fn before_all(pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
    let was = reader.pause(true);
    let rule = Rule::at_sigreturn(pc, reader);
    reader.pause(was);
    rule
}

/// Code without tables. Its range is not told.
#[cold]
pub fn behind_all(lookup: u64, pc: u64, reader: &mut Reader<'_>) -> Option<(Rule, (u64, u64))> {
    // A stub is interrupted, never returned to.
    (lookup == pc).then(|| Rule::at_plt_stub(pc, reader)).flatten().map(|rule| (rule, (0, 0)))
}
