//! Waiting for signals: the program never waits for, nor sees, the sampling signal while it is ours.
//!
//! A program that handles SIGPROF itself by waiting for it loses that while it is recorded; it is counted among the
//! documented differences.

use super::{bit, mask_of, set_of, SAMPLING};
use crate::{process, real};
use core::ffi::c_int;

/// The set without our signal, while recording.
fn without_ours(set: &libc::sigset_t) -> libc::sigset_t {
    let mask = mask_of(set);
    set_of(if process::block().is_some() { mask & !bit(SAMPLING) } else { mask })
}

macro_rules! wait {
    ($(#[$doc:meta])* $name:ident, $set:ident, ($($arg:ident: $type:ty),*), $call:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the function of this name.
        #[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: the program passes null or a set.
            let stripped = unsafe { $set.as_ref() }.map(without_ours);
            let $set = stripped.as_ref().map_or($set, core::ptr::from_ref);
            // SAFETY: the program's own arguments, but for the set, which is as valid.
            unsafe { $call }
        }
    };
}

wait!(
    /// Interposed sigwait(3).
    sigwait, set, (set: *const libc::sigset_t, signal: *mut c_int), real::sigwait(set, signal));
wait!(
    /// Interposed sigwaitinfo(2).
    sigwaitinfo, set, (set: *const libc::sigset_t, info: *mut libc::siginfo_t), real::sigwaitinfo(set, info));
wait!(
    /// Interposed sigtimedwait(2).
    sigtimedwait, set,
    (set: *const libc::sigset_t, info: *mut libc::siginfo_t, time: *const libc::timespec),
    real::sigtimedwait(set, info, time));
wait!(
    /// Interposed signalfd(2).
    signalfd, set, (fd: c_int, set: *const libc::sigset_t, flags: c_int), real::signalfd(fd, set, flags));

/// Interposed sigpending(2).
///
/// # Safety
/// As sigpending.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn sigpending(set: *mut libc::sigset_t) -> c_int {
    // SAFETY: the program's own argument.
    let result = unsafe { real::sigpending(set) };
    if result == 0 && process::block().is_some() {
        // SAFETY: the call has just filled it.
        if let Some(set) = unsafe { set.as_mut() } {
            *set = set_of(mask_of(set) & !bit(SAMPLING));
        }
    }
    result
}
