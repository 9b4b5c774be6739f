//! A table from pc to three words, shared by all threads of the process without locks: the cache of rules and of
//! functions' ranges.
//!
//! Writers and readers may meet at any instruction, on any thread, inside handlers. An entry's first word is the key
//! mixed with the other words and with the generation of the object that the pc belongs to; an entry that is torn,
//! outdated or another key's gives back another key, and is a miss (after R. Hyatt's lockless hashing). Nothing is ever
//! half owned.
//!
//! An entry is 32 bytes, a bucket one cache line of two entries. A key has three buckets: two on the page of the table
//! that the 2 KiB of code around it have, and one on the next page. What finds no place pushes another
//! one out.
//!
//! A page that is touched for the first time costs a fault, more than a rule does. So the keys of neighbouring code
//! lie together; the table begins with one page, and takes eight times as many in use whenever it has an entry for each
//! bucket; and a page is not read before it was written. What was stored before the table grew is forgotten.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

#[repr(C, align(64))]
struct Bucket([[AtomicU64; 4]; 2]);

/// The table. All-zero is empty, so that a static takes memory only as it fills.
#[repr(C)]
pub struct PcCache<const BUCKETS: usize> {
    /// The number of buckets in use, less one; at least [`FEW`].
    last: AtomicUsize,
    /// Number of entries that were free and were filled, since the table last grew.
    filled: AtomicUsize,
    /// The pages that have entries, a bit each.
    written: [AtomicU64; PAGES / 64],
    buckets: [Bucket; BUCKETS],
}

/// The last of the buckets that are in use first, one page. The numbers of buckets are powers of two.
const FEW: usize = PAGE - 1;
/// Bytes of code whose keys lie on one page: no more than the page has room for, where each 16 bytes have one.
const CODE: u64 = 2048;
/// Number of buckets that lie on one page, or on two.
const PAGE: usize = 64;
/// Limit of the number of such pages.
const PAGES: usize = 512;

/// The three words mixed with the generation.
#[inline(always)]
fn mix(words: [u64; 3], generation: u64) -> u64 {
    let [a, b, c] = words;
    let sum = a
        .wrapping_mul(0xff51_afd7_ed55_8ccd)
        .wrapping_add(b.wrapping_mul(0xc4ce_b9fe_1a85_ec53))
        .wrapping_add(c.wrapping_mul(0xbf58_476d_1ce4_e5b9))
        .wrapping_add(generation.wrapping_mul(0x94d0_49bb_1331_11eb));
    sum ^ (sum >> 32)
}

#[inline(always)]
fn read(entry: &[AtomicU64; 4]) -> (u64, [u64; 3]) {
    (entry[0].load(Relaxed), [entry[1].load(Relaxed), entry[2].load(Relaxed), entry[3].load(Relaxed)])
}

impl<const BUCKETS: usize> PcCache<BUCKETS> {
    /// An empty table.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> PcCache<BUCKETS> {
        const { assert!(BUCKETS.is_power_of_two() && BUCKETS > FEW && BUCKETS <= PAGE * PAGES) };
        PcCache {
            last: AtomicUsize::new(0),
            filled: AtomicUsize::new(0),
            written: [const { AtomicU64::new(0) }; PAGES / 64],
            buckets: [const { Bucket([const { [const { AtomicU64::new(0) }; 4] }; 2]) }; BUCKETS],
        }
    }

    /// The buckets of a key, as index and page. The second and the third are wanted rarely.
    #[inline(always)]
    fn places(&self, key: u64) -> impl Iterator<Item = (usize, usize)> {
        let last = (self.last.load(Relaxed) | FEW) % BUCKETS;
        let page = ((key / CODE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        (0..3).map(move |choice| {
            let (page, hash) = match choice {
                0 => (page, key.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                1 => (page, (key ^ (key >> 15)).wrapping_mul(0xd6e8_feb8_6659_fd93)),
                _ => (page ^ 1, key.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            };
            let place = ((page * PAGE) | ((hash >> 40) as usize % PAGE)) & last;
            (place, place / PAGE)
        })
    }

    /// Where it is noted that a page has entries, and its bit.
    #[inline(always)]
    fn note(&self, page: usize) -> (Option<&AtomicU64>, u64) {
        (self.written.get(page / 64), 1 << (page % 64))
    }

    /// The words stored for `key` under this generation. Async-signal-safe.
    #[inline(always)]
    pub fn get(&self, key: u64, generation: u64) -> Option<[u64; 3]> {
        for (place, page) in self.places(key) {
            let (written, bit) = self.note(page);
            if written?.load(Relaxed) & bit == 0 {
                return None;
            }
            for entry in &self.buckets.get(place)?.0 {
                let (first, words) = read(entry);
                if first ^ mix(words, generation) == key {
                    return Some(words);
                }
                // Entries are never freed, so a bucket with a free one never was full, and sent no key on.
                if first == 0 {
                    return None;
                }
            }
        }
        None
    }

    /// Stores three words for `key`. Async-signal-safe.
    pub fn put(&self, key: u64, generation: u64, words: [u64; 3]) {
        if self.store(key, generation, words) && self.grows() {
            self.store(key, generation, words);
        }
    }

    /// As [`PcCache::put`]. Whether the entry was free.
    #[inline(always)]
    fn store(&self, key: u64, generation: u64, words: [u64; 3]) -> bool {
        let fill = |entry: &[AtomicU64; 4], page: usize| {
            if let (Some(written), bit) = self.note(page) {
                if written.load(Relaxed) & bit == 0 {
                    written.fetch_or(bit, Relaxed);
                }
            }
            for (stored, word) in entry.iter().skip(1).zip(words) {
                stored.store(word, Relaxed);
            }
            entry[0].store(key ^ mix(words, generation), Relaxed);
        };
        for (place, page) in self.places(key) {
            let Some(bucket) = self.buckets.get(place) else { return false };
            for entry in &bucket.0 {
                let (first, stored) = read(entry);
                if first == 0 || first ^ mix(stored, generation) == key {
                    fill(entry, page);
                    return first == 0;
                }
            }
        }
        // No place: one of the first four gives way, another one for another key.
        let chosen = self.places(key).nth((key >> 5) as usize & 1);
        if let Some((bucket, page)) = chosen.and_then(|(place, page)| Some((self.buckets.get(place)?, page))) {
            bucket.0.iter().skip((key >> 4) as usize & 1).take(1).for_each(|entry| fill(entry, page));
        }
        false
    }

    /// Counts an entry that was filled, and takes more buckets in use where there is one for each: then true. Two
    /// threads that count at once may count one.
    #[inline(always)]
    fn grows(&self) -> bool {
        let filled = self.filled.load(Relaxed) + 1;
        let last = self.last.load(Relaxed) | FEW;
        let grows = filled > last && last < BUCKETS - 1;
        self.filled.store(if grows { 0 } else { filled }, Relaxed);
        if grows {
            self.last.store((last << 3 | 7).min(BUCKETS - 1), Relaxed);
        }
        grows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Cache = PcCache<32768>;

    fn empty() -> Box<Cache> {
        // SAFETY: all-zero is the empty cache.
        unsafe { Box::<Cache>::new_zeroed().assume_init() }
    }

    #[test]
    fn words_come_back_whole_and_only_in_their_generation() {
        let cache = empty();
        let words = |pc: u64| [pc * 3, !pc, pc << 20];
        let pcs = || (0..16_000u64).map(|i| 0x7f12_3456_0000 + i * 37);
        // Twice: while it grows, it forgets.
        pcs().chain(pcs()).for_each(|pc| cache.put(pc, 7, words(pc)));
        let kept = pcs().filter(|pc| cache.get(*pc, 7) == Some(words(*pc))).count();
        assert!(kept >= 15_900, "{kept} of 16000 kept: buckets overflow too soon");
        assert!(pcs().all(|pc| cache.get(pc, 7).is_none_or(|w| w == words(pc))), "a wrong answer");
        assert!(pcs().all(|pc| cache.get(pc, 8).is_none()), "another generation");
        assert_eq!(cache.get(1, 7), None);
        cache.put(5, 1, [1, 2, 3]);
        cache.put(5, 1, [4, 5, 6]);
        assert_eq!(cache.get(5, 1), Some([4, 5, 6]));
    }

    #[test]
    fn a_few_entries_touch_one_page_and_many_all() {
        let cache = empty();
        let touched = || cache.buckets.iter().rposition(|bucket| bucket.0.iter().any(|e| e[0].load(Relaxed) != 0));
        for key in 1..=40u64 {
            cache.put(key << 12 | key, 3, [key, 1, 2]);
            assert_eq!(cache.get(key << 12 | key, 3), Some([key, 1, 2]));
        }
        assert!((1..=40u64).filter(|key| cache.get(key << 12 | key, 3).is_some()).count() >= 38);
        assert!(touched().is_some_and(|last| last <= FEW), "{:?}", touched());
        for key in 1..=20_000u64 {
            cache.put(key << 6, 3, [key, 1, 2]);
            assert_eq!(cache.get(key << 6, 3), Some([key, 1, 2]), "just stored");
        }
        assert!(touched().is_some_and(|last| last > 32_000), "{:?}", touched());
        assert_eq!(cache.last.load(Relaxed), 32_767);
    }

    #[test]
    fn a_torn_entry_is_a_miss() {
        let cache = empty();
        cache.put(0x1234, 1, [11, 22, 33]);
        let entry = &cache.buckets[cache.places(0x1234).next().expect("three places").0].0[0];
        for word in entry {
            let old = word.load(Relaxed);
            for bit in 0..64 {
                word.store(old ^ (1 << bit), Relaxed);
                assert_eq!(cache.get(0x1234, 1), None, "bit {bit} damaged");
            }
            word.store(old, Relaxed);
            assert_eq!(cache.get(0x1234, 1), Some([11, 22, 33]));
        }
    }

    #[test]
    fn threads_that_write_the_same_places_never_see_a_wrong_answer() {
        let cache: &PcCache<64> = &PcCache::new();
        // Miri is thousands of times slower.
        let rounds = if cfg!(miri) { 1_000 } else { 200_000u64 };
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                scope.spawn(move || {
                    for i in 0..rounds {
                        let key = 1 + (i * 7 + thread) % 40;
                        match cache.get(key, 9) {
                            Some(words) => assert_eq!(words, [key, key << 32, !key]),
                            None => cache.put(key, 9, [key, key << 32, !key]),
                        }
                    }
                });
            }
        });
    }
}
