//! The one operation that adds and removes windows, and the memory of what it removed.
//!
//! A change copies the nodes that it touches, publishes the new root, and only then takes its ticket: no walk that
//! begins later reads what was removed. Removed windows and nodes wait in limbo until all older walks have ended
//! ([`super::grace`]); until then the windows are *pinned*: their addresses can be registered again only by the same
//! change that removed them.

use super::list::List;
use super::recent::Recent;
use super::tree::{locate, Change};
use super::window::{Held, Window, GROWING};
use super::{Registry, ENOUGH, LIMIT};
use crate::errno::{Errno, EBUSY, EEXIST, EINVAL, ENOENT, ENOMEM};
use crate::slots::{MarksOf, Slots};
use core::sync::atomic::Ordering;

/// Limit of cells of each kind that a writer frees at once.
const AT_ONCE: usize = 256;
/// Birth of the nodes of the tree of pinned windows, which only writers read: they are changed in place.
const PINNED: u64 = u64::MAX;

/// Whether a window overlaps its neighbours, the result of [`locate`] for its start.
fn overlaps((before, after): (Option<&Held>, u64), window: &Window) -> bool {
    before.is_some_and(|held| held.window.end > window.start) || after < window.end
}

impl Registry {
    /// Removes windows and adds others, as all such changes do. Returns the last generation that was assigned, and the
    /// ticket.
    pub(super) fn swap(
        &self,
        old: &[u64],
        new: impl Iterator<Item = Window> + Clone,
        slots: &Slots,
    ) -> Result<(u64, u64), Errno> {
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
            // Births are epochs. Only the lock's holder needs them to be new: tickets increment the epoch as well.
            let mut change = Change::new(&self.pool, self.shown.root.load(), self.shown.epoch.now());
            let pins = Change::new(&self.pool, self.pinned.load(Ordering::Relaxed), PINNED);
            if !change.reserve(old.len().saturating_add(count), count) {
                return Err(ENOMEM);
            }
            let (mut gone, mut made) = (List::default(), List::default());
            let done = self.apply(&mut change, old, new, &mut gone, &mut made);
            // After the removals, so that the space that they freed is available again.
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
                // After the new root: a reader of the old count saw the old windows, or none of those that were
                // removed.
                self.shown.removals.fetch_add(1, Ordering::SeqCst);
            }
            let ticket = self.shown.epoch.advance();
            if change.is_high() && self.shown.recent.load(Ordering::Relaxed).is_null() {
                self.shown.recent.store(Recent::new(), Ordering::Release);
            }
            if let Some((first, last)) = change.replaced() {
                // SAFETY: the change's list: nodes that are no longer in the published tree.
                unsafe { self.nodes.append(first, last, ticket) };
            }
            if !gone.first.is_null() {
                self.pin(pins, &gone, count != 0);
                // SAFETY: windows that were removed, linked by `apply`.
                unsafe { self.windows.append(gone.first, gone.last, ticket) };
            }
            Ok((generation, ticket))
        })
    }

    /// Removes the old windows from the change's tree and inserts the new ones; links both in lists. Returns the last
    /// generation assigned.
    fn apply(
        &self,
        change: &mut Change<'_>,
        old: &[u64],
        new: impl Iterator<Item = Window>,
        gone: &mut List,
        made: &mut List,
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
            // SAFETY: the lock's holder reads the tree.
            if overlaps(unsafe { locate(change.root, window.start) }, &window) {
                return Err(EEXIST);
            }
            let held = self.pool.take::<Held>().ok_or(ENOMEM)?;
            generation = self.next_generation();
            // SAFETY: a cell of this size without another user; walks that follow hints read only its life.
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

    /// Frees the windows of a change that failed.
    fn drop_made(&self, made: List) {
        made.each(|held| {
            held.life.end();
            // SAFETY: a cell of the pool that was never published and is no longer read.
            unsafe { self.pool.give(core::ptr::from_ref(held).cast_mut()) };
        });
    }

    /// The next generation whose low half, which frame words contain, is not 0.
    fn next_generation(&self) -> u64 {
        let next = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        let next = if next as u32 == 0 { next.wrapping_add(1) } else { next };
        self.generation.store(next, Ordering::Relaxed);
        next
    }

    /// Whether a window that was unlinked and may still be read overlaps this one.
    fn is_pinned(&self, window: &Window) -> bool {
        // SAFETY: the lock's holder reads the tree.
        overlaps(unsafe { locate(self.pinned.load(Ordering::Relaxed), window.start) }, window)
    }

    /// Marks the list of windows as pinned, except those whose successors are already in their place, which pin it as
    /// well (only if some were `replaced`).
    fn pin(&self, mut pins: Change<'_>, gone: &List, replaced: bool) {
        gone.each(|held| {
            let taken = [self.shown.root.load(), pins.root]
                .iter()
                .skip(usize::from(!replaced))
                // SAFETY: the lock's holder reads both trees.
                .any(|root| overlaps(unsafe { locate(*root, held.window.start) }, &held.window));
            // Space was reserved before.
            if !taken && pins.insert(held.window.start, core::ptr::from_ref(held).cast_mut()).is_some() {
                held.pinned.store(1, Ordering::Relaxed);
            }
        });
        self.pinned.store(pins.root, Ordering::Relaxed);
    }

    /// Frees some of what no walk can read any more; the lock must be held. Returns whether there may be more.
    fn reclaim(&self, slots: &Slots) -> bool {
        let mut oldest = slots.oldest_mark(MarksOf::AllThreads);
        if oldest != 0 {
            // The mark may have been left by a thread that has ended.
            oldest = slots.oldest_mark(MarksOf::LivingThreads);
        }
        // All walks that could read what was removed before the ticket `passed` have ended. A mark below it can still
        // appear: that walk had read the epoch long before it set its mark. It loaded its root later, so it does not
        // see what was removed before `passed`.
        let oldest = if oldest == 0 { u64::MAX } else { oldest.max(self.passed.load(Ordering::Acquire)) };
        let mut pins = Change::new(&self.pool, self.pinned.load(Ordering::Relaxed), PINNED);
        // SAFETY: `oldest` is the oldest mark of all, read after the epochs' barriers: see `grace`.
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
        // If a walk prevents it, the next check comes when twice as much waits.
        let waiting = self.nodes.len();
        self.look_at.store(if more { waiting } else { waiting.saturating_mul(2).max(ENOUGH) }, Ordering::Relaxed);
        more
    }
}
