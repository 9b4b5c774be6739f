//! AArch64.

use uunwind_core::regs::{pac_mask, Regs, COUNT};

/// Register sets of threads, for ptrace(2) and in core files
/// (<https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/elf.h>).
const NT_ARM_TLS: u32 = 0x401;
const NT_ARM_PAC_MASK: u32 = 0x406;
/// Bytes of the general registers: x0 to x30, sp, pc, pstate.
const GENERAL: usize = 34 * 8;
/// `svc #0`.
const SVC: u32 = 0xd400_0001;
/// What the kernel returns to itself where a system call is to be restarted whatever happens.
const ERESTARTNOINTR: i64 = 513;

/// Registers of a stopped thread.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    /// x0 to x30, sp, pc, pstate: `struct user_pt_regs`
    /// (<https://github.com/torvalds/linux/blob/v6.1/arch/arm64/include/uapi/asm/ptrace.h>).
    general: [u64; GENERAL / 8],
    thread_pointer: u64,
    /// The bits of a signed code address that hold its authentication code; 0: addresses are not signed.
    pac_mask: u64,
    /// The system call that the thread is in; -1: none.
    call: i64,
    /// Its result.
    result: i64,
}

/// DWARF numbers of the first two arguments of a system call: x0, x1.
pub const ARGUMENTS: [u8; 2] = [0, 1];
/// Bytes of `struct elf_prstatus`.
pub const PRSTATUS: usize = 392;

/// Where the first block of specific values may lie in glibc's struct pthread, which ends at the thread pointer: as
/// distances from that.
pub fn tsd_offsets() -> impl Iterator<Item = u64> {
    (0x200..0x800u64).step_by(8).map(|below| 0u64.wrapping_sub(below))
}

/// The registers of a thread that stands still, traced by the calling thread.
///
/// The kernel has already prepared a system call that the stop has interrupted for being repeated: pc is at its
/// instruction, and x0 is the argument again. One that ends with EINTR instead, whatever the stop was, cannot be
/// repeated: its first argument is lost.
pub fn read(tid: u32) -> Option<Registers> {
    let mut registers = Registers::of([0; GENERAL / 8]);
    // SAFETY: both are of integers.
    unsafe {
        get(tid, libc::NT_PRSTATUS as u32, (&raw mut registers.general).cast(), GENERAL)?;
        get(tid, NT_ARM_TLS, (&raw mut registers.thread_pointer).cast(), 8)?;
    }
    registers.pac_mask = pac_mask();
    let instruction = |at: u64| {
        // SAFETY: the word is returned; -1 where nothing is mapped, which is no such instruction.
        let word = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, tid as libc::pid_t, at & !7, 0) } as u64;
        (word >> (8 * (at & 4))) as u32
    };
    let (pc, x0) = (pc(&registers), registers.x(0) as i64);
    if instruction(pc) == SVC {
        (registers.call, registers.result) = (registers.x(8) as i64, -ERESTARTNOINTR);
    } else if x0 == -i64::from(libc::EINTR) && instruction(pc.wrapping_sub(4)) == SVC {
        (registers.call, registers.result) = (registers.x(8) as i64, x0);
    }
    Some(registers)
}

/// Reads a register set of exactly this number of bytes.
///
/// # Safety
/// `place` must have room for it, and any bytes must be valid there.
unsafe fn get(tid: u32, kind: u32, place: *mut libc::c_void, bytes: usize) -> Option<()> {
    let mut part = libc::iovec { iov_base: place, iov_len: bytes };
    // SAFETY: the request fills the part, which lives during the call.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, tid as libc::pid_t, kind as usize, &raw mut part) };
    (result == 0 && part.iov_len == bytes).then_some(())
}

/// From the note `NT_PRSTATUS` of a core file.
pub fn of_prstatus(bytes: &[u8; PRSTATUS]) -> Option<Registers> {
    let (words, _) = bytes.get(112..112 + GENERAL)?.as_chunks::<8>();
    let mut general = [0; GENERAL / 8];
    general.iter_mut().zip(words).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    Some(Registers::of(general))
}

/// Takes over what another note of a core file says of the same thread.
pub fn add_note(registers: &mut Registers, kind: u32, bytes: &[u8; 16]) {
    let word = |at: usize| bytes.get(at..at + 8).and_then(|bytes| bytes.first_chunk()).map(|b| u64::from_le_bytes(*b));
    match kind {
        NT_ARM_TLS => registers.thread_pointer = word(0).unwrap_or(0),
        // struct user_pac_mask: of data addresses, of code addresses.
        NT_ARM_PAC_MASK => registers.pac_mask = word(8).unwrap_or(0),
        _ => {}
    }
}

impl Registers {
    fn of(general: [u64; GENERAL / 8]) -> Registers {
        Registers { general, thread_pointer: 0, pac_mask: 0, call: -1, result: 0 }
    }

    fn x(&self, number: usize) -> u64 {
        self.general.get(number).copied().unwrap_or(0)
    }
}

/// Address of the next instruction.
pub fn pc(registers: &Registers) -> u64 {
    registers.x(32)
}

/// The stack pointer.
pub fn sp(registers: &Registers) -> u64 {
    registers.x(31)
}

/// The thread pointer.
pub fn thread_pointer(registers: &Registers) -> u64 {
    registers.thread_pointer
}

/// The number of the system call that a stopped thread is in; negative: of none.
pub fn call_number(registers: &Registers) -> i64 {
    registers.call
}

/// What a system call returns, at its end.
pub fn result(registers: &Registers) -> i64 {
    registers.result
}

/// The first three arguments of a system call.
pub fn arguments(registers: &Registers) -> [u64; 3] {
    [registers.x(0), registers.x(1), registers.x(2)]
}

/// What the system call returns that a stopped thread is in stays as it is: see [`read`].
pub fn set_result(_tid: u32, _registers: &mut Registers, _result: u64) {}

/// The registers in DWARF order.
pub fn regs(r: &Registers) -> Regs {
    let mut values = [0; COUNT];
    values.iter_mut().zip(r.general).for_each(|(value, word)| *value = word);
    Regs::full(pc(r) & !r.pac_mask, values).with_pac_mask(r.pac_mask)
}

/// The registers by their names in gdb.
pub fn named(r: &Registers) -> Vec<(String, u64)> {
    let general = (0..31).map(|number| (format!("x{number}"), r.x(number)));
    let others = [("sp", r.x(31)), ("pc", r.x(32)), ("cpsr", r.x(33)), ("tpidr", r.thread_pointer)];
    others.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(general).collect()
}
