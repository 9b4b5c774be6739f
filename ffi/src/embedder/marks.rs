//! Ranges of code, inside loaded objects, that host frames of an embedder's.

use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::registry::lock::Lock;

/// Most ranges.
pub const MOST: usize = 64;

/// The ranges of the process.
pub static MARKS: Marks = Marks { lock: Lock::new(), ranges: [const { (AtomicU64::new(0), AtomicU64::new(0)) }; MOST] };

/// Why a range was not added.
pub enum Trouble {
    /// It overlaps one that is there.
    Overlap,
    /// There is no room, or a handler that interrupted this very call asked for it.
    Full,
}

/// Ranges, each as its start and its end. Whoever reads in the middle of a change finds an empty range.
pub struct Marks {
    lock: Lock,
    ranges: [(AtomicU64, AtomicU64); MOST],
}

impl Marks {
    /// Whether an address is marked. Async-signal-safe.
    pub fn covers(&self, address: u64) -> bool {
        self.overlaps(address, address.wrapping_add(1))
    }

    /// Whether something in this range is marked. Async-signal-safe.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.ranges.iter().any(|(from, to)| {
            let to = to.load(Ordering::Acquire);
            to != 0 && from.load(Ordering::Acquire) < end && start < to
        })
    }

    /// Adds a range. Not for handlers.
    pub fn add(&self, start: u64, end: u64) -> Result<(), Trouble> {
        let added = self.lock.with(|| {
            if self.overlaps(start, end) {
                return Err(Trouble::Overlap);
            }
            let free = self.ranges.iter().find(|(_, to)| to.load(Ordering::Relaxed) == 0);
            let (from, to) = free.ok_or(Trouble::Full)?;
            from.store(start, Ordering::Release);
            to.store(end, Ordering::Release);
            Ok(())
        });
        added.unwrap_or(Err(Trouble::Full))
    }

    /// Removes the range that begins here. False: there is none. Not for handlers.
    pub fn remove(&self, start: u64) -> bool {
        let removed = self.lock.with(|| {
            let is_it = |(from, to): &&(AtomicU64, AtomicU64)| {
                from.load(Ordering::Relaxed) == start && to.load(Ordering::Relaxed) != 0
            };
            let found = self.ranges.iter().find(is_it);
            if let Some((_, to)) = found {
                to.store(0, Ordering::Release);
            }
            found.is_some()
        });
        removed.unwrap_or(false)
    }

    /// In the child of a fork.
    pub fn after_fork(&self) {
        // What another thread was changing is a range that was being added or removed: either is as good.
        self.lock.was_lost();
    }
}
