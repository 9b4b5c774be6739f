//! A range of memory that a reader has checked once, for data of which many bytes are read in a row.

use super::probed::PAGE;
use super::{guarded, Mode, Reader, USER_END};
use crate::span::Span;
use core::marker::PhantomData;

/// Bytes of one load.
const WORD: u64 = 8;

/// Memory that can be loaded without a question to the reader. Each load is guarded where the walk's reads are.
#[derive(Clone, Copy, Debug)]
pub struct Direct<'a> {
    /// The first address (process address).
    pub(super) start: u64,
    /// Number of addresses, from `start` on, at which a word can be loaded.
    pub(super) len: u64,
    /// What is added to a process address to get the place of its byte; 0 unless the bytes were saved elsewhere.
    pub(super) shift: u64,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> Direct<'a> {
    /// No memory.
    pub const NONE: Direct<'static> = Direct { start: 0, len: 0, shift: 0, bytes: PhantomData };

    /// Saved bytes, taken to lie at this process address.
    pub fn of_bytes(bytes: &'a [u8], address: u64) -> Direct<'a> {
        let len = (bytes.len() as u64).saturating_sub(WORD - 1);
        let shift = (bytes.as_ptr() as u64).wrapping_sub(address);
        Direct { start: address, len: len.min(u64::MAX - address), shift, bytes: PhantomData }
    }

    /// Memory of this process. The caller has checked all of it, or its faults are handled.
    fn of_process(span: Span) -> Direct<'a> {
        let len = span.end.min(USER_END).saturating_sub(span.start).saturating_sub(WORD - 1);
        Direct { start: span.start, len, shift: 0, bytes: PhantomData }
    }

    /// The word at a process address, at any alignment. `None`: not all of it lies in this memory, or it is unreadable
    /// now. Async-signal-safe.
    #[inline(always)]
    pub fn word(&self, address: u64) -> Option<u64> {
        if address.wrapping_sub(self.start) < self.len {
            guarded::load(address.wrapping_add(self.shift))
        } else {
            None
        }
    }
}

impl<'a> Reader<'a> {
    /// The memory around `address` (process address) that can be read directly, at most `bounds`. It is none of it
    /// while reads are logged, and where they are made by a function. What it has is valid for this walk, as the pages
    /// are that were probed.
    #[inline(always)]
    pub fn direct(&mut self, address: u64, bounds: Span) -> Direct<'a> {
        if !self.log.is_open() && self.is_probed() && bounds.contains(address) && address < USER_END {
            let page = address / PAGE;
            if !self.pages.is_readable(page) {
                return Direct::NONE;
            }
            let (start, end) = (page * PAGE, (page + 1) * PAGE);
            return Direct::of_process(Span::new(start.max(bounds.start), end.min(bounds.end)));
        }
        self.direct_unprobed(address, bounds)
    }

    #[inline(never)]
    fn direct_unprobed(&self, address: u64, bounds: Span) -> Direct<'a> {
        if self.log.is_open() || !bounds.contains(address) {
            return Direct::NONE;
        }
        match self.mode {
            Mode::Guarded => Direct::of_process(bounds),
            Mode::Recorded(regions) => {
                let found = regions.iter().find_map(|region| {
                    let from = bounds.start.max(region.address);
                    let skipped = region.bytes.get(from.wrapping_sub(region.address) as usize..)?;
                    let len = bounds.end.saturating_sub(from).min(skipped.len() as u64);
                    (address.wrapping_sub(from) < len).then_some((skipped.get(..len as usize)?, from))
                });
                found.map_or(Direct::NONE, |(bytes, from)| Direct::of_bytes(bytes, from))
            }
            _ => Direct::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Read, Region};
    use super::*;

    /// Compares each word of direct memory with the reader's own.
    fn check(reader: &mut Reader<'_>, around: u64, bounds: Span, addresses: core::ops::Range<u64>) -> usize {
        let direct = reader.direct(around, bounds);
        let found: Vec<u64> = addresses.clone().filter(|at| direct.word(*at).is_some()).collect();
        for at in &found {
            assert!(bounds.start <= *at && at + WORD <= bounds.end, "{at:#x} leaves {bounds:?}");
            assert_eq!(direct.word(*at), reader.word(*at), "{at:#x}");
        }
        found.len()
    }

    #[test]
    fn saved_bytes_are_found_inside_their_region_and_bounds() {
        let bytes: Vec<u8> = (0..100).collect();
        let regions = [Region { address: 0x1000, bytes: &bytes[..50] }, Region { address: 0x2000, bytes: &bytes }];
        let mut reader = Reader::recorded(&regions);
        let everything = Span::new(0, u64::MAX);
        assert_eq!(check(&mut reader, 0x1010, everything, 0xff0..0x1100), 43);
        assert_eq!(check(&mut reader, 0x2000, everything, 0xff0..0x2100), 93);
        assert_eq!(check(&mut reader, 0x2010, Span::new(0x2010, 0x2020), 0x1f00..0x2100), 9);
        for (around, bounds) in [
            (0x1032, everything),
            (0xfff, everything),
            (0x2000, Span::new(0x2001, 0x2040)),
            (0x2000, Span::EMPTY),
            (0x2010, Span::new(0x2010, 0x2017)),
        ] {
            assert_eq!(check(&mut reader, around, bounds, 0xf00..0x2100), 0, "around {around:#x} in {bounds:?}");
        }
    }

    #[test]
    fn own_memory_is_found_by_the_page() {
        let bytes = vec![0x5a_u8; 3 * PAGE as usize];
        let start = bytes.as_ptr() as u64;
        let bounds = Span::new(start + 3, start + 3 * PAGE);
        let middle = (start + PAGE) & !(PAGE - 1);
        let mut reader = Reader::probed();
        assert_eq!(check(&mut reader, middle + 8, bounds, start..bounds.end), PAGE as usize - 7);
        // SAFETY: none of the loads faults.
        let mut reader = unsafe { Reader::new(Mode::Guarded) };
        assert_eq!(check(&mut reader, middle, bounds, start - 8..bounds.end + 8), 3 * PAGE as usize - 10);
        assert!(Reader::probed().direct(0x10, Span::new(0, PAGE)).word(0x10).is_none());
        assert!(Reader::probed().direct(USER_END, Span::new(0, u64::MAX)).word(USER_END).is_none());
    }

    #[test]
    fn there_is_none_while_reads_are_logged() {
        let bytes = [7u8; 64];
        let regions = [Region { address: 0x1000, bytes: &bytes }];
        let mut log = [Read::NONE; 8];
        let mut reader = Reader::recorded(&regions);
        // SAFETY: the log outlives the reader.
        unsafe { reader.write_down(log.as_mut_ptr(), log.len()) };
        let all = Span::new(0, u64::MAX);
        assert_eq!(reader.direct(0x1000, all).word(0x1000), None);
        reader.pause(true);
        assert!(reader.direct(0x1000, all).word(0x1000).is_some());
    }
}
