//! The distinct rules of a table, numbered as they come.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::short_rule::Short;
use uunwind_core::stop_reason::StopReason;

/// A rule's provisional number: short and long rules are counted apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    /// Nothing: the interpreter is asked.
    Ask,
    /// The nth short rule.
    Short(u32),
    /// The nth long rule.
    Long(u32),
}

/// The rules met so far.
#[derive(Default)]
pub struct RuleSet {
    shorts: HashMap<u64, u32, Quick>,
    longs: HashMap<[u64; 3], u32, Quick>,
    last: Option<(Rule, Number)>,
}

impl RuleSet {
    /// The number of a rule.
    pub fn number(&mut self, rule: &Rule) -> Number {
        if let Some((_, number)) = self.last.filter(|(last, _)| last == rule) {
            return number;
        }
        let number = match Short::new(rule) {
            Some(short) => {
                let next = self.shorts.len() as u32;
                Number::Short(*self.shorts.entry(short.word()).or_insert(next))
            }
            None => self.long(rule.pack()),
        };
        self.last = Some((*rule, number));
        number
    }

    /// The number of a rule that says why there is none.
    pub fn failed(&mut self, reason: StopReason) -> Number {
        self.long(Packed::failed(reason))
    }

    fn long(&mut self, rule: Packed) -> Number {
        let next = self.longs.len() as u32;
        Number::Long(*self.longs.entry(rule.words()).or_insert(next))
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
