//! `uu_handle_faults`: guarded reads for programs that have no sampler.
//!
//! Without it every page is asked for with a system call before it is read. With it, SIGSEGV and SIGBUS come to us
//! first; a fault of one of our loads is mended, everything else goes to whoever handled it before.

use crate::library::on_fault;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};
use uunwind_core::errno::{EBUSY, EIO};

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

const SIGBUS: c_int = 7;
const SIGSEGV: c_int = 11;
const SA_SIGINFO: c_int = 4;
const SA_ONSTACK: c_int = 0x0800_0000;
const SA_NODEFER: c_int = 0x4000_0000;
const SIG_IGN: usize = 1;

const OFF: u32 = 0;
const INSTALLING: u32 = 1;
const ON: u32 = 2;
static STATE: AtomicU32 = AtomicU32::new(OFF);

struct Before(UnsafeCell<[MaybeUninit<SigAction>; 2]>);
// SAFETY: written once, while STATE is INSTALLING; read after it is ON.
unsafe impl Sync for Before {}
static BEFORE: Before = Before(UnsafeCell::new([MaybeUninit::uninit(); 2]));

/// Whether reads may be guarded.
pub fn handled() -> bool {
    STATE.load(Ordering::Acquire) == ON
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
    // SAFETY: this call alone holds INSTALLING.
    let before = unsafe { &mut *BEFORE.0.get() };
    for (signal, old) in [SIGSEGV, SIGBUS].into_iter().zip(before) {
        let mut was = SigAction { handler: 0, mask: [0; 16], flags: 0, restorer: 0 };
        // SAFETY: valid structures. The flags that the earlier handler relies on are kept.
        let failed = unsafe {
            sigaction(signal, core::ptr::null(), &raw mut was) != 0 || {
                old.write(was);
                let keep = if was.handler > SIG_IGN { was.flags } else { SA_ONSTACK };
                let new = SigAction {
                    handler: handler as *const () as usize,
                    mask: was.mask,
                    flags: keep | SA_SIGINFO | SA_NODEFER,
                    restorer: 0,
                };
                sigaction(signal, &raw const new, core::ptr::null_mut()) != 0
            }
        };
        if failed {
            STATE.store(OFF, Ordering::Release);
            return -EIO;
        }
    }
    STATE.store(ON, Ordering::Release);
    0
}

unsafe extern "C" fn handler(signal: c_int, info: *mut c_void, ucontext: *mut c_void) {
    // SAFETY: the kernel passes a siginfo (si_code at 8) and a ucontext.
    if unsafe { info.cast::<c_int>().add(2).read() > 0 && on_fault(ucontext.cast(), false) } {
        return;
    }
    // SAFETY: the handler was installed after BEFORE was written.
    let before = unsafe { &*BEFORE.0.get() };
    let index = usize::from(signal == SIGBUS);
    let Some(before) = before.get(index) else { return };
    // SAFETY: as above.
    let before = unsafe { before.assume_init_ref() };
    if before.handler <= SIG_IGN {
        // The default action ends the process: put it back, and return to the instruction that faulted.
        let default = SigAction { handler: 0, ..*before };
        // SAFETY: a valid structure.
        unsafe { sigaction(signal, &raw const default, core::ptr::null_mut()) };
        return;
    }
    // SAFETY: the program installed this function for this signal; without SA_SIGINFO it ignores two arguments.
    unsafe {
        core::mem::transmute::<usize, unsafe extern "C" fn(c_int, *mut c_void, *mut c_void)>(before.handler)(
            signal, info, ucontext,
        );
    }
}
