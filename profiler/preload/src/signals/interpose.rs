//! sigaction and its elders, as the program sees them.

use super::host::{self, Disposition};
use super::{altstack, faults};
use crate::{process, real};
use core::ffi::c_int;

/// Whether this call concerns a disposition that is ours in the kernel: only in the process that records; a vfork child
/// shares our memory, but its dispositions are its own.
fn ours(signal: c_int) -> bool {
    host::is_virtual(signal) && process::process().is_some() && process::is_own()
}

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
        host::set(signal, Disposition::from_c(new));
        if faults::SIGNALS.contains(&signal) {
            faults::install(signal);
        }
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
    // SAFETY: passed on.
    unsafe { simple(signal, handler, libc::SA_RESTART, bit_checked(signal)) }
}

/// Interposed ssignal(3), another name of signal.
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

fn bit_checked(signal: c_int) -> u64 {
    if (1..=64).contains(&signal) {
        super::bit(signal)
    } else {
        0
    }
}
