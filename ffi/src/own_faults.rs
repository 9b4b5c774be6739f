//! Which faults belong to a walk of the program's own (`uu_walk`).
//!
//! A handler of the program may have interrupted such a walk, and run on top of it, on its stack or on another one. A
//! fault there is the program's: its own handler must see it, and the walk that goes on afterwards must still be
//! contained. So what decides is the code that faulted, and not where the stack pointer is.

use crate::library::on_fault;
use core::ffi::c_void;
use uunwind_core::regs::Regs;
use uunwind_core::slots::Slot;
use uunwind_core::syscall;
use uunwind_live::state::OBJECTS;

extern "C" {
    fn memcpy(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void;
}

/// Whether the calling task, whose slot this is, is inside a walk of the program's own, or in a handler that
/// interrupted one. Async-signal-safe.
pub fn is_walking(slot: &Slot) -> bool {
    // A task that shares the slot (clone(2) with CLONE_VM) may be the one that walks.
    slot.own_recovery.is_armed()
        && slot.whole_walk.is_held()
        && uunwind_stacks::memory::is_walked_by(slot, syscall::gettid())
}

/// Whether a fault inside [`is_walking`] is one of the walk itself: in the text of the plugin that is being called, in
/// this library, or in what either of them has called directly: at an address that no object covers, or in a leaf
/// function of libc, such as memcpy, for which compilers emit calls. Async-signal-safe.
///
/// # Safety
/// `ucontext` must be that of the fault, on the calling thread.
pub unsafe fn is_of_walk(slot: &Slot, ucontext: *const u8) -> bool {
    // SAFETY: passed on.
    let regs = unsafe { Regs::from_ucontext(ucontext) };
    let recovery = &slot.own_recovery;
    let called = recovery.called_text();
    if called.contains(regs.pc) {
        return true;
    }
    let is_near = recovery.is_near(regs.sp());
    if is_ours(regs.pc) {
        // A plugin that used up the stack, or lost its stack pointer, calls the host's functions.
        return is_near || !called.is_empty();
    }
    let may_be_leaf = OBJECTS.range(regs.pc).is_empty() || OBJECTS.are_of_one(regs.pc, memcpy as *const () as u64);
    is_near && may_be_leaf && return_address(&regs).is_some_and(|caller| called.contains(caller) || is_ours(caller))
}

/// Whether a pc lies in this library. Async-signal-safe.
pub fn is_ours(pc: u64) -> bool {
    OBJECTS.are_of_one(pc, on_fault as *const () as u64)
}

/// Where a function without a frame of its own returns to.
fn return_address(regs: &Regs) -> Option<u64> {
    #[cfg(target_arch = "aarch64")]
    return regs.get(uunwind_core::regs::RA);
    #[cfg(target_arch = "x86_64")]
    return uunwind_core::memory::Reader::probed().word(regs.sp());
}
