//! Hashes of ranges of foreign memory.
//!
//! A plugin that identifies code by more bytes than it can store hashes them. In the walk's log, [`LONGEST`] bytes of a
//! range are one entry with their hash: hashing them again shows whether they changed.

use super::{guarded, Reader, USER_END};

/// Largest number of bytes of one entry of the log: its length takes ten bits of [`super::Read`].
pub(super) const LONGEST: usize = (1 << 10) - 1;
/// Bytes of an entry if the range is longer than [`LONGEST`]: whole words.
const PIECE: usize = LONGEST / WORD * WORD;
/// Bytes of a word.
const WORD: usize = 8;

/// Adds a word to a hash. For a given word this is a bijection of hashes, and for a given hash one of words.
#[inline(always)]
fn mixed(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 29
}

/// A hash in progress. Even and odd words go into separate hashes, so that two multiplications run in parallel.
struct Lanes([u64; 2]);

impl Lanes {
    const fn new() -> Lanes {
        Lanes([0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344])
    }

    #[inline(always)]
    fn add(&mut self, even: u64, odd: u64) {
        let Lanes([first, second]) = self;
        (*first, *second) = (mixed(*first, even), mixed(*second, odd));
    }

    fn finish(self) -> u64 {
        let Lanes([first, second]) = self;
        mixed(first.rotate_left(32), second)
    }
}

impl Reader<'_> {
    /// A hash of `len` bytes from `address` on, and of their number. `None`: some of them are unreadable. Equal 64-bit
    /// hashes are taken for equal bytes.
    pub fn hash(&mut self, address: u64, len: usize) -> Option<u64> {
        let (mut at, mut left) = (address, len);
        let mut hash = mixed(0, len as u64);
        while left > 0 {
            let piece = if left <= LONGEST { left } else { PIECE };
            hash = mixed(hash, self.hash_of_piece(at, piece)?);
            at = at.wrapping_add(piece as u64);
            left -= piece;
        }
        Some(hash)
    }

    /// A hash of at most [`LONGEST`] bytes, logged as one entry.
    fn hash_of_piece(&mut self, address: u64, len: usize) -> Option<u64> {
        let hash = self.rehash(address, len);
        match hash {
            Some(hash) => self.log.add_range(address, len, hash),
            None => self.log.overflow |= self.log.is_open(),
        }
        hash
    }

    /// As [`Reader::hash_of_piece`], without an entry in the log.
    #[inline(always)]
    pub(super) fn rehash(&mut self, address: u64, len: usize) -> Option<u64> {
        if !self.is_guarded() {
            return self.rehash_slowly(address, len);
        }
        let end = address.checked_add(len as u64)?;
        if end <= USER_END {
            rehash_guarded(address, len)
        } else {
            None
        }
    }

    #[cold]
    #[inline(never)]
    fn rehash_slowly(&mut self, address: u64, len: usize) -> Option<u64> {
        address.checked_add(len as u64)?;
        let was = self.pause(true);
        let mut word = |from: usize| {
            let mut bytes = [0; WORD];
            let wanted = bytes.get_mut(..len.saturating_sub(from).min(WORD)).unwrap_or_default();
            let read = wanted.is_empty() || self.read(address.wrapping_add(from as u64), wanted);
            read.then_some(u64::from_le_bytes(bytes))
        };
        let mut lanes = Lanes::new();
        let done = (0..len).step_by(2 * WORD).try_for_each(|from| {
            lanes.add(word(from)?, word(from + WORD)?);
            Some(())
        });
        self.pause(was);
        done.map(|()| lanes.finish())
    }
}

/// [`Reader::rehash`] with guarded loads, whose failure is checked once. The range must lie below [`USER_END`].
fn rehash_guarded(address: u64, len: usize) -> Option<u64> {
    let (mut at, mut failed) = (address, 0u32);
    let mut lanes = Lanes::new();
    for _ in 0..len / (2 * WORD) {
        let even = guarded::load_noting(at, &mut failed);
        let odd = guarded::load_noting(at.wrapping_add(8), &mut failed);
        lanes.add(even, odd);
        at = at.wrapping_add(16);
    }
    match len % (2 * WORD) {
        0 => {}
        rest @ 1..=7 => lanes.add(load_part(at, rest, &mut failed), 0),
        rest => {
            let even = guarded::load_noting(at, &mut failed);
            lanes.add(even, load_part(at.wrapping_add(8), rest - WORD, &mut failed));
        }
    }
    (failed == 0).then(|| lanes.finish())
}

/// Loads part of a word, by the aligned words that hold these bytes: they lie in the same pages.
#[inline(always)]
fn load_part(address: u64, len: usize, failed: &mut u32) -> u64 {
    let (into, aligned) = (address % 8, address & !7);
    let mask = !(u64::MAX << (8 * len as u32));
    let mut word = if len == 0 { 0 } else { guarded::load_noting(aligned, failed) >> (8 * into) };
    if into as usize + len > WORD {
        word |= guarded::load_noting(aligned.wrapping_add(8), failed) << (64 - 8 * into);
    }
    word & mask
}

#[cfg(test)]
mod tests {
    use super::super::{Mode, Read, Region};
    use super::*;

    const AT: u64 = 0x1000;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
    }

    fn hash(bytes: &[u8]) -> Option<u64> {
        Reader::recorded(&[Region { address: AT, bytes }]).hash(AT, bytes.len())
    }

    #[test]
    fn hashes_differ_by_every_bit_and_by_length() {
        for len in [1, 7, 8, 9, 16, 23, LONGEST - 1, LONGEST, LONGEST + 3, 5 * LONGEST] {
            let text = bytes(len);
            let whole = hash(&text).expect("it can be read");
            let mut seen = std::collections::BTreeSet::from([whole]);
            for at in (0..len).step_by(1 + len / 64) {
                for bit in 0..8 {
                    let mut other = text.clone();
                    other[at] ^= 1 << bit;
                    assert!(seen.insert(hash(&other).expect("as readable")), "bit {bit} of byte {at} of {len}");
                }
            }
            let mut longer = text.clone();
            longer.push(0);
            assert_ne!(hash(&longer), Some(whole), "a zero after {len} bytes");
        }
    }

    #[test]
    fn all_kinds_of_readers_agree() {
        let text = bytes(2 * LONGEST + 40);
        for (from, len) in
            (0..9).flat_map(|from| (0..40).chain([LONGEST - 1, 2 * LONGEST + 21]).map(move |len| (from, len)))
        {
            let part = &text[from..from + len];
            let recorded = hash(part);
            let address = part.as_ptr() as u64;
            let mut probed = Reader::probed();
            assert_eq!(probed.hash(address, len), recorded, "{len} bytes from {from} on, probed");
            // SAFETY: none of the loads faults: they read memory of this test.
            let mut guarded = unsafe { Reader::new(Mode::Guarded) };
            assert_eq!(guarded.hash(address, len), recorded, "{len} bytes from {from} on, guarded");
        }
    }

    #[test]
    fn unreadable_ranges_have_no_hash() {
        let text = bytes(100);
        let regions = [Region { address: AT, bytes: &text }];
        let mut reader = Reader::recorded(&regions);
        assert!(reader.hash(AT, 100).is_some());
        for (address, len) in [(AT, 101), (AT - 1, 8), (AT + 90, 16), (u64::MAX - 4, 8), (u64::MAX - 4, 100)] {
            assert_eq!(reader.hash(address, len), None, "{len} bytes at {address:#x}");
        }
        assert_eq!(Reader::probed().hash(USER_END - 8, 64), None);
        // SAFETY: these addresses are refused before any load.
        assert_eq!(unsafe { Reader::new(Mode::Guarded) }.hash(USER_END - 8, 64), None);
    }

    #[test]
    fn the_log_refutes_a_range_that_changed() {
        let mut text = bytes(PIECE + LONGEST + 30);
        let mut log = [Read::NONE; 8];
        let regions = [Region { address: AT, bytes: &text }];
        let mut reader = Reader::recorded(&regions);
        // SAFETY: the log outlives the reader.
        unsafe { reader.write_down(log.as_mut_ptr(), log.len()) };
        assert!(reader.hash(AT, text.len()).is_some());
        assert_eq!((reader.written(), reader.overflow()), (3, false), "entries and overflow");
        let refuted = |bytes: &[u8]| {
            let regions = [Region { address: AT, bytes }];
            Read::refuted(&log[..3], &mut Reader::recorded(&regions))
        };
        assert_eq!(refuted(&text), None);
        for (at, entry) in
            [(0, 0), (PIECE - 1, 0), (PIECE, 1), (2 * PIECE - 1, 1), (2 * PIECE, 2), (PIECE + LONGEST + 29, 2)]
        {
            text[at] ^= 1;
            assert_eq!(refuted(&text), Some(entry), "byte {at}");
            text[at] ^= 1;
        }
        assert_eq!(refuted(&text[..40]), Some(0), "unmapped");
    }
}
