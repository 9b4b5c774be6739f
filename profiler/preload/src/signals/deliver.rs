//! Delivers a signal that is not ours to the program, as the kernel would have delivered it: the program's handler is
//! entered by a jump, with the stack as the kernel set it up. So a backtrace in the handler shows no frame of ours, and
//! an alternate stack that just holds the handler still does.

use super::dispositions::{self, Disposition};
use super::{bit, returned, sampling, set_of, set_thread_mask};
use crate::{real, slots};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use uunwind_core::regs::UCONTEXT_SIGMASK;
use uunwind_core::syscall::{call, getpid, gettid, nr};

/// Whether the program's disposition of a fault signal makes it end the process. A fault cannot be ignored.
pub fn is_fatal(signal: c_int, from_fault: bool) -> bool {
    match dispositions::get(signal).handler {
        libc::SIG_DFL => true,
        libc::SIG_IGN => from_fault,
        _ => false,
    }
}

/// Applies the program's disposition of `signal`. Returns its handler, to be entered with this handler's arguments
/// under the signal mask that is now set, or 0 when nothing is left to do.
///
/// # Safety
/// The arguments must be those of a signal handler that is now running, and no walk may be under way on this thread.
pub unsafe fn to_program(signal: c_int, info: *const libc::siginfo_t, ucontext: *const c_void) -> usize {
    let disposition = dispositions::get(signal);
    // SAFETY: the kernel passes a siginfo. Codes above 0 come from the kernel; a sampling signal with one (a timer of
    // the program's) is no fault.
    let from_fault = signal != sampling() && unsafe { (*info).si_code } > 0;
    match disposition.handler {
        libc::SIG_IGN if !from_fault => return 0,
        // A fault cannot be ignored: the kernel then kills the process (force_sig_info_to_task,
        // https://github.com/torvalds/linux/blob/v6.12/kernel/signal.c).
        libc::SIG_DFL | libc::SIG_IGN => {
            die(signal, from_fault);
            return 0;
        }
        _ => {}
    }
    // SAFETY: the caller's own arguments.
    unsafe { prepare(&disposition, signal, ucontext) };
    disposition.handler
}

/// Ends the process by this signal, which is the default action of all virtual signals. A fault repeats itself when the
/// handler returns to its instruction; a signal that was sent is sent again.
fn die(signal: c_int, from_fault: bool) {
    let default = Disposition { handler: libc::SIG_DFL, flags: 0, mask: 0, restorer: 0 }.to_c();
    // SAFETY: a valid structure.
    unsafe { real::sigaction(signal, &raw const default, core::ptr::null_mut()) };
    if !from_fault {
        // SAFETY: sends the signal to this thread; it is delivered when this handler returns.
        unsafe { call(nr::TGKILL, [getpid() as usize, gettid() as usize, signal as usize, 0, 0, 0]) };
    }
}

/// Does what the kernel does before it enters a handler: resets the disposition for SA_RESETHAND and sets the signal
/// mask (signal_delivered, [kernel/signal.c](https://github.com/torvalds/linux/blob/v6.12/kernel/signal.c)). The mask
/// after the handler needs no work: sigreturn restores it from the ucontext, in which the handler may have changed it.
///
/// # Safety
/// As [`to_program`].
unsafe fn prepare(how: &Disposition, signal: c_int, ucontext: *const c_void) {
    if how.flags & libc::SA_RESETHAND != 0 {
        dispositions::set(
            signal,
            Disposition { handler: libc::SIG_DFL, flags: how.flags, mask: how.mask, restorer: how.restorer },
        );
    }
    // SAFETY: the kernel's ucontext, which holds the mask of the interrupted code.
    let before = unsafe { ucontext.cast::<u8>().add(UCONTEXT_SIGMASK as usize).cast::<u64>().read() };
    let own = if how.flags & libc::SA_NODEFER != 0 { 0 } else { bit(signal) };
    // SAFETY: the kernel's ucontext.
    let extra = unsafe { super::altstack::extra_mask(how.flags, ucontext) };
    let mask = before | how.mask | own | extra;
    if mask & bit(sampling()) != 0 {
        if let Some(slot) = slots::own() {
            slot.held.store(crate::clock::monotonic_ns(), Ordering::Relaxed);
        }
    }
    set_thread_mask(mask);
}

/// Makes the kernel deliver `signal` to `handler`. False: the kernel refused.
pub fn install(
    signal: c_int,
    handler: unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void),
    flags: c_int,
    mask: u64,
) -> bool {
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = flags | libc::SA_SIGINFO;
    action.sa_mask = set_of(mask);
    // SAFETY: a valid structure.
    let installed = unsafe { real::sigaction(signal, &raw const action, core::ptr::null_mut()) == 0 };
    if returned::is_returned(signal) {
        // The recording has ended in the meantime.
        returned::apply(signal);
    }
    installed
}
