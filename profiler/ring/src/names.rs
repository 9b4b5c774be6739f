//! The table of names that were sent: private to a process, shared by all its threads.
//!
//! Two kinds of keys lead to a name's id: the address of a code object together with the fingerprint of its names, and
//! the contents of the name record ([`Content`]). Programs load the same code again and again, at other addresses: its
//! name is then found by the second key. The table is a cache: when it is full, a new entry replaces an older one,
//! whose name is described again when it is next needed. An id keeps its meaning for as long as the process is
//! recorded, whatever becomes of its entries.
//!
//! The first names are placed in the table's front, so that a program with few names touches few pages of it; later
//! ones anywhere in the back.
//!
//! The table uses open addressing and no lock. A thread enters an id once the name record is in its ring; two threads
//! that meet a name at the same time both describe it. An entry is claimed by compare-and-swap on its state, which
//! counts the claims, so a reader notices when an entry changes while it is read. An entry whose writer was killed
//! stays busy and is skipped.

use core::ops::Range;
use core::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

/// One entry.
#[repr(C)]
pub struct NameEntry {
    /// First word of the key: the process address of the code object.
    code: AtomicU64,
    /// Second word of the key: the fingerprint of its names.
    fingerprint: AtomicU64,
    /// The name's id.
    id: AtomicU32,
    /// `FREE`, `BUSY` or `PUBLISHED`; in the upper bits, the number of claims.
    state: AtomicU32,
}

/// Number of entries of a process's table.
pub const ENTRIES: usize = 572 * 1024 / core::mem::size_of::<NameEntry>();
/// Number of entries of the front: four pages. They are never replaced.
const FRONT: usize = 4 * 4096 / core::mem::size_of::<NameEntry>();
/// Entries that a search examines in the front, from the one that the key's hash selects ...
const FRONT_PROBES: usize = 4;
/// ... and in the back.
const PROBES: usize = 8;

const FREE: u32 = 0;
const BUSY: u32 = 1;
const PUBLISHED: u32 = 2;
/// Bits of the state that hold the phase, one of these.
const PHASE: u32 = 3;
/// Added to the state for each claim.
const CLAIM: u32 = 4;

/// The table of one process, or a part of it.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    entries: &'a [NameEntry],
}

/// The entries that a hash selects in the front, and in the back, by two parts of the hash.
fn front(hash: u64) -> Range<usize> {
    let first = part(hash, FRONT - FRONT_PROBES);
    first..first + FRONT_PROBES
}

fn back(hash: u64) -> Range<usize> {
    let first = FRONT + part(hash.rotate_left(20), ENTRIES - FRONT - PROBES);
    first..first + PROBES
}

/// The upper half of a hash, scaled to a number below `limit`.
fn part(hash: u64, limit: usize) -> usize {
    (((hash >> 32) * limit as u64) >> 32) as usize
}

fn hash(code: u64, fingerprint: u64) -> u64 {
    (code ^ fingerprint.rotate_left(23)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<'a> Names<'a> {
    /// A table over these entries: [`ENTRIES`] of them, or fewer.
    pub fn new(entries: &'a [NameEntry]) -> Names<'a> {
        Names { entries }
    }

    fn among(&self, range: Range<usize>) -> &'a [NameEntry] {
        self.entries.get(range).unwrap_or(&[])
    }

    /// The id of a name that was sent; 0 if it was not sent, or was replaced. Async-signal-safe.
    pub fn find(&self, code: u64, fingerprint: u64) -> u32 {
        let hash = hash(code, fingerprint);
        let find = |range| {
            for entry in self.among(range) {
                let state = entry.state.load(Ordering::Acquire);
                match state & PHASE {
                    // Names are entered into the first free entry.
                    FREE => return Some(0),
                    PUBLISHED
                        if entry.code.load(Ordering::Relaxed) == code
                            && entry.fingerprint.load(Ordering::Relaxed) == fingerprint =>
                    {
                        let id = entry.id.load(Ordering::Relaxed);
                        // Did the entry keep this name while it was read?
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
        find(front(hash)).or_else(|| find(back(hash))).unwrap_or(0)
    }

    /// Enters a name whose record was committed; if no entry is free, in place of another name. Async-signal-safe.
    pub fn put(&self, code: u64, fingerprint: u64, id: u32) {
        let hash = hash(code, fingerprint);
        let into = |phase: u32, range, skip: usize| {
            let entries = self.among(range);
            let (ahead, rest) = entries.split_at_checked(skip).unwrap_or((entries, &[]));
            rest.iter().chain(ahead).any(|entry| entry.replace(phase, code, fingerprint, id))
        };
        // The replaced entry is chosen by the hash, so that all are replaced equally often. If it is being written, the
        // name is not entered and is described again when it is next needed.
        let _ = into(FREE, front(hash), 0)
            || into(FREE, back(hash), 0)
            || into(PUBLISHED, back(hash), (hash as usize >> 8) % PROBES);
    }
}

impl NameEntry {
    /// Writes an entry that is in this phase. False if it is not, or another thread was faster.
    fn replace(&self, phase: u32, code: u64, fingerprint: u64, id: u32) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        let claims = (state & !PHASE).wrapping_add(CLAIM);
        let taken = state & PHASE == phase
            && self.state.compare_exchange(state, claims | BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            // A reader that sees a word of this name also sees the new state.
            fence(Ordering::Release);
            self.code.store(code, Ordering::Relaxed);
            self.fingerprint.store(fingerprint, Ordering::Relaxed);
            self.id.store(id, Ordering::Relaxed);
            self.state.store(claims | PUBLISHED, Ordering::Release);
        }
        taken
    }
}

/// The contents of a name record, as a key of the table: two 64-bit sums over all of it, so that two records with equal
/// keys need not be expected in any recording.
pub struct Content {
    sums: [u64; 2],
}

impl Content {
    /// The sums over nothing.
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

    /// The key. Its first word is odd, and addresses of code objects are even.
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

    /// A key, and the id that only this key has.
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

    /// Ten times as many names as there are entries: each is entered, the newest are found, and none is found under
    /// another's key.
    #[test]
    fn a_full_table_forgets_and_is_never_wrong() {
        let entries = table();
        let names = Names::new(&entries);
        let all = 10 * ENTRIES as u32;
        for ((code, fingerprint), id) in (0..all).map(name) {
            names.put(code, fingerprint, id);
            assert_eq!(names.find(code, fingerprint), id);
        }
        let mut found_names = 0;
        for ((code, fingerprint), id) in (0..all).map(name) {
            let found = names.find(code, fingerprint);
            assert!(found == 0 || found == id, "{found} for name {id}");
            found_names += usize::from(found != 0);
        }
        assert!(found_names * 10 > ENTRIES * 9, "{found_names} names in {ENTRIES} entries");
    }

    /// As many names as a program sends while it starts fit into four pages of the table.
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

    /// An entry whose writer was killed stays busy for ever, and affects no other entry.
    #[test]
    fn busy_entries_are_skipped() {
        let entries = table();
        let names = Names::new(&entries);
        let ((code, fingerprint), id) = name(3);
        let hash = hash(code, fingerprint);
        for entry in names.among(front(hash)).iter().skip(1).chain(names.among(back(hash))) {
            entry.state.store(CLAIM | BUSY, Ordering::Relaxed);
        }
        names.put(code, fingerprint, id);
        assert_eq!(names.find(code, fingerprint), id);
        entries[front(hash).start].state.store(CLAIM | BUSY, Ordering::Relaxed);
        names.put(code, fingerprint, id);
        assert_eq!(names.find(code, fingerprint), 0, "nowhere to go");
    }

    /// Threads that enter names into a few entries and search for them, all at once.
    #[test]
    fn replaced_entries_are_never_taken_for_another_name() {
        let entries = table();
        let names = Names::new(&entries);
        // The front is full, and all keys lead to the same eight entries of the back.
        entries.iter().take(FRONT).for_each(|entry| entry.state.store(CLAIM | PUBLISHED, Ordering::Relaxed));
        let place = |(code, print): (u64, u64)| back(hash(code, print));
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
