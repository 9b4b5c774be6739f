//! The code of the gate, which `uu` copies into pages of its own (`uunwind_ring::gate`).
//!
//! It refers to nothing but those pages, relative to itself. A frame pointer leads past it, since nothing describes it.
//! A thread counts as inside until a hook has returned to the gate: so whoever takes the hooks away and then finds all
//! counters at 0 knows that no thread is in the sampler's code.

use uunwind_ring::gate::{AFTER, AROUND, BEFORE, CALLED, FRAME, HOOKS, INSIDE, STUB, VARIANTS};

/// Where the code lies in this object.
#[repr(C)]
pub struct Place {
    begin: *const u8,
    end: *const u8,
}

// SAFETY: addresses of code, which never changes.
unsafe impl Sync for Place {}

extern "C" {
    static uu_gate_begin: u8;
    static uu_gate_end: u8;
}

/// For `uu`, which reads it in the object's file.
#[cfg_attr(panic = "abort", no_mangle)]
#[allow(non_upper_case_globals, reason = "a symbol of the object, as its functions")]
pub static uu_injected_gate: Place = Place { begin: &raw const uu_gate_begin, end: &raw const uu_gate_end };

core::arch::global_asm!(
    ".pushsection .text.uu_gate,\"ax\",@progbits",
    ".balign 64",
    ".hidden uu_gate_begin",
    ".globl uu_gate_begin",
    ".hidden uu_gate_end",
    ".globl uu_gate_end",
    // A stub: `endbr64; mov r11d, INDEX; jmp COMMON`.
    ".macro uu_gate_stubs count, common",
    ".rept \\count",
    ".balign {stub}, 0xcc",
    "endbr64",
    ".byte 0x41, 0xbb",
    ".long uu_gate_index",
    "jmp \\common",
    ".set uu_gate_index, uu_gate_index + 1",
    ".endr",
    ".endm",
    // The frame, with the arguments and the registers that a walk begins with.
    ".macro uu_gate_frame",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, {frame}",
    "mov [rsp], r11",
    "mov [rsp + 8], rdi",
    "mov [rsp + 16], rsi",
    "mov [rsp + 24], rdx",
    "mov [rsp + 32], rcx",
    "mov [rsp + 40], r8",
    "mov [rsp + 48], r9",
    "mov [rsp + 80], rbx",
    "mov [rsp + 88], r12",
    "mov [rsp + 96], r13",
    "mov [rsp + 104], r14",
    "mov [rsp + 112], r15",
    ".endm",
    ".macro uu_gate_arguments",
    "mov rdi, [rsp + 8]",
    "mov rsi, [rsp + 16]",
    "mov rdx, [rsp + 24]",
    "mov rcx, [rsp + 32]",
    "mov r8, [rsp + 40]",
    "mov r9, [rsp + 48]",
    ".endm",
    // Calls a hook, if there is one: the thread is counted before it is looked at again, so that nobody who has taken
    // it away meanwhile finds the counter at 0.
    ".macro uu_gate_hook at",
    "cmp qword ptr [rip + uu_gate_begin + {hooks} + \\at], 0",
    "je 3f",
    "mov r10d, fs:[0]",
    "shr r10d, 12",
    "imul r10d, r10d, -1640531535",
    "shr r10d, 26",
    "shl r10d, 6",
    "lea rax, [rip + uu_gate_begin + {inside}]",
    "add rax, r10",
    "mov [rsp + 120], rax",
    "lock inc dword ptr [rax]",
    "mov rax, [rip + uu_gate_begin + {hooks} + \\at]",
    "test rax, rax",
    "je 2f",
    "mov rdi, rsp",
    "call rax",
    "2:",
    "mov rax, [rsp + 120]",
    "lock dec dword ptr [rax]",
    "3:",
    ".endm",
    // What the stub calls, in r11.
    ".macro uu_gate_called",
    "mov r11, [rsp]",
    "lea rax, [rip + uu_gate_begin + {called} + 8]",
    "mov r11, [rax + r11 * 8]",
    ".endm",
    "uu_gate_begin:",
    ".set uu_gate_index, 0",
    "uu_gate_stubs {after}, uu_gate_after",
    "uu_gate_stubs {around}, uu_gate_around",
    "uu_gate_stubs {before}, uu_gate_before",
    ".balign 16, 0xcc",
    "uu_gate_after:",
    "uu_gate_frame",
    "uu_gate_called",
    "call r11",
    "mov [rsp + 56], rax",
    "uu_gate_hook 8",
    "mov rax, [rsp + 56]",
    "leave",
    "ret",
    ".balign 16, 0xcc",
    "uu_gate_around:",
    "uu_gate_frame",
    "mov qword ptr [rsp + 64], 0",
    "mov qword ptr [rsp + 72], 0",
    "uu_gate_hook 0",
    "uu_gate_arguments",
    "uu_gate_called",
    "call r11",
    "mov [rsp + 56], rax",
    "uu_gate_hook 8",
    "mov rax, [rsp + 56]",
    "leave",
    "ret",
    ".balign 16, 0xcc",
    "uu_gate_before:",
    "uu_gate_frame",
    "uu_gate_hook 0",
    "uu_gate_arguments",
    "uu_gate_called",
    "leave",
    "jmp r11",
    "uu_gate_end:",
    ".purgem uu_gate_stubs",
    ".purgem uu_gate_frame",
    ".purgem uu_gate_arguments",
    ".purgem uu_gate_hook",
    ".purgem uu_gate_called",
    ".popsection",
    stub = const STUB,
    frame = const FRAME,
    hooks = const HOOKS,
    inside = const INSIDE,
    called = const CALLED,
    after = const AFTER * VARIANTS,
    around = const AROUND * VARIANTS,
    before = const BEFORE * VARIANTS,
);
