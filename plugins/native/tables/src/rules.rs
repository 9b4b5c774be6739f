//! The encoding of a rule in a table: one 32-bit word for what pushes leave, two for other short rules, seven for the
//! rest; one more before a rule that was made from machine code.
//!
//! ```text
//! brief   bits 0..21   CFA offset in words; 0: the outermost frame
//!         bit 22       the CFA counts from rbp (else rsp)
//!         bits 23..28  rbx, rbp, r12-r15: saved in adjacent words from CFA - 16 downwards,
//!                      in the order r15, r14, r13, r12, rbp, rbx
//!         bit 29       in that order, but rbp first
//!         bits 30, 31  0
//! short   the high half of a `uunwind_core::cache::short::Short`, whose bit 31 is set and bit 30 is not; the low half
//! long    1 << 30; the three words of a `uunwind_core::rule::Packed` (also reasons why there is no rule), low halves
//!         first
//! code    3 << 30; the rule follows, in one of the other forms: it was made from machine code
//! ```

use crate::TableAnswer;
use uunwind_core::cache::short::Short;
use uunwind_core::rule::Packed;

const BRIEF_WORDS: u32 = (1 << 22) - 1;
const FROM_RBP: u32 = 1 << 22;
const SAVED: u32 = 23;
/// Number of bits that say which registers were saved, and in which order.
const SAVED_BITS: u32 = 7;
const RBP_FIRST: usize = 1 << 6;
const LONG: u32 = 1 << 30;
const TAG: u32 = 3 << 30;
/// The word before a rule that was made from machine code.
pub const BY_CODE: u32 = TAG;
/// The encoding of the outermost frame.
const END: u32 = FROM_RBP;

/// Bit positions in a [`Short`]: number of offset bits; the first register's field; bits of a register's field.
const SHORT_OFFSET: u32 = 24;
const SHORT_SLOTS: u32 = 25;
const SLOT_BITS: u32 = 5;
const SHORT_VALID: u64 = 1 << 63;

/// Registers in the order of their pushes, by their numbers in a [`Short`]: rbx is 0, rbp 1, r12 to r15 2 to 5.
const ORDER: [u32; 6] = [5, 4, 3, 2, 1, 0];
const ORDER_RBP_FIRST: [u32; 6] = [1, 5, 4, 3, 2, 0];

/// The registers' fields of a [`Short`], indexed by the bits that say which were saved.
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

/// Largest number of words of a rule.
pub const MOST_WORDS: usize = 8;

/// A short rule as 32-bit words of a table.
pub fn of_short(rule: Short) -> impl Iterator<Item = u32> {
    let (high, low) = ((rule.word() >> 32) as u32, rule.word() as u32);
    let (first, second) = brief(rule).map_or((high, Some(low)), |word| (word, None));
    core::iter::once(first).chain(second)
}

/// Any other rule as 32-bit words of a table.
pub fn of_long(rule: Packed) -> impl Iterator<Item = u32> {
    core::iter::once(LONG).chain(rule.words().into_iter().flat_map(|word| [word as u32, (word >> 32) as u32]))
}

/// Encodes a short rule in one word, if possible.
fn brief(rule: Short) -> Option<u32> {
    if Some(rule) == Short::of_end() {
        return Some(END);
    }
    let word = rule.word();
    if word >> (SHORT_SLOTS + SLOT_BITS * 6) != SHORT_VALID >> (SHORT_SLOTS + SLOT_BITS * 6) {
        return None;
    }
    let words = (word & ((1 << SHORT_OFFSET) - 1)) as u32;
    let fields = (word >> SHORT_SLOTS) as u32 & ((1 << (SLOT_BITS * 6)) - 1);
    let saved = FIELDS.iter().position(|candidate| *candidate == fields)? as u32;
    let from_rbp = if word & 1 << SHORT_OFFSET == 0 { 0 } else { FROM_RBP };
    (words <= BRIEF_WORDS).then_some(words | from_rbp | saved << SAVED)
}

/// Decodes the rule that begins at a word. Words that no builder writes give [`TableAnswer::Ask`]: interpreting the
/// unwind information decides.
#[inline(always)]
pub fn read(rules: &[u32], at: usize) -> TableAnswer {
    let Some(first) = rules.get(at).copied() else { return TableAnswer::Ask };
    if first & TAG == 0 {
        return of_brief(first);
    }
    if first == BY_CODE {
        return by_code(rules, at);
    }
    other(rules, at, first)
}

#[inline(always)]
fn of_brief(first: u32) -> TableAnswer {
    let fields = FIELDS.get((first >> SAVED) as usize).copied().unwrap_or(0);
    let slots = u64::from(fields) << SHORT_SLOTS;
    let base = u64::from(first & FROM_RBP) << (SHORT_OFFSET - FROM_RBP.trailing_zeros());
    let word = SHORT_VALID | slots | base | u64::from(first & BRIEF_WORDS);
    Short::from_word(word).map_or_else(|| end(first), TableAnswer::Short)
}

/// The rule after the word which says that it was made from machine code.
#[cold]
fn by_code(rules: &[u32], at: usize) -> TableAnswer {
    let at = at.wrapping_add(1);
    match rules.get(at).copied() {
        Some(first) if first & TAG == 0 => of_brief(first),
        Some(first) if first != BY_CODE => other(rules, at, first),
        _ => TableAnswer::Ask,
    }
}

/// Whether the rule that begins at a word was made from machine code.
pub fn is_by_code(rules: &[u32], at: usize) -> bool {
    rules.get(at) == Some(&BY_CODE)
}

#[cold]
fn end(first: u32) -> TableAnswer {
    Short::of_end().filter(|_| first == END).map_or(TableAnswer::Ask, TableAnswer::Short)
}

fn other(rules: &[u32], at: usize, first: u32) -> TableAnswer {
    let word = |n: usize| rules.get(at.checked_add(n)?).map(|word| u64::from(*word));
    let long = |n: usize| Some(word(n)? | word(n + 1)? << 32);
    let found = if first & LONG == 0 {
        word(1).and_then(|low| Short::from_word(u64::from(first) << 32 | low)).map(TableAnswer::Short)
    } else {
        let words = || Some([long(1)?, long(3)?, long(5)?]);
        words().and_then(Packed::from_words).filter(|_| first == LONG).map(TableAnswer::Long)
    };
    found.unwrap_or(TableAnswer::Ask)
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

    /// The rule after a prologue: registers pushed in this order (rbx 0, rbp 1, r12-r15 2-5), then `words` to the CFA.
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
                    assert_eq!(read(&words, 0), TableAnswer::Short(short), "{rule:?}");
                    seen.insert(words[0]);
                }
            }
        }
        // Both orders give the same rule if rbp is not saved, or saved alone, or with rbx only.
        assert_eq!(seen.len(), 4 * (64 + 64 - 32 - 2), "no two rules share a word");
    }

    #[test]
    fn other_rules_are_decoded_as_they_were_encoded() {
        let odd = [
            pushed(&[0, 1, 2], RSP, 4),
            pushed(&[5, 1], RSP, 1 << 22),
            Rule { slots: [UNKNOWN, -2, SAME, SAME, SAME, SAME, -1], ..Rule::simple(RBP, 16) },
            Rule { slots: [-3, SAME, SAME, SAME, SAME, SAME, -1], ..Rule::simple(RSP, 16) },
        ];
        for rule in odd {
            let short = Short::new(&rule).expect("a short rule");
            let words = words_of(short);
            assert_eq!((words.len(), read(&words, 0)), (2, TableAnswer::Short(short)), "{rule:?}");
            assert_eq!(read(&words[..1], 0), TableAnswer::Ask, "cut off");
        }
        let end = words_of(Short::END);
        assert_eq!((end.len(), read(&end, 0)), (1, TableAnswer::Short(Short::END)));
        for rule in [Rule::signal(0).pack(), Rule::frame_pointer().pack(), Packed::failed(StopReason::UnsupportedRule)]
        {
            let words: Vec<u32> = of_long(rule).collect();
            assert_eq!((words.len(), read(&words, 0)), (MOST_WORDS - 1, TableAnswer::Long(rule)));
            assert_eq!(read(&words[..6], 0), TableAnswer::Ask, "cut off");
        }
    }

    #[test]
    fn rules_made_from_code_are_read_like_others() {
        let short = Short::new(&pushed(&[0, 1], RSP, 4)).expect("a short rule");
        let words: Vec<u32> = core::iter::once(BY_CODE).chain(of_short(short)).collect();
        assert_eq!((read(&words, 0), is_by_code(&words, 0)), (TableAnswer::Short(short), true));
        assert_eq!((read(&words, 1), is_by_code(&words, 1)), (TableAnswer::Short(short), false));
        let long = Rule { kind: uunwind_core::rule::RuleKind::Deref, ..Rule::simple(RBP, -16) }.pack();
        let words: Vec<u32> = core::iter::once(BY_CODE).chain(of_long(long)).collect();
        assert_eq!((words.len(), read(&words, 0)), (MOST_WORDS, TableAnswer::Long(long)));
        assert_eq!(read(&words[..7], 0), TableAnswer::Ask, "cut off");
    }

    #[test]
    fn words_that_no_builder_writes_ask() {
        for (words, what) in [
            (vec![0], "no offset"),
            (vec![FROM_RBP | 1 << SAVED], "an end that saves a register"),
            (vec![TAG | 1, 1], "two tags"),
            (vec![BY_CODE, BY_CODE, 1], "the mark of machine code twice"),
            (vec![BY_CODE], "nothing after that mark"),
            (vec![LONG | 1, 0, 0, 0, 0, 0, 0], "a mark with more in it"),
            (vec![1 << 31, 0], "a short rule without an offset"),
            (vec![1 << 31 | 1 << 29, 1], "a short rule with a bit too many"),
            (vec![], "nothing"),
        ] {
            assert_eq!(read(&words, 0), TableAnswer::Ask, "{what}");
        }
        assert_eq!(read(&[1], usize::MAX), TableAnswer::Ask, "out of the table");
    }
}
