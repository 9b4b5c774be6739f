//! The distinct rules of a table, in the words that the table has of them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use uunwind_core::cache::short::Short;
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::stop_reason::StopReason;
use uunwind_tables::format::FIRST_RULE;
use uunwind_tables::rules::{of_long, of_short, BY_CODE};

/// Number of the rule of addresses that no function covers.
pub const NOTHING: u32 = 0;
/// Number of the rule of addresses whose rule depends on the very pc: `.eh_frame` is interpreted there.
pub const ASK: u32 = 1;

/// The rules met so far. A rule's number is the index of its first word, offset by the first number.
#[derive(Default)]
pub struct RuleSet {
    shorts: HashMap<u64, u32, Quick>,
    longs: HashMap<[u64; 3], u32, Quick>,
    by_code: HashMap<[u64; 3], u32, Quick>,
    words: Vec<u32>,
}

impl RuleSet {
    /// The number of a rule, by which rows refer to it; a new one if it is new.
    pub fn number(&mut self, rule: &Rule) -> u32 {
        let short = Short::new(rule);
        match short.or_else(|| Short::of_end().filter(|end| end.pack() == rule.pack())) {
            Some(short) => *self.shorts.entry(short.word()).or_insert_with(|| add(&mut self.words, of_short(short))),
            None => self.long(rule.pack()),
        }
    }

    /// The number of a rule that was made from machine code.
    pub fn number_by_code(&mut self, rule: &Rule) -> u32 {
        let (packed, words) = (rule.pack(), &mut self.words);
        *self.by_code.entry(packed.words()).or_insert_with(|| {
            let mark = core::iter::once(BY_CODE);
            match Short::new(rule) {
                Some(short) => add(words, mark.chain(of_short(short))),
                None => add(words, mark.chain(of_long(packed))),
            }
        })
    }

    /// The number of a rule that says why there is none.
    pub fn failed(&mut self, reason: StopReason) -> u32 {
        self.long(Packed::failed(reason))
    }

    fn long(&mut self, rule: Packed) -> u32 {
        *self.longs.entry(rule.words()).or_insert_with(|| add(&mut self.words, of_long(rule)))
    }

    /// The words of all of them.
    pub fn into_words(self) -> Vec<u32> {
        self.words
    }
}

/// Adds a rule's words; its number.
fn add(words: &mut Vec<u32>, rule: impl Iterator<Item = u32>) -> u32 {
    let number = FIRST_RULE + words.len() as u32;
    words.extend(rule);
    number
}

type Quick = BuildHasherDefault<QuickHasher>;

/// Multiplies and rotates words: hostile rules could make it slow, but the number of rows is bounded by the file's
/// size.
#[derive(Default)]
pub struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
