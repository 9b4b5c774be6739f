//! `uu_stack_id` and its companions: a number for a stack, for C.

use uunwind_stacks::ids;

/// See `uu.h`.
///
/// # Safety
/// `frames` must be null or point to `words` words.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_stack_id(frames: *const u64, words: usize) -> u32 {
    if let Some(home) = crate::home::elsewhere() {
        // SAFETY: passed on.
        return unsafe { (home.stack_id)(frames, words) };
    }
    if frames.is_null() || !frames.addr().is_multiple_of(8) || words > ids::WORDS {
        return 0;
    }
    // SAFETY: the caller's words.
    ids::add(unsafe { core::slice::from_raw_parts(frames, words) })
}

/// See `uu.h`.
///
/// # Safety
/// `frames` must be null or have room for `capacity` words.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_stack_frames(id: u32, frames: *mut u64, capacity: usize) -> usize {
    if let Some(home) = crate::home::elsewhere() {
        // SAFETY: passed on.
        return unsafe { (home.stack_frames)(id, frames, capacity) };
    }
    if !frames.addr().is_multiple_of(8) {
        return 0;
    }
    let Some(words) = ids::get(id) else { return 0 };
    if !frames.is_null() {
        for (index, word) in words.iter().enumerate().take(capacity) {
            // SAFETY: below the capacity.
            unsafe { frames.add(index).write(*word) };
        }
    }
    words.len()
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_stack_ids_lost() -> u64 {
    match crate::home::elsewhere() {
        Some(home) => (home.stack_ids_lost)(),
        None => ids::lost(),
    }
}
