//! x86-64: searches in a node, eight keys at once.

use super::{Node, KEYS};

/// Prefetches the cache lines of a node that its search reads last: those of its entries.
#[inline(always)]
pub(super) fn ask_for(node: *const Node) {
    use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
    for line in KEYS / 8 - 1..size_of::<Node>() / 64 {
        let at = node.cast::<i8>().wrapping_add(line * 64);
        // SAFETY: a hint; it faults at no address. SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
}

/// Number of these ascending keys that are at or below `key`; the last key must be above it. All must be below 2^63.
#[inline(always)]
pub(super) fn first_above(keys: &[u64; 8], key: u64) -> usize {
    use core::arch::x86_64::{
        __m128i, _mm_castps_si128 as bits, _mm_castsi128_ps as lanes, _mm_load_si128, _mm_movemask_epi8,
        _mm_packs_epi32, _mm_set1_epi64x, _mm_shuffle_ps, _mm_sub_epi64,
    };
    let at = keys.as_ptr().cast::<__m128i>();
    // SAFETY: SSE2 is part of x86-64; four loads of two keys each, aligned since groups of keys are.
    let mask = unsafe {
        let key = _mm_set1_epi64x(key as i64);
        let minus = |i: usize| lanes(_mm_sub_epi64(key, _mm_load_si128(at.add(i))));
        // The upper half of each difference, of that sixteen bits, and of those the sign.
        let low = bits(_mm_shuffle_ps::<0b11_01_11_01>(minus(0), minus(1)));
        let high = bits(_mm_shuffle_ps::<0b11_01_11_01>(minus(2), minus(3)));
        _mm_movemask_epi8(_mm_packs_epi32(low, high)) & 0xaaaa
    };
    (mask.trailing_zeros() / 2) as usize
}
