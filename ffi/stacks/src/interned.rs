//! A table of records of words in which equal records have one id. Bounded, never freed; lock-free; for any context.
//!
//! ```text
//! lists[hash]  -> place of a record -> next -> ...        places[id - 1] -> place of a record
//! record: next place (32 bits) | id (32) | hash (32) | number of words (32) | words
//! ```
//! A record is complete before a list leads to it, and does not change afterwards. Two threads that add the same record
//! at the same time: the second one's compare-and-swap of the list fails, it finds the first one's record, and gives
//! its own back; where other memory was taken meanwhile, that record stays unused. An id leads to its record only once
//! the list does: whoever finds a record in its list makes its id valid, if the thread that added it has not come as
//! far as that, and notes it in the record (`SHOWN`), so that the next one who finds it need not look at the id's
//! place, which lies in memory of its own.

use crate::arena::{map, Arena, Taken};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Ids whose places lie in one mapping.
const PLACES: usize = 1 << 16;
/// Mappings of places: the limit of ids is the product.
const MAPPINGS: usize = 256;
/// Bytes of a record before its words.
const HEADER: usize = 16;
/// Set in a record's id once the id leads to the record. Ids are far below.
const SHOWN: u32 = 1 << 31;
/// Longest list. Where it would become longer (with a hash as good as chance, more than sixty times as many records as
/// the limit of ids allows), a record finds no room: it could be in the part that was not searched.
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
    /// With [`SHOWN`].
    id: AtomicU32,
    hash: u32,
    words: u32,
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

    /// The id of the record with these words, which is added if there is none; 0: there is no room, which is counted.
    pub fn add(&self, words: &[u64]) -> u32 {
        let id = self.find_or_add(words);
        if id.is_none() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        id.unwrap_or(0)
    }

    fn find_or_add(&self, words: &[u64]) -> Option<u32> {
        let hash = hash(words);
        let list = self.list(hash)?;
        let first = list.load(Ordering::Acquire);
        match self.search(first, 0, hash, words) {
            Search::Found(id) => return Some(id),
            Search::TooLong => return None,
            Search::Nothing => {}
        }
        let bytes = words.len().checked_mul(8)?.checked_add(HEADER)?;
        let taken = self.arena.take(bytes)?;
        let id = self.new_id().and_then(|id| self.publish(&taken, id, (list, first, hash), words));
        if !id.is_some_and(|(_, is_new)| is_new) {
            self.arena.give_back(taken, bytes);
        }
        id.map(|(id, _)| id)
    }

    /// Writes a record, and adds it to its list, of which `first` was searched. Returns its id, and true; or that of
    /// an equal record that was added meanwhile, and false. `None`: the list has become too long.
    fn publish(
        &self,
        taken: &Taken,
        id: u32,
        (list, mut first, hash): (&AtomicU32, u32, u32),
        words: &[u64],
    ) -> Option<(u32, bool)> {
        let at = taken.start.cast::<Header>();
        let header = Header { next: AtomicU32::new(first), id: AtomicU32::new(id), hash, words: words.len() as u32 };
        // SAFETY: HEADER bytes and those of the words were taken, 16-aligned, and have no other user.
        unsafe {
            at.write(header);
        }
        // Not by memcpy, which ThreadSanitizer watches, while it does not see the list's compare-and-swap: it would
        // report the comparison with these words in another thread.
        for (index, word) in words.iter().enumerate() {
            // SAFETY: as above.
            let place = unsafe { &*taken.start.add(HEADER).cast::<AtomicU64>().add(index) };
            place.store(*word, Ordering::Relaxed);
        }
        // Each turn that fails has let another thread succeed.
        loop {
            match list.compare_exchange(first, taken.place, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    // SAFETY: written above, and never freed.
                    return Some((self.show(unsafe { &*at }, taken.place), true));
                }
                // Only what was added since is new. The id stays unused if it is this record.
                Err(now) => match self.search(now, first, hash, words) {
                    Search::Found(other) => return Some((other, false)),
                    Search::TooLong => return None,
                    Search::Nothing => {
                        first = now;
                        // SAFETY: written above; not published yet.
                        unsafe { (*at).next.store(first, Ordering::Relaxed) };
                    }
                },
            }
        }
    }

    /// The id of the record at this place, to which its list leads. It is made valid if it was not.
    #[inline(always)]
    fn show(&self, record: &Header, place: u32) -> u32 {
        let id = record.id.load(Ordering::Acquire);
        if id & SHOWN == 0 {
            if let Some(at) = self.place_of(id) {
                at.store(place, Ordering::Release);
            }
            // After the place: whoever sees this finds the record by its id.
            record.id.store(id | SHOWN, Ordering::Release);
        }
        id & !SHOWN
    }

    /// An id that no record has. `None`: there is none left, or no memory for its place, which leaves it as it is.
    fn new_id(&self) -> Option<u32> {
        let limit = (PLACES * MAPPINGS) as u32;
        let mut count = self.count.load(Ordering::Relaxed);
        // Each turn that fails has let another thread succeed.
        loop {
            if count >= limit {
                return None;
            }
            mapped(self.places.get(count as usize / PLACES)?, PLACES)?;
            match self.count.compare_exchange_weak(count, count + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(count + 1),
                Err(now) => count = now,
            }
        }
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

    /// Looks for the record with these words, in the list from the place `from` up to the place `to`, excluded.
    fn search(&self, from: u32, to: u32, hash: u32, words: &[u64]) -> Search {
        let mut place = from;
        for _ in 0..LONGEST {
            if place == 0 || place == to {
                return Search::Nothing;
            }
            let Some((header, found)) = self.record(place) else { return Search::TooLong };
            if header.hash == hash && found == words {
                return Search::Found(self.show(header, place));
            }
            place = header.next.load(Ordering::Relaxed);
        }
        Search::TooLong
    }

    fn list(&self, hash: u32) -> Option<&AtomicU32> {
        let lists = mapped(&self.lists, 1 << BITS)?;
        // SAFETY: 2^BITS numbers, never unmapped.
        Some(unsafe { &*lists.add((hash >> (32 - BITS)) as usize) })
    }
}

/// What a search of a list has found.
enum Search {
    /// The id of the record.
    Found(u32),
    /// There is no such record.
    Nothing,
    /// The list is longer than [`LONGEST`].
    TooLong,
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
    fn a_list_that_is_too_long_takes_no_record_twice() {
        static TABLE: Interned<1, 4> = Interned::new();
        let ids: Vec<u32> = (0..3 * LONGEST as u64).map(|n| TABLE.add(&[n])).collect();
        let mut given: Vec<u32> = ids.iter().copied().filter(|id| *id != 0).collect();
        let refused = ids.len() - given.len();
        assert!(refused > 0 && TABLE.lost() == refused as u64, "{refused}");
        for (n, id) in ids.iter().enumerate().filter(|(_, id)| **id != 0) {
            let again = TABLE.add(&[n as u64]);
            assert!(again == *id || again == 0, "{n}: {id}, and then {again}");
            assert_eq!(TABLE.get(*id), Some(&[n as u64][..]));
        }
        given.dedup();
        assert_eq!(given.len(), ids.len() - refused, "each id is another one");
    }

    /// An id that is valid is that of every equal record, at every moment.
    #[test]
    fn no_id_is_seen_that_an_equal_record_does_not_get() {
        use core::sync::atomic::AtomicBool;
        static TABLE: Interned<2, 16> = Interned::new();
        static DONE: AtomicBool = AtomicBool::new(false);
        let watch = std::thread::spawn(|| {
            let (mut seen, mut wrong) = (0u64, 0);
            while !DONE.load(Ordering::Relaxed) {
                let id = TABLE.count();
                if let Some(words) = TABLE.get(id) {
                    seen += 1;
                    wrong += u32::from(TABLE.add(words) != id);
                }
            }
            (seen, wrong)
        });
        let add = || (0..12_000u64).map(|n| TABLE.add(&[n, n, n])).collect::<Vec<u32>>();
        let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(add)).collect();
        let all: Vec<Vec<u32>> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        DONE.store(true, Ordering::Relaxed);
        let (seen, wrong) = watch.join().expect("no panic");
        assert!(all.iter().all(|ids| *ids == all[0]));
        assert_eq!(wrong, 0, "of {seen}");
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
