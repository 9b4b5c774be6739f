//! When a window belongs to the tree, told by itself: what lets a walk go to a window by a hint, past the tree.
//!
//! A hint leads to a cell where a window lay when somebody last asked. Now it may be free, or hold another window, or be
//! written this moment; it is memory in any case. A walk that holds the tree of change `c` may use it if the window was put
//! in by `c` or before, and not taken out by `c` or before: then it is in that tree, and stays as it is until the walk ends.
//!
//! ```text
//! walk     read the generation; read the rest; read the generation again: not 0, and the same
//! writer   taking out   note the change, then publish the tree without it
//!          using anew   generation = 0; write the rest; write the new generation
//! ```
//! This file is also compiled by the model checker (`core/model`), with its own `sync`.

use super::sync::{acquire_fence, release_fence, AtomicU64, Ordering};

/// Of one cell.
#[derive(Default)]
#[repr(C)]
pub struct Life {
    from: AtomicU64,
    to: AtomicU64,
    /// The window's; no two windows have the same. 0: none is here, or one that is being written.
    generation: AtomicU64,
    born: AtomicU64,
    unlinked: AtomicU64,
}

impl Life {
    /// A window from `from` to `to` (exclusive) that change `born` puts in. All else about it is written already.
    pub fn begin(&self, from: u64, to: u64, generation: u64, born: u64) {
        self.end();
        // Whoever reads anything of what follows reads the 0, too, when it looks again.
        release_fence();
        self.from.store(from, Ordering::Relaxed);
        self.to.store(to, Ordering::Relaxed);
        self.born.store(born, Ordering::Relaxed);
        self.unlinked.store(0, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Release);
    }

    /// The tree of `change`, which is about to be published, does not hold it.
    pub fn unlink(&self, change: u64) {
        self.unlinked.store(change, Ordering::Relaxed);
    }

    /// The cell is given back: no walk can hold a tree with this window.
    pub fn end(&self) {
        self.generation.store(0, Ordering::Relaxed);
    }

    /// Whether a window that covers `key` is here, and in the tree of `change`. Async-signal-safe; wait-free.
    #[inline]
    pub fn covers(&self, key: u64, change: u64) -> bool {
        let generation = self.generation.load(Ordering::Acquire);
        let inside = (self.from.load(Ordering::Relaxed) <= key) & (key < self.to.load(Ordering::Relaxed));
        let (born, unlinked) = (self.born.load(Ordering::Relaxed), self.unlinked.load(Ordering::Relaxed));
        acquire_fence();
        // 0, for not taken out, becomes a change that never comes.
        let there = (born <= change) & (unlinked.wrapping_sub(1) >= change);
        inside & there & (generation != 0) & (self.generation.load(Ordering::Relaxed) == generation)
    }
}
