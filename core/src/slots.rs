//! One [`Slot`] for each thread that walks.
//!
//! A slot is found by the thread pointer, and claimed by compare-and-swap at the thread's first walk: no registration
//! call, no thread-local. The TCB of a dead thread is reused by the next one, so the slot also holds the thread id.
//! Marks that nobody owns can be left behind (a walk left by pthread_cancel or siglongjmp): a later entry of the same
//! thread clears them, and a writer does not count those of threads that are gone.

mod slot;

pub use slot::{stack_pointer, Alone, Refused, Slot, Walking};

use crate::syscall;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Number of slots.
pub const SLOTS: usize = 2048;
const PROBES: usize = 64;
/// In the place of an owner: there was none so far.
const NEVER: u64 = 0;
/// In the place of an owner: there is none now.
const GIVEN_BACK: u64 = 1;

/// The pool.
pub struct Slots {
    slots: [Slot; SLOTS],
    /// A bit for each slot that was ever claimed, so that a writer looks at few.
    used: [AtomicU64; SLOTS / 64],
    tid_offset: AtomicU64,
    /// Process id of the threads that share this memory, on a page that the kernel wipes in the child of a fork, and not in
    /// that of a vfork, which shares it; null: there is no such page.
    process: AtomicPtr<AtomicU32>,
    /// The same, for kernels that know no such pages.
    pid: AtomicU32,
}

impl Slots {
    /// All free.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Slots {
        Slots {
            slots: [const { Slot::new() }; SLOTS],
            used: [const { AtomicU64::new(0) }; SLOTS / 64],
            tid_offset: AtomicU64::new(0),
            process: AtomicPtr::new(core::ptr::null_mut()),
            pid: AtomicU32::new(0),
        }
    }

    /// Finds where the TCB keeps the thread id, by searching for it: the one place in the first 2 KiB (glibc 2.36:
    /// +0x2d0). Without it, gettid(2) is asked. Also remembers which process this is. Once, when the library is loaded; not
    /// for handlers. On AArch64, where the TCB ends at the thread pointer and where it begins is not told, gettid(2) it is.
    pub fn prepare(&self) {
        self.remember_process();
        if cfg!(target_arch = "aarch64") {
            return;
        }
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

    fn remember_process(&self) {
        use syscall::nr::{MADVISE, MMAP, MUNMAP};
        const MADV_WIPEONFORK: usize = 18;
        self.pid.store(syscall::getpid(), Ordering::Relaxed);
        // SAFETY: a fresh private mapping of one page, given back if it cannot be wiped on fork (before Linux 4.14).
        unsafe {
            let page = syscall::call(MMAP, [0, 4096, 3, 0x22, usize::MAX, 0]);
            if page <= 0 {
                return;
            }
            if syscall::call(MADVISE, [page as usize, 4096, MADV_WIPEONFORK, 0, 0, 0]) != 0 {
                syscall::call(MUNMAP, [page as usize, 4096, 0, 0, 0, 0]);
                return;
            }
            let word = page as *mut AtomicU32;
            (*word).store(syscall::getpid(), Ordering::Relaxed);
            self.process.store(word, Ordering::Release);
        }
    }

    /// Process id of the threads that share this memory. In the child of a vfork that is its parent's, not its own.
    fn pid(&self) -> u32 {
        // SAFETY: the page stays mapped.
        match unsafe { self.process.load(Ordering::Acquire).as_ref() } {
            Some(word) => match word.load(Ordering::Relaxed) {
                0 => {
                    // The child of a fork that ran no handlers: the marks here are of threads that are elsewhere.
                    self.after_fork();
                    word.load(Ordering::Relaxed)
                }
                pid => pid,
            },
            None => match self.pid.load(Ordering::Relaxed) {
                0 => syscall::getpid(),
                pid => pid,
            },
        }
    }

    /// Thread id of the caller: from its TCB where the place is known, else from the kernel.
    #[inline]
    pub fn tid(&self, thread_pointer: u64) -> u32 {
        match self.tid_offset.load(Ordering::Acquire) {
            0 => syscall::gettid(),
            // SAFETY: `prepare` found the word inside this process's TCBs.
            offset => unsafe { ((thread_pointer + offset) as *const u32).read_volatile() },
        }
    }

    /// The slot of the thread with this thread pointer, if it has one. Async-signal-safe.
    #[inline]
    pub fn find(&self, thread_pointer: u64) -> Option<&Slot> {
        for (_, slot) in self.probes(thread_pointer) {
            let owner = slot.thread_pointer.load(Ordering::Relaxed);
            if owner == thread_pointer {
                return Some(slot);
            }
            // Whoever went further had found somebody here.
            if owner == NEVER {
                break;
            }
        }
        None
    }

    fn probes(&self, thread_pointer: u64) -> impl Iterator<Item = (usize, &Slot)> {
        let first = ((thread_pointer >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize;
        (0..PROBES).filter_map(move |i| {
            let index = first.wrapping_add(i) % SLOTS;
            Some((index, self.slots.get(index)?))
        })
    }

    #[cold]
    fn claim(&self, thread_pointer: u64) -> Option<&Slot> {
        let (index, slot) = self.probes(thread_pointer).find(|(_, s)| {
            let free = s.thread_pointer.load(Ordering::Relaxed);
            free <= GIVEN_BACK
                && s.thread_pointer.compare_exchange(free, thread_pointer, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })?;
        // Before the first mark, whose barrier orders the two for a writer.
        self.used.get(index / 64)?.fetch_or(1 << (index % 64), Ordering::Relaxed);
        Some(slot)
    }

    /// Enters a walk on the calling thread. `sp` is the stack pointer of the caller, `epoch` the registry's (not 0).
    /// Async-signal-safe.
    #[inline]
    pub fn enter(&self, sp: u64, epoch: u64) -> Result<Walking<'_>, Refused> {
        self.own().ok_or(Refused::Full)?.enter(sp, epoch)
    }

    /// The calling thread's slot, claimed if it had none; `None`: there is no free one. Async-signal-safe.
    #[inline]
    pub fn own(&self) -> Option<&Slot> {
        let tp = syscall::thread_pointer();
        let slot = self.find(tp).or_else(|| self.claim(tp))?;
        let tid = self.tid(tp);
        if slot.tid.load(Ordering::Relaxed) != tid {
            slot.tid.store(tid, Ordering::Relaxed);
            // A new thread with a dead one's TCB, or the first walk: whatever marks there are belong to nobody.
            slot.change_owner();
        }
        Some(slot)
    }

    /// The calling thread's slot, if it has one: never one that a thread which is gone has left it together with its TCB. Async-signal-safe.
    #[inline(always)]
    pub fn owned(&self) -> Option<&Slot> {
        let tp = syscall::thread_pointer();
        self.find(tp).filter(|slot| slot.tid.load(Ordering::Relaxed) == self.tid(tp))
    }

    /// Tells where the calling thread keeps the head of its list of interpreted frames; 0: nowhere any more. False: there
    /// is no free slot. Async-signal-safe.
    pub fn publish(&self, head: u64) -> bool {
        let slot = self.own();
        if let Some(slot) = slot {
            slot.published.store(head, Ordering::Release);
        }
        slot.is_some()
    }

    /// Whether the calling thread is inside a walk. Async-signal-safe.
    pub fn is_walking(&self) -> bool {
        let tp = syscall::thread_pointer();
        self.find(tp)
            .is_some_and(|slot| slot.tid.load(Ordering::Relaxed) == self.tid(tp) && slot.is_walking(stack_pointer()))
    }

    /// The epoch of the oldest walk under way; 0 when there is none. With `living`, marks of threads that are gone do not
    /// count (a system call for each mark). Not for handlers.
    pub fn oldest_mark(&self, living: bool) -> u64 {
        let mut oldest = 0;
        for slot in self.used() {
            let mark = slot.mark.seen();
            if mark == 0 || (living && self.is_gone(slot)) {
                continue;
            }
            if oldest == 0 || mark < oldest {
                oldest = mark;
            }
        }
        oldest
    }

    /// The slots that were ever claimed.
    fn used(&self) -> impl Iterator<Item = &Slot> {
        self.used.iter().zip(self.slots.chunks(64)).flat_map(|(bits, slots)| {
            let mut bits = bits.load(Ordering::Acquire);
            core::iter::from_fn(move || {
                let index = bits.trailing_zeros() as usize;
                bits &= bits.wrapping_sub(1);
                slots.get(index)
            })
        })
    }

    /// Whether the thread that owns this slot has ended. To be asked behind a look at its mark: a new owner stores its id
    /// before its first mark, so an old mark is never taken for a new owner's, nor the other way round. The mark stays: to
    /// clear it could hit a new owner's that is the same number.
    fn is_gone(&self, slot: &Slot) -> bool {
        const ESRCH: isize = -3;
        let tid = slot.tid.load(Ordering::Relaxed);
        // SAFETY: signal 0 only asks whether the thread exists.
        let sent = unsafe { syscall::call(syscall::nr::TGKILL, [self.pid() as usize, tid as usize, 0, 0, 0, 0]) };
        sent == ESRCH
    }

    /// Gives the calling thread's slot back when the thread ends. Not from inside a walk.
    pub fn release(&self, thread_pointer: u64) {
        if let Some(slot) = self.find(thread_pointer) {
            slot.change_owner();
            slot.tid.store(0, Ordering::Relaxed);
            slot.thread_pointer.store(GIVEN_BACK, Ordering::Release);
        }
    }

    /// In the child of a fork: only the calling thread is left.
    pub fn after_fork(&self) {
        let pid = syscall::getpid();
        self.pid.store(pid, Ordering::Relaxed);
        // SAFETY: the page stays mapped.
        if let Some(word) = unsafe { self.process.load(Ordering::Acquire).as_ref() } {
            word.store(pid, Ordering::Relaxed);
        }
        let own = syscall::thread_pointer();
        for slot in self.used() {
            if slot.thread_pointer.load(Ordering::Relaxed) == own {
                // A walk that this thread's fork interrupted, in a handler, goes on in the child.
                if slot.tid.load(Ordering::Relaxed) != 0 {
                    slot.tid.store(self.tid(own), Ordering::Relaxed);
                }
            } else {
                slot.change_owner();
                slot.thread_pointer.store(GIVEN_BACK, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> Box<Slots> {
        // SAFETY: all-zero is the free pool.
        unsafe { Box::<Slots>::new_zeroed().assume_init() }
    }

    #[test]
    fn walks_nest_and_stale_marks_are_cleared() {
        let slots = slots();
        let sp = stack_pointer() - 0x4000;
        let walking = slots.enter(sp, 2).expect("first walk");
        let inner = slots.enter(sp - 900, 4).expect("a sample interrupts a caller's walk");
        assert_eq!(slots.oldest_mark(true), 2, "the older mark stands for both");
        inner.leave();
        let far = slots.enter(sp - (1 << 20), 4).expect("a handler may go deep before it walks");
        assert_eq!(slots.oldest_mark(true), 2, "the outer walk goes on");
        far.leave();
        assert_eq!(slots.oldest_mark(true), 2);
        walking.leave();
        assert!(!slots.is_walking());
        for out in [0, 100] {
            let _left_without_its_exit = slots.enter(sp, 2).expect("not busy");
            let walking = slots.enter(sp + out, 5).expect("an entry in the same place or further out clears the mark");
            assert_eq!(slots.oldest_mark(true), 5);
            walking.leave();
        }
        assert_eq!(slots.oldest_mark(true), 0);
        let _left_without_its_exit = slots.enter(sp, 2).expect("not busy");
        assert!(!slots.is_walking(), "seen from further out, that walk is over");
        assert_eq!(slots.oldest_mark(true), 0);
        let tp = syscall::thread_pointer();
        assert!(slots.find(tp).is_some());
        slots.release(tp);
        assert!(slots.find(tp).is_none());
    }

    #[test]
    fn an_epoch_is_told_for_a_few_walks() {
        let slots = slots();
        let slot = slots.own().expect("room");
        let told: Vec<u64> = (1..=40).map(|now| slot.epoch(|| now)).collect();
        assert_eq!(told[0], 1, "there was none before");
        for (now, told) in (1u64..).zip(told) {
            assert!(told <= now && now - told < 8, "{told} was told when it was {now}");
        }
    }

    #[test]
    fn the_tid_word_is_found_on_this_thread_and_holds_on_another() {
        let slots = slots();
        slots.prepare();
        let slots = &*slots;
        std::thread::scope(|s| {
            s.spawn(|| assert_eq!(slots.tid(syscall::thread_pointer()), syscall::gettid()));
        });
    }
}
