//! The memory of a thread's whole walks: too much for a stack, and the last walk stays in it for the next one. Mapped
//! at the thread's first walk, a part of it touched; the next thread with the same slot gets it.

use crate::arena::{map, unmap};
use crate::cfas::Cfas;
use crate::names::NAME_WORDS;
use core::sync::atomic::{compiler_fence, Ordering};
use uunwind_core::cache::last_walk::LastWalk;
use uunwind_core::slots::Slot;
use uunwind_core::walk::{Exchange, DEEP_WORDS, SCRATCH};

/// A thread's memory. All-zero is valid.
#[repr(C, align(64))]
pub struct Memory {
    /// Frames, before those that are not wanted are left out.
    pub frames: [u64; DEEP_WORDS],
    /// Plugins' scratch memory.
    pub scratch: [u8; SCRATCH],
    /// What plugins are shown.
    pub exchange: core::mem::MaybeUninit<Exchange>,
    /// The last walk.
    pub last_walk: LastWalk,
    /// CFAs of a walk's frames.
    pub cfas: Cfas,
    /// Words of a name that is being described.
    pub name: [u64; NAME_WORDS],
    /// Thread id of the task whose `last_walk` this is; 0 during a walk, and after one that was left in the middle.
    owner: u32,
    /// Thread id of the task that walks; 0: none does.
    walker: u32,
}

impl Memory {
    /// To be called when the task with this thread id begins to walk. What another task has left is forgotten: in the
    /// child of a fork it may have been copied in the middle of a change, and a slot may have changed its owner.
    pub fn begin(&mut self, tid: u32) {
        if self.owner != tid {
            self.last_walk.reset();
        }
        self.owner = 0;
        self.walker = tid;
        // A handler that leaves this walk for good finds the memory unowned, whatever was written of it.
        compiler_fence(Ordering::SeqCst);
    }

    /// To be called when that walk has ended.
    pub fn end(&mut self, tid: u32) {
        compiler_fence(Ordering::SeqCst);
        self.walker = 0;
        self.owner = tid;
    }
}

/// Whether the task with this thread id is the one that walks with this slot's memory: tasks that share a thread
/// pointer share the slot. Async-signal-safe.
pub fn is_walked_by(slot: &Slot, tid: u32) -> bool {
    let memory = slot.walk_memory.load(Ordering::Acquire).cast::<Memory>();
    // SAFETY: null, or the slot's memory, which is never unmapped. Volatile: the walk that it belongs to is
    // interrupted.
    !memory.is_null() && unsafe { (&raw const (*memory).walker).read_volatile() } == tid
}

/// The slot's memory; `None`: the kernel has none. Async-signal-safe. To be called while the slot's whole walk is held.
pub fn of(slot: &Slot) -> Option<*mut Memory> {
    let there = slot.walk_memory.load(Ordering::Acquire);
    if !there.is_null() {
        return Some(there.cast());
    }
    let new = map(size_of::<Memory>())?;
    match slot.walk_memory.compare_exchange(there, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(new.cast()),
        Err(other) => {
            unmap(new, size_of::<Memory>());
            Some(other.cast())
        }
    }
}
