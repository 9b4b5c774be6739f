//! C entries whose current frame may be their caller's: they store its registers, as `uu_walk` does, and call a
//! function that gets them as its sixth argument, after the C arguments (at most five).

/// Defines an entry. `$elsewhere`: the same entry of another copy of the library, if that is the process's one.
macro_rules! entry_with_caller {
    (
        $(#[$attribute:meta])*
        $name:ident($($argument:ident: $type:ty),*) -> $inner:path, $elsewhere:path
    ) => {
        $(#[$attribute])*
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> core::ffi::c_int {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "mov rax, [rip + {elsewhere}]",
                "test rax, rax",
                "jnz 2f",
                "mov rax, [rsp]",
                "lea r10, [rsp + 8]",
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
                "push r10",
                ".cfi_adjust_cfa_offset 8",
                "push rax",
                ".cfi_adjust_cfa_offset 8",
                "mov r9, rsp",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call {inner}",
                "add rsp, 72",
                ".cfi_adjust_cfa_offset -72",
                "ret",
                "2:",
                "jmp rax",
                ".cfi_endproc",
                inner = sym $inner,
                elsewhere = sym $elsewhere,
            )
        }

        $(#[$attribute])*
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        #[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> core::ffi::c_int {
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
                "mov x5, sp",
                "bl {inner}",
                "ldr x30, [sp, #104]",
                "add sp, sp, #128",
                ".cfi_adjust_cfa_offset -128",
                ".cfi_restore x30",
                "ret",
                "2:",
                "br x9",
                ".cfi_endproc",
                inner = sym $inner,
                elsewhere = sym $elsewhere,
            )
        }
    };
}
pub(crate) use entry_with_caller;
