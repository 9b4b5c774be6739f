//! pc -> rule, shared by all threads of the process, without locks.
//!
//! A fixed table, two entries to a bucket. Writers and readers may meet at any instruction, on any thread, inside
//! handlers: an entry carries a check word over all its words and the generation of the object it belongs to, so a torn
//! or outdated entry is simply a miss (R. Hyatt's lockless hashing). Nothing is ever half owned.

use crate::rule::Packed;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// pc, rule, extent, check.
const WORDS: usize = 6;
/// Entries of a cache (1 MiB of address space, touched as it fills).
pub const ENTRIES: usize = 16384;

/// What is known of a pc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cached {
    /// The rule, or why there is none.
    pub rule: Packed,
    /// The function's unwind range.
    pub function: Extent,
}

/// A range around a pc, in one word: how far it reaches below and above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent(u64);

impl Extent {
    /// Nothing is known.
    pub const UNKNOWN: Extent = Extent(0);

    /// The range `[start, end)` around `pc`; unknown if it does not hold `pc`, or is beyond 4 GiB.
    pub fn around(pc: u64, start: u64, end: u64) -> Extent {
        let reach = |from: u64, to: u64| to.checked_sub(from).and_then(|n| u32::try_from(n).ok());
        match (reach(start, pc), reach(pc, end)) {
            (Some(below), Some(above)) if above > 0 => Extent(u64::from(below) << 32 | u64::from(above)),
            _ => Extent::UNKNOWN,
        }
    }

    /// The range, given the pc; (0, 0) when unknown.
    pub fn range(self, pc: u64) -> (u64, u64) {
        if self == Extent::UNKNOWN {
            (0, 0)
        } else {
            (pc.wrapping_sub(self.0 >> 32), pc.wrapping_add(self.0 & 0xffff_ffff))
        }
    }
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
    #[inline(always)]
    pub fn get(&self, pc: u64, generation: u64) -> Option<Cached> {
        let first = Self::bucket(pc);
        for place in [first, first + 1] {
            let entry = &self.entries.get(place)?.0;
            if entry[0].load(Relaxed) != pc {
                continue;
            }
            let words: [u64; WORDS] = core::array::from_fn(|i| entry[i].load(Relaxed));
            if check(&words, generation) == words[WORDS - 1] {
                return decode(&words);
            }
        }
        None
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

/// Over all words but the last. A weighted sum: words of two entries that were mixed up give another one, and the
/// multiplications do not wait for each other.
#[inline(always)]
fn check(words: &[u64; WORDS], generation: u64) -> u64 {
    let [pc, head, low, high, function, _] = *words;
    generation
        .wrapping_mul(0xe703_7ed1_a0b4_28db)
        .wrapping_add(pc.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(head.wrapping_mul(0xff51_afd7_ed55_8ccd))
        .wrapping_add(low.wrapping_mul(0xc4ce_b9fe_1a85_ec53))
        .wrapping_add(high.wrapping_mul(0xbf58_476d_1ce4_e5b9))
        .wrapping_add(function.wrapping_mul(0x94d0_49bb_1331_11eb))
        | 1
}

fn encode(pc: u64, cached: &Cached) -> [u64; WORDS] {
    let [head, low, high] = cached.rule.words();
    [pc, head, low, high, cached.function.0, 0]
}

#[inline(always)]
fn decode(words: &[u64; WORDS]) -> Option<Cached> {
    let [_, head, low, high, function, _] = *words;
    Some(Cached { rule: Packed::from_words(head, low, high)?, function: Extent(function) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{Rule, RuleKind, SAME, UNKNOWN};
    use crate::stop_reason::StopReason;

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
                Cached { rule: Packed::failed(StopReason::BadUnwindInfo), function: Extent::around(pc, pc, pc + 9) }
            } else {
                Cached {
                    rule: Rule { cfa_offset: pc as i32, ..rule }.pack(),
                    function: Extent::around(pc, pc - 1, u64::MAX),
                }
            };
            cache.put(pc, 7, &cached);
            assert_eq!(cache.get(pc, 7), Some(cached));
            assert_eq!(cache.get(pc, 8), None, "another generation");
        }
        assert_eq!(cache.get(999_999, 7), None);
    }

    #[test]
    fn extents() {
        assert_eq!(Extent::around(0x1010, 0x1000, 0x1020).range(0x1010), (0x1000, 0x1020));
        assert_eq!(Extent::around(0x1000, 0x1000, 0x1001).range(0x1000), (0x1000, 0x1001));
        for (pc, start, end) in [(0x1000, 0x1001, 0x2000), (0x1000, 0, 0x1000), (1 << 40, 0, 1 << 41)] {
            assert_eq!(Extent::around(pc, start, end).range(pc), (0, 0));
        }
    }

    #[test]
    fn a_torn_entry_is_a_miss() {
        // SAFETY: all-zero is the empty cache.
        let cache: Box<RuleCache> = unsafe { Box::<RuleCache>::new_zeroed().assume_init() };
        let cached = Cached { rule: Rule::simple(7, 16).pack(), function: Extent::UNKNOWN };
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
