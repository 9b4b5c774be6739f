//! [Alternate signal stacks](https://man7.org/linux/man-pages/man2/sigaltstack.2.html) that are too small for two
//! signal frames.
//!
//! The sampling handler does not run on alternate stacks, but it can interrupt a handler of the program that does. On a
//! stack too small for both, its frame would overflow and kill the process. So once the program has set such a stack,
//! the sampling signal is masked while the program's SA_ONSTACK handlers run: by the kernel for handlers that it enters
//! itself, by us for those that we enter.
//!
//! Goroutines of a Go program run on stacks that are too small for a signal frame: a frame that the kernel pushes there
//! would overwrite adjacent memory. The Go runtime gives each thread an alternate stack, and installs all its handlers
//! with SA_ONSTACK ([runtime/signal_unix.go](https://github.com/golang/go/blob/go1.23.0/src/runtime/signal_unix.go)). A
//! Go program handles the sampling signal so, too; a Go library handles only a few signals, among them SIGURG, which
//! preempts goroutines and which other programs do not handle on an alternate stack. From such an installation on, the
//! sampling handler runs on alternate stacks as well.
//!
//! So it does from the start in programs of two more runtimes that run code on small stacks and give each thread an
//! alternate one. Erlang's defines sigaction itself, so that no handler lacks SA_ONSTACK
//! ([sys_signal_stack.c](https://github.com/erlang/otp/blob/OTP-27.0/erts/emulator/sys/unix/sys_signal_stack.c)); that
//! of OCaml 5 has its functions on fibers
//! ([fiber.c](https://github.com/ocaml/ocaml/blob/5.2.0/runtime/fiber.c)).

use super::dispositions::{self, Disposition};
use super::{bit, field, noted, sampling};
use crate::cpu::HANDLER_STACK;
use crate::slots::{self, Slot};
use crate::{ending, handler, process, real};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uunwind_core::regs::UCONTEXT_STACK;

/// Stack that our handler, the walk and a plugin need below the kernel's signal frame, in bytes.
const HANDLER_BYTES: u64 = HANDLER_STACK + 1024;
/// Set for good once some thread has an alternate stack that is too small.
static SMALL: AtomicBool = AtomicBool::new(false);
/// Signals (a bit each) whose handler in the kernel is the program's, with SA_ONSTACK; and those to whose mask we added
/// the sampling signal.
static ON_STACK: AtomicU64 = AtomicU64::new(0);
static WIDENED: AtomicU64 = AtomicU64::new(0);
/// The signals by which the Go runtime preempts goroutines and profiles them. It handles them on alternate stacks.
pub const OF_GOROUTINES: [c_int; 2] = [libc::SIGURG, libc::SIGPROF];
/// Set for good once the program may run code on stacks that have no space for a signal frame.
static NEEDED: AtomicBool = AtomicBool::new(false);

/// Whether the sampling handler must run on alternate stacks, with or without SA_ONSTACK in the program's own
/// disposition of that signal.
pub fn is_needed() -> bool {
    NEEDED.load(Ordering::Relaxed)
}

/// Looks at the start whether the program is one of a runtime with small stacks. This object must not be linked with
/// -Bsymbolic, by which the loader would find its own definitions first.
#[cfg(not(feature = "no-libc"))]
pub fn look_for_runtimes() {
    // SAFETY: in normal context, libc's function.
    let [actions, fibers] = [c"sigaction", c"caml_alloc_main_stack"]
        .map(|name| unsafe { uunwind_core::loaded::symbol(real::dl_iterate_phdr, name) });
    let own = super::interpose::sigaction as *const () as u64;
    if actions.is_none_or(|found| found.address != own) || fibers.is_some() {
        NEEDED.store(true, Ordering::Relaxed);
    }
}

/// Bytes left on the alternate signal stack if the running handler is on one; otherwise u64::MAX.
///
/// # Safety
/// The kernel's ucontext.
pub unsafe fn room(slot: &Slot, ucontext: *const u8) -> u64 {
    // SAFETY: passed on.
    let (low, size) = unsafe { of_thread(slot, ucontext) };
    // The ucontext lies on the stack that the handler runs on.
    match (ucontext as u64).checked_sub(low) {
        Some(above) if above < size => above,
        _ => u64::MAX,
    }
}

/// Lowest address and size of the thread's alternate signal stack: from the ucontext, or as the thread last set it,
/// because the kernel does not report a stack with SS_AUTODISARM while a handler runs on it. Size 0 when there is none.
///
/// # Safety
/// The kernel's ucontext.
pub unsafe fn of_thread(slot: &Slot, ucontext: *const u8) -> (u64, u64) {
    const SS_DISABLE: i32 = 2;
    let at = UCONTEXT_STACK as usize;
    // SAFETY: stack_t (ss_sp, ss_flags, ss_size) lies in the ucontext of every handler.
    let (low, flags, size) =
        unsafe { (field::<u64>(ucontext, at), field::<i32>(ucontext, at + 8), field::<u64>(ucontext, at + 16)) };
    if flags & SS_DISABLE == 0 && size != 0 {
        (low, size)
    } else {
        (slot.alternate_low.load(Ordering::Relaxed), slot.alternate_size.load(Ordering::Relaxed))
    }
}

/// The smallest alternate stack, in bytes, that holds the frames of the program's handler and of ours.
fn enough() -> u64 {
    let frame = process::process().map_or(4096, |p| p.signal_frame);
    2 * frame + HANDLER_BYTES + 1024
}

/// The signals that must be masked in addition while a handler of the program with these flags runs in place of ours,
/// to which this ucontext belongs: the sampling signal if this thread's alternate stack is too small, otherwise none.
/// It must not be masked without need: a handler may be left by longjmp, which keeps the mask for good, as
/// [wasmtime](https://github.com/bytecodealliance/wasmtime) leaves its traps.
///
/// # Safety
/// `ucontext` must be the kernel's, of a handler that now runs.
pub unsafe fn extra_mask(flags: c_int, ucontext: *const c_void) -> u64 {
    const SS_DISABLE: i32 = 2;
    // SAFETY: the kernel has written uc_stack: ss_sp, ss_flags, ss_size, a word each. For a thread without such a stack
    // it writes size 0, and not always SS_DISABLE.
    let (disabled, size) = unsafe {
        let stack = ucontext.cast::<u8>().add(UCONTEXT_STACK as usize);
        (stack.add(8).cast::<i32>().read() & SS_DISABLE != 0, stack.add(16).cast::<u64>().read())
    };
    if flags & libc::SA_ONSTACK != 0 && !disabled && size != 0 && size < enough() {
        bit(sampling())
    } else {
        0
    }
}

/// The disposition to install in the kernel when the program's own one of `signal` is `action`.
pub fn adjust(signal: c_int, mut action: Disposition) -> Disposition {
    let this = bit(signal);
    let handles = action.handler != libc::SIG_DFL && action.handler != libc::SIG_IGN;
    WIDENED.fetch_and(!this, Ordering::Relaxed);
    if handles && action.flags & libc::SA_ONSTACK != 0 {
        ON_STACK.fetch_or(this, Ordering::Relaxed);
        if OF_GOROUTINES.contains(&signal) && !NEEDED.swap(true, Ordering::Relaxed) {
            handler::install();
        }
        if SMALL.load(Ordering::Relaxed) && action.mask & bit(sampling()) == 0 && !ending::has_begun() {
            action.mask |= bit(sampling());
            WIDENED.fetch_or(this, Ordering::Relaxed);
        }
    } else {
        ON_STACK.fetch_and(!this, Ordering::Relaxed);
    }
    if handles && !ending::has_begun() {
        noted::adjust(signal, action)
    } else {
        action
    }
}

/// Called when the program changes its disposition of `signal` by a call that has no flags (signal(2) and related
/// functions).
pub fn forget(signal: c_int) {
    if (1..=64).contains(&signal) && process::process().is_some() && process::is_own() {
        ON_STACK.fetch_and(!bit(signal), Ordering::Relaxed);
        WIDENED.fetch_and(!bit(signal), Ordering::Relaxed);
    }
}

/// The disposition that the program sees where the kernel reports `action`: without our additions.
pub fn hide(signal: c_int, mut action: Disposition) -> Disposition {
    if WIDENED.load(Ordering::Relaxed) & bit(signal) != 0 {
        action.mask &= !bit(sampling());
    }
    noted::hide(signal, action)
}

/// Adjusts the handlers that were installed before the recording began, or before the first small stack was set.
fn widen_all() {
    for signal in 1..=64 {
        let this = bit(signal);
        if dispositions::is_virtual(signal)
            || signal == libc::SIGKILL
            || signal == libc::SIGSTOP
            || (32..34).contains(&signal)
        {
            continue;
        }
        // SAFETY: valid structures; all-zero is SIG_DFL.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            if real::sigaction(signal, core::ptr::null(), &raw mut action) != 0 {
                continue;
            }
            let current = Disposition::from_c(&action);
            let is_widened = WIDENED.load(Ordering::Relaxed) & this != 0;
            let wanted = if is_widened { current } else { adjust(signal, hide(signal, current)) };
            if wanted != current {
                let wanted = wanted.to_c();
                real::sigaction(signal, &raw const wanted, core::ptr::null_mut());
            }
        }
    }
}

/// Whether we added the sampling signal to the mask of this signal's handler. Clears the mark.
pub fn take_widened(signal: c_int) -> bool {
    WIDENED.fetch_and(!bit(signal), Ordering::Relaxed) & bit(signal) != 0
}

/// Interposed [sigaltstack(2)](https://man7.org/linux/man-pages/man2/sigaltstack.2.html).
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
            if let Some(slot) = slots::own() {
                slot.alternate_low.store(new.ss_sp as u64, Ordering::Relaxed);
                slot.alternate_size.store(if set { new.ss_size as u64 } else { 0 }, Ordering::Relaxed);
            }
            let small = set && (new.ss_size as u64) < enough();
            if small && !SMALL.swap(true, Ordering::Relaxed) {
                widen_all();
            }
        }
    }
    result
}
