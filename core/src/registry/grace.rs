//! The protocol between walks and writers, which decides when removed data is no longer read.
//!
//! ```text
//! walk     mark = epoch; full barrier; load the root; read; mark = 0
//! writer   swap the root; epoch += 1 (that is the ticket); full barrier; read all marks
//! ```
//! One of the two barriers comes first. If it is the walk's, the writer sees its mark, which is below the ticket. If it
//! is the writer's, the walk sees the new root. Either way nothing is freed under a walk that can read it. A mark taken
//! from an old epoch, with a root loaded later, only makes a writer wait longer than necessary.
//!
//! This file is also compiled by the model checker (`core/model`), with its own `sync`.

use super::sync::{store_then_barrier, AtomicPtr, AtomicU64, Ordering};

/// Counts changes. Never 0, so that a mark of 0 can mean "no walk".
pub struct Epoch(AtomicU64);

impl Epoch {
    /// The first epoch: not 0, which means "no walk".
    pub const FIRST: u64 = 1;

    #[cfg(not(uu_model))]
    /// The counter at its first value.
    pub const fn new() -> Epoch {
        Epoch(AtomicU64::new(Epoch::FIRST))
    }

    #[cfg(uu_model)]
    /// The counter at its first value.
    pub fn new() -> Epoch {
        Epoch(AtomicU64::new(Epoch::FIRST))
    }

    /// The current epoch. Async-signal-safe.
    #[inline]
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Begins a new epoch and returns it: the ticket of whatever was swapped out before. A full barrier.
    pub fn advance(&self) -> u64 {
        let ticket = self.0.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        super::sync::barrier();
        ticket
    }
}

impl Default for Epoch {
    fn default() -> Epoch {
        Epoch::new()
    }
}

/// One thread's mark: the epoch in which its walk began, or 0.
#[derive(Debug)]
pub struct Mark(AtomicU64);

impl Mark {
    #[cfg(not(uu_model))]
    /// The mark of a thread without a walk.
    pub const fn new() -> Mark {
        Mark(AtomicU64::new(0))
    }

    #[cfg(uu_model)]
    /// The mark of a thread without a walk.
    pub fn new() -> Mark {
        Mark(AtomicU64::new(0))
    }

    /// Begins a walk of this epoch. A full barrier: if a writer does not see the mark, it has swapped before the walk
    /// loads its root. Async-signal-safe; wait-free.
    #[inline]
    pub fn set(&self, epoch: u64) {
        store_then_barrier(&self.0, epoch);
    }

    /// Ends the walk, or restores the mark of the walk that it interrupted. Async-signal-safe; wait-free.
    #[inline]
    pub fn restore(&self, outer: u64) {
        self.0.store(outer, Ordering::Release);
    }

    /// The mark as its own thread sees it.
    #[inline]
    pub fn own(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The mark as a writer sees it after [`Epoch::advance`].
    pub fn seen(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Default for Mark {
    fn default() -> Mark {
        Mark::new()
    }
}

/// Whether a walk with this mark may still read what was swapped out before `ticket`.
pub fn holds(mark: u64, ticket: u64) -> bool {
    mark != 0 && mark < ticket
}

/// The root of what walks read, swapped as a whole.
pub struct Root<T>(AtomicPtr<T>);

impl<T> Root<T> {
    #[cfg(not(uu_model))]
    /// A null root.
    pub const fn new() -> Root<T> {
        Root(AtomicPtr::new(core::ptr::null_mut()))
    }

    #[cfg(uu_model)]
    /// A null root.
    pub fn new() -> Root<T> {
        Root(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Loads the root, once for each walk. Async-signal-safe; wait-free.
    #[inline]
    pub fn load(&self) -> *mut T {
        self.0.load(Ordering::Acquire)
    }

    /// Publishes a new root: walks that load it see all that was written before.
    pub fn publish(&self, new: *mut T) {
        self.0.store(new, Ordering::Release);
    }
}

impl<T> Default for Root<T> {
    fn default() -> Root<T> {
        Root::new()
    }
}
