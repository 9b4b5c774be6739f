//! x86-64 ([System V ABI](https://gitlab.com/x86-psABIs/x86-64-ABI)): the return address lies on the stack, and saved
//! registers near the CFA.

mod transfers;

use super::{RuleKind, BY_FRAME_POINTER, DOUBTFUL, RA_IN_REGISTER, SAME, UNKNOWN};
use crate::cursor::Cursor;
use crate::memory::Reader;
use crate::regs::{self, Regs, CALLEE_SAVED, RBP};
use crate::stop_reason::StopReason;
use transfers::{caller_on_another_stack, on_goroutine, signal_caller};

/// Index of the return address among the slots.
pub const RA_SLOT: usize = 6;
/// [`Rule::flags`]: the caller's stack pointer is not the CFA but the word at the CFA + [`Rule::cfa_addend`] words.
/// Only for an interrupted pc, in code that switches to another stack (setcontext).
pub const SP_SAVED: u8 = 4;
/// [`Rule::flags`]: the caller's stack pointer is in the register whose number is [`Rule::cfa_addend`]. Only for an
/// interrupted pc (longjmp).
pub const SP_IN_REGISTER: u8 = 8;
/// Both flags together: the caller's stack pointer is the CFA, as usual, but the CFA lies on another stack. With
/// [`RuleKind::Offset`] it is a register plus an offset. With [`RuleKind::Deref`] it lies on a goroutine's stack
/// ([`Rule::on_goroutine`]). Such a call returns, so these rules hold at return addresses as well.
pub const ON_OTHER_STACK: u8 = SP_SAVED | SP_IN_REGISTER;
/// Slots from here on name a register that holds the value: see [`in_register`].
const REGISTER_SLOTS: i16 = 0x7f00;

/// The slot of a register whose value is in another register of the interrupted code, by that one's DWARF number.
/// `None` for registers that rules do not allow: callee-saved ones, which may have been restored already.
pub fn in_register(register: u8) -> Option<i16> {
    let may = usize::from(register) < regs::COUNT && !CALLEE_SAVED.contains(&register);
    may.then_some(REGISTER_SLOTS + i16::from(register))
}
/// Whether a slot was made by [`in_register`].
pub fn is_register(slot: i16) -> bool {
    slot >= REGISTER_SLOTS && slot != SAME
}

/// How to get from a frame to its caller: the form in which sources build a rule.
///
/// ```
/// use uunwind_core::cursor::Cursor;
/// use uunwind_core::memory::{Reader, Region};
/// use uunwind_core::regs::{Regs, RSP};
/// use uunwind_core::rule::Rule;
///
/// // After `sub $8, %rsp`: one word of the function's own, then the return address.
/// let stack: Vec<u8> = [0u64, 0x40_1136].iter().flat_map(|word| word.to_le_bytes()).collect();
/// let regions = [Region { address: 0x7000_0000, bytes: &stack }];
/// let mut reader = Reader::recorded(&regions);
/// let mut cursor = Cursor { regs: Regs::new(0x40_2004, 0x7000_0000, 0), exact: true };
///
/// let rule = Rule::simple(RSP, 16).pack();
/// let cfa = rule.cfa(&cursor, &mut reader).expect("rsp is known");
/// rule.advance(&mut cursor, cfa, &mut reader).expect("the stack is readable");
/// assert_eq!((cursor.regs.pc, cursor.regs.sp(), cursor.exact), (0x40_1136, 0x7000_0010, false));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Added to `cfa_register`, in bytes.
    pub cfa_offset: i32,
    /// DWARF number of the register that the CFA is computed from.
    pub cfa_register: u8,
    /// The meaning of the sum.
    pub kind: RuleKind,
    /// Bit n: slot n counts from rbp in this frame instead of from the CFA.
    pub from_fp: u8,
    /// [`RA_IN_REGISTER`], [`BY_FRAME_POINTER`], [`DOUBTFUL`], [`SP_SAVED`], [`SP_IN_REGISTER`], [`ON_OTHER_STACK`].
    pub flags: u8,
    /// Where rbx, rbp, r12-r15 and the return address were saved, in words from the CFA; or [`SAME`], [`UNKNOWN`].
    pub slots: [i16; 7],
    /// Added to the word that [`RuleKind::Deref`] reads, in bytes; or as [`SP_SAVED`] and [`SP_IN_REGISTER`] define.
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

    /// The rule of the outermost frame: it has no caller, and the stack is complete.
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

    /// The signal frame's rule, if `pc` is where signal handlers return to: at an instruction that sets the number of
    /// rt_sigreturn(2), after `endbr64` perhaps, or at the `syscall` after it. The handler has popped the return
    /// address, so the ucontext is at rsp (`struct rt_sigframe` of arch/x86/include/asm/sigframe.h in Linux).
    /// glibc's function has unwind data; those of musl and of programs that call rt_sigaction(2) themselves have none.
    pub fn at_sigreturn(pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
        const CODES: [&[u8]; 4] = [
            &[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05],
            &[0xf3, 0x0f, 0x1e, 0xfa, 0xb8, 15, 0, 0, 0, 0x0f, 0x05],
            &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05],
            &[0xb8, 15, 0, 0, 0, 0x0f, 0x05],
        ];
        const SYSCALL: usize = 2;
        let mut is_at = |start: u64, code: &[u8]| {
            let mut bytes = [0; 13];
            let room = bytes.get_mut(..code.len());
            room.is_some_and(|room| reader.read(start, room) && room == code)
        };
        let before = |code: &&[u8]| pc.wrapping_sub((code.len() - SYSCALL) as u64);
        let found = CODES.iter().any(|code| is_at(pc, code) || is_at(before(code), code));
        found.then_some(Rule::signal(0))
    }

    /// The caller is on another stack: its stack pointer is `register` + `offset`, and its return address and rbp lie
    /// just below that, as functions with a frame pointer store them. Other registers are lost.
    pub const fn on_other_stack(register: u8, offset: i32) -> Rule {
        let mut rule = Rule::frame_pointer();
        (rule.cfa_register, rule.cfa_offset, rule.flags) = (register, offset, ON_OTHER_STACK);
        rule
    }

    /// A frame of Go's runtime on a system stack, whose caller is on a goroutine's (`asmcgocall` in
    /// <https://github.com/golang/go/blob/go1.22.0/src/runtime/asm_amd64.s>). At rsp + `offset` lies the goroutine's
    /// stack depth, and after it the address of its `g`, which begins with the bounds of its stack
    /// (<https://github.com/golang/go/blob/go1.22.0/src/runtime/runtime2.go>). The CFA is the stack's upper bound, less
    /// the depth, plus `addend`: the stack may be moved meanwhile, so a saved stack pointer could be wrong.
    pub const fn on_goroutine(offset: i32, addend: i16) -> Rule {
        let mut rule = Rule::on_other_stack(regs::RSP, offset);
        (rule.kind, rule.cfa_addend) = (RuleKind::Deref, addend);
        rule
    }

    /// A rule from parts that foreign code gave; `None` if they are no valid rule.
    pub fn from_parts(
        kind: RuleKind,
        register: u8,
        offset: i32,
        addend: i32,
        slots: [i16; RA_SLOT + 1],
    ) -> Option<Rule> {
        let cfa_addend = i16::try_from(addend).ok()?;
        let has_return_address =
            !matches!(slots[RA_SLOT], SAME | UNKNOWN) || matches!(kind, RuleKind::Signal | RuleKind::End);
        if !has_return_address || slots.into_iter().any(is_register) {
            return None;
        }
        Some(Rule { kind, slots, cfa_addend, ..Rule::simple(register, offset) })
    }

    /// The addend and the slots, as [`Rule::from_parts`] takes them, if they, kind, register and offset describe the
    /// rule completely.
    pub fn plain_parts(&self) -> Option<(i32, [i16; RA_SLOT + 1])> {
        (self.from_fp == 0 && self.flags == 0).then_some((i32::from(self.cfa_addend), self.slots))
    }

    /// The rule in the form that is cached and executed.
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
                | ((self.flags >> 2 & 3) as u64) << 45
                | (self.from_fp as u64 & 0x7f) << 48
                | ((self.flags & DOUBTFUL) as u64) << 51
                | touched << 56,
            low: word(s0, s1, s2, s3),
            high: word(s4, s5, s6, self.cfa_addend),
        }
    }
}

/// A [`Rule`] in three words, which caches hold and walks execute. It is kept in registers and decoded by shifts: a
/// structure of small fields would be copied through memory.
///
/// `head`: CFA offset (32 bits), CFA register (8), kind (2), flags (2), failed (1), flags of the stack pointer (2),
/// from_fp (from bit 48), doubtful (bit 55), and from bit 56 on which of the callee-saved registers are not just
/// unchanged; `low`, `high`: the slots and the addend, 16 bits each. A failed rule, the answer of a source that has
/// none, ends the walk; its reason is in `low`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed {
    head: u64,
    low: u64,
    high: u64,
}

const FAILED: u64 = 1 << 44;
const OTHER_STACK: u64 = 3 << 45;

impl Packed {
    /// The answer that there is no rule, for this reason.
    pub const fn failed(reason: StopReason) -> Packed {
        let mut packed = Rule::end().pack();
        packed.head |= FAILED;
        packed.low = reason as u64;
        packed
    }

    /// A rule, or the reason why there is none.
    pub fn from_result(rule: Result<Rule, StopReason>) -> Packed {
        rule.map_or_else(Packed::failed, Rule::pack)
    }

    /// Whether there is no rule, for exactly this reason.
    #[inline(always)]
    pub fn failed_for(self, reason: StopReason) -> bool {
        self.head & FAILED != 0 && self.low == reason as u64
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
        (head >> 47 & 1 == 0).then_some(Packed { head, low, high })
    }

    /// The rule that was packed, or the reason why there is none.
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

    /// The register that the CFA is computed from, and what is added to it, in bytes.
    #[inline(always)]
    pub fn cfa_parts(self) -> (u8, i32) {
        ((self.head >> 32) as u8, self.head as u32 as i32)
    }

    /// Whether the CFA is a register plus an offset.
    pub fn is_plain(self) -> bool {
        self.kind() == RuleKind::Offset && self.head & FAILED == 0
    }

    /// Where the return address is in a frame with this CFA. `None`: not at a fixed distance from it.
    pub fn return_address_at(self, cfa: u64) -> Option<u64> {
        let is_there = self.is_plain() && self.flags() & RA_IN_REGISTER == 0 && !self.counts_from_fp(RA_SLOT);
        is_there.then(|| word_at(cfa, self.slot(RA_SLOT)))
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
            // A slot that is unreadable leaves its register unknown. Whether that matters is up to the rules of outer
            // frames: after `leave`, gcc's tables still describe a slot at rbp, which is the caller's by then.
            let base = if self.counts_from_fp(index) { fp } else { Some(cfa) };
            match base.filter(|_| slot != UNKNOWN).and_then(|base| reader.word(word_at(base, slot))) {
                Some(value) => regs.set(register, value),
                None => regs.forget(register),
            }
        }
    }

    /// The registers that executing it reads and restores, in the bits of [`crate::cache::last_walk`].
    pub fn uses_and_restores(self) -> (u8, u8) {
        use crate::cache::last_walk::{EVERY_REGISTER, FP_BIT};
        let mut uses = bit((self.head >> 32) as u8);
        if self.head & FAILED != 0 {
            // It was checked whether the frame pointer is plausible.
            return (FP_BIT, 0);
        }
        if self.flags() & RA_IN_REGISTER != 0 {
            uses |= bit(self.slot(RA_SLOT) as u8);
        }
        if self.is_on_other_stack() {
            uses |= FP_BIT;
        } else if self.leads_to_another_stack() {
            uses |= EVERY_REGISTER;
        }
        if (self.head >> 48) & 0x7f != 0 || self.flags() & BY_FRAME_POINTER != 0 {
            uses |= FP_BIT;
        }
        if self.flags() & BY_FRAME_POINTER != 0 && self.cfa_parts().0 != RBP {
            // What was called, by whatever register, decided that the caller is at the stack pointer.
            uses = EVERY_REGISTER;
        }
        let restores = if self.kind() == RuleKind::Signal { EVERY_REGISTER } else { (self.head >> 56) as u8 & 0x3f };
        (uses, restores)
    }

    /// The meaning of the sum of register and offset.
    #[inline(always)]
    pub fn kind(self) -> RuleKind {
        match (self.head >> 40) & 3 {
            0 => RuleKind::Offset,
            1 => RuleKind::Deref,
            2 => RuleKind::Signal,
            _ => RuleKind::End,
        }
    }

    /// [`RA_IN_REGISTER`], [`BY_FRAME_POINTER`], [`DOUBTFUL`], [`SP_SAVED`], [`SP_IN_REGISTER`].
    #[inline(always)]
    pub fn flags(self) -> u8 {
        let near = (self.head >> 42) as u8 & 3 | (self.head >> 43) as u8 & (SP_SAVED | SP_IN_REGISTER);
        near | (self.head >> 51) as u8 & DOUBTFUL
    }

    /// Whether the caller's stack pointer is not the CFA.
    #[inline(always)]
    pub fn leads_to_another_stack(self) -> bool {
        self.head & OTHER_STACK != 0
    }

    /// Whether it has [`ON_OTHER_STACK`].
    #[inline(always)]
    pub fn is_on_other_stack(self) -> bool {
        self.head & OTHER_STACK == OTHER_STACK
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

    /// The frame's CFA. Reads at most one word. `Err` is also the result for an outermost frame.
    #[inline(always)]
    pub fn cfa(self, cursor: &Cursor, reader: &mut Reader<'_>) -> Result<u64, StopReason> {
        let sum = self.base(cursor)?;
        match self.kind() {
            RuleKind::Offset => Ok(sum),
            RuleKind::Deref if self.is_on_other_stack() => Ok(on_goroutine(self, sum, reader)?.0),
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

    /// Moves the cursor to the caller, given the frame's CFA. Reads at most 17 words. After an error the cursor is
    /// inconsistent and must not be used.
    #[inline(always)]
    pub fn advance(self, cursor: &mut Cursor, cfa: u64, reader: &mut Reader<'_>) -> Result<(), StopReason> {
        if self.kind() == RuleKind::Signal {
            return signal_caller(self, cursor, reader);
        }
        if self.leads_to_another_stack() {
            return caller_on_another_stack(self, cursor, cfa, reader);
        }
        // In place, register by register: unchanged registers are not copied.
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

/// The bit of a register, by its DWARF number, in the sense of [`crate::cache::last_walk`].
fn bit(register: u8) -> u8 {
    use crate::cache::last_walk::{FP_BIT, OTHER};
    match register {
        regs::RSP => 0,
        RBP => FP_BIT,
        other => CALLEE_SAVED.iter().position(|r| *r == other).map_or(OTHER, |index| 1 << index),
    }
}

/// The bits of the registers in a mask by DWARF number, in the sense of [`crate::cache::last_walk`].
pub fn bits(registers: u32) -> u8 {
    (0..regs::COUNT as u8)
        .filter(|register| registers >> register & 1 != 0)
        .fold(0, |bits, register| bits | bit(register))
}

#[inline(always)]
fn word_at(base: u64, slot: i16) -> u64 {
    base.wrapping_add_signed(i64::from(slot) * 8)
}
