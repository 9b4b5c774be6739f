//! `uu_report_crashes`, `uu_report_crashes_to` and `uu_prepare_thread`: crash reports, for C.

use crate::threads::HOST;
use core::ffi::{c_char, c_int, CStr};
use uunwind_core::errno::{Errno, EINVAL};
use uunwind_crashes::report;

fn result(done: Result<(), Errno>) -> c_int {
    done.map_or_else(|error| -error, |()| 0)
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_report_crashes(fd: c_int, flags: u32) -> c_int {
    if let Some(home) = crate::home::elsewhere() {
        return (home.report_crashes)(fd, flags);
    }
    uunwind_crashes::set_host(&HOST);
    result(report::report(fd, flags))
}

/// See `uu.h`.
///
/// # Safety
/// `path` must be null or end with a NUL.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_report_crashes_to(path: *const c_char, flags: u32) -> c_int {
    if let Some(home) = crate::home::elsewhere() {
        // SAFETY: passed on.
        return unsafe { (home.report_crashes_to)(path, flags) };
    }
    if path.is_null() {
        return -EINVAL;
    }
    uunwind_crashes::set_host(&HOST);
    // SAFETY: the caller's string.
    result(report::report_to(unsafe { CStr::from_ptr(path) }, flags))
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_prepare_thread() -> c_int {
    match crate::home::elsewhere() {
        Some(home) => (home.prepare_thread)(),
        None => result(report::prepare_thread()),
    }
}

/// See [`uunwind_core::library::Library::name_crashes`].
pub(crate) unsafe extern "C" fn name(program: *const u8, len: usize) -> c_int {
    // SAFETY: the caller's bytes.
    result(report::namer::set(unsafe { core::slice::from_raw_parts(program, len) }))
}
