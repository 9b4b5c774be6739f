//! `uu_capture`: the stack of the calling thread, for C.

use crate::chains;
use crate::env::Live;
use crate::state::{REGISTRY, SLOTS};
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::regs::Regs;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::syscall;
use uunwind_core::walk::{walk_along, Setting};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod at_once;
#[cfg(target_arch = "aarch64")]
pub use aarch64::uu_capture;
#[cfg(target_arch = "aarch64")]
use aarch64::Caller;

/// The C entry: calls [`at_once::known`] and [`at_once::by_rules`], and if neither tells, stores the caller's registers and calls [`by_walk`]. `uu.h` documents it.
///
/// # Safety
/// `frames` must have room for `capacity` words; `ucontext` must be null or a signal handler's; `stop` null or writable.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn uu_capture(frames: *mut u64, capacity: usize, ucontext: *const u8, stop: *mut u16) -> usize {
    // Without a ucontext, the frame in hand is the caller's, as it is when this call returns.
    core::arch::naked_asm!(
        ".cfi_startproc",
        // Another copy of the library, if that is the process's one.
        "mov rax, [rip + {elsewhere}]",
        "test rax, rax",
        "jnz 2f",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "lea r8, [rsp + 32]",
        "mov r9, rbp",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {known}",
        "cmp rax, {not_told}",
        "je 3f",
        "4:",
        "add rsp, 40",
        ".cfi_adjust_cfa_offset -40",
        "ret",
        "3:",
        ".cfi_adjust_cfa_offset 40",
        "mov rdi, [rsp + 32]",
        "mov rsi, [rsp + 24]",
        "mov rdx, [rsp + 16]",
        "mov rcx, [rsp + 8]",
        "lea r8, [rsp + 40]",
        "mov r9, rbp",
        "call {by_rules}",
        "cmp rax, {not_told}",
        "jne 4b",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "mov rax, [rsp]",
        "lea r8, [rsp + 8]",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        "push r15",
        ".cfi_adjust_cfa_offset 8",
        "push r14",
        ".cfi_adjust_cfa_offset 8",
        "push r13",
        ".cfi_adjust_cfa_offset 8",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        "push r8",
        ".cfi_adjust_cfa_offset 8",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "mov r8, rsp",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {by_walk}",
        "add rsp, 72",
        ".cfi_adjust_cfa_offset -72",
        "ret",
        "2:",
        "jmp rax",
        ".cfi_endproc",
        known = sym at_once::known,
        by_rules = sym at_once::by_rules,
        not_told = const at_once::NOT_TOLD as isize,
        by_walk = sym by_walk,
        elsewhere = sym crate::home::CAPTURE,
    )
}

/// The callee-saved registers at the call, as the assembly pushed them.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct Caller {
    pc: u64,
    sp: u64,
    rbx: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rbp: u64,
}

#[cfg(target_arch = "x86_64")]
impl Caller {
    fn regs(&self) -> Regs {
        let mut regs = Regs::new(self.pc, self.sp, self.rbp);
        for (register, value) in [(3, self.rbx), (12, self.r12), (13, self.r13), (14, self.r14), (15, self.r15)] {
            regs.set(register, value);
        }
        regs
    }
}

/// The stack by a walk.
///
/// # Safety
/// As [`uu_capture`].
#[cold]
unsafe extern "C" fn by_walk(
    frames: *mut u64,
    capacity: usize,
    ucontext: *const u8,
    stop: *mut u16,
    caller: *const Caller,
) -> usize {
    // SAFETY: passed on; the assembly passes its own stack.
    let (words, reason) = unsafe { walked(frames, capacity, ucontext, &*caller) };
    if !stop.is_null() {
        // SAFETY: the C caller passes null or room for one number.
        unsafe { stop.write(reason.number()) };
    }
    words
}

/// # Safety
/// As [`uu_capture`].
#[inline(always)]
unsafe fn walked(frames: *mut u64, capacity: usize, ucontext: *const u8, caller: &Caller) -> (usize, StopReason) {
    if frames.is_null() || capacity == 0 {
        return (0, StopReason::BufferFull);
    }
    // SAFETY: the C caller passes `capacity` words.
    let frames = unsafe { core::slice::from_raw_parts_mut(frames, capacity) };
    let mode = if crate::faults::handled() { Mode::Guarded } else { Mode::Probed };
    // SAFETY: probed mode has no precondition; for the other one the program called uu_handle_faults, whose
    // documentation asks for the signals to be unblocked here.
    let mut reader = unsafe { Reader::new(mode) };
    let bare = reader.bare();
    let Some(slot) = SLOTS.own() else { return (0, StopReason::Fault) };
    let Ok(walking) = slot.enter(caller.sp, slot.epoch(|| REGISTRY.epoch())) else {
        return (0, StopReason::Fault);
    };
    let cursor = if ucontext.is_null() {
        Cursor { regs: caller.regs(), exact: false }
    } else {
        // SAFETY: the C caller passes the ucontext that its signal handler got.
        Cursor { regs: unsafe { Regs::from_ucontext(ucontext) }, exact: true }
    };
    let mut env = Live::new(None, (1, 0), None, false);
    let setting = Setting {
        thread_pointer: syscall::thread_pointer(),
        tsd_offset: 0,
        scratch: core::ptr::null_mut(),
        exchange: core::ptr::null_mut(),
        progress: core::ptr::null_mut(),
        trail: core::ptr::null_mut(),
    };
    let mut steps = match (env.salts().stamp(), bare) {
        (Some(stamp), Some(_)) if !walking.is_inner() => {
            // SAFETY: this thread's, whose one walk with it this is.
            chains::of(walking.slot).and_then(|chain| unsafe { chain.begin(stamp) })
        }
        _ => None,
    };
    // SAFETY: no scratch, so no plugin is called.
    let outcome = unsafe { walk_along(steps.as_mut(), cursor, &mut env, &mut reader, frames, &setting) };
    if let Some(steps) = steps {
        steps.finish();
    }
    walking.leave();
    (outcome.words, outcome.stop)
}

/// See `uu.h`.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn uu_abi() -> u32 {
    uunwind_core::plugin::ABI
}
