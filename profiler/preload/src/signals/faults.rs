//! SIGSEGV, SIGBUS, SIGFPE and SIGILL: faults of a walk are contained, all others are delivered to the program. One
//! that ends the process leaves a last sample; so does SIGABRT, which is taken over for that alone.

use super::{deferred, deliver, dispositions};
use crate::{handler, process};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use uunwind_core::memory::guarded;

/// The signals that a fault of a walk raises.
pub const OF_WALKS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
/// The signals that are taken over from the program: those, and one for its last sample alone, which stays blocked in
/// walks.
pub const SIGNALS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT];

/// Installs our handler of a fault signal, or updates its flags after the program changed its own disposition. False:
/// the kernel refused.
///
/// It runs on the alternate stack, if the thread has one, so that a walk that overflows the stack can be recovered;
/// unless the program handles this signal without SA_ONSTACK.
pub fn install(signal: c_int) -> bool {
    let programs = dispositions::get(signal);
    let has_handler = programs.handler != libc::SIG_DFL && programs.handler != libc::SIG_IGN;
    let on_stack = if has_handler { programs.flags & libc::SA_ONSTACK } else { libc::SA_ONSTACK };
    let restart = if has_handler { programs.flags & libc::SA_RESTART } else { libc::SA_RESTART };
    // The sampling signal is masked: its frame would follow this one on a stack that may not hold both.
    let mask = super::handler_mask() | super::bit(super::sampling());
    deliver::install(signal, uu_fault_entry, on_stack | restart | libc::SA_NODEFER, mask)
}

/// Handles a fault signal. Returns 0 when nothing is left to do, otherwise the program's handler, to be entered in
/// place of ours.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, ucontext: *mut c_void) -> usize {
    // SAFETY: the kernel passes a siginfo. A fault has a positive code
    // (https://man7.org/linux/man-pages/man2/sigaction.2.html); a signal that was sent is never a fault of a walk.
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
    // A signal that was sent during a walk waits for its end: the program's handler may never return to the walk.
    // SAFETY: the kernel's ucontext.
    if !from_fault && unsafe { deferred::defer(signal, info, ucontext.cast()) } {
        return 0;
    }
    if deliver::is_fatal(signal, from_fault) {
        // SAFETY: the kernel's ucontext.
        unsafe { handler::on_fatal(signal, ucontext.cast()) };
    }
    // SAFETY: the handler's own arguments; faults of a walk were handled above.
    unsafe { deliver::to_program(signal, info, ucontext) }
}

crate::cpu::signal_entry!(uu_fault_entry, on_fault);
