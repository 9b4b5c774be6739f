//! AArch64. Each entry begins with `bti c` (hint #34), which CPUs without it pass over. Jumps go by x16: a target that
//! begins with `bti c` takes those, too.

use crate::events::Caller;
use crate::signals::field;
use core::ffi::c_int;
use uunwind_core::memory::Reader;
use uunwind_core::regs::{ucontext_offset, SIGFRAME_UCONTEXT, UCONTEXT_PC};

/// Upper limit of the stack that the handler, a walk and a plugin use together, in bytes. A rule has three words here
/// and a frame 33 registers: twice what x86-64 has.
pub const HANDLER_STACK: u64 = 8 * 1024;
/// Index, in words from what `register_frame`'s entries pass on, of their return address. The word after it is the one
/// that `invoke` keeps, if it is that which called.
pub const RETURN_ADDRESS: usize = 1;

/// The flags that glibc adds to every action: none, since the vDSO has what handlers return to.
pub const SET_BY_LIBC: c_int = 0;

/// Whether the thread was in a system call: the instruction before the pc is `svc #0`.
///
/// # Safety
/// The kernel's ucontext.
pub unsafe fn is_in_system_call(ucontext: *const u8) -> bool {
    const SVC: u32 = 0xd400_0001;
    // SAFETY: it lies in every ucontext.
    let pc = unsafe { field::<u64>(ucontext, UCONTEXT_PC as usize) };
    Reader::probed().u32(pc.wrapping_sub(4)) == Some(SVC)
}

/// Size in bytes of the signal frame that contains this ucontext, and so of the next one on this thread. `None`: its
/// records are not as the kernel writes them.
///
/// The frame has 4 KiB for records of the CPU's state; if they need more, as those of wide SVE registers do, one of
/// them says where the others are (`struct extra_context`,
/// [asm/sigcontext.h](https://github.com/torvalds/linux/blob/v6.12/arch/arm64/include/uapi/asm/sigcontext.h)).
///
/// # Safety
/// `ucontext` must be the kernel's, of a handler that now runs.
pub unsafe fn frame_of(ucontext: *const u8) -> Option<u64> {
    /// Records come in any order; there are a dozen kinds.
    const RECORDS: usize = 32;
    const RESERVED: usize = (ucontext_offset(31) as usize + 3 * 8).next_multiple_of(16);
    const RESERVED_BYTES: usize = 4096;
    const EXTRA: u32 = 0x4558_5401;
    // The frame record below, and the padding that aligns both.
    const REST: u64 = 48;
    let siginfo = SIGFRAME_UCONTEXT as u64;
    let mut at = RESERVED;
    for _ in 0..RECORDS {
        if at + 32 > RESERVED + RESERVED_BYTES {
            return None;
        }
        // SAFETY: inside the records of the kernel's ucontext.
        let (magic, size) = unsafe { (field::<u32>(ucontext, at), field::<u32>(ucontext, at + 4)) };
        match magic {
            0 => return Some(siginfo + (RESERVED + RESERVED_BYTES) as u64 + REST),
            EXTRA => {
                // SAFETY: as above.
                let (data, bytes) = unsafe { (field::<u64>(ucontext, at + 8), field::<u32>(ucontext, at + 16)) };
                let above = data.checked_sub(ucontext as u64)?.checked_add(u64::from(bytes))?;
                return above.checked_add(siginfo + REST);
            }
            _ if size < 8 || size as usize > RESERVED_BYTES => return None,
            _ => at += size as usize,
        }
    }
    None
}

/// Defines a signal handler in assembly that calls a function with its own arguments. If that returns 0, the handler
/// returns; otherwise it jumps to the returned handler, with the same arguments.
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
            "hint #34",
            "stp x29, x30, [sp, #-48]!",
            ".cfi_adjust_cfa_offset 48",
            ".cfi_rel_offset x29, 0",
            ".cfi_rel_offset x30, 8",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "bl {meaning}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldr x2, [sp, #32]",
            "ldp x29, x30, [sp], #48",
            ".cfi_adjust_cfa_offset -48",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "cbz x16, 1f",
            "br x16",
            "1:",
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
/// this returns, with the argument that it returns: in x0 and x1.
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
            "hint #34",
            "stp x29, x30, [sp, #-16]!",
            ".cfi_adjust_cfa_offset 16",
            ".cfi_rel_offset x29, 0",
            ".cfi_rel_offset x30, 8",
            "mov x29, sp",
            "bl {taken}",
            "ldp x29, x30, [sp], #16",
            ".cfi_adjust_cfa_offset -16",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "mov x16, x0",
            "mov x0, x1",
            "br x16",
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
            "hint #34",
            "stp x0, x1, [sp, #-32]!",
            ".cfi_adjust_cfa_offset 32",
            "stp x2, x30, [sp, #16]",
            ".cfi_rel_offset x30, 24",
            "mov x0, #{number}",
            "mov x1, sp",
            "bl {before}",
            "mov x16, x0",
            "ldp x2, x30, [sp, #16]",
            ".cfi_restore x30",
            "ldp x0, x1, [sp], #32",
            ".cfi_adjust_cfa_offset -32",
            "br x16",
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
            "hint #34",
            "stp x29, x30, [sp, #-16]!",
            ".cfi_adjust_cfa_offset 16",
            ".cfi_rel_offset x29, 0",
            ".cfi_rel_offset x30, 8",
            "mov w4, #{number}",
            "mov x5, sp",
            "bl {call}",
            "ldp x29, x30, [sp], #16",
            ".cfi_adjust_cfa_offset -16",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            number = const $number,
            call = sym $call,
        )
    };
}

/// The instructions of a function that calls its first argument with the other four, and keeps it where the stack
/// pointer is meanwhile.
#[cfg(not(feature = "no-entry-points"))]
macro_rules! call_and_keep {
    () => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "stp x0, x30, [sp, #-16]!",
            ".cfi_adjust_cfa_offset 16",
            ".cfi_rel_offset x30, 8",
            "mov x16, x0",
            "mov x0, x1",
            "mov x1, x2",
            "mov x2, x3",
            "mov x3, x4",
            "blr x16",
            "ldr x30, [sp, #8]",
            "add sp, sp, #16",
            ".cfi_adjust_cfa_offset -16",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
        )
    };
}

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
            "adr {pc}, 2f",
            "2:",
            "stp x19, x20, [{at}, #8 * 19]",
            "stp x21, x22, [{at}, #8 * 21]",
            "stp x23, x24, [{at}, #8 * 23]",
            "stp x25, x26, [{at}, #8 * 25]",
            "stp x27, x28, [{at}, #8 * 27]",
            "stp x29, x30, [{at}, #8 * 29]",
            "mov {sp}, sp",
            "stp {sp}, {pc}, [{at}, #8 * 31]",
            at = in(reg) place.add(ucontext_offset(0) as usize),
            pc = out(reg) _,
            sp = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Stores the registers of a frame in a ucontext: those of this function, because no sampler is put into running
/// processes of this CPU so far, and only that has frames of others.
///
/// # Safety
/// As [`store_registers`].
#[inline(always)]
pub unsafe fn store_caller(place: *mut u8, _: &Caller) {
    // SAFETY: passed on.
    unsafe { store_registers(place) };
}

/// Defines the handler of the injected sampler, and the restorer, which lies beside it, so that a thread that is about
/// to leave our handler is seen to be inside this object.
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
            "hint #34",
            "b {on_tick}",
            ".cfi_endproc",
            concat!(".size ", stringify!($entry), ", .-", stringify!($entry)),
            concat!(".hidden ", stringify!($restorer)),
            concat!(".globl ", stringify!($restorer)),
            concat!(".type ", stringify!($restorer), ",@function"),
            "nop",
            concat!(stringify!($restorer), ":"),
            "mov x8, #139",
            "svc #0",
            concat!(".size ", stringify!($restorer), ", .-", stringify!($restorer)),
            ".popsection",
            on_tick = sym $on_tick,
        );
    };
}

#[cfg(not(feature = "no-entry-points"))]
pub(crate) use {call_and_keep, call_with_place, jump_after};
pub(crate) use {injected_entry, signal_entry, thread_trampoline};
