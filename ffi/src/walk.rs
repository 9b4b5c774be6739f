//! `uu_walk`: the whole stack of the calling thread, for C.

use crate::capture::Caller;
use core::ffi::c_int;
use uunwind_core::cursor::Cursor;
use uunwind_core::errno::{EINVAL, ENOMEM};
use uunwind_core::regs::Regs;
use uunwind_stacks::request::Request;
use uunwind_stacks::walk::{whole, How, Refused};

/// The C entry: stores the caller's registers as `uu_capture` does, and calls [`walked`]. `uu.h` documents it.
///
/// # Safety
/// `request` must be null or a valid `uu_request`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_walk(request: *mut Request) -> c_int {
    // Without a ucontext, the current frame is the caller's, as it is when this call returns.
    core::arch::naked_asm!(
        ".cfi_startproc",
        // Another copy of the library, if that is the process's one.
        "mov rax, [rip + {elsewhere}]",
        "test rax, rax",
        "jnz 2f",
        "mov rax, [rsp]",
        "lea r8, [rsp + 8]",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        "push r15",
        ".cfi_adjust_cfa_offset 8",
        "push r14",
        ".cfi_adjust_cfa_offset 8",
        "push r13",
        ".cfi_adjust_cfa_offset 8",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        "push r8",
        ".cfi_adjust_cfa_offset 8",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "mov rsi, rsp",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {walked}",
        "add rsp, 72",
        ".cfi_adjust_cfa_offset -72",
        "ret",
        "2:",
        "jmp rax",
        ".cfi_endproc",
        walked = sym walked,
        elsewhere = sym crate::home::WALK,
    )
}

/// As on x86-64.
///
/// # Safety
/// As on x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_walk(request: *mut Request) -> c_int {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "adrp x9, {elsewhere}",
        "ldr x9, [x9, :lo12:{elsewhere}]",
        "cbnz x9, 2f",
        "sub sp, sp, #128",
        ".cfi_adjust_cfa_offset 128",
        "add x9, sp, #128",
        "stp x30, x9, [sp]",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp x29, x30, [sp, #96]",
        ".cfi_rel_offset x30, 104",
        "mov x1, sp",
        "bl {walked}",
        "ldr x30, [sp, #104]",
        "add sp, sp, #128",
        ".cfi_adjust_cfa_offset -128",
        ".cfi_restore x30",
        "ret",
        "2:",
        "br x9",
        ".cfi_endproc",
        walked = sym walked,
        elsewhere = sym crate::home::WALK,
    )
}

/// The walk, from the C entry.
///
/// # Safety
/// `request` must be null or a valid `uu_request`, `caller` the entry's registers.
pub(crate) unsafe extern "C" fn walked(request: *mut Request, caller: *const Caller) -> c_int {
    // SAFETY: null, or the C caller's.
    let cfas = unsafe { Request::cfas(request) };
    // SAFETY: null, or the C caller's.
    let Some(request) = (unsafe { request.as_mut() }) else { return -EINVAL };
    if !request.is_valid() || !cfas.addr().is_multiple_of(8) || !cfas.is_null() && request.frames.is_null() {
        return -EINVAL;
    }
    request.begin();
    // SAFETY: the entry's registers.
    let caller = unsafe { &*caller };
    let cursor = if request.ucontext.is_null() {
        Cursor { regs: caller.regs(), exact: false }
    } else {
        // SAFETY: the C caller passes the ucontext that its signal handler got.
        Cursor { regs: unsafe { Regs::from_ucontext(request.ucontext) }, exact: true }
    };
    let guarded = !request.is_probed() && crate::faults::handled();
    let how = How { guarded, trusting: request.trusts_plugins(), with_cfas: !cfas.is_null() };
    // SAFETY: the registers of the caller, or of the interrupted code, whose frames exist until this call returns.
    // The request's buffer and callback are the C caller's.
    let walked = unsafe { whole(cursor, caller.sp, how, &mut |walked| request.take_with_cfas(walked, cfas)) };
    let Err(refused) = walked else { return 0 };
    request.stop = refused.stop().number();
    if refused == Refused::NoMemory {
        return -ENOMEM;
    }
    0
}
