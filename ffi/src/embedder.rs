//! Interpreters that show their frames themselves, without a plugin: they mark the code of their loops, and keep for
//! each thread a list of the frames that run.
//!
//! The C interface; `uu.h` documents it.

use crate::home;
use core::ffi::{c_char, c_int, c_void};
use uunwind_core::errno::{EEXIST, EINVAL, ENOENT, ENOMEM};
use uunwind_live::embedder::{marks, names};
use uunwind_live::met::changed;
use uunwind_live::state::{OBJECTS, SLOTS};

/// See `uu.h`.
///
/// # Safety
/// Both texts must be null or NUL-terminated.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_intern(function: *const c_char, file: *const c_char, first_line: u32) -> u32 {
    if let Some(home) = home::elsewhere() {
        // SAFETY: passed on.
        return unsafe { (home.intern)(function, file, first_line) };
    }
    // SAFETY: passed on.
    unsafe { names::NAMES.intern(names::text(function), names::text(file), first_line) }
}

/// See `uu.h`.
///
/// # Safety
/// What `head` points to must be as `uu.h` says, until it is withdrawn.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_publish_frames(head: *const *mut c_void) -> c_int {
    if let Some(home) = home::elsewhere() {
        // SAFETY: passed on.
        return unsafe { (home.publish_frames)(head) };
    }
    if !SLOTS.publish(head as u64) {
        return -ENOMEM;
    }
    changed();
    0
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_mark_interpreter(text: *const c_void, len: usize) -> c_int {
    if let Some(home) = home::elsewhere() {
        return (home.mark_interpreter)(text, len);
    }
    let start = text as u64;
    let Some(end) = start.checked_add(len as u64).filter(|end| *end > start) else { return -EINVAL };
    let (from, to) = OBJECTS.range(start);
    if start < from || end > to {
        return -ENOENT;
    }
    let result = match marks::MARKS.add(start, end) {
        Ok(()) => 0,
        Err(marks::Trouble::Overlap) => -EEXIST,
        Err(marks::Trouble::Full) => -ENOMEM,
    };
    changed();
    result
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_unmark_interpreter(text: *const c_void) -> c_int {
    if let Some(home) = home::elsewhere() {
        return (home.unmark_interpreter)(text);
    }
    let found = marks::MARKS.remove(text as u64);
    changed();
    if found {
        0
    } else {
        -ENOENT
    }
}
