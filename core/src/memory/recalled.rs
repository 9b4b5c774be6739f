//! Answers that a thread's walks have worked out before, each with the words that it was worked out from.
//!
//! What names a function follows from a key (which function runs, where it stands, who called it) and from many more words than those
//! that tell that it runs. While all of them read the same, the answer is the same: they are looked at once in a walk, however
//! often the function stands on the stack, and in the walk's log they are one entry.
//!
//! ```text
//! entries   answers, each in one of the few places from where its key says
//! reads     a ring, written on and on: an answer's words are whole until the ring has come round to them
//! ```

use super::log::Read;
use super::Reader;
use core::mem::offset_of;
use core::sync::atomic::{compiler_fence, Ordering};

/// Words of a key.
pub const KEY: usize = 5;
/// Words of an answer.
pub const ANSWER: usize = 2;
/// Answers that are kept, and the places that one may have.
const ENTRIES: usize = 256;
const PLACES: usize = 8;
/// Reads that are kept.
const READS: usize = 8192;
/// Reads that an answer may need.
const LONGEST: usize = 96;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Entry {
    key: [u64; KEY],
    /// Who asked.
    plugin: u64,
    answer: [u64; ANSWER],
    /// Where its reads begin, counted from the first that was ever written: no other answer has the same.
    at: u64,
    /// How many they are; 0: there is no answer here.
    count: u64,
    /// The walk in which they were last found to hold.
    held: u64,
    /// The entry that was asked for behind this one: stacks are alike, so it is most often the next one, too.
    next: u64,
}

impl Entry {
    #[inline(always)]
    fn is_for(&self, plugin: u64, key: &[u64; KEY]) -> bool {
        // Of most entries one word is enough. Not compared as arrays: that would be a call.
        let differs = || (1..KEY).fold(self.plugin ^ plugin, |differs, at| differs | (self.key[at] ^ key[at]));
        self.key[0] == key[0] && differs() == 0 && self.count != 0
    }
}

/// The answers of one thread. All-zero is none.
#[repr(C)]
pub struct Recalled {
    /// Reads ever written.
    head: u64,
    /// The walk under way.
    walk: u64,
    /// The surroundings that the answers belong to.
    stamp: u64,
    /// The entry that was asked for last.
    last: u64,
    entries: [Entry; ENTRIES],
    reads: [Read; READS],
}

impl Recalled {
    /// For [`super::near::LAYOUT`].
    pub(super) const LAYOUT: u64 = (ENTRIES * READS) as u64 | (offset_of!(Recalled, entries) as u64) << 32;

    /// None.
    pub const fn new() -> Recalled {
        const NONE: Entry = Entry { key: [0; KEY], plugin: 0, answer: [0; ANSWER], at: 0, count: 0, held: 0, next: 0 };
        Recalled { head: 0, walk: 0, stamp: 0, last: 0, entries: [NONE; ENTRIES], reads: [Read::NONE; READS] }
    }

    /// A walk begins, in these surroundings. Answers of others are forgotten.
    pub fn begin(&mut self, stamp: u64) {
        self.walk = self.walk.wrapping_add(1);
        if self.stamp != stamp {
            self.stamp = stamp;
            self.entries.iter_mut().for_each(|entry| entry.count = 0);
        }
    }

    /// The reads of an entry, unless the ring has overwritten them.
    fn reads_of(&self, entry: &Entry) -> Option<&[Read]> {
        if entry.count == 0 || self.head.wrapping_sub(entry.at) > READS as u64 {
            return None;
        }
        let start = (entry.at % READS as u64) as usize;
        self.reads.get(start..)?.get(..entry.count as usize)
    }

    /// Whether an entry's reads hold. They are looked at once a walk.
    #[inline(always)]
    fn holds(&mut self, index: usize, reader: &mut Reader<'_>) -> bool {
        let Some(entry) = self.entries.get(index) else { return false };
        let Some(reads) = self.reads_of(entry) else { return false };
        if entry.held == self.walk {
            return true;
        }
        let holds = Read::refuted(reads, reader).is_none();
        let walk = self.walk;
        if let Some(entry) = self.entries.get_mut(index).filter(|_| holds) {
            entry.held = walk;
        }
        holds
    }

    /// The entry that a log names still is the one that it was, and its reads hold.
    pub(super) fn still_holds(&mut self, index: usize, at: u64, reader: &mut Reader<'_>) -> bool {
        self.entries.get(index).is_some_and(|entry| entry.at == at) && self.holds(index, reader)
    }

    /// The answer for a key, if it holds: it, and what names its entry in a log.
    #[inline(always)]
    pub(super) fn find(
        &mut self,
        plugin: u64,
        key: &[u64; KEY],
        reader: &mut Reader<'_>,
    ) -> Option<([u64; ANSWER], Name)> {
        let is_it = |index: &usize| self.entries.get(*index).is_some_and(|entry| entry.is_for(plugin, key));
        let guess = self.entries.get(self.last as usize).map_or(0, |last| last.next as usize);
        let index = if is_it(&guess) { guess } else { places(plugin, key).find(is_it)? };
        self.follows(index);
        if !self.holds(index, reader) {
            return None;
        }
        let entry = self.entries.get(index)?;
        Some((entry.answer, Name { index, at: entry.at }))
    }

    /// The answer for a key, if it is the one that came behind the last one before, and was found to hold in this walk.
    #[inline(always)]
    pub(super) fn expected(&mut self, plugin: u64, key: &[u64; KEY]) -> Option<([u64; ANSWER], Name)> {
        let index = self.entries.get(self.last as usize)?.next;
        let entry =
            self.entries.get(index as usize).filter(|entry| entry.held == self.walk && entry.is_for(plugin, key))?;
        self.last = index;
        Some((entry.answer, Name { index: index as usize, at: entry.at }))
    }

    /// An entry was asked for.
    #[inline(always)]
    fn follows(&mut self, index: usize) {
        if let Some(last) = self.entries.get_mut(self.last as usize) {
            last.next = index as u64;
        }
        self.last = index as u64;
    }

    /// Keeps an answer. `None`: that is not possible.
    pub(super) fn keep(
        &mut self,
        plugin: u64,
        key: &[u64; KEY],
        answer: [u64; ANSWER],
        reads: &[Read],
    ) -> Option<Name> {
        let count = reads.len();
        // One that names another entry could be outlived by it.
        if count == 0 || count > LONGEST || reads.iter().any(Read::is_recalled) {
            return None;
        }
        let of = |index: &usize| self.entries.get(*index);
        let same = places(plugin, key).find(|index| of(index).is_some_and(|entry| entry.is_for(plugin, key)));
        // The one that has not been of use for longest.
        let age = |index: &usize| of(index).map_or(u64::MAX, |entry| if entry.count == 0 { 0 } else { entry.held });
        let index = same.or_else(|| places(plugin, key).min_by_key(age))?;
        let start = (self.head % READS as u64) as usize;
        let at = match start + count > READS {
            true => self.head.wrapping_add((READS - start) as u64),
            false => self.head,
        };
        let (start, walk) = ((at % READS as u64) as usize, self.walk);
        // Whoever leaves this walk in the middle finds no entry whose reads are half written.
        let entry = self.entries.get_mut(index)?;
        entry.count = 0;
        self.head = at.wrapping_add(count as u64);
        compiler_fence(Ordering::SeqCst);
        let room = self.reads.get_mut(start..)?.get_mut(..count)?;
        room.iter_mut().zip(reads).for_each(|(room, read)| *room = *read);
        *entry = Entry { key: *key, plugin, answer, at, count: 0, held: walk, next: entry.next };
        compiler_fence(Ordering::SeqCst);
        entry.count = count as u64;
        self.follows(index);
        Some(Name { index, at })
    }
}

impl Default for Recalled {
    fn default() -> Self {
        Recalled::new()
    }
}

/// Names an entry, as long as it stands.
#[derive(Clone, Copy)]
pub(super) struct Name {
    pub(super) index: usize,
    pub(super) at: u64,
}

/// The places that an answer may have.
#[inline(always)]
fn places(plugin: u64, key: &[u64; KEY]) -> impl Iterator<Item = usize> {
    let [function, place, caller, from, rest] = *key;
    let word = function ^ place.rotate_left(13) ^ caller.rotate_left(27) ^ from.rotate_left(41) ^ rest ^ plugin;
    let first = (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize;
    (0..PLACES).map(move |place| (first + place) % ENTRIES)
}

const _: () = assert!(ENTRIES == 1 << (64 - 56));

#[cfg(test)]
mod tests {
    use super::super::Region;
    use super::*;

    const HEAP: u64 = 0x1000;

    /// A thread: its answers, and room for the reads of a walk.
    struct Thread {
        recalled: Box<Recalled>,
        reads: Vec<Read>,
        heap: Vec<u64>,
    }

    impl Thread {
        fn new() -> Thread {
            Thread { recalled: Box::default(), reads: vec![Read::NONE; 512], heap: vec![0; 512] }
        }

        /// One walk.
        fn walk<T>(&mut self, stamp: u64, body: impl FnOnce(&mut Reader<'_>) -> T) -> T {
            let bytes: Vec<u8> = self.heap.iter().flat_map(|word| word.to_le_bytes()).collect();
            let regions = [Region { address: HEAP, bytes: &bytes }];
            let mut reader = Reader::recorded(&regions);
            self.recalled.begin(stamp);
            // SAFETY: both outlive the reader, and are touched by nobody else meanwhile.
            unsafe {
                reader.write_down(self.reads.as_mut_ptr(), self.reads.len());
                reader.keep_answers(&raw mut *self.recalled);
            }
            body(&mut reader)
        }
    }

    /// An answer that follows from some words; whether it was known.
    fn ask(reader: &mut Reader<'_>, key: u64, words: core::ops::Range<u64>) -> (u64, bool) {
        let key = [key, 0, 0, 0, 0];
        if let Some([sum, _]) = reader.recall(1, &key) {
            return (sum, true);
        }
        let sum = words.fold(0, |sum, word| sum + reader.word(HEAP + 8 * word).unwrap_or(1000));
        reader.remember(1, &key, [sum, 0]);
        (sum, false)
    }

    #[test]
    fn an_answer_holds_as_long_as_its_words_and_its_surroundings() {
        let mut thread = Thread::new();
        thread.heap[3] = 5;
        assert_eq!(thread.walk(1, |reader| (ask(reader, 7, 2..4), ask(reader, 7, 2..4))), ((5, false), (5, true)));
        assert_eq!(thread.walk(1, |reader| ask(reader, 7, 2..4)), (5, true), "in another walk");
        assert_eq!(thread.walk(1, |reader| reader.recall(2, &[7, 0, 0, 0, 0])), None, "another plugin");
        assert_eq!(thread.walk(2, |reader| ask(reader, 7, 2..4)), (5, false), "other surroundings");
        thread.heap[3] = 6;
        assert_eq!(thread.walk(2, |reader| ask(reader, 7, 2..4)), (6, false), "another word");
        assert_eq!(thread.walk(2, |reader| ask(reader, 7, 2..4)), (6, true));
        // A word that cannot be read is as good as another.
        assert_eq!(thread.walk(2, |reader| ask(reader, 8, 510..514)), (2000, false));
        assert_eq!(thread.walk(2, |reader| ask(reader, 8, 510..514)), (2000, true));
    }

    #[test]
    fn answers_give_way_to_others_and_are_never_mixed_up() {
        let mut thread = Thread::new();
        (0..).zip(&mut thread.heap).for_each(|(at, word)| *word = at);
        let mut random = uunwind_random::Random::new(4711);
        let mut known = 0;
        for _ in 0..20_000 {
            // More answers, and more reads, than there is room for; and some words change.
            let at = random.below(400);
            thread.heap[random.below(512) as usize] = random.below(100);
            let wanted: u64 = thread.heap[at as usize..at as usize + 1 + at as usize % 90].iter().sum();
            let ((sum, was_known), written) =
                thread.walk(1, |reader| (ask(reader, at, at..at + 1 + at % 90), reader.written()));
            assert_eq!(sum, wanted, "answer {at}");
            assert!(!was_known || written == 1, "what is known is one read: {written}");
            known += u64::from(was_known);
        }
        assert!(known > 200, "few were known: {known}");
    }
}
