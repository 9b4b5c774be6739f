//! AArch64: the entry of syscall(2).

/// The instructions of the interposed function: jumps to `$futex` for futex(2), to what `$next` has for every other
/// number, to `$plain` if that is null. Registers and stack are the caller's, but for x16 and x17, which calls between
/// objects may change.
macro_rules! enter {
    ($futex:ident, $next:ident, $plain:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "hint #34",
            "cmp x0, #{number}",
            "b.eq {futex}",
            "adrp x16, {next}",
            "ldr x16, [x16, :lo12:{next}]",
            "cbz x16, {plain}",
            "br x16",
            ".cfi_endproc",
            number = const uunwind_core::syscall::nr::FUTEX,
            futex = sym $futex,
            next = sym $next,
            plain = sym $plain,
        )
    };
}

pub(crate) use enter;
