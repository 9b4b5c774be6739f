//! Whether the loader has loaded or unloaded anything since: a few words of its own, read as they stand.
//!
//! glibc counts what it loads (behind `dlpi_adds` of dl_iterate_phdr(3)) and how many objects there are (`dlpi_adds` minus
//! `dlpi_subs`), in its private `_rtld_global`. Where in there is found by observation: every word that has one of the two
//! values when we look is taken, the right ones among them; one that only happened to be equal may move, too, and costs
//! time, never truth.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Words that are watched at most. Where more look alike, none is.
const WORDS: usize = 8;

/// The words.
pub struct Loads {
    words: [AtomicPtr<AtomicU64>; WORDS],
}

impl Loads {
    /// Not known.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Loads {
        Loads { words: [const { AtomicPtr::new(core::ptr::null_mut()) }; WORDS] }
    }

    /// Finds the words in the loader's data, given `adds` and `subs` as it tells them now. False, and nothing is watched:
    /// they are not there, or too many look like them. Once, when the library is loaded.
    ///
    /// # Safety
    /// `[start, start + len)` is readable for as long as the process lives, and aligned.
    pub unsafe fn locate(&self, start: *const u64, len: usize, (adds, subs): (u64, u64)) -> bool {
        let mut found = [core::ptr::null_mut(); WORDS];
        let mut count = 0;
        let mut has_adds = false;
        for index in 0..len / 8 {
            // SAFETY: inside the range.
            let word = unsafe { start.add(index) };
            // SAFETY: as above; the loader may change it meanwhile.
            let value = unsafe { (*word.cast::<AtomicU64>()).load(Ordering::Relaxed) };
            if value != adds && value != adds.wrapping_sub(subs) {
                continue;
            }
            has_adds |= value == adds;
            let Some(place) = found.get_mut(count) else { return false };
            *place = word.cast_mut().cast::<AtomicU64>();
            count += 1;
        }
        if !has_adds {
            return false;
        }
        for (to, word) in self.words.iter().zip(found) {
            to.store(word, Ordering::Release);
        }
        true
    }

    /// A value that is another one after every load and unload; `None` where that cannot be told. Async-signal-safe.
    #[inline]
    pub fn now(&self) -> Option<u64> {
        self.told_by(|_, _| {})
    }

    /// The same, and the words that tell it: their addresses, and what they are.
    #[inline(always)]
    pub fn told_by(&self, mut each: impl FnMut(u64, u64)) -> Option<u64> {
        let mut sum = 0u64;
        for word in &self.words {
            // SAFETY: `locate`'s caller vouches for the range.
            let Some(word) = (unsafe { word.load(Ordering::Relaxed).as_ref() }) else { break };
            let value = word.load(Ordering::Acquire);
            each(core::ptr::from_ref(word) as u64, value);
            // Each word by itself is seen: a load and an unload between two looks do not cancel out.
            sum = sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(value);
        }
        (sum != 0).then_some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_found_and_every_change_seen() {
        let words: Vec<AtomicU64> = [9u64, 40, 7, 12, 12, 40, 0].map(AtomicU64::new).into();
        let (start, len) = (words.as_ptr().cast(), words.len() * 8);
        let loads = Loads::new();
        assert_eq!(loads.now(), None);
        // SAFETY: the words outlive `loads`.
        unsafe {
            assert!(!loads.locate(start, len, (13, 0)), "not there");
            assert!(loads.locate(start, len, (40, 28)));
        }
        let mut seen = std::collections::HashSet::from([loads.now().expect("located")]);
        for (word, value) in [(1, 41), (4, 11), (1, 42), (3, 13), (5, 41)] {
            words[word].store(value, Ordering::Relaxed);
            assert!(seen.insert(loads.now().expect("located")), "word {word} is not watched");
        }
        words[0].store(1, Ordering::Relaxed);
        assert!(!seen.insert(loads.now().expect("located")), "a word that was not equal is not watched");
        let alike: Vec<AtomicU64> = (0..20).map(|_| AtomicU64::new(5)).collect();
        // SAFETY: as above.
        assert!(!unsafe { Loads::new().locate(alike.as_ptr().cast(), 160, (5, 0)) }, "too many look alike");
    }
}
