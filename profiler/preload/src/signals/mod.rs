//! Virtual signals: the kernel delivers them to us, and the program sees its own dispositions of them.
//!
//! During a recording, the kernel delivers SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT and the sampling signal to us. The
//! program's dispositions of them are kept in a table ([`dispositions`]), which its calls of sigaction and signal read
//! and write. Faults that are not ours are delivered to its handlers, with their own mask and flags ([`deliver`]);
//! faults of a walk never are.

pub mod altstack;
pub mod deferred;
pub mod deliver;
pub mod dispositions;
pub mod faults;
pub mod interpose;
pub mod masks;
mod noted;
pub mod returned;
mod sets;

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};
use uunwind_core::regs::UCONTEXT_SIGMASK;
use uunwind_ring::{FLAG_EVENTS, FLAG_EXPLICIT};

/// The sampling signal: SIGSTKFLT, which the kernel does not send
/// ([signal(7)](https://man7.org/linux/man-pages/man7/signal.7.html)) and programs do not use. With a signal that
/// programs use, such as SIGPROF, one that the program sends itself would be lost while a tick is pending. A real-time
/// signal is unsuitable, too: those are queued, and once the queue's limit is reached, the program's own are lost or
/// kill it.
const UNLESS_CHOSEN: c_int = libc::SIGSTKFLT;
/// The sampling signal XOR [`UNLESS_CHOSEN`]: statics of this object are zero at first. One that is not would need a
/// segment of its own, and each short program a mapping and two page faults for it.
static SAMPLING: AtomicI32 = AtomicI32::new(0);

/// Chooses the sampling signal for a session with these flags. A program that requests samples sends SIGPROF; perf
/// events can send SIGTRAP only. Called once, before any signal is taken over.
pub fn choose(flags: u32) {
    if flags & FLAG_EXPLICIT != 0 {
        SAMPLING.store(libc::SIGPROF ^ UNLESS_CHOSEN, Ordering::Relaxed);
    } else if flags & FLAG_EVENTS != 0 {
        SAMPLING.store(libc::SIGTRAP ^ UNLESS_CHOSEN, Ordering::Relaxed);
    }
}

/// The sampling signal of this process.
pub fn sampling() -> c_int {
    SAMPLING.load(Ordering::Relaxed) ^ UNLESS_CHOSEN
}

/// Number of virtual signals.
pub const VIRTUAL_SIGNALS: usize = 6;

/// The signals whose dispositions are virtual during a recording.
pub fn virtual_signals() -> [c_int; VIRTUAL_SIGNALS] {
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, sampling()]
}

/// Signals that a fault raises. Our handlers never mask them.
const FAULTS: [c_int; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// The bit of a signal in a kernel mask.
pub const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The mask of our handlers: all 64 signals but the faults and the sampling signal, which is masked by its own delivery
/// until a walk calls foreign code. Not made by sigfillset, which leaves out the two signals that glibc reserves for
/// pthread_cancel and setuid
/// ([internal-signals.h](https://github.com/bminor/glibc/blob/glibc-2.40/sysdeps/unix/sysv/linux/internal-signals.h));
/// neither may interrupt a walk.
pub fn handler_mask() -> u64 {
    FAULTS.iter().fold(!bit(sampling()), |mask, signal| mask & !bit(*signal))
}

/// Whether a signal has interrupted the sampling handler, or code that it called: all signals of the handler's mask are
/// blocked. The program's own code never runs with exactly these blocked: glibc does not let it block the two reserved
/// signals, and where glibc itself blocks them, it blocks the sampling signal, too. This distinguishes a walk in
/// progress from a mark in the slot that a siglongjmp out of a walk has left.
///
/// # Safety
/// The kernel's ucontext.
pub unsafe fn interrupted_handler(ucontext: *const u8) -> bool {
    // These two cannot be masked.
    let masked = handler_mask() & !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
    // SAFETY: the mask lies in the ucontext of every handler.
    let mask = unsafe { ucontext.add(UCONTEXT_SIGMASK as usize).cast::<u64>().read() };
    mask & masked == masked
}

/// Reads a field of the kernel's siginfo or ucontext; `offset` in bytes.
///
/// # Safety
/// `base` must be the kernel's structure, and the field must lie inside it.
pub unsafe fn field<T: Copy>(base: *const u8, offset: usize) -> T {
    // SAFETY: callers pass the kernel's siginfo or ucontext and an offset inside it.
    unsafe { base.add(offset).cast::<T>().read_unaligned() }
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
    // SAFETY: its first word holds signals 1 to 64.
    unsafe { core::ptr::from_ref(set).cast::<u64>().read() }
}

/// Unblocks signals on the calling thread until the running handler returns and sigreturn restores its mask. False: the
/// kernel refused.
pub fn unblock(signals: u64) -> bool {
    use uunwind_core::syscall::{call, nr};
    const SIG_UNBLOCK: usize = 1;
    // SAFETY: rt_sigprocmask reads one 8-byte set.
    unsafe { call(nr::RT_SIGPROCMASK, [SIG_UNBLOCK, (&raw const signals) as usize, 0, 8, 0, 0]) == 0 }
}

/// Sets the calling thread's signal mask, by a raw system call: glibc's wrapper never blocks its two reserved signals.
pub fn set_thread_mask(mask: u64) {
    use uunwind_core::syscall::{call, nr};
    const SIG_SETMASK: usize = 2;
    // SAFETY: rt_sigprocmask reads one 8-byte set.
    unsafe { call(nr::RT_SIGPROCMASK, [SIG_SETMASK, (&raw const mask) as usize, 0, 8, 0, 0]) };
}
