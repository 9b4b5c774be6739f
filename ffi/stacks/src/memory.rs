//! The memory of a thread's whole walks: too much for a stack, and the last walk stays in it for the next one. Mapped
//! at the thread's first walk, a part of it touched; the next thread with the same slot gets it.

use crate::arena::{map, unmap};
use core::sync::atomic::Ordering;
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
    /// Process id for which `last_walk` is valid: in the child of a fork it may have been copied in the middle of a
    /// change.
    pub process: u32,
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
