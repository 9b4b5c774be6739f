//! Handlers of the program that block the sampling signal while they run, for signals that are not virtual. The time of
//! their entry is noted, so that ticks that become due while they run are not attributed to the line that they
//! interrupted. The kernel enters a function of ours, which jumps to the program's handler with stack and arguments
//! unchanged.

use super::dispositions::{self, Disposition};
use super::{bit, sampling};
use crate::slots;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

fn entry() -> usize {
    uu_noted_entry as *const () as usize
}

/// The disposition to install in the kernel when the program's own one of `signal`, which is not virtual, is `action`.
pub fn adjust(signal: c_int, action: Disposition) -> Disposition {
    if action.handler == entry() || action.mask & bit(sampling()) == 0 {
        return action;
    }
    dispositions::set(signal, action);
    Disposition { handler: entry(), ..action }
}

/// The disposition that the program sees where the kernel reports `action`.
pub fn hide(signal: c_int, action: Disposition) -> Disposition {
    Disposition { handler: program_handler(signal, action.handler), ..action }
}

/// The program's handler, given the one that the kernel has.
pub fn program_handler(signal: c_int, handler: usize) -> usize {
    if handler == entry() {
        dispositions::get(signal).handler
    } else {
        handler
    }
}

unsafe extern "C" fn note(signal: c_int, _info: *mut libc::siginfo_t, _ucontext: *mut c_void) -> usize {
    if let Some(slot) = slots::own() {
        slot.held.store(crate::clock::monotonic_ns(), Ordering::Relaxed);
    }
    dispositions::get(signal).handler
}

crate::cpu::signal_entry!(uu_noted_entry, note);
