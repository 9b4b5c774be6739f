//! One [`Slot`] for each thread that walks.
//!
//! A slot is found by the thread pointer, and claimed by compare-and-swap at the thread's first walk: no registration
//! call, no thread-local. The TCB of a dead thread is reused by the next one, so the slot also holds the thread id.
//! A walk that is left by pthread_cancel or siglongjmp leaves its mark set: a later entry of the same
//! thread clears it, and a writer does not count the marks of threads that have ended.
//!
//! The end of a thread is not reported. A thread that finds no free slot takes one over whose owner has ended, which
//! the kernel is asked; only if there is none, more slots are mapped (`levels`).

mod asked_stack;
mod deferred;
mod holder;
mod levels;
mod slot;
#[cfg(test)]
mod tests;

pub use asked_stack::AskedStack;
pub use deferred::{Asked, Deferred, CLIENTS};
pub use holder::{Held, Holder, Look, Stake};
pub use levels::SLOTS;
pub use slot::{stack_pointer, Refused, Slot, Walking};

use crate::errno::ESRCH;
// The atomics of `deferred`.
use crate::registry::sync;
use crate::syscall;
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use levels::{Level, Levels};

/// Where in glibc's thread descriptors (`struct pthread`, nptl/descr.h) the thread id is searched for, in bytes from
/// the beginning: they have more than 2 KiB, which begin with a TCB.
pub const GLIBC: Range<u64> = 64..2048;
/// In musl's (`struct pthread`, src/internal/pthread_impl.h), which have five words before it, and more after it.
pub const MUSL: Range<u64> = 40..96;

/// Instead of an owner: there has been none.
const NEVER: u64 = 0;
/// Instead of an owner: the last one gave the slot back.
const GIVEN_BACK: u64 = 1;
/// Instead of an owner's thread id: a thread is taking the slot. No thread has this id; the id 0 means none.
const TAKING: u32 = u32::MAX;

/// The threads whose marks count for [`Slots::oldest_mark`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarksOf {
    /// All: no system call, but a thread that ended inside a walk may have left its mark.
    AllThreads,
    /// Those that have not ended: one system call for each mark.
    LivingThreads,
}

/// The slots of the process.
pub struct Slots {
    levels: Levels,
    tid_offset: AtomicU64,
    /// Process id of the threads that share this memory, on a page that the kernel wipes in the child of a fork
    /// (MADV_WIPEONFORK), but not in that of a vfork, which shares it; null: there is no such page.
    process: AtomicPtr<AtomicU32>,
    /// The same process id, for kernels without such pages.
    pid: AtomicU32,
}

impl Slots {
    /// All slots free.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Slots {
        Slots {
            levels: Levels::new(),
            tid_offset: AtomicU64::new(0),
            process: AtomicPtr::new(core::ptr::null_mut()),
            pid: AtomicU32::new(0),
        }
    }

    /// Finds the offset of the thread id in the TCB, by searching for it: it must occur once in `descriptor`, which is
    /// [`GLIBC`] (2.36: +0x2d0, `struct pthread.tid` in
    /// <https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/descr.h;hb=refs/tags/glibc-2.36>) or [`MUSL`]. Otherwise
    /// gettid(2) is called. Also stores the process id. Called once, when the library is loaded; not for handlers. On
    /// AArch64 the TCB ends at the thread pointer and its beginning is not available, so gettid(2) is used.
    pub fn prepare(&self, descriptor: Range<u64>) {
        self.remember_process();
        self.find_tid(descriptor);
    }

    /// As [`Slots::prepare`], for memory that no child of a fork has: nothing is mapped.
    pub fn prepare_for_one_process(&self) {
        self.pid.store(syscall::getpid(), Ordering::Relaxed);
        self.find_tid(GLIBC);
    }

    /// `within`: where in the thread's descriptor.
    fn find_tid(&self, within: Range<u64>) {
        if cfg!(target_arch = "aarch64") {
            return;
        }
        let tp = syscall::thread_pointer();
        let tid = syscall::gettid();
        let mut found = 0;
        for offset in within.step_by(4) {
            // SAFETY: the descriptor begins at the thread pointer, and is larger (GLIBC, MUSL).
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
        // SAFETY: a fresh private mapping of one page, unmapped if it cannot be wiped on fork (before Linux 4.14).
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

    /// Process id of the threads that share this memory. In the child of a vfork, or of clone(2) with CLONE_VM, it is
    /// the parent's. Async-signal-safe.
    pub fn pid(&self) -> u32 {
        // SAFETY: the page stays mapped.
        match unsafe { self.process.load(Ordering::Acquire).as_ref() } {
            Some(word) => match word.load(Ordering::Relaxed) {
                0 => {
                    // The child of a fork that ran no fork handlers: the marks here belong to threads of the parent.
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

    /// Thread id of the caller: from its TCB if its offset was found, else from the kernel.
    #[inline]
    pub fn tid(&self, thread_pointer: u64) -> u32 {
        self.tid_in_tcb(thread_pointer).unwrap_or_else(syscall::gettid)
    }

    #[inline(always)]
    fn tid_in_tcb(&self, thread_pointer: u64) -> Option<u32> {
        match self.tid_offset.load(Ordering::Acquire) {
            0 => None,
            // SAFETY: `prepare` found the word inside this process's TCBs.
            offset => Some(unsafe { ((thread_pointer + offset) as *const u32).read_volatile() }),
        }
    }

    /// The slot of the thread with this thread pointer, if it has one. Async-signal-safe.
    #[inline]
    pub fn find(&self, thread_pointer: u64) -> Option<&Slot> {
        self.search(thread_pointer, |slot| slot.tid.load(Ordering::Relaxed) != TAKING)
    }

    /// The first slot with this thread pointer for which `is_it` is true.
    #[inline(always)]
    fn search(&self, thread_pointer: u64, is_it: impl Fn(&Slot) -> bool) -> Option<&Slot> {
        match search(self.levels.first(), thread_pointer, &is_it) {
            Search::Found(slot) => Some(slot),
            Search::Nowhere => None,
            Search::Further => self.search_further(thread_pointer, &is_it),
        }
    }

    #[cold]
    #[inline(never)]
    fn search_further(&self, thread_pointer: u64, is_it: &dyn Fn(&Slot) -> bool) -> Option<&Slot> {
        for level in self.levels.further() {
            match search(level, thread_pointer, is_it) {
                Search::Found(slot) => return Some(slot),
                Search::Nowhere => return None,
                Search::Further => {}
            }
        }
        None
    }

    /// A slot for the calling thread, which has none: one that its TCB's last thread had, a free one, one of a thread
    /// that has ended, or one of a level that is mapped for it.
    #[cold]
    #[inline(never)]
    fn claim(&self, thread_pointer: u64, tid: u32) -> Option<&Slot> {
        let inherited = self.search(thread_pointer, |slot| self.inherit(slot, tid));
        if inherited.is_some() {
            return inherited;
        }
        // Each round adds one level, mapped by this thread or by another.
        for _ in 0..levels::LEVELS {
            let further = self.levels.further().count();
            let claimed = self.claim_free(thread_pointer, tid).or_else(|| self.take_over(thread_pointer, tid));
            if claimed.is_some() || !self.levels.grow(further) {
                return claimed;
            }
        }
        None
    }

    /// Takes the slot that another thread with the same thread pointer had. If the TCB holds the id, tasks that share
    /// the TCB (clone(2) with CLONE_VM) have the same id, and another id belongs to a thread that has ended.
    fn inherit(&self, slot: &Slot, tid: u32) -> bool {
        let had = slot.tid.load(Ordering::Relaxed);
        if had == tid {
            // A handler has claimed it meanwhile, and may have left a request there.
            return true;
        }
        let may = had != TAKING && (had == 0 || self.tid_offset.load(Ordering::Relaxed) != 0 || self.is_gone(had));
        may && settle(slot, had, tid)
    }

    fn claim_free(&self, thread_pointer: u64, tid: u32) -> Option<&Slot> {
        self.levels.all().find_map(|level| {
            level.probes(thread_pointer).find(|slot| {
                let free = slot.thread_pointer.load(Ordering::Relaxed);
                let mine = free <= GIVEN_BACK
                    && slot
                        .thread_pointer
                        .compare_exchange(free, thread_pointer, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok();
                if mine {
                    level.note(slot);
                }
                mine && settle(slot, 0, tid)
            })
        })
    }

    fn take_over(&self, thread_pointer: u64, tid: u32) -> Option<&Slot> {
        self.levels.all().find_map(|level| {
            level.probes(thread_pointer).find(|slot| {
                let (owner, had) = (slot.thread_pointer.load(Ordering::Relaxed), slot.tid.load(Ordering::Acquire));
                let mine = owner > GIVEN_BACK
                    && self.is_gone(had)
                    && slot.tid.compare_exchange(had, TAKING, Ordering::Acquire, Ordering::Relaxed).is_ok();
                if !mine {
                    return false;
                }
                // From now on no thread finds it. One that found it before is a new thread with both the old one's TCB
                // and its id.
                if !self.is_gone(had) {
                    slot.tid.store(had, Ordering::Release);
                    return false;
                }
                slot.change_owner();
                slot.thread_pointer.store(thread_pointer, Ordering::Relaxed);
                slot.tid.store(tid, Ordering::Release);
                true
            })
        })
    }

    /// Enters a walk of the sampler on the calling thread. `sp` is the stack pointer of the caller, `epoch` the
    /// registry's epoch (not 0).
    /// Async-signal-safe.
    #[inline]
    pub fn enter(&self, sp: u64, epoch: u64) -> Result<Walking<'_>, Refused> {
        self.current_or_claim().ok_or(Refused::Full)?.enter(sp, epoch, None)
    }

    /// The calling thread's slot, which is claimed if it has none; `None` if no slot is free and there is no memory for
    /// more. Async-signal-safe.
    #[inline]
    pub fn current_or_claim(&self) -> Option<&Slot> {
        self.current().or_else(|| {
            let tp = syscall::thread_pointer();
            self.claim(tp, self.tid(tp))
        })
    }

    /// The calling thread's slot, if it has claimed one. A slot left by a dead thread whose TCB this thread reuses does
    /// not count. Async-signal-safe.
    #[inline(always)]
    pub fn current(&self) -> Option<&Slot> {
        let tp = syscall::thread_pointer();
        let tid = self.tid(tp);
        self.search(tp, |slot| slot.tid.load(Ordering::Relaxed) == tid)
    }

    /// As [`Slots::current`], where that takes no system call and a look at two slots only; else `None`.
    #[inline(always)]
    pub fn current_near(&self) -> Option<&Slot> {
        let tp = syscall::thread_pointer();
        let tid = self.tid_in_tcb(tp)?;
        let is_it =
            |slot: &&Slot| slot.thread_pointer.load(Ordering::Relaxed) == tp && slot.tid.load(Ordering::Relaxed) == tid;
        let mut probes = self.levels.first().probes(tp);
        probes.next().filter(is_it).or_else(|| probes.next().filter(is_it))
    }

    /// Calls a function with each slot of the calling thread: it has several where a handler interrupted a claim and
    /// claimed another slot. Async-signal-safe.
    pub fn each_current(&self, visit: &dyn Fn(&Slot)) {
        let tp = syscall::thread_pointer();
        let tid = self.tid(tp);
        self.search(tp, |slot| {
            if slot.tid.load(Ordering::Relaxed) == tid {
                visit(slot);
            }
            false
        });
    }

    /// Publishes where the calling thread keeps the head of its list of interpreted frames; 0 withdraws it. False if no
    /// slot is free. Async-signal-safe.
    pub fn publish(&self, head: u64) -> bool {
        let slot = self.current_or_claim();
        if let Some(slot) = slot {
            slot.published.store(head, Ordering::Release);
        }
        slot.is_some()
    }

    /// To be called when the calling thread has left captures, as by siglongjmp(3), and none of them will continue.
    /// Async-signal-safe.
    pub fn abandon(&self) {
        if let Some(slot) = self.current() {
            slot.abandon();
        }
    }

    /// The number of a slot, which it has for ever; below [`SLOTS`]. `None`: it is none of these. Async-signal-safe.
    #[inline]
    pub fn index_of(&self, slot: &Slot) -> Option<u64> {
        self.levels.index_of(slot)
    }

    /// The slot with this number, if it exists. Async-signal-safe.
    pub fn by_index(&self, index: u64) -> Option<&Slot> {
        self.levels.by_index(index)
    }

    /// Number of deferred requests that became void: their threads ended, forked, or withdrew them. Those of threads
    /// that have ended become so here, at the latest. One system call for each request that waits. Async-signal-safe.
    pub fn void_requests(&self) -> u64 {
        // In the child of a fork that ran no handlers, this makes its parent's requests void.
        self.pid();
        for slot in self.used() {
            if let Some(count) = slot.deferred.pending() {
                self.void_if_gone(slot, count);
            }
        }
        slot::VOID.load(Ordering::Relaxed)
    }

    /// Whether the request with this count of a slot waits; if its thread has ended, it becomes void.
    /// Async-signal-safe.
    pub fn is_waiting(&self, slot: &Slot, count: u64) -> bool {
        // As above.
        self.pid();
        slot.deferred.pending() == Some(count) && !self.void_if_gone(slot, count)
    }

    /// A new owner of the slot makes the request void before anything else, so a request that is void here is that of
    /// the thread that was looked for.
    fn void_if_gone(&self, slot: &Slot, count: u64) -> bool {
        let tid = slot.tid.load(Ordering::Acquire);
        // In the child of a fork by a raw system call, the TCB has the parent's thread id.
        let is_own = self.current().is_some_and(|own| core::ptr::eq(own, slot));
        if is_own || tid == 0 || tid == TAKING || !self.is_gone(tid) {
            return false;
        }
        slot.void(count);
        true
    }

    /// Whether the calling thread is inside a walk. Async-signal-safe.
    pub fn is_walking(&self) -> bool {
        self.current().is_some_and(|slot| slot.is_walking(stack_pointer()))
    }

    /// The registry's epoch in which the oldest walk in progress began; 0 if there is none. Not for handlers.
    pub fn oldest_mark(&self, of: MarksOf) -> u64 {
        let mut oldest = 0;
        for slot in self.used() {
            let mark = slot.mark.seen();
            if mark == 0 || (of == MarksOf::LivingThreads && self.is_gone(slot.tid.load(Ordering::Relaxed))) {
                continue;
            }
            if oldest == 0 || mark < oldest {
                oldest = mark;
            }
        }
        oldest
    }

    /// The slots that were ever claimed.
    pub fn used(&self) -> impl Iterator<Item = &Slot> {
        self.levels.all().flat_map(Level::used)
    }

    /// Whether no thread of this process has this id. Call it after reading the slot's mark: a new owner stores its id
    /// before its first mark, so an old mark is not attributed to a new owner, nor a new one to the old owner. The mark
    /// is not cleared: that could hit a new owner's mark with the same value.
    fn is_gone(&self, tid: u32) -> bool {
        // SAFETY: signal 0 only checks whether the thread exists. For an invalid id the kernel returns another error.
        let sent = unsafe { syscall::call(syscall::nr::TGKILL, [self.pid() as usize, tid as usize, 0, 0, 0, 0]) };
        sent == -ESRCH as isize
    }

    /// Gives the calling thread's slot back when the thread ends. Not from inside a walk.
    pub fn release(&self, thread_pointer: u64) {
        if let Some(slot) = self.find(thread_pointer) {
            slot.change_owner();
            slot.tid.store(0, Ordering::Relaxed);
            slot.thread_pointer.store(GIVEN_BACK, Ordering::Release);
        }
    }

    /// To be called in the child of a fork: only the calling thread exists there.
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
                // A walk that this thread's fork interrupted, in a handler, continues in the child.
                if !matches!(slot.tid.load(Ordering::Relaxed), 0 | TAKING) {
                    slot.tid.store(self.tid(own), Ordering::Relaxed);
                }
                // The signal of its request is pending in the parent only.
                slot.void_any();
                // Pages may be missing here (MADV_DONTFORK).
                slot.asked_stack.forget();
            } else {
                slot.change_owner();
                slot.tid.store(0, Ordering::Relaxed);
                slot.thread_pointer.store(GIVEN_BACK, Ordering::Relaxed);
            }
        }
    }
}

/// Result of a search in one level.
enum Search<'s> {
    Found(&'s Slot),
    /// The slot is in no further level.
    Nowhere,
    Further,
}

#[inline(always)]
fn search<'s>(level: Level<'s>, thread_pointer: u64, is_it: impl Fn(&Slot) -> bool) -> Search<'s> {
    for slot in level.probes(thread_pointer) {
        let owner = slot.thread_pointer.load(Ordering::Relaxed);
        if owner == thread_pointer && is_it(slot) {
            return Search::Found(slot);
        }
        if owner == NEVER {
            return Search::Nowhere;
        }
    }
    Search::Further
}

/// Claims a slot that has the calling thread's thread pointer and the id `had`. False if another thread is taking it. A
/// handler that interrupts this and needs a slot may have claimed this one, or finds it being taken and takes another.
fn settle(slot: &Slot, had: u32, tid: u32) -> bool {
    if slot.tid.compare_exchange(had, TAKING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return slot.tid.load(Ordering::Relaxed) == tid;
    }
    // The last owner's walks are over. Its cached steps are dropped as well: it may have ended in the middle of a
    // change.
    slot.change_owner();
    slot.tid.store(tid, Ordering::Release);
    true
}
