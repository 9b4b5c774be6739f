//! The table of names already sent: in a process block, shared by all threads of the process.
//!
//! Two kinds of keys lead to a name's id: where a code object lies, with the words that name it (its fingerprint), and what the
//! name record says ([`Content`]). Programs load the same code again and again: it then lies elsewhere, and its name is known
//! still. The table is a cache: where it is full, an older entry gives way, and what that named is described again when it is
//! next met. An id stays what it is for as long as the process is recorded, whatever becomes of its entries.
//!
//! The first names stand close together in the table's front, so that a program of few names touches few pages of it; behind
//! the front, anywhere.
//!
//! Open addressing, without a lock. A thread puts an id in when the name record stands in its ring; two that meet a name at once
//! each describe it. An entry is claimed by compare-and-swap on its state, which counts its claims, so that whoever reads an
//! entry while it changes hands notices. One whose claimer was killed in between stays busy and is passed over.

use crate::layout::{BLOCK_BYTES, BLOCK_HEADER};
use core::ops::Range;
use core::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

/// One entry.
#[repr(C)]
pub struct NameEntry {
    /// First word of the key: the address of the code object.
    code: AtomicU64,
    /// Second word of the key: the fingerprint of the words that name it.
    fingerprint: AtomicU64,
    /// Name id.
    id: AtomicU32,
    /// `FREE`, `BUSY` or `PUBLISHED`; in the upper bits, how often it was claimed.
    state: AtomicU32,
}

/// Entries of a process's table.
pub const ENTRIES: usize = (BLOCK_BYTES - BLOCK_HEADER) / core::mem::size_of::<NameEntry>();
/// Entries of the front: four pages. Names there never give way.
const FRONT: usize = 4 * 4096 / core::mem::size_of::<NameEntry>();
/// A name stands at most so far from where its key leads, in the front ...
const FRONT_PROBES: usize = 4;
/// ... or behind it.
const PROBES: usize = 8;

const FREE: u32 = 0;
const BUSY: u32 = 1;
const PUBLISHED: u32 = 2;
/// Bits of the state that hold one of these.
const PHASE: u32 = 3;
/// One claim more.
const CLAIM: u32 = 4;

/// The table of one process.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    entries: &'a [NameEntry],
}

/// Where a key leads in the front, and behind it: to so many entries, by two parts of its hash.
fn front(hash: u64) -> Range<usize> {
    let first = part(hash, FRONT - FRONT_PROBES);
    first..first + FRONT_PROBES
}

fn behind(hash: u64) -> Range<usize> {
    let first = FRONT + part(hash.rotate_left(20), ENTRIES - FRONT - PROBES);
    first..first + PROBES
}

/// The upper half of a hash, as a number below `limit`.
fn part(hash: u64, limit: usize) -> usize {
    (((hash >> 32) * limit as u64) >> 32) as usize
}

fn hash(code: u64, fingerprint: u64) -> u64 {
    (code ^ fingerprint.rotate_left(23)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<'a> Names<'a> {
    /// The table over [`ENTRIES`] entries (fewer are accepted).
    pub fn new(entries: &'a [NameEntry]) -> Names<'a> {
        Names { entries }
    }

    fn among(&self, range: Range<usize>) -> &'a [NameEntry] {
        self.entries.get(range).unwrap_or(&[])
    }

    /// The id of a name that was sent; 0 if it was not, or is not known any more. Async-signal-safe.
    pub fn find(&self, code: u64, fingerprint: u64) -> u32 {
        let hash = hash(code, fingerprint);
        let find = |range| {
            for entry in self.among(range) {
                let state = entry.state.load(Ordering::Acquire);
                match state & PHASE {
                    // A name is put into the first free one.
                    FREE => return Some(0),
                    PUBLISHED
                        if entry.code.load(Ordering::Relaxed) == code
                            && entry.fingerprint.load(Ordering::Relaxed) == fingerprint =>
                    {
                        let id = entry.id.load(Ordering::Relaxed);
                        // Still the same name's, all of it?
                        fence(Ordering::Acquire);
                        if entry.state.load(Ordering::Relaxed) == state {
                            return Some(id);
                        }
                    }
                    _ => {}
                }
            }
            None
        };
        find(front(hash)).or_else(|| find(behind(hash))).unwrap_or(0)
    }

    /// Puts a name in whose record was committed; where no entry is free, in the place of another name. Async-signal-safe.
    pub fn put(&self, code: u64, fingerprint: u64, id: u32) {
        let hash = hash(code, fingerprint);
        let into = |phase: u32, range, skip: usize| {
            let entries = self.among(range);
            let (ahead, rest) = entries.split_at_checked(skip).unwrap_or((entries, &[]));
            rest.iter().chain(ahead).any(|entry| entry.replace(phase, code, fingerprint, id))
        };
        // Any of them gives way as likely as another, so that none is always the one. If all are being written, the name is
        // described again when it is next met.
        let _ = into(FREE, front(hash), 0)
            || into(FREE, behind(hash), 0)
            || into(PUBLISHED, behind(hash), (hash as usize >> 8) % PROBES);
    }
}

impl NameEntry {
    /// Writes an entry that is in this phase. False: it is not, or somebody else was quicker.
    fn replace(&self, phase: u32, code: u64, fingerprint: u64, id: u32) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        let claims = (state & !PHASE).wrapping_add(CLAIM);
        let taken = state & PHASE == phase
            && self.state.compare_exchange(state, claims | BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            // Nobody sees a word of this name and the state of the one before.
            fence(Ordering::Release);
            self.code.store(code, Ordering::Relaxed);
            self.fingerprint.store(fingerprint, Ordering::Relaxed);
            self.id.store(id, Ordering::Relaxed);
            self.state.store(claims | PUBLISHED, Ordering::Release);
        }
        taken
    }
}

/// What a name record says, as a key of the table: two sums of 64 bits over all of it, so that two records with one key are
/// not to be expected in any recording.
pub struct Content {
    sums: [u64; 2],
}

impl Content {
    /// Of nothing yet.
    pub fn new() -> Content {
        Content { sums: [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344] }
    }

    /// Adds a word.
    #[inline(always)]
    pub fn add(&mut self, word: u64) {
        let [one, other] = &mut self.sums;
        *one = (*one ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        *one ^= *one >> 29;
        *other = (other.rotate_left(25) ^ word).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        *other ^= *other >> 31;
    }

    /// Adds bytes, padded with zeroes to whole words.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_ne_bytes(*word));
        }
        if !rest.is_empty() {
            self.add(rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    /// The key: no code object's, whose addresses are even.
    pub fn key(&self) -> (u64, u64) {
        let [one, other] = self.sums;
        (one | 1, other)
    }
}

impl Default for Content {
    fn default() -> Self {
        Content::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Vec<NameEntry> {
        // SAFETY: all-zero is a free entry.
        (0..ENTRIES).map(|_| unsafe { core::mem::zeroed() }).collect()
    }

    /// A key, and the id that belongs to it alone.
    fn name(number: u32) -> ((u64, u64), u32) {
        (
            (0x5555_0000_0000 + u64::from(number) * 112, u64::from(number).wrapping_mul(0x1234_5678_9abc_def1)),
            number + 1,
        )
    }

    #[test]
    fn names_are_found_by_both_words_of_their_key() {
        let entries = table();
        let names = Names::new(&entries);
        let ((code, fingerprint), id) = name(7);
        assert_eq!(names.find(code, fingerprint), 0);
        names.put(code, fingerprint, id);
        assert_eq!(names.find(code, fingerprint), id);
        assert_eq!((names.find(code, fingerprint + 1), names.find(code + 16, fingerprint)), (0, 0));
    }

    /// Ten times more names than there is room for: each finds a place, the newest are known, and none is told as another.
    #[test]
    fn a_full_table_forgets_and_is_never_wrong() {
        let entries = table();
        let names = Names::new(&entries);
        let all = 10 * ENTRIES as u32;
        for ((code, fingerprint), id) in (0..all).map(name) {
            names.put(code, fingerprint, id);
            assert_eq!(names.find(code, fingerprint), id);
        }
        let mut known = 0;
        for ((code, fingerprint), id) in (0..all).map(name) {
            let found = names.find(code, fingerprint);
            assert!(found == 0 || found == id, "{found} for name {id}");
            known += usize::from(found != 0);
        }
        assert!(known * 10 > ENTRIES * 9, "{known} names in {ENTRIES} entries");
    }

    /// As many names as a program tells of while it starts lie in four pages of the table.
    #[test]
    fn the_first_names_lie_close_together() {
        let entries = table();
        let names = Names::new(&entries);
        for ((code, fingerprint), id) in (0..200).map(name) {
            assert_eq!(names.find(code, fingerprint), 0);
            names.put(code, fingerprint, id);
        }
        let taken = |entries: &[NameEntry]| entries.iter().filter(|e| e.state.load(Ordering::Relaxed) != FREE).count();
        assert_eq!(taken(&entries[..FRONT]) + taken(&entries[FRONT..]), 200);
        assert!(taken(&entries[FRONT..]) < 10, "{} of 200 lie elsewhere", taken(&entries[FRONT..]));
        assert!((0..200).map(name).all(|((code, fingerprint), id)| names.find(code, fingerprint) == id));
    }

    /// An entry whose writer was killed keeps its place for ever, and costs others nothing.
    #[test]
    fn entries_left_behind_are_passed_over() {
        let entries = table();
        let names = Names::new(&entries);
        let ((code, fingerprint), id) = name(3);
        let hash = hash(code, fingerprint);
        for entry in names.among(front(hash)).iter().skip(1).chain(names.among(behind(hash))) {
            entry.state.store(CLAIM | BUSY, Ordering::Relaxed);
        }
        names.put(code, fingerprint, id);
        assert_eq!(names.find(code, fingerprint), id);
        entries[front(hash).start].state.store(CLAIM | BUSY, Ordering::Relaxed);
        names.put(code, fingerprint, id);
        assert_eq!(names.find(code, fingerprint), 0, "nowhere to go");
    }

    /// Threads that put names into a few entries, and look for them, all at once.
    #[test]
    fn entries_that_change_hands_are_never_taken_for_another_name() {
        let entries = table();
        let names = Names::new(&entries);
        // The front is taken, and the keys all lead to the same eight entries behind it.
        entries.iter().take(FRONT).for_each(|entry| entry.state.store(CLAIM | PUBLISHED, Ordering::Relaxed));
        let place = |(code, print): (u64, u64)| behind(hash(code, print));
        let near: Vec<_> =
            (0..4_000_000).map(name).filter(|(key, _)| place(*key) == place(name(0).0)).take(64).collect();
        assert!(near.len() > 4 * PROBES, "{} keys", near.len());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let near = &near;
                scope.spawn(move || {
                    let (mut hits, mut seed) = (0u64, 88_172_645_463_325_252u64 + thread);
                    for _ in 0..200_000 {
                        seed ^= seed << 13;
                        seed ^= seed >> 7;
                        seed ^= seed << 17;
                        let (key, id) = near[(seed >> 20) as usize % near.len()];
                        match names.find(key.0, key.1) {
                            0 => names.put(key.0, key.1, id),
                            found => {
                                assert_eq!(found, id);
                                hits += 1;
                            }
                        }
                    }
                    assert!(hits > 0, "nothing was ever found");
                });
            }
        });
    }

    #[test]
    fn contents_differ_by_every_byte_and_by_length() {
        let key = |parts: &[&[u8]]| {
            let mut content = Content::new();
            for part in parts {
                content.add(part.len() as u64);
                content.add_bytes(part);
            }
            content.key()
        };
        let text: Vec<u8> = (0..40).collect();
        let whole = key(&[&text]);
        assert_eq!(whole, key(&[&text.clone()]));
        for at in 0..text.len() {
            let mut other = text.clone();
            other[at] ^= 1;
            assert_ne!(key(&[&other]), whole, "byte {at}");
            assert_ne!(key(&[&text[..at], &text[at..]]), whole, "cut at {at}");
            assert_ne!(key(&[&text[..at]]), whole, "shortened to {at}");
        }
        assert_eq!(whole.0 & 1, 1, "no address of a code object");
    }
}
