//! `uu_describe`: a frame in words, for C.

use core::ffi::c_int;
use uunwind_core::errno::EINVAL;
use uunwind_core::memory::Reader;
use uunwind_stacks::describe::{describe, FrameInfo};

/// See `uu.h`.
///
/// # Safety
/// `frame` must be null or the first word of a frame, with its other words; `info` null or a valid `uu_frame_info`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_describe(frame: *const u64, info: *mut FrameInfo) -> c_int {
    if let Some(home) = crate::home::elsewhere() {
        // SAFETY: passed on.
        return unsafe { (home.describe)(frame, info) };
    }
    if !frame.addr().is_multiple_of(8) || !info.addr().is_multiple_of(8) {
        return -EINVAL;
    }
    // SAFETY: null, or the caller's.
    let (Some(first), Some(info)) = (unsafe { frame.as_ref() }, unsafe { info.as_mut() }) else { return -EINVAL };
    if info.size as usize != size_of::<FrameInfo>() {
        return -EINVAL;
    }
    // SAFETY: the caller passes all words of the frame, whose number its first word says.
    let words = unsafe { core::slice::from_raw_parts(frame, uunwind_core::frame::frame_words(*first)) };
    // Always probed: a crash reporter describes frames in handlers of faults, where these signals may be blocked.
    let mut reader = Reader::probed();
    match describe(words, info, &mut reader) {
        Some(words) => words as c_int,
        None => -EINVAL,
    }
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_names_lost() -> u64 {
    match crate::home::elsewhere() {
        Some(home) => (home.names_lost)(),
        None => uunwind_stacks::names::lost(),
    }
}
