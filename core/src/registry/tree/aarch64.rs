//! AArch64: searches in a node.

use super::{Node, KEYS};

/// Prefetches the cache lines of a node that its search reads last: those of its entries.
#[inline(always)]
pub(super) fn ask_for(node: *const Node) {
    for line in KEYS / 8 - 1..size_of::<Node>() / 64 {
        let at = node.cast::<u8>().wrapping_add(line * 64);
        // SAFETY: a hint; it faults at no address.
        unsafe { core::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, readonly, preserves_flags)) };
    }
}

/// Number of these ascending keys that are at or below `key`; the last key must be above it.
#[inline(always)]
pub(super) fn first_above(keys: &[u64; 8], key: u64) -> usize {
    keys.iter().filter(|k| **k <= key).count()
}
