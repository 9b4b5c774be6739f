//! Samples of allocations (`uu record --mode alloc`), for the object that stands in front of the allocator's functions
//! (`profiler/alloc`): what that needs of the sampler.
//!
//! No timer is armed in this mode. A sample is taken by the thread that allocates, in the same way as in the handler:
//! all signals but faults are blocked, the same walk runs, and the record goes into the thread's ring. What it is of
//! stands in a record before it. Frees of sampled allocations go into a log of the process, which any thread may write
//! to at any time (`uunwind_ring::frees`).

use crate::client::HEADER;
use crate::process::{self, Process};
pub use crate::real::Real;
use crate::signals::{self, bit, field, handler_mask, sampling};
use crate::{clock, handler, openings, pause, slots, threads};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use uunwind_core::regs::{UCONTEXT_SIGMASK, UCONTEXT_STACK};
use uunwind_core::syscall::{self, nr};
use uunwind_ring::frees::FreeLog;
use uunwind_ring::layout::{ThreadBlock, RING_BYTES};
use uunwind_ring::record::{AllocationRecord, RecordType};
use uunwind_ring::samples::LARGEST;
use uunwind_ring::writer::RingWriter;
use uunwind_ring::FLAG_ALLOC;

/// Longest time for which a thread waits for the recorder to make room, in ns, and each step of it.
const PATIENCE: u64 = 2_000_000_000;
const STEP: u64 = 100_000;

/// Allocations are counted: the process is recorded in this mode, and its recording has begun.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// When a thread's next allocation is sampled. Only the thread itself uses it, its handlers included.
pub struct Countdown {
    /// Bytes up to the next sample; not above 0: the allocation that has used them up is one.
    left: AtomicI64,
    /// State of the thread's random numbers; 0: none was drawn, and `left` counts from 0.
    pub random: AtomicU64,
}

impl Countdown {
    /// Forgets the slot's previous thread.
    pub fn reset(&self) {
        self.left.store(0, Ordering::Relaxed);
        self.random.store(0, Ordering::Relaxed);
    }

    /// Counts this number of bytes. False: the sample is due.
    #[inline(always)]
    pub fn passes(&self, bytes: usize) -> bool {
        let left = self.left.load(Ordering::Relaxed).wrapping_sub(bytes as i64);
        self.left.store(left, Ordering::Relaxed);
        left > 0
    }

    /// Adds to the bytes up to the next sample. False: it is still due.
    pub fn add(&self, bytes: i64) -> bool {
        let left = self.left.load(Ordering::Relaxed).saturating_add(bytes);
        self.left.store(left, Ordering::Relaxed);
        left > 0
    }

    /// Sets the bytes up to the next sample.
    pub fn set(&self, bytes: i64) {
        self.left.store(bytes, Ordering::Relaxed);
    }
}

/// An allocation that is sampled.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// As [`AllocationRecord::id`].
    pub id: u64,
    /// Bytes that were asked for.
    pub size: u64,
}

impl Allocation {
    /// Writes what the sample that is written next is of. False: there was no room.
    pub(crate) fn write(self, ring: &RingWriter<'_>) -> bool {
        let size = core::mem::size_of::<AllocationRecord>();
        let Some(mut record) = ring.reserve(RecordType::Allocation, size) else { return false };
        record.fixed(AllocationRecord { header: HEADER, id: self.id, size: self.size });
        record.commit();
        true
    }
}

/// Begins to count, in a process that is recorded so. For the end of the constructor: what uu itself has allocated by
/// then is not the program's.
pub(crate) fn begin(process: &Process) {
    if process.setting.flags & FLAG_ALLOC != 0 {
        IS_ON.store(true, Ordering::Release);
    }
}

/// Ends it: the recording is over.
pub(crate) fn end() {
    IS_ON.store(false, Ordering::Relaxed);
}

/// Whether the calling process is the one that records: not the child of a fork, before that is recorded itself.
pub fn is_own() -> bool {
    process::is_own()
}

/// Whether allocations are counted.
#[inline(always)]
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Whether no allocation is to be sampled now.
pub fn is_paused() -> bool {
    process::process().is_none_or(pause::is_paused)
}

/// Bytes from a sample to the next, on average; 1: every allocation is one. `None`: the process is not recorded.
pub fn interval() -> Option<u32> {
    process::process().filter(|process| process.setting.flags & FLAG_ALLOC != 0).map(|process| process.setting.rate)
}

/// The calling thread's countdown; `None`: it is not sampled (yet).
#[inline(always)]
pub fn countdown() -> Option<&'static Countdown> {
    slots::own().map(|slot| &slot.countdown)
}

/// Begins to sample a thread that was not met so far: one that was made by a raw system call, or that has run its
/// destructor for the sampler and goes on to run others. May allocate. `None`: no block is free, or the recording is
/// over.
pub fn begin_thread() -> Option<&'static Countdown> {
    threads::begin(process::process()?, false, |_| {});
    countdown()
}

/// Runs what allocates for uu itself: that is not counted.
pub(crate) fn aside<T>(run: impl FnOnce() -> T) -> T {
    let Some(countdown) = countdown() else { return run() };
    let left = countdown.left.swap(i64::MAX, Ordering::Relaxed);
    let result = run();
    countdown.left.store(left, Ordering::Relaxed);
    result
}

/// Any number, to begin a thread's random numbers with.
pub fn seed() -> u64 {
    threads::random(syscall::gettid())
}

/// The number of the next sampled allocation of the process.
pub fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Bytes of a [context](take).
pub const CONTEXT_BYTES: usize = 1024;

/// Takes a sample of an allocation. False: it is lost, and counted.
///
/// # Safety
/// `context` must have [`CONTEXT_BYTES`], 16-aligned and laid out as a `ucontext_t`, with the registers of a frame that
/// lives until this function returns, on the same stack, and all else zero.
pub unsafe fn take(allocation: Allocation, context: *mut u8) -> bool {
    const SIG_BLOCK: usize = 0;
    let Some(slot) = slots::own() else {
        lost(allocation.size);
        return false;
    };
    let stack = [slot.alternate_low.load(Ordering::Relaxed), 0, slot.alternate_size.load(Ordering::Relaxed)];
    let (blocked, mut before) = (handler_mask() | bit(sampling()), 0u64);
    // SAFETY: rt_sigprocmask reads and writes one 8-byte set; the context has both places.
    let written = unsafe {
        let sets = [SIG_BLOCK, (&raw const blocked) as usize, (&raw mut before) as usize, 8, 0, 0];
        syscall::call(nr::RT_SIGPROCMASK, sets);
        context.add(UCONTEXT_STACK as usize).cast::<[u64; 3]>().write_unaligned(stack);
        context.add(UCONTEXT_SIGMASK as usize).cast::<u64>().write_unaligned(before);
        debug_assert_eq!(field::<u64>(context, UCONTEXT_SIGMASK as usize), before);
        wait_for_room(slot.block()) && handler::on_allocation(allocation, context)
    };
    signals::set_thread_mask(before);
    if !written {
        lost(allocation.size);
    }
    written
}

/// Counts an allocation that is in no sample.
pub fn lost(bytes: u64) {
    if let Some(block) = process::block() {
        block.allocations_lost.fetch_add(1, Ordering::Relaxed);
        block.allocated_lost.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Counts a sampled allocation whose free will not be seen.
pub fn untracked() {
    if let Some(block) = process::block() {
        block.untracked.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reports that the allocation with this number is freed. Async-signal-safe.
pub fn freed(id: u64) {
    let Some(block) = process::block() else { return };
    let time = clock::monotonic_ns();
    let mut patience = Patience::default();
    // SAFETY: the process's block, which stays mapped as a whole.
    if !unsafe { FreeLog::new(block) }.put(id, time, || patience.wait()) {
        block.frees_lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until a thread's ring takes the largest sample. The recorder empties it many times a second: only where every
/// allocation is sampled, it is ever full. False: there is no room, or no recorder.
fn wait_for_room(block: *mut ThreadBlock) -> bool {
    // The names of the code objects that a sample meets first come before it.
    const NEEDED: u64 = (LARGEST + 32 * 1024) as u64;
    const _: () = assert!(NEEDED < RING_BYTES as u64);
    // SAFETY: the thread's own block, which stays mapped.
    let Some(block) = (unsafe { block.as_ref() }) else { return false };
    let mut patience = Patience::default();
    loop {
        let used = block.head.load(Ordering::Relaxed).wrapping_sub(block.tail.load(Ordering::Acquire));
        if used <= RING_BYTES as u64 - NEEDED {
            return true;
        }
        if !patience.wait() {
            return false;
        }
    }
}

/// The patience of one thread that waits for the recorder.
#[derive(Default)]
struct Patience {
    waited: u64,
}

impl Patience {
    /// Waits a step. False: long enough, or the recording is over.
    fn wait(&mut self) -> bool {
        let Some(process) = process::process() else { return false };
        if self.waited >= PATIENCE || process.facts.is_over() {
            return false;
        }
        if self.waited == 0 && process.session.header().resting.load(Ordering::Relaxed) != 0 {
            openings::ring(process);
        }
        self.waited += STEP;
        let time = [0u64, STEP];
        // SAFETY: struct timespec; nothing is written.
        unsafe { syscall::call(nr::NANOSLEEP, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
        true
    }
}
