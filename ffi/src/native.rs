//! The sources of one object, asked one after the other for each frame: the complete and trusted one first.
//!
//! `.eh_frame` knows every callee-saved register and is complete where a compiler wrote it. SFrame knows the caller and
//! its rbp only, often covers no more than a PLT, and linkers write wrong rows into it, so it answers where `.eh_frame`
//! has nothing to say: where it is missing, does not cover the address, is damaged, or says what no rule can.

use crate::start_files;
use uunwind_core::memory::Reader;
use uunwind_core::objects::Object;
use uunwind_core::stop_reason::StopReason;
pub use uunwind_eh_frame::Answer;
use uunwind_sframe::Section;

/// The rule for `pc` from the object's own unwind data; `lookup` is the address to search with. Async-signal-safe.
///
/// Errors: those of `.eh_frame`, if SFrame has no answer either.
pub fn find(object: &Object, lookup: u64, pc: u64, reader: &mut Reader<'_>) -> Result<Answer, StopReason> {
    let first = uunwind_eh_frame::find(object.eh_frame_hdr, object.image, lookup, pc, reader);
    match first {
        Ok(Answer { rule: Ok(_), .. }) => first,
        _ => by_sframe(object, lookup, reader).unwrap_or_else(|| by_start_files(first, pc, reader)),
    }
}

/// Without any unwind information: the C library's own start files, or what was said.
#[cold]
fn by_start_files(said: Result<Answer, StopReason>, pc: u64, reader: &mut Reader<'_>) -> Result<Answer, StopReason> {
    match said {
        Err(StopReason::NoRule) => {
            start_files::rule(pc, reader).map_or(said, |rule| Ok(Answer { rule: Ok(rule), function: (0, 0) }))
        }
        _ => said,
    }
}

/// The function around an address, by the object's own unwind data. Async-signal-safe.
pub fn function(object: &Object, address: u64, reader: &mut Reader<'_>) -> Option<(u64, u64)> {
    if let Ok(function) = uunwind_eh_frame::function(object.eh_frame_hdr, object.image, address, reader) {
        return Some(function);
    }
    by_sframe(object, address, reader)?.ok().map(|answer| answer.function)
}

/// `None`: nothing that is better than what `.eh_frame` said.
#[cold]
fn by_sframe(object: &Object, lookup: u64, reader: &mut Reader<'_>) -> Option<Result<Answer, StopReason>> {
    let (at, len) = object.sframe;
    if len == 0 {
        return None;
    }
    let section = Section::new(at, len, (object.start, object.end));
    let answer = uunwind_sframe::find(&section, lookup, reader).ok()?;
    answer.rule.is_ok().then_some(Ok(Answer { rule: answer.rule, function: answer.function }))
}
