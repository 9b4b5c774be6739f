//! Signals that are ours in the kernel's eyes, and the program's in its own.
//!
//! While we record, the kernel delivers SIGSEGV, SIGBUS, SIGFPE, SIGILL and the sampling signal to us. The program's
//! dispositions for them live in a table ([`host`]): sigaction and signal read and write that, faults that are not ours
//! are chained to it with its own mask and flags ([`chain`]), and it never runs on a fault of a walk.

pub mod altstack;
pub mod chain;
pub mod faults;
pub mod host;
mod interpose;
mod masks;
mod sets;

use core::ffi::c_int;
use uunwind_core::regs::UCONTEXT_SIGMASK;

/// The sampling signal. Not a real-time one: those queue without bound, and an overflow kills.
pub const SAMPLING: c_int = libc::SIGPROF;

/// Signals whose dispositions are virtual while recording.
pub const VIRTUAL: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, SAMPLING];

/// Signals that a fault raises; never masked by us.
const FAULTS: [c_int; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// The bit of a signal in a kernel mask.
pub const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// All 64 signals but the faults and the sampling signal, which is masked by its own delivery until a walk calls foreign code. Set by hand: sigfillset leaves out the two that glibc keeps for
/// pthread_cancel and setuid, and a walk must not be left through either.
pub fn handler_mask() -> u64 {
    FAULTS.iter().fold(!bit(SAMPLING), |mask, signal| mask & !bit(*signal))
}

/// Whether a signal interrupted the sampling handler, or what runs on top of it: all that the handler masks is masked. The
/// program's own code never has it so: glibc lets nobody block the two signals that it keeps for itself, and where it blocks
/// them, it blocks ours too. So a mark that says "inside a walk" can be told from one that a siglongjmp left behind.
///
/// # Safety
/// The kernel's ucontext.
pub unsafe fn interrupted_handler(ucontext: *const u8) -> bool {
    // The kernel masks neither.
    let masked = handler_mask() & !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
    // SAFETY: the mask lies in the ucontext of every handler.
    let mask = unsafe { ucontext.add(UCONTEXT_SIGMASK as usize).cast::<u64>().read() };
    mask & masked == masked
}

/// A glibc signal set whose first 64 bits are `mask`.
pub fn set_of(mask: u64) -> libc::sigset_t {
    // SAFETY: sigset_t is 16 words of bits; all-zero is the empty set.
    let mut set: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: its first word holds signals 1 to 64.
    unsafe { (&raw mut set).cast::<u64>().write(mask) };
    set
}

/// The first 64 bits of a glibc signal set.
pub fn mask_of(set: &libc::sigset_t) -> u64 {
    // SAFETY: as above.
    unsafe { core::ptr::from_ref(set).cast::<u64>().read() }
}

/// Unblocks signals on the calling thread; what sigreturn restores stays as it is. False: the kernel refused.
pub fn unblock(signals: u64) -> bool {
    use uunwind_core::syscall::{call, nr};
    const SIG_UNBLOCK: usize = 1;
    // SAFETY: rt_sigprocmask reads one 8-byte set.
    unsafe { call(nr::RT_SIGPROCMASK, [SIG_UNBLOCK, (&raw const signals) as usize, 0, 8, 0, 0]) == 0 }
}

/// Sets the calling thread's signal mask, by a raw call: glibc's wrapper would leave two signals out.
pub fn set_thread_mask(mask: u64) {
    use uunwind_core::syscall::{call, nr};
    const SIG_SETMASK: usize = 2;
    // SAFETY: rt_sigprocmask reads one 8-byte set.
    unsafe { call(nr::RT_SIGPROCMASK, [SIG_SETMASK, (&raw const mask) as usize, 0, 8, 0, 0]) };
}
