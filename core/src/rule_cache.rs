//! pc -> rule, shared by all threads of the process, without locks.
//!
//! A fixed table, two entries to a bucket. Writers and readers may meet at any instruction, on any thread, inside
//! handlers: an entry carries a check word over all its words and the generation of the object it belongs to, so a torn
//! or outdated entry is simply a miss (R. Hyatt's lockless hashing). Nothing is ever half owned.

use crate::rule::{Rule, RuleKind};
use crate::stop_reason::StopReason;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORDS: usize = 8;
/// Entries of a cache (1 MiB of address space, touched as it fills).
pub const ENTRIES: usize = 16384;

/// What is known of a pc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cached {
    /// The rule, or why there is none.
    pub rule: Result<Rule, StopReason>,
    /// The function's unwind range; (0, 0) when unknown.
    pub function: (u64, u64),
}

#[repr(C, align(64))]
struct Entry([AtomicU64; WORDS]);

/// The table.
pub struct RuleCache {
    entries: [Entry; ENTRIES],
}

impl RuleCache {
    /// An empty table.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> RuleCache {
        RuleCache { entries: [const { Entry([const { AtomicU64::new(0) }; WORDS]) }; ENTRIES] }
    }

    fn bucket(pc: u64) -> usize {
        (pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % (ENTRIES / 2) * 2
    }

    /// What is known of `pc`, if it was stored under the same generation. Async-signal-safe.
    #[inline]
    pub fn get(&self, pc: u64, generation: u64) -> Option<Cached> {
        let first = Self::bucket(pc);
        self.entries.get(first..)?.iter().take(2).find_map(|entry| {
            if entry.0.first()?.load(Relaxed) != pc {
                return None;
            }
            let mut words = [0; WORDS];
            for (word, stored) in words.iter_mut().zip(&entry.0) {
                *word = stored.load(Relaxed);
            }
            (check(&words, generation) == words[WORDS - 1]).then(|| decode(&words)).flatten()
        })
    }

    /// Stores what is known of `pc`. Async-signal-safe.
    pub fn put(&self, pc: u64, generation: u64, cached: &Cached) {
        let first = Self::bucket(pc);
        let Some(pair) = self.entries.get(first..first + 2) else { return };
        // Replace an entry of the same pc; else the free one, else one chosen by the pc.
        let place = pair
            .iter()
            .position(|e| e.0.first().is_some_and(|w| w.load(Relaxed) == pc))
            .or_else(|| pair.iter().position(|e| e.0.first().is_some_and(|w| w.load(Relaxed) == 0)))
            .unwrap_or((pc >> 3) as usize & 1);
        let Some(entry) = pair.get(place) else { return };
        let mut words = encode(pc, cached);
        words[WORDS - 1] = check(&words, generation);
        for (word, stored) in words.iter().zip(&entry.0) {
            stored.store(*word, Relaxed);
        }
    }
}

fn check(words: &[u64; WORDS], generation: u64) -> u64 {
    let mut h = generation.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in words.iter().take(WORDS - 1) {
        h = (h ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
    }
    h
}

fn encode(pc: u64, cached: &Cached) -> [u64; WORDS] {
    let (rule, error) = match cached.rule {
        Ok(rule) => (rule, 0),
        Err(reason) => (Rule::end(), u64::from(reason.number())),
    };
    let [s0, s1, s2, s3, s4, s5, s6] = rule.slots.map(|s| u64::from(s as u16));
    [
        pc,
        u64::from(rule.cfa_offset as u32)
            | (u64::from(rule.cfa_register) << 32)
            | ((rule.kind as u64) << 40)
            | (u64::from(rule.from_fp) << 48)
            | (u64::from(rule.flags) << 56),
        s0 | (s1 << 16) | (s2 << 32) | (s3 << 48),
        s4 | (s5 << 16) | (s6 << 32) | (error << 48),
        cached.function.0,
        cached.function.1,
        u64::from(rule.cfa_addend as u16),
        0,
    ]
}

fn decode(words: &[u64; WORDS]) -> Option<Cached> {
    let [_, head, low, high, start, end, addend, _] = *words;
    let function = (start, end);
    let error = (high >> 48) as u16;
    if error != 0 {
        return Some(Cached { rule: Err(StopReason::from_number(error)?), function });
    }
    let kind = match (head >> 40) as u8 {
        0 => RuleKind::Offset,
        1 => RuleKind::Deref,
        2 => RuleKind::Signal,
        3 => RuleKind::End,
        _ => return None,
    };
    let slot = |word: u64, n: u32| (word >> (16 * n)) as u16 as i16;
    let rule = Rule {
        cfa_offset: head as u32 as i32,
        cfa_register: (head >> 32) as u8,
        kind,
        from_fp: (head >> 48) as u8,
        flags: (head >> 56) as u8,
        slots: [slot(low, 0), slot(low, 1), slot(low, 2), slot(low, 3), slot(high, 0), slot(high, 1), slot(high, 2)],
        cfa_addend: addend as u16 as i16,
    };
    Some(Cached { rule: Ok(rule), function })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{SAME, UNKNOWN};

    #[test]
    fn stored_rules_come_back_whole_and_only_in_their_generation() {
        let cache: Box<RuleCache> = {
            // SAFETY: all-zero is the empty cache.
            unsafe { Box::<RuleCache>::new_zeroed().assume_init() }
        };
        let mut rule = Rule::simple(6, -48);
        rule.kind = RuleKind::Deref;
        rule.from_fp = 0x55;
        rule.flags = 3;
        rule.cfa_addend = -8;
        rule.slots = [SAME, UNKNOWN, -1, 2, -3000, 7, i16::MIN + 1];
        for pc in 1..5000u64 {
            let cached = if pc % 3 == 0 {
                Cached { rule: Err(StopReason::BadUnwindInfo), function: (pc, pc + 9) }
            } else {
                Cached { rule: Ok(Rule { cfa_offset: pc as i32, ..rule }), function: (pc - 1, u64::MAX) }
            };
            cache.put(pc, 7, &cached);
            assert_eq!(cache.get(pc, 7), Some(cached));
            assert_eq!(cache.get(pc, 8), None, "another generation");
        }
        assert_eq!(cache.get(999_999, 7), None);
    }

    #[test]
    fn a_torn_entry_is_a_miss() {
        // SAFETY: all-zero is the empty cache.
        let cache: Box<RuleCache> = unsafe { Box::<RuleCache>::new_zeroed().assume_init() };
        let cached = Cached { rule: Ok(Rule::simple(7, 16)), function: (1, 2) };
        cache.put(0x1234, 1, &cached);
        let bucket = RuleCache::bucket(0x1234);
        for word in 1..WORDS {
            let w = &cache.entries[bucket].0[word];
            let old = w.load(Relaxed);
            w.store(old ^ 0x10, Relaxed);
            assert_eq!(cache.get(0x1234, 1), None, "word {word} damaged");
            w.store(old, Relaxed);
            assert_eq!(cache.get(0x1234, 1), Some(cached));
        }
    }
}
