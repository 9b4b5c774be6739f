//! `uu_record_start`, `uu_record_stop` and `uu_label_set`: what a program says to the sampler that records it.

use core::ffi::{c_char, c_int, CStr};
use core::sync::atomic::{AtomicPtr, Ordering};
use uunwind_core::errno::{EINVAL, ENOTCONN};
use uunwind_core::library::Recorder;

/// The sampler's functions; null: there is no sampler. `uu` writes the address of such a table here, too, where it has
/// put a sampler into the process (`uunwind_ring::gate::RECORDER`).
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
#[allow(non_upper_case_globals, reason = "a symbol, whose name has the version of the table")]
pub static uu_private_recorder_1: AtomicPtr<Recorder> = AtomicPtr::new(core::ptr::null_mut());

/// See [`uunwind_core::library::Library::set_recorder`].
pub(crate) extern "C" fn set_recorder(recorder: &'static Recorder) {
    uu_private_recorder_1.store(core::ptr::from_ref(recorder).cast_mut(), Ordering::Release);
}

fn recorder() -> Option<&'static Recorder> {
    // SAFETY: null, or the table of a sampler, which stays.
    unsafe { uu_private_recorder_1.load(Ordering::Acquire).as_ref() }
}

fn switch(paused: bool) -> c_int {
    recorder().map_or(-ENOTCONN, |recorder| (recorder.switch)(paused))
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_record_start() -> c_int {
    crate::home::elsewhere().map_or_else(|| switch(false), |home| (home.record_start)())
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_record_stop() -> c_int {
    crate::home::elsewhere().map_or_else(|| switch(true), |home| (home.record_stop)())
}

/// See `uu.h`.
///
/// # Safety
/// `key` and `value` must each be null or a NUL-terminated text.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_label_set(key: *const c_char, value: *const c_char) -> c_int {
    if let Some(home) = crate::home::elsewhere() {
        // SAFETY: passed on.
        return unsafe { (home.label_set)(key, value) };
    }
    if key.is_null() {
        return -EINVAL;
    }
    let Some(recorder) = recorder() else { return -ENOTCONN };
    // SAFETY: the C caller's.
    let key = unsafe { CStr::from_ptr(key) }.to_bytes();
    // SAFETY: as above.
    let value = (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes());
    let (text, len) = value.map_or((core::ptr::null(), 0), |value| (value.as_ptr(), value.len()));
    // SAFETY: both are there for the call.
    unsafe { (recorder.label)(key.as_ptr(), key.len(), text, len) }
}
