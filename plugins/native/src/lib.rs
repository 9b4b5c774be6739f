//! The sources of one object, asked one after the other for each frame: the complete and trusted one first.
//!
//! `.eh_frame` knows every callee-saved register and is complete where a compiler wrote it. SFrame knows the caller and
//! its rbp only, often covers no more than a PLT, and linkers write wrong rows into it, so it answers where `.eh_frame`
//! has nothing to say: where it is missing, does not cover the address, is damaged, or says what no rule can. Before both, a
//! walk asks the object's rule table, which is made of `.eh_frame` and `.debug_frame`; behind both, where nothing is told
//! at all, the frame pointer.
//!
//! Walks and `uu doctor` ask through this very code, so that what is shown is what is done.
#![cfg_attr(not(test), no_std)]

#[cfg_attr(target_arch = "x86_64", path = "start_files.rs")]
#[cfg_attr(target_arch = "aarch64", path = "stubs.rs")]
mod known_code;

pub use known_code::before_all;

use uunwind_core::memory::Reader;
use uunwind_core::stop_reason::StopReason;
pub use uunwind_eh_frame::Answer;
use uunwind_sframe::Section;

/// Where an object's unwind data lies, with its load bias.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sources {
    /// Address of `.eh_frame_hdr`; 0: none.
    pub eh_frame_hdr: u64,
    /// The object's image, in which all of its `.eh_frame` lies.
    pub image: (u64, u64),
    /// SFrame: address and length; (0, 0): none.
    pub sframe: (u64, u64),
    /// The code that SFrame may speak of.
    pub text: (u64, u64),
}

/// Who answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum By {
    /// `.eh_frame`.
    EhFrame,
    /// SFrame.
    Sframe,
    /// Nothing tells of the code, but it is that of `_init` or `_fini`, byte for byte; on AArch64, of a stub, or where signal
    /// handlers return to.
    StartFiles,
}

/// The rule for `pc` from the object's own unwind data, and whose it is; `lookup` is the address to search with.
/// Async-signal-safe.
///
/// Errors: those of `.eh_frame`, if no other has an answer.
pub fn find(sources: &Sources, lookup: u64, pc: u64, reader: &mut Reader<'_>) -> (Result<Answer, StopReason>, By) {
    if let Some(rule) = known_code::before_all(pc, reader) {
        return (Ok(Answer { rule: Ok(rule), function: (0, 0) }), By::StartFiles);
    }
    let first = uunwind_eh_frame::find(sources.eh_frame_hdr, sources.image, lookup, pc, reader);
    if let Ok(Answer { rule: Ok(_), .. }) = first {
        return (first, By::EhFrame);
    }
    if let Some(answer) = by_sframe(sources, lookup, reader).filter(|answer| answer.rule.is_ok()) {
        return (Ok(answer), By::Sframe);
    }
    if first == Err(StopReason::NoRule) {
        if let Some((rule, function)) = known_code::behind_all(lookup, pc, reader) {
            return (Ok(Answer { rule: Ok(rule), function }), By::StartFiles);
        }
    }
    (first, By::EhFrame)
}

/// The function around an address, by the object's own unwind data. Async-signal-safe.
pub fn function(sources: &Sources, address: u64, reader: &mut Reader<'_>) -> Option<(u64, u64)> {
    if let Ok(function) = uunwind_eh_frame::function(sources.eh_frame_hdr, sources.image, address, reader) {
        return Some(function);
    }
    by_sframe(sources, address, reader).filter(|answer| answer.rule.is_ok()).map(|answer| answer.function)
}

/// `None`: it says nothing.
#[cold]
fn by_sframe(sources: &Sources, lookup: u64, reader: &mut Reader<'_>) -> Option<Answer> {
    let (at, len) = sources.sframe;
    if len == 0 {
        return None;
    }
    let answer = uunwind_sframe::find(&Section::new(at, len, sources.text), lookup, reader).ok()?;
    Some(Answer { rule: answer.rule, function: answer.function })
}
