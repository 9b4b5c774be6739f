//! Rules in one word: what most frames of most programs need. [`ShortRules`] is the table that holds them.
//!
//! A rule is *short* if the CFA is rsp or rbp plus a multiple of 8, the return address lies just below it, and every
//! saved register within 30 words of it; or if the frame aligned itself, as gcc does it (`Short::in_frame`). The
//! outermost frame has one as well ([`Short::END`]), and the frame that the kernel makes for a signal
//! ([`Short::SIGNAL`]).

use crate::regs::{RBP, RSP};
use crate::rule::{Packed, Rule, RuleKind, RA_SLOT, SAME, UNKNOWN};
use core::hint::select_unpredictable;

mod table;
pub use table::{Salt, ShortRules};

/// A rule in one word.
///
/// ```text
/// bits 0..24   CFA offset in words        bit 24   the CFA counts from rbp (else rsp)
/// bits 25..55  rbx, rbp, r12-r15, 5 bits each: 0 unchanged, n saved at CFA - 8 (n + 1), 31 lost
/// bit 55       the word just below rbp is the CFA: bit 24 is set, and bits 0..24 hold 1 in a function's rule, whose
///              registers are saved at rbp - 8 (n - 1); in that of a frame, the words from rbp to the CFA
/// bit 56       a signal frame: bit 24 and all registers' fields are set, and bits 0..24 hold 1 in a function's rule; in
///              that of a frame, the words from its ucontext to the interrupted code's stack pointer
/// bit 63       set
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Short(u64);

const OFFSET_BITS: u32 = 24;
const FROM_RBP: u64 = 1 << OFFSET_BITS;
const SLOTS: u32 = OFFSET_BITS + 1;
/// Bits of a register's field.
pub(crate) const SLOT_BITS: u32 = 5;
/// A field that says that the register is lost.
pub(crate) const LOST: u64 = 31;
/// Index of rbp among the callee-saved registers.
pub(crate) const RBP_FIELD: u32 = 1;
/// The lowest bits of all fields.
const LOWEST: u64 = 0x210_8421;
/// The word just below rbp is the CFA.
const REALIGNED: u64 = 1 << (SLOTS + 6 * SLOT_BITS);
/// A signal frame.
const SIGNAL: u64 = REALIGNED << 1;
/// The CFA offset in the rule of a function that aligns its frame, or of signal frames: less than any frame's.
const ANY_WORDS: u64 = 1;
const VALID: u64 = 1 << 63;
const REALIGNED_VALID: u64 = VALID | REALIGNED;

impl Short {
    /// Where no rule was written so far: zero, so that a table of them takes no room in a file.
    pub(crate) const EMPTY: Short = Short(0);

    /// No rule. It counts from rbp, as [`Short::END`] does, so that who looks for neither need not look twice.
    pub(crate) const NONE: Short = Short(FROM_RBP);

    /// The outermost frame has no caller. It counts from rbp, and from nowhere.
    pub const END: Short = Short(VALID | FROM_RBP | (FROM_RBP - 1));

    /// The frame from which a signal handler returns to the kernel, with the ucontext at its stack pointer
    /// ([`Rule::signal`]): the caller is the interrupted code.
    pub const SIGNAL: Short = Short(VALID | SIGNAL | FROM_RBP | ANY_WORDS | LOWEST << SLOTS);

    /// [`Short::END`], on CPUs that have it.
    #[inline(always)]
    pub const fn of_end() -> Option<Short> {
        Some(Short::END)
    }

    /// The rule in one word, if it fits.
    pub fn new(rule: &Rule) -> Option<Short> {
        if rule.kind == RuleKind::Deref {
            return Short::realigned(rule);
        }
        let words = u64::try_from(rule.cfa_offset / 8).ok().filter(|words| *words > 0 && *words < FROM_RBP - 1)?;
        let plain = rule.kind == RuleKind::Offset
            && matches!(rule.cfa_register, RSP | RBP)
            && rule.cfa_offset % 8 == 0
            && rule.flags == 0
            && rule.from_fp == 0
            && rule.slots[RA_SLOT] == -1;
        let mut word = VALID | words | if rule.cfa_register == RBP { FROM_RBP } else { 0 };
        for (index, slot) in (0..).zip(rule.slots.iter().take(RA_SLOT)) {
            let field = match *slot {
                SAME => 0,
                UNKNOWN => LOST,
                slot @ -31..=-2 => (-1 - i64::from(slot)) as u64,
                _ => return None,
            };
            word |= field << (SLOTS + SLOT_BITS * index);
        }
        plain.then_some(Short(word))
    }

    /// The rule whose CFA is `register` plus `offset`, and whose return address lies just below it. `fields`: of rbx,
    /// rbp, and r12 to r15, how many words below the return address they are saved; 0: the register is unchanged.
    /// `None`: it does not fit.
    #[inline(always)]
    pub fn plain(register: u8, offset: i32, fields: [u64; 6]) -> Option<Short> {
        let words = (offset as u64).rotate_right(3);
        let (mut word, mut most) = (VALID | words | if register == RBP { FROM_RBP } else { 0 }, 0);
        for (index, field) in (0..).zip(fields) {
            word |= field << (SLOTS + SLOT_BITS * index);
            most |= field | field.wrapping_add(1);
        }
        let fits = most <= LOST && (1..FROM_RBP - 1).contains(&words) && matches!(register, RSP | RBP);
        fits.then_some(Short(word))
    }

    /// The rule of a function that aligns its stack by more than the ABI demands, as gcc compiles it: the CFA is saved
    /// just below the caller's rbp, to which rbp points, and other registers below that. (In gcc's sources:
    /// `ix86_get_drap_rtx`, <https://github.com/gcc-mirror/gcc/blob/releases/gcc-14/gcc/config/i386/i386.cc>.)
    fn realigned(rule: &Rule) -> Option<Short> {
        let cfa = (rule.cfa_register, rule.cfa_offset, rule.cfa_addend, rule.flags) == (RBP, -8, 0, 0);
        let mut word = REALIGNED_VALID | FROM_RBP | ANY_WORDS;
        for (index, slot) in (0..).zip(rule.slots.iter().take(RA_SLOT)) {
            let from_rbp = rule.from_fp >> index & 1 != 0;
            let field = match *slot {
                SAME if !from_rbp => 0,
                slot @ -29..=0 if from_rbp => (1 - i64::from(slot)) as u64,
                _ => return None,
            };
            word |= field << (SLOTS + SLOT_BITS * index);
        }
        let ra = rule.slots[RA_SLOT] == -1 && rule.from_fp >> RA_SLOT == 0;
        (cfa && ra).then_some(Short(word))
    }

    /// Whether the CFA is read from the frame, so that [`Short::in_frame`] is to be asked.
    #[inline(always)]
    pub(crate) fn is_realigned(self) -> bool {
        self.0 & REALIGNED != 0
    }

    /// The rule that this one, of a function or of another frame of it, is in a frame with this rbp, just below which
    /// lies `cfa`: one whose CFA is rbp plus an offset. `None`: it does not fit, or `cfa` is none.
    #[cold]
    pub(crate) fn in_frame(self, rbp: u64, cfa: u64) -> Option<Short> {
        // rbp points to the caller's; the return address and at least that lie between it and the CFA.
        let words = cfa.checked_sub(rbp).filter(|bytes| bytes & 7 == 0).map(|bytes| bytes / 8)?;
        if !(2..LOST).contains(&words) {
            return None;
        }
        let mut word = REALIGNED_VALID | FROM_RBP | words;
        // A function's rule has the places of a frame in which that would be 2.
        let had = self.words().max(2);
        for index in 0..6 {
            let field = match self.field(index) {
                0 => 0,
                field => Some((field + words).wrapping_sub(had)).filter(|field| (1..LOST).contains(field))?,
            };
            word |= field << (SLOTS + SLOT_BITS * index);
        }
        Some(Short(word))
    }

    /// Whether it is [`Short::SIGNAL`], or that in one frame.
    #[inline(always)]
    pub(crate) fn is_signal(self) -> bool {
        self.0 & SIGNAL != 0
    }

    /// [`Short::SIGNAL`] in a frame whose ucontext lies at `ucontext`, and leads to the stack pointer `sp`. `None`:
    /// that is not farther out on the same stack.
    pub(crate) fn signal_in_frame(ucontext: u64, sp: u64) -> Option<Short> {
        let words = sp.checked_sub(ucontext).filter(|bytes| bytes & 7 == 0).map(|bytes| bytes / 8)?;
        let fits = words > ANY_WORDS && words < FROM_RBP;
        fits.then_some(Short(Short::SIGNAL.0 - ANY_WORDS + words))
    }

    /// The rule in one word, from a packed rule, if it fits.
    pub fn of(packed: Packed) -> Option<Short> {
        Short::of_any(&packed.unpack().ok()?)
    }

    /// As [`Short::new`], and those of the outermost frame and of signal frames.
    pub fn of_any(rule: &Rule) -> Option<Short> {
        match rule.kind {
            RuleKind::End if *rule == Rule::end() => Some(Short::END),
            RuleKind::Signal if *rule == Rule::signal(0) => Some(Short::SIGNAL),
            _ => Short::new(rule),
        }
    }

    /// The word, as tables keep it.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The rule that [`Short::word`] gave; `None` for a word that is none.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Option<Short> {
        let words = word & (FROM_RBP - 1);
        let is_one = match word & !(REALIGNED - 1) {
            VALID => words != 0,
            REALIGNED_VALID => words == ANY_WORDS && word & FROM_RBP != 0,
            _ => false,
        };
        if is_one {
            Some(Short(word))
        } else {
            None
        }
    }

    /// Whether each of them is of a frame as compilers make it where they keep a frame pointer: the CFA is rbp + 16,
    /// and the caller's rbp lies just below the return address.
    #[inline(always)]
    pub(crate) fn all_framed<const N: usize>(rules: [Short; N]) -> bool {
        const FRAMED: u64 = FROM_RBP | 2 | 1 << (SLOTS + SLOT_BITS * RBP_FIELD);
        const FIELDS: u64 = SIGNAL | REALIGNED | FROM_RBP | (FROM_RBP - 1) | LOST << (SLOTS + SLOT_BITS * RBP_FIELD);
        rules.iter().fold(0, |different, rule| different | (rule.0 ^ FRAMED)) & FIELDS == 0
    }

    /// Whether it leaves rbp alone.
    #[inline(always)]
    pub(crate) fn keeps_rbp(self) -> bool {
        self.field(RBP_FIELD) == 0
    }

    /// The first or the second, without a branch.
    #[inline(always)]
    pub(crate) fn select(first: bool, one: Short, other: Short) -> Short {
        Short(select_unpredictable(first, one.0, other.0))
    }

    /// Whether each of them leaves rbp alone.
    #[inline(always)]
    pub(crate) fn all_keep_rbp(rules: impl Iterator<Item = Short>) -> bool {
        rules.fold(0, |words, rule| words | rule.0) & LOST << (SLOTS + SLOT_BITS * RBP_FIELD) == 0
    }

    /// Whether the CFA of one of them counts from rbp.
    #[inline(always)]
    pub(crate) fn any_from_rbp<const N: usize>(rules: [Short; N]) -> bool {
        rules.iter().fold(0, |words, rule| words | rule.0) & FROM_RBP != 0
    }

    /// Whether the CFA counts from rbp.
    #[inline(always)]
    pub fn from_rbp(self) -> bool {
        self.0 & FROM_RBP != 0
    }

    /// Words from the register that the CFA counts from to the CFA.
    #[inline(always)]
    pub fn words(self) -> u64 {
        self.0 & (FROM_RBP - 1)
    }

    /// The frame's CFA, given the register that it counts from.
    #[inline(always)]
    pub fn cfa(self, base: u64) -> u64 {
        base.wrapping_add(self.words() * 8)
    }

    /// What happened to a callee-saved register.
    #[inline(always)]
    pub(crate) fn field(self, index: u32) -> u64 {
        self.0 >> (SLOTS + SLOT_BITS * index) & LOST
    }

    /// The lowest bits of the fields of those callee-saved registers that the rule in this word does not simply leave
    /// alone; or that one of several rules does, whose words are or-ed.
    #[inline(always)]
    pub(crate) fn touched_by(word: u64) -> u64 {
        let fields = word >> SLOTS;
        (fields | fields >> 1 | fields >> 2 | fields >> 3 | fields >> 4) & LOWEST
    }

    /// Which callee-saved registers it does not simply leave alone, a bit each.
    #[inline(always)]
    pub fn touched(self) -> u8 {
        let fields = Short::touched_by(self.0);
        (0..6).fold(0, |touched, index| touched | (fields >> ((SLOT_BITS - 1) * index)) as u8 & 1 << index)
    }

    /// The rule that this one stands for.
    pub fn pack(self) -> Packed {
        if self == Short::END {
            return Rule::end().pack();
        }
        if self.is_realigned() {
            return self.pack_realigned();
        }
        if self.is_signal() {
            return Rule::signal(0).pack();
        }
        let mut rule = Rule::simple(if self.0 & FROM_RBP == 0 { RSP } else { RBP }, 0);
        rule.cfa_offset = ((self.0 & (FROM_RBP - 1)) * 8) as i32;
        for (index, slot) in (0..).zip(rule.slots.iter_mut().take(RA_SLOT)) {
            *slot = match (self.0 >> (SLOTS + SLOT_BITS * index)) & LOST {
                0 => SAME,
                LOST => UNKNOWN,
                n => -1 - n as i16,
            };
        }
        rule.pack()
    }

    #[cold]
    fn pack_realigned(self) -> Packed {
        let mut rule = Rule { kind: RuleKind::Deref, ..Rule::simple(RBP, -8) };
        for (index, slot) in (0..).zip(rule.slots.iter_mut().take(RA_SLOT)) {
            if let Some(words) = self.field(index).checked_sub(1) {
                (*slot, rule.from_fp) = (-(words as i16), rule.from_fp | 1 << index);
            }
        }
        rule.pack()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_comes_back_as_it_was() {
        let mut random = uunwind_random::Random::new(0x5eed_0009);
        let mut next = move || random.number();
        let (mut short, mut long) = (0, 0);
        // Miri is thousands of times slower.
        let rounds = if cfg!(miri) { 500 } else { 100_000 };
        for _ in 0..rounds {
            let mut rule = Rule::simple(if next() % 2 == 0 { RSP } else { RBP }, (next() % 4096) as i32 * 4 - 64);
            for slot in rule.slots.iter_mut().take(RA_SLOT) {
                *slot = match next() % 4 {
                    0 => SAME,
                    1 => UNKNOWN,
                    _ => -1 - (next() % 34) as i16,
                };
            }
            if next() % 4 == 0 {
                (rule.kind, rule.cfa_register, rule.cfa_offset) = (RuleKind::Deref, RBP, -8);
                for (index, slot) in rule.slots.iter_mut().take(RA_SLOT).enumerate() {
                    (*slot, rule.from_fp) = match next() % 3 {
                        0 => (SAME, rule.from_fp),
                        1 => (-((next() % 32) as i16), rule.from_fp | 1 << index),
                        _ => (*slot, rule.from_fp),
                    };
                }
            }
            if next() % 16 == 0 {
                rule.flags = (next() % 4) as u8;
                rule.from_fp = (next() % 2) as u8;
                rule.slots[RA_SLOT] = -1 - (next() % 2) as i16;
            }
            assert_eq!(rule.pack().unpack(), Ok(rule));
            assert_eq!(Short::of(rule.pack()), Short::new(&rule));
            match Short::new(&rule) {
                Some(packed) => {
                    assert_eq!(packed.pack(), rule.pack(), "{rule:?}");
                    short += 1;
                }
                None => long += 1,
            }
        }
        assert!(short > rounds / 100 && long > rounds / 100, "{short} short, {long} long");
    }

    #[test]
    fn what_is_made_of_parts_is_what_is_made_of_the_rule() {
        let mut random = uunwind_random::Random::new(0x5eed_0011);
        let (mut short, mut long) = (0, 0);
        for _ in 0..if cfg!(miri) { 500 } else { 100_000 } {
            let mut rule = Rule::simple([RSP, RSP, RBP, 3][random.index(4)], random.below(4096) as i32 * 4 - 64);
            let fields = [0; 6].map(|_: u64| random.below(33) * random.below(2));
            for (slot, field) in rule.slots.iter_mut().zip(fields) {
                *slot = if field == 0 { SAME } else { -1 - field as i16 };
            }
            let made = Short::plain(rule.cfa_register, rule.cfa_offset, fields);
            assert_eq!(made, Short::new(&rule), "{rule:?}");
            (short, long) = (short + u32::from(made.is_some()), long + u32::from(made.is_none()));
        }
        assert!(short > 50 && long > 50, "{short} short, {long} long");
        for bits in [5, 31, 32, 40, 63] {
            assert_eq!(Short::plain(RSP, 64, [0, 0, 1 << bits, 0, 0, 0]), None, "{bits}");
        }
        assert_eq!(Short::plain(RSP, 64, [0, 0, 0, 0, 0, u64::MAX]), None);
    }

    #[test]
    fn a_function_that_aligns_its_stack_has_a_rule_in_each_of_its_frames() {
        let mut rule = Rule { kind: RuleKind::Deref, ..Rule::simple(RBP, -8) };
        (rule.slots[0], rule.slots[1], rule.slots[5], rule.from_fp) = (-5, 0, -2, 0b10_0011);
        let short = Short::new(&rule).expect("fits");
        assert_eq!((short.pack(), Short::of(rule.pack())), (rule.pack(), Some(short)));
        assert_eq!(Short::from_word(short.word()), Some(short));
        let here = short.in_frame(0x7000, 0x7050).expect("ten words");
        assert_eq!((here.words(), here.cfa(0x7000), here.from_rbp(), here.is_realigned()), (10, 0x7050, true, true));
        // As places below the word just below the CFA: rbp at 0x7000, rbx at 0x7000 - 40, r15 at 0x7000 - 16.
        let places = [0, 1, 2, 3, 4, 5].map(|index| here.field(index));
        assert_eq!(places, [14, 9, 0, 0, 0, 11]);
        assert_eq!(short.touched(), here.touched());
        // In another frame of the same function, also without the function's own rule.
        for cfa in [0x8010, 0x8040, 0x8060, 0x80c0] {
            assert!(short.in_frame(0x8000, cfa).is_some(), "{cfa:#x}");
            assert_eq!(here.in_frame(0x8000, cfa), short.in_frame(0x8000, cfa), "{cfa:#x}");
        }
        assert!(!Short::all_framed([short]) && !Short::all_framed([here]));
        // No CFA: misaligned, too near, too far, below rbp. And a table has no frame's rule.
        for cfa in [0x7051, 0x7008, 0x7000, 0x7000 + 8 * 31, 0x6fff, 0] {
            assert_eq!(short.in_frame(0x7000, cfa), None, "{cfa:#x}");
        }
        assert_eq!(short.in_frame(0x7000, 0x7000 + 8 * 28), None, "rbx would be too far away");
        assert_eq!(Short::from_word(here.word()), None);
        for change in [
            |rule: &mut Rule| rule.cfa_offset = -16,
            |rule: &mut Rule| rule.cfa_register = RSP,
            |rule: &mut Rule| rule.cfa_addend = 8,
            |rule: &mut Rule| rule.from_fp = 0b10_0001,
            |rule: &mut Rule| rule.slots[2] = UNKNOWN,
            |rule: &mut Rule| rule.slots[RA_SLOT] = -2,
            |rule: &mut Rule| rule.from_fp |= 1 << RA_SLOT,
        ] {
            let mut other = rule;
            change(&mut other);
            assert_eq!(Short::new(&other), None, "{other:?}");
        }
    }

    #[test]
    fn the_end_of_the_stack_has_a_rule_of_its_own() {
        assert_eq!(Short::END.pack(), Rule::end().pack());
        assert_eq!(Short::from_word(Short::END.word()), Some(Short::END));
        assert_eq!(Short::new(&Rule::simple(RBP, (FROM_RBP as i32 - 1) * 8)), None, "no rule is taken for it");
        assert_eq!(Short::new(&Rule::end()), None);
        assert_eq!(Short::of(Rule::end().pack()), Some(Short::END));
        // A signal frame's, too, which no table of an object has as a short one.
        assert_eq!(
            (Short::SIGNAL.pack(), Short::of(Rule::signal(0).pack())),
            (Rule::signal(0).pack(), Some(Short::SIGNAL))
        );
        assert_eq!((Short::of(Rule::signal(8).pack()), Short::from_word(Short::SIGNAL.word())), (None, None));
        assert_eq!(Short::SIGNAL.touched(), 0b11_1111);
        assert!(!Short::all_framed([Short::SIGNAL]) && Short::SIGNAL.from_rbp() && !Short::SIGNAL.is_realigned());
        let here = Short::signal_in_frame(0x7000, 0x7400).expect("128 words");
        assert_eq!((here.words(), here.cfa(0x7000), here.is_signal()), (128, 0x7400, true));
        for sp in [0x7000, 0x6ff8, 0x7404, 0x7000 + (1 << 27)] {
            assert_eq!(Short::signal_in_frame(0x7000, sp), None, "{sp:#x}");
        }
        let failed = crate::stop_reason::StopReason::NoRule;
        assert_eq!((Short::of(Packed::failed(failed)), Packed::failed(failed).unpack()), (None, Err(failed)));
    }
}
