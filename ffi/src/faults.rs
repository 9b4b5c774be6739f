//! `uu_handle_faults`: guarded reads, and contained faults of plugins, for programs that have no sampler.
//!
//! Without it every page is asked for with a system call before it is read. With it, the signals of faults come to us
//! first: a fault of one of our loads is mended, one of a plugin that a walk calls ends that call, and everything else
//! goes to the handler that was there before, or has its default action.

use crate::library::on_fault;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use uunwind_core::errno::{EBUSY, EIO};
use uunwind_core::syscall::{self, nr};

/// `struct sigaction` (glibc, x86-64 and AArch64).
#[repr(C)]
#[derive(Clone, Copy)]
struct SigAction {
    handler: usize,
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

extern "C" {
    fn sigaction(signal: c_int, new: *const SigAction, old: *mut SigAction) -> c_int;
}

/// SIGILL, SIGBUS, SIGFPE and SIGSEGV (asm-generic/signal.h): what an instruction raises that fails.
const SIGNALS: [c_int; 4] = [4, 7, 8, 11];
const SA_SIGINFO: c_int = 4;
const SA_ONSTACK: c_int = 0x0800_0000;
const SA_NODEFER: c_int = 0x4000_0000;
const SA_RESETHAND: c_int = 0x8000_0000_u32 as c_int;
const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;

const OFF: u32 = 0;
const INSTALLING: u32 = 1;
const ON: u32 = 2;
static STATE: AtomicU32 = AtomicU32::new(OFF);

/// The dispositions before ours, in the order of [`SIGNALS`].
struct Before(UnsafeCell<[MaybeUninit<SigAction>; SIGNALS.len()]>);
// SAFETY: an entry is written while STATE is INSTALLING, before our handler of its signal is installed, which reads it.
unsafe impl Sync for Before {}
static BEFORE: Before = Before(UnsafeCell::new([MaybeUninit::uninit(); SIGNALS.len()]));
/// An earlier handler with SA_RESETHAND has run: from then on the disposition before ours is the default one.
static SPENT: [AtomicBool; SIGNALS.len()] = [const { AtomicBool::new(false) }; SIGNALS.len()];

/// Whether reads may be guarded.
pub fn handled() -> bool {
    STATE.load(Ordering::Acquire) == ON
}

/// In the child of a fork: a thread of the parent that was installing handlers does not go on here.
pub fn after_fork() {
    // Not written to otherwise: the child would get a page of its own.
    if STATE.load(Ordering::Acquire) == INSTALLING {
        STATE.store(OFF, Ordering::Release);
    }
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_handle_faults() -> c_int {
    if let Some(home) = crate::home::elsewhere() {
        return (home.handle_faults)();
    }
    match STATE.compare_exchange(OFF, INSTALLING, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {}
        Err(ON) => return 0,
        Err(_) => return -EBUSY,
    }
    let installed = SIGNALS.into_iter().enumerate().take_while(|(index, signal)| install(*index, *signal)).count();
    if installed < SIGNALS.len() {
        for (index, signal) in SIGNALS.into_iter().enumerate().take(installed) {
            // SAFETY: a valid structure, which `install` has written.
            unsafe {
                sigaction(signal, before(index).map_or(core::ptr::null(), core::ptr::from_ref), core::ptr::null_mut())
            };
        }
        STATE.store(OFF, Ordering::Release);
        return -EIO;
    }
    STATE.store(ON, Ordering::Release);
    0
}

/// Puts our handler in front of the disposition that a signal has. False: the kernel refuses.
fn install(index: usize, signal: c_int) -> bool {
    let mut was = SigAction { handler: SIG_DFL, mask: [0; 16], flags: 0, restorer: 0 };
    // SAFETY: a place for the answer.
    if unsafe { sigaction(signal, core::ptr::null(), &raw mut was) } != 0 {
        return false;
    }
    let ours = handler as *const () as usize;
    if was.handler == ours {
        // An earlier call was interrupted by a fork in another thread, and has come as far as here.
        return true;
    }
    // SAFETY: this call alone holds INSTALLING.
    let Some(place) = (unsafe { &mut *BEFORE.0.get() }).get_mut(index) else { return false };
    place.write(was);
    // The flags that the earlier handler relies on are kept. Ours must stay after its first fault, and is entered again
    // for a fault of a load in a walk of that handler's own.
    let keep = if was.handler > SIG_IGN { was.flags & !SA_RESETHAND } else { SA_ONSTACK };
    let new = SigAction { handler: ours, mask: was.mask, flags: keep | SA_SIGINFO | SA_NODEFER, restorer: 0 };
    // SAFETY: a valid structure.
    unsafe { sigaction(signal, &raw const new, core::ptr::null_mut()) == 0 }
}

/// The disposition before ours.
fn before(index: usize) -> Option<&'static SigAction> {
    // SAFETY: written before our handler was installed, and not changed since.
    unsafe { Some((*BEFORE.0.get()).get(index)?.assume_init_ref()) }
}

/// The handler that ours calls for this signal, or SIG_DFL or SIG_IGN, if `installed` is ours; else `None`.
/// Async-signal-safe.
pub fn chained(signal: c_int, installed: usize) -> Option<usize> {
    if installed != handler as *const () as usize {
        return None;
    }
    let index = SIGNALS.into_iter().position(|ours| ours == signal)?;
    let is_spent = SPENT.get(index)?.load(Ordering::Relaxed);
    Some(if is_spent { SIG_DFL } else { before(index)?.handler })
}

unsafe extern "C" fn handler(signal: c_int, info: *mut c_void, ucontext: *mut c_void) {
    // SAFETY: the kernel passes a siginfo (si_code at 8). Only codes above 0 come from an instruction (sigaction(2)).
    let sent = unsafe { info.cast::<c_int>().add(2).read() } <= 0;
    // SAFETY: the kernel passes a ucontext.
    if !sent && unsafe { on_fault(ucontext.cast(), false) } {
        return;
    }
    let Some(index) = SIGNALS.into_iter().position(|ours| ours == signal) else { return };
    let (Some(before), Some(spent)) = (before(index), SPENT.get(index)) else { return };
    if before.handler <= SIG_IGN || spent.load(Ordering::Relaxed) {
        // A fault is never ignored: the kernel makes it fatal.
        if !(sent && before.handler == SIG_IGN) {
            // SAFETY: the kernel's siginfo.
            unsafe { default_action(signal, info, before, sent) };
        }
        return;
    }
    if before.flags & SA_RESETHAND != 0 {
        spent.store(true, Ordering::Relaxed);
    }
    // SAFETY: the program installed this function for this signal; without SA_SIGINFO it ignores two arguments.
    unsafe {
        core::mem::transmute::<usize, unsafe extern "C" fn(c_int, *mut c_void, *mut c_void)>(before.handler)(
            signal, info, ucontext,
        );
    }
}

/// Makes the default action come, which ends the process: a fault happens again when the handler returns to its
/// instruction; a signal that was sent is sent again, with its siginfo.
///
/// # Safety
/// `info` must be the kernel's siginfo.
unsafe fn default_action(signal: c_int, info: *mut c_void, before: &SigAction, sent: bool) {
    let default = SigAction { handler: SIG_DFL, flags: before.flags & !SA_RESETHAND, ..*before };
    // SAFETY: a valid structure.
    unsafe { sigaction(signal, &raw const default, core::ptr::null_mut()) };
    if sent {
        let (process, thread) = (syscall::getpid() as usize, syscall::gettid() as usize);
        // SAFETY: rt_tgsigqueueinfo(2) reads the siginfo. A process may send itself any code.
        unsafe { syscall::call(nr::RT_TGSIGQUEUEINFO, [process, thread, signal as usize, info as usize, 0, 0]) };
    }
}
