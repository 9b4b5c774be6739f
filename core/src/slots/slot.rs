//! One thread's slot: its owner, whether it is inside a walk, and the walk's recovery point.

use super::asked_stack::AskedStack;
use super::deferred::Deferred;
use super::holder::{Holder, Stake};
use crate::cache::steps::StepCache;
use crate::recovery::Recovery;
use crate::registry::grace::Mark;
use crate::syscall;
use core::sync::atomic::{compiler_fence, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Limit of the stack that a sampler's walk, its plugins and a handler on top of it use, in bytes.
const WALK_DEPTH: u64 = 64 * 1024;

/// Number of captures that are entered with one epoch.
const SAME_EPOCH: u32 = 8;

/// The slot. Its own thread alone uses it, and a handler that interrupts leaves it as it was: so plain loads and stores
/// suffice, but for the mark, which writers of the registry read; `thread_pointer` and `tid`, by which threads claim
/// slots; the holders, which tasks may contend for that share a thread pointer; and the ticks, which are counted. What
/// a replay reads of it lies in one cache line, which other threads do not write.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot {
    /// Thread pointer of the owner; `NEVER` or `GIVEN_BACK`: the slot is free.
    pub(super) thread_pointer: AtomicU64,
    /// Thread id of the owner.
    pub(super) tid: AtomicU32,
    /// Non-zero while the thread is inside a walk.
    busy: AtomicU32,
    /// The owner's cached steps, used by captures; null: none yet.
    pub step_cache: AtomicPtr<StepCache>,
    /// Which capture uses `step_cache`.
    pub step_cache_holder: Holder,
    /// What was asked of the owner's own stack.
    pub asked_stack: AskedStack,
    /// Stack pointer at the walk's entry.
    walk_sp: AtomicU64,
    /// Address of the [`Stake`] of the walk, if it is a capture; 0: it is the sampler's.
    walk_stake: AtomicU64,
    /// Registry epoch in which the walk began; 0 outside walks.
    pub(super) mark: Mark,
    /// Number of sampling signals that arrived during this walk.
    ticks: AtomicU32,
    /// Number of walks by [`Slot::epoch`], and the epoch that it returned last.
    walks: AtomicU32,
    epoch: AtomicU64,
    /// Address of the head of the thread's list of interpreted frames, if it publishes one; 0: it does not.
    pub(super) published: AtomicU64,
    /// Where a sampler's walk that faults or does not end continues.
    pub recovery: Recovery,
    /// Which whole walk of the program's own (`uu_walk`) uses `walk_memory` and `own_recovery`.
    pub whole_walk: Holder,
    /// The memory of the owner's whole walks; null: none yet.
    pub walk_memory: AtomicPtr<u8>,
    /// Where a whole walk that faults or does not end continues. The sampler may interrupt it like other code, so it
    /// has a recovery point of its own.
    pub own_recovery: Recovery,
    /// Who waits for the owner's stack at the next safe point.
    pub deferred: Deferred,
}

/// Number of deferred requests that became void.
pub(super) static VOID: AtomicU64 = AtomicU64::new(0);

/// A walk in progress; [`Walking::leave`] ends it.
#[derive(Debug)]
pub struct Walking<'a> {
    /// The slot of the thread that walks.
    pub slot: &'a Slot,
    /// Address of the stake, for a capture.
    stake: u64,
    /// The walk that this one interrupted, or that is suspended.
    outer: Option<Outer>,
}

#[derive(Clone, Copy, Debug)]
struct Outer {
    sp: u64,
    stake: u64,
    mark: u64,
}

/// Why no walk can begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The thread is inside a walk already.
    Nested,
    /// No slot is free, and there is no memory for more.
    Full,
}

/// The stack pointer, or an address slightly below it.
#[inline(always)]
pub fn stack_pointer() -> u64 {
    let sp: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags))
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, sp", out(reg) sp, options(nomem, nostack, preserves_flags))
    };
    sp
}

impl Slot {
    pub(super) const fn new() -> Slot {
        Slot {
            thread_pointer: AtomicU64::new(0),
            tid: AtomicU32::new(0),
            step_cache_holder: Holder::new(),
            asked_stack: AskedStack::new(),
            busy: AtomicU32::new(0),
            walk_sp: AtomicU64::new(0),
            walk_stake: AtomicU64::new(0),
            mark: Mark::new(),
            ticks: AtomicU32::new(0),
            walks: AtomicU32::new(0),
            epoch: AtomicU64::new(0),
            published: AtomicU64::new(0),
            step_cache: AtomicPtr::new(core::ptr::null_mut()),
            recovery: Recovery::new(),
            whole_walk: Holder::new(),
            walk_memory: AtomicPtr::new(core::ptr::null_mut()),
            own_recovery: Recovery::new(),
            deferred: Deferred::new(),
        }
    }

    /// Address of the word with the address of the head of the thread's list of interpreted frames.
    pub fn published_at(&self) -> u64 {
        core::ptr::from_ref(&self.published) as u64
    }

    /// Makes the slot another thread's. The cached steps of the last owner's captures are dropped: in the child of a
    /// fork they may have been copied in the middle of a change.
    pub(super) fn change_owner(&self) {
        self.reset();
        self.void_any();
        self.own_recovery.disarm();
        self.asked_stack.forget();
        self.step_cache_holder.reset();
        self.whole_walk.reset();
        // SAFETY: null, or a cache that is never freed; it is this slot's, whose last owner has ended.
        if let Some(cache) = unsafe { self.step_cache.load(Ordering::Relaxed).as_ref() } {
            // SAFETY: it has no other user: the caller is the only thread that has the slot.
            unsafe { cache.clear() };
        }
        self.published.store(0, Ordering::Relaxed);
    }

    /// Whether the walk with this mark was left without its exit (by a cancelled thread's handler, or by siglongjmp of
    /// the program), or is suspended because a handler has swapped contexts, judged from `sp` on the same thread. Two
    /// frames of one stack are compared by their order. If an alternate stack is involved, or the current frame is
    /// below the walk, nothing is certain, and the walk counts as interrupted.
    fn is_left(&self, sp: u64) -> bool {
        let walk_sp = self.walk_sp.load(Ordering::Relaxed);
        if sp == walk_sp {
            // Another walk begins where that one began.
            return true;
        }
        if sp < walk_sp {
            // A sampler's walk uses no more stack, and only faults interrupt it.
            return self.recovery.is_armed() && walk_sp.wrapping_sub(sp) > WALK_DEPTH;
        }
        match alternate_stack() {
            // On the alternate stack: the walk is over if it was there, too; otherwise a handler here interrupted it.
            Some((start, end)) => (start..end).contains(&walk_sp),
            None => true,
        }
    }

    /// Whether the walk with this mark cannot continue. In doubt the mark is kept: that makes a writer wait, while the
    /// opposite error would free memory under a walk.
    fn is_stale(&self, sp: u64) -> bool {
        // A program that swaps contexts out of the sampler's walk cannot be helped.
        let may_be_suspended = || match self.walk_stake.load(Ordering::Relaxed) {
            0 => false,
            stake => self.walk_sp.load(Ordering::Relaxed) != sp && !Stake::is_over(stake),
        };
        self.is_left(sp) && !may_be_suspended()
    }

    /// The epoch to enter a walk with: that of one of the last few walks. Reading the epoch `now` loads a cache line
    /// that writers change all the time; with an older one they wait for this walk as well, for at most a few walks in
    /// a row.
    #[inline]
    pub fn epoch(&self, now: impl FnOnce() -> u64) -> u64 {
        let walks = self.walks.load(Ordering::Relaxed).wrapping_add(1);
        self.walks.store(walks, Ordering::Relaxed);
        let last = self.epoch.load(Ordering::Relaxed);
        if last != 0 && !walks.is_multiple_of(SAME_EPOCH) {
            return last;
        }
        let epoch = now();
        self.epoch.store(epoch, Ordering::Relaxed);
        epoch
    }

    /// Marks a walk of the calling thread, whose slot this is, with the caller's stack pointer and the registry's epoch
    /// (not 0). `stake`: that of a capture, out of which a handler may swap contexts. Async-signal-safe.
    pub fn enter(&self, sp: u64, epoch: u64, stake: Option<&Stake>) -> Result<Walking<'_>, Refused> {
        let mut outer = None;
        if self.busy.load(Ordering::Relaxed) != 0 {
            if self.is_stale(sp) {
                self.recovery.disarm();
            } else if self.recovery.is_armed() {
                // A protected walk is the sampler's, and samples of the sampler are of no use; any other walk is a
                // capture, which a sample may interrupt like other code.
                return Err(Refused::Nested);
            } else {
                let stake = self.walk_stake.load(Ordering::Relaxed);
                outer = Some(Outer { sp: self.walk_sp.load(Ordering::Relaxed), stake, mark: self.mark.own() });
            }
        }
        let stake = stake.map_or(0, Stake::stand);
        self.take(sp, stake);
        self.ticks.store(0, Ordering::Relaxed);
        // The mark of another walk is older, and covers both.
        self.mark.set(outer.map_or(epoch, |outer| if outer.mark == 0 { epoch } else { outer.mark }));
        Ok(Walking { slot: self, stake, outer })
    }

    /// Records that the thread walks from `sp` on. A handler that interrupts this finds no walk, or this one.
    #[inline(always)]
    fn take(&self, sp: u64, stake: u64) {
        // A handler that came before `busy` was set left its own value here.
        for _ in 0..2 {
            self.walk_sp.store(sp, Ordering::Relaxed);
            self.walk_stake.store(stake, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            self.busy.store(1, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
        }
    }

    /// Whether a capture of the calling thread, whose slot this is, may begin: not inside the sampler's walk.
    /// Async-signal-safe.
    pub fn admits(&self, sp: u64) -> bool {
        self.busy.load(Ordering::Relaxed) == 0 || !self.recovery.is_armed() || self.is_stale(sp)
    }

    /// Whether no walk is marked, in which case [`Slot::admits`] need not be called.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }

    /// Whether the calling thread, whose slot this is, is inside a walk. A mark whose walk was left is cleared.
    pub(super) fn is_walking(&self, sp: u64) -> bool {
        if self.busy.load(Ordering::Relaxed) == 0 {
            return false;
        }
        if self.is_stale(sp) {
            self.reset();
        }
        !self.is_left(sp)
    }

    /// Forgets everything that captures of the calling thread, whose slot this is, left here: none of them will
    /// continue.
    pub(super) fn abandon(&self) {
        // The sampler's walk is in progress, and calls foreign code.
        if self.recovery.is_armed() {
            return;
        }
        self.reset();
        self.own_recovery.disarm();
        self.step_cache_holder.reset();
        self.whole_walk.reset();
        if let Some(count) = self.deferred.in_delivery() {
            self.void(count);
        }
    }

    /// Makes the deferred request with this count void, and counts it. False: it is over. Async-signal-safe.
    pub fn void(&self, count: u64) -> bool {
        let is_void = self.deferred.void(count).is_some();
        if is_void {
            VOID.fetch_add(1, Ordering::Relaxed);
        }
        is_void
    }

    /// As [`Slot::void`], for a client whose request could not be sent, which learns of it by the result: only what
    /// others have asked for meanwhile, in handlers, is counted.
    pub fn withdraw(&self, count: u64, client: u32) {
        if self.deferred.void(count).is_some_and(|clients| clients & !(1 << client) != 0) {
            VOID.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes the deferred request void, if there is one.
    pub(super) fn void_any(&self) {
        if let Some(count) = self.deferred.pending() {
            self.void(count);
        }
    }

    pub(super) fn reset(&self) {
        self.busy.store(0, Ordering::Relaxed);
        self.mark.restore(0);
        self.ticks.store(0, Ordering::Relaxed);
        self.recovery.disarm();
    }

    /// Resets the number of sampling signals that arrived during this walk.
    pub fn clear_ticks(&self) {
        self.ticks.store(0, Ordering::Relaxed);
    }

    /// Removes the mark of a protected walk, because the caller knows that there is none.
    pub fn forget_protected(&self) {
        if self.recovery.is_armed() {
            self.reset();
        }
    }

    /// Counts a sampling signal that arrived during this walk; returns the number so far.
    pub fn tick(&self) -> u32 {
        self.ticks.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}

impl Walking<'_> {
    /// Whether it interrupted another walk of its thread.
    pub fn is_inner(&self) -> bool {
        self.outer.is_some()
    }

    /// Ends the walk. A walk that began after it and continues, since a handler has swapped contexts, keeps the mark. A
    /// capture withdraws its stake now and not earlier: an inner capture in between would take this one for ended, and
    /// clear what belongs to an outer one of both. False: for the same reason the stake is left in place.
    pub fn leave(self) -> bool {
        if self.stake != self.slot.walk_stake.load(Ordering::Relaxed) {
            return self.outer.is_none();
        }
        match self.outer.filter(|outer| outer.stake == 0 || !Stake::is_over(outer.stake)) {
            Some(Outer { sp, stake, mark }) => {
                self.slot.walk_sp.store(sp, Ordering::Relaxed);
                self.slot.walk_stake.store(stake, Ordering::Relaxed);
                self.slot.mark.restore(mark);
            }
            None => {
                self.slot.mark.restore(0);
                self.slot.busy.store(0, Ordering::Release);
            }
        }
        true
    }
}

/// The alternate signal stack `[start, end)`, if the calling thread is on it.
fn alternate_stack() -> Option<(u64, u64)> {
    const SS_ONSTACK: u64 = 1;
    let [start, flags, size] = syscall::alternate_stack()?;
    (flags & SS_ONSTACK != 0).then(|| (start, start.saturating_add(size)))
}
