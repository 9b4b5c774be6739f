//! A rule as a table has it: one word of 32 bits for what pushes leave behind, two for other short rules, seven for the rest.
//!
//! ```text
//! brief   bits 0..21   CFA offset in words; 0: the outermost frame
//!         bit 22       the CFA counts from rbp (else rsp)
//!         bits 23..28  rbx, rbp, r12-r15: saved, one below the other from CFA - 16 on, in the order r15, r14, r13, r12, rbp, rbx
//!         bit 29       in that order, but rbp first
//!         bits 30, 31  0
//! short   the high half of a `uunwind_core::short_rule::Short`, whose bit 31 is set and bit 30 is not; the low half
//! long    1 << 30; the three words of a `uunwind_core::rule::Packed` (also reasons why there is no rule), low halves first
//! ```

use crate::Found;
use uunwind_core::rule::Packed;
use uunwind_core::short_rule::Short;

const BRIEF_WORDS: u32 = (1 << 22) - 1;
const FROM_RBP: u32 = 1 << 22;
const SAVED: u32 = 23;
/// Bits that tell which registers were saved, and in which order.
const SAVED_BITS: u32 = 7;
const RBP_FIRST: usize = 1 << 6;
const LONG: u32 = 1 << 30;
const TAG: u32 = 3 << 30;
/// The outermost frame.
const END: u32 = FROM_RBP;

/// In a [`Short`]: bits of the offset; the first register's bit; bits of a register.
const SHORT_OFFSET: u32 = 24;
const SHORT_SLOTS: u32 = 25;
const SLOT_BITS: u32 = 5;
const SHORT_VALID: u64 = 1 << 63;

/// Registers by the order of their pushes, as numbered in a [`Short`]: rbx is 0, rbp 1, r12 to r15 2 to 5.
const ORDER: [u32; 6] = [5, 4, 3, 2, 1, 0];
const ORDER_RBP_FIRST: [u32; 6] = [1, 5, 4, 3, 2, 0];

/// The registers' fields in a [`Short`], by the bits that say which were saved.
const FIELDS: [u32; 1 << SAVED_BITS] = {
    let mut all = [0; 1 << SAVED_BITS];
    let mut saved = 0;
    while saved < all.len() {
        let order = if saved & RBP_FIRST == 0 { ORDER } else { ORDER_RBP_FIRST };
        let (mut slot, mut index) = (1, 0);
        while index < order.len() {
            if saved & 1 << order[index] != 0 {
                all[saved] |= slot << (SLOT_BITS * order[index]);
                slot += 1;
            }
            index += 1;
        }
        saved += 1;
    }
    all
};

/// Most words of a rule.
pub const MOST_WORDS: usize = 7;

/// The words of a short rule.
pub fn of_short(rule: Short) -> impl Iterator<Item = u32> {
    let (high, low) = ((rule.word() >> 32) as u32, rule.word() as u32);
    let (first, second) = brief(rule).map_or((high, Some(low)), |word| (word, None));
    core::iter::once(first).chain(second)
}

/// The words of any other rule.
pub fn of_long(rule: Packed) -> impl Iterator<Item = u32> {
    core::iter::once(LONG).chain(rule.words().into_iter().flat_map(|word| [word as u32, (word >> 32) as u32]))
}

/// A short rule in one word of 32 bits, if it fits.
fn brief(rule: Short) -> Option<u32> {
    if Some(rule) == Short::of_end() {
        return Some(END);
    }
    let word = rule.word();
    let words = (word & ((1 << SHORT_OFFSET) - 1)) as u32;
    let fields = (word >> SHORT_SLOTS) as u32 & ((1 << (SLOT_BITS * 6)) - 1);
    let saved = FIELDS.iter().position(|known| *known == fields)? as u32;
    let from_rbp = if word & 1 << SHORT_OFFSET == 0 { 0 } else { FROM_RBP };
    (words <= BRIEF_WORDS).then_some(words | from_rbp | saved << SAVED)
}

/// The rule that begins at a word. Words that no builder writes: whoever interprets the unwind information finds out.
#[inline(always)]
pub fn read(rules: &[u32], at: usize) -> Found {
    let Some(first) = rules.get(at).copied() else { return Found::Ask };
    if first & TAG == 0 {
        let fields = FIELDS.get((first >> SAVED) as usize).copied().unwrap_or(0);
        let slots = u64::from(fields) << SHORT_SLOTS;
        let base = u64::from(first & FROM_RBP) << (SHORT_OFFSET - FROM_RBP.trailing_zeros());
        let word = SHORT_VALID | slots | base | u64::from(first & BRIEF_WORDS);
        return Short::from_word(word).map_or_else(|| end(first), Found::Short);
    }
    other(rules, at, first)
}

#[cold]
fn end(first: u32) -> Found {
    Short::of_end().filter(|_| first == END).map_or(Found::Ask, Found::Short)
}

fn other(rules: &[u32], at: usize, first: u32) -> Found {
    let word = |n: usize| rules.get(at.checked_add(n)?).map(|word| u64::from(*word));
    let long = |n: usize| Some(word(n)? | word(n + 1)? << 32);
    let found = if first & LONG == 0 {
        word(1).and_then(|low| Short::from_word(u64::from(first) << 32 | low)).map(Found::Short)
    } else {
        let words = || Some([long(1)?, long(3)?, long(5)?]);
        words().and_then(Packed::from_words).filter(|_| first == LONG).map(Found::Long)
    };
    found.unwrap_or(Found::Ask)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use uunwind_core::regs::{RBP, RSP};
    use uunwind_core::rule::{Rule, SAME, UNKNOWN};
    use uunwind_core::stop_reason::StopReason;

    fn words_of(rule: Short) -> Vec<u32> {
        of_short(rule).collect()
    }

    /// What a prologue leaves: registers pushed in this order (rbx 0, rbp 1, r12-r15 2-5), then `words` to the CFA.
    fn pushed(order: &[usize], register: u8, words: i32) -> Rule {
        let mut rule = Rule::simple(register, words * 8);
        for (slot, index) in (2..).zip(order) {
            rule.slots[*index] = -slot;
        }
        rule
    }

    #[test]
    fn every_set_of_pushed_registers_takes_one_word() {
        let mut seen = std::collections::HashSet::new();
        for order in [[5, 4, 3, 2, 1, 0], [1, 5, 4, 3, 2, 0]] {
            for set in 0..64 {
                let order: Vec<usize> = order.into_iter().filter(|index| set & 1 << index != 0).collect();
                for (register, words) in [(RSP, 1), (RBP, 2), (RSP, 300), (RSP, (1 << 22) - 1)] {
                    let rule = pushed(&order, register, words);
                    let short = Short::new(&rule).expect("a short rule");
                    let words = words_of(short);
                    assert_eq!(words.len(), 1, "{rule:?}");
                    assert_eq!(read(&words, 0), Found::Short(short), "{rule:?}");
                    seen.insert(words[0]);
                }
            }
        }
        // The two orders are one where rbp is not saved, or alone, or with rbx only.
        assert_eq!(seen.len(), 4 * (64 + 64 - 32 - 2), "no two rules share a word");
    }

    #[test]
    fn other_rules_come_back_as_they_were() {
        let odd = [
            pushed(&[0, 1, 2], RSP, 4),
            pushed(&[5, 1], RSP, 1 << 22),
            Rule { slots: [UNKNOWN, -2, SAME, SAME, SAME, SAME, -1], ..Rule::simple(RBP, 16) },
            Rule { slots: [-3, SAME, SAME, SAME, SAME, SAME, -1], ..Rule::simple(RSP, 16) },
        ];
        for rule in odd {
            let short = Short::new(&rule).expect("a short rule");
            let words = words_of(short);
            assert_eq!((words.len(), read(&words, 0)), (2, Found::Short(short)), "{rule:?}");
            assert_eq!(read(&words[..1], 0), Found::Ask, "cut off");
        }
        let end = words_of(Short::END);
        assert_eq!((end.len(), read(&end, 0)), (1, Found::Short(Short::END)));
        for rule in [Rule::signal(0).pack(), Rule::frame_pointer().pack(), Packed::failed(StopReason::UnsupportedRule)]
        {
            let words: Vec<u32> = of_long(rule).collect();
            assert_eq!((words.len(), read(&words, 0)), (MOST_WORDS, Found::Long(rule)));
            assert_eq!(read(&words[..6], 0), Found::Ask, "cut off");
        }
    }

    #[test]
    fn words_that_nobody_writes_ask() {
        for (words, what) in [
            (vec![0], "no offset"),
            (vec![FROM_RBP | 1 << SAVED], "an end that saves a register"),
            (vec![TAG, 1], "two tags"),
            (vec![LONG | 1, 0, 0, 0, 0, 0, 0], "a mark with more in it"),
            (vec![1 << 31, 0], "a short rule without an offset"),
            (vec![1 << 31 | 1 << 29, 1], "a short rule with a bit too many"),
            (vec![], "nothing"),
        ] {
            assert_eq!(read(&words, 0), Found::Ask, "{what}");
        }
        assert_eq!(read(&[1], usize::MAX), Found::Ask, "out of the table");
    }
}
