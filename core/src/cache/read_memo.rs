//! Answers that a thread's walks have computed, each with the words that it was computed from.
//!
//! The name of a function follows from a key (which function runs, at which address, who called it) and from many more
//! words than those that show that it runs. While all these words are unchanged, the answer is the same. They are
//! compared once in each walk, however often the function is on the stack, and in the walk's log they are one entry.
//!
//! ```text
//! entries   answers, each in one of a few positions that its key selects
//! reads     a ring, written continuously: an answer's words are valid until the ring overwrites them
//! ```

use crate::memory::read_log::Read;
use crate::memory::Reader;
use core::mem::{offset_of, size_of};
use core::sync::atomic::{compiler_fence, Ordering};

/// Number of 64-bit words of a key. The plugin chooses them, such as the address of a code object and its load bias.
pub const KEY: usize = 5;
/// Number of 64-bit words of an answer.
pub const ANSWER: usize = 2;
/// Number of cached answers, and number of positions that an answer may have.
const ENTRIES: usize = 256;
const PLACES: usize = 8;
/// Number of cached reads.
const READS: usize = 8192;
/// Limit of an answer's reads.
const LONGEST: usize = 96;

/// The fields that the recall of a known answer needs stand together, and the size is a power of two.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    key: [u64; KEY],
    answer: [u64; ANSWER],
    /// Its name in logs, [`Name::packed`], with the index of its first read, counted from the first that was ever
    /// written: unique for each answer.
    name: u64,
    /// The [`Turn`] in which it was last found to be valid, and to have that turn's part of the key.
    ready: u64,
    /// The entry that was recalled after this one: stacks are similar, so most often it is the next one again.
    next: u64,
    /// The last walk that found its reads unchanged.
    held: u64,
    /// Number of its reads; 0: the entry is empty.
    count: u64,
    /// Index of the plugin that computed it.
    plugin: u64,
    unused: [u64; 3],
}

const _: () = assert!(size_of::<Entry>() == 128);

/// What the keys of many answers have in common within one walk: all but the first word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn(u64);

impl Entry {
    const NONE: Entry = Entry {
        key: [0; KEY],
        answer: [0; ANSWER],
        name: 0,
        ready: 0,
        next: 0,
        held: 0,
        count: 0,
        plugin: 0,
        unused: [0; 3],
    };

    /// Index of its first read.
    #[inline(always)]
    fn at(&self) -> u64 {
        Name::unpacked(self.name).at
    }

    #[inline(always)]
    fn is_for(&self, plugin: u64, key: &[u64; KEY]) -> bool {
        self.has(plugin, key) && self.count != 0
    }

    /// Whether it has this key, and if it is in use, the answer for it.
    #[inline(always)]
    fn has(&self, plugin: u64, key: &[u64; KEY]) -> bool {
        // One word decides for most entries. An array comparison would be a function call.
        let differs = || (1..KEY).fold(self.plugin ^ plugin, |differs, at| differs | (self.key[at] ^ key[at]));
        self.key[0] == key[0] && differs() == 0
    }
}

/// The cached answers of one thread. All-zero is an empty cache.
#[repr(C)]
pub struct Recalled {
    /// Number of reads ever written.
    head: u64,
    /// Number of the current walk.
    walk: u64,
    /// The validity epoch that the answers belong to.
    stamp: u64,
    /// The entry that was recalled last.
    last: u64,
    /// Number of the current turn; and what it stands for, the plugin first.
    turn: u64,
    common: [u64; KEY],
    entries: [Entry; ENTRIES],
    reads: [Read; READS],
}

impl Recalled {
    /// Part of [`super::near::LAYOUT`].
    pub(crate) const LAYOUT: u64 = (ENTRIES * READS) as u64 | (offset_of!(Recalled, entries) as u64) << 32;

    /// An empty cache.
    pub const fn new() -> Recalled {
        Recalled {
            head: 0,
            walk: 0,
            stamp: 0,
            last: 0,
            turn: 0,
            common: [0; KEY],
            entries: [Entry::NONE; ENTRIES],
            reads: [Read::NONE; READS],
        }
    }

    /// Begins a walk in this validity epoch. Answers of other epochs are dropped.
    pub fn begin(&mut self, stamp: u64) {
        self.walk = self.walk.wrapping_add(1);
        self.turn = self.turn.wrapping_add(1);
        if self.stamp != stamp {
            self.stamp = stamp;
            self.clear();
        }
    }

    /// Drops all answers.
    pub(crate) fn clear(&mut self) {
        self.entries.iter_mut().for_each(|entry| (entry.count, entry.held, entry.ready) = (0, 0, 0));
    }

    /// The turn of this walk for keys of this plugin with these words after the first one.
    pub(crate) fn turn(&mut self, plugin: u64, rest: [u64; KEY - 1]) -> Turn {
        let [second, third, fourth, fifth] = rest;
        let common = [plugin, second, third, fourth, fifth];
        if self.common != common {
            // First, since this walk may be left in between: no turn ever stands for two keys.
            self.turn = self.turn.wrapping_add(1);
            compiler_fence(Ordering::SeqCst);
            self.common = common;
        }
        Turn(self.turn)
    }

    /// The reads of an entry, unless the ring has overwritten them.
    fn reads_of(&self, entry: &Entry) -> Option<&[Read]> {
        if entry.count == 0 || self.head.wrapping_sub(entry.at()) > READS as u64 {
            return None;
        }
        let start = (entry.at() % READS as u64) as usize;
        self.reads.get(start..)?.get(..entry.count as usize)
    }

    /// Whether an entry's reads are unchanged. They are repeated once in each walk.
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

    /// Whether the entry that a log names has not been replaced, and its reads are unchanged.
    pub(crate) fn still_holds(&mut self, name: Name, reader: &mut Reader<'_>) -> bool {
        self.entries.get(name.index).is_some_and(|entry| entry.at() == name.at) && self.holds(name.index, reader)
    }

    /// Whether the entry that a log names ([`Name::packed`]) has been found unchanged in this walk.
    #[inline(always)]
    pub(crate) fn is_current(&self, name: u64) -> bool {
        // The indices have eight bits.
        let entry = &self.entries[usize::from(name as u8)];
        entry.name == name && entry.held == self.walk
    }

    /// The valid answer for a key, and the name of its entry in a log.
    #[inline(always)]
    pub(crate) fn find(
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
        Some((entry.answer, Name { index, at: entry.at() }))
    }

    /// The answer for a key if its entry is the one that followed the last entry before, and was found valid in this
    /// walk.
    #[inline(always)]
    pub(crate) fn expected(&mut self, plugin: u64, key: &[u64; KEY]) -> Option<([u64; ANSWER], Name)> {
        // An entry that was found valid in this walk is in use. The indices have eight bits.
        let index = usize::from(self.entries[usize::from(self.last as u8)].next as u8);
        let entry = &self.entries[index];
        if entry.held != self.walk || !entry.has(plugin, key) {
            return None;
        }
        self.last = index as u64;
        Some((entry.answer, Name { index, at: entry.at() }))
    }

    /// The entry that was recalled last.
    #[inline(always)]
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Says that this entry was recalled last.
    #[inline(always)]
    pub(crate) fn set_last(&mut self, last: u64) {
        self.last = last;
    }

    /// The entry that followed entry `last` before, its answer and its packed name, if it is ready in this turn for the
    /// key with this first word.
    #[inline(always)]
    pub(crate) fn ready_after(&self, last: u64, turn: Turn, first: u64) -> Option<(u64, [u64; ANSWER], u64)> {
        // The indices have eight bits.
        let index = self.entries[usize::from(last as u8)].next & 0xff;
        let entry = &self.entries[index as usize];
        if entry.ready != turn.0 || entry.key[0] != first {
            return None;
        }
        Some((index, entry.answer, entry.name))
    }

    /// Says that the entry that was recalled last, for a key of this turn, was found valid in this walk.
    pub(crate) fn is_ready(&mut self, turn: Turn) {
        if let Some(entry) = self.entries.get_mut(self.last as usize) {
            entry.ready = turn.0;
        }
    }

    /// Notes that an entry was recalled.
    #[inline(always)]
    fn follows(&mut self, index: usize) {
        if let Some(last) = self.entries.get_mut(self.last as usize) {
            last.next = index as u64;
        }
        self.last = index as u64;
    }

    /// Caches an answer. `None` if that is not possible.
    pub(crate) fn keep(
        &mut self,
        plugin: u64,
        key: &[u64; KEY],
        answer: [u64; ANSWER],
        reads: &[Read],
    ) -> Option<Name> {
        let count = reads.len();
        // An answer that refers to another entry could outlive it.
        if count == 0 || count > LONGEST || reads.iter().any(Read::is_recalled) {
            return None;
        }
        let of = |index: &usize| self.entries.get(*index);
        let same = places(plugin, key).find(|index| of(index).is_some_and(|entry| entry.is_for(plugin, key)));
        // The entry that was not used for the longest time.
        let age = |index: &usize| of(index).map_or(u64::MAX, |entry| if entry.count == 0 { 0 } else { entry.held });
        let index = same.or_else(|| places(plugin, key).min_by_key(age))?;
        let start = (self.head % READS as u64) as usize;
        let at = match start + count > READS {
            true => self.head.wrapping_add((READS - start) as u64),
            false => self.head,
        };
        let (start, walk) = ((at % READS as u64) as usize, self.walk);
        // If this walk is abandoned in between, no entry with partly written reads remains, nor one that is in use
        // under another key.
        let entry = self.entries.get_mut(index)?;
        (entry.count, entry.held, entry.ready) = (0, 0, 0);
        self.head = at.wrapping_add(count as u64);
        compiler_fence(Ordering::SeqCst);
        let room = self.reads.get_mut(start..)?.get_mut(..count)?;
        room.iter_mut().zip(reads).for_each(|(room, read)| *room = *read);
        let name = Name { index, at }.packed();
        *entry = Entry { key: *key, plugin, answer, name, next: entry.next, ..Entry::NONE };
        compiler_fence(Ordering::SeqCst);
        (entry.count, entry.held) = (count as u64, walk);
        self.follows(index);
        Some(Name { index, at })
    }
}

impl Default for Recalled {
    fn default() -> Self {
        Recalled::new()
    }
}

/// Identifies an entry until it is replaced.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    pub(crate) index: usize,
    pub(crate) at: u64,
}

impl Name {
    /// In one word: no program lives to write 2^56 reads.
    #[inline(always)]
    pub(crate) fn packed(self) -> u64 {
        self.at << 8 | self.index as u64
    }

    #[inline(always)]
    pub(crate) fn unpacked(word: u64) -> Name {
        Name { index: (word & 0xff) as usize, at: word >> 8 }
    }
}

/// The positions that an answer may have.
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
    use super::*;
    use crate::memory::Region;

    const HEAP: u64 = 0x1000;

    /// A thread: its answers, and space for the reads of a walk.
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
            // SAFETY: both outlive the reader, and have no other user meanwhile.
            unsafe {
                reader.write_down(self.reads.as_mut_ptr(), self.reads.len());
                reader.keep_answers(&raw mut *self.recalled);
            }
            body(&mut reader)
        }
    }

    /// An answer that follows from some words; whether it was cached.
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
    fn an_answer_is_valid_as_long_as_its_words_and_its_epoch() {
        let mut thread = Thread::new();
        thread.heap[3] = 5;
        assert_eq!(thread.walk(1, |reader| (ask(reader, 7, 2..4), ask(reader, 7, 2..4))), ((5, false), (5, true)));
        assert_eq!(thread.walk(1, |reader| ask(reader, 7, 2..4)), (5, true), "in another walk");
        assert_eq!(thread.walk(1, |reader| reader.recall(2, &[7, 0, 0, 0, 0])), None, "another plugin");
        assert_eq!(thread.walk(2, |reader| ask(reader, 7, 2..4)), (5, false), "another epoch");
        thread.heap[3] = 6;
        assert_eq!(thread.walk(2, |reader| ask(reader, 7, 2..4)), (6, false), "another word");
        assert_eq!(thread.walk(2, |reader| ask(reader, 7, 2..4)), (6, true));
        // An unreadable word counts like a value.
        assert_eq!(thread.walk(2, |reader| ask(reader, 8, 510..514)), (2000, false));
        assert_eq!(thread.walk(2, |reader| ask(reader, 8, 510..514)), (2000, true));
    }

    #[test]
    fn answers_are_replaced_by_others_and_never_confused() {
        let mut thread = Thread::new();
        (0..).zip(&mut thread.heap).for_each(|(at, word)| *word = at);
        let mut random = uunwind_random::Random::new(4711);
        let mut cached = 0;
        for _ in 0..20_000 {
            // More answers and more reads than there is space for; and some words change.
            let at = random.below(400);
            thread.heap[random.below(512) as usize] = random.below(100);
            let wanted: u64 = thread.heap[at as usize..at as usize + 1 + at as usize % 90].iter().sum();
            let ((sum, was_cached), written) =
                thread.walk(1, |reader| (ask(reader, at, at..at + 1 + at % 90), reader.written()));
            assert_eq!(sum, wanted, "answer {at}");
            assert!(!was_cached || written == 1, "a cached answer is one read: {written}");
            cached += u64::from(was_cached);
        }
        assert!(cached > 200, "few were cached: {cached}");
    }
}
