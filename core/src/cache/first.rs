//! The rules of addresses that were met once: the newest ones, at as few cache lines and pages as possible.
//!
//! A program that captures seldom needs most rules once, and each line and page that a larger cache takes for one costs
//! it more than the cache saves. Here rules are written one after the other, a line for four of them; a small index
//! leads to them. An address that is met again takes its rule from here to the larger caches, and no unwind data is
//! read.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The rules: `RING` of them, and an index of `INDEX` places. All-zero is empty.
#[repr(C, align(64))]
pub struct FirstRules<const RING: usize, const INDEX: usize> {
    /// Number of rules that were stored.
    count: AtomicU32,
    /// The number of the rule in the ring, plus 1, at either of its key's two places.
    index: [AtomicU16; INDEX],
    /// Key and rule, mixed as in [`PcCache`](super::rules::PcCache): a torn entry is another key's.
    ring: [[AtomicU64; 2]; RING],
}

/// What a key is mixed with.
#[inline(always)]
fn mix(rule: u64, generation: u64) -> u64 {
    let sum = rule.wrapping_mul(0xff51_afd7_ed55_8ccd).wrapping_add(generation.wrapping_mul(0x94d0_49bb_1331_11eb));
    sum ^ (sum >> 32)
}

impl<const RING: usize, const INDEX: usize> FirstRules<RING, INDEX> {
    /// No rule.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> FirstRules<RING, INDEX> {
        const { assert!(RING.is_power_of_two() && INDEX.is_power_of_two() && RING < 1 << 16) };
        FirstRules {
            count: AtomicU32::new(0),
            index: [const { AtomicU16::new(0) }; INDEX],
            ring: [const { [const { AtomicU64::new(0) }; 2] }; RING],
        }
    }

    /// The two places of a key in the index.
    #[inline(always)]
    fn places(&self, key: u64) -> [&AtomicU16; 2] {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // SAFETY: both are below INDEX.
        [hash >> 32, hash >> 48].map(|place| unsafe { self.index.get_unchecked(place as usize % INDEX) })
    }

    /// The rule's word stored for `key` under this generation. Async-signal-safe.
    pub fn get(&self, key: u64, generation: u64) -> Option<u64> {
        self.places(key).into_iter().find_map(|place| {
            let number = usize::from(place.load(Relaxed)).checked_sub(1)?;
            let [sealed, rule] = self.ring.get(number)?;
            let rule = rule.load(Relaxed);
            (sealed.load(Relaxed) ^ mix(rule, generation) == key).then_some(rule)
        })
    }

    /// Stores a rule's word, not 0, for a key that is not there. Async-signal-safe.
    #[inline(always)]
    pub fn put(&self, key: u64, generation: u64, rule: u64) {
        // Two threads that store at once may lose one of their rules.
        let count = self.count.load(Relaxed);
        self.count.store(count.wrapping_add(1), Relaxed);
        let number = count as usize % RING;
        let Some([sealed, word]) = self.ring.get(number) else { return };
        word.store(rule, Relaxed);
        sealed.store(key ^ mix(rule, generation), Relaxed);
        let [first, second] = self.places(key);
        // What stands there may be a rule that was overwritten since.
        let place = if first.load(Relaxed) == 0 { first } else { second };
        place.store(number as u16 + 1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_rules_are_found_in_their_generation_and_never_torn() {
        // SAFETY: all-zero is empty.
        let rules: Box<FirstRules<2048, 4096>> = unsafe { Box::new_zeroed().assume_init() };
        let keys = |count: u64| (0..count).map(|i| 0x7f12_3456_0000 + i * 37);
        assert!(keys(100).all(|key| rules.get(key, 5).is_none()));
        keys(1500).for_each(|key| rules.put(key, 5, key << 3 | 1));
        let found = keys(1500).filter(|key| rules.get(*key, 5) == Some(key << 3 | 1)).count();
        assert!(found > 1350, "{found} of 1500");
        assert!(keys(1500).all(|key| rules.get(key, 5).is_none_or(|rule| rule == key << 3 | 1)));
        assert!(keys(1500).all(|key| rules.get(key, 6).is_none()), "another generation");
        // Others take their places; the newest one is always there.
        for key in keys(20_000) {
            rules.put(key, 7, key << 3 | 1);
            assert_eq!(rules.get(key, 7), Some(key << 3 | 1));
        }
        assert!(keys(1500).all(|key| rules.get(key, 5).is_none()), "overwritten");
        let last = keys(20_000).next_back().expect("some");
        for word in &rules.ring[(rules.count.load(Relaxed) as usize - 1) % 2048] {
            let old = word.load(Relaxed);
            for bit in 0..64 {
                word.store(old ^ (1 << bit), Relaxed);
                assert_eq!(rules.get(last, 7), None, "bit {bit} damaged");
            }
            word.store(old, Relaxed);
        }
    }
}
