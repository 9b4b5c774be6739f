//! Alternate stacks that are too small for two signal frames.
//!
//! The sampling handler does not run on alternate stacks, but it can interrupt a handler of the program that does. On a
//! stack too small for both, its frame would overflow and kill. So once the program has set such a stack, the sampling
//! signal is masked while the program's SA_ONSTACK handlers run: in the kernel for handlers of its own, by us for those
//! that we chain to.
//!
//! A Go program's goroutines run on stacks with no room for a signal frame: what the kernel pushed there would destroy their
//! neighbours. The Go runtime gives each thread an alternate stack, and asks for it in each handler that it installs: for the sampling
//! signal, too, in a program; in a library only for a few others, of which no other program handles the one that preempts
//! goroutines so. As soon as it does, the sampling handler runs there as well.

use super::host::{self, Disposition};
use super::{bit, SAMPLING};
use crate::{handler, process, real};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uunwind_core::regs::UCONTEXT_STACK;

/// Bytes that our handler, the walk and a plugin need below the kernel's frame.
const HANDLER_BYTES: u64 = 6144;
/// Some thread has an alternate stack that is too small.
static SMALL: AtomicBool = AtomicBool::new(false);
/// Signals whose handler in the kernel is the program's, with SA_ONSTACK; and those whose mask we widened.
static ON_STACK: AtomicU64 = AtomicU64::new(0);
static WIDENED: AtomicU64 = AtomicU64::new(0);
/// The Go runtime's signal to preempt goroutines.
const PREEMPTS: c_int = libc::SIGURG;
/// The stacks that the program's code runs on may have no room for a signal frame.
static NEEDED: AtomicBool = AtomicBool::new(false);

/// Whether the sampling handler must run on alternate stacks, whatever the program says of its own handler of that signal.
pub fn is_needed() -> bool {
    NEEDED.load(Ordering::Relaxed)
}

/// The least size on which the program's handler and ours fit.
fn enough() -> u64 {
    let frame = process::process().map_or(4096, |p| p.signal_frame);
    2 * frame + HANDLER_BYTES + 1024
}

/// What must be masked besides, while a handler with these flags runs in the place of the one that this ucontext belongs to:
/// nothing, unless this thread's own alternate stack is too small. A handler may be left by longjmp, which keeps the mask as
/// it is for good (wasmtime leaves its traps so).
///
/// # Safety
/// `ucontext` must be the kernel's, of a handler that now runs.
pub unsafe fn extra_mask(flags: c_int, ucontext: *const c_void) -> u64 {
    const SS_DISABLE: i32 = 2;
    // SAFETY: the kernel has written uc_stack: ss_sp, ss_flags, ss_size, a word each.
    // Of a thread without such a stack it tells size 0, and not always SS_DISABLE.
    let (disabled, size) = unsafe {
        let stack = ucontext.cast::<u8>().add(UCONTEXT_STACK as usize);
        (stack.add(8).cast::<i32>().read() & SS_DISABLE != 0, stack.add(16).cast::<u64>().read())
    };
    if flags & libc::SA_ONSTACK != 0 && !disabled && size != 0 && size < enough() {
        bit(SAMPLING)
    } else {
        0
    }
}

/// The program handles `signal` itself, by `action`: what the kernel is to be told.
pub fn adjust(signal: c_int, mut action: Disposition) -> Disposition {
    let this = bit(signal);
    let handles = action.handler != libc::SIG_DFL && action.handler != libc::SIG_IGN;
    WIDENED.fetch_and(!this, Ordering::Relaxed);
    if handles && action.flags & libc::SA_ONSTACK != 0 {
        ON_STACK.fetch_or(this, Ordering::Relaxed);
        if signal == PREEMPTS && !NEEDED.swap(true, Ordering::Relaxed) {
            handler::install();
        }
        if SMALL.load(Ordering::Relaxed) && action.mask & bit(SAMPLING) == 0 {
            action.mask |= bit(SAMPLING);
            WIDENED.fetch_or(this, Ordering::Relaxed);
        }
    } else {
        ON_STACK.fetch_and(!this, Ordering::Relaxed);
    }
    action
}

/// The program handles `signal` in another way now, by a call that knows no alternate stacks.
pub fn forget(signal: c_int) {
    if (1..=64).contains(&signal) && process::process().is_some() && process::is_own() {
        ON_STACK.fetch_and(!bit(signal), Ordering::Relaxed);
        WIDENED.fetch_and(!bit(signal), Ordering::Relaxed);
    }
}

/// What the program sees of a disposition that the kernel told: without what we added.
pub fn hide(signal: c_int, mut action: Disposition) -> Disposition {
    if WIDENED.load(Ordering::Relaxed) & bit(signal) != 0 {
        action.mask &= !bit(SAMPLING);
    }
    action
}

/// Handlers that were installed before we record, or before the first small stack was set.
fn widen_all() {
    for signal in 1..=64 {
        let this = bit(signal);
        if host::is_virtual(signal) || signal == libc::SIGKILL || signal == libc::SIGSTOP || (32..34).contains(&signal)
        {
            continue;
        }
        // SAFETY: valid structures; a signal that cannot be asked for leaves it zero (SIG_DFL).
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            if real::sigaction(signal, core::ptr::null(), &raw mut action) != 0 {
                continue;
            }
            let told = Disposition::from_c(&action);
            let wanted = if WIDENED.load(Ordering::Relaxed) & this != 0 { told } else { adjust(signal, told) };
            if wanted != told {
                let wanted = wanted.to_c();
                real::sigaction(signal, &raw const wanted, core::ptr::null_mut());
            }
        }
    }
}

/// Interposed sigaltstack(2).
///
/// # Safety
/// As sigaltstack.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    // SAFETY: the program's own arguments.
    let result = unsafe { real::sigaltstack(new, old) };
    if result == 0 && process::process().is_some() && process::is_own() {
        // SAFETY: the kernel has just read the same structure.
        if let Some(new) = unsafe { new.as_ref() } {
            let set = new.ss_flags & libc::SS_DISABLE == 0;
            if let Some(block) = crate::threads::own_block() {
                // SAFETY: blocks stay mapped; the fields are atomic.
                let block = unsafe { &*block };
                block.alternate_low.store(new.ss_sp as u64, Ordering::Relaxed);
                block.alternate_size.store(if set { new.ss_size as u64 } else { 0 }, Ordering::Relaxed);
            }
            let small = set && (new.ss_size as u64) < enough();
            if small && !SMALL.swap(true, Ordering::Relaxed) {
                widen_all();
            }
        }
    }
    result
}
