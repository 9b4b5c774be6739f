//! Threads: a block and a CPU timer for each, from its start to its end.
//!
//! New threads are met by interposing pthread_create (and C11's thrd_create): they start in a trampoline that does its
//! work and *jumps* to the program's function, so no frame of ours stays on the stack. Their end is met by the destructor
//! of a thread-specific key, which runs after return, pthread_exit and cancellation alike.

use crate::process::{self, Process};
use crate::real::{self, Start};
use crate::signals;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use uunwind_core::syscall::{self, nr};
use uunwind_ring::layout::{ThreadBlock, ENDED_THREAD, LIVE_THREAD};

/// Threads that are sampled at once, at most.
const THREADS: usize = 2048;
const PROBES: usize = 64;
const NO_TIMER: u32 = u32::MAX;

/// Thread pointer -> block.
struct Known {
    thread_pointer: AtomicU64,
    block: AtomicPtr<ThreadBlock>,
    index: AtomicU32,
}

static KNOWN: [Known; THREADS] = [const {
    Known { thread_pointer: AtomicU64::new(0), block: AtomicPtr::new(core::ptr::null_mut()), index: AtomicU32::new(0) }
}; THREADS];

/// Key whose destructor tells that a thread ends, plus one; 0 = none.
static END_KEY: AtomicU32 = AtomicU32::new(0);
/// What our timers carry in `si_value`.
static COOKIE: u8 = 0;

/// The value that tells our timers' signals from all others.
pub fn cookie() -> u64 {
    core::ptr::from_ref(&COOKIE) as u64
}

fn probes(thread_pointer: u64) -> impl Iterator<Item = &'static Known> {
    let first = ((thread_pointer >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize;
    (0..PROBES).filter_map(move |i| KNOWN.get(first.wrapping_add(i) % THREADS))
}

/// The block of the calling thread. Async-signal-safe.
pub fn own_block() -> Option<*mut ThreadBlock> {
    let tp = syscall::thread_pointer();
    let known = probes(tp).find(|k| k.thread_pointer.load(Ordering::Relaxed) == tp)?;
    let block = known.block.load(Ordering::Acquire);
    (!block.is_null()).then_some(block)
}

/// Whether the program believes that the calling thread blocks the sampling signal.
pub fn believes_masked() -> bool {
    // SAFETY: blocks stay mapped.
    own_block().is_some_and(|block| unsafe { (*block).masked.load(Ordering::Relaxed) != 0 })
}

/// Creates the key. Not for handlers.
pub fn create_end_key() {
    let mut key = 0;
    // SAFETY: an ordinary key with a destructor that lives as long as the process.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } == 0 {
        END_KEY.store(key + 1, Ordering::Release);
    }
}

/// Begins to sample the calling thread: block, timer. Async-signal-safe but for the key's value on a high key number, so
/// it is called from thread starts, the constructor and the child of a fork. `first` runs before the timer is armed, while
/// this thread is still the only writer of its ring.
pub fn begin(process: &'static Process, masked: bool, first: impl FnOnce(*mut ThreadBlock)) {
    let header = process.session.header();
    if header.stopped.load(Ordering::Relaxed) != 0 || process::block().is_none() || !process::is_own() {
        return;
    }
    let tp = syscall::thread_pointer();
    let tid = syscall::gettid();
    if let Some(block) = own_block() {
        // SAFETY: blocks stay mapped.
        if unsafe { (*block).tid } == tid {
            return;
        }
        // Of a dead thread that had this TCB and left by a raw exit: the recorder finds it gone and frees its block.
        probes(tp).filter(|k| k.thread_pointer.load(Ordering::Relaxed) == tp).for_each(|known| {
            known.block.store(core::ptr::null_mut(), Ordering::Relaxed);
            known.thread_pointer.store(0, Ordering::Release);
        });
    }
    let place = probes(tp).find(|k| {
        k.thread_pointer.load(Ordering::Relaxed) == 0
            && k.thread_pointer.compare_exchange(0, tp, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    });
    let (Some(known), Some(index)) = (place, process.session.claim()) else {
        if let Some(known) = place {
            known.thread_pointer.store(0, Ordering::Release);
        }
        header.threads_without_block.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let block = process.session.block(index).cast::<ThreadBlock>();
    // SAFETY: a claimed block is ours alone, all-zero, and stays mapped.
    unsafe {
        (*block).tid = tid;
        (*block).process = process::block_index();
        (*block).pid = process::pid();
        (*block).timer = AtomicU32::new(NO_TIMER);
        (*block).thread_pointer = tp;
        (*block).masked = AtomicU32::new(u32::from(masked));
    }
    known.index.store(index as u32, Ordering::Relaxed);
    known.block.store(block, Ordering::Release);
    if let Some(state) = process.session.state(index) {
        state.store(LIVE_THREAD, Ordering::Release);
    }
    let key = END_KEY.load(Ordering::Acquire);
    if key != 0 {
        // SAFETY: our own key.
        unsafe { libc::pthread_setspecific(key - 1, block.cast()) };
    }
    if tid == process::pid() {
        // SAFETY: the thread's own block, and the timer is not armed.
        crate::handler::name_thread(&unsafe { crate::client::ring(block) });
    }
    first(block);
    // SAFETY: the block stays mapped.
    arm(process, unsafe { &*block }, tid);
}

/// Creates and starts the thread's CPU timer (timer_create(2), SIGEV_THREAD_ID).
fn arm(process: &Process, block: &ThreadBlock, tid: u32) {
    const CLOCK_THREAD_CPUTIME_ID: usize = 3;
    const SIGEV_THREAD_ID: u32 = 4;
    #[repr(C)]
    struct SigEvent {
        value: u64,
        signo: i32,
        notify: u32,
        tid: u32,
        pad: [u32; 11],
    }
    let mut event = SigEvent { value: cookie(), signo: signals::SAMPLING, notify: SIGEV_THREAD_ID, tid, pad: [0; 11] };
    let mut timer = 0u32;
    // SAFETY: struct sigevent (64 bytes) and a place for the kernel's timer id.
    let made = unsafe {
        syscall::call(
            nr::TIMER_CREATE,
            [CLOCK_THREAD_CPUTIME_ID, (&raw mut event) as usize, (&raw mut timer) as usize, 0, 0, 0],
        )
    };
    if made != 0 {
        if let Some(process) = process::block() {
            process.timers_failed.fetch_add(1, Ordering::Relaxed);
        }
        return;
    }
    block.timer.store(timer, Ordering::Relaxed);
    let period = 1_000_000_000 / u64::from(process.setting.rate.max(1));
    // The first expiry lies somewhere in the first period, so that many alike programs are not all sampled at one place.
    // The kernel looks at CPU timers at its ticks only, so programs shorter than a tick are sampled less than is their due.
    let first = 1 + (u64::from(tid).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ syscall::monotonic_ns()) % period.max(1);
    let spec = [
        (period / 1_000_000_000) as i64,
        (period % 1_000_000_000) as i64,
        (first / 1_000_000_000) as i64,
        (first % 1_000_000_000) as i64,
    ];
    // SAFETY: struct itimerspec.
    unsafe { syscall::call(nr::TIMER_SETTIME, [timer as usize, 0, spec.as_ptr() as usize, 0, 0, 0]) };
}

/// Deletes a thread's timer. Async-signal-safe.
pub fn disarm(block: &ThreadBlock) {
    let timer = block.timer.swap(NO_TIMER, Ordering::Relaxed);
    if timer != NO_TIMER {
        // SAFETY: a timer of our own.
        unsafe { syscall::call(nr::TIMER_DELETE, [timer as usize, 0, 0, 0, 0, 0]) };
    }
}

/// The thread ends (destructor of the key).
unsafe extern "C" fn end(_block: *mut c_void) {
    let Some(process) = process::process() else { return };
    let tp = syscall::thread_pointer();
    let Some(known) = probes(tp).find(|k| k.thread_pointer.load(Ordering::Relaxed) == tp) else { return };
    // A late signal finds no block and returns.
    let block = known.block.swap(core::ptr::null_mut(), Ordering::AcqRel);
    let index = known.index.load(Ordering::Relaxed) as usize;
    known.thread_pointer.store(0, Ordering::Release);
    // SAFETY: a block of the session stays mapped.
    let Some(block) = (unsafe { block.as_ref() }) else { return };
    disarm(block);
    // SAFETY: libuu's function, outside of walks.
    unsafe { (process.library.thread_ended)() };
    if let Some(process) = process::block() {
        process.cpu_ended.fetch_add(syscall::thread_cpu_ns(), Ordering::Relaxed);
    }
    if let Some(state) = process.session.state(index) {
        state.store(ENDED_THREAD, Ordering::Release);
    }
}

/// In the child of a fork: the parent's threads are not here, and their blocks are the parent's.
pub fn forget_all() {
    for known in &KNOWN {
        if known.thread_pointer.load(Ordering::Relaxed) != 0 {
            known.block.store(core::ptr::null_mut(), Ordering::Relaxed);
            known.thread_pointer.store(0, Ordering::Relaxed);
        }
    }
    for start in &STARTS {
        start.state.store(0, Ordering::Relaxed);
    }
}

/// What a new thread is to run, until its trampoline has taken it.
struct StartSlot {
    /// 0 free, 1 taken.
    state: AtomicU32,
    start: AtomicUsize,
    argument: AtomicUsize,
    /// The creator believes that it blocks the sampling signal; a mask is inherited.
    masked: AtomicU32,
}

static STARTS: [StartSlot; 1024] = [const {
    StartSlot {
        state: AtomicU32::new(0),
        start: AtomicUsize::new(0),
        argument: AtomicUsize::new(0),
        masked: AtomicU32::new(0),
    }
}; 1024];

core::arch::global_asm!(
    ".pushsection .text.uu_thread_trampoline,\"ax\",@progbits",
    ".hidden uu_thread_trampoline",
    ".globl uu_thread_trampoline",
    ".type uu_thread_trampoline,@function",
    ".balign 16",
    "uu_thread_trampoline:",
    ".cfi_startproc",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call {taken}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "mov rdi, rdx",
    "jmp rax",
    ".cfi_endproc",
    ".size uu_thread_trampoline, .-uu_thread_trampoline",
    ".popsection",
    taken = sym taken,
);

extern "C" {
    fn uu_thread_trampoline(slot: *mut c_void) -> *mut c_void;
}

/// Function and argument, in rax and rdx.
#[repr(C)]
struct Taken {
    start: usize,
    argument: usize,
}

/// First thing on a new thread: what it is to run. The slot is free again.
unsafe extern "C" fn taken(slot: *const StartSlot) -> Taken {
    // SAFETY: the trampoline got a slot of STARTS.
    let slot = unsafe { &*slot };
    let taken = Taken { start: slot.start.load(Ordering::Acquire), argument: slot.argument.load(Ordering::Relaxed) };
    let masked = slot.masked.load(Ordering::Relaxed) != 0;
    slot.state.store(0, Ordering::Release);
    if let Some(process) = process::process() {
        begin(process, masked, |_| {});
    }
    taken
}

/// Passes `start(argument)` through a start slot to `create`, which makes the thread.
fn create(start: Start, argument: *mut c_void, create: impl FnOnce(Start, *mut c_void) -> c_int) -> c_int {
    let recording = process::process().is_some() && process::block().is_some() && process::is_own();
    let slot = STARTS.iter().filter(|_| recording).find(|s| {
        s.state.load(Ordering::Relaxed) == 0
            && s.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    });
    let Some(slot) = slot else {
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

/// Interposed pthread_create(3).
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

/// Interposed thrd_create(3). Its start function returns an int, in the same register.
///
/// # Safety
/// As thrd_create.
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub unsafe extern "C" fn thrd_create(thread: *mut c_void, start: Start, argument: *mut c_void) -> c_int {
    // SAFETY: as above.
    create(start, argument, |start, argument| unsafe { real::thrd_create(thread, start, argument) })
}
