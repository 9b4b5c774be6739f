//! AArch64 code that no unwind information describes, or that it describes wrongly: the code that signal handlers
//! return to, and stubs of the procedure linkage table. It is recognised by its instructions, so nothing is guessed.

use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::rule::Rule;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::Delivery;

/// The rule at `pc` if it lies in code whose tables are wrong, and which may lie in no object: the code that signal
/// handlers return to. Async-signal-safe.
pub fn overrides_tables(pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
    let was = reader.pause(true);
    let rule = Rule::at_sigreturn(pc, reader);
    reader.pause(was);
    rule
}

/// As [`overrides_tables`].
pub fn outside_of_objects(pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
    overrides_tables(pc, reader)
}

/// As [`overrides_tables`], given the address to search with: handlers return there.
pub(crate) fn overrides(_lookup: u64, pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
    overrides_tables(pc, reader)
}

/// No code depends on its registers here (on x86-64 some does).
pub fn by_registers_or_bytes(_cursor: &Cursor, _reader: &mut Reader<'_>) -> Option<Result<Rule, StopReason>> {
    None
}

/// Exceptions in delivery are not recognised here.
pub fn deliver(_to: Delivery, _cursor: &mut Cursor, _reader: &mut Reader<'_>) -> bool {
    false
}

/// Non-local exits are not recognised here.
pub fn is_leaving(_cursor: &Cursor, _reader: &mut Reader<'_>) -> bool {
    false
}

/// Switches of greenlets are not recognised here.
pub fn is_in_transit(_lookup: u64, _reader: &mut Reader<'_>) -> bool {
    false
}

/// As [`is_in_transit`].
pub fn transit(_code: &[u8]) -> Option<core::ops::Range<usize>> {
    None
}

/// The rule of code without tables. Its range is not determined.
#[cold]
pub fn not_covered(lookup: u64, pc: u64, reader: &mut Reader<'_>) -> Option<(Rule, Span)> {
    // A stub can be interrupted, but no call returns to it.
    (lookup == pc).then(|| Rule::at_plt_stub(pc, reader)).flatten().map(|rule| (rule, Span::EMPTY))
}

/// No such code is recognised: return addresses come in a register.
pub fn at_pops(_cursor: &Cursor, _reader: &mut Reader<'_>) -> Option<Rule> {
    None
}
