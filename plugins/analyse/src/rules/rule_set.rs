//! The distinct rules of a table, numbered as they come.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::short_rule::Short;
use uunwind_core::stop_reason::StopReason;
use uunwind_tables::format::FIRST_RULE;

/// A rule's provisional number: short and long rules are counted apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number(u32);

const LONG: u32 = 1 << 31;

impl Number {
    /// No function.
    pub const NOTHING: Number = Number(0);
    /// The interpreter is asked.
    pub const ASK: Number = Number(1);

    /// The number in a table with so many short rules.
    pub fn settled(self, shorts: u32) -> u32 {
        if self.0 & LONG == 0 {
            self.0
        } else {
            shorts + (self.0 & !LONG)
        }
    }
}

/// The rules met so far.
#[derive(Default)]
pub struct RuleSet {
    shorts: HashMap<u64, u32, Quick>,
    longs: HashMap<[u64; 3], u32, Quick>,
}

impl RuleSet {
    /// The number of a rule.
    pub fn number(&mut self, rule: &Rule) -> Number {
        match Short::new(rule) {
            Some(short) => {
                let next = self.shorts.len() as u32;
                Number(FIRST_RULE + *self.shorts.entry(short.word()).or_insert(next))
            }
            None => self.long(rule.pack()),
        }
    }

    /// The number of a rule that says why there is none.
    pub fn failed(&mut self, reason: StopReason) -> Number {
        self.long(Packed::failed(reason))
    }

    fn long(&mut self, rule: Packed) -> Number {
        let next = self.longs.len() as u32;
        Number(LONG + FIRST_RULE + *self.longs.entry(rule.words()).or_insert(next))
    }

    /// The short and the long rules, in order of their numbers.
    pub fn into_rules(self) -> (Vec<u64>, Vec<[u64; 3]>) {
        fn sorted<T: Copy + Default>(all: impl Iterator<Item = (T, u32)>, len: usize) -> Vec<T> {
            let mut out = vec![T::default(); len];
            for (rule, number) in all {
                if let Some(place) = out.get_mut(number as usize) {
                    *place = rule;
                }
            }
            out
        }
        let (shorts, longs) = (self.shorts.len(), self.longs.len());
        (sorted(self.shorts.into_iter(), shorts), sorted(self.longs.into_iter(), longs))
    }
}

type Quick = BuildHasherDefault<QuickHasher>;

/// Multiplies and rotates words: hostile rules could make it slow, but the number of rows is bounded by the file's size.
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
