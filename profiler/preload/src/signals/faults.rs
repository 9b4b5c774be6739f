//! SIGSEGV, SIGBUS, SIGFPE and SIGILL: a walk's own first, then the program's.

use super::chain;
use super::host;
use crate::process;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use uunwind_core::memory::guarded;

/// The signals of this file.
pub const SIGNALS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// Takes a fault signal over from the program, or renews our flags after the program changed its own.
///
/// On the alternate stack, where there is one, so that a walk that overflows its stack can be brought back; unless the
/// program handles this signal and did not ask for that.
pub fn install(signal: c_int) -> bool {
    let host = host::get(signal);
    let has_handler = host.handler != libc::SIG_DFL && host.handler != libc::SIG_IGN;
    let on_stack = if has_handler { host.flags & libc::SA_ONSTACK } else { libc::SA_ONSTACK };
    let restart = if has_handler { host.flags & libc::SA_RESTART } else { libc::SA_RESTART };
    // Our own signal waits: its frame would come on top of this one, on a stack that may have no room for both.
    let mask = super::handler_mask() | super::bit(super::SAMPLING);
    chain::install(signal, uu_fault_entry, on_stack | restart | libc::SA_NODEFER, mask)
}

/// What a fault signal means: 0 when it is dealt with, else the program's handler, to be entered in place of ours.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, ucontext: *mut c_void) -> usize {
    // SAFETY: the kernel passes a siginfo. A fault has a positive code; a sent signal is never a walk's.
    let from_fault = unsafe { (*info).si_code } > 0;
    // SAFETY: the kernel passes a ucontext.
    if from_fault && unsafe { guarded::mend(ucontext.cast()) } {
        return 0;
    }
    if let (true, Some(process)) = (from_fault, process::process()) {
        // SAFETY: the kernel passes a ucontext.
        if unsafe { (process.library.on_fault)(ucontext.cast(), super::interrupted_handler(ucontext.cast())) } {
            if let Some(block) = process::block() {
                block.faults_contained.fetch_add(1, Ordering::Relaxed);
            }
            return 0;
        }
    }
    // What was sent while a walk is under way waits for its end: the program's handler may never come back to it.
    // SAFETY: the kernel's ucontext.
    if !from_fault && unsafe { crate::handler::put_off(signal, info, ucontext.cast()) } {
        return 0;
    }
    // SAFETY: the handler's own arguments; a walk's fault was taken above.
    unsafe { chain::deliver(signal, info, ucontext) }
}

chain::entry!(uu_fault_entry, on_fault);
