//! The signal that a thread sends itself, from one instruction that the handler recognises.
//!
//! Where the signal is not blocked, the kernel delivers it before that system call returns: the interrupted code is
//! this function then, and not what asked for a stack. So the registers of the caller of `uu_trigger` are passed
//! through the system call, in a register of its fifth argument, which this call does not have.

use core::ffi::c_void;
use uunwind_core::cursor::Cursor;
use uunwind_core::regs::{Regs, UCONTEXT_PC};
use uunwind_crashes::signals::SigInfo;

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.uu_deferred_send,\"ax\",@progbits",
    ".globl uu_deferred_send, uu_deferred_sent",
    ".hidden uu_deferred_send, uu_deferred_sent",
    ".type uu_deferred_send, @function",
    "uu_deferred_send:",
    ".cfi_startproc",
    "mov r10, rcx",
    "mov eax, {number}",
    "syscall",
    "uu_deferred_sent:",
    "ret",
    ".cfi_endproc",
    ".size uu_deferred_send, . - uu_deferred_send",
    ".popsection",
    number = const uunwind_core::syscall::nr::RT_TGSIGQUEUEINFO,
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.uu_deferred_send,\"ax\",@progbits",
    ".globl uu_deferred_send, uu_deferred_sent",
    ".hidden uu_deferred_send, uu_deferred_sent",
    ".type uu_deferred_send, @function",
    "uu_deferred_send:",
    ".cfi_startproc",
    "mov x8, {number}",
    "svc #0",
    "uu_deferred_sent:",
    "ret",
    ".cfi_endproc",
    ".size uu_deferred_send, . - uu_deferred_send",
    ".popsection",
    number = const uunwind_core::syscall::nr::RT_TGSIGQUEUEINFO,
);

/// DWARF number of the register of the fifth argument: r8, x4.
const PASSED: u8 = if cfg!(target_arch = "x86_64") { 8 } else { 4 };

/// Purpose of the signal, as its handler sees it.
pub const PURPOSE: u64 = 1;

extern "C" {
    /// rt_tgsigqueueinfo(2), with one argument more.
    fn uu_deferred_send(pid: usize, tid: usize, signal: usize, info: *const SigInfo, from: *const c_void) -> isize;
    /// The instruction after its system call.
    static uu_deferred_sent: u8;
}

/// Sends the calling thread a signal. `from`: the frame that asked, which is active until this returns. 0, or a
/// negative errno.
pub fn to_self(pid: u32, tid: u32, info: &SigInfo, from: &Regs) -> isize {
    // SAFETY: a valid siginfo; the registers are read by our handler only.
    unsafe { uu_deferred_send(pid as usize, tid as usize, info.signo as usize, info, core::ptr::from_ref(from).cast()) }
}

/// The frame that asked, if the signal's handler has interrupted [`to_self`] just after its system call.
///
/// # Safety
/// `ucontext` must be a handler's that is running.
pub unsafe fn asked_from(ucontext: *const u8) -> Option<Cursor> {
    // SAFETY: the kernel's context.
    let pc = unsafe { ucontext.add(UCONTEXT_PC as usize).cast::<u64>().read() };
    if pc != &raw const uu_deferred_sent as u64 {
        return None;
    }
    // SAFETY: as above.
    let regs = unsafe { Regs::from_ucontext(ucontext) };
    let from = regs.get(PASSED)?;
    // SAFETY: at this instruction the register has the address of what `to_self` was called with, and that call has
    // not returned.
    let regs = unsafe { *(from as *const Regs) };
    Some(Cursor { regs, exact: false })
}
