//! Where a process has executable memory, for copies of stacks: as the recorder has read it in `/proc/PID/maps`, in the
//! part of the process's block that nothing else uses. Objects and windows are looked up in the process itself; this is
//! for the rest: code that a JIT has made and registered nowhere, and files that are mapped without the loader.
//!
//! ```text
//! BLOCK_HEADER   AtomicU64: the list in use (bit 32), the number of its ranges
//! + 64           list 0, then list 1: RANGES times start and end (process addresses), in order
//! ```
//! The recorder writes the list that is not in use, then exchanges them. Every process of the session can write here,
//! too; all that depends on it is which words of a stack are kept.

use crate::layout::{BLOCK_BYTES, BLOCK_HEADER};
use core::sync::atomic::{AtomicU64, Ordering};

/// At most this number of ranges is published.
pub const RANGES: usize = 4096;
/// Offset in the process's block of the word that says which list is in use.
pub const IN_USE: usize = BLOCK_HEADER;
const LISTS: usize = BLOCK_HEADER + 64;
const LIST_BYTES: usize = RANGES * 16;

const _: () = assert!(LISTS + 2 * LIST_BYTES <= BLOCK_BYTES);

/// Offset in the process's block of a range's two words.
pub const fn offset_of(list: usize, range: usize) -> usize {
    LISTS + (list & 1) * LIST_BYTES + range * 16
}

/// The value of the word at [`IN_USE`] for a list and its length.
pub const fn in_use(list: usize, count: usize) -> u64 {
    ((list & 1) as u64) << 32 | count as u64
}

/// The list in use, and its number of ranges, by that word.
pub fn of_word(word: u64) -> (usize, usize) {
    ((word >> 32) as usize & 1, (word as u32 as usize).min(RANGES))
}

/// A process's map, seen by its own handlers.
#[derive(Clone, Copy)]
pub struct CodeMap {
    block: *const u8,
}

impl CodeMap {
    /// # Safety
    /// `block` must be null, or the address of a process's block, which stays mapped.
    pub unsafe fn new(block: *const u8) -> CodeMap {
        CodeMap { block }
    }

    fn word(&self, offset: usize) -> u64 {
        // SAFETY: the offsets of this file lie in the block and are multiples of 8.
        unsafe { &*self.block.add(offset).cast::<AtomicU64>() }.load(Ordering::Acquire)
    }

    /// Whether an address lies in executable memory, or just after it: a call can be the last instruction.
    /// Async-signal-safe.
    pub fn covers(&self, address: u64) -> bool {
        if self.block.is_null() {
            return false;
        }
        let (list, count) = of_word(self.word(IN_USE));
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            if self.word(offset_of(list, middle)) <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1).is_some_and(|range| address <= self.word(offset_of(list, range) + 8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_the_list_in_use() {
        let mut block = vec![0u64; BLOCK_BYTES / 8];
        for range in 0..RANGES {
            let start = 0x1000 * (1 + 2 * range as u64);
            block[offset_of(1, range) / 8] = start;
            block[offset_of(1, range) / 8 + 1] = start + 0x800;
        }
        let covered = |block: &[u64], address| {
            // SAFETY: memory of a block's size, which outlives the map.
            unsafe { CodeMap::new(block.as_ptr().cast()) }.covers(address)
        };
        assert!(!covered(&block, 0x1000), "no list in use");
        block[IN_USE / 8] = in_use(1, RANGES);
        for (address, expected) in [(0xfff, false), (0x1000, true), (0x1800, true), (0x1801, false), (0x3010, true)] {
            assert_eq!(covered(&block, address), expected, "{address:#x}");
        }
        assert!(covered(&block, 0x1000 * (2 * RANGES as u64 - 1)) && !covered(&block, u64::MAX));
        block[IN_USE / 8] = u64::MAX;
        covered(&block, 0x1000);
        // SAFETY: null is allowed.
        assert!(!unsafe { CodeMap::new(core::ptr::null()) }.covers(0x1000));
    }
}
