//! A way back: a call that a fault or a loop can be brought back from, without setjmp.
//!
//! [`call`] stores the stack pointer in the slot, sets `armed` and calls. A fault handler, or a nested sampling signal,
//! that finds the slot armed rewrites the interrupted context with [`Recovery::redirect`]; after its sigreturn the
//! thread goes on behind the call, with a reason.

use crate::regs::{GREG_RIP, GREG_RSP, UCONTEXT_GREGS};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

/// Deepest that a protected call's stack may reach, in bytes, two signal frames included.
const DEPTH: u64 = 64 * 1024;

/// State of one thread's recovery point. Only its own thread touches it.
#[repr(C)]
#[derive(Debug)]
pub struct Recovery {
    sp: AtomicU64,
    armed: AtomicU64,
    reason: AtomicU64,
}

core::arch::global_asm!(
    ".pushsection .text.uu_protected_call,\"ax\",@progbits",
    ".hidden uu_protected_call",
    ".globl uu_protected_call",
    ".type uu_protected_call,@function",
    ".balign 16",
    "uu_protected_call:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbp, 0",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r12, 0",
    "push r13",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r13, 0",
    "push r14",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r14, 0",
    "push r15",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r15, 0",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "mov [rdi], rsp",
    "mov qword ptr [rdi + 8], 1",
    "mov rdi, rdx",
    "call rsi",
    "mov rdi, [rsp]",
    "xor eax, eax",
    "jmp 1f",
    ".hidden uu_protected_recover",
    ".globl uu_protected_recover",
    "uu_protected_recover:",
    // Entered by sigreturn, with rsp as stored above; every other register is whatever the abandoned code left.
    "cld",
    "mov rdi, [rsp]",
    "mov rax, [rdi + 16]",
    "1:",
    "mov qword ptr [rdi + 8], 0",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "pop r15",
    ".cfi_adjust_cfa_offset -8",
    "pop r14",
    ".cfi_adjust_cfa_offset -8",
    "pop r13",
    ".cfi_adjust_cfa_offset -8",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    "pop rbp",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".size uu_protected_call, .-uu_protected_call",
    ".popsection",
);

extern "C" {
    fn uu_protected_call(
        recovery: &Recovery,
        function: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    ) -> u64;
    static uu_protected_recover: u8;
}

/// Calls `function(argument)`. `Ok` when it returned; `Err(reason)` when [`Recovery::redirect`] brought the thread back.
///
/// # Safety
/// `function` may be left at any instruction: it must hold no lock and leave nothing half done that anybody relies on.
/// `recovery` must belong to the calling thread and not be armed.
pub unsafe fn call(
    recovery: &Recovery,
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> Result<(), u64> {
    // SAFETY: as above; the assembly keeps the callee-saved registers of the System V ABI.
    match unsafe { uu_protected_call(recovery, function, argument) } {
        0 => Ok(()),
        reason => Err(reason),
    }
}

impl Recovery {
    /// A point that is not armed.
    pub const fn new() -> Recovery {
        Recovery { sp: AtomicU64::new(0), armed: AtomicU64::new(0), reason: AtomicU64::new(0) }
    }

    /// Whether a protected call is under way on this thread.
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed) != 0
    }

    /// Forgets a call that was left in another way.
    pub fn disarm(&self) {
        self.armed.store(0, Ordering::Relaxed);
    }

    /// Rewrites an interrupted context so that the thread goes on behind its protected call, which returns
    /// `Err(reason)`. False, and the context as it was, when no call is under way. A call is under way only while the
    /// stack is deeper than its frame, and not by much: one that was left in another way (a handler of the program that
    /// interrupted it by a sent signal may siglongjmp) is forgotten here.
    ///
    /// # Safety
    /// `ucontext` must be the context of a signal that interrupted this very thread, inside the protected call.
    pub unsafe fn redirect(&self, ucontext: *mut u8, reason: u64) -> bool {
        if !self.is_armed() || reason == 0 {
            return false;
        }
        // SAFETY: the caller vouches for the context; rsp lies in gregs.
        let sp = unsafe { ucontext.add(UCONTEXT_GREGS as usize).cast::<u64>().add(GREG_RSP as usize).read() };
        let depth = self.sp.load(Ordering::Relaxed).wrapping_sub(sp);
        if depth > DEPTH {
            self.disarm();
            return false;
        }
        self.reason.store(reason, Ordering::Relaxed);
        // SAFETY: the caller vouches for the context; both registers lie in gregs.
        unsafe {
            let gregs = ucontext.add(UCONTEXT_GREGS as usize).cast::<u64>();
            gregs.add(GREG_RIP as usize).write(&raw const uu_protected_recover as u64);
            gregs.add(GREG_RSP as usize).write(self.sp.load(Ordering::Relaxed));
        }
        true
    }
}

impl Default for Recovery {
    fn default() -> Self {
        Recovery::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn double(x: *mut c_void) {
        // SAFETY: the test passes a u64.
        unsafe { *x.cast::<u64>() *= 2 };
    }

    #[test]
    fn a_call_that_returns_is_ok_and_disarms() {
        let recovery = Recovery::new();
        let mut x = 21u64;
        // SAFETY: `double` touches only x.
        let r = unsafe { call(&recovery, double, core::ptr::from_mut(&mut x).cast()) };
        assert_eq!((r, x, recovery.is_armed()), (Ok(()), 42, false));
        let mut context = [0u8; 1024];
        // SAFETY: not armed, so the context is not touched.
        assert!(!unsafe { recovery.redirect(context.as_mut_ptr(), 1) });
        assert!(context.iter().all(|b| *b == 0));
    }
}
