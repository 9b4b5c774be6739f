//! One slot for each thread that walks: who it is, whether it is inside a walk, and where a walk comes back to.
//!
//! A slot is found by the thread pointer, and claimed by compare-and-swap at the thread's first walk: no registration
//! call, no thread-local. The TCB of a dead thread is reused by the next one, so the slot also holds the thread id.
//! Marks that nobody owns can be left behind (a walk left by pthread_cancel or siglongjmp); a later entry of the same
//! thread, from a frame further out, clears them.

use crate::recovery::Recovery;
use crate::syscall;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Number of slots.
pub const SLOTS: usize = 2048;
const PROBES: usize = 64;

/// One thread's slot.
#[derive(Debug)]
pub struct Slot {
    /// Thread pointer of the owner; 0 = free.
    thread_pointer: AtomicU64,
    /// Thread id of the owner.
    tid: AtomicU32,
    /// Non-zero: inside a walk.
    busy: AtomicU32,
    /// Stack pointer at the walk's entry.
    walk_sp: AtomicU64,
    /// Registry epoch that the walk began in; 0 outside walks.
    epoch: AtomicU64,
    /// Sampling signals that met this walk.
    ticks: AtomicU32,
    /// Where a faulting or endless walk comes back to.
    pub recovery: Recovery,
}

/// The pool.
pub struct Slots {
    slots: [Slot; SLOTS],
    tid_offset: AtomicU64,
}

/// A walk under way; leaving it is [`Walking::leave`].
#[derive(Debug)]
pub struct Walking<'a> {
    /// The thread's slot.
    pub slot: &'a Slot,
    /// The walk that this one interrupted: its stack pointer and epoch.
    outer: Option<(u64, u64)>,
}

/// A walk, its plugins and a handler on top of it stay within so many bytes of stack.
const WALK_DEPTH: u64 = 64 * 1024;

/// Why no walk can begin now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// This thread is inside a walk already.
    Nested,
    /// No slot is free.
    Full,
}

impl Slots {
    /// All free.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Slots {
        Slots {
            slots: [const {
                Slot {
                    thread_pointer: AtomicU64::new(0),
                    tid: AtomicU32::new(0),
                    busy: AtomicU32::new(0),
                    walk_sp: AtomicU64::new(0),
                    epoch: AtomicU64::new(0),
                    ticks: AtomicU32::new(0),
                    recovery: Recovery::new(),
                }
            }; SLOTS],
            tid_offset: AtomicU64::new(0),
        }
    }

    /// Finds where the TCB keeps the thread id, by searching for it: the one place in the first 2 KiB (glibc 2.36:
    /// +0x2d0). Call it from two threads or not at all: without it, gettid(2) is asked. Not for handlers.
    pub fn locate_tid(&self) {
        let tp = syscall::thread_pointer();
        let tid = syscall::gettid();
        let mut found = 0;
        for offset in (64..2048u64).step_by(4) {
            // SAFETY: glibc's struct pthread, which begins at the thread pointer, is larger than 2 KiB.
            if unsafe { ((tp + offset) as *const u32).read_volatile() } == tid {
                if found != 0 {
                    return;
                }
                found = offset;
            }
        }
        self.tid_offset.store(found, Ordering::Release);
    }

    /// Thread id of the caller: from its TCB where the place is known, else from the kernel.
    pub fn tid(&self, thread_pointer: u64) -> u32 {
        match self.tid_offset.load(Ordering::Acquire) {
            0 => syscall::gettid(),
            // SAFETY: `locate_tid` found the word inside this process's TCBs.
            offset => unsafe { ((thread_pointer + offset) as *const u32).read_volatile() },
        }
    }

    /// The slot of the thread with this thread pointer, if it has one. Async-signal-safe.
    pub fn find(&self, thread_pointer: u64) -> Option<&Slot> {
        self.probes(thread_pointer).find(|s| s.thread_pointer.load(Ordering::Relaxed) == thread_pointer)
    }

    fn probes(&self, thread_pointer: u64) -> impl Iterator<Item = &Slot> {
        let first = ((thread_pointer >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize;
        (0..PROBES).filter_map(move |i| self.slots.get(first.wrapping_add(i) % SLOTS))
    }

    fn claim(&self, thread_pointer: u64) -> Option<&Slot> {
        self.find(thread_pointer).or_else(|| {
            self.probes(thread_pointer).find(|s| {
                s.thread_pointer.load(Ordering::Relaxed) == 0
                    && s.thread_pointer.compare_exchange(0, thread_pointer, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            })
        })
    }

    /// Enters a walk on the calling thread. `sp` is the stack pointer of the caller, `epoch` the registry's (not 0).
    /// Async-signal-safe.
    pub fn enter(&self, sp: u64, epoch: u64) -> Result<Walking<'_>, Refused> {
        let tp = syscall::thread_pointer();
        let slot = self.claim(tp).ok_or(Refused::Full)?;
        let tid = self.tid(tp);
        // Plain loads and stores: a slot is its own thread's, and a handler in between leaves it as it found it.
        if slot.tid.load(Ordering::Relaxed) != tid {
            slot.tid.store(tid, Ordering::Relaxed);
            // A new thread with a dead one's TCB, or the first walk: whatever marks there are belong to nobody.
            slot.reset();
        }
        let mut outer = None;
        let busy = slot.busy.load(Ordering::Relaxed) != 0;
        slot.busy.store(1, Ordering::Relaxed);
        if busy {
            let (walk_sp, walk_epoch) = (slot.walk_sp.load(Ordering::Relaxed), slot.epoch.load(Ordering::Relaxed));
            if walk_sp.wrapping_sub(sp) <= WALK_DEPTH {
                // Inside that walk. A protected one is the sampler's, and sampling itself is of no use; any other is a
                // caller's of the library, which a sample may interrupt like all code.
                if slot.recovery.is_armed() {
                    return Err(Refused::Nested);
                }
                outer = Some((walk_sp, walk_epoch));
            } else {
                // Elsewhere on the stack than the walk that is marked could be: that walk was left without its exit.
                slot.recovery.disarm();
            }
        }
        slot.walk_sp.store(sp, Ordering::Relaxed);
        slot.ticks.store(0, Ordering::Relaxed);
        // Sequentially consistent with the writer's swap of the snapshot: a walk whose mark the writer did not see sees the
        // new snapshot.
        // An interrupted walk's own mark is older, and stands for both.
        let mark = outer.map_or(epoch, |(_, mark)| if mark == 0 { epoch } else { mark });
        slot.epoch.store(mark, Ordering::SeqCst);
        Ok(Walking { slot, outer })
    }

    /// Whether the calling thread is inside a walk.
    pub fn is_walking(&self) -> bool {
        self.find(syscall::thread_pointer()).is_some_and(|slot| slot.epoch.load(Ordering::Relaxed) != 0)
    }

    /// Whether some thread is in a walk that began before `epoch`. Marks of threads that are gone are cleared. Not for
    /// handlers (a system call for each suspect).
    pub fn any_before(&self, epoch: u64) -> bool {
        self.slots.iter().any(|slot| {
            let mark = slot.epoch.load(Ordering::SeqCst);
            if mark == 0 || mark >= epoch {
                return false;
            }
            let tid = slot.tid.load(Ordering::Relaxed);
            // SAFETY: signal 0 only asks whether the thread exists.
            let sent =
                unsafe { syscall::call(syscall::nr::TGKILL, [syscall::getpid() as usize, tid as usize, 0, 0, 0, 0]) };
            const ESRCH: isize = -3;
            if sent == ESRCH {
                // The mark goes only if it is still the dead thread's: a new owner of the slot has changed it.
                let _ = slot.epoch.compare_exchange(mark, 0, Ordering::AcqRel, Ordering::Relaxed);
                return false;
            }
            true
        })
    }

    /// Gives the calling thread's slot back when the thread ends. Not from inside a walk.
    pub fn release(&self, thread_pointer: u64) {
        if let Some(slot) = self.find(thread_pointer) {
            slot.reset();
            slot.tid.store(0, Ordering::Relaxed);
            slot.thread_pointer.store(0, Ordering::Release);
        }
    }

    /// In the child of a fork: only the calling thread is left.
    pub fn after_fork(&self) {
        let own = syscall::thread_pointer();
        for slot in &self.slots {
            slot.reset();
            if slot.thread_pointer.load(Ordering::Relaxed) != own {
                slot.thread_pointer.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl Slot {
    fn reset(&self) {
        self.busy.store(0, Ordering::Relaxed);
        self.epoch.store(0, Ordering::Relaxed);
        self.ticks.store(0, Ordering::Relaxed);
        self.recovery.disarm();
    }

    /// Forgets the sampling signals that met this walk.
    pub fn clear_ticks(&self) {
        self.ticks.store(0, Ordering::Relaxed);
    }

    /// Counts a sampling signal that met this walk; the number so far.
    pub fn tick(&self) -> u32 {
        self.ticks.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}

impl Walking<'_> {
    /// Leaves the walk.
    pub fn leave(self) {
        match self.outer {
            Some((sp, epoch)) => {
                self.slot.walk_sp.store(sp, Ordering::Relaxed);
                self.slot.epoch.store(epoch, Ordering::Release);
            }
            None => {
                self.slot.epoch.store(0, Ordering::Release);
                self.slot.busy.store(0, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_walks_are_refused_and_stale_marks_cleared() {
        // SAFETY: all-zero is the free pool.
        let slots: Box<Slots> = unsafe { Box::<Slots>::new_zeroed().assume_init() };
        let walking = slots.enter(1000, 2).expect("first walk");
        let inner = slots.enter(900, 4).expect("a sample interrupts a caller's walk");
        inner.leave();
        assert!(slots.is_walking(), "the outer walk goes on");
        walking.leave();
        assert!(!slots.is_walking());
        let _left_without_its_exit = slots.enter(1000, 2).expect("not busy");
        let walking = slots.enter(1100, 2).expect("an entry further out clears the mark");
        walking.leave();
        assert!(!slots.is_walking());
        slots.enter(500, 2).expect("not busy").leave();
        let tp = syscall::thread_pointer();
        assert!(slots.find(tp).is_some());
        slots.release(tp);
        assert!(slots.find(tp).is_none());
    }

    #[test]
    fn the_tid_word_is_found_on_this_thread_and_holds_on_another() {
        // SAFETY: as above.
        let slots: Box<Slots> = unsafe { Box::<Slots>::new_zeroed().assume_init() };
        slots.locate_tid();
        let slots = &*slots;
        std::thread::scope(|s| {
            s.spawn(|| assert_eq!(slots.tid(syscall::thread_pointer()), syscall::gettid()));
        });
    }
}
