//! Stacks of other threads of the process, and crash reports, for the program itself.
//!
//! ```text
//! threads   the stack of another thread, by a signal; all threads
//! report    crash reports: what is written, when, and what happens afterwards
//! signals   sigaction, siginfo, signal sets
//! system    the system calls that both use
//! ```
//! A signal room: everything may be used in a handler, unless it says otherwise. No memory is allocated but by mmap(2),
//! and none is given back: whoever was asked may still write.
#![cfg_attr(not(test), no_std)]

pub mod report;
pub mod signals;
pub mod system;
pub mod threads;

use core::sync::atomic::{AtomicPtr, Ordering};

/// What this room needs of the library around it.
#[derive(Debug)]
pub struct Host {
    /// Whether faults of guarded reads are handled in this process, so that walks may read without probing.
    pub handles_faults: fn() -> bool,
    /// Mends a fault of a guarded read, or brings a walk of the calling thread back from a fault in it, by a change of
    /// the interrupted context. False: the fault is another one.
    pub mend: unsafe fn(ucontext: *mut u8) -> bool,
    /// Where the handler at this address is the library's own of faults (`uu_handle_faults`): the handler that it calls
    /// for this signal, or 0 (SIG_DFL) or 1 (SIG_IGN). `None`: it is another one.
    pub chained: fn(signal: core::ffi::c_int, handler: usize) -> Option<usize>,
    /// `uu_capture`: the native stack of an interrupted context, also inside a walk.
    pub capture: unsafe extern "C" fn(*mut u64, usize, *const u8, *mut u16) -> usize,
}

static HOST: AtomicPtr<Host> = AtomicPtr::new(core::ptr::null_mut());

/// What the library around this room can do. To be set before anything else is called.
pub fn set_host(host: &'static Host) {
    HOST.store(core::ptr::from_ref(host).cast_mut(), Ordering::Release);
}

fn host() -> Option<&'static Host> {
    // SAFETY: null, or a static.
    unsafe { HOST.load(Ordering::Acquire).as_ref() }
}
