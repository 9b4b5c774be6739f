//! Frames whose caller is not the next one on the same stack: signal frames, and code that switches stacks.

use super::{word_at, Packed, ON_OTHER_STACK, RA_SLOT, REGISTER_SLOTS, SP_SAVED};
use crate::cursor::Cursor;
use crate::memory::Reader;
use crate::regs::{self, Regs, CALLEE_SAVED, RBP};
use crate::rule::{RuleKind, RA_IN_REGISTER, SAME, UNKNOWN};
use crate::stop_reason::StopReason;

/// The caller in code that is about to switch to another stack, or has switched and loads the registers: the values lie
/// around the CFA, or in registers.
#[cold]
pub(super) fn caller_on_another_stack(
    rule: Packed,
    cursor: &mut Cursor,
    cfa: u64,
    reader: &mut Reader<'_>,
) -> Result<(), StopReason> {
    let before = cursor.regs;
    let value = |slot: i16, reader: &mut Reader<'_>| match slot.checked_sub(REGISTER_SLOTS) {
        Some(register @ 0..) => before.get(register as u8),
        _ => reader.word(word_at(cfa, slot)),
    };
    let sp = rule.slot(RA_SLOT + 1);
    let sp = match rule.flags() & ON_OTHER_STACK {
        ON_OTHER_STACK => Some(cfa),
        SP_SAVED => reader.word(word_at(cfa, sp)),
        _ => before.get(sp as u8),
    };
    let ra = rule.slot(RA_SLOT);
    let pc = if rule.flags() & RA_IN_REGISTER != 0 { before.get(ra as u8) } else { value(ra, reader) };
    let (Some(sp), Some(pc)) = (sp, pc) else { return Err(StopReason::UnknownRegister) };
    let regs = &mut cursor.regs;
    for (index, register) in CALLEE_SAVED.into_iter().enumerate() {
        match rule.slot(index) {
            SAME => {}
            UNKNOWN => regs.forget(register),
            slot => match value(slot, reader) {
                Some(value) => regs.set(register, value),
                None => regs.forget(register),
            },
        }
    }
    if rule.is_on_other_stack() && rule.kind() == RuleKind::Deref {
        // A frame pointer from before the stack was moved points to memory that may have another use by now.
        let (_, end) = on_goroutine(rule, rule.base(&Cursor { regs: before, exact: false })?, reader)?;
        if !regs.get(RBP).is_some_and(|fp| (cfa..end).contains(&fp)) {
            regs.forget(RBP);
        }
    }
    regs.pc = pc;
    regs.keep_callee_saved();
    regs.set(regs::RSP, sp);
    cursor.exact = false;
    Ok(())
}

/// The CFA of [`Rule::on_goroutine`], and the end of its stack. `at`: address of the stack depth.
#[cold]
pub(super) fn on_goroutine(rule: Packed, at: u64, reader: &mut Reader<'_>) -> Result<(u64, u64), StopReason> {
    let mut word = |at: u64| reader.word(at).ok_or(StopReason::UnreadableStack);
    let (depth, g) = (word(at)?, word(at.wrapping_add(8))?);
    let (start, end) = (word(g)?, word(g.wrapping_add(8))?);
    let sp = end.checked_sub(depth).filter(|sp| *sp >= start).ok_or(StopReason::BadCfa)?;
    let cfa = sp.wrapping_add_signed(i64::from(rule.slot(RA_SLOT + 1)));
    if (sp..end).contains(&cfa) {
        Ok((cfa, end))
    } else {
        Err(StopReason::BadCfa)
    }
}

/// The caller of a signal frame is the interrupted code, whose registers the kernel saved in a ucontext
/// (<https://github.com/torvalds/linux/blob/v6.1/arch/x86/include/asm/sigframe.h>).
#[cold]
pub(super) fn signal_caller(rule: Packed, cursor: &mut Cursor, reader: &mut Reader<'_>) -> Result<(), StopReason> {
    let ucontext = rule.base(cursor)?;
    let (mut values, mut known) = ([0; regs::COUNT], 0);
    for (register, value) in values.iter_mut().enumerate() {
        // A copy of a stack has only those that hold addresses of code or of frames.
        if let Some(word) = reader.word(ucontext.wrapping_add(regs::ucontext_offset(register as u8))) {
            *value = word;
            known |= 1 << register;
        }
    }
    let at = ucontext.wrapping_add(regs::ucontext_offset(regs::RA));
    let pc = reader.word(at).ok_or(StopReason::UnreadableStack)?;
    if known & 1 << regs::RSP == 0 {
        return Err(StopReason::UnreadableStack);
    }
    *cursor = Cursor { regs: Regs::some(pc, values, known), exact: true };
    Ok(())
}
