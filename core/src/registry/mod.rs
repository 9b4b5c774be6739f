//! Windows: ranges of code that no loaded object covers, registered by a JIT under their text start address.
//!
//! Readers are wait-free in any context: one load gives a walk its root, and the nodes below it never change
//! ([`tree`]). Writers take a futex [`lock`], copy the path from the root to the place of their change, and publish the
//! new root. What they removed waits (`limbo`) until no walk that began before is in progress ([`grace`]), and
//! returns to the `pool`. The wait that a caller requests happens without the lock, is bounded, and goes by ticket.
//!
//! ```text
//! register   publish, so that walks begin to see it
//! unlink     remove it -> ticket (an epoch)
//! replace    remove some and add others, at once -> ticket
//! synchronize(ticket)   wait until every walk that began before has ended; only then may the text be wiped
//! ```
//! Seen from a walk: one that has looked at windows keeps its tree to its end, so it still finds a window that is
//! unlinked meanwhile, and calls its functions; one that has not looked yet sees the new tree. What the window has left
//! in caches dies by other means: rules by pc with its generation, last walks by [`Registry::removals`]; captures
//! replay no frame in a window, since only objects' code has short rules.
//!
//! The registry calls no code of the registrars. Of their memory, it reads only the tables of functions, in walks
//! ([`functions`]).

pub mod c_window;
pub mod functions;
pub mod grace;
mod life;
mod limbo;
mod list;
pub mod lock;
pub mod outside;
mod pool;
mod recent;
mod swap;
pub mod sync;
pub mod tree;
pub mod window;

use crate::errno::{Errno, EDEADLK, EINVAL, ENOENT, ETIMEDOUT};
use crate::slots::{MarksOf, Slots};
use crate::syscall::monotonic_ns;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use grace::{holds, Epoch, Root};
use limbo::Limbo;
use lock::Lock;
use pool::Pool;
use recent::Recent;
use tree::{before, locate, Node};
use window::{Held, Window};

/// End of the addresses that windows may cover: the half of the address space that processes have.
pub const LIMIT: u64 = 1 << 63;
/// Number of nodes in limbo at which a writer checks whether some can be freed.
const ENOUGH: usize = 128;

/// The data that walks read. In a cache line of its own, which walks share with writers.
#[repr(C, align(64))]
struct Shown {
    epoch: Epoch,
    root: Root<Node>,
    removals: AtomicU64,
    /// The hints; null as long as there are few windows.
    recent: AtomicPtr<Recent>,
}

/// The registry of a process.
///
/// ```
/// use uunwind_core::errno::EEXIST;
/// use uunwind_core::registry::window::{Kind, Window};
/// use uunwind_core::registry::Registry;
/// use uunwind_core::slots::Slots;
///
/// static REGISTRY: Registry = Registry::new();
/// static SLOTS: Slots = Slots::new();
///
/// let window = Window::new(0x7000_0000, 0x7000_1000, Kind::FramePointer);
/// REGISTRY.register(window, &SLOTS).expect("nothing overlaps it");
/// assert_eq!(REGISTRY.register(window, &SLOTS), Err(EEXIST));
///
/// {
///     let _walk = SLOTS.enter(0x7ffe_0000, REGISTRY.epoch()).expect("no other walk on this thread");
///     // SAFETY: inside a walk.
///     let windows = unsafe { REGISTRY.windows() };
///     assert_eq!(windows.find(0x7000_0010).map(|held| held.window().start), Some(0x7000_0000));
/// }
///
/// let ticket = REGISTRY.unlink(0x7000_0000, &SLOTS).expect("it was registered");
/// // Once this returns, no walk reads the window, and its text may be wiped.
/// REGISTRY.synchronize(ticket, 1_000_000_000, &SLOTS).expect("no walk is in progress");
/// ```
#[repr(C, align(64))]
pub struct Registry {
    shown: Shown,
    lock: Lock,
    generation: AtomicU64,
    pool: Pool,
    /// Tree of windows that are unlinked and may still be read.
    pinned: AtomicPtr<Node>,
    nodes: Limbo<Node>,
    windows: Limbo<Held>,
    /// Number of nodes in limbo at which a writer checks again.
    look_at: AtomicUsize,
    /// The latest ticket whose walks were found to have ended.
    passed: AtomicU64,
}

/// The windows as one walk sees them.
#[derive(Clone, Copy)]
pub struct Windows<'w> {
    root: *const Node,
    recent: Option<&'w Recent>,
    of: core::marker::PhantomData<&'w Node>,
}

impl<'w> Windows<'w> {
    /// The window that covers `pc`. Async-signal-safe; logarithmic.
    #[inline]
    pub fn find(self, pc: u64) -> Option<&'w Held> {
        // SAFETY: `Registry::windows` guarantees that the tree is unchanged for that long.
        let change = unsafe { self.root.as_ref() }?.change();
        let hint = self.recent.and_then(|recent| recent.get(pc));
        if let Some(held) = hint.filter(|held| held.life.covers(pc, change)) {
            return Some(held);
        }
        // SAFETY: as above.
        let held = unsafe { before(self.root, pc) }.filter(|held| pc < held.window().end)?;
        if let Some(recent) = self.recent {
            recent.put(pc, held);
        }
        Some(held)
    }

    /// Whether there are no windows.
    pub fn is_empty(self) -> bool {
        self.root.is_null()
    }
}

impl Registry {
    /// A registry without windows.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Registry {
        Registry {
            shown: Shown {
                epoch: Epoch::new(),
                root: Root::new(),
                removals: AtomicU64::new(0),
                recent: AtomicPtr::new(core::ptr::null_mut()),
            },
            lock: Lock::new(),
            generation: AtomicU64::new(0),
            pool: Pool::new(),
            pinned: AtomicPtr::new(core::ptr::null_mut()),
            nodes: Limbo::new(),
            windows: Limbo::new(),
            look_at: AtomicUsize::new(ENOUGH),
            passed: AtomicU64::new(0),
        }
    }

    /// The epoch to enter a walk with. Async-signal-safe.
    pub fn epoch(&self) -> u64 {
        self.shown.epoch.now()
    }

    /// What a reader of this process's memory must know to find the windows.
    pub const fn outside(&'static self) -> outside::Outside {
        outside::Outside::of(&self.shown.root)
    }

    /// Number of changes in which windows were removed. Async-signal-safe.
    pub fn removals(&self) -> u64 {
        self.shown.removals.load(Ordering::SeqCst)
    }

    /// The current windows, for the rest of this walk. Async-signal-safe; wait-free.
    ///
    /// # Safety
    /// The caller must be inside a walk ([`Slots::enter`] with [`Registry::epoch`]) for all of `'w`.
    #[inline]
    pub unsafe fn windows<'w>(&self) -> Windows<'w> {
        let root = self.shown.root.load();
        // SAFETY: null, or never unmapped.
        let recent = unsafe { self.shown.recent.load(Ordering::Acquire).as_ref() };
        Windows { root, recent, of: core::marker::PhantomData }
    }

    /// Registers a window. Returns its generation. Errors: [`EINVAL`] (empty, or reaches [`LIMIT`]), `EEXIST` (overlaps
    /// another), `EBUSY` (overlaps an unlinked one that a walk may still read), `ENOMEM`, [`EDEADLK`] (from inside a
    /// walk or a change). Not for handlers.
    pub fn register(&self, window: Window, slots: &Slots) -> Result<u64, Errno> {
        self.swap(&[], core::iter::once(window), slots).map(|(generation, _)| generation)
    }

    /// Removes the window that begins at the process address `start`; new walks do not see it. The ticket is for
    /// [`Registry::synchronize`]. Errors: [`ENOENT`], `ENOMEM`, [`EDEADLK`]. Not for handlers.
    pub fn unlink(&self, start: u64, slots: &Slots) -> Result<u64, Errno> {
        self.swap(&[start], core::iter::empty(), slots).map(|(_, ticket)| ticket)
    }

    /// Removes some windows and adds others at once: a walk sees either the old ones or the new ones. New ones may lie
    /// where old ones did. The ticket is for [`Registry::synchronize`]. Errors: those of [`Registry::register`] and
    /// [`Registry::unlink`]; then nothing has changed.
    pub fn replace(&self, old: &[u64], new: impl Iterator<Item = Window> + Clone, slots: &Slots) -> Result<u64, Errno> {
        self.swap(old, new, slots).map(|(_, ticket)| ticket)
    }

    /// Marks a growing window as complete: no more functions are added. Errors: [`ENOENT`], [`EDEADLK`].
    pub fn seal(&self, start: u64, slots: &Slots) -> Result<(), Errno> {
        self.changing(slots, || {
            // SAFETY: the lock's holder reads the tree.
            let held = unsafe { locate(self.shown.root.load(), start) }.0.filter(|held| held.window.start == start);
            held.ok_or(ENOENT)?.sealed.store(1, Ordering::Release);
            Ok(())
        })
    }

    /// A ticket for all walks that are in progress now: waiting for it ensures that they have ended. Wait-free.
    pub fn ticket(&self) -> u64 {
        self.shown.epoch.advance()
    }

    /// Waits until no walk that began before `ticket` is in progress, for at most `timeout_ns` (0: only checks). After
    /// [`ETIMEDOUT`] the wait may be repeated. [`EDEADLK`] from inside a walk, [`EINVAL`] for a ticket that was never
    /// given.
    pub fn synchronize(&self, ticket: u64, timeout_ns: u64, slots: &Slots) -> Result<(), Errno> {
        if slots.is_walking() {
            return Err(EDEADLK);
        }
        if ticket == 0 || ticket > self.epoch() {
            return Err(EINVAL);
        }
        if holds(slots.oldest_mark(MarksOf::AllThreads), ticket) {
            let begun = monotonic_ns();
            let mut round = 0u32;
            // The mark may have been left by a thread that has ended.
            while holds(slots.oldest_mark(MarksOf::LivingThreads), ticket) {
                if monotonic_ns().saturating_sub(begun) >= timeout_ns {
                    return Err(ETIMEDOUT);
                }
                lock::pause(round);
                round = round.saturating_add(1);
            }
        }
        self.passed.fetch_max(ticket, Ordering::Release);
        Ok(())
    }

    /// Number of windows and of nodes that wait for walks to end.
    pub fn waiting(&self) -> (usize, usize) {
        (self.windows.len(), self.nodes.len())
    }

    /// To be called before a fork, so that the child finds the registry complete. [`Registry::fork_is_done`] follows.
    /// False if the calling thread is inside a change; then no call may follow.
    pub fn fork_begins(&self) -> bool {
        self.lock.acquire()
    }

    /// Whether the calling thread is inside a change, or between [`Registry::fork_begins`] and
    /// [`Registry::fork_is_done`].
    pub fn is_mine(&self) -> bool {
        self.lock.is_mine()
    }

    /// To be called in the parent and in the child, after a fork for which [`Registry::fork_begins`] returned true.
    pub fn fork_is_done(&self) {
        self.lock.release();
    }

    /// To be called in the child of a fork. If [`Registry::fork_begins`] was not called before it and another thread
    /// was inside a change, that thread's unfinished work is dropped; the tree that walks see is always complete.
    pub fn after_fork(&self) {
        if self.lock.was_lost() {
            self.pool.abandon();
            self.nodes.abandon();
            self.windows.abandon();
            self.pinned.store(core::ptr::null_mut(), Ordering::Relaxed);
        }
    }

    /// Runs `f` with the lock held, unless this thread is inside a walk or a change.
    fn changing<T>(&self, slots: &Slots, f: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        if slots.is_walking() {
            return Err(EDEADLK);
        }
        self.lock.with(f).unwrap_or(Err(EDEADLK))
    }
}

#[cfg(test)]
mod tests;
