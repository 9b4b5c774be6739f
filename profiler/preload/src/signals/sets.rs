//! Functions that wait for signals: the program neither waits for nor sees the sampling signal while it is ours.
//!
//! A program that waits for that signal itself does not receive it while it is recorded, which is one of the documented
//! differences.

use super::{bit, mask_of, sampling, set_of};
use crate::{process, real};
use core::ffi::c_int;

/// The set without the sampling signal, during a recording.
fn without_ours(set: &libc::sigset_t) -> libc::sigset_t {
    let mask = mask_of(set);
    set_of(if process::block().is_some() { mask & !bit(sampling()) } else { mask })
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
            // SAFETY: the program's own arguments, except for the set, which is null or a valid copy.
            unsafe { $call }
        }
    };
}

wait!(
    /// Interposed [sigwait(3)](https://man7.org/linux/man-pages/man3/sigwait.3.html).
    sigwait, set, (set: *const libc::sigset_t, signal: *mut c_int), real::sigwait(set, signal));
wait!(
    /// Interposed [sigwaitinfo(2)](https://man7.org/linux/man-pages/man2/sigwaitinfo.2.html).
    sigwaitinfo, set, (set: *const libc::sigset_t, info: *mut libc::siginfo_t), real::sigwaitinfo(set, info));
wait!(
    /// Interposed [sigtimedwait(2)](https://man7.org/linux/man-pages/man2/sigwaitinfo.2.html).
    sigtimedwait, set,
    (set: *const libc::sigset_t, info: *mut libc::siginfo_t, time: *const libc::timespec),
    real::sigtimedwait(set, info, time));
wait!(
    /// Interposed [signalfd(2)](https://man7.org/linux/man-pages/man2/signalfd.2.html).
    signalfd, set, (fd: c_int, set: *const libc::sigset_t, flags: c_int), real::signalfd(fd, set, flags));

/// Interposed [sigpending(2)](https://man7.org/linux/man-pages/man2/sigpending.2.html).
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
            *set = set_of(mask_of(set) & !bit(sampling()));
        }
    }
    result
}
