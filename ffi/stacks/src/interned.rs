//! A table of records of words in which equal records have one id. Bounded, never freed; lock-free; for any context.
//!
//! ```text
//! lists[hash]  -> place of a record -> next -> ...        places[id - 1] -> place of a record
//! record: next place (32 bits) | id (32) | hash (32) | number of words (32) | words
//! ```
//! A record is complete before a list leads to it, and does not change afterwards. Two threads that add the same record
//! at the same time: the second one's compare-and-swap of the list fails, it finds the first one's record, and gives
//! its own back.

use crate::arena::{map, Arena, Taken};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Ids whose places lie in one mapping.
const PLACES: usize = 1 << 16;
/// Mappings of places: the limit of ids is the product.
const MAPPINGS: usize = 256;
/// Bytes of a record before its words.
const HEADER: usize = 16;
/// Longest list that is searched; a record beyond it is not found again, and has a second id.
const LONGEST: usize = 4096;

/// A table with 2^`BITS` lists and at most `CHUNKS` MiB of records.
pub struct Interned<const BITS: u32, const CHUNKS: usize> {
    arena: Arena<CHUNKS>,
    /// The lists' first places, mapped at the first use.
    lists: AtomicPtr<AtomicU32>,
    places: [AtomicPtr<AtomicU32>; MAPPINGS],
    /// Number of ids that were given.
    count: AtomicU32,
    lost: AtomicU64,
}

/// What lies before a record's words.
#[repr(C)]
struct Header {
    next: AtomicU32,
    id: AtomicU32,
    hash: u32,
    words: u32,
}

/// A record that is being written.
pub struct Draft {
    taken: Taken,
    words: usize,
}

impl Draft {
    /// Its words, zero at first.
    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: that many words were taken after the header, and have no other user.
        unsafe { core::slice::from_raw_parts_mut(self.taken.start.add(HEADER).cast(), self.words) }
    }
}

/// A hash of words: four independent sums, so that the multiplications overlap.
pub fn hash(words: &[u64]) -> u32 {
    const FACTORS: [u64; 4] =
        [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x27d4_eb2f_1656_67c5];
    let mut sums = [words.len() as u64, 1, 2, 3];
    let (groups, rest) = words.as_chunks::<4>();
    for group in groups {
        for ((sum, word), factor) in sums.iter_mut().zip(group).zip(FACTORS) {
            *sum = (sum.rotate_left(29) ^ word).wrapping_mul(factor);
        }
    }
    for ((sum, word), factor) in sums.iter_mut().zip(rest).zip(FACTORS) {
        *sum = (sum.rotate_left(29) ^ word).wrapping_mul(factor);
    }
    let [one, two, three, four] = sums.map(|sum| sum ^ sum >> 32);
    let all = (one ^ two.rotate_left(16) ^ three.rotate_left(32) ^ four.rotate_left(48)).wrapping_mul(FACTORS[0]);
    (all >> 32) as u32
}

impl<const BITS: u32, const CHUNKS: usize> Interned<BITS, CHUNKS> {
    /// An empty table, for which nothing is mapped yet.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Interned<BITS, CHUNKS> {
        Interned {
            arena: Arena::new(),
            lists: AtomicPtr::new(core::ptr::null_mut()),
            places: [const { AtomicPtr::new(core::ptr::null_mut()) }; MAPPINGS],
            count: AtomicU32::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Records that found no room.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Number of ids.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// The id of a record with these words; 0: there is no room.
    pub fn add(&self, words: &[u64]) -> u32 {
        let hash = hash(words);
        if let Some(id) = self.list(hash).and_then(|list| self.search(list.load(Ordering::Acquire), 0, hash, words)) {
            return id;
        }
        let Some(mut draft) = self.draft(words.len()) else { return 0 };
        draft.words().copy_from_slice(words);
        self.commit_hashed(draft, hash)
    }

    /// Room for a record of this number of words, to be filled and committed. `None`: there is none, which is counted.
    pub fn draft(&self, words: usize) -> Option<Draft> {
        let taken = words.checked_mul(8).and_then(|bytes| self.arena.take(bytes.checked_add(HEADER)?));
        if taken.is_none() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Some(Draft { taken: taken?, words })
    }

    /// Drops a draft.
    pub fn abandon(&self, draft: Draft) {
        self.arena.give_back(draft.taken, HEADER + draft.words * 8);
    }

    /// The id of a record with the draft's words; 0: there is no room.
    pub fn commit(&self, mut draft: Draft) -> u32 {
        let hash = hash(draft.words());
        self.commit_hashed(draft, hash)
    }

    fn commit_hashed(&self, mut draft: Draft, hash: u32) -> u32 {
        let id = self.publish(&mut draft, hash);
        match id {
            Ok(id) => id,
            Err(other) => {
                if other == 0 {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
                self.abandon(draft);
                other
            }
        }
    }

    /// `Err(id)`: another record with these words has this id; `Err(0)`: there is no room.
    fn publish(&self, draft: &mut Draft, hash: u32) -> Result<u32, u32> {
        let list = self.list(hash).ok_or(0u32)?;
        let mut first = list.load(Ordering::Acquire);
        if let Some(other) = self.search(first, 0, hash, draft.words()) {
            return Err(other);
        }
        let id = self.new_id().ok_or(0u32)?;
        let place = draft.taken.place;
        let header = Header { next: AtomicU32::new(first), id: AtomicU32::new(id), hash, words: draft.words as u32 };
        let at = draft.taken.start.cast::<Header>();
        // SAFETY: HEADER bytes, 16-aligned, without another user.
        unsafe { at.write(header) };
        self.place_of(id).ok_or(0u32)?.store(place, Ordering::Release);
        loop {
            match list.compare_exchange(first, place, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(id),
                Err(now) => {
                    // Only what was added since is new.
                    if let Some(other) = self.search(now, first, hash, draft.words()) {
                        if let Some(place) = self.place_of(id) {
                            // The id stays unused.
                            place.store(0, Ordering::Release);
                        }
                        return Err(other);
                    }
                    first = now;
                    // SAFETY: written above; not published yet.
                    unsafe { (*at).next.store(first, Ordering::Relaxed) };
                }
            }
        }
    }

    fn new_id(&self) -> Option<u32> {
        let limit = (PLACES * MAPPINGS) as u32;
        let id = self
            .count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < limit).then_some(count + 1))
            .ok()?
            + 1;
        let mapping = self.places.get((id - 1) as usize / PLACES)?;
        mapped(mapping, PLACES)?;
        Some(id)
    }

    fn place_of(&self, id: u32) -> Option<&AtomicU32> {
        let index = id.checked_sub(1)? as usize;
        let mapping = self.places.get(index / PLACES)?.load(Ordering::Acquire);
        // SAFETY: PLACES numbers, never unmapped.
        (!mapping.is_null()).then(|| unsafe { &*mapping.add(index % PLACES) })
    }

    /// The words of the record with this id.
    pub fn get(&self, id: u32) -> Option<&[u64]> {
        if id > self.count.load(Ordering::Acquire) {
            return None;
        }
        let place = self.place_of(id)?.load(Ordering::Acquire);
        if place == 0 {
            return None;
        }
        let (_, words) = self.record(place)?;
        Some(words)
    }

    fn record(&self, place: u32) -> Option<(&Header, &[u64])> {
        let at = self.arena.at(place)?;
        // SAFETY: places in lists and of ids are those of complete records, which never change but for `next` before
        // they are published.
        unsafe {
            let header = &*at.cast::<Header>();
            Some((header, core::slice::from_raw_parts(at.add(HEADER).cast(), header.words as usize)))
        }
    }

    /// The id of the record with these words, in the list from the place `from` up to the place `to`, excluded.
    fn search(&self, from: u32, to: u32, hash: u32, words: &[u64]) -> Option<u32> {
        let mut place = from;
        for _ in 0..LONGEST {
            if place == 0 || place == to {
                return None;
            }
            let (header, found) = self.record(place)?;
            if header.hash == hash && found == words {
                return Some(header.id.load(Ordering::Relaxed));
            }
            place = header.next.load(Ordering::Relaxed);
        }
        None
    }

    fn list(&self, hash: u32) -> Option<&AtomicU32> {
        let lists = mapped(&self.lists, 1 << BITS)?;
        // SAFETY: 2^BITS numbers, never unmapped.
        Some(unsafe { &*lists.add((hash >> (32 - BITS)) as usize) })
    }
}

/// The `count` numbers that this pointer leads to, mapped if they were not.
fn mapped(pointer: &AtomicPtr<AtomicU32>, count: usize) -> Option<*const AtomicU32> {
    let there = pointer.load(Ordering::Acquire);
    if !there.is_null() {
        return Some(there);
    }
    let new = map(count * 4)?.cast::<AtomicU32>();
    match pointer.compare_exchange(core::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(new),
        Err(other) => {
            crate::arena::unmap(new.cast(), count * 4);
            Some(other)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_records_have_one_id() {
        static TABLE: Interned<10, 4> = Interned::new();
        let stacks: Vec<Vec<u64>> = (0..3000u64).map(|n| (0..n % 40).map(|i| n / 3 * 1000 + i).collect()).collect();
        let ids: Vec<u32> = stacks.iter().map(|stack| TABLE.add(stack)).collect();
        for (stack, id) in stacks.iter().zip(&ids) {
            assert_eq!(TABLE.add(stack), *id);
            assert_eq!(TABLE.get(*id), Some(&stack[..]));
            for (other, of_other) in stacks.iter().zip(&ids).take(100) {
                assert_eq!(stack == other, id == of_other);
            }
        }
        assert_eq!(TABLE.get(0), None);
        assert_eq!(TABLE.get(TABLE.count() + 1), None);
        assert_eq!(TABLE.get(u32::MAX), None);
        assert_eq!(TABLE.lost(), 0);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        static TABLE: Interned<4, 1> = Interned::new();
        let big = vec![1u64; 50_000];
        assert!((1..=2).all(|n| TABLE.add(&vec![n; 50_000]) != 0));
        assert_eq!(TABLE.add(&vec![3; 50_000]), 0);
        assert_eq!(TABLE.lost(), 1);
        assert_ne!(TABLE.add(&big), 0, "what is there is found");
        assert_eq!(TABLE.add(&vec![4; 200_000]), 0);
        assert_eq!(TABLE.lost(), 2);
    }

    #[test]
    fn threads_that_add_the_same_records_agree() {
        // Four lists, so that all threads change the same ones.
        static TABLE: Interned<2, 16> = Interned::new();
        let add = || (0..4000u64).map(|n| TABLE.add(&[n % 500, n % 500 + 1, 7])).collect::<Vec<u32>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(add)).collect();
        let all: Vec<Vec<u32>> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        assert!(all.iter().all(|ids| *ids == all[0] && !ids.contains(&0)));
        let mut distinct = all[0].clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 500);
    }
}
