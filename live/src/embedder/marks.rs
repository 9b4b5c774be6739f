//! Ranges of code in loaded objects whose native frames host an embedder's frames (`uu_mark_interpreter`).

use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::registry::lock::Lock;

/// Limit of the number of ranges.
pub const MOST: usize = 64;

/// The ranges of the process.
pub static MARKS: Marks = Marks { lock: Lock::new(), ranges: [const { (AtomicU64::new(0), AtomicU64::new(0)) }; MOST] };

/// Why a range was not added.
pub enum Trouble {
    /// It overlaps a marked range.
    Overlap,
    /// The table is full, or the call comes from a handler that interrupted another change of the table.
    Full,
}

/// Ranges of process addresses, each as its start and its end (exclusive). An end of 0 means a free entry. A reader
/// that runs during a change finds the entry free.
pub struct Marks {
    lock: Lock,
    ranges: [(AtomicU64, AtomicU64); MOST],
}

impl Marks {
    /// Whether an address is marked. Async-signal-safe.
    pub fn covers(&self, address: u64) -> bool {
        self.overlaps(address, address.wrapping_add(1))
    }

    /// Whether any address from `start` to `end` (exclusive) is marked. Async-signal-safe.
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

    /// Removes the range that begins at `start`. False: there is none. Not for handlers.
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

    /// Releases the lock in the child of a fork.
    pub fn after_fork(&self) {
        // A change by another thread may be unfinished: its range is then marked or it is not, and both are valid.
        self.lock.was_lost();
    }
}
