//! Signal masks, as the program sees them.
//!
//! A thread that blocks all signals would not be sampled; worse, a tick that waits would end a sigsuspend or ppoll before
//! its time. So, as long as the program has no handler of its own for the sampling signal, that signal is never blocked in
//! the kernel: the program's wish is remembered, and told when it asks. A signal that the program sends to itself meanwhile
//! waits, as it should (`handler::foreign`).

use super::{bit, host, mask_of, set_of, SAMPLING};
use crate::{process, real, threads};
use core::ffi::c_int;
use core::sync::atomic::Ordering;

/// Whether the sampling signal's place in the mask is ours to keep.
fn ours() -> bool {
    let handler = host::get(SAMPLING).handler;
    process::block().is_some() && process::is_own() && (handler == libc::SIG_DFL || handler == libc::SIG_IGN)
}

/// What sigprocmask and pthread_sigmask do, through the real function `call`.
///
/// # Safety
/// `set` and `old` must be null or valid.
unsafe fn change(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
    call: unsafe fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int,
) -> c_int {
    let block = threads::own_block().filter(|_| ours());
    let Some(block) = block else {
        // SAFETY: the program's own arguments.
        return unsafe { call(how, set, old) };
    };
    // SAFETY: blocks stay mapped; the field is atomic.
    let masked = unsafe { &(*block).masked };
    let before = masked.load(Ordering::Relaxed) != 0;
    // SAFETY: the program passes null or a set.
    let wanted = unsafe { set.as_ref() }.map(mask_of);
    // Unblocking goes through as it is: a signal of the program's own may wait behind it.
    let told = wanted.map(|mask| set_of(if how == libc::SIG_UNBLOCK { mask } else { mask & !bit(SAMPLING) }));
    let set = told.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    if let Some(mask) = wanted {
        let named = mask & bit(SAMPLING) != 0;
        match how {
            libc::SIG_BLOCK if named => masked.store(1, Ordering::Relaxed),
            libc::SIG_UNBLOCK if named => masked.store(0, Ordering::Relaxed),
            libc::SIG_SETMASK => masked.store(u32::from(named), Ordering::Relaxed),
            _ => {}
        }
    }
    // SAFETY: a set of our own, or null; the program's `old`.
    let result = unsafe { call(how, set, old) };
    // SAFETY: the call has just filled it.
    if let (0, Some(old)) = (result, unsafe { old.as_mut() }) {
        let mask = mask_of(old);
        *old = set_of(if before { mask | bit(SAMPLING) } else { mask });
    }
    result
}

/// Interposed sigprocmask(2).
///
/// # Safety
/// As sigprocmask.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { change(how, set, old, real::sigprocmask) }
}

/// Interposed pthread_sigmask(3).
///
/// # Safety
/// As pthread_sigmask.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { change(how, set, old, real::pthread_sigmask) }
}

/// The program has installed a handler of its own for the sampling signal: from now on its mask is the kernel's.
pub fn hand_over() {
    let Some(block) = threads::own_block() else { return };
    // SAFETY: blocks stay mapped; the field is atomic.
    if unsafe { (*block).masked.swap(0, Ordering::Relaxed) } != 0 {
        let set = set_of(bit(SAMPLING));
        // SAFETY: a valid set.
        unsafe { real::pthread_sigmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut()) };
    }
}
