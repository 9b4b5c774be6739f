//! The changes between which a window is in the tree, recorded in the window itself: with it a walk can follow a hint
//! past the tree.
//!
//! A hint points to the cell that a lookup found earlier. By now the cell may be free, hold another window, or be in
//! the middle of a write, but it is always mapped. A walk that holds the tree of change `c` may use the window if it
//! was added by `c` or before, and not removed by `c` or before: then it is in that tree, and unchanged until the walk
//! ends.
//!
//! ```text
//! walk     read the generation; read the rest; read the generation again: it must be the same, and not 0
//! writer   removal      note the change, then publish the tree without it
//!          reuse        generation = 0; write the rest; write the new generation
//! ```
//! This file is also compiled by the model checker (`core/model`), with its own `sync`.

use super::sync::{acquire_fence, release_fence, AtomicU64, Ordering};

/// The life of the window in one cell.
#[derive(Default)]
#[repr(C)]
pub struct Life {
    from: AtomicU64,
    to: AtomicU64,
    /// The window's generation, unique among all windows. 0: the cell is empty or being written.
    pub(super) generation: AtomicU64,
    born: AtomicU64,
    pub(super) unlinked: AtomicU64,
}

impl Life {
    /// Begins the life of a window from `from` to `to` (exclusive) that change `born` adds. Everything else in it is
    /// written already.
    pub fn begin(&self, from: u64, to: u64, generation: u64, born: u64) {
        self.end();
        // A reader of anything that follows also reads the 0 when it reads the generation again.
        release_fence();
        self.from.store(from, Ordering::Relaxed);
        self.to.store(to, Ordering::Relaxed);
        self.born.store(born, Ordering::Relaxed);
        self.unlinked.store(0, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Release);
    }

    /// Records that the tree of `change`, which is about to be published, does not contain it.
    pub fn unlink(&self, change: u64) {
        self.unlinked.store(change, Ordering::Relaxed);
    }

    /// Ends the life, when no walk can hold a tree with this window.
    pub fn end(&self) {
        self.generation.store(0, Ordering::Relaxed);
    }

    /// Whether this cell holds a window that covers `key` and is in the tree of `change`. Async-signal-safe; wait-free.
    #[inline]
    pub fn covers(&self, key: u64, change: u64) -> bool {
        let generation = self.generation.load(Ordering::Acquire);
        let inside = (self.from.load(Ordering::Relaxed) <= key) & (key < self.to.load(Ordering::Relaxed));
        let (born, unlinked) = (self.born.load(Ordering::Relaxed), self.unlinked.load(Ordering::Relaxed));
        acquire_fence();
        // 0, which means not removed, becomes a change that never comes.
        let there = (born <= change) & (unlinked.wrapping_sub(1) >= change);
        inside & there & (generation != 0) & (self.generation.load(Ordering::Relaxed) == generation)
    }
}
