//! Removed cells that may still be read: two queues in order of the epochs, linked through the cells themselves, so
//! there is no limit. Used only with the writers' lock held.

use super::pool::{Kept, Pool};
use super::tree::Node;
use super::window::Held;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A cell that can be in limbo.
pub trait Waits: Kept {
    /// Epoch in which it was removed.
    fn retired(&self) -> &AtomicU64;
    /// Address of the next cell; 0: there is none.
    fn link(&self) -> &AtomicU64;
}

impl Waits for Node {
    fn retired(&self) -> &AtomicU64 {
        &self.retired
    }
    fn link(&self) -> &AtomicU64 {
        &self.link
    }
}

impl Waits for Held {
    fn retired(&self) -> &AtomicU64 {
        &self.retired
    }
    fn link(&self) -> &AtomicU64 {
        &self.link
    }
}

/// A queue of removed cells.
pub struct Limbo<T: Waits> {
    first: AtomicU64,
    last: AtomicU64,
    len: AtomicUsize,
    of: PhantomData<fn() -> T>,
}

impl<T: Waits> Limbo<T> {
    /// An empty queue.
    pub const fn new() -> Limbo<T> {
        Limbo { first: AtomicU64::new(0), last: AtomicU64::new(0), len: AtomicUsize::new(0), of: PhantomData }
    }

    /// Number of cells in it.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Appends the list from `first` to `last`, which was removed before `epoch` began.
    ///
    /// # Safety
    /// The cells must be the pool's, linked, and in no other queue.
    pub unsafe fn append(&self, first: *mut T, last: *mut T, epoch: u64) {
        let (mut at, mut count) = (first, 0);
        // SAFETY: the caller guarantees the list; it has an end.
        while let Some(cell) = unsafe { at.as_ref() } {
            cell.retired().store(epoch, Relaxed);
            count += 1;
            at = cell.link().load(Relaxed) as *mut T;
        }
        // SAFETY: cells of the pool are never unmapped.
        match unsafe { (self.last.load(Relaxed) as *mut T).as_ref() } {
            Some(before) => before.link().store(first as u64, Relaxed),
            None => self.first.store(first as u64, Relaxed),
        }
        self.last.store(last as u64, Relaxed);
        self.len.store(self.len().wrapping_add(count), Relaxed);
    }

    /// Frees at most `most` cells that no walk with a mark of `oldest` or later can read. `before` is called with each.
    /// Returns whether there may be more.
    ///
    /// # Safety
    /// No walk with an older mark may be in progress.
    pub unsafe fn free(&self, oldest: u64, most: usize, pool: &Pool, mut before: impl FnMut(&T)) -> bool {
        for _ in 0..most {
            // SAFETY: cells of the pool.
            let Some(cell) = (unsafe { (self.first.load(Relaxed) as *mut T).as_ref() }) else { return false };
            if cell.retired().load(Relaxed) > oldest {
                return false;
            }
            before(cell);
            let next = cell.link().load(Relaxed);
            let done = self.first.swap(next, Relaxed) as *mut T;
            if next == 0 {
                self.last.store(0, Relaxed);
            }
            self.len.store(self.len().wrapping_sub(1), Relaxed);
            // SAFETY: removed from the queue, and read by no walk.
            unsafe { pool.give(done) };
        }
        true
    }

    /// Empties the queue without freeing anything.
    pub fn abandon(&self) {
        self.first.store(0, Relaxed);
        self.last.store(0, Relaxed);
        self.len.store(0, Relaxed);
    }
}

impl<T: Waits> Default for Limbo<T> {
    fn default() -> Limbo<T> {
        Limbo::new()
    }
}
