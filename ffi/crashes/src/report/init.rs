//! The first process of a pid namespace: a container's main program, often.
//!
//! The kernel drops the signals for it whose action is the default one, unless an instruction raises them
//! ([pid_namespaces(7)](https://man7.org/linux/man-pages/man7/pid_namespaces.7.html); `SIGNAL_UNKILLABLE` in
//! <https://github.com/torvalds/linux/blob/v6.6/kernel/signal.c>). What faulted is executed again when the handler
//! returns, and ends the process; breakpoints and system calls are over by then.

use super::handler::Crash;
use crate::signals;
use uunwind_core::memory::Reader;
use uunwind_core::regs::UCONTEXT_PC;
use uunwind_core::syscall::{self, nr};

/// Whether the process is one.
pub fn is_init() -> bool {
    syscall::getpid() == 1
}

/// Moves the context of a crash back to the instruction that raised SIGTRAP or SIGSYS, so that it is executed again.
/// Where it is not found, ends the process, with the status by which shells report the signal.
pub fn raise_again(crash: &Crash) {
    let back = match crash.signal {
        signals::SIGTRAP => BREAKPOINT,
        signals::SIGSYS => SYSTEM_CALL,
        _ => return,
    };
    // SAFETY: the kernel's context; the register lies in it.
    let pc = unsafe { crash.ucontext.add(UCONTEXT_PC as usize).cast::<u64>() };
    // SAFETY: as above.
    let start = unsafe { pc.read() }.wrapping_sub(back.len() as u64);
    let mut reader = Reader::probed();
    if (0u64..).zip(back).all(|(at, byte)| reader.u8(start.wrapping_add(at)) == Some(*byte)) {
        // SAFETY: as above.
        unsafe { pc.write(start) };
    } else {
        // SAFETY: does not return.
        unsafe { syscall::call(nr::EXIT_GROUP, [128 + crash.signal as usize, 0, 0, 0, 0, 0]) };
    }
}

/// `int3`.
#[cfg(target_arch = "x86_64")]
const BREAKPOINT: &[u8] = &[0xcc];
/// `syscall`. The kernel has restored rax (`syscall_rollback`).
#[cfg(target_arch = "x86_64")]
const SYSTEM_CALL: &[u8] = &[0x0f, 0x05];
/// `brk` is where the pc is: nothing to move back over.
#[cfg(target_arch = "aarch64")]
const BREAKPOINT: &[u8] = &[];
/// `svc #0`. The kernel has restored x0.
#[cfg(target_arch = "aarch64")]
const SYSTEM_CALL: &[u8] = &[0x01, 0x00, 0x00, 0xd4];
