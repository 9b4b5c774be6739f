//! x86-64: what stands before operators new and delete. All of it keeps the arguments, which are at most three, and
//! hands the operator on in r11.

/// The instructions of the function that programs call: goes on where the operator with this index says.
macro_rules! enter {
    ($all:path, $index:literal) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "endbr64",
            "lea r11, [rip + {all} + {index} * {bytes}]",
            "jmp [r11]",
            ".cfi_endproc",
            all = sym $all,
            index = const $index,
            bytes = const crate::operators::BYTES,
        )
    };
}

/// Asks `$find` for where the operator's calls go on, and goes on there.
macro_rules! find {
    ($find:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "endbr64",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdx",
            ".cfi_adjust_cfa_offset 8",
            "push r11",
            ".cfi_adjust_cfa_offset 8",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "mov rdi, r11",
            "call {find}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "pop r11",
            ".cfi_adjust_cfa_offset -8",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "jmp rax",
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
            "endbr64",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "push rdi",
            "push rsi",
            "push rdx",
            "push r11",
            "call {enters}",
            "mov r11, [rsp]",
            "mov rdx, [rsp + 8]",
            "mov rsi, [rsp + 16]",
            "mov rdi, [rsp + 24]",
            "call [r11 + 8]",
            "mov rdi, rax",
            "mov rsi, [rsp + 24]",
            "call {made}",
            "leave",
            ".cfi_def_cfa rsp, 8",
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
            "endbr64",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdx",
            ".cfi_adjust_cfa_offset 8",
            "push r11",
            ".cfi_adjust_cfa_offset 8",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "call {gone}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "pop r11",
            ".cfi_adjust_cfa_offset -8",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "jmp [r11 + 8]",
            ".cfi_endproc",
            gone = sym $gone,
        )
    };
}

pub(crate) use {delete, enter, find, new};
