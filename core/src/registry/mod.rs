//! Windows: ranges of code that no loaded object covers, registered by a JIT under their text start address.
//!
//! Readers are wait-free in any context: one load gives a walk its root, and what hangs below never changes ([`tree`]).
//! Writers take a futex [`lock`], copy the path from the root to the place of their change, and publish the new root; what
//! they took out waits ([`limbo`]) until no walk that began before is under way ([`grace`]), and goes back to the [`pool`].
//! The waiting that a caller asks for happens without the lock, is bounded, and goes by ticket.
//!
//! ```text
//! register   publish, so that walks begin to see it
//! unlink     take it out -> ticket (an epoch)
//! replace    some go, others come, at once -> ticket
//! synchronize(ticket)   wait until every walk that began before has ended; only then may the text be wiped
//! ```
//! The registry never calls anybody. Of what the registrars own, only their tables of functions are read here, by walks
//! ([`functions`]).

pub mod c_window;
mod chain;
pub mod functions;
pub mod grace;
mod life;
mod limbo;
pub mod lock;
mod pool;
mod recent;
pub mod sync;
pub mod tree;
pub mod window;

use crate::slots::Slots;
use crate::syscall::monotonic_ns;
use chain::Chain;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use grace::{holds, Epoch, Root};
use limbo::Limbo;
use lock::Lock;
use pool::Pool;
use recent::Recent;
use tree::{before, locate, Change, Node};
use window::{Held, Window, GROWING};

/// Error of registry calls: a Linux errno, positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

/// The window overlaps another.
pub const EEXIST: Errno = Errno(17);
/// No window has this key.
pub const ENOENT: Errno = Errno(2);
/// Called from inside a walk, or in a handler that interrupted a registry call of the same thread.
pub const EDEADLK: Errno = Errno(35);
/// Walks did not end in time.
pub const ETIMEDOUT: Errno = Errno(110);
/// No memory.
pub const ENOMEM: Errno = Errno(12);
/// An argument makes no sense.
pub const EINVAL: Errno = Errno(22);
/// An unlinked window is pinned there: a walk may still read it.
pub const EBUSY: Errno = Errno(16);

/// Windows lie below this address: in the half of the address space that processes have.
pub const LIMIT: u64 = 1 << 63;
/// Nodes in limbo that make a writer look whether some can go.
const ENOUGH: usize = 128;
/// Cells of each kind that a writer gives back at once.
const AT_ONCE: usize = 256;
/// Birth of the nodes of the tree of pinned windows, which nobody but writers reads: they are changed in place.
const PINNED: u64 = u64::MAX;

/// What walks look at. In a line of its own, which a walk beside a writer has to fetch once.
#[repr(C, align(64))]
struct Shown {
    epoch: Epoch,
    root: Root<Node>,
    removals: AtomicU64,
    /// Null as long as there are few windows.
    recent: AtomicPtr<Recent>,
}

/// The registry of a process.
#[repr(C, align(64))]
pub struct Registry {
    shown: Shown,
    lock: Lock,
    generation: AtomicU64,
    pool: Pool,
    /// Windows that are unlinked and may still be read.
    pinned: AtomicPtr<Node>,
    nodes: Limbo<Node>,
    windows: Limbo<Held>,
    /// Nodes in limbo at which a writer looks again.
    look_at: AtomicUsize,
    /// The latest ticket whose walks were seen to have ended.
    passed: AtomicU64,
}

/// Whether a window overlaps its neighbours, as [`locate`] told them for its start.
fn overlaps((before, behind): (Option<&Held>, u64), window: &Window) -> bool {
    before.is_some_and(|held| held.window.end > window.start) || behind < window.end
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
        // SAFETY: `Registry::windows` promises that the tree stays as it is for so long.
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

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.root.is_null()
    }
}

impl Registry {
    /// Without windows.
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

    /// Counts changes in which windows went. Async-signal-safe.
    pub fn removals(&self) -> u64 {
        self.shown.removals.load(Ordering::SeqCst)
    }

    /// The windows as they are now, all through this walk. Async-signal-safe; wait-free.
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

    /// Registers a window. Returns its generation. Errors: [`EINVAL`] (empty, or reaches [`LIMIT`]), [`EEXIST`] (overlaps another),
    /// [`EBUSY`] (overlaps an unlinked one that a walk may still read), [`ENOMEM`], [`EDEADLK`].
    pub fn register(&self, window: Window, slots: &Slots) -> Result<u64, Errno> {
        self.swap(&[], core::iter::once(window), slots).map(|(generation, _)| generation)
    }

    /// Takes a window out; new walks do not see it. The ticket is for [`Registry::synchronize`]. Errors: [`ENOENT`],
    /// [`ENOMEM`], [`EDEADLK`].
    pub fn unlink(&self, start: u64, slots: &Slots) -> Result<u64, Errno> {
        self.swap(&[start], core::iter::empty(), slots).map(|(_, ticket)| ticket)
    }

    /// Some windows go and others come, at once: a walk sees the old ones or the new ones. New ones may lie where old ones
    /// did. The ticket is for [`Registry::synchronize`]. Errors: as [`Registry::register`] and [`Registry::unlink`]; then
    /// nothing has changed.
    pub fn replace(&self, old: &[u64], new: impl Iterator<Item = Window> + Clone, slots: &Slots) -> Result<u64, Errno> {
        self.swap(old, new, slots).map(|(_, ticket)| ticket)
    }

    /// No more functions are added to a growing window. Errors: [`ENOENT`], [`EDEADLK`].
    pub fn seal(&self, start: u64, slots: &Slots) -> Result<(), Errno> {
        self.changing(slots, || {
            // SAFETY: the lock's holder reads the tree.
            let held = unsafe { locate(self.shown.root.load(), start) }.0.filter(|held| held.window.start == start);
            held.ok_or(ENOENT)?.sealed.store(1, Ordering::Release);
            Ok(())
        })
    }

    /// A ticket for all walks that are under way now: whoever waits for it knows that they have ended. Wait-free.
    pub fn ticket(&self) -> u64 {
        self.shown.epoch.advance()
    }

    /// Waits until no walk that began before `ticket` is under way, at most `timeout_ns` (0: only asks). After
    /// [`ETIMEDOUT`] waiting again is allowed. [`EDEADLK`] from inside a walk, [`EINVAL`] for a ticket never given.
    pub fn synchronize(&self, ticket: u64, timeout_ns: u64, slots: &Slots) -> Result<(), Errno> {
        if slots.is_walking() {
            return Err(EDEADLK);
        }
        if ticket == 0 || ticket > self.epoch() {
            return Err(EINVAL);
        }
        if holds(slots.oldest_mark(false), ticket) {
            let begun = monotonic_ns();
            let mut round = 0u32;
            // From now on marks that nobody owns are looked for, too.
            while holds(slots.oldest_mark(true), ticket) {
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

    /// How many windows and nodes wait for walks to end.
    pub fn waiting(&self) -> (usize, usize) {
        (self.windows.len(), self.nodes.len())
    }

    /// To be called before a fork, so that the child finds the registry whole. [`Registry::fork_is_done`] follows. False,
    /// and nothing may follow: the calling thread is inside a change.
    pub fn fork_begins(&self) -> bool {
        self.lock.acquire()
    }

    /// Whether the calling thread is inside a change, or between [`Registry::fork_begins`] and [`Registry::fork_is_done`].
    pub fn is_mine(&self) -> bool {
        self.lock.is_mine()
    }

    /// In the parent and in the child, after a fork whose [`Registry::fork_begins`] said true.
    pub fn fork_is_done(&self) {
        self.lock.release();
    }

    /// In the child of a fork. If that fork asked nobody ([`Registry::fork_begins`]) and another thread was in a change, its
    /// half-done work is forgotten; the tree that walks see is always whole.
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

    /// The one change there is. The last generation that was given, and the ticket.
    fn swap(&self, old: &[u64], new: impl Iterator<Item = Window> + Clone, slots: &Slots) -> Result<(u64, u64), Errno> {
        if new.clone().any(|window| window.start == 0 || window.end <= window.start || window.end > LIMIT) {
            return Err(EINVAL);
        }
        self.changing(slots, || {
            if self.nodes.len() >= self.look_at.load(Ordering::Relaxed) {
                self.reclaim(slots);
            }
            let mut count = 0usize;
            for window in new.clone() {
                count += 1;
                while self.is_pinned(&window) {
                    if !self.reclaim(slots) && self.is_pinned(&window) {
                        return Err(EBUSY);
                    }
                }
            }
            // Births are epochs, which only the lock's holder needs to be new: tickets count, too.
            let mut change = Change::new(&self.pool, self.shown.root.load(), self.shown.epoch.now());
            let pins = Change::new(&self.pool, self.pinned.load(Ordering::Relaxed), PINNED);
            if !change.reserve(old.len().saturating_add(count), count) {
                return Err(ENOMEM);
            }
            let (mut gone, mut made) = (Chain::default(), Chain::default());
            let done = self.apply(&mut change, old, new, &mut gone, &mut made);
            // Behind the removals: room that they gave back is there again.
            let done =
                done.and_then(|generation| if pins.reserve(old.len(), 0) { Ok(generation) } else { Err(ENOMEM) });
            let generation = match done {
                Ok(generation) => generation,
                Err(error) => {
                    self.drop_made(made);
                    change.abandon();
                    return Err(error);
                }
            };
            gone.each(|held| held.life.unlink(change.birth()));
            self.shown.root.publish(change.root);
            if !old.is_empty() {
                // Behind the new root: whoever sees the old count has seen the old windows, or none that are gone.
                self.shown.removals.fetch_add(1, Ordering::SeqCst);
            }
            let ticket = self.shown.epoch.advance();
            if change.is_high() && self.shown.recent.load(Ordering::Relaxed).is_null() {
                self.shown.recent.store(Recent::new(), Ordering::Release);
            }
            if let Some((first, last)) = change.replaced() {
                // SAFETY: the change's chain: nodes that the published tree does not hold any more.
                unsafe { self.nodes.append(first, last, ticket) };
            }
            if !gone.first.is_null() {
                self.pin(pins, &gone, count != 0);
                // SAFETY: windows that were taken out, linked by `apply`.
                unsafe { self.windows.append(gone.first, gone.last, ticket) };
            }
            Ok((generation, ticket))
        })
    }

    /// Takes the old windows out of the change's tree and puts the new ones in; chains both. The last generation given.
    fn apply(
        &self,
        change: &mut Change<'_>,
        old: &[u64],
        new: impl Iterator<Item = Window>,
        gone: &mut Chain,
        made: &mut Chain,
    ) -> Result<u64, Errno> {
        for start in old {
            // SAFETY: the lock's holder reads the tree.
            let held =
                unsafe { locate(change.root, *start) }.0.filter(|held| held.window.start == *start).ok_or(ENOENT)?;
            change.remove(*start).ok_or(ENOMEM)?;
            gone.push(core::ptr::from_ref(held).cast_mut());
        }
        let mut generation = 0;
        for window in new {
            // SAFETY: as above.
            if overlaps(unsafe { locate(change.root, window.start) }, &window) {
                return Err(EEXIST);
            }
            let held = self.pool.take::<Held>().ok_or(ENOMEM)?;
            generation = self.next_generation();
            // SAFETY: a cell of this size, ours alone but for hints, whose walks look at its life only.
            unsafe {
                (&raw mut (*held).window).write(Window { generation, ..window });
                (*held).sealed.store(u32::from(window.flags & GROWING == 0), Ordering::Relaxed);
                for zero in [&(*held).pinned, &(*held).failures] {
                    zero.store(0, Ordering::Relaxed);
                }
                (*held).life.begin(window.start, window.end, generation, change.birth());
            }
            made.push(held);
            change.insert(window.start, held).ok_or(ENOMEM)?;
        }
        Ok(generation)
    }

    /// Gives back the windows of a change that failed.
    fn drop_made(&self, made: Chain) {
        made.each(|held| {
            held.life.end();
            // SAFETY: a cell of the pool, never published; nothing is read of it any more.
            unsafe { self.pool.give(core::ptr::from_ref(held).cast_mut()) };
        });
    }

    /// A generation whose low half, which frame words carry, is not 0.
    fn next_generation(&self) -> u64 {
        let next = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        let next = if next as u32 == 0 { next.wrapping_add(1) } else { next };
        self.generation.store(next, Ordering::Relaxed);
        next
    }

    /// Whether a window that was unlinked and may still be read lies there.
    fn is_pinned(&self, window: &Window) -> bool {
        // SAFETY: the lock's holder reads the tree.
        overlaps(unsafe { locate(self.pinned.load(Ordering::Relaxed), window.start) }, window)
    }

    /// Notes the chain of windows as pinned: all but those in whose place their successors are already, which stand for
    /// them (only where some were `replaced`).
    fn pin(&self, mut pins: Change<'_>, gone: &Chain, replaced: bool) {
        gone.each(|held| {
            let taken = [self.shown.root.load(), pins.root]
                .iter()
                .skip(usize::from(!replaced))
                // SAFETY: the lock's holder reads both trees.
                .any(|root| overlaps(unsafe { locate(*root, held.window.start) }, &held.window));
            // There is room: reserved before.
            if !taken && pins.insert(held.window.start, core::ptr::from_ref(held).cast_mut()).is_some() {
                held.pinned.store(1, Ordering::Relaxed);
            }
        });
        self.pinned.store(pins.root, Ordering::Relaxed);
    }

    /// With the lock held: gives back some of what no walk can read any more. Whether there may be more of that.
    fn reclaim(&self, slots: &Slots) -> bool {
        let mut oldest = slots.oldest_mark(false);
        if oldest != 0 {
            // Perhaps a mark that nobody owns.
            oldest = slots.oldest_mark(true);
        }
        // A walk that took its mark from an old epoch and set it late has loaded its root behind that.
        let oldest = if oldest == 0 { u64::MAX } else { oldest.max(self.passed.load(Ordering::Acquire)) };
        let mut pins = Change::new(&self.pool, self.pinned.load(Ordering::Relaxed), PINNED);
        // SAFETY: `oldest` is the oldest mark of all, seen behind the epochs' barriers: see `grace`.
        let more = unsafe {
            let windows = self.windows.free(oldest, AT_ONCE, &self.pool, |held| {
                held.life.end();
                if held.pinned.load(Ordering::Relaxed) != 0 {
                    let _ = pins.remove(held.window.start);
                }
            });
            self.pinned.store(pins.root, Ordering::Relaxed);
            self.nodes.free(oldest, AT_ONCE, &self.pool, |_| {}) || windows
        };
        // Where a walk is in the way, the next look comes when twice as much waits.
        let waiting = self.nodes.len();
        self.look_at.store(if more { waiting } else { waiting.saturating_mul(2).max(ENOUGH) }, Ordering::Relaxed);
        more
    }
}

#[cfg(test)]
mod tests;
