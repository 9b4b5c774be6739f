//! x86-64: the entry of syscall(2).

/// The instructions of the interposed function: jumps to `$futex` for futex(2), to what `$next` has for every other
/// number, to `$plain` if that is null. Registers and stack are the caller's, rax (for variadic functions) included.
macro_rules! enter {
    ($futex:ident, $next:ident, $plain:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "endbr64",
            "cmp rdi, {number}",
            "je {futex}",
            "mov r11, [rip + {next}]",
            "test r11, r11",
            "jz {plain}",
            "jmp r11",
            ".cfi_endproc",
            number = const uunwind_core::syscall::nr::FUTEX,
            futex = sym $futex,
            next = sym $next,
            plain = sym $plain,
        )
    };
}

pub(crate) use enter;
