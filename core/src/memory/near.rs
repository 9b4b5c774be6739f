//! The walk's reader within a plugin's own code.
//!
//! A call of a host function for each word costs more than reading the word. A plugin that is built from this crate,
//! with the same layout, may borrow the reader for a part of its work: it then loads words in its own code, by
//! [`guarded`] loads with its own fix-ups, and logs them itself. Nothing else of the walk may be called meanwhile. How
//! much it has read is counted when it gives the reader back; the walk adds that to the calls of its functions.

use super::draft::Draft;
use super::read_log::Read;
use super::{guarded, Log, Reader, ANSWER, KEY, SURE};
use crate::cache::read_memo::{Entry, Name, Recalled};
use core::mem::{offset_of, size_of};

/// Largest number of words of one [`Near::words`], and number of reads for which space is reserved at once.
const STRETCH: usize = 8;
/// Incremented when the same bytes get another meaning.
const REVISION: u64 = 4;

/// Distinguishes a reader of this build from one with another layout.
pub const LAYOUT: u64 = {
    let parts = [
        REVISION,
        size_of::<Reader<'_>>() as u64,
        offset_of!(Reader<'_>, log) as u64,
        offset_of!(Reader<'_>, lent) as u64,
        offset_of!(Reader<'_>, room) as u64,
        size_of::<Log>() as u64,
        offset_of!(Log, next) as u64,
        offset_of!(Log, recalled) as u64,
        size_of::<Recalled>() as u64,
        Recalled::LAYOUT,
        size_of::<Entry>() as u64,
        size_of::<Read>() as u64,
    ];
    let mut mixed = 0x243f_6a88_85a3_08d3u64;
    let mut at = 0;
    while at < parts.len() {
        mixed = (mixed ^ parts[at]).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        at += 1;
    }
    mixed
};

/// A borrowed reader. The log is handed back when it is dropped.
pub struct Near<'n> {
    pub(super) reader: &'n mut Reader<'n>,
    pub(super) plugin: u64,
    /// Words below this address are loaded here; 0: all reads are left to the reader.
    pub(super) limit: u64,
    /// Where the next read is logged, and the end of the reserved space. Local: stores to the log itself would be
    /// needed at each load.
    pub(super) next: *mut Read,
    end: *mut Read,
    /// Number of structures that were read, added to the reader's own number at the end.
    pub(super) count: u32,
}

impl<'n> Near<'n> {
    /// Borrows a reader for this plugin. `None`: reads are not logged now, so no answer can be cached.
    ///
    /// # Safety
    /// `reader` must be null or point to a reader of this [`LAYOUT`] without another user for `'n`.
    #[inline(always)]
    pub unsafe fn new(reader: *mut Reader<'n>, plugin: u32) -> Option<Near<'n>> {
        // SAFETY: the caller's promise.
        let reader = unsafe { reader.as_mut() }?;
        if !reader.log.is_open() || reader.log.recalled.is_null() {
            return None;
        }
        let (next, end) = (reader.log.next, reader.log.end);
        let limit = if reader.is_guarded() { SURE } else { 0 };
        Some(Near { reader, plugin: plugin.into(), limit, next, end, count: 0 })
    }

    /// An empty draft of frames in the walk's room.
    #[inline(always)]
    pub fn draft(&self) -> Draft {
        Draft::new(self.reader.room, self.plugin as u8)
    }

    /// For how many structures of a group the log has space ([`Near::group`]).
    #[inline(always)]
    pub fn group_room(&self) -> usize {
        let reads = (self.end as usize).wrapping_sub(self.next as usize) / size_of::<Read>();
        super::group::most_in(reads)
    }

    /// Reserves space for [`STRETCH`] reads. False: the log is full, which is noted.
    #[inline(always)]
    fn has_room(&mut self) -> bool {
        let has_room = (self.end as usize).wrapping_sub(self.next as usize) >= STRETCH * size_of::<Read>();
        self.reader.log.overflow |= !has_room;
        has_room
    }

    /// Space for this number of reads, which the caller adds. A log that is too short is not of use any more, and
    /// written anew from its start on. `None`: it could not hold them if it were empty.
    #[inline(always)]
    pub(super) fn room(&mut self, count: usize) -> Option<*mut Read> {
        let bytes = count * size_of::<Read>();
        if (self.end as usize).wrapping_sub(self.next as usize) < bytes {
            self.reader.log.overflow = true;
            self.next = self.reader.log.start;
            if (self.end as usize).wrapping_sub(self.next as usize) < bytes {
                return None;
            }
        }
        Some(self.next)
    }

    /// The words at these byte offsets from an address, at most eight. `None`: one of them is unreadable. The failed
    /// read may be missing in the log: a plugin that continues from there must repeat it by a host function.
    #[inline(always)]
    pub fn words<const N: usize>(&mut self, address: u64, offsets: [u32; N]) -> Option<[u64; N]> {
        const { assert!(N <= STRETCH) };
        self.count = self.count.wrapping_add(1);
        if address >= self.limit {
            // A copy that is made here: otherwise the offsets would be in memory on the fast path as well.
            return self.words_by_reader(address, &offsets.map(|offset| offset));
        }
        let mut failed = 0;
        let words = offsets.map(|offset| guarded::load_noting(address + u64::from(offset), &mut failed));
        if failed != 0 {
            return None;
        }
        if self.has_room() {
            let mut at = 0;
            while at < N {
                // SAFETY: space for STRETCH reads.
                unsafe { self.next.add(at).write(Read::of_word(address + u64::from(offsets[at]), words[at])) };
                at += 1;
            }
            self.next = self.next.wrapping_add(N);
        }
        Some(words)
    }

    /// As [`Near::words`], and nothing is logged: what follows from these words must be read again ([`Near::owe`]), or
    /// logged by other means.
    #[inline(always)]
    pub fn peek<const N: usize>(&mut self, address: u64, offsets: [u32; N]) -> Option<[u64; N]> {
        self.count = self.count.wrapping_add(1);
        if address >= self.limit {
            let was = self.reader.pause(true);
            let words = self.words_by_reader(address, &offsets.map(|offset| offset));
            self.reader.pause(was);
            return words;
        }
        let mut failed = 0;
        let words = offsets.map(
            #[inline(always)]
            |offset| guarded::load_at(address, u64::from(offset), &mut failed),
        );
        (failed == 0).then_some(words)
    }

    /// Says that words were read without being logged ([`Near::peek`]), which the plugin will read again, logged,
    /// before the walk ends. Until it says so ([`Near::settle`]), the walk cannot be kept for the next one to replay;
    /// unless it ends with the rest of a kept walk: then the plugin's scratch memory must show the debt, so that the
    /// same debt was settled in that rest. There is one debt at a time; another one cannot be settled.
    pub fn owe(&mut self) {
        self.reader.log.overflow |= self.reader.log.owed;
        self.reader.log.owed = true;
    }

    /// Says that all has been read again, and was the same.
    pub fn settle(&mut self) {
        self.reader.log.owed = false;
    }

    /// Says that what was read without being logged will not be read again: the walk is not kept.
    pub fn miss(&mut self) {
        self.reader.log.overflow = true;
    }

    #[cold]
    #[inline(never)]
    fn words_by_reader<const N: usize>(&mut self, address: u64, offsets: &[u32; N]) -> Option<[u64; N]> {
        let mut words = [0; N];
        self.reader.log.next = self.next;
        // SAFETY: as many offsets as words.
        let read = unsafe { self.reader.words_raw(address, offsets.as_ptr(), N, words.as_mut_ptr()) };
        self.next = self.reader.log.next;
        read.then_some(words)
    }

    /// As [`Reader::recall`], but without an answer no attribution of reads begins.
    #[inline(always)]
    pub fn recall(&mut self, key: [u64; KEY]) -> Option<[u64; ANSWER]> {
        let (answer, name) = self.answer(key)?;
        if self.has_room() {
            // SAFETY: space for one read.
            unsafe { self.next.write(Read::of_recalled(name)) };
            self.next = self.next.wrapping_add(1);
        }
        Some(answer)
    }

    /// The cached answer for this key; it is not logged.
    #[inline(always)]
    pub(super) fn answer(&mut self, key: [u64; KEY]) -> Option<([u64; ANSWER], Name)> {
        // SAFETY: checked by `new`; the reader has no reference to it.
        let recalled = unsafe { &mut *self.reader.log.recalled };
        match recalled.expected(self.plugin, &key) {
            Some(found) => Some(found),
            None => self.search(&key.map(|word| word)),
        }
    }

    #[inline(never)]
    pub(super) fn search(&mut self, key: &[u64; KEY]) -> Option<([u64; ANSWER], Name)> {
        // SAFETY: checked by `new`; the reader has no reference to it.
        let recalled = unsafe { &mut *self.reader.log.recalled };
        recalled.find(self.plugin, key, self.reader)
    }
}

impl Drop for Near<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.reader.log.next = self.next;
        self.reader.lent = self.reader.lent.saturating_add(self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Reader, Region};
    use super::*;

    const HEAP: u64 = 0x1000;
    const KEYS: u64 = 64;
    /// No key is read at this address.
    const NOWHERE: u64 = 1000;

    /// Reads and recalls by a borrowed reader, or by the reader itself: the results, and the log.
    fn ask(lent: bool, recalled: &mut Recalled, words: &[u64], keys: &[u64]) -> (Vec<Option<u64>>, Vec<Read>) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let regions = [Region { address: HEAP, bytes: &bytes }];
        let mut log = vec![Read::NONE; 256];
        let mut reader = Reader::recorded(&regions);
        recalled.begin(1);
        // SAFETY: both outlive the reader, and have no other user meanwhile.
        unsafe {
            reader.write_down(log.as_mut_ptr(), log.len());
            reader.keep_answers(recalled);
        }
        let mut results = Vec::new();
        let mut missed = Vec::new();
        {
            // SAFETY: a reader of this build, without another user while it is borrowed.
            let mut near = unsafe { Near::new(&raw mut reader, 1) }.filter(|_| lent);
            for key in keys {
                let at = if *key == NOWHERE { 0 } else { HEAP + key % KEYS * 8 };
                let key = [*key, 0, 0, 0, 0];
                let (words, answer) = match &mut near {
                    Some(near) => (near.words(at, [0, 8]), near.recall(key)),
                    None => {
                        let mut words = [0; 2];
                        // SAFETY: two offsets, and room for two words.
                        let read = unsafe { reader.words_raw(at, [0, 8].as_ptr(), 2, words.as_mut_ptr()) };
                        (read.then_some(words), reader.recall(1, &key))
                    }
                };
                results.extend([words.map(|words| words[0] ^ words[1]), answer.map(|answer| answer[0])]);
                missed.extend(answer.is_none().then_some(key));
            }
        }
        let written = reader.written();
        // Missing answers are computed in the same way.
        for key in missed {
            if reader.recall(1, &key).is_none() {
                let sum = reader.word(HEAP + key[0] % KEYS * 8).unwrap_or(0) + key[0];
                reader.remember(1, &key, [sum, 0]);
            }
        }
        log.truncate(written);
        (results, log)
    }

    #[test]
    fn a_borrowed_reader_reads_recalls_and_logs_as_the_reader_does() {
        let mut random = uunwind_random::Random::new(77);
        let (mut by_lent, mut by_reader) = (Box::new(Recalled::new()), Box::new(Recalled::new()));
        let mut words: Vec<u64> = (0..KEYS).collect();
        let mut cached = 0;
        for _ in 0..2000 {
            words[random.below(KEYS) as usize] = random.below(1 << 40);
            // The last key's second word lies outside.
            let mut keys: Vec<u64> = (0..random.below(30)).map(|_| random.below(100)).collect();
            keys.extend((random.below(4) == 0).then_some(NOWHERE));
            let (lent, reader) = (ask(true, &mut by_lent, &words, &keys), ask(false, &mut by_reader, &words, &keys));
            assert_eq!(lent.0, reader.0);
            // A failed read is logged when it is repeated.
            let done = |log: &[Read]| log.iter().filter(|read| !read.failed()).copied().collect::<Vec<_>>();
            assert_eq!(done(&lent.1), done(&reader.1));
            cached += lent.0.iter().skip(1).step_by(2).flatten().count();
        }
        assert!(cached > 1000, "few answers were cached: {cached}");
    }
}
