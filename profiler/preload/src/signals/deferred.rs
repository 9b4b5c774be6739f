//! Signals for the program that arrive when its handlers must not run.
//!
//! A handler of the program that interrupts a walk might never return to it (longjmp). The signal cannot be blocked
//! during the walk either, since the walk itself may fault, and the watchdog uses the sampling signal. So the signal is
//! kept in the thread's slot, and sent again after the walk.

use super::{bit, deliver, field, interrupted_handler, masks, virtual_signals};
use crate::process;
use crate::slots::{self, Slot, SIGINFO_WORDS};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use uunwind_core::syscall::{self, nr};

/// Offset in the kernel's siginfo, in bytes
/// ([asm-generic/siginfo.h](https://github.com/torvalds/linux/blob/v6.12/include/uapi/asm-generic/siginfo.h)).
const SI_CODE: usize = 8;
const _: () = assert!(core::mem::size_of::<libc::siginfo_t>() == SIGINFO_WORDS * 8);

/// For a signal that was sent (neither a fault nor one of ours): defers it if a walk is in progress on this thread, and
/// returns whether it did.
///
/// # Safety
/// The arguments of the running handler.
pub unsafe fn defer(signal: c_int, info: *const libc::siginfo_t, ucontext: *const u8) -> bool {
    // SAFETY: the caller's own arguments.
    own_slot().is_some_and(|slot| unsafe { defer_on(slot, signal, info, ucontext) })
}

/// The thread's slot. `None` in a child process that shares our memory, or has a copy of it, without having passed
/// through our fork hook.
fn own_slot() -> Option<&'static Slot> {
    slots::own().filter(|_| process::is_own())
}

/// # Safety
/// As [`defer`], with the thread's slot.
unsafe fn defer_on(slot: &Slot, signal: c_int, info: *const libc::siginfo_t, ucontext: *const u8) -> bool {
    // SAFETY: the caller's own arguments.
    let walking = unsafe { is_walking(slot, ucontext) };
    // As in the kernel: of several standard signals with one number, the first stays pending, and the others are
    // dropped (signal(7)).
    if walking && slot.deferred.fetch_or(bit(signal), Ordering::Relaxed) & bit(signal) == 0 {
        let place = virtual_signals().iter().position(|of| *of == signal).and_then(|at| slot.deferred_info.get(at));
        for (at, word) in place.into_iter().flatten().enumerate() {
            // SAFETY: the kernel's siginfo has SIGINFO_WORDS words.
            word.store(unsafe { field(info.cast(), at * 8) }, Ordering::Relaxed);
        }
    }
    walking
}

/// Sends the signals again that were deferred on this thread. Called in its handler, after the walk.
pub fn send_all(slot: &Slot) {
    let signals = slot.deferred.swap(0, Ordering::Relaxed);
    for (signal, words) in virtual_signals().into_iter().zip(&slot.deferred_info).filter(|of| signals & bit(of.0) != 0)
    {
        let mut info = [0u64; SIGINFO_WORDS];
        for (to, from) in info.iter_mut().zip(words) {
            *to = from.load(Ordering::Relaxed);
        }
        // SAFETY: the siginfo that `defer` was given.
        unsafe { send_again(signal, info.as_ptr().cast(), false) };
    }
}

/// Sends a signal again, blocked until the running handler has returned. Without the block it would interrupt this
/// handler at once, and a signal that must wait would be sent again and again until the stack is used up. `to_any`: if
/// the signal was sent to the process, it is sent to the process again, for any thread that does not block it;
/// otherwise to this thread.
///
/// # Safety
/// A siginfo of this signal.
unsafe fn send_again(signal: c_int, info: *const libc::siginfo_t, to_any: bool) {
    const SIG_BLOCK: usize = 0;
    let mask = bit(signal);
    let (process, number) = (process::pid() as usize, signal as usize);
    // SAFETY: the signal's own siginfo. The first call blocks the signal for the rest of this handler; sigreturn
    // restores the mask of the interrupted code. A process may send itself any siginfo
    // (https://man7.org/linux/man-pages/man2/rt_sigqueueinfo.2.html).
    unsafe {
        syscall::call(nr::RT_SIGPROCMASK, [SIG_BLOCK, (&raw const mask) as usize, 0, 8, 0, 0]);
        if to_any && is_for_process(field(info.cast(), SI_CODE)) {
            // From a thread other than the main one, the kernel refuses a siginfo with such a code; then the plain
            // signal is sent.
            if syscall::call(nr::RT_SIGQUEUEINFO, [process, number, info as usize, 0, 0, 0]) != 0 {
                syscall::call(nr::KILL, [process, number, 0, 0, 0, 0]);
            }
        } else {
            let thread = syscall::gettid() as usize;
            syscall::call(nr::RT_TGSIGQUEUEINFO, [process, thread, number, info as usize, 0, 0]);
        }
    }
}

/// Whether a signal with this `si_code` was sent to the process: by kill(2), or by the kernel for a timer of
/// setitimer(2). sigqueue(3) and pthread_sigqueue(3) use the same code, so their signals stay with the thread.
const fn is_for_process(code: i32) -> bool {
    const SI_USER: i32 = 0;
    const SI_KERNEL: i32 = 0x80;
    code == SI_USER || code == SI_KERNEL
}

/// Whether a signal has interrupted a walk of its thread: the slot is marked, and what was interrupted is the handler.
///
/// # Safety
/// The kernel's ucontext.
pub unsafe fn is_walking(slot: &Slot, ucontext: *const u8) -> bool {
    // SAFETY: the caller's own arguments.
    slot.busy.load(Ordering::Relaxed) != 0 && unsafe { interrupted_handler(ucontext) }
}

/// Handles a sampling signal that is not ours: it is deferred during a walk, or left pending where the program believes
/// it to be blocked. Otherwise returns the program's handler, to be entered in place of ours (0: none).
///
/// # Safety
/// The arguments of the running handler.
pub unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, ucontext: *mut c_void) -> usize {
    let slot = own_slot();
    // SAFETY: the caller's own arguments.
    if slot.is_some_and(|slot| unsafe { defer_on(slot, signal, info, ucontext.cast()) }) {
        return 0;
    }
    if let Some(slot) = slot.filter(|slot| slot.masked.load(Ordering::Relaxed) != 0) {
        // The program believes that it has blocked this signal. So it is blocked from the end of this handler until the
        // program unblocks it, and queued again. SAFETY: the handler's own arguments.
        unsafe {
            masks::block_for_real(slot, ucontext.cast());
            send_again(signal, info, true);
        }
        return 0;
    }
    // SAFETY: the caller's own arguments.
    unsafe { deliver::to_program(signal, info, ucontext) }
}
