//! The unwind information of one object: its sources are tried in a fixed order for each frame, the most complete and
//! trusted first.
//!
//! `.eh_frame` describes every callee-saved register and is complete where a compiler wrote it. SFrame describes the
//! caller and its rbp only, often covers no more than a PLT, and linkers write wrong rows into it, so it is used only
//! where `.eh_frame` has no rule: where it is missing, does not cover the address, is damaged, or has an expression
//! that no rule can hold. Before both, a walk looks into the object's rule table, which is made of `.eh_frame` and
//! `.debug_frame`; if all of them have nothing, it follows the frame pointer.
//!
//! Walks and `uu doctor` call this same code, so the doctor shows what walks do.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

#[cfg_attr(target_arch = "aarch64", path = "known_code/aarch64.rs")]
mod known_code;

pub use known_code::{
    at_pops, by_registers_or_bytes, deliver, is_in_transit, is_leaving, outside_of_objects, overrides_tables, transit,
};

use uunwind_core::memory::Reader;
use uunwind_core::rule::Rule;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
pub use uunwind_eh_frame::{Answer, Form, LastCie};
use uunwind_sframe::Section;

/// Process addresses of an object's unwind data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sources {
    /// Address of `.eh_frame_hdr`; 0 if there is none.
    pub eh_frame_hdr: u64,
    /// The object's image, which contains all of its `.eh_frame`.
    pub image: Span,
    /// The SFrame section; empty if there is none.
    pub sframe: Span,
    /// The code that SFrame may describe.
    pub text: Span,
}

/// The source of a rule, in the order in which they are tried, but for [`By::KnownCode`], which is tried first and
/// last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum By {
    /// `.eh_frame`, by its index.
    EhFrame,
    /// SFrame: of the callee-saved registers it describes only the frame pointer.
    Sframe,
    /// The code itself, recognised by its bytes: the end of `swapcontext` before all tables; `_init` and `_fini` after
    /// them; where nothing at all describes a frame, the end of `clone`, Go's changes of stacks, and pops up to a
    /// return. On AArch64 the code that signal handlers return to, and stubs of the procedure linkage table.
    KnownCode,
}

/// The rule for `pc` from the object's own unwind data, and its source; `lookup` is the address to search with.
/// Async-signal-safe.
///
/// Errors: those of `.eh_frame`, if no other source has a rule.
pub fn find(sources: &Sources, lookup: u64, pc: u64, reader: &mut Reader<'_>) -> (Result<Answer, StopReason>, By) {
    find_with(&mut LastCie::new(), sources, lookup, pc, reader)
}

/// As [`find`], for several addresses of one load of one object, with the CIE that was read last.
pub fn find_with(
    last: &mut LastCie,
    sources: &Sources,
    lookup: u64,
    pc: u64,
    reader: &mut Reader<'_>,
) -> (Result<Answer, StopReason>, By) {
    in_order(
        sources,
        lookup,
        pc,
        reader,
        |rule| rule,
        |Sources { eh_frame_hdr, image, .. }, reader| {
            uunwind_eh_frame::find_with(last, *eh_frame_hdr, *image, lookup, pc, reader)
        },
    )
}

/// As [`find_with`], with the rule in one word where that is simple.
pub fn find_form_with(
    last: &mut LastCie,
    sources: &Sources,
    lookup: u64,
    pc: u64,
    reader: &mut Reader<'_>,
) -> Result<Answer<Form>, StopReason> {
    in_order(sources, lookup, pc, reader, Form::Long, |Sources { eh_frame_hdr, image, .. }, reader| {
        uunwind_eh_frame::find_form_with(last, *eh_frame_hdr, *image, lookup, pc, reader)
    })
    .0
}

/// The sources in their order. `by_eh_frame` asks `.eh_frame`; `form`: the form of other sources' rules.
#[inline(always)]
fn in_order<R>(
    sources: &Sources,
    lookup: u64,
    pc: u64,
    reader: &mut Reader<'_>,
    form: impl Fn(Rule) -> R,
    by_eh_frame: impl FnOnce(&Sources, &mut Reader<'_>) -> Result<Answer<R>, StopReason>,
) -> (Result<Answer<R>, StopReason>, By) {
    if let Some(rule) = known_code::overrides(lookup, pc, reader) {
        return (Ok(Answer { rule: Ok(form(rule)), function: Span::EMPTY }), By::KnownCode);
    }
    let first = by_eh_frame(sources, reader);
    if let Ok(Answer { rule: Ok(_), .. }) = first {
        return (first, By::EhFrame);
    }
    let error = first.as_ref().err().copied();
    match otherwise(sources, lookup, pc, reader, error) {
        Some((Answer { rule, function }, by)) => (Ok(Answer { rule: rule.map(form), function }), by),
        None => (first, By::EhFrame),
    }
}

/// What has a rule where `.eh_frame` has none, and failed with `error` if it covers the pc with no row at all. Not
/// inlined: a handler's stack is short.
#[cold]
#[inline(never)]
fn otherwise(
    sources: &Sources,
    lookup: u64,
    pc: u64,
    reader: &mut Reader<'_>,
    error: Option<StopReason>,
) -> Option<(Answer, By)> {
    if let Some(answer) = by_sframe(sources, lookup, reader).filter(|answer| answer.rule.is_ok()) {
        return Some((answer, By::Sframe));
    }
    let (rule, function) = known_code::not_covered(lookup, pc, reader).filter(|_| error == Some(StopReason::NoRule))?;
    Some((Answer { rule: Ok(rule), function }, By::KnownCode))
}

/// The function that contains an address, by the object's own unwind data. Async-signal-safe.
pub fn function(sources: &Sources, address: u64, reader: &mut Reader<'_>) -> Option<Span> {
    if let Ok(function) = uunwind_eh_frame::function(sources.eh_frame_hdr, sources.image, address, reader) {
        return Some(function);
    }
    by_sframe(sources, address, reader).filter(|answer| answer.rule.is_ok()).map(|answer| answer.function)
}

/// The answer of SFrame; `None` if it has none.
#[cold]
fn by_sframe(sources: &Sources, lookup: u64, reader: &mut Reader<'_>) -> Option<Answer> {
    if sources.sframe.is_empty() {
        return None;
    }
    let answer = uunwind_sframe::find(&Section::new(sources.sframe, sources.text), lookup, reader).ok()?;
    Some(Answer { rule: answer.rule, function: answer.function })
}
