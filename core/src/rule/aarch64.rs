//! AArch64 (<https://github.com/ARM-software/abi-aa/blob/main/aapcs64/aapcs64.rst>): the return address is passed in
//! x30, where leaf functions leave it, may be signed, and is stored wherever the function chooses.

use super::{RuleKind, BY_FRAME_POINTER, DOUBTFUL, RA_IN_REGISTER, SAME, UNKNOWN};
use crate::cursor::Cursor;
use crate::memory::Reader;
use crate::regs::aarch64::{
    ucontext_offset, Regs, CALLEE_SAVED, COUNT, FP, RA, SIGFRAME_UCONTEXT, SIGRETURN, SP, UCONTEXT_PC, UCONTEXT_SP,
};
use crate::stop_reason::StopReason;

/// Number of slots of a rule: the callee-saved registers, then the return address.
const SLOTS: usize = 12;
/// Index of x29 among the slots.
pub const FP_SLOT: usize = 10;
/// Index of the return address among the slots.
pub const RA_SLOT: usize = 11;
/// [`Rule::flags`]: the return address may carry an authentication code, which must be stripped.
pub const RA_SIGNED: u8 = 4;

/// How to get from a frame to its caller: the form in which sources build a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Added to `cfa_register`, in bytes: a multiple of 8, less than 8 MiB. Packing refuses any other value.
    pub cfa_offset: i32,
    /// DWARF number of the register that the CFA is computed from, 0 to 31.
    pub cfa_register: u8,
    /// The meaning of the sum; never [`RuleKind::Deref`].
    pub kind: RuleKind,
    /// [`RA_IN_REGISTER`], [`BY_FRAME_POINTER`], [`DOUBTFUL`], [`RA_SIGNED`].
    pub flags: u8,
    /// Where x19 to x29 and the return address were saved, in words from the CFA; or [`SAME`], [`UNKNOWN`].
    pub slots: [i16; RA_SLOT + 1],
}

impl Rule {
    /// CFA = `register` + `offset`, return address in x30, callee-saved registers unchanged: the rule at a function's
    /// first instruction.
    pub const fn simple(register: u8, offset: i32) -> Rule {
        let mut slots = [SAME; SLOTS];
        slots[RA_SLOT] = RA as i16;
        Rule { cfa_offset: offset, cfa_register: register, kind: RuleKind::Offset, flags: RA_IN_REGISTER, slots }
    }

    /// The rule by the frame record that x29 points to: the caller's x29, followed by the return address. The record's
    /// position in its frame is not determined, so the caller's sp is unknown: it is at least the record's end.
    pub const fn frame_pointer() -> Rule {
        let mut rule = Rule::simple(FP, 16);
        rule.slots = [UNKNOWN; SLOTS];
        rule.slots[FP_SLOT] = -2;
        rule.slots[RA_SLOT] = -1;
        // Nothing says whether this code signs its return addresses.
        rule.flags = BY_FRAME_POINTER | RA_SIGNED;
        rule
    }

    /// The rule of the outermost frame: it has no caller, and the stack is complete.
    pub const fn end() -> Rule {
        Rule { kind: RuleKind::End, flags: 0, ..Rule::simple(SP, 0) }
    }

    /// A signal frame whose ucontext lies at sp + `offset`.
    pub const fn signal(offset: i32) -> Rule {
        Rule { kind: RuleKind::Signal, flags: 0, ..Rule::simple(SP, offset) }
    }

    /// The signal frame's rule, if `pc` is where signal handlers return to. It takes precedence over unwind tables: by
    /// the vDSO's tables the interrupted code's own caller would follow, and the interrupted code would be missing.
    pub fn at_sigreturn(pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
        (pc & 3 == 0 && reader.word(pc) == Some(SIGRETURN)).then_some(Rule::signal(SIGFRAME_UCONTEXT))
    }

    /// The rule inside a stub of the procedure linkage table, which no table describes; `pc`: an interrupted
    /// instruction there. The instructions up to the jump leave sp and x30 alone, so the return address is in x30; but
    /// the first stub, for functions that are not bound yet, has pushed 16 bytes before. Reads at most 10 instructions.
    pub fn at_plt_stub(pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
        const PUSH: u32 = 0xa9bf_7bf0; // stp x16, x30, [sp, #-16]!
        const JUMP: u32 = 0xd61f_0220; // br x17
        let mut at = |index: i64| reader.u32(pc.wrapping_add_signed(4 * index));
        let passes = |instruction: u32| {
            instruction & 0x9f00_001f == 0x9000_0010 // adrp x16, ...
                || instruction & 0xffc0_03ff == 0xf940_0211 // ldr x17, [x16, ...]
                || instruction & 0xffc0_03ff == 0x9100_0210 // add x16, x16, ...
                || matches!(instruction, 0xd503_245f | 0xd503_219f) // bti c; autia1716
        };
        let here = at(0).filter(|_| pc & 3 == 0)?;
        let ahead = if here == PUSH { 1 } else { 0 };
        let jump = (ahead..ahead + 6).find_map(|index| match at(index) {
            Some(instruction) if passes(instruction) => None,
            other => Some(other == Some(JUMP)),
        });
        if jump != Some(true) {
            return None;
        }
        let pushed = (1..5).find_map(|back| match at(-back) {
            Some(instruction) if passes(instruction) => None,
            other => Some(other == Some(PUSH)),
        });
        Some(Rule::simple(SP, if pushed == Some(true) && here != PUSH { 16 } else { 0 }))
    }

    /// A rule from parts that foreign code gave; `None` if they are no valid rule. The return address may be signed:
    /// nothing says whether that code signs its own.
    pub fn from_parts(kind: RuleKind, register: u8, offset: i32, addend: i32, slots: [i16; SLOTS]) -> Option<Rule> {
        let simple = Rule::simple(register, offset);
        let rule = match kind {
            RuleKind::Deref => return None,
            RuleKind::Signal | RuleKind::End => Rule { kind, slots, flags: 0, ..simple },
            RuleKind::Offset => match slots[RA_SLOT] {
                UNKNOWN => return None,
                SAME => {
                    let mut slots = slots;
                    slots[RA_SLOT] = RA as i16;
                    Rule { slots, flags: RA_IN_REGISTER | RA_SIGNED, ..simple }
                }
                _ => Rule { slots, flags: RA_SIGNED, ..simple },
            },
        };
        (addend == 0).then_some(rule)
    }

    /// The addend, 0, and the slots, as [`Rule::from_parts`] takes them, if they, kind, register and offset describe
    /// the rule completely.
    pub fn plain_parts(&self) -> Option<(i32, [i16; SLOTS])> {
        let mut slots = self.slots;
        if self.flags & RA_IN_REGISTER != 0 {
            if slots[RA_SLOT] != RA as i16 {
                return None;
            }
            slots[RA_SLOT] = SAME;
        }
        (self.flags & (BY_FRAME_POINTER | DOUBTFUL) == 0).then_some((0, slots))
    }

    /// The rule in the form that is cached and executed. A register that was saved farther than 16 KiB from the CFA
    /// becomes unknown.
    pub const fn pack(self) -> Packed {
        let words = self.cfa_offset / 8;
        if self.cfa_offset % 8 != 0
            || words > OFFSET_MAX
            || words < -OFFSET_MAX
            || self.cfa_register >= COUNT as u8
            || matches!(self.kind, RuleKind::Deref)
        {
            return Packed::failed(StopReason::UnsupportedRule);
        }
        let head = (words as u32 & OFFSET_MASK) as u64
            | (self.cfa_register as u64) << REGISTER
            | (self.kind as u64) << KIND
            | ((self.flags & 7) as u64) << FLAGS
            | (self.slots[RA_SLOT] as u16 as u64) << 32
            | (self.slots[FP_SLOT] as u16 as u64) << 48;
        let (mut low, mut high) = (0, 0);
        let mut index = 0;
        while index < NEAR {
            low |= near(self.slots[index]) << (NEAR_BITS * index);
            high |= near(self.slots[index + NEAR]) << (NEAR_BITS * index);
            index += 1;
        }
        low |= ((self.flags & DOUBTFUL != 0) as u64) << DOUBT;
        Packed { head, low, high }
    }
}

const OFFSET_BITS: u32 = 21;
const OFFSET_MASK: u32 = (1 << OFFSET_BITS) - 1;
/// Largest CFA offset, in words.
const OFFSET_MAX: i32 = (1 << (OFFSET_BITS - 1)) - 1;
const REGISTER: u32 = OFFSET_BITS;
const KIND: u32 = REGISTER + 5;
const FLAGS: u32 = KIND + 2;
const FAILED: u64 = 1 << (FLAGS + 3);
/// Slots in each of the two last words.
const NEAR: usize = 5;
const NEAR_BITS: usize = 12;
const NEAR_MASK: u64 = (1 << NEAR_BITS) - 1;
/// Bit of `low` with [`DOUBTFUL`], which no rule that is cached has.
const DOUBT: usize = NEAR * NEAR_BITS;
const NEAR_SAME: u64 = NEAR_MASK >> 1;
const NEAR_UNKNOWN: u64 = NEAR_SAME + 1;

const _: () = assert!(FAILED == 1 << 31 && 2 * NEAR == FP_SLOT);

/// A slot of x19 to x28 in 12 bits.
const fn near(slot: i16) -> u64 {
    match slot {
        SAME => NEAR_SAME,
        -2047..=2046 => slot as u64 & NEAR_MASK,
        _ => NEAR_UNKNOWN,
    }
}

/// A [`Rule`] in three words, which caches hold and walks execute.
///
/// `head`: CFA offset in words (21 bits), CFA register (5), kind (2), flags (3), failed (1), the slots of the return
/// address and of x29 (16 each); `low`, `high`: the slots of x19 to x23 and of x24 to x28, 12 bits each, and in `low`
/// one more flag. A failed rule, the answer of a source that has none, ends the walk; its reason is in `low`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed {
    head: u64,
    low: u64,
    high: u64,
}

impl Packed {
    /// The answer that there is no rule, for this reason.
    pub const fn failed(reason: StopReason) -> Packed {
        let end = Rule::end();
        let head = FAILED | (end.cfa_register as u64) << REGISTER | (end.kind as u64) << KIND;
        Packed { head, low: reason as u64, high: 0 }
    }

    /// A rule, or the reason why there is none.
    pub fn from_result(rule: Result<Rule, StopReason>) -> Packed {
        rule.map_or_else(Packed::failed, Rule::pack)
    }

    /// Whether there is no rule, for exactly this reason.
    #[inline(always)]
    pub fn failed_for(self, reason: StopReason) -> bool {
        self.is_failed() && self.low == reason as u64
    }

    /// Whether there is no rule.
    #[inline(always)]
    pub fn is_failed(self) -> bool {
        self.head & FAILED != 0
    }

    /// The three words of the packed rule.
    pub fn words(self) -> [u64; 3] {
        [self.head, self.low, self.high]
    }

    /// The rule with these words from [`Packed::words`]; `None` for other words.
    #[inline(always)]
    pub fn from_words([head, low, high]: [u64; 3]) -> Option<Packed> {
        let packed = Packed { head, low, high };
        ((low | high) >> (NEAR * NEAR_BITS) == 0 && packed.kind() != RuleKind::Deref).then_some(packed)
    }

    /// The rule that was packed, or the reason why there is none.
    pub fn unpack(self) -> Result<Rule, StopReason> {
        if self.is_failed() {
            return Err(StopReason::from_number(self.low as u16).unwrap_or(StopReason::NoRule));
        }
        let (cfa_register, cfa_offset) = self.cfa_parts();
        let mut rule = Rule::simple(cfa_register, cfa_offset);
        (rule.kind, rule.flags) = (self.kind(), self.flags());
        for (index, slot) in rule.slots.iter_mut().enumerate() {
            *slot = self.slot(index);
        }
        Ok(rule)
    }

    /// The register that the CFA is computed from, and what is added to it, in bytes.
    pub fn cfa_parts(self) -> (u8, i32) {
        let words = ((self.head as u32) << (32 - OFFSET_BITS)) as i32 >> (32 - OFFSET_BITS);
        ((self.head >> REGISTER) as u8 & 31, words * 8)
    }

    /// Whether the CFA is a register plus an offset.
    pub fn is_plain(self) -> bool {
        self.kind() == RuleKind::Offset && !self.is_failed()
    }

    /// Where the return address is in a frame with this CFA. `None`: not at a fixed distance from it.
    pub fn return_address_at(self, cfa: u64) -> Option<u64> {
        let is_there = self.is_plain() && self.flags() & RA_IN_REGISTER == 0;
        is_there.then(|| word_at(cfa, self.slot(RA_SLOT)))
    }

    /// The registers that executing it reads and restores, in the bits of [`crate::cache::last_walk`]: one for x29, one
    /// for all others together.
    pub fn uses_and_restores(self) -> (u8, u8) {
        use crate::cache::last_walk::{EVERY_REGISTER, FP_BIT, OTHER};
        if self.is_failed() || self.flags() & BY_FRAME_POINTER != 0 {
            // It was checked whether the frame pointer is plausible, and whether sp is known.
            return (FP_BIT | OTHER, 0);
        }
        let mut uses = bit(self.cfa_parts().0);
        if self.flags() & RA_IN_REGISTER != 0 {
            uses |= bit(self.slot(RA_SLOT) as u8);
        }
        if self.kind() == RuleKind::Signal {
            return (uses, EVERY_REGISTER);
        }
        (uses, if self.slot(FP_SLOT) == SAME { 0 } else { FP_BIT })
    }

    /// Whether the caller's stack pointer is not the CFA: no rule of this CPU has that.
    #[inline(always)]
    pub fn leads_to_another_stack(self) -> bool {
        false
    }

    /// Whether the CFA lies on another stack: no rule of this CPU has that.
    #[inline(always)]
    pub fn is_on_other_stack(self) -> bool {
        false
    }

    /// The meaning of the sum of register and offset.
    #[inline(always)]
    pub fn kind(self) -> RuleKind {
        match (self.head >> KIND) & 3 {
            0 => RuleKind::Offset,
            1 => RuleKind::Deref,
            2 => RuleKind::Signal,
            _ => RuleKind::End,
        }
    }

    /// [`RA_IN_REGISTER`], [`BY_FRAME_POINTER`], [`DOUBTFUL`], [`RA_SIGNED`].
    #[inline(always)]
    pub fn flags(self) -> u8 {
        let doubtful = if self.low >> DOUBT & 1 != 0 { DOUBTFUL } else { 0 };
        (self.head >> FLAGS) as u8 & 7 | doubtful
    }

    #[inline(always)]
    fn slot(self, index: usize) -> i16 {
        match index {
            RA_SLOT => (self.head >> 32) as u16 as i16,
            FP_SLOT => (self.head >> 48) as u16 as i16,
            _ => {
                let word = if index < NEAR { self.low } else { self.high };
                match (word >> (NEAR_BITS * (index % NEAR))) & NEAR_MASK {
                    NEAR_SAME => SAME,
                    NEAR_UNKNOWN => UNKNOWN,
                    near => ((near << 4) as u16 as i16) >> 4,
                }
            }
        }
    }

    fn base(self, cursor: &Cursor<Regs>) -> Result<u64, StopReason> {
        let (register, offset) = self.cfa_parts();
        let base = cursor.regs.get(register).ok_or(StopReason::UnknownRegister)?;
        Ok(base.wrapping_add_signed(i64::from(offset)))
    }

    /// The frame's CFA. Reads at most one word. `Err` is also the result for an outermost frame.
    #[inline]
    pub fn cfa(self, cursor: &Cursor<Regs>, reader: &mut Reader<'_>) -> Result<u64, StopReason> {
        match self.kind() {
            RuleKind::Offset => self.base(cursor),
            RuleKind::Deref => Err(StopReason::UnsupportedRule),
            RuleKind::Signal => {
                let at = self.base(cursor)?.wrapping_add(UCONTEXT_SP);
                reader.word(at).ok_or(StopReason::UnreadableStack)
            }
            RuleKind::End if self.is_failed() => {
                Err(StopReason::from_number(self.low as u16).unwrap_or(StopReason::NoRule))
            }
            RuleKind::End => Err(StopReason::Complete),
        }
    }

    /// Moves the cursor to the caller, given the frame's CFA. Reads at most 33 words. After an error the cursor is
    /// inconsistent and must not be used.
    #[inline]
    pub fn advance(self, cursor: &mut Cursor<Regs>, cfa: u64, reader: &mut Reader<'_>) -> Result<(), StopReason> {
        if self.kind() == RuleKind::Signal {
            return signal_caller(self, cursor, reader);
        }
        let regs = &mut cursor.regs;
        let ra_slot = self.slot(RA_SLOT);
        let ra = if self.flags() & RA_IN_REGISTER != 0 {
            regs.get(ra_slot as u8).ok_or(StopReason::UnknownRegister)?
        } else {
            reader.word(word_at(cfa, ra_slot)).ok_or(StopReason::UnreadableStack)?
        };
        regs.pc = if self.flags() & RA_SIGNED != 0 { regs.strip(ra) } else { ra };
        for (index, register) in CALLEE_SAVED.into_iter().enumerate() {
            let slot = self.slot(index);
            if slot == SAME {
                continue;
            }
            match Some(slot).filter(|slot| *slot != UNKNOWN).and_then(|slot| reader.word(word_at(cfa, slot))) {
                Some(value) => regs.set(register, value),
                None => regs.forget(register),
            }
        }
        regs.keep_callee_saved();
        regs.set(SP, cfa);
        if self.flags() & BY_FRAME_POINTER != 0 {
            regs.forget(SP);
        }
        cursor.exact = false;
        Ok(())
    }
}

/// The bit of a register, by its DWARF number, in the sense of [`crate::cache::last_walk`]: one for x29, one for all
/// others together.
fn bit(register: u8) -> u8 {
    use crate::cache::last_walk::{FP_BIT, OTHER};
    match register {
        SP => 0,
        FP => FP_BIT,
        _ => OTHER,
    }
}

/// The bits of the registers in a mask by DWARF number.
pub fn bits(registers: u32) -> u8 {
    (0..32).filter(|register| registers >> register & 1 != 0).fold(0, |bits, register| bits | bit(register))
}

#[inline(always)]
fn word_at(base: u64, slot: i16) -> u64 {
    base.wrapping_add_signed(i64::from(slot) * 8)
}

/// The caller of a signal frame is the interrupted code, whose registers the kernel saved in a ucontext.
#[cold]
fn signal_caller(rule: Packed, cursor: &mut Cursor<Regs>, reader: &mut Reader<'_>) -> Result<(), StopReason> {
    let ucontext = rule.base(cursor)?;
    let mut word = |offset: u64| reader.word(ucontext.wrapping_add(offset)).ok_or(StopReason::UnreadableStack);
    let mut values = [0; COUNT];
    for (register, value) in (0..).zip(values.iter_mut()) {
        *value = word(ucontext_offset(register))?;
    }
    let pc = word(UCONTEXT_PC)?;
    let regs = Regs::full(pc, values).with_pac_mask(cursor.regs.pac_mask);
    *cursor = Cursor { regs, exact: true };
    Ok(())
}
