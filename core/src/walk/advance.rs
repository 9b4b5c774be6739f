//! One step to the caller, with the checks that every step must pass.

use crate::cursor::Cursor;
use crate::memory::Reader;
use crate::regs::FP;
use crate::rule::{Packed, RuleKind, BY_FRAME_POINTER};
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

/// Whether the frame pointer points into the red zone, the bytes below the stack pointer that a signal's delivery
/// leaves alone, and the return address, by a rule of unwind data, is still to be popped (libffi's `ffi_call_unix64`).
#[cold]
fn is_in_red_zone(rule: Packed, cursor: &Cursor, cfa: u64) -> bool {
    const RED_ZONE: u64 = if cfg!(target_arch = "x86_64") { 128 } else { 0 };
    let sp = cursor.regs.sp();
    let near = cursor.regs.get(FP).is_some_and(|fp| fp.wrapping_add(RED_ZONE) >= sp && fp < sp);
    cursor.exact && near && cfa > sp && rule.flags() & BY_FRAME_POINTER == 0
}

/// Moves to the caller, with the checks on every step. A signal frame may lead to another stack; everything else must
/// move towards the root, and a CFA that counts from the frame pointer needs one that is not stale: at or above the
/// stack pointer, or where a function at an interrupted pc has moved the stack pointer past what it saved, which it
/// restores from there.
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
        let stale = rule.cfa_parts().0 == FP && cursor.regs.get(FP) < Some(sp) && !is_in_red_zone(rule, cursor, cfa);
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
