//! Stacks: alternate ones for threads that have none, so that a stack overflow can be reported; and the one on which
//! reports are made, since a program's alternate stacks are small.
//!
//! An alternate stack is never unmapped. It belongs to a thread id; when that thread has ended, the next one that needs
//! a stack gets it.

use crate::signals;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use uunwind_core::errno::{Errno, ENOMEM};
use uunwind_core::syscall::{self, nr};
use uunwind_live::state::SLOTS;
use uunwind_stacks::arena;

/// Bytes of an alternate stack: the kernel's frame (12 KiB with AMX), and handlers of the program's.
const ALTERNATE: usize = 64 * 1024;
/// Bytes of the reporting stack: what `uunwind_core::recovery` can bring back from.
const REPORTING: usize = 64 * 1024;
const PAGE: usize = 4096;
/// Alternate stacks that are used again. Threads above this number have one each for ever.
const ROOM: usize = 4096;

struct Entry {
    /// Thread id; 0: never used; `TAKING`: being taken.
    owner: AtomicU32,
    stack: AtomicPtr<u8>,
}
const TAKING: u32 = u32::MAX;
static STACKS: [Entry; ROOM] =
    [const { Entry { owner: AtomicU32::new(0), stack: AtomicPtr::new(core::ptr::null_mut()) } }; ROOM];
/// Process that `STACKS` belongs to. A forked child's stacks are copies: it begins anew.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static REPORT: AtomicU64 = AtomicU64::new(0);

/// An alternate stack, or none: `stack_t` ([sigaltstack(2)](https://man7.org/linux/man-pages/man2/sigaltstack.2.html)).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StackT {
    sp: *mut u8,
    flags: i32,
    size: usize,
}
const SS_DISABLE: i32 = 2;

/// Reads the calling thread's alternate stack, or sets it.
fn sigaltstack(new: Option<&StackT>, old: Option<&mut StackT>) -> bool {
    let new = new.map_or(0, |new| core::ptr::from_ref(new) as usize);
    let old = old.map_or(0, |old| core::ptr::from_mut(old) as usize);
    // SAFETY: valid structures, or null.
    unsafe { syscall::call(nr::SIGALTSTACK, [new, old, 0, 0, 0, 0]) == 0 }
}

/// Maps a stack with a page below it that cannot be written.
fn map(bytes: usize) -> Option<*mut u8> {
    let start = arena::map(PAGE + bytes)?;
    // SAFETY: the first page of a fresh mapping.
    unsafe {
        syscall::call(nr::MPROTECT, [start as usize, PAGE, 0, 0, 0, 0]);
        Some(start.add(PAGE))
    }
}

/// Gives the calling thread an alternate signal stack if it has none. Not for handlers: a signal's return brings the
/// former setting back.
pub fn prepare_thread() -> Result<(), Errno> {
    let mut now = StackT { sp: core::ptr::null_mut(), flags: 0, size: 0 };
    if sigaltstack(None, Some(&mut now)) && now.flags & SS_DISABLE == 0 {
        return Ok(());
    }
    let stack = take().ok_or(ENOMEM)?;
    let set = StackT { sp: stack, flags: 0, size: ALTERNATE };
    if sigaltstack(Some(&set), None) {
        Ok(())
    } else {
        Err(ENOMEM)
    }
}

fn take() -> Option<*mut u8> {
    let (own, pid) = (syscall::gettid(), SLOTS.pid());
    if PROCESS.swap(pid, Ordering::AcqRel) != pid {
        for entry in &STACKS {
            entry.owner.store(0, Ordering::Release);
            entry.stack.store(core::ptr::null_mut(), Ordering::Release);
        }
    }
    for entry in &STACKS {
        let owner = entry.owner.load(Ordering::Acquire);
        let is_free = owner == 0 || owner == own || owner != TAKING && !signals::exists(owner);
        let taken = is_free && entry.owner.compare_exchange(owner, TAKING, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !taken {
            continue;
        }
        let mut stack = entry.stack.load(Ordering::Acquire);
        if stack.is_null() {
            stack = map(ALTERNATE).unwrap_or(core::ptr::null_mut());
            entry.stack.store(stack, Ordering::Release);
        }
        entry.owner.store(if stack.is_null() { 0 } else { own }, Ordering::Release);
        return (!stack.is_null()).then_some(stack);
    }
    map(ALTERNATE)
}

/// Maps the reporting stack.
pub fn prepare_report() -> Result<(), Errno> {
    if REPORT.load(Ordering::Acquire) == 0 {
        let stack = map(REPORTING).ok_or(ENOMEM)?;
        REPORT.store(stack as u64 + REPORTING as u64, Ordering::Release);
    }
    Ok(())
}

/// Calls a function on the reporting stack. While it runs, the thread has no alternate stack, because that may be the
/// one that the calling handler lies on: signals that come meanwhile are delivered on the reporting stack.
///
/// # Safety
/// Only by one thread at a time, in a signal handler, after [`prepare_report`].
pub unsafe fn on_report_stack(
    function: unsafe extern "C" fn(*mut core::ffi::c_void),
    argument: *mut core::ffi::c_void,
) {
    // SAFETY: the top of a stack that nothing else uses.
    unsafe { call_on(REPORT.load(Ordering::Acquire), function, argument) };
}

/// Takes the alternate stack away from the calling thread, which must not be on it. Returns what it was.
pub fn without_alternate() -> StackT {
    let none = StackT { sp: core::ptr::null_mut(), flags: SS_DISABLE, size: 0 };
    let mut was = none;
    sigaltstack(Some(&none), Some(&mut was));
    was
}

/// Gives the calling thread its alternate stack back. A handler that runs on it may go on: the kernel sees by the stack
/// pointer what is in use.
pub fn with_alternate(was: &StackT) {
    sigaltstack(Some(was), None);
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn call_on(
    top: u64,
    function: unsafe extern "C" fn(*mut core::ffi::c_void),
    argument: *mut core::ffi::c_void,
) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbp, 0",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        ".cfi_def_cfa_register rsp",
        "pop rbp",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn call_on(
    top: u64,
    function: unsafe extern "C" fn(*mut core::ffi::c_void),
    argument: *mut core::ffi::c_void,
) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_rel_offset x29, 0",
        ".cfi_rel_offset x30, 8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x0",
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        ".cfi_def_cfa_register sp",
        "ldp x29, x30, [sp], #16",
        ".cfi_adjust_cfa_offset -16",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn note(place: *mut core::ffi::c_void) {
        let here = 0u8;
        // SAFETY: the test's word.
        unsafe { *place.cast::<u64>() = &raw const here as u64 };
    }

    #[test]
    fn a_function_runs_on_the_reporting_stack() {
        prepare_report().expect("memory");
        let mut at = 0u64;
        // SAFETY: nothing else uses that stack in tests.
        unsafe { on_report_stack(note, (&raw mut at).cast()) };
        let top = REPORT.load(Ordering::Acquire);
        assert!((top - REPORTING as u64..top).contains(&at));
    }

    #[test]
    fn a_thread_gets_a_stack_and_the_next_one_the_same() {
        let at = || {
            std::thread::spawn(|| {
                // The test's own thread has the standard library's.
                without_alternate();
                prepare_thread().expect("memory");
                let mut now = StackT { sp: core::ptr::null_mut(), flags: 0, size: 0 };
                assert!(sigaltstack(None, Some(&mut now)) && now.flags == 0 && now.size == ALTERNATE);
                let first = now.sp as usize;
                prepare_thread().expect("it has one");
                assert!(sigaltstack(None, Some(&mut now)) && now.sp as usize == first);
                // SAFETY: the lowest byte of the stack.
                unsafe { now.sp.write(1) };
                first
            })
            .join()
            .expect("no panic")
        };
        assert_eq!(at(), at());
    }
}
