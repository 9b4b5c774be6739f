//! Detects a recorder of another version than this object: nothing is recorded, and a message says so. Called by the
//! constructor.

use crate::real;
use crate::session::decimal;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};
use uunwind_ring::layout::{FIRST_PAGE, OTHER_VERSION_OFFSET, SESSION_MAGIC, SESSION_VERSION};

/// Examines the first page of a file that could not be used as a session; null: there is none. If it is a session of
/// another version, the first process that finds it writes a message, and leaves a mark for the recorder. The page
/// stays mapped.
pub fn look(page: *const u8) {
    if page.is_null() {
        return;
    }
    // SAFETY: FIRST_PAGE bytes are mapped for writing; these words are at the same offsets in all versions.
    let (magic, version, other) = unsafe {
        (
            page.cast::<u64>().read(),
            page.add(8).cast::<u32>().read(),
            &*page.add(OTHER_VERSION_OFFSET).cast::<AtomicU32>(),
        )
    };
    const { assert!(OTHER_VERSION_OFFSET + 4 <= FIRST_PAGE) };
    let differs = magic == SESSION_MAGIC && version != SESSION_VERSION;
    if differs && other.swap(SESSION_VERSION, Ordering::Relaxed) != SESSION_VERSION {
        say(version);
    }
}

/// Writes the message to stderr. `recorder`: the recorder's session version.
fn say(recorder: u32) {
    let (mut theirs, mut ours) = ([0u8; 10], [0u8; 10]);
    let parts: [&[u8]; 7] = [
        b"uu: not recorded: ",
        own_path(),
        b" is of session version ",
        decimal(SESSION_VERSION, &mut ours),
        b", and the uu that records of version ",
        decimal(recorder, &mut theirs),
        b". Both must come from one installation: install uu again, and start the recording anew. The program runs unrecorded\n",
    ];
    let parts = parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: all parts are readable. A single call, so that the line is not mixed with other output; a failure cannot
    // be reported.
    unsafe { libc::writev(libc::STDERR_FILENO, parts.as_ptr(), parts.len() as i32) };
}

/// Path of this object, as it was preloaded.
fn own_path() -> &'static [u8] {
    real::path_of(own_path as *const () as u64).map_or(b"libuunwind-preload.so", CStr::to_bytes)
}
