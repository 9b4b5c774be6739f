//! Hands a signal that is not ours to the program, as the kernel would have.

use super::host::{self, Disposition};
use super::{bit, set_of, set_thread_mask};
use crate::real;
use core::ffi::{c_int, c_void};
use uunwind_core::regs::UCONTEXT_SIGMASK;
use uunwind_core::syscall::{call, getpid, gettid, nr};

/// Runs the program's disposition of `signal`.
///
/// # Safety
/// The arguments must be those of a signal handler that is now running, and no walk may be under way on this thread.
pub unsafe fn deliver(signal: c_int, info: *mut libc::siginfo_t, ucontext: *mut c_void) {
    let disposition = host::get(signal);
    // SAFETY: the kernel passes a siginfo.
    let from_fault = unsafe { (*info).si_code } > 0;
    match disposition.handler {
        libc::SIG_IGN if !from_fault => {}
        // The kernel does not let a fault be ignored (force_sig): it kills.
        libc::SIG_DFL | libc::SIG_IGN => die(signal, from_fault),
        // SAFETY: passed on.
        handler => unsafe { run(handler, &disposition, signal, info, ucontext) },
    }
}

/// The default action of all virtual signals is to end the process. A fault is repeated by returning to the instruction;
/// what another process sent is sent again.
fn die(signal: c_int, from_fault: bool) {
    let default = Disposition { handler: libc::SIG_DFL, flags: 0, mask: 0, restorer: 0 }.to_c();
    // SAFETY: a valid structure.
    unsafe { real::sigaction(signal, &raw const default, core::ptr::null_mut()) };
    if !from_fault {
        // SAFETY: sends the signal to this very thread; it is delivered when this handler returns.
        unsafe { call(nr::TGKILL, [getpid() as usize, gettid() as usize, signal as usize, 0, 0, 0]) };
    }
}

/// # Safety
/// As [`deliver`].
unsafe fn run(handler: usize, how: &Disposition, signal: c_int, info: *mut libc::siginfo_t, ucontext: *mut c_void) {
    if how.flags & libc::SA_RESETHAND != 0 {
        host::set(
            signal,
            Disposition { handler: libc::SIG_DFL, flags: how.flags, mask: how.mask, restorer: how.restorer },
        );
    }
    // SAFETY: the kernel passes a ucontext, which holds the mask to be restored.
    let before = unsafe { ucontext.cast::<u8>().add(UCONTEXT_SIGMASK as usize).cast::<u64>().read() };
    let own = if how.flags & libc::SA_NODEFER != 0 { 0 } else { bit(signal) };
    set_thread_mask(before | how.mask | own | super::altstack::extra_mask(how.flags));
    // SAFETY: the program installed this function for this signal. One without SA_SIGINFO ignores two arguments.
    let handler = unsafe {
        core::mem::transmute::<usize, unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)>(handler)
    };
    // SAFETY: passed on.
    unsafe { handler(signal, info, ucontext) };
    // A handler that returns may have asked for a signal mask by changing the ucontext, which sigreturn honours.
}

/// Makes the kernel deliver `signal` to `handler`.
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
    unsafe { real::sigaction(signal, &raw const action, core::ptr::null_mut()) == 0 }
}
