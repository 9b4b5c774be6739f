//! sigaction and its elders, as the program sees them.

use super::host::{self, Disposition};
use super::{altstack, faults, masks};
use crate::{handler, process, real};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

/// The kernel's flag that glibc sets on every action, and leaves in what sigaction(2) tells.
const SA_RESTORER: c_int = 0x0400_0000;

/// Whether this call concerns a disposition that is ours in the kernel: only in the process that records; a vfork child
/// shares our memory, but its dispositions are its own.
fn ours(signal: c_int) -> bool {
    host::is_virtual(signal) && process::process().is_some() && process::is_own()
}

/// The program's disposition of a virtual signal has changed: the kernel's flags follow it.
fn renew(signal: c_int) {
    if faults::SIGNALS.contains(&signal) {
        faults::install(signal);
    } else {
        handler::install();
        let handler = host::get(signal).handler;
        if handler != libc::SIG_DFL && handler != libc::SIG_IGN {
            masks::hand_over();
        }
    }
}

/// Virtual signals that siginterrupt(3) has told to interrupt system calls, for signal(2).
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// What signal(2) and its kin do, with these flags.
///
/// # Safety
/// `handler` must be SIG_DFL, SIG_IGN or a handler.
unsafe fn simple(signal: c_int, handler: usize, flags: c_int, mask: u64) -> usize {
    let new = Disposition { handler, flags, mask, restorer: 0 }.to_c();
    // SAFETY: all-zero is a valid sigaction.
    let mut old: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: valid structures.
    if unsafe { sigaction(signal, &raw const new, &raw mut old) } != 0 {
        return libc::SIG_ERR;
    }
    old.sa_sigaction
}

/// Interposed sigaction(2).
///
/// # Safety
/// As sigaction.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    if process::process().is_none() {
        // SAFETY: the program's own arguments.
        return unsafe { real::sigaction(signal, new, old) };
    }
    if !ours(signal) {
        // SAFETY: as above.
        return unsafe { pass(signal, new, old) };
    }
    let before = host::get(signal);
    // SAFETY: the program passes null or a structure.
    if let Some(new) = unsafe { new.as_ref() } {
        let mut new = Disposition::from_c(new);
        // As the kernel stores it, and glibc tells it back.
        new.flags |= SA_RESTORER;
        new.mask &= !(super::bit(libc::SIGKILL) | super::bit(libc::SIGSTOP));
        host::set(signal, new);
        renew(signal);
    }
    if !old.is_null() {
        // SAFETY: the program passes null or a place for one.
        unsafe { old.write(before.to_c()) };
    }
    0
}

/// A signal that is not ours: the kernel's disposition is the program's, but for what small stacks ask for.
///
/// # Safety
/// As sigaction.
unsafe fn pass(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    if !process::is_own() || !(1..=64).contains(&signal) {
        // SAFETY: the program's own arguments.
        return unsafe { real::sigaction(signal, new, old) };
    }
    // SAFETY: all-zero is a valid sigaction.
    let mut told: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: a place of our own; the program passes null or a structure.
    let (asked, new) = unsafe { (real::sigaction(signal, core::ptr::null(), &raw mut told), new.as_ref()) };
    let seen = altstack::hide(signal, Disposition::from_c(&told));
    let result = match new {
        Some(new) => {
            let adjusted = altstack::adjust(signal, Disposition::from_c(new)).to_c();
            // SAFETY: a valid structure.
            unsafe { real::sigaction(signal, &raw const adjusted, core::ptr::null_mut()) }
        }
        None => asked,
    };
    if result == 0 && !old.is_null() {
        // SAFETY: the program passes null or a place for one.
        unsafe { old.write(seen.to_c()) };
    }
    result
}

/// Interposed `__sigaction`, another name of sigaction.
///
/// # Safety
/// As sigaction.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn __sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: passed on.
    unsafe { sigaction(signal, new, old) }
}

/// Interposed signal(2): BSD semantics, as glibc has it.
///
/// # Safety
/// As signal.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    if !ours(signal) {
        altstack::forget(signal);
        // SAFETY: the program's own arguments.
        return unsafe { real::signal(signal, handler) };
    }
    let interrupting = INTERRUPTING.load(Ordering::Relaxed) & super::bit(signal) != 0;
    // SAFETY: passed on.
    unsafe { simple(signal, handler, if interrupting { 0 } else { libc::SA_RESTART }, super::bit(signal)) }
}

/// Other names of signal(2).
///
/// # Safety
/// As signal.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn ssignal(number: c_int, handler: usize) -> usize {
    // SAFETY: passed on.
    unsafe { signal(number, handler) }
}

/// Interposed sysv_signal(3): the handler is reset, and its signal not blocked.
///
/// # Safety
/// As signal.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn sysv_signal(number: c_int, handler: usize) -> usize {
    if !ours(number) {
        altstack::forget(number);
        // SAFETY: the program's own arguments.
        return unsafe { real::sysv_signal(number, handler) };
    }
    // SAFETY: passed on.
    unsafe { simple(number, handler, libc::SA_RESETHAND | libc::SA_NODEFER, 0) }
}

/// Interposed `__sysv_signal`, which programs built with _XOPEN_SOURCE alone call.
///
/// # Safety
/// As signal.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn __sysv_signal(number: c_int, handler: usize) -> usize {
    // SAFETY: passed on.
    unsafe { sysv_signal(number, handler) }
}

/// Interposed sigset(3), System V's: it also unblocks the signal, or only blocks it.
///
/// # Safety
/// As sigset.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn sigset(number: c_int, handler: usize) -> usize {
    const SIG_HOLD: usize = 2;
    if !ours(number) {
        altstack::forget(number);
        // SAFETY: the program's own arguments.
        return unsafe { real::sigset(number, handler) };
    }
    let set = super::set_of(super::bit(number));
    let mut before = super::set_of(0);
    let how = if handler == SIG_HOLD { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    let old = if handler == SIG_HOLD {
        host::get(number).handler
    } else {
        // SAFETY: passed on.
        unsafe { simple(number, handler, 0, 0) }
    };
    // SAFETY: sets of our own.
    unsafe { masks::sigprocmask(how, &raw const set, &raw mut before) };
    if super::mask_of(&before) & super::bit(number) != 0 {
        SIG_HOLD
    } else {
        old
    }
}

/// Interposed sigignore(3).
///
/// # Safety
/// As sigignore.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn sigignore(number: c_int) -> c_int {
    if !ours(number) {
        altstack::forget(number);
        // SAFETY: the program's own argument.
        return unsafe { real::sigignore(number) };
    }
    // SAFETY: SIG_IGN is a disposition.
    unsafe { simple(number, libc::SIG_IGN, 0, 0) };
    0
}

/// Interposed siginterrupt(3).
///
/// # Safety
/// As siginterrupt.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn siginterrupt(number: c_int, flag: c_int) -> c_int {
    if !ours(number) {
        // SAFETY: the program's own arguments.
        return unsafe { real::siginterrupt(number, flag) };
    }
    let mut disposition = host::get(number);
    if flag == 0 {
        INTERRUPTING.fetch_and(!super::bit(number), Ordering::Relaxed);
        disposition.flags |= libc::SA_RESTART;
    } else {
        INTERRUPTING.fetch_or(super::bit(number), Ordering::Relaxed);
        disposition.flags &= !libc::SA_RESTART;
    }
    host::set(number, disposition);
    renew(number);
    0
}
