//! One thread's slot: who it is, whether it is inside a walk, and where a walk comes back to.

use crate::chain::Chain;
use crate::recovery::Recovery;
use crate::registry::grace::Mark;
use crate::syscall;
use core::sync::atomic::{compiler_fence, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// A sampler's walk, its plugins and a handler on top of it stay within so many bytes of stack.
const WALK_DEPTH: u64 = 64 * 1024;

/// Walks of a caller that are entered with one epoch.
const SAME_EPOCH: u32 = 8;

/// The slot. Plain loads and stores but for the mark: a slot is its own thread's, and a handler in between leaves it as it
/// found it.
#[derive(Debug)]
pub struct Slot {
    /// Thread pointer of the owner; `NEVER`, `GIVEN_BACK`: free.
    pub(super) thread_pointer: AtomicU64,
    /// Thread id of the owner.
    pub(super) tid: AtomicU32,
    /// Non-zero: inside a walk.
    busy: AtomicU32,
    /// Stack pointer at the walk's entry.
    walk_sp: AtomicU64,
    /// Registry epoch that the walk began in; 0 outside walks.
    pub(super) mark: Mark,
    /// Sampling signals that met this walk.
    ticks: AtomicU32,
    /// Walks by [`Slot::epoch`], and the epoch that it told last.
    walks: AtomicU32,
    epoch: AtomicU64,
    /// Where the thread keeps the head of its list of interpreted frames, if it publishes one; 0: nowhere.
    pub(super) published: AtomicU64,
    /// The owner's chain, for whoever keeps them; null: none so far. It stays the slot's: what it says is held against the stack whenever it is
    /// used.
    pub chain: AtomicPtr<Chain>,
    /// Where a faulting or endless walk comes back to.
    pub recovery: Recovery,
}

/// A walk under way; leaving it is [`Walking::leave`].
#[derive(Debug)]
pub struct Walking<'a> {
    /// The thread's slot.
    pub slot: &'a Slot,
    /// The walk that this one interrupted: its stack pointer and mark.
    outer: Option<(u64, u64)>,
}

/// [`Slot::occupy`]; leaving it is [`Alone::leave`].
#[derive(Debug)]
pub struct Alone<'a>(&'a Slot);

impl Alone<'_> {
    /// Leaves it.
    #[inline(always)]
    pub fn leave(self) {
        compiler_fence(Ordering::SeqCst);
        self.0.busy.store(0, Ordering::Relaxed);
    }
}

/// Why no walk can begin now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// This thread is inside a walk already.
    Nested,
    /// No slot is free.
    Full,
}

/// The stack pointer, or a little below it.
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
            busy: AtomicU32::new(0),
            walk_sp: AtomicU64::new(0),
            mark: Mark::new(),
            ticks: AtomicU32::new(0),
            walks: AtomicU32::new(0),
            epoch: AtomicU64::new(0),
            published: AtomicU64::new(0),
            chain: AtomicPtr::new(core::ptr::null_mut()),
            recovery: Recovery::new(),
        }
    }

    /// Address of the word that tells where the thread keeps the head of its list of interpreted frames.
    pub fn published_at(&self) -> u64 {
        core::ptr::from_ref(&self.published) as u64
    }

    /// The slot is another thread's from now on.
    pub(super) fn change_owner(&self) {
        self.reset();
        self.published.store(0, Ordering::Relaxed);
    }

    /// Whether the walk that is marked here was left without its exit (a cancelled thread's handler, a host's siglongjmp),
    /// seen from `sp` on the same thread. Two frames of one stack tell by their order. Where an alternate stack is
    /// involved, or a frame lies deeper than the walk, nothing is certain, and the mark stands: that makes a writer wait,
    /// the other error would take memory away under a walk.
    fn is_stale(&self, sp: u64) -> bool {
        let walk_sp = self.walk_sp.load(Ordering::Relaxed);
        if sp == walk_sp {
            // Where that walk began, another begins.
            return true;
        }
        if sp < walk_sp {
            // A sampler's walk goes no deeper, and nothing but faults interrupts it.
            return self.recovery.is_armed() && walk_sp.wrapping_sub(sp) > WALK_DEPTH;
        }
        match alternate_stack() {
            // On it: the walk is over if it was there, too; else a handler here has interrupted it.
            Some((start, end)) => (start..end).contains(&walk_sp),
            None => true,
        }
    }

    /// An epoch to enter a walk with: that of one of the last few walks. To ask for the epoch `now` is to fetch a line that writers
    /// change all the time; an older one makes them wait for this walk, too, and for no more than a few in a row.
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

    /// Marks a walk of the calling thread, whose slot this is, with the caller's stack pointer and the registry's epoch (not 0).
    /// Async-signal-safe.
    pub fn enter(&self, sp: u64, epoch: u64) -> Result<Walking<'_>, Refused> {
        let mut outer = None;
        if self.busy.load(Ordering::Relaxed) != 0 {
            if self.is_stale(sp) {
                self.recovery.disarm();
            } else if self.recovery.is_armed() {
                // A protected walk is the sampler's, and sampling itself is of no use; any other is a caller's of the
                // library, which a sample may interrupt like all code.
                return Err(Refused::Nested);
            } else {
                outer = Some((self.walk_sp.load(Ordering::Relaxed), self.mark.own()));
            }
        }
        self.take(sp);
        self.ticks.store(0, Ordering::Relaxed);
        // An interrupted walk's own mark is older, and stands for both.
        self.mark.set(outer.map_or(epoch, |(_, mark)| if mark == 0 { epoch } else { mark }));
        Ok(Walking { slot: self, outer })
    }

    /// Says that the thread is at work from `sp` on. A handler that comes in between finds either nothing or that very place.
    #[inline(always)]
    fn take(&self, sp: u64) {
        self.walk_sp.store(sp, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.busy.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // One that came before `busy` was there has left its own.
        self.walk_sp.store(sp, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// Work of the calling thread, whose slot this is, with the caller's stack pointer: to what interrupts it, it is a walk; to writers
    /// of the registry it is none. `None`: this has interrupted another, or a walk was left in the middle. Async-signal-safe.
    #[inline(always)]
    pub fn occupy(&self, sp: u64) -> Option<Alone<'_>> {
        if self.busy.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.take(sp);
        Some(Alone(self))
    }

    /// Whether the calling thread, whose slot this is, is inside a walk. A mark that nobody owns any more is cleared.
    pub(super) fn is_walking(&self, sp: u64) -> bool {
        if self.busy.load(Ordering::Relaxed) == 0 {
            return false;
        }
        if self.is_stale(sp) {
            self.reset();
            return false;
        }
        true
    }

    pub(super) fn reset(&self) {
        self.busy.store(0, Ordering::Relaxed);
        self.mark.restore(0);
        self.ticks.store(0, Ordering::Relaxed);
        self.recovery.disarm();
    }

    /// Forgets the sampling signals that met this walk.
    pub fn clear_ticks(&self) {
        self.ticks.store(0, Ordering::Relaxed);
    }

    /// Forgets a protected walk that is marked, because the caller knows that there is none.
    pub fn forget_protected(&self) {
        if self.recovery.is_armed() {
            self.reset();
        }
    }

    /// Counts a sampling signal that met this walk; the number so far.
    pub fn tick(&self) -> u32 {
        self.ticks.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}

impl Walking<'_> {
    /// Whether it has interrupted another one of its thread's.
    pub fn is_inner(&self) -> bool {
        self.outer.is_some()
    }

    /// Leaves the walk.
    pub fn leave(self) {
        match self.outer {
            Some((sp, mark)) => {
                self.slot.walk_sp.store(sp, Ordering::Relaxed);
                self.slot.mark.restore(mark);
            }
            None => {
                self.slot.mark.restore(0);
                self.slot.busy.store(0, Ordering::Release);
            }
        }
    }
}

/// The alternate signal stack, if the calling thread is on it now.
fn alternate_stack() -> Option<(u64, u64)> {
    const SS_ONSTACK: u64 = 1;
    // stack_t: ss_sp, ss_flags (int), ss_size.
    let mut stack = [0u64; 3];
    // SAFETY: writes one stack_t.
    let failed = unsafe { syscall::call(syscall::nr::SIGALTSTACK, [0, stack.as_mut_ptr() as usize, 0, 0, 0, 0]) } != 0;
    let [start, flags, size] = stack;
    (!failed && flags & SS_ONSTACK != 0).then(|| (start, start.saturating_add(size)))
}
