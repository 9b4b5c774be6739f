//! Signal masks, as the program sees them.
//!
//! A thread that blocks all signals would not be sampled; worse, a pending tick would end a sigsuspend or ppoll too
//! early. So, as long as the program has no handler of its own for the sampling signal, that signal is never blocked in
//! the kernel: the mask that the program asked for is stored and reported back to it. If the program sends itself the
//! signal while it believes that it is blocked, the signal stays pending (`deferred::pass_on`).

use super::{bit, dispositions, mask_of, sampling, set_of};
use crate::slots::{self, Slot};
use crate::{process, real};
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use uunwind_core::regs::UCONTEXT_SIGMASK;

/// Whether the program handles the sampling signal itself, so that its masks are the kernel's.
pub fn are_the_kernels() -> bool {
    let handler = dispositions::get(sampling()).handler;
    handler != libc::SIG_DFL && handler != libc::SIG_IGN
}

/// Whether the program's view of the sampling signal in its mask is kept by us. It still is after the recording, for
/// threads that took part in it.
fn ours() -> bool {
    process::is_own() && !are_the_kernels()
}

/// Blocks the sampling signal in the kernel on the calling thread, which believes that it is blocked. Takes effect when
/// the running handler returns.
///
/// # Safety
/// The thread's slot, and the ucontext of its running handler.
pub unsafe fn block_for_real(slot: &Slot, ucontext: *mut u8) {
    // SAFETY: the mask lies in the kernel's ucontext.
    unsafe {
        let mask = ucontext.add(UCONTEXT_SIGMASK as usize).cast::<u64>();
        mask.write(mask.read() | bit(sampling()));
    }
    if are_the_kernels() {
        slot.masked.store(0, Ordering::Relaxed);
    }
}

/// Does the work of sigprocmask and pthread_sigmask, through the real function `call`.
///
/// # Safety
/// `set` and `old` must be null or valid.
unsafe fn change(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
    call: unsafe fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int,
) -> c_int {
    let Some(slot) = slots::own().filter(|_| ours()) else {
        // SAFETY: the program's own arguments.
        return unsafe { call(how, set, old) };
    };
    let masked = &slot.masked;
    let before = masked.load(Ordering::Relaxed) != 0;
    // SAFETY: the program passes null or a set.
    let wanted = unsafe { set.as_ref() }.map(mask_of);
    // Unblocking passes unchanged: a signal of the program's may be pending because we blocked it for real.
    let kernel = wanted.map(|mask| set_of(if how == libc::SIG_UNBLOCK { mask } else { mask & !bit(sampling()) }));
    let set = kernel.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    if let Some(mask) = wanted {
        let named = mask & bit(sampling()) != 0;
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
        *old = set_of(if before { mask | bit(sampling()) } else { mask });
    }
    result
}

/// Interposed [sigprocmask(2)](https://man7.org/linux/man-pages/man2/sigprocmask.2.html).
///
/// # Safety
/// As sigprocmask.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { change(how, set, old, real::sigprocmask) }
}

/// Interposed [pthread_sigmask(3)](https://man7.org/linux/man-pages/man3/pthread_sigmask.3.html).
///
/// # Safety
/// As pthread_sigmask.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { change(how, set, old, real::pthread_sigmask) }
}

/// Blocks the sampling signal in the kernel on the calling thread, which believes that it is blocked.
pub fn block_now() {
    let set = set_of(bit(sampling()));
    // SAFETY: a valid set.
    unsafe { real::pthread_sigmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut()) };
}

/// Called when the program has installed a handler of its own for the sampling signal: from now on the kernel has the
/// program's mask.
pub fn hand_over() {
    let Some(slot) = slots::own() else { return };
    if slot.masked.swap(0, Ordering::Relaxed) != 0 {
        block_now();
    }
}
