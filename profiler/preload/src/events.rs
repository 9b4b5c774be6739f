//! Samples of events: allocations (`uu record --mode alloc`) and waits for locks (`--mode lock`). For the objects that
//! stand in front of the functions in which these happen (`profiler/alloc`, `profiler/lock`): what they need of the
//! sampler.
//!
//! No timer is armed in these modes. A sample is taken by the thread that has allocated or waited, in the same way as
//! in the handler: all signals but faults are blocked, the same walk runs, and the record goes into the thread's ring.
//! What it is of stands in a record before it. Frees of sampled allocations go into a log of the process, which any
//! thread may write to at any time (`uunwind_ring::frees`).
//!
//! An event has a size, in bytes or in ns, and is sampled by chance in proportion to it (`chance`).

use crate::chance;
use crate::client::HEADER;
use crate::process::{self, Process};
pub use crate::real::{address_of_next, of_loaded, Real};
use crate::signals::{self, bit, field, handler_mask, sampling};
use crate::{clock, handler, injected, openings, pause, slots, threads};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicU8, Ordering};
use uunwind_core::regs::{UCONTEXT_SIGMASK, UCONTEXT_STACK};
use uunwind_core::syscall::{self, nr};
pub use uunwind_ring::frees::Span;
use uunwind_ring::frees::{Entry, FreeLog};
use uunwind_ring::gate;
use uunwind_ring::layout::{ThreadBlock, RING_BYTES};
pub use uunwind_ring::record::WaitKind;
use uunwind_ring::record::{AllocationRecord, RecordType, SampleKind, WaitRecord};
use uunwind_ring::samples::LARGEST;
use uunwind_ring::writer::RingWriter;
use uunwind_ring::{FLAG_ALLOC, FLAG_LOCK, FLAG_MAPPINGS};

/// Longest time for which a thread waits for the recorder to make room, in ns, and each step of it.
const PATIENCE: u64 = 2_000_000_000;
const STEP: u64 = 100_000;

/// What is counted, once the recording has begun of a process that is recorded in such a mode.
static COUNTED: AtomicU8 = AtomicU8::new(NOTHING);
const NOTHING: u8 = 0;
const EVENTS: u8 = 1;
/// Anonymous mappings, too.
const MAPPINGS: u8 = 2;
/// Whether functions of the allocator may call each other by their names, and so come here again.
static NESTS: AtomicBool = AtomicBool::new(false);
/// When that was, by CLOCK_MONOTONIC in ns.
static BEGAN: AtomicU64 = AtomicU64::new(0);

/// When a thread's next event is sampled. Only the thread itself uses it, its handlers included.
pub struct Countdown {
    /// Bytes or ns up to the next sample; not above 0: the event that has used them up is one.
    left: AtomicI64,
    /// State of the thread's random numbers; 0: none was drawn, and `left` counts from 0.
    random: AtomicU64,
    /// Number of calls of the allocator that the thread is inside, where that is asked for.
    inside: AtomicU32,
    /// Number of the thread's last sampled allocation, 0: there is none; and `left` after it. Each allocation changes
    /// that, so it says at no cost whether there was another one since.
    last: AtomicU64,
    after: AtomicI64,
}

impl Countdown {
    /// Forgets the slot's previous thread.
    pub fn reset(&self) {
        self.left.store(0, Ordering::Relaxed);
        self.random.store(0, Ordering::Relaxed);
        self.inside.store(0, Ordering::Relaxed);
        self.last.store(0, Ordering::Relaxed);
    }

    /// Remembers the number of the allocation that is sampled.
    pub fn remember(&self, id: u64) {
        self.after.store(self.left.load(Ordering::Relaxed), Ordering::Relaxed);
        self.last.store(id, Ordering::Relaxed);
    }

    /// Number of the thread's last allocation, if that was sampled; otherwise 0.
    fn last(&self) -> u64 {
        let is_last = self.left.load(Ordering::Relaxed) == self.after.load(Ordering::Relaxed);
        if is_last {
            self.last.load(Ordering::Relaxed)
        } else {
            0
        }
    }

    /// Calls the allocator: what this maps is not the program's.
    fn within<T>(&self, call: impl FnOnce() -> T) -> T {
        let inside = self.enter();
        let result = call();
        self.inside.store(inside, Ordering::Relaxed);
        result
    }

    /// Counts a call of the allocator; returns how many there were before it.
    fn enter(&self) -> u32 {
        let inside = self.inside.load(Ordering::Relaxed);
        self.inside.store(inside.wrapping_add(1), Ordering::Relaxed);
        inside
    }

    /// Counts an event of this size, which is not 0. False: the sample is due.
    #[inline(always)]
    pub fn passes(&self, size: u64) -> bool {
        let left = self.left.load(Ordering::Relaxed).wrapping_sub(size as i64);
        self.left.store(left, Ordering::Relaxed);
        left > 0
    }

    /// Draws when the next event is sampled. False: this one is not, as the thread's first distance goes on.
    pub fn is_due(&self, interval: u32) -> bool {
        let draw = || {
            let state = chance::next(self.random.load(Ordering::Relaxed));
            self.random.store(state, Ordering::Relaxed);
            chance::distance(state, interval)
        };
        if self.random.load(Ordering::Relaxed) == 0 {
            self.random.store(threads::random(syscall::gettid()) | 1, Ordering::Relaxed);
            // The first numbers follow from the thread's id and the time.
            let first = (0..8).fold(0, |_, _| draw());
            let left = self.left.load(Ordering::Relaxed).saturating_add(first);
            self.left.store(left, Ordering::Relaxed);
            if left > 0 {
                return false;
            }
        }
        // After the last byte of an event that is sampled, a new distance begins.
        self.left.store(draw(), Ordering::Relaxed);
        true
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

/// A wait that is sampled.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// For what.
    pub kind: WaitKind,
    /// Its process address.
    pub lock: u64,
    /// As [`WaitRecord::holder`].
    pub holder: u32,
    /// In ns.
    pub duration: u64,
}

/// What a sample is of.
#[derive(Clone, Copy, Debug)]
pub enum Subject {
    /// An allocation.
    Allocation(Allocation),
    /// An anonymous mapping.
    Mapping(Allocation),
    /// A wait for a lock.
    Wait(Wait),
}

impl Subject {
    pub(crate) fn kind(&self) -> SampleKind {
        match self {
            Subject::Allocation(_) => SampleKind::Allocation,
            Subject::Mapping(_) => SampleKind::Mapping,
            Subject::Wait(_) => SampleKind::Lock,
        }
    }

    /// In bytes or in ns.
    fn size(&self) -> u64 {
        match self {
            Subject::Allocation(allocation) | Subject::Mapping(allocation) => allocation.size,
            Subject::Wait(wait) => wait.duration,
        }
    }

    /// Writes what the sample that is written next is of. False: there was no room.
    pub(crate) fn write(&self, ring: &RingWriter<'_>) -> bool {
        match *self {
            Subject::Allocation(Allocation { id, size }) | Subject::Mapping(Allocation { id, size }) => {
                let bytes = core::mem::size_of::<AllocationRecord>();
                let Some(mut record) = ring.reserve(RecordType::Allocation, bytes) else { return false };
                record.fixed(AllocationRecord { header: HEADER, id, size });
                record.commit();
            }
            Subject::Wait(Wait { kind, lock, holder, duration }) => {
                let bytes = core::mem::size_of::<WaitRecord>();
                let Some(mut record) = ring.reserve(RecordType::Wait, bytes) else { return false };
                record.fixed(WaitRecord { header: HEADER, lock, duration, kind: kind.number(), holder });
                record.commit();
            }
        }
        true
    }
}

/// Whether a recording with these flags is one of events.
pub(crate) fn are_sampled(flags: u32) -> bool {
    flags & (FLAG_ALLOC | FLAG_LOCK) != 0
}

/// Begins to count, in a process that is recorded so. For the end of the constructor: what uu itself has allocated by
/// then is not the program's.
pub(crate) fn begin(process: &Process) {
    if are_sampled(process.setting.flags) {
        BEGAN.store(now(), Ordering::Relaxed);
        if process.setting.flags & FLAG_ALLOC != 0 && has_other_allocator() {
            nest();
        }
        let has_mappings = process.setting.flags & FLAG_MAPPINGS != 0;
        COUNTED.store(if has_mappings { MAPPINGS } else { EVENTS }, Ordering::Release);
    }
}

/// Ends it: the recording is over.
pub(crate) fn end() {
    COUNTED.store(NOTHING, Ordering::Relaxed);
}

/// Whether the calling process is the one that records: not the child of a fork, before that is recorded itself.
pub fn is_own() -> bool {
    process::is_own()
}

/// Whether events are counted.
#[inline(always)]
pub fn is_on() -> bool {
    COUNTED.load(Ordering::Relaxed) != NOTHING
}

/// When that has begun, by CLOCK_MONOTONIC in ns.
pub fn began() -> u64 {
    BEGAN.load(Ordering::Relaxed)
}

/// The recording's `FLAG_*`; 0: the process is not recorded.
pub fn flags() -> u32 {
    process::process().map_or(0, |process| process.setting.flags)
}

/// The id where `uu` lives of a thread of this process that has this one here; 0: not known.
pub fn outer_id(inner: u32) -> u32 {
    match process::process() {
        Some(process) if injected::is_so() => injected::outer_id(process, inner).unwrap_or(0),
        _ => inner,
    }
}

/// Whether anonymous mappings are counted, too.
#[inline(always)]
pub fn has_mappings() -> bool {
    COUNTED.load(Ordering::Relaxed) == MAPPINGS
}

/// Whether the allocator that is called is not the C library's, whose functions do not call each other by their names.
/// Not in a running process, where the entries of such an allocator stay as they are.
fn has_other_allocator() -> bool {
    // SAFETY: the loader's structure, during its iteration.
    let libc = crate::real::of_loaded(|object| unsafe {
        let dynamic = object.dynamic();
        dynamic.symbol(c"gnu_get_libc_version").and(dynamic.symbol(c"malloc"))
    });
    let next = if injected::is_so() { core::ptr::null_mut() } else { address_of_next(c"malloc") };
    !next.is_null() && libc.is_none_or(|libc| libc.address != next as u64)
}

/// From now on, functions of the allocator may call each other by their names, and so come here again.
pub fn nest() {
    NESTS.store(true, Ordering::Relaxed);
}

/// Whether this call is one of the allocator's own: it is counted as what that returns.
#[inline(always)]
pub fn is_inside_allocator() -> bool {
    NESTS.load(Ordering::Relaxed) && countdown().is_some_and(|of| of.inside.load(Ordering::Relaxed) != 0)
}

/// Calls the allocator: what this maps, or allocates itself, is counted as what it returns.
#[inline(always)]
pub fn allocating<T>(call: impl FnOnce() -> T) -> T {
    if !has_mappings() && !NESTS.load(Ordering::Relaxed) {
        return call();
    }
    match countdown() {
        Some(countdown) => countdown.within(call),
        None => call(),
    }
}

/// The same in two parts, for a call from which an exception may come: before it.
pub extern "C" fn enter_allocator() {
    if let Some(countdown) = countdown() {
        countdown.enter();
    }
}

/// After it. The thread may have been met only meanwhile.
pub extern "C" fn leave_allocator() {
    if let Some(countdown) = countdown() {
        let inside = countdown.inside.load(Ordering::Relaxed);
        countdown.inside.store(inside.saturating_sub(1), Ordering::Relaxed);
    }
}

/// Whether a call of mmap(2) or munmap(2) is to be counted: it is the program's own, and the process is recorded.
pub fn is_mapping() -> bool {
    has_mappings() && is_own() && countdown().is_none_or(|of| of.inside.load(Ordering::Relaxed) == 0)
}

/// Whether no event is to be sampled now.
pub fn is_paused() -> bool {
    process::process().is_none_or(pause::is_paused)
}

/// Bytes or ns from a sample to the next, on average; 1: every event is one. `None`: the process is not recorded.
pub fn interval() -> Option<u32> {
    process::process().filter(|process| are_sampled(process.setting.flags)).map(|process| process.setting.rate)
}

/// The calling thread's countdown; `None`: it is not sampled (yet).
#[inline(always)]
pub fn countdown() -> Option<&'static Countdown> {
    slots::own().map(|slot| &slot.countdown)
}

/// Begins to sample a thread that was not met so far: one that was made by a raw system call, or that has run its
/// destructor for the sampler and goes on to run others. May allocate. `None`: no block is free, or the recording is
/// over.
fn begin_thread() -> Option<&'static Countdown> {
    if injected::is_so() {
        return injected::begin_thread(process::process()?).map(|slot| &slot.countdown);
    }
    threads::begin(process::process()?, false, |_| {});
    countdown()
}

/// The countdown that has counted an event of this size; that of a thread that was not met so far, which begins with
/// it.
/// `countdown`: what has counted it, which may be that of a thread that has ended unseen, and had its control block at
/// the same place. May allocate. `None`: no block is free, or the recording is over.
pub fn having_counted(countdown: Option<&'static Countdown>, size: u64) -> Option<&'static Countdown> {
    let is_its = |_: &&Countdown| !injected::is_so() || !is_own() || injected::is_current();
    countdown.filter(is_its).or_else(|| {
        let new = begin_thread()?;
        new.passes(size);
        Some(new)
    })
}

/// Runs what allocates for uu itself: that is not counted.
pub(crate) fn aside<T>(run: impl FnOnce() -> T) -> T {
    let Some(countdown) = countdown() else { return run() };
    let left = countdown.left.swap(i64::MAX, Ordering::Relaxed);
    let result = run();
    countdown.left.store(left, Ordering::Relaxed);
    result
}

/// The number of the next sampled allocation of the process.
pub fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// CLOCK_MONOTONIC in ns.
#[inline(always)]
pub fn now() -> u64 {
    clock::monotonic_ns()
}

/// Counts an event of this size, which nothing has to be kept of: a sample of it is taken, if its turn has come.
/// Leaves errno alone. False: there is no sample.
/// `caller`: the frame that the event is in; `None`: the calling function's.
pub fn count(size: u64, caller: Option<&Caller>, subject: impl FnOnce() -> Subject) -> bool {
    match countdown() {
        Some(countdown) if countdown.passes(size) => false,
        countdown => keeping_errno(|| due(countdown, size, caller, subject)),
    }
}

#[cold]
#[inline(never)]
fn due(
    countdown: Option<&'static Countdown>,
    size: u64,
    caller: Option<&Caller>,
    subject: impl FnOnce() -> Subject,
) -> bool {
    let Some(interval) = interval() else { return false };
    // In the child of a fork that is not recorded itself (yet), slots and block are its parent's.
    if !is_own() {
        return false;
    }
    let Some(countdown) = having_counted(countdown, size) else {
        lost(size);
        return false;
    };
    if interval > 1 && !countdown.is_due(interval) || is_paused() {
        return false;
    }
    sampled(subject(), caller)
}

/// Runs this, which makes system calls of its own only: errno is libc's.
#[cfg(feature = "no-libc")]
pub fn keeping_errno<T>(run: impl FnOnce() -> T) -> T {
    run()
}

/// Runs this, and leaves the program's errno as it was.
#[cfg(not(feature = "no-libc"))]
pub fn keeping_errno<T>(run: impl FnOnce() -> T) -> T {
    // SAFETY: the calling thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let errno = unsafe { *place };
    let result = run();
    // SAFETY: as above.
    unsafe { *place = errno };
    result
}

/// Bytes of a context.
const CONTEXT_BYTES: usize = 1024;

/// A ucontext, as far as a walk reads it.
#[repr(C, align(16))]
struct Ucontext([u8; CONTEXT_BYTES]);

/// The registers of a frame that lives until the walk is over, as far as a walk begins with them.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// An address in the instruction at which it stands.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Of x86-64.
    pub rbp: u64,
    /// Of x86-64.
    pub rbx: u64,
    /// r12, r13, r14, r15 of x86-64.
    pub others: [u64; 4],
}

impl Caller {
    /// The frame that has called a function through the gate: the return address less 1 lies in the call.
    pub fn of_gate(frame: &gate::Frame) -> Caller {
        let [rbx, r12, r13, r14, r15] = frame.saved;
        Caller {
            pc: frame.return_address.wrapping_sub(1),
            sp: core::ptr::from_ref(frame) as u64 + core::mem::size_of::<gate::Frame>() as u64,
            rbp: frame.rbp,
            rbx,
            others: [r12, r13, r14, r15],
        }
    }
}

/// Takes the sample, with the stack from `caller` on; `None`: from here on. A function of its own, whose frame lives
/// until the walk is over. False: it is lost, and counted.
#[inline(never)]
pub fn sampled(subject: Subject, caller: Option<&Caller>) -> bool {
    let mut context = Ucontext([0; CONTEXT_BYTES]);
    let place = (&raw mut context).cast::<u8>();
    // SAFETY: the registers lie inside the context.
    unsafe {
        match caller {
            Some(caller) => crate::cpu::store_caller(place, caller),
            None => crate::cpu::store_registers(place),
        }
    }
    // SAFETY: filled in as it demands.
    unsafe { take(subject, place) }
}

/// Takes a sample of an event. False: it is lost, and counted.
///
/// # Safety
/// `context` must have [`CONTEXT_BYTES`], 16-aligned and laid out as a `ucontext_t`, with the registers of a frame that
/// lives until this function returns, on the same stack, and all else zero.
unsafe fn take(subject: Subject, context: *mut u8) -> bool {
    const SIG_BLOCK: usize = 0;
    let Some(slot) = slots::own() else {
        lost(subject.size());
        return false;
    };
    let stack = if injected::is_so() {
        injected::alternate_stack()
    } else {
        [slot.alternate_low.load(Ordering::Relaxed), 0, slot.alternate_size.load(Ordering::Relaxed)]
    };
    let (blocked, mut before) = (handler_mask() | bit(sampling()), 0u64);
    // SAFETY: rt_sigprocmask reads and writes one 8-byte set; the context has both places.
    let written = unsafe {
        let sets = [SIG_BLOCK, (&raw const blocked) as usize, (&raw mut before) as usize, 8, 0, 0];
        syscall::call(nr::RT_SIGPROCMASK, sets);
        context.add(UCONTEXT_STACK as usize).cast::<[u64; 3]>().write_unaligned(stack);
        context.add(UCONTEXT_SIGMASK as usize).cast::<u64>().write_unaligned(before);
        debug_assert_eq!(field::<u64>(context, UCONTEXT_SIGMASK as usize), before);
        wait_for_room(slot.block()) && handler::on_event(&subject, context)
    };
    signals::set_thread_mask(before);
    if !written {
        lost(subject.size());
    }
    written
}

/// Counts an event of this size that is in no sample.
pub fn lost(size: u64) {
    if let Some(block) = process::block() {
        block.events_lost.fetch_add(1, Ordering::Relaxed);
        block.events_lost_size.fetch_add(size, Ordering::Relaxed);
    }
}

/// Reports that the allocation with this number was freed in a way that is not seen: its address is another one's.
pub fn replaced(id: u64) {
    if let Some(block) = process::block() {
        block.frees_unseen.fetch_add(1, Ordering::Relaxed);
    }
    freed(id);
}

/// Counts a sampled allocation whose free will not be seen.
pub fn untracked() {
    if let Some(block) = process::block() {
        block.untracked.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reports that the allocation with this number is freed. Async-signal-safe.
pub fn freed(id: u64) {
    log(Entry::Free { id, is_temporary: id == last() });
}

/// Reports what this call is about to unmap; returns the call's number.
pub fn leaves(span: Span) -> u64 {
    let call = next_id();
    log(Entry::Leaves { call, span, last: last() });
    call
}

/// Number of the calling thread's last allocation, if that was sampled; otherwise 0.
fn last() -> u64 {
    countdown().map_or(0, Countdown::last)
}

/// Reports that the call with this number has failed.
pub fn stays(call: u64) {
    log(Entry::Stays { call });
}

/// Reports what was mapped anonymously, by the call with this number if it was moved, as allocation `id` if it was
/// sampled; otherwise 0.
pub fn comes(id: u64, span: Span, moved_by: u64) {
    log(Entry::Comes { id, span, moved_by });
}

fn log(entry: Entry) {
    let Some(block) = process::block() else { return };
    let time = clock::monotonic_ns();
    let mut patience = Patience::default();
    // SAFETY: the process's block, which stays mapped as a whole.
    if !unsafe { FreeLog::new(block) }.put(entry, time, || patience.wait()) {
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
