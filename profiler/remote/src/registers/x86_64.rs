//! x86-64.

use uunwind_core::regs::{Regs, COUNT};

/// Registers of a stopped thread, as `PTRACE_GETREGSET` with `NT_PRSTATUS` returns them
/// (<https://github.com/torvalds/linux/blob/v6.1/arch/x86/include/uapi/asm/ptrace.h>).
pub type Registers = libc::user_regs_struct;

/// DWARF numbers of the first two arguments of a system call: rdi, rsi.
pub const ARGUMENTS: [u8; 2] = [5, 4];
/// Offset of the first block of specific values in glibc's struct pthread.
pub const TSD_OFFSET: u64 = 0x310;

/// Address of the next instruction.
pub fn pc(registers: &Registers) -> u64 {
    registers.rip
}

/// The stack pointer.
pub fn sp(registers: &Registers) -> u64 {
    registers.rsp
}

/// The thread pointer.
pub fn thread_pointer(registers: &Registers) -> u64 {
    registers.fs_base
}

/// The number of the system call that a stopped thread is in; negative: of none.
pub fn call_number(registers: &Registers) -> i64 {
    registers.orig_rax as i64
}

/// What a system call returns, at its end.
pub fn result(registers: &Registers) -> i64 {
    registers.rax as i64
}

/// The first three arguments of a system call.
pub fn arguments(registers: &Registers) -> [u64; 3] {
    [registers.rdi, registers.rsi, registers.rdx]
}

/// Sets what the system call returns that a stopped thread is in, in its registers and here. If that fails, the thread
/// is gone.
pub fn set_result(tid: u32, registers: &mut Registers, result: u64) {
    registers.rax = result;
    let at = std::mem::offset_of!(Registers, rax);
    // SAFETY: the value is passed itself; no pointer is.
    let _ = unsafe { libc::ptrace(libc::PTRACE_POKEUSER, tid as libc::pid_t, at, result as usize) };
}

/// The registers in DWARF order.
pub fn regs(r: &Registers) -> Regs {
    let values: [u64; COUNT] =
        [r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15];
    Regs::full(r.rip, values)
}
