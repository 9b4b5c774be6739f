//! Threads: each has a slot, a block and a CPU timer from its start to its end.
//!
//! New threads are detected by interposing pthread_create (and thrd_create of C11): they start in a trampoline that
//! does its work and *jumps* to the program's function, so no frame of ours stays on the stack. Their end is detected
//! by the destructor of a [thread-specific key](https://man7.org/linux/man-pages/man3/pthread_key_create.3p.html),
//! which runs after a return, after pthread_exit and after cancellation.

use crate::injected;
use crate::process::{self, Process};
use crate::real::{self, Start};
use crate::slots::{self, Slot, NO_TIMER};
use crate::{allocator, plugins};
use crate::{ending, signals};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use uunwind_core::syscall::{self, nr};
use uunwind_ring::layout::{ThreadBlock, ENDED_THREAD, LIVE_THREAD};
use uunwind_ring::TICK_COOKIE;

/// The key whose destructor runs when a thread ends, plus one; 0: none.
static END_KEY: AtomicU32 = AtomicU32::new(0);
/// Number of keys whose values lie in the thread's descriptor (`PTHREAD_KEY_2NDLEVEL_SIZE`).
const FIRST_KEYS: u32 = 32;
/// The lower half of its address is that of our timers' `si_value`.
static COOKIE: u8 = 0;

/// The `si_value` that distinguishes our timers' signals from all others.
pub fn cookie() -> u64 {
    TICK_COOKIE << 32 | u64::from(core::ptr::from_ref(&COOKIE) as u32)
}

/// Whether the program believes that the calling thread blocks the sampling signal.
pub fn believes_masked() -> bool {
    slots::own().is_some_and(|slot| slot.masked.load(Ordering::Relaxed) != 0)
}

/// Creates the key for the end of threads, unless there is one. Before glibc 2.34, a program that begins without
/// libpthread has no keys before it has loaded that. Not for handlers.
pub fn create_end_key() {
    let mut key = 0;
    // SAFETY: an ordinary key with a destructor that lives as long as the process.
    if END_KEY.load(Ordering::Acquire) != 0 || unsafe { real::pthread_key_create(&raw mut key, Some(end)) } != 0 {
        return;
    }
    if END_KEY.compare_exchange(0, key + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // SAFETY: created above, and no thread has a value; another thread's is used.
        unsafe { real::pthread_key_delete(key) };
    }
}

/// Begins to sample the calling thread: slot, block, timer. It may allocate, because pthread_setspecific does for a
/// high key number, so it is called only from thread starts, the constructor and the child of a fork. `first` runs
/// before the timer is armed, when no handler writes to the ring yet.
pub fn begin(process: &'static Process, masked: bool, first: impl FnOnce(*mut ThreadBlock)) {
    if process.facts.is_over() || process::block().is_none() || !process::is_own() {
        return;
    }
    let tid = syscall::gettid();
    if let Some(slot) = slots::own() {
        if slot.tid.load(Ordering::Relaxed) == tid {
            return;
        }
        // The slot of a dead thread that had the same TCB and ended by a raw exit call. The recorder notices that it is
        // gone and frees its block.
        slots::release(slot);
    }
    let Some(slot) = claim(process, tid, masked) else { return };
    let block = slot.block();
    let key = END_KEY.load(Ordering::Acquire);
    // For a key above those of the first block, glibc allocates. Without it, the recorder sees the thread's end.
    if key != 0 && (key <= FIRST_KEYS || allocator::is_usable()) {
        // SAFETY: our own key.
        unsafe { real::pthread_setspecific(key - 1, core::ptr::from_ref(slot).cast()) };
    }
    if tid == process::pid() {
        // SAFETY: the thread's own block, and the timer is not armed.
        crate::sample::name_thread(&unsafe { crate::client::ring(block) });
    }
    first(block);
    arm(process, slot, tid);
    crate::openings::begun(process);
}

/// Claims a slot and a block for the calling thread, which has none. `tid`: its id, in an injected sampler where `uu`
/// lives.
/// Async-signal-safe. `None`: there is none left.
pub fn claim(process: &'static Process, tid: u32, masked: bool) -> Option<&'static Slot> {
    let slot = slots::claim(syscall::thread_pointer());
    let (Some(slot), Some(index)) = (slot, process.session.claim()) else {
        slot.into_iter().for_each(slots::release);
        process.session.header().threads_without_block.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    let block = process.session.block(index).cast::<ThreadBlock>();
    // An injected sampler's threads have their ids by `uu`.
    let is_elsewhere = process::is_elsewhere() && !injected::is_so();
    // SAFETY: a claimed block is ours alone, all-zero, and stays mapped.
    unsafe {
        ((*block).tid, (*block).own_tid) = match is_elsewhere {
            true if tid == process::pid() => (process::outer_pid(), tid),
            true => (0, tid),
            false => (tid, 0),
        };
        (*block).began = crate::clock::monotonic_ns();
        (*block).process = process::block_index();
        (*block).pid = process::outer_pid();
    }
    slot.tid.store(tid, Ordering::Relaxed);
    slot.masked.store(u32::from(masked), Ordering::Relaxed);
    slot.block.store(block, Ordering::Relaxed);
    slot.block_index.store(index as u32, Ordering::Relaxed);
    slots::publish(slot);
    if let Some(state) = process.session.state(index) {
        state.store(LIVE_THREAD, Ordering::Release);
    }
    Some(slot)
}

/// Creates and starts the calling thread's CPU timer, unless events are sampled.
fn arm(process: &Process, slot: &Slot, tid: u32) {
    const CLOCK_THREAD_CPUTIME_ID: usize = 3;
    if crate::events::are_sampled(process.setting.flags) {
        return;
    }
    let Ok(timer) = create_timer(CLOCK_THREAD_CPUTIME_ID, cookie(), tid) else { return };
    slot.timer.store(timer, Ordering::SeqCst);
    if ending::has_begun() {
        // The thread that ends the recording may have looked for timers before this one was stored. Otherwise it
        // deletes this one.
        disarm(slot);
        return;
    }
    let period = process.setting.period();
    // The first expiry lies at a varying place in the first period, so that many runs of one short program are not all
    // sampled at the same place.
    let cpu = syscall::thread_cpu_ns().max(1);
    // SAFETY: the thread's block, which stays mapped.
    unsafe { (*slot.block()).cpu_before.store(cpu, Ordering::Relaxed) };
    start_timer(timer, slot.first.arm(cpu, random(tid), period), period);
}

/// Creates a timer on this CPU clock, whose signal has this `si_value` and goes to the thread with this id
/// ([timer_create(2)](https://man7.org/linux/man-pages/man2/timer_create.2.html), SIGEV_THREAD_ID). Error: the
/// kernel's; it is counted.
pub fn create_timer(clock: usize, value: u64, tid: u32) -> Result<u32, u32> {
    const SIGEV_THREAD_ID: u32 = 4;
    #[repr(C)]
    struct SigEvent {
        value: u64,
        signo: i32,
        notify: u32,
        tid: u32,
        pad: [u32; 11],
    }
    let mut event = SigEvent { value, signo: signals::sampling(), notify: SIGEV_THREAD_ID, tid, pad: [0; 11] };
    let mut timer = 0u32;
    // SAFETY: the kernel's struct sigevent (64 bytes), and a variable for its timer id.
    let made = unsafe {
        syscall::call(nr::TIMER_CREATE, [clock, (&raw mut event) as usize, (&raw mut timer) as usize, 0, 0, 0])
    };
    if made != 0 {
        if let Some(process) = process::block() {
            process.timers_failed.fetch_add(1, Ordering::Relaxed);
        }
        return Err(made.unsigned_abs() as u32);
    }
    Ok(timer)
}

/// A number that varies from thread to thread, and from time to time.
pub fn random(tid: u32) -> u64 {
    u64::from(tid).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ syscall::monotonic_ns()
}

/// Starts a timer: from its first expiry, after `first`, it expires each `period` (ns of CPU time).
pub fn start_timer(timer: u32, first: u64, period: u64) {
    let spec = [
        (period / 1_000_000_000) as i64,
        (period % 1_000_000_000) as i64,
        (first / 1_000_000_000) as i64,
        (first % 1_000_000_000) as i64,
    ];
    // SAFETY: struct itimerspec.
    unsafe { syscall::call(nr::TIMER_SETTIME, [timer as usize, 0, spec.as_ptr() as usize, 0, 0, 0]) };
}

/// Deletes the timer of any thread of this process. Async-signal-safe.
pub fn disarm(slot: &Slot) {
    let timer = slot.timer.swap(NO_TIMER, Ordering::SeqCst);
    if timer != NO_TIMER {
        delete_timer(timer);
    }
}

/// Deletes a timer of ours, of any thread of this process. Async-signal-safe.
pub fn delete_timer(timer: u32) {
    // SAFETY: a timer of our own: its number lies in memory that no other process writes to.
    unsafe { syscall::call(nr::TIMER_DELETE, [timer as usize, 0, 0, 0, 0, 0]) };
}

/// Ends the sampling of the calling thread (destructor of the key).
unsafe extern "C" fn end(_slot: *mut c_void) {
    let Some(process) = process::process().filter(|_| process::is_own()) else { return };
    let Some(slot) = slots::own() else { return };
    disarm(slot);
    let index = slot.block_index.load(Ordering::Relaxed) as usize;
    slots::release(slot);
    // SAFETY: a function of libuunwind's table, called outside of walks.
    unsafe { (process.library.thread_ended)() };
    let cpu = syscall::thread_cpu_ns();
    if let Some(process) = process::block() {
        process.cpu_ended.fetch_add(cpu, Ordering::Relaxed);
    }
    // SAFETY: the block is this thread's until its state says that it has ended.
    let block = unsafe { &*process.session.block(index).cast::<ThreadBlock>() };
    block.cpu_at_end.store(cpu, Ordering::Relaxed);
    block.ended.store(crate::clock::monotonic_ns(), Ordering::Relaxed);
    if let Some(state) = process.session.state(index) {
        state.store(ENDED_THREAD, Ordering::Release);
    }
}

/// In the child of a fork: forgets the parent's threads, which do not exist here, and their blocks, which are the
/// parent's.
pub fn forget_all() {
    slots::forget_all();
    // Those that were never used are not touched: each of their pages would cost the child a fault.
    let used = STARTS_USED.load(Ordering::Acquire);
    for start in starts().iter().take(used).filter(|start| start.state.load(Ordering::Relaxed) != 0) {
        start.state.store(0, Ordering::Relaxed);
    }
}

/// Start function and argument of a new thread, until its trampoline has taken them.
struct StartSlot {
    /// 0: the slot is free; 1: a creating thread has claimed it.
    state: AtomicU32,
    start: AtomicUsize,
    argument: AtomicUsize,
    /// Non-zero: the creating thread believes that it blocks the sampling signal. A new thread inherits the mask.
    masked: AtomicU32,
}

/// One for each thread that can be sampled: all of them may wait for a CPU before the first one begins. Null until the
/// process is recorded; zeroed memory is free slots.
static STARTS: AtomicPtr<StartSlot> = AtomicPtr::new(core::ptr::null_mut());
/// At least the number of slots, from the first one on, that were ever used.
static STARTS_USED: AtomicUsize = AtomicUsize::new(0);
/// Bytes of all of them.
pub const STARTS_BYTES: usize = slots::THREADS * core::mem::size_of::<StartSlot>();

/// Memory for the start slots.
///
/// # Safety
/// [`STARTS_BYTES`] of zeroed memory, 8-aligned, that stay mapped.
pub unsafe fn keep_starts(memory: *mut u8) {
    STARTS.store(memory.cast(), Ordering::Release);
}

fn starts() -> &'static [StartSlot] {
    let first = STARTS.load(Ordering::Acquire);
    if first.is_null() {
        return &[];
    }
    // SAFETY: `keep_starts` demands memory for this number of slots; all their fields are atomic.
    unsafe { core::slice::from_raw_parts(first, slots::THREADS) }
}

crate::cpu::thread_trampoline!(uu_thread_trampoline, taken);

extern "C" {
    fn uu_thread_trampoline(slot: *mut c_void) -> *mut c_void;
}

/// The start function and its argument, returned in two registers.
#[repr(C)]
struct Taken {
    start: usize,
    argument: usize,
}

/// Runs first on a new thread: begins to sample it, frees the start slot, and returns what the thread is to run.
unsafe extern "C" fn taken(slot: *const StartSlot) -> Taken {
    // SAFETY: the argument of the trampoline is one of `starts`.
    let slot = unsafe { &*slot };
    let taken = Taken { start: slot.start.load(Ordering::Acquire), argument: slot.argument.load(Ordering::Relaxed) };
    let masked = slot.masked.load(Ordering::Relaxed) != 0;
    slot.state.store(0, Ordering::Release);
    if let Some(process) = process::process() {
        begin(process, masked, |_| {});
    }
    taken
}

/// Passes `start(argument)` through a start slot to `create`, which creates the thread.
fn create(start: Start, argument: *mut c_void, create: impl FnOnce(Start, *mut c_void) -> c_int) -> c_int {
    let recording = process::process().is_some() && process::block().is_some() && process::is_own();
    allocator::is_called();
    if recording {
        create_end_key();
    }
    plugins::open_missed();
    let mut slots = starts().iter().enumerate().filter(|_| recording);
    let slot = slots.find(|(index, s)| {
        s.state.load(Ordering::Relaxed) == 0 && {
            // Before the slot is taken: another thread may fork at any time.
            STARTS_USED.fetch_max(index + 1, Ordering::AcqRel);
            s.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        }
    });
    let Some((_, slot)) = slot else {
        if let (true, Some(process)) = (recording, process::process()) {
            process.session.header().threads_without_block.fetch_add(1, Ordering::Relaxed);
        }
        return create(start, argument);
    };
    slot.argument.store(argument as usize, Ordering::Relaxed);
    slot.masked.store(u32::from(believes_masked()), Ordering::Relaxed);
    slot.start.store(start as usize, Ordering::Release);
    let result = create(uu_thread_trampoline, core::ptr::from_ref(slot).cast_mut().cast());
    if result != 0 {
        slot.state.store(0, Ordering::Release);
    }
    result
}

/// Interposed [pthread_create(3)](https://man7.org/linux/man-pages/man3/pthread_create.3.html).
///
/// # Safety
/// As pthread_create.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the program's own arguments; the trampoline runs `start(argument)`.
    create(start, argument, |start, argument| unsafe { real::pthread_create(thread, attributes, start, argument) })
}

/// Interposed thrd_create of C11. Its start function returns an int, in the same register as a pointer.
///
/// # Safety
/// As thrd_create.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn thrd_create(thread: *mut c_void, start: Start, argument: *mut c_void) -> c_int {
    // SAFETY: the program's own arguments; the trampoline runs `start(argument)`.
    create(start, argument, |start, argument| unsafe { real::thrd_create(thread, start, argument) })
}
