//! The first lines of a report: which signal, why, where; program, thread. And the registers: in the text after the
//! stack, which people look for first.

use super::handler::Crash;
use super::text::Out;
use crate::signals;
use crate::threads::status;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use uunwind_core::regs::{ucontext_offset, COUNT, UCONTEXT_PC, UCONTEXT_SP};
use uunwind_core::syscall::{self, nr};
use uunwind_stacks::describe::until_nul;

/// A signal's name.
fn name(signal: c_int) -> &'static str {
    match signal {
        signals::SIGSEGV => "SIGSEGV",
        signals::SIGBUS => "SIGBUS",
        signals::SIGFPE => "SIGFPE",
        signals::SIGILL => "SIGILL",
        signals::SIGABRT => "SIGABRT",
        signals::SIGTRAP => "SIGTRAP",
        signals::SIGSYS => "SIGSYS",
        _ => "signal",
    }
}

/// What `si_code` says ([sigaction(2)](https://man7.org/linux/man-pages/man2/sigaction.2.html)).
fn reason(signal: c_int, code: c_int) -> &'static str {
    match (signal, code) {
        (_, 0) => "sent by kill",
        (_, -1) => "sent by sigqueue",
        (_, -6) => "sent by tgkill, raise or abort",
        (signals::SIGSEGV, 1) => "address not mapped",
        (signals::SIGSEGV, 2) => "access not permitted",
        (signals::SIGSEGV, 4) => "access refused by a protection key",
        (signals::SIGSEGV, 128) => "general protection: an address that is no address, or a privileged instruction",
        (signals::SIGBUS, 1) => "misaligned address",
        (signals::SIGBUS, 2) => "address beyond the end of a file",
        (signals::SIGBUS, 4 | 5) => "memory failure",
        (signals::SIGFPE, 1) => "integer division by zero",
        (signals::SIGFPE, 2) => "integer overflow",
        (signals::SIGFPE, 3) => "floating-point division by zero",
        (signals::SIGFPE, 4) => "floating-point overflow",
        (signals::SIGFPE, 5) => "floating-point underflow",
        (signals::SIGFPE, 6) => "inexact floating-point result",
        (signals::SIGFPE, 7) => "invalid floating-point operation",
        (signals::SIGILL, 1 | 2) => "illegal instruction",
        (signals::SIGILL, 5 | 6) => "privileged instruction",
        (signals::SIGTRAP, 1 | 128) => "breakpoint",
        (signals::SIGTRAP, 2) => "single step",
        (signals::SIGSYS, 1) => "system call refused by seccomp",
        _ => "no further reason",
    }
}

#[cfg(target_arch = "x86_64")]
const REGISTERS: [&str; COUNT] =
    ["rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
#[cfg(target_arch = "x86_64")]
const PC: &str = "rip";
#[cfg(target_arch = "aarch64")]
const REGISTERS: [&str; COUNT] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17",
    "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp",
];
#[cfg(target_arch = "aarch64")]
const PC: &str = "pc";

/// The register at this offset of the context.
fn register(crash: &Crash, offset: u64) -> u64 {
    // SAFETY: the kernel's context; the offset lies in it.
    unsafe { crash.ucontext.add(offset as usize).cast::<u64>().read() }
}

fn registers(crash: &Crash) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    let all = REGISTERS.iter().zip(0u8..);
    core::iter::once((PC, register(crash, UCONTEXT_PC)))
        .chain(all.map(|(name, number)| (*name, register(crash, ucontext_offset(number)))))
}

/// Whether an address is so near the stack pointer that the stack is probably too small.
fn is_overflow(crash: &Crash) -> bool {
    const NEAR: u64 = 64 * 1024;
    let distance = register(crash, UCONTEXT_SP).wrapping_sub(crash.info.first).wrapping_add(NEAR);
    crash.signal == signals::SIGSEGV && crash.info.code > 0 && crash.info.code != 128 && distance < 2 * NEAR
}

fn program(path: &mut [u8; 1024]) -> &[u8] {
    const AT_FDCWD: usize = -100isize as usize;
    // Of the thread: the first one may have ended.
    let link = c"/proc/thread-self/exe".as_ptr() as usize;
    // SAFETY: readlinkat writes at most `path.len()` bytes.
    let got = unsafe { syscall::call(nr::READLINKAT, [AT_FDCWD, link, path.as_mut_ptr() as usize, path.len(), 0, 0]) };
    usize::try_from(got).ok().and_then(|got| path.get(..got)).unwrap_or(b"?")
}

/// Whether the text still lacks the registers of the crash that is reported.
static IS_DUE: AtomicBool = AtomicBool::new(false);

/// Writes the registers into a text that lacks them.
pub fn write_registers(out: &mut Out, crash: &Crash) {
    if !IS_DUE.swap(false, Ordering::Relaxed) {
        return;
    }
    for (index, (name, value)) in registers(crash).enumerate() {
        out.text(if index % 6 == 0 { "registers " } else { " " }).text(name).text(" ").hex(value);
        if index % 6 == 5 {
            out.text("\n");
        }
    }
    out.text("\n");
    out.flush();
}

/// Writes the first lines.
pub fn write(out: &mut Out, crash: &Crash, json: bool) {
    let mut path = [0u8; 1024];
    let path = program(&mut path);
    let (pid, tid) = (syscall::getpid(), syscall::gettid());
    let thread = status::name(tid);
    if json {
        write_json(out, crash, path, (pid, tid), until_nul(&thread));
    } else {
        write_text(out, crash, path, (pid, tid), until_nul(&thread));
    }
}

fn write_text(out: &mut Out, crash: &Crash, path: &[u8], (pid, tid): (u32, u32), thread: &[u8]) {
    let (signal, code) = (crash.signal, crash.info.code);
    out.text("uu crash report: ").text(name(signal)).text(" (").signed(signal.into()).text("), ");
    out.text(reason(signal, code)).text(" (code ").signed(code.into()).text(")");
    if code > 0 {
        out.text(", address ").hex(crash.info.first);
    } else {
        out.text(", by process ").number(u64::from(crash.info.first as u32));
    }
    out.text("\nprogram ").foreign(path).text(", process ").number(pid.into());
    out.text(", thread ").number(tid.into()).text(" \"").foreign(thread).text("\"\n");
    if is_overflow(crash) {
        out.text("the address is near the stack pointer: probably a stack overflow\n");
    }
    IS_DUE.store(true, Ordering::Relaxed);
    out.flush();
}

fn write_json(out: &mut Out, crash: &Crash, path: &[u8], (pid, tid): (u32, u32), thread: &[u8]) {
    let (signal, code) = (crash.signal, crash.info.code);
    out.begin("crash").with("version", 1).with("signal", signal.into()).with_text("name", name(signal).as_bytes());
    out.with("code", code.into()).with_text("reason", reason(signal, code).as_bytes());
    if code > 0 {
        out.with_address("address", crash.info.first);
    } else {
        out.with("sender", i64::from(crash.info.first as u32));
    }
    out.with_bool("overflow", is_overflow(crash));
    out.with_text("program", path).with("pid", pid.into()).with("tid", tid.into()).with_text("thread", thread).end();
    out.begin("registers");
    for (name, value) in registers(crash) {
        out.with_address(name, value);
    }
    out.end();
}
