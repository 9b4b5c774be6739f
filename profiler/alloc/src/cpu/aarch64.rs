//! AArch64: what stands before operators new and delete. All of it keeps the arguments, which are at most three, and
//! hands the operator on in x16.

/// The instructions of the function that programs call: goes on where the operator with this index says.
macro_rules! enter {
    ($all:path, $index:literal) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "hint #34",
            "adrp x16, {all}",
            "add x16, x16, :lo12:{all}",
            "add x16, x16, #{index} * {bytes}",
            // What was stored before it is seen after it.
            "ldar x17, [x16]",
            "br x17",
            ".cfi_endproc",
            all = sym $all,
            index = const $index,
            bytes = const crate::operators::BYTES,
        )
    };
}

/// Keeps the arguments, the operator and the return address in a frame.
macro_rules! frame {
    () => {
        concat!(
            "stp x29, x30, [sp, #-48]!\n",
            ".cfi_def_cfa_offset 48\n",
            ".cfi_offset x29, -48\n",
            ".cfi_offset x30, -40\n",
            "mov x29, sp\n",
            "stp x0, x1, [sp, #16]\n",
            "stp x2, x16, [sp, #32]\n",
        )
    };
}

/// Takes them out again, and leaves the frame.
macro_rules! leave {
    () => {
        concat!(
            "ldp x0, x1, [sp, #16]\n",
            "ldp x2, x16, [sp, #32]\n",
            "ldp x29, x30, [sp], #48\n",
            ".cfi_def_cfa_offset 0\n",
            ".cfi_restore x29\n",
            ".cfi_restore x30\n",
        )
    };
}

/// Asks `$find` for where the operator's calls go on, and goes on there.
macro_rules! find {
    ($find:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "hint #34",
            crate::cpu::frame!(),
            "mov x0, x16",
            "bl {find}",
            "mov x17, x0",
            crate::cpu::leave!(),
            "br x17",
            ".cfi_endproc",
            find = sym $find,
        )
    };
}

/// An operator new: calls `$enters`, the real one, and `$made` with what that has returned and the size. An exception
/// passes this frame, and has `$passed` called.
macro_rules! new {
    ($enters:path, $made:path, $passed:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            // DW_EH_PE_pcrel | DW_EH_PE_sdata4
            ".cfi_personality 0x1b, {passed}",
            "hint #34",
            crate::cpu::frame!(),
            "bl {enters}",
            "ldp x0, x1, [sp, #16]",
            "ldp x2, x16, [sp, #32]",
            "ldr x16, [x16, #8]",
            "blr x16",
            "ldr x1, [sp, #16]",
            "bl {made}",
            "ldp x29, x30, [sp], #48",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            enters = sym $enters,
            made = sym $made,
            passed = sym $passed,
        )
    };
}

/// An operator delete: calls `$gone` with the block, and goes on at the real one.
macro_rules! delete {
    ($gone:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "hint #34",
            crate::cpu::frame!(),
            "bl {gone}",
            crate::cpu::leave!(),
            "ldr x17, [x16, #8]",
            "br x17",
            ".cfi_endproc",
            gone = sym $gone,
        )
    };
}

pub(crate) use {delete, enter, find, frame, leave, new};
