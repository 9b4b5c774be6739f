//! Copies of blocks of words, for a walk's own arrays: in a handler these copies are short and not aligned with each
//! other, which libc's memcpy, by `rep movsb`, pays with a byte a cycle on some processors.

/// Words that are copied at once: all are loaded before any is stored.
const AT_ONCE: usize = 8;

/// Copies `count` words to a place that overlaps them not at all, or lies further up.
///
/// # Safety
/// `from` must be valid for reads, and `to` for writes, of `count` words.
#[inline(always)]
pub unsafe fn copy_up(from: *const u64, to: *mut u64, count: usize) {
    let mut left = count;
    while !left.is_multiple_of(AT_ONCE) {
        left -= 1;
        // SAFETY: left < count. Volatile: otherwise the compiler makes a call of memmove of it.
        unsafe { to.add(left).write_volatile(from.add(left).read_volatile()) };
    }
    while left > 0 {
        left -= AT_ONCE;
        // SAFETY: as many words from there on.
        unsafe { copy_at_once(from.add(left), to.add(left)) };
    }
}

/// Copies the words of one slice to another one of the same length. False: the lengths differ.
#[inline(always)]
pub fn copy(from: &[u64], to: &mut [u64]) -> bool {
    let same = from.len() == to.len();
    if same {
        // SAFETY: as many words; a slice that may be written overlaps no other one.
        unsafe { copy_up(from.as_ptr(), to.as_mut_ptr(), from.len()) };
    }
    same
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_at_once(from: *const u64, to: *mut u64) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};
    let (from, to) = (from.cast::<__m128i>(), to.cast::<__m128i>());
    // SAFETY: the caller's words.
    unsafe {
        let load = |nth: usize| _mm_loadu_si128(from.add(nth));
        let (a, b, c, d) = (load(0), load(1), load(2), load(3));
        for (nth, words) in [a, b, c, d].into_iter().enumerate() {
            _mm_storeu_si128(to.add(nth), words);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn copy_at_once(from: *const u64, to: *mut u64) {
    // SAFETY: the caller's words.
    unsafe { core::ptr::copy(from, to, AT_ONCE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive_whole_at_any_distance() {
        for (count, up) in (0..40).flat_map(|count| (0..30).map(move |up| (count, up))) {
            let mut words: Vec<u64> = (0..80).collect();
            let wanted: Vec<u64> =
                (0..80).map(|at| if (up..up + count).contains(&at) { at - up } else { at }).collect();
            // SAFETY: inside the vector.
            unsafe { copy_up(words.as_ptr(), words.as_mut_ptr().add(up as usize), count as usize) };
            assert_eq!(words, wanted, "{count} words, {up} up");
        }
        let mut place = [0; 19];
        assert!(copy(&[7; 19], &mut place) && place == [7; 19]);
        assert!(!copy(&[7; 18], &mut place));
    }
}
