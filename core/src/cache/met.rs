//! Which keys were met before, a bit each, at a place that they share with others.
//!
//! Only a hint: a program that captures once meets most of its addresses once, and each entry of the larger caches
//! costs it a page or a part of one. Keys that share a bit with one that was met count as met.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The bits. All-zero is empty.
#[repr(C)]
pub struct Met<const WORDS: usize> {
    bits: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Met<WORDS> {
    /// No key was met.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Met<WORDS> {
        const { assert!(WORDS.is_power_of_two()) };
        Met { bits: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// Whether the key was met before under this generation; from now on it was. Async-signal-safe.
    #[inline(always)]
    pub fn again(&self, key: u64, generation: u64) -> bool {
        let mixed =
            key.wrapping_add(generation.wrapping_mul(0x94d0_49bb_1331_11eb)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let (word, bit) = (hash >> 40, 1u64 << (hash >> 34 & 63));
        let Some(bits) = self.bits.get(word as usize % WORDS) else { return true };
        let was = bits.load(Relaxed);
        // What another thread notes at the same time may be lost.
        bits.store(was | bit, Relaxed);
        was & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_met_again_and_few_others_are() {
        let met: Met<1024> = Met::new();
        let keys = || (0..4000u64).map(|i| 0x7f12_3456_0000 + i * 37);
        let shared = keys().filter(|key| met.again(*key, 7)).count();
        assert!(shared < 250, "{shared} of 4000 keys in 65,536 bits count as met");
        assert!(keys().all(|key| met.again(key, 7)));
        let others = keys().filter(|key| met.again(*key, 8)).count();
        assert!(others < 600, "{others} of 4000 keys count as met in another generation");
    }
}
