//! The rule for a frame, from all sources in their order of precedence, as a walk's environment on AArch64 consults
//! them.

use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::regs::aarch64::{Regs, SP};
use uunwind_core::rule::aarch64::Rule;
use uunwind_core::rule::RuleKind;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_eh_frame::cpu::AArch64;

/// The properties of a loaded object that a walk needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image {
    /// Its mapping: `[start, end)`.
    pub range: Span,
    /// Address of `.eh_frame_hdr`; 0 when there is none.
    pub eh_frame_hdr: u64,
}

/// The rule that leads from the current frame to its caller; `image`: the object that contains its code.
pub fn rule(cursor: &Cursor<Regs>, image: Option<Image>, reader: &mut Reader<'_>) -> Result<Rule, StopReason> {
    let pc = cursor.regs.pc;
    if let Some(rule) = Rule::at_sigreturn(pc, reader) {
        return Ok(rule);
    }
    let found = match image {
        Some(image) if image.eh_frame_hdr != 0 => {
            let lookup = cursor.lookup_pc();
            uunwind_eh_frame::find_for::<AArch64>(image.eh_frame_hdr, image.range, lookup, pc, reader)
                .and_then(|answer| answer.rule)
        }
        Some(_) => Err(StopReason::NoRule),
        None => Err(StopReason::NoOwner),
    };
    let known = |rule: &Rule| rule.cfa_register != SP || cursor.regs.get(SP).is_some() || rule.kind == RuleKind::End;
    match found {
        Ok(rule) if known(&rule) => Ok(rule),
        // After a step by frame pointer sp is not available; the frame pointer still is.
        Ok(_) => uunwind_frame_pointer::rule(cursor, StopReason::UnknownRegister),
        Err(reason) => {
            let stub = if cursor.exact { Rule::at_plt_stub(pc, reader) } else { None };
            stub.map_or_else(|| uunwind_frame_pointer::rule(cursor, reason), Ok)
        }
    }
}
