//! sigaction and the older functions of its family, as the program sees them.

use super::dispositions::{self, Disposition};
use super::{altstack, faults, masks, returned};
use crate::cpu::SET_BY_LIBC;
use crate::{handler, process, real};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

/// Whether this call concerns a virtual disposition. Only in the process that records: a vfork child shares our memory,
/// but has dispositions of its own.
fn ours(signal: c_int) -> bool {
    dispositions::is_virtual(signal) && process::process().is_some() && process::is_own()
}

/// Updates the flags of our handler in the kernel after the program changed its disposition of a virtual signal.
fn renew(signal: c_int) {
    if faults::SIGNALS.contains(&signal) {
        faults::install(signal);
    } else {
        handler::install();
        let handler = dispositions::get(signal).handler;
        if handler != libc::SIG_DFL && handler != libc::SIG_IGN {
            masks::hand_over();
        }
    }
}

/// Virtual signals (a bit each) for which the program called siginterrupt(3): handlers that signal(2) installs
/// interrupt system calls.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// Does the work of signal(2) and related functions: sets a disposition with these flags and this mask, and returns the
/// previous handler.
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

/// Interposed [sigaction(2)](https://man7.org/linux/man-pages/man2/sigaction.2.html).
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
    let before = dispositions::get(signal);
    // SAFETY: the program passes null or a structure.
    if let Some(new) = unsafe { new.as_ref() } {
        let mut new = Disposition::from_c(new);
        // Stored as the kernel and glibc would report it.
        new.flags |= SET_BY_LIBC;
        new.mask &= !(super::bit(libc::SIGKILL) | super::bit(libc::SIGSTOP));
        dispositions::set(signal, new);
    }
    if returned::is_returned(signal) {
        let changes = dispositions::changes(signal);
        // SAFETY: the program's own arguments.
        let result = unsafe { real::sigaction(signal, new, old) };
        if dispositions::changes(signal) != changes {
            returned::apply(signal);
        }
        return result;
    }
    if !new.is_null() {
        renew(signal);
    }
    if !old.is_null() {
        // SAFETY: the program passes null or a place for one.
        unsafe { old.write(before.to_c()) };
    }
    0
}

/// sigaction for a signal that is not virtual: the kernel has the program's disposition, except for our additions on
/// behalf of small alternate stacks and noted handlers.
///
/// # Safety
/// As sigaction.
unsafe fn pass(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    if !process::is_own() || !(1..=64).contains(&signal) {
        // SAFETY: the program's own arguments.
        return unsafe { real::sigaction(signal, new, old) };
    }
    // SAFETY: all-zero is a valid sigaction.
    let mut current: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: a structure of our own; the program passes null or a structure.
    let (asked, new) = unsafe { (real::sigaction(signal, core::ptr::null(), &raw mut current), new.as_ref()) };
    let seen = altstack::hide(signal, Disposition::from_c(&current));
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
    // SAFETY: the caller's own arguments.
    unsafe { sigaction(signal, new, old) }
}

/// Interposed [signal(2)](https://man7.org/linux/man-pages/man2/signal.2.html), with BSD semantics, as in glibc.
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
    // SAFETY: the caller's own arguments.
    unsafe { simple(signal, handler, if interrupting { 0 } else { libc::SA_RESTART }, super::bit(signal)) }
}

/// Interposed [ssignal(3)](https://man7.org/linux/man-pages/man3/gsignal.3.html), another name of signal in glibc.
///
/// # Safety
/// As signal.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn ssignal(number: c_int, handler: usize) -> usize {
    // SAFETY: the caller's own arguments.
    unsafe { signal(number, handler) }
}

/// Interposed [sysv_signal(3)](https://man7.org/linux/man-pages/man3/sysv_signal.3.html): the disposition is reset when
/// the handler is entered, and its signal is not blocked.
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
    // SAFETY: the caller's own arguments.
    unsafe { simple(number, handler, libc::SA_RESETHAND | libc::SA_NODEFER, 0) }
}

/// Interposed `__sysv_signal`, which programs call that are built with only _XOPEN_SOURCE defined.
///
/// # Safety
/// As signal.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn __sysv_signal(number: c_int, handler: usize) -> usize {
    // SAFETY: the caller's own arguments.
    unsafe { sysv_signal(number, handler) }
}

/// Interposed [sigset(3)](https://man7.org/linux/man-pages/man3/sigset.3.html) of System V: it also unblocks the
/// signal; with SIG_HOLD it only blocks it.
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
        dispositions::get(number).handler
    } else {
        // SAFETY: the caller's own arguments.
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

/// Interposed [sigignore(3)](https://man7.org/linux/man-pages/man3/sigset.3.html).
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

/// Interposed [siginterrupt(3)](https://man7.org/linux/man-pages/man3/siginterrupt.3.html).
///
/// # Safety
/// As siginterrupt.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn siginterrupt(number: c_int, flag: c_int) -> c_int {
    if !ours(number) || returned::is_returned(number) {
        // SAFETY: the program's own arguments.
        return unsafe { real::siginterrupt(number, flag) };
    }
    let mut disposition = dispositions::get(number);
    if flag == 0 {
        INTERRUPTING.fetch_and(!super::bit(number), Ordering::Relaxed);
        disposition.flags |= libc::SA_RESTART;
    } else {
        INTERRUPTING.fetch_or(super::bit(number), Ordering::Relaxed);
        disposition.flags &= !libc::SA_RESTART;
    }
    dispositions::set(number, disposition);
    renew(number);
    0
}
