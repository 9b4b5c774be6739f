//! Which samples of an event are taken, by a program for the kernel
//! ([bpf(2)](https://man7.org/linux/man-pages/man2/bpf.2.html)): none inside execve(2) and execveat(2).
//!
//! An event that signals its thread sends SIGTRAP when the thread returns to user mode. Where that is the return from
//! exec, the signal arrives in the new program, in which nothing handles it, and kills it: at 5 kHz every fourth exec.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The program, loaded into the kernel.
pub struct Filter(OwnedFd);

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

/// `union bpf_attr` of BPF_PROG_LOAD, its first fields.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    instructions: u32,
    first: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// The numbers of these system calls, and the place of the number in the registers that the thread left user mode with
/// (`struct pt_regs`), and the code of the instruction that loads it.
#[cfg(target_arch = "x86_64")]
const EXEC: ([i32; 2], i16, u8) = ([59, 322], 15 * 8, 0x79);
/// The same: `syscallno`, of four bytes.
#[cfg(target_arch = "aarch64")]
const EXEC: ([i32; 2], i16, u8) = ([221, 281], 34 * 8 + 8, 0x61);

const fn step(code: u8, registers: u8, offset: i16, value: i32) -> Instruction {
    Instruction { code, registers, offset, value }
}

/// 0 in these calls, which leaves the sample out; otherwise 1.
const PROGRAM: [Instruction; 9] = {
    const CALL: u8 = 0x85;
    const MOVE: u8 = 0xbf;
    const SET: u8 = 0xb7;
    const JUMP_IF_EQUAL: u8 = 0x15;
    const EXIT: u8 = 0x95;
    const GET_CURRENT_TASK_BTF: i32 = 158;
    const TASK_PT_REGS: i32 = 175;
    let ([exec, exec_at], offset, load) = EXEC;
    [
        step(CALL, 0, 0, GET_CURRENT_TASK_BTF),
        step(MOVE, 1, 0, 0),
        step(CALL, 0, 0, TASK_PT_REGS),
        step(load, 1, offset, 0),
        step(SET, 0, 0, 0),
        step(JUMP_IF_EQUAL, 1, 2, exec),
        step(JUMP_IF_EQUAL, 1, 1, exec_at),
        step(SET, 0, 0, 1),
        step(EXIT, 0, 0, 0),
    ]
};

impl Filter {
    /// Loads the program. Needs root, or CAP_BPF and CAP_PERFMON.
    pub fn load() -> io::Result<Filter> {
        const BPF_PROG_LOAD: usize = 5;
        const TYPE_PERF_EVENT: u32 = 7;
        let load = Load {
            kind: TYPE_PERF_EVENT,
            instructions: PROGRAM.len() as u32,
            first: PROGRAM.as_ptr() as u64,
            // What the two functions are given out for.
            license: c"Dual MIT/GPL".as_ptr() as u64,
            ..Load::default()
        };
        // SAFETY: a structure of this size, with a program and a text that live as long as the call.
        let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<Load>()) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that the kernel has just made, owned by nobody else.
        Ok(Filter(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Makes the event ask it.
    pub fn attach(&self, event: BorrowedFd<'_>) -> io::Result<()> {
        const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;
        // SAFETY: an ioctl of this kind of descriptor, which takes another one.
        match unsafe { libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_SET_BPF as _, self.0.as_raw_fd()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
