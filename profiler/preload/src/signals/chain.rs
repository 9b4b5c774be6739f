//! Hands a signal that is not ours to the program, as the kernel would have: its handler is entered by a jump, with the
//! stack as the kernel made it. So a backtrace in it shows no frame of ours, and an alternate stack that has just enough
//! room for it still has.

use super::host::{self, Disposition};
use super::{bit, set_of, set_thread_mask};
use crate::real;
use core::ffi::{c_int, c_void};
use uunwind_core::regs::UCONTEXT_SIGMASK;
use uunwind_core::syscall::{call, getpid, gettid, nr};

/// Defines a signal handler in assembly that asks a function what the signal means: 0, and it returns; or a handler, and it
/// jumps there with its own arguments.
macro_rules! entry {
    ($entry:ident, $meaning:ident) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.", stringify!($entry), ",\"ax\",@progbits"),
            concat!(".hidden ", stringify!($entry)),
            concat!(".globl ", stringify!($entry)),
            concat!(".type ", stringify!($entry), ",@function"),
            ".balign 16",
            concat!(stringify!($entry), ":"),
            ".cfi_startproc",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdx",
            ".cfi_adjust_cfa_offset 8",
            "call {meaning}",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "test rax, rax",
            "je 1f",
            "jmp rax",
            "1:",
            "ret",
            ".cfi_endproc",
            concat!(".size ", stringify!($entry), ", .-", stringify!($entry)),
            ".popsection",
            meaning = sym $meaning,
        );
        extern "C" {
            fn $entry(signal: c_int, info: *mut libc::siginfo_t, ucontext: *mut c_void);
        }
    };
}
pub(crate) use entry;

/// What the program's disposition of `signal` asks for: its handler, to be entered with this handler's arguments and the
/// mask that is set now; or 0 when nothing is left to do.
///
/// # Safety
/// The arguments must be those of a signal handler that is now running, and no walk may be under way on this thread.
pub unsafe fn deliver(signal: c_int, info: *const libc::siginfo_t, ucontext: *const c_void) -> usize {
    let disposition = host::get(signal);
    // SAFETY: the kernel passes a siginfo. What it sends when a timer of the program's is due is no fault.
    let from_fault = signal != super::SAMPLING && unsafe { (*info).si_code } > 0;
    match disposition.handler {
        libc::SIG_IGN if !from_fault => return 0,
        // The kernel does not let a fault be ignored (force_sig): it kills.
        libc::SIG_DFL | libc::SIG_IGN => {
            die(signal, from_fault);
            return 0;
        }
        _ => {}
    }
    // SAFETY: passed on.
    unsafe { prepare(&disposition, signal, ucontext) };
    disposition.handler
}

/// The default action of all virtual signals is to end the process. A fault is repeated by returning to the instruction;
/// what another process sent is sent again.
fn die(signal: c_int, from_fault: bool) {
    let default = Disposition { handler: libc::SIG_DFL, flags: 0, mask: 0, restorer: 0 }.to_c();
    // SAFETY: a valid structure.
    unsafe { real::sigaction(signal, &raw const default, core::ptr::null_mut()) };
    if !from_fault {
        // SAFETY: sends the signal to this very thread; it is delivered when this handler returns.
        unsafe { call(nr::TGKILL, [getpid() as usize, gettid() as usize, signal as usize, 0, 0, 0]) };
    }
}

/// As the kernel prepares a handler. One that returns may have asked for a signal mask by changing the ucontext, which
/// sigreturn honours.
///
/// # Safety
/// As [`deliver`].
unsafe fn prepare(how: &Disposition, signal: c_int, ucontext: *const c_void) {
    if how.flags & libc::SA_RESETHAND != 0 {
        host::set(
            signal,
            Disposition { handler: libc::SIG_DFL, flags: how.flags, mask: how.mask, restorer: how.restorer },
        );
    }
    // SAFETY: the kernel passes a ucontext, which holds the mask to be restored.
    let before = unsafe { ucontext.cast::<u8>().add(UCONTEXT_SIGMASK as usize).cast::<u64>().read() };
    let own = if how.flags & libc::SA_NODEFER != 0 { 0 } else { bit(signal) };
    // SAFETY: passed on.
    let extra = unsafe { super::altstack::extra_mask(how.flags, ucontext) };
    set_thread_mask(before | how.mask | own | extra);
}

/// Makes the kernel deliver `signal` to `handler`.
pub fn install(
    signal: c_int,
    handler: unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void),
    flags: c_int,
    mask: u64,
) -> bool {
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = flags | libc::SA_SIGINFO;
    action.sa_mask = set_of(mask);
    // SAFETY: a valid structure.
    unsafe { real::sigaction(signal, &raw const action, core::ptr::null_mut()) == 0 }
}
