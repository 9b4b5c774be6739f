//! x86-64: the return address lies on the stack, and saved registers near the CFA.

use super::{RuleKind, BY_FRAME_POINTER, RA_IN_REGISTER, SAME, UNKNOWN};
use crate::cursor::Cursor;
use crate::memory::Reader;
use crate::regs::{self, Regs, CALLEE_SAVED, RBP};
use crate::stop_reason::StopReason;

/// Index of the return address among the slots.
pub const RA_SLOT: usize = 6;
/// How to get from a frame to its caller: the form in which sources build a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

const _: () = assert!(core::mem::size_of::<Packed>() == 24);

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

    /// A rule told from outside, by its parts; `None` for what makes no sense.
    pub fn told(kind: RuleKind, register: u8, offset: i32, addend: i32, slots: [i16; RA_SLOT + 1]) -> Option<Rule> {
        let cfa_addend = i16::try_from(addend).ok()?;
        Some(Rule { kind, slots, cfa_addend, ..Rule::simple(register, offset) })
    }

    /// The addend, if kind, register, offset, addend and slots say all.
    pub fn plain_addend(&self) -> Option<i32> {
        (self.from_fp == 0 && self.flags == 0).then_some(i32::from(self.cfa_addend))
    }

    /// The same rule in the form that is cached and executed.
    pub const fn pack(self) -> Packed {
        let [s0, s1, s2, s3, s4, s5, s6] = self.slots;
        const fn word(a: i16, b: i16, c: i16, d: i16) -> u64 {
            a as u16 as u64 | (b as u16 as u64) << 16 | (c as u16 as u64) << 32 | (d as u16 as u64) << 48
        }
        let mut touched = 0;
        let mut index = 0;
        while index < RA_SLOT {
            if self.slots[index] != SAME {
                touched |= 1 << index;
            }
            index += 1;
        }
        Packed {
            head: self.cfa_offset as u32 as u64
                | (self.cfa_register as u64) << 32
                | (self.kind as u64) << 40
                | ((self.flags & 3) as u64) << 42
                | (self.from_fp as u64) << 48
                | touched << 56,
            low: word(s0, s1, s2, s3),
            high: word(s4, s5, s6, self.cfa_addend),
        }
    }
}

/// A [`Rule`] in three words: what caches hold and walks execute. Kept in registers, and taken apart by shifts: a structure
/// of small fields would go through memory at every copy.
///
/// `head`: CFA offset (32 bits), CFA register (8), kind (2), flags (2), failed (1), from_fp (from bit 48), and from bit 56
/// which of the callee-saved registers are not simply left alone; `low`, `high`: the slots and the addend, 16 bits each. A
/// failed rule, the answer of a source that has none, ends the walk; its reason stands in `low`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed {
    head: u64,
    low: u64,
    high: u64,
}

const FAILED: u64 = 1 << 44;

impl Packed {
    /// There is no rule, for this reason.
    pub const fn failed(reason: StopReason) -> Packed {
        let mut packed = Rule::end().pack();
        packed.head |= FAILED;
        packed.low = reason as u64;
        packed
    }

    /// A rule, or why there is none.
    pub fn from_result(rule: Result<Rule, StopReason>) -> Packed {
        rule.map_or_else(Packed::failed, Rule::pack)
    }

    /// Whether there is no rule for this very reason.
    #[inline(always)]
    pub fn failed_for(self, reason: StopReason) -> bool {
        self.head & FAILED != 0 && self.low == reason as u64
    }

    /// Whether there is no rule.
    #[inline(always)]
    pub fn is_failed(self) -> bool {
        self.head & FAILED != 0
    }

    /// The three words.
    pub fn words(self) -> [u64; 3] {
        [self.head, self.low, self.high]
    }

    /// The rule that [`Packed::words`] gave; `None` for words that are none.
    #[inline(always)]
    pub fn from_words([head, low, high]: [u64; 3]) -> Option<Packed> {
        (head >> 45 & 7 == 0).then_some(Packed { head, low, high })
    }

    /// The rule that was packed, or why there is none.
    pub fn unpack(self) -> Result<Rule, StopReason> {
        if self.is_failed() {
            return Err(StopReason::from_number(self.low as u16).unwrap_or(StopReason::NoRule));
        }
        let (cfa_register, cfa_offset) = self.cfa_parts();
        let mut rule = Rule::simple(cfa_register, cfa_offset);
        (rule.kind, rule.flags, rule.from_fp) = (self.kind(), self.flags(), (self.head >> 48) as u8 & 0x7f);
        for (index, slot) in rule.slots.iter_mut().enumerate() {
            *slot = self.slot(index);
        }
        rule.cfa_addend = self.slot(RA_SLOT + 1);
        Ok(rule)
    }

    /// The register that the CFA is computed from, and what is added to it.
    #[inline(always)]
    pub fn cfa_parts(self) -> (u8, i32) {
        ((self.head >> 32) as u8, self.head as u32 as i32)
    }

    /// Whether the CFA is a register plus an offset.
    pub fn is_plain(self) -> bool {
        self.kind() == RuleKind::Offset && self.head & FAILED == 0
    }

    /// Restores the callee-saved registers that were saved below the CFA.
    #[inline(always)]
    fn restore(self, regs: &mut Regs, cfa: u64, fp: Option<u64>, reader: &mut Reader<'_>) {
        let mut touched = (self.head >> 56) as u8 & 0x3f;
        while touched != 0 {
            let index = touched.trailing_zeros() as usize;
            touched &= touched - 1;
            let Some(register) = CALLEE_SAVED.get(index).copied() else { break };
            let slot = self.slot(index);
            // A slot that cannot be read leaves its register unknown. Whether that matters is for the rules further out:
            // behind `leave`, gcc's tables still tell of a slot at rbp, which is the caller's by then.
            let base = if self.counts_from_fp(index) { fp } else { Some(cfa) };
            match base.filter(|_| slot != UNKNOWN).and_then(|base| reader.word(word_at(base, slot))) {
                Some(value) => regs.set(register, value),
                None => regs.forget(register),
            }
        }
    }

    /// Registers that executing it looks at and restores, as [`crate::reuse`] counts them.
    pub fn uses_and_restores(self) -> (u8, u8) {
        use crate::reuse::{EVERY_REGISTER, FP_BIT};
        let mut uses = bit((self.head >> 32) as u8);
        if self.head & FAILED != 0 {
            // Whether the frame pointer could serve was asked.
            return (FP_BIT, 0);
        }
        if self.flags() & RA_IN_REGISTER != 0 {
            uses |= bit(self.slot(RA_SLOT) as u8);
        }
        if (self.head >> 48) & 0x7f != 0 || self.flags() & BY_FRAME_POINTER != 0 {
            uses |= FP_BIT;
        }
        let restores = if self.kind() == RuleKind::Signal { EVERY_REGISTER } else { (self.head >> 56) as u8 & 0x3f };
        (uses, restores)
    }

    /// What the sum of register and offset is.
    #[inline(always)]
    pub fn kind(self) -> RuleKind {
        match (self.head >> 40) & 3 {
            0 => RuleKind::Offset,
            1 => RuleKind::Deref,
            2 => RuleKind::Signal,
            _ => RuleKind::End,
        }
    }

    /// [`RA_IN_REGISTER`], [`BY_FRAME_POINTER`].
    #[inline(always)]
    pub fn flags(self) -> u8 {
        (self.head >> 42) as u8 & 3
    }

    #[inline(always)]
    fn counts_from_fp(self, index: usize) -> bool {
        self.head & (1 << (48 + index)) != 0
    }

    #[inline(always)]
    fn slot(self, index: usize) -> i16 {
        let word = if index < 4 { self.low } else { self.high };
        (word >> (16 * (index & 3))) as u16 as i16
    }

    #[inline(always)]
    fn base(self, cursor: &Cursor) -> Result<u64, StopReason> {
        let base = cursor.regs.get((self.head >> 32) as u8).ok_or(StopReason::UnknownRegister)?;
        Ok(base.wrapping_add_signed(i64::from(self.head as u32 as i32)))
    }

    /// The frame's CFA. Reads at most one word. `Err` is also how an outermost frame answers.
    #[inline(always)]
    pub fn cfa(self, cursor: &Cursor, reader: &mut Reader<'_>) -> Result<u64, StopReason> {
        let sum = self.base(cursor)?;
        match self.kind() {
            RuleKind::Offset => Ok(sum),
            RuleKind::Deref => {
                let word = reader.word(sum).ok_or(StopReason::UnreadableStack)?;
                Ok(word.wrapping_add_signed(i64::from(self.slot(7))))
            }
            RuleKind::Signal => {
                let at = sum.wrapping_add(regs::ucontext_offset(regs::RSP));
                reader.word(at).ok_or(StopReason::UnreadableStack)
            }
            RuleKind::End => Err(self.end()),
        }
    }

    #[cold]
    fn end(self) -> StopReason {
        if self.head & FAILED == 0 {
            return StopReason::Complete;
        }
        StopReason::from_number(self.low as u16).unwrap_or(StopReason::NoRule)
    }

    /// Moves the cursor to the caller, given the frame's CFA. Reads at most 17 words. After an error the cursor is in
    /// between and must not be used.
    #[inline(always)]
    pub fn advance(self, cursor: &mut Cursor, cfa: u64, reader: &mut Reader<'_>) -> Result<(), StopReason> {
        if self.kind() == RuleKind::Signal {
            return signal_caller(self, cursor, reader);
        }
        // In place, register by register: what a frame leaves alone is not touched.
        let regs = &mut cursor.regs;
        let fp = regs.get(RBP);
        let ra_slot = self.slot(RA_SLOT);
        regs.pc = if self.flags() & RA_IN_REGISTER != 0 {
            regs.get(ra_slot as u8).ok_or(StopReason::UnknownRegister)?
        } else {
            let base = if self.counts_from_fp(RA_SLOT) { fp } else { Some(cfa) };
            let base = base.ok_or(StopReason::UnknownRegister)?;
            reader.word(word_at(base, ra_slot)).ok_or(StopReason::UnreadableStack)?
        };
        self.restore(regs, cfa, fp, reader);
        regs.keep_callee_saved();
        regs.set(regs::RSP, cfa);
        cursor.exact = false;
        Ok(())
    }
}

/// The bit of a register, by its DWARF number, as [`crate::reuse`] counts them.
fn bit(register: u8) -> u8 {
    use crate::reuse::{FP_BIT, OTHER};
    match register {
        regs::RSP => 0,
        RBP => FP_BIT,
        other => CALLEE_SAVED.iter().position(|r| *r == other).map_or(OTHER, |index| 1 << index),
    }
}

/// The bits of the registers in a mask by DWARF number, as [`crate::reuse`] counts them.
pub fn bits(registers: u32) -> u8 {
    (0..regs::COUNT as u8)
        .filter(|register| registers >> register & 1 != 0)
        .fold(0, |bits, register| bits | bit(register))
}

#[inline(always)]
fn word_at(base: u64, slot: i16) -> u64 {
    base.wrapping_add_signed(i64::from(slot) * 8)
}

/// The kernel saved every register in a ucontext (arch/x86/include/asm/sigframe.h); the caller is the interrupted code.
#[cold]
fn signal_caller(rule: Packed, cursor: &mut Cursor, reader: &mut Reader<'_>) -> Result<(), StopReason> {
    let ucontext = rule.base(cursor)?;
    let mut values = [0; regs::COUNT];
    for (register, value) in values.iter_mut().enumerate() {
        let at = ucontext.wrapping_add(regs::ucontext_offset(register as u8));
        *value = reader.word(at).ok_or(StopReason::UnreadableStack)?;
    }
    let at = ucontext.wrapping_add(regs::ucontext_offset(regs::RA));
    let pc = reader.word(at).ok_or(StopReason::UnreadableStack)?;
    *cursor = Cursor { regs: Regs::full(pc, values), exact: true };
    Ok(())
}
