//! One step to the caller, with the checks that every step must pass.

use crate::cursor::Cursor;
use crate::memory::Reader;
use crate::regs::FP;
use crate::rule::{Packed, RuleKind};
use crate::stop_reason::StopReason;

/// Moves to a caller on another stack: only from an interrupted pc, of which there is one on each stack, or where a
/// call on another stack is known to return. The number of frames is limited, wherever they lie.
#[cold]
fn to_another_stack(rule: Packed, cursor: &mut Cursor, cfa: u64, reader: &mut Reader<'_>) -> Result<(), StopReason> {
    if !cursor.exact && !rule.is_on_other_stack() {
        return Err(StopReason::BadCfa);
    }
    rule.advance(cursor, cfa, reader)?;
    match (cursor.regs.pc, cursor.regs.sp() & 7) {
        (_, 1..) => Err(StopReason::BadCfa),
        (0, _) => Err(StopReason::NullReturnAddress),
        _ => Ok(()),
    }
}

/// Moves to the caller, with the checks on every step. A signal frame may lead to another stack; everything else must
/// move towards the root, and a CFA that counts from the frame pointer needs one that is not stale: at or above the
/// stack pointer.
#[inline(always)]
pub(super) fn advance(rule: Packed, cursor: &mut Cursor, cfa: u64, reader: &mut Reader<'_>) -> Result<(), StopReason> {
    let sp = cursor.regs.sp();
    if rule.leads_to_another_stack() {
        return to_another_stack(rule, cursor, cfa, reader);
    }
    if rule.kind() != RuleKind::Signal {
        // A return address that was popped leaves a frame of no size: into a register (vfork), or it still lies just
        // below the stack pointer (OCaml's caml_c_call), where a signal's delivery changes nothing (System V ABI,
        // 3.2.2, the red zone).
        let no_size = cursor.exact;
        let stale = rule.cfa_parts().0 == FP && cursor.regs.get(FP) < Some(sp);
        if stale || cfa < sp || (cfa == sp && !no_size) || cfa & 7 != 0 {
            return Err(StopReason::BadCfa);
        }
    }
    rule.advance(cursor, cfa, reader)?;
    if cursor.regs.pc == 0 && rule.kind() != RuleKind::Signal {
        return Err(StopReason::NullReturnAddress);
    }
    Ok(())
}
