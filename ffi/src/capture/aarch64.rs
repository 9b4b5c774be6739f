//! AArch64: the C entry.

use super::unwind;
use uunwind_core::regs::{Regs, CALLEE_SAVED};

/// As on x86-64.
///
/// # Safety
/// As on x86-64.
#[unsafe(naked)]
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_capture(frames: *mut u64, capacity: usize, ucontext: *const u8, stop: *mut u16) -> usize {
    core::arch::naked_asm!(
        ".cfi_startproc",
        // Another copy of the library, if that is the process's one.
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
        "mov x4, sp",
        "bl {unwind}",
        "ldr x30, [sp, #104]",
        "add sp, sp, #128",
        ".cfi_adjust_cfa_offset -128",
        ".cfi_restore x30",
        "ret",
        "2:",
        "br x9",
        ".cfi_endproc",
        unwind = sym unwind,
        elsewhere = sym crate::home::CAPTURE,
    )
}

/// The callee-saved registers at the call, as the assembly stored them.
#[repr(C)]
pub(crate) struct Caller {
    pub(super) pc: u64,
    pub(crate) sp: u64,
    saved: [u64; CALLEE_SAVED.len()],
}

impl Caller {
    pub(crate) fn regs(&self) -> Regs {
        let mut regs = Regs::new(self.pc, self.sp, 0);
        for (register, value) in CALLEE_SAVED.into_iter().zip(self.saved) {
            regs.set(register, value);
        }
        regs
    }
}
