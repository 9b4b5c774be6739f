//! x86-64.

use crate::events::Caller;
use crate::signals::field;
use core::ffi::c_int;
use uunwind_core::regs::UCONTEXT_PC;

/// Upper limit of the stack that the handler, a walk and a plugin use together, in bytes. The aim is 4 KiB, which a
/// test measures.
pub const HANDLER_STACK: u64 = 5 * 1024;
/// Index, in words from what `register_frame`'s entries pass on, of their return address. The word after it is the one
/// that `invoke` keeps, if it is that which called.
pub const RETURN_ADDRESS: usize = 0;

/// The flag (SA_RESTORER) that glibc sets on every action, and does not remove from what sigaction(2) reports
/// ([libc_sigaction.c](https://github.com/bminor/glibc/blob/glibc-2.40/sysdeps/unix/sysv/linux/libc_sigaction.c)).
pub const SET_BY_LIBC: c_int = 0x0400_0000;

/// Whether the thread was in a system call: the `syscall` instruction leaves the pc after it in rcx.
///
/// # Safety
/// The kernel's ucontext.
pub unsafe fn is_in_system_call(ucontext: *const u8) -> bool {
    /// `uc_mcontext.gregs[REG_RCX]`.
    const UCONTEXT_RCX: usize = 40 + 14 * 8;
    // SAFETY: both lie in every ucontext.
    unsafe { field::<u64>(ucontext, UCONTEXT_RCX) == field::<u64>(ucontext, UCONTEXT_PC as usize) }
}

/// Size in bytes of the signal frame that contains this ucontext, and so of the next one on this thread. `None`: the
/// frame does not contain its size.
///
/// AT_MINSIGSTKSZ is the largest frame of this CPU. With AMX that is 8 KiB more than the frame of a thread that has not
/// used AMX, and more than the alternate stacks of Rust's runtime have free. The kernel writes the size of the extended
/// state into each frame (`struct _fpx_sw_bytes`,
/// [asm/sigcontext.h](https://github.com/torvalds/linux/blob/v6.12/arch/x86/include/uapi/asm/sigcontext.h)).
///
/// # Safety
/// `ucontext` must be the kernel's, of a handler that now runs.
pub unsafe fn frame_of(ucontext: *const u8) -> Option<u64> {
    const FPSTATE: usize = 224;
    const SW_BYTES: usize = 464;
    const MAGIC: u32 = 0x4650_5853;
    // Return address, ucontext, siginfo, and the padding that aligns them and the state.
    const REST: u64 = 768;
    // SAFETY: the kernel's ucontext; its state has at least the 512 bytes of FXSAVE.
    unsafe {
        let state = ucontext.add(FPSTATE).cast::<*const u8>().read_unaligned();
        if state.is_null() || state.add(SW_BYTES).cast::<u32>().read_unaligned() != MAGIC {
            return None;
        }
        Some(u64::from(state.add(SW_BYTES + 4).cast::<u32>().read_unaligned()) + REST)
    }
}

/// Defines a signal handler in assembly that calls a function with its own arguments. If that returns 0, the handler
/// returns; otherwise it jumps to the returned handler, with the same arguments and flags. Meanwhile alignment checks
/// (AC of RFLAGS), which the kernel leaves as the program has them, are off: compilers count on that.
macro_rules! signal_entry {
    ($entry:ident, $meaning:ident) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.", stringify!($entry), ",\"ax\",@progbits"),
            concat!(".hidden ", stringify!($entry)),
            concat!(".globl ", stringify!($entry)),
            concat!(".type ", stringify!($entry), ",@function"),
            ".balign 16",
            concat!(stringify!($entry), ":"),
            ".cfi_startproc",
            "pushfq",
            ".cfi_adjust_cfa_offset 8",
            "pushfq",
            ".cfi_adjust_cfa_offset 8",
            "and dword ptr [rsp], 0xfffbffff",
            "popfq",
            ".cfi_adjust_cfa_offset -8",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdx",
            ".cfi_adjust_cfa_offset 8",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "call {meaning}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "test rax, rax",
            "je 1f",
            "popfq",
            ".cfi_adjust_cfa_offset -8",
            "jmp rax",
            "1:",
            ".cfi_adjust_cfa_offset 8",
            "popfq",
            ".cfi_adjust_cfa_offset -8",
            "ret",
            ".cfi_endproc",
            concat!(".size ", stringify!($entry), ", .-", stringify!($entry)),
            ".popsection",
            meaning = sym $meaning,
        );
        extern "C" {
            fn $entry(signal: core::ffi::c_int, info: *mut libc::siginfo_t, ucontext: *mut core::ffi::c_void);
        }
    };
}

/// Defines the start function of new threads: it calls a function with its argument, and jumps to the function that
/// this returns, with the argument that it returns: in rax and rdx.
macro_rules! thread_trampoline {
    ($entry:ident, $taken:ident) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.", stringify!($entry), ",\"ax\",@progbits"),
            concat!(".hidden ", stringify!($entry)),
            concat!(".globl ", stringify!($entry)),
            concat!(".type ", stringify!($entry), ",@function"),
            ".balign 16",
            concat!(stringify!($entry), ":"),
            ".cfi_startproc",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "call {taken}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "mov rdi, rdx",
            "jmp rax",
            ".cfi_endproc",
            concat!(".size ", stringify!($entry), ", .-", stringify!($entry)),
            ".popsection",
            taken = sym $taken,
        );
    };
}

/// The instructions of an interposed function of three arguments at most: calls `{before}` with `{number}` and the
/// address of the arguments and of the return address after them; jumps to the function that it returns.
#[cfg(not(feature = "no-entry-points"))]
macro_rules! jump_after {
    ($number:literal, $before:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "sub rsp, 24",
            ".cfi_adjust_cfa_offset 24",
            "mov [rsp], rdi",
            "mov [rsp + 8], rsi",
            "mov [rsp + 16], rdx",
            "mov edi, {number}",
            "mov rsi, rsp",
            "call {before}",
            "mov rdi, [rsp]",
            "mov rsi, [rsp + 8]",
            "mov rdx, [rsp + 16]",
            "add rsp, 24",
            ".cfi_adjust_cfa_offset -24",
            "jmp rax",
            ".cfi_endproc",
            number = const $number,
            before = sym $before,
        )
    };
}

/// The instructions of an interposed function of four arguments at most: `$call` gets its number as fifth argument, and
/// as sixth where its return address is ([`RETURN_ADDRESS`]).
#[cfg(not(feature = "no-entry-points"))]
macro_rules! call_with_place {
    ($number:literal, $call:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "mov r8d, {number}",
            "mov r9, rsp",
            "jmp {call}",
            ".cfi_endproc",
            number = const $number,
            call = sym $call,
        )
    };
}

/// The instructions of a function that calls its first argument with the other four, and keeps it on the stack above
/// the return address.
#[cfg(not(feature = "no-entry-points"))]
macro_rules! call_and_keep {
    () => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "mov rax, rdi",
            "mov rdi, rsi",
            "mov rsi, rdx",
            "mov rdx, rcx",
            "mov rcx, r8",
            "call rax",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "ret",
            ".cfi_endproc",
        )
    };
}

/// Offsets of registers in a ucontext: `gregs` from 40 on, REG_R12 = 4 ... REG_RIP = 16, of
/// [ucontext.h](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/unix/sysv/linux/x86/sys/ucontext.h).
const R12: usize = 40 + 8 * 4;
const R13: usize = R12 + 8;
const R14: usize = R13 + 8;
const R15: usize = R14 + 8;
const RBP: usize = 40 + 8 * 10;
const RBX: usize = RBP + 8;
const RSP: usize = 40 + 8 * 15;
const RIP: usize = RSP + 8;

/// Stores the registers of the function that it is inlined into in a ucontext; the unwind information at the stored pc
/// leads to that function's callers.
///
/// # Safety
/// `place` must be valid for a ucontext's general registers.
#[inline(always)]
pub unsafe fn store_registers(place: *mut u8) {
    // SAFETY: as the caller says.
    unsafe {
        core::arch::asm!(
            "lea {pc}, [rip + 2f]",
            "2:",
            "mov [{at} + {rip}], {pc}",
            "mov [{at} + {rsp}], rsp",
            "mov [{at} + {rbp}], rbp",
            "mov [{at} + {rbx}], rbx",
            "mov [{at} + {r12}], r12",
            "mov [{at} + {r13}], r13",
            "mov [{at} + {r14}], r14",
            "mov [{at} + {r15}], r15",
            at = in(reg) place,
            pc = out(reg) _,
            rip = const RIP, rsp = const RSP, rbp = const RBP, rbx = const RBX,
            r12 = const R12, r13 = const R13, r14 = const R14, r15 = const R15,
            options(nostack, preserves_flags),
        );
    }
}

/// Stores the registers of a frame in a ucontext.
///
/// # Safety
/// As [`store_registers`].
pub unsafe fn store_caller(place: *mut u8, caller: &Caller) {
    let [r12, r13, r14, r15] = caller.others;
    for (offset, value) in [
        (RIP, caller.pc),
        (RSP, caller.sp),
        (RBP, caller.rbp),
        (RBX, caller.rbx),
        (R12, r12),
        (R13, r13),
        (R14, r14),
        (R15, r15),
    ] {
        // SAFETY: as the caller says.
        unsafe { place.add(offset).cast::<u64>().write_unaligned(value) };
    }
}

/// Defines the handler of the injected sampler, which turns alignment checks (AC of RFLAGS) off, as that of the
/// preloaded one does; and the restorer, which lies beside it, so that a thread that is about to leave our handler is
/// seen to be inside this object.
macro_rules! injected_entry {
    ($entry:ident, $restorer:ident, $on_tick:ident) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.", stringify!($entry), ",\"ax\",@progbits"),
            concat!(".hidden ", stringify!($entry)),
            concat!(".globl ", stringify!($entry)),
            concat!(".type ", stringify!($entry), ",@function"),
            ".balign 16",
            concat!(stringify!($entry), ":"),
            ".cfi_startproc",
            "pushfq",
            ".cfi_adjust_cfa_offset 8",
            "and dword ptr [rsp], 0xfffbffff",
            "popfq",
            ".cfi_adjust_cfa_offset -8",
            "jmp {on_tick}",
            ".cfi_endproc",
            concat!(".size ", stringify!($entry), ", .-", stringify!($entry)),
            concat!(".hidden ", stringify!($restorer)),
            concat!(".globl ", stringify!($restorer)),
            concat!(".type ", stringify!($restorer), ",@function"),
            "nop",
            concat!(stringify!($restorer), ":"),
            "mov rax, 15",
            "syscall",
            concat!(".size ", stringify!($restorer), ", .-", stringify!($restorer)),
            ".popsection",
            on_tick = sym $on_tick,
        );
    };
}

#[cfg(not(feature = "no-entry-points"))]
pub(crate) use {call_and_keep, call_with_place, jump_after};
pub(crate) use {injected_entry, signal_entry, thread_trampoline};
