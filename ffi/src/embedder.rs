//! Interpreters that show their frames themselves, without a plugin: they mark the code of their loops, and keep for
//! each thread a list of the frames that run.
//!
//! The C interface; `uu.h` documents it.

use crate::home;
use core::ffi::{c_char, c_int, c_void};
use uunwind_core::errno::{Errno, EEXIST, EINVAL, ENOENT, ENOMEM};
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::span::Span;
use uunwind_live::embedder::{function, marks, names};
use uunwind_live::replay_dependencies::changed;
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
    if start == 0 {
        return -EINVAL;
    }
    let len = if len == 0 { function_len(start) } else { Ok(len as u64) };
    let len = match len {
        Ok(len) => len,
        Err(error) => return -error,
    };
    let Some(end) = start.checked_add(len).filter(|end| *end > start) else { return -EINVAL };
    if !OBJECTS.range(start).covers(Span::new(start, end)) {
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

/// Length in bytes of the function that begins at `start`, by its unwind row.
fn function_len(start: u64) -> Result<u64, Errno> {
    let mode = if crate::faults::handled() { Mode::Guarded } else { Mode::Probed };
    // SAFETY: probed mode has no precondition; for the other one the program called uu_handle_faults, whose
    // documentation asks for the signals to be unblocked.
    let mut reader = unsafe { Reader::new(mode) };
    function::end(start, &mut reader).map(|end| end.wrapping_sub(start)).ok_or(ENOENT)
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
