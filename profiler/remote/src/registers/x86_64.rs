//! x86-64.

use uunwind_core::regs::{Regs, COUNT};

/// Registers of a stopped thread, as `PTRACE_GETREGSET` with `NT_PRSTATUS` returns them
/// (<https://github.com/torvalds/linux/blob/v6.1/arch/x86/include/uapi/asm/ptrace.h>).
pub type Registers = libc::user_regs_struct;

/// DWARF numbers of the first two arguments of a system call: rdi, rsi.
pub const ARGUMENTS: [u8; 2] = [5, 4];
/// Offset of the first block of specific values in glibc's struct pthread.
pub const TSD_OFFSET: u64 = 0x310;
/// Bytes of `struct elf_prstatus`.
pub const PRSTATUS: usize = 336;

/// Where the first block of specific values may lie, from the thread pointer.
pub fn tsd_offsets() -> impl Iterator<Item = u64> {
    [TSD_OFFSET].into_iter()
}

/// The registers of a thread that stands still, traced by the calling thread.
pub fn read(tid: u32) -> Option<Registers> {
    // SAFETY: integers only.
    let mut registers: Registers = unsafe { std::mem::zeroed() };
    let mut part = libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of::<Registers>() };
    let kind = libc::NT_PRSTATUS as usize;
    // SAFETY: the request fills the part, which lives during the call.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, tid as libc::pid_t, kind, &raw mut part) };
    (result == 0 && part.iov_len == size_of::<Registers>()).then_some(registers)
}

/// From the note `NT_PRSTATUS` of a core file.
pub fn of_prstatus(bytes: &[u8; PRSTATUS]) -> Option<Registers> {
    let registers = bytes.get(112..112 + size_of::<Registers>())?;
    // SAFETY: integers only, and as many bytes as the structure has.
    Some(unsafe { std::ptr::read_unaligned(registers.as_ptr().cast::<Registers>()) })
}

/// Takes over what another note of a core file says of the same thread: `NT_PRSTATUS` has said all.
pub fn add_note(_: &mut Registers, _kind: u32, _: &[u8; 16]) {}

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

/// The general registers and the two segment bases, by their names in gdb.
pub fn named(r: &Registers) -> Vec<(String, u64)> {
    let named = [
        ("rip", r.rip),
        ("rsp", r.rsp),
        ("rbp", r.rbp),
        ("rax", r.rax),
        ("rbx", r.rbx),
        ("rcx", r.rcx),
        ("rdx", r.rdx),
        ("rsi", r.rsi),
        ("rdi", r.rdi),
        ("r8", r.r8),
        ("r9", r.r9),
        ("r10", r.r10),
        ("r11", r.r11),
        ("r12", r.r12),
        ("r13", r.r13),
        ("r14", r.r14),
        ("r15", r.r15),
        ("eflags", r.eflags),
        ("fs_base", r.fs_base),
        ("gs_base", r.gs_base),
    ];
    named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
