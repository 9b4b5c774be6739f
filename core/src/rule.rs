//! A rule: data that tells how to get from a frame to its caller.
//!
//! All native sources (eh_frame, SFrame, frame pointers, JIT tables) answer with rules. A rule is a pure function of the
//! pc, so the core caches it and executes it here, in one place.

use crate::cursor::Cursor;
use crate::memory::Reader;
use crate::regs::{self, Regs, CALLEE_SAVED, RBP};
use crate::stop_reason::StopReason;

/// How the CFA, and with it the caller, is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RuleKind {
    /// CFA = register + offset.
    Offset = 0,
    /// CFA = the word at register + offset, plus `cfa_addend` (realigned stacks).
    Deref = 1,
    /// A signal frame: a ucontext lies at register + offset.
    Signal = 2,
    /// The outermost frame: its return address is undefined.
    End = 3,
}

/// A slot that leaves its register as it is.
pub const SAME: i16 = i16::MAX;
/// A slot whose register cannot be told in the caller.
pub const UNKNOWN: i16 = i16::MIN;
/// Index of the return address among the slots.
pub const RA_SLOT: usize = 6;
/// [`Rule::flags`]: the return address is in the register whose number stands in its slot.
pub const RA_IN_REGISTER: u8 = 1;
/// [`Rule::flags`]: found by frame pointer, for want of unwind information.
pub const BY_FRAME_POINTER: u8 = 2;

/// How to get from a frame to its caller. 24 bytes, plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Rule {
    /// Added to `cfa_register`.
    pub cfa_offset: i32,
    /// DWARF number of the register that the CFA is computed from.
    pub cfa_register: u8,
    /// What the sum is.
    pub kind: RuleKind,
    /// Bit n: slot n counts from rbp in this frame instead of from the CFA.
    pub from_fp: u8,
    /// [`RA_IN_REGISTER`], [`BY_FRAME_POINTER`].
    pub flags: u8,
    /// Where rbx, rbp, r12-r15 and the return address were saved, in words from the CFA; or [`SAME`], [`UNKNOWN`].
    pub slots: [i16; 7],
    /// Added to the word that [`RuleKind::Deref`] reads, in bytes.
    pub cfa_addend: i16,
}

const _: () = assert!(core::mem::size_of::<Rule>() == 24);

/// What a rule gives for a frame.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Canonical frame address of the frame.
    pub cfa: u64,
    /// The caller.
    pub caller: Cursor,
    /// The frame was a signal frame: the caller may be on another stack.
    pub signal: bool,
}

impl Rule {
    /// CFA = `register` + `offset`, return address just below it, callee-saved registers unchanged.
    pub const fn simple(register: u8, offset: i32) -> Rule {
        Rule {
            cfa_offset: offset,
            cfa_register: register,
            kind: RuleKind::Offset,
            from_fp: 0,
            flags: 0,
            slots: [SAME, SAME, SAME, SAME, SAME, SAME, -1],
            cfa_addend: 0,
        }
    }

    /// The standard frame-pointer frame: CFA = rbp + 16, saved rbp and return address below it.
    pub const fn frame_pointer() -> Rule {
        let mut rule = Rule::simple(RBP, 16);
        rule.slots = [UNKNOWN, -2, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, -1];
        rule.flags = BY_FRAME_POINTER;
        rule
    }

    /// The outermost frame.
    pub const fn end() -> Rule {
        let mut rule = Rule::simple(regs::RSP, 8);
        rule.kind = RuleKind::End;
        rule
    }

    /// A signal frame whose ucontext lies at rsp + `offset`.
    pub const fn signal(offset: i32) -> Rule {
        let mut rule = Rule::simple(regs::RSP, offset);
        rule.kind = RuleKind::Signal;
        rule
    }

    /// Executes the rule. Reads at most 17 words.
    #[inline]
    pub fn step(&self, cursor: &Cursor, reader: &mut Reader<'_>) -> Result<Step, StopReason> {
        let regs = &cursor.regs;
        let base = regs.get(self.cfa_register).ok_or(StopReason::UnknownRegister)?;
        let sum = base.wrapping_add_signed(i64::from(self.cfa_offset));
        let cfa = match self.kind {
            RuleKind::Offset => sum,
            RuleKind::Deref => {
                let word = reader.word(sum).ok_or(StopReason::UnreadableStack)?;
                word.wrapping_add_signed(i64::from(self.cfa_addend))
            }
            RuleKind::Signal => return signal_step(sum, reader),
            RuleKind::End => return Err(StopReason::Complete),
        };
        let mut caller = *regs;
        caller.keep_callee_saved();
        let fp = regs.get(RBP);
        for (index, register) in CALLEE_SAVED.iter().enumerate() {
            match self.slots.get(index).copied().unwrap_or(UNKNOWN) {
                SAME => {}
                UNKNOWN => caller.forget(*register),
                slot => {
                    let value = self.slot_base(index, cfa, fp).and_then(|b| reader.word(word_at(b, slot)));
                    caller.set(*register, value.ok_or(StopReason::UnreadableStack)?);
                }
            }
        }
        let ra_slot = self.slots.get(RA_SLOT).copied().unwrap_or(UNKNOWN);
        caller.pc = if self.flags & RA_IN_REGISTER != 0 {
            regs.get(ra_slot as u8).ok_or(StopReason::UnknownRegister)?
        } else {
            let base = self.slot_base(RA_SLOT, cfa, fp).ok_or(StopReason::UnknownRegister)?;
            reader.word(word_at(base, ra_slot)).ok_or(StopReason::UnreadableStack)?
        };
        caller.set(regs::RSP, cfa);
        Ok(Step { cfa, caller: Cursor { regs: caller, exact: false }, signal: false })
    }

    fn slot_base(&self, index: usize, cfa: u64, fp: Option<u64>) -> Option<u64> {
        if self.from_fp & (1 << index) != 0 {
            fp
        } else {
            Some(cfa)
        }
    }
}

#[inline]
fn word_at(base: u64, slot: i16) -> u64 {
    base.wrapping_add_signed(i64::from(slot) * 8)
}

/// The kernel saved every register in a ucontext (arch/x86/include/asm/sigframe.h); the caller is the interrupted code.
#[cold]
fn signal_step(ucontext: u64, reader: &mut Reader<'_>) -> Result<Step, StopReason> {
    let mut values = [0; regs::COUNT];
    for (register, value) in values.iter_mut().enumerate() {
        let at = ucontext.wrapping_add(regs::ucontext_offset(register as u8));
        *value = reader.word(at).ok_or(StopReason::UnreadableStack)?;
    }
    let at = ucontext.wrapping_add(regs::ucontext_offset(regs::RA));
    let pc = reader.word(at).ok_or(StopReason::UnreadableStack)?;
    let caller = Regs::full(pc, values);
    Ok(Step { cfa: caller.sp(), caller: Cursor { regs: caller, exact: true }, signal: true })
}
