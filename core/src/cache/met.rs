//! Which keys were met before, a bit each, at a place that they share with others.
//!
//! Only a hint: a program that captures once meets most of its addresses once, and each entry of the larger caches
//! costs it a page or a part of one. Keys that share a bit with one that was met count as met, and so does an address
//! at which another object was met.

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

    /// The word and the bit of a key: each 4 bytes of code have a bit, since no two calls return there, and each 256 a
    /// word.
    #[inline(always)]
    fn place(&self, key: u64) -> (&AtomicU64, u64) {
        let (line, part) = (key >> 2, key >> 8);
        // Neighbouring code has neighbouring words, and so few pages.
        let word = part.wrapping_add((part >> 13).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
        // SAFETY: the index is below WORDS.
        (unsafe { self.bits.get_unchecked(word as usize % WORDS) }, 1 << (line & 63))
    }

    /// Whether the key was met before. Async-signal-safe.
    #[inline(always)]
    pub fn has(&self, key: u64) -> bool {
        let (bits, bit) = self.place(key);
        bits.load(Relaxed) & bit != 0
    }

    /// Whether the key was met before; from now on it was. Async-signal-safe.
    #[inline(always)]
    pub fn again(&self, key: u64) -> bool {
        let (bits, bit) = self.place(key);
        let was = bits.load(Relaxed);
        if was & bit == 0 {
            // What another thread notes at the same time may be lost.
            bits.store(was | bit, Relaxed);
        }
        was & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_met_again_and_few_others_are() {
        let met: Met<8192> = Met::new();
        let keys = || (0..4000u64).map(|i| 0x7f12_3456_0000 + i * 37);
        assert!(!keys().any(|key| met.has(key)), "none was met so far");
        let shared = keys().filter(|key| met.again(*key)).count();
        assert!(shared < 250, "{shared} of 4000 keys that lie 37 bytes apart count as met");
        assert!(keys().all(|key| met.has(key) && met.again(key)));
        let others = (0..4000u64).filter(|i| met.has(0x7f99_0000_0000 + i * 37)).count();
        assert!(others < 400, "{others} of 4000 other keys count as met");
    }
}
