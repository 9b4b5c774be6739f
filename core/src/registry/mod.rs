//! Windows: ranges of code that no loaded object covers, registered by a JIT under their text start address.
//!
//! Readers are wait-free in any context: one load gives a walk its [`snapshot`], an immutable sorted array. Writers take a
//! futex [`lock`], build a new snapshot and swap it in; the old one, and what was unlinked with it, is freed when no walk
//! that began before the swap is under way. That waiting happens without the lock, is bounded, and is asked for by ticket.
//!
//! ```text
//! register   publish, so that walks begin to see it
//! unlink     swap it out -> ticket (an epoch)
//! synchronize(ticket)   wait until every walk that began before has ended; only then may the text be wiped
//! ```
//! A snapshot is copied as a whole by each writer, which is right for thousands of windows, not for hundreds of
//! thousands.

pub mod lock;
pub mod snapshot;

use crate::slots::Slots;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use lock::Lock;
use snapshot::{Snapshot, Window};

/// Error of registry calls: a Linux errno, positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

/// The window overlaps another.
pub const EEXIST: Errno = Errno(17);
/// No window has this key.
pub const ENOENT: Errno = Errno(2);
/// Called from inside a walk.
pub const EDEADLK: Errno = Errno(35);
/// Walks did not end in time.
pub const ETIMEDOUT: Errno = Errno(110);
/// No memory for the snapshot.
pub const ENOMEM: Errno = Errno(12);
/// An argument makes no sense.
pub const EINVAL: Errno = Errno(22);
/// The window is unlinked but pinned: a walk may still read it.
pub const EBUSY: Errno = Errno(16);

/// Windows that were unlinked and whose grace period was not waited for yet.
const PENDING: usize = 64;

/// The registry of a process.
pub struct Registry {
    snapshot: AtomicPtr<Snapshot>,
    /// Grows by one with each change. Never 0.
    epoch: AtomicU64,
    lock: Lock,
    /// Old snapshots, with the epoch that replaced them.
    retired: [(AtomicPtr<Snapshot>, AtomicU64); PENDING],
    /// Keys of unlinked windows, with their tickets.
    pinned: [(AtomicU64, AtomicU64); PENDING],
}

impl Registry {
    /// Without windows.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Registry {
        Registry {
            snapshot: AtomicPtr::new(core::ptr::null_mut()),
            epoch: AtomicU64::new(1),
            lock: Lock::new(),
            retired: [const { (AtomicPtr::new(core::ptr::null_mut()), AtomicU64::new(0)) }; PENDING],
            pinned: [const { (AtomicU64::new(0), AtomicU64::new(0)) }; PENDING],
        }
    }

    /// The epoch to enter a walk with. Async-signal-safe.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// The windows as this walk sees them. Async-signal-safe.
    ///
    /// # Safety
    /// The caller must be inside a walk ([`Slots::enter`] with [`Registry::epoch`]) for as long as the result is used.
    pub unsafe fn windows(&self) -> Option<&Snapshot> {
        // SAFETY: a snapshot is freed only after all walks that may have loaded it have ended.
        unsafe { self.snapshot.load(Ordering::SeqCst).as_ref() }
    }

    /// Registers a window. Errors: [`EINVAL`] (empty, or wraps), [`EEXIST`] (overlaps another), [`EBUSY`] (unlinked and
    /// not synchronized), [`ENOMEM`], [`EDEADLK`].
    pub fn register(&self, window: Window, slots: &Slots) -> Result<(), Errno> {
        if window.start == 0 || window.end <= window.start {
            return Err(EINVAL);
        }
        if slots.is_walking() {
            return Err(EDEADLK);
        }
        self.reclaim(slots);
        self.lock.with(|| {
            if self.pinned.iter().any(|(key, _)| key.load(Ordering::Relaxed) == window.start) {
                return Err(EBUSY);
            }
            let old = self.current();
            let new = Snapshot::with(old, &Window { generation: self.epoch.load(Ordering::Relaxed), ..window })?;
            self.publish(new)
        })
    }

    /// Takes a window out; new walks do not see it. The ticket is for [`Registry::synchronize`]. Errors: [`ENOENT`],
    /// [`ENOMEM`] (also: too many windows wait to be synchronized), [`EDEADLK`].
    pub fn unlink(&self, start: u64, slots: &Slots) -> Result<u64, Errno> {
        if slots.is_walking() {
            return Err(EDEADLK);
        }
        self.reclaim(slots);
        self.lock.with(|| {
            let old = self.current();
            let new = Snapshot::without(old, start)?;
            let Some(pin) = self.pinned.iter().find(|(key, _)| key.load(Ordering::Relaxed) == 0) else {
                // SAFETY: never published.
                unsafe { Snapshot::free(new) };
                return Err(ENOMEM);
            };
            self.publish(new)?;
            let ticket = self.epoch.load(Ordering::Relaxed);
            pin.1.store(ticket, Ordering::Relaxed);
            pin.0.store(start, Ordering::Release);
            Ok(ticket)
        })
    }

    /// Waits until no walk that began before `ticket` is under way, at most `timeout_ns` (0: only asks). After
    /// [`ETIMEDOUT`] waiting again is allowed. [`EDEADLK`] from inside a walk.
    pub fn synchronize(&self, ticket: u64, timeout_ns: u64, slots: &Slots) -> Result<(), Errno> {
        if slots.is_walking() {
            return Err(EDEADLK);
        }
        let begun = crate::syscall::monotonic_ns();
        while slots.any_before(ticket) {
            if crate::syscall::monotonic_ns().saturating_sub(begun) >= timeout_ns {
                return Err(ETIMEDOUT);
            }
            lock::pause();
        }
        for (key, pinned_by) in &self.pinned {
            let by = pinned_by.load(Ordering::Relaxed);
            if by != 0 && by <= ticket {
                // In this order: a free place is one with key 0.
                pinned_by.store(0, Ordering::Relaxed);
                key.store(0, Ordering::Release);
            }
        }
        self.reclaim(slots);
        Ok(())
    }

    /// In the child of a fork: whoever held the lock is not here.
    pub fn after_fork(&self) {
        self.lock.reset();
    }

    fn current(&self) -> Option<&Snapshot> {
        // SAFETY: only the lock's holder replaces it.
        unsafe { self.snapshot.load(Ordering::Acquire).as_ref() }
    }

    /// With the lock held: makes `new` the snapshot, and remembers the old one until nobody reads it.
    fn publish(&self, new: *mut Snapshot) -> Result<(), Errno> {
        let Some(place) = self.retired.iter().find(|(old, _)| old.load(Ordering::Acquire).is_null()) else {
            // SAFETY: never published.
            unsafe { Snapshot::free(new) };
            return Err(ENOMEM);
        };
        let old = self.snapshot.swap(new, Ordering::SeqCst);
        let epoch = self.epoch.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        place.1.store(epoch, Ordering::Relaxed);
        place.0.store(old, Ordering::Release);
        Ok(())
    }

    /// Frees old snapshots that no walk can read any more.
    fn reclaim(&self, slots: &Slots) {
        for (old, epoch) in &self.retired {
            let snapshot = old.load(Ordering::Acquire);
            if snapshot.is_null() || slots.any_before(epoch.load(Ordering::Relaxed)) {
                continue;
            }
            if old.compare_exchange(snapshot, core::ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // SAFETY: replaced before every walk now under way began, and taken by this call alone.
                unsafe { Snapshot::free(snapshot) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snapshot::Kind;

    fn slots() -> Box<Slots> {
        // SAFETY: all-zero is the free pool.
        unsafe { Box::<Slots>::new_zeroed().assume_init() }
    }

    fn window(start: u64, end: u64) -> Window {
        Window { start, end, kind: Kind::FramePointer, generation: 0, user: 0 }
    }

    fn find(registry: &Registry, pc: u64) -> Option<u64> {
        // SAFETY: one thread, and nothing is freed during the call.
        unsafe { registry.windows() }.and_then(|s| s.find(pc)).map(|w| w.start)
    }

    #[test]
    fn windows_are_found_and_overlaps_refused() {
        let (registry, slots) = (Registry::new(), slots());
        for i in 0..300u64 {
            let start = 0x1000 * (1 + (i * 7) % 300);
            assert_eq!(registry.register(window(start, start + 0x800), &slots), Ok(()));
        }
        for i in 1..=300u64 {
            assert_eq!(find(&registry, 0x1000 * i), Some(0x1000 * i));
            assert_eq!(find(&registry, 0x1000 * i + 0x7ff), Some(0x1000 * i));
            assert_eq!(find(&registry, 0x1000 * i + 0x800), None);
        }
        for (start, end) in [(0x1000, 0x1001), (0x1700, 0x1900), (0x800, 0x1001), (0x800, 0x40_0000)] {
            assert_eq!(registry.register(window(start, end), &slots), Err(EEXIST));
        }
        assert_eq!(registry.register(window(0x900_0000, 0x900_0000), &slots), Err(EINVAL));
        assert_eq!(registry.unlink(0x1001, &slots), Err(ENOENT));
    }

    #[test]
    fn an_unlinked_window_is_pinned_until_the_walks_before_it_end() {
        let (registry, slots) = (Registry::new(), slots());
        registry.register(window(0x1000, 0x2000), &slots).expect("first");
        let slots = &*slots;
        std::thread::scope(|scope| {
            let (entered, wait_entered) = std::sync::mpsc::channel();
            let (go_on, wait) = std::sync::mpsc::channel::<()>();
            let epoch = registry.epoch();
            scope.spawn(move || {
                let walking = slots.enter(1000, epoch).expect("a walk");
                entered.send(()).expect("told");
                wait.recv().expect("told to leave");
                walking.leave();
            });
            wait_entered.recv().expect("entered");
            let ticket = registry.unlink(0x1000, slots).expect("unlinked");
            assert_eq!(find(&registry, 0x1000), None, "new walks do not see it");
            assert_eq!(registry.synchronize(ticket, 2_000_000, slots), Err(ETIMEDOUT));
            assert_eq!(registry.register(window(0x1000, 0x2000), slots), Err(EBUSY));
            go_on.send(()).expect("told");
            assert_eq!(registry.synchronize(ticket, 5_000_000_000, slots), Ok(()));
            assert_eq!(registry.register(window(0x1000, 0x2000), slots), Ok(()));
        });
        let walking = slots.enter(1000, registry.epoch()).expect("a walk");
        assert_eq!(registry.unlink(0x1000, slots), Err(EDEADLK));
        assert_eq!(registry.synchronize(1, 0, slots), Err(EDEADLK));
        walking.leave();
    }

    #[test]
    fn marks_of_dead_threads_do_not_hold_a_window() {
        let (registry, slots) = (Registry::new(), slots());
        registry.register(window(0x1000, 0x2000), &slots).expect("first");
        let slots = &*slots;
        let epoch = registry.epoch();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _left_without_its_exit = slots.enter(1000, epoch).expect("a walk");
            });
        });
        let ticket = registry.unlink(0x1000, slots).expect("unlinked");
        assert_eq!(registry.synchronize(ticket, 10_000_000_000, slots), Ok(()));
    }
}
