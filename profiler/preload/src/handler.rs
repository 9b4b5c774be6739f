//! The sampling handler: one signal, one record.
//!
//! It saves nothing in errno (raw system calls only), allocates nothing, takes no lock and finds its thread by the thread
//! pointer. While it runs, every signal but faults and the sampling signal itself is masked; a sampling signal that meets
//! a walk on its own thread is a watchdog's tick.

use crate::client::{ring, Context, CLIENT, HEADER};
use crate::process::{self, Process};
use crate::signals::{bit, chain, SAMPLING};
use crate::threads;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use uunwind_core::library::{Request, PROBED, RESULT_DESYNC, RESULT_FACTS_PENDING, SAMPLED};
use uunwind_core::regs::{GREG_RIP, UCONTEXT_GREGS, UCONTEXT_SIGMASK, UCONTEXT_STACK};
use uunwind_core::syscall::{self, nr};
use uunwind_ring::layout::{ThreadBlock, FRAMES_OFFSET, FRAME_WORDS, SCRATCH_OFFSET};
use uunwind_ring::record::{
    RecordType, SampleKind, SampleRecord, ThreadRecord, SAMPLE_BLOCKED, SAMPLE_DESYNC, SAMPLE_FACTS_PENDING,
    SAMPLE_NO_PLUGINS,
};
use uunwind_ring::FLAG_EXPLICIT;

/// Offsets in the kernel's siginfo (asm-generic/siginfo.h).
const SI_CODE: usize = 8;
const SI_PID: usize = 16;
const SI_OVERRUN: usize = 20;
const SI_VALUE: usize = 24;
const SI_TIMER: i32 = -2;
const SI_TKILL: i32 = -6;

/// More overruns than a few kernel ticks' worth mean that the signal was held back.
const BURST_TICKS: u64 = 4;
/// CONFIG_HZ is at least this on every kernel that matters; a smaller one makes a tick's worth of overruns larger.
const SLOWEST_TICK_HZ: u64 = 100;

/// Makes the kernel deliver the sampling signal to us.
pub fn install() -> bool {
    // Not SA_ONSTACK: on a small alternate stack the frame of a contained fault would not fit. SA_NODEFER: see above.
    chain::install(SAMPLING, on_sample, libc::SA_RESTART | libc::SA_NODEFER, crate::signals::handler_mask())
}

unsafe fn field<T: Copy>(base: *const u8, offset: usize) -> T {
    // SAFETY: callers pass the kernel's siginfo or ucontext and an offset inside it.
    unsafe { base.add(offset).cast::<T>().read_unaligned() }
}

/// Where a sampling signal came from.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Origin {
    kind: SampleKind,
    weight: u32,
}

/// Whether this signal is one of ours: a timer's, or a request that the session allows.
///
/// # Safety
/// `info` must be the kernel's.
unsafe fn origin(process: &Process, info: *const u8) -> Option<Origin> {
    // SAFETY: the kernel passes a siginfo.
    let (code, value, sender, overrun) = unsafe {
        (
            field::<i32>(info, SI_CODE),
            field::<u64>(info, SI_VALUE),
            field::<u32>(info, SI_PID),
            field::<i32>(info, SI_OVERRUN),
        )
    };
    if code == SI_TIMER && value == threads::cookie() {
        return Some(Origin { kind: SampleKind::Timer, weight: (overrun.max(0) as u32).saturating_add(1) });
    }
    let explicit = code == SI_TKILL && process.setting.flags & FLAG_EXPLICIT != 0 && sender == process::pid();
    explicit.then_some(Origin { kind: SampleKind::Explicit, weight: 1 })
}

unsafe extern "C" fn on_sample(signal: c_int, info: *mut libc::siginfo_t, ucontext: *mut c_void) {
    let Some(process) = process::process() else { return };
    // SAFETY: the kernel passes a siginfo.
    match unsafe { origin(process, info.cast::<u8>()) } {
        // SAFETY: the handler's own arguments.
        Some(origin) => unsafe { on_own_sample(origin, ucontext.cast()) },
        // SAFETY: as above.
        None => unsafe { foreign(signal, info, ucontext) },
    }
}

/// One of our signals: one record, or one tick for the watchdog. This is the whole signal path; a check object proves
/// that it needs nothing from outside but the memory functions.
///
/// # Safety
/// `ucontext` must be that of the running handler.
pub unsafe fn on_own_sample(origin: Origin, ucontext: *mut u8) {
    let (Some(process), Some(block)) = (process::process(), threads::own_block()) else { return };
    // SAFETY: blocks stay mapped; all shared fields are atomic.
    let shared = unsafe { &*block };
    if process.session.header().stopped.load(Ordering::Relaxed) != 0 {
        threads::disarm(shared);
        return;
    }
    if shared.busy.swap(1, Ordering::Relaxed) != 0 {
        if let Some(process) = process::block() {
            process.nested.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: libuu's function, the kernel's ucontext.
        unsafe { (process.library.on_tick)(ucontext) };
        return;
    }
    // SAFETY: inside the handler of this thread, not nested.
    unsafe { take(process, block, origin, ucontext) };
    shared.busy.store(0, Ordering::Relaxed);
}

/// # Safety
/// The arguments of the running handler.
unsafe fn foreign(signal: c_int, info: *mut libc::siginfo_t, ucontext: *mut c_void) {
    let walking = threads::own_block().is_some_and(|block| {
        // SAFETY: blocks stay mapped.
        unsafe { (*block).busy.load(Ordering::Relaxed) != 0 }
    });
    if walking {
        // Sent again when the mask lets it through: block it for the rest of the walk, and put it back in the queue.
        // SAFETY: the kernel's ucontext; the siginfo is the kernel's own.
        unsafe {
            let mask = ucontext.cast::<u8>().add(UCONTEXT_SIGMASK as usize).cast::<u64>();
            mask.write(mask.read() | bit(SAMPLING));
            syscall::call(nr::TGKILL, [process::pid() as usize, syscall::gettid() as usize, signal as usize, 0, 0, 0]);
        }
        return;
    }
    // SAFETY: passed on.
    unsafe { chain::deliver(signal, info, ucontext) };
}

/// # Safety
/// As [`on_own_sample`], on a block that this call has marked busy.
unsafe fn take(process: &'static Process, block: *mut ThreadBlock, origin: Origin, ucontext: *const u8) {
    let Origin { kind, weight } = origin;
    // SAFETY: blocks stay mapped.
    let shared = unsafe { &*block };
    let time = syscall::monotonic_ns();
    let mut context = Context { process, block, time };
    // SAFETY: FRAMES_OFFSET and SCRATCH_OFFSET lie inside the block.
    let (frames, scratch) =
        unsafe { (block.cast::<u8>().add(FRAMES_OFFSET).cast::<u64>(), block.cast::<u8>().add(SCRATCH_OFFSET)) };
    // SAFETY: the kernel's ucontext.
    let probed = unsafe { must_probe(process, ucontext) };
    let mut request = Request {
        ucontext,
        frames,
        capacity: FRAME_WORDS,
        scratch,
        client: &raw const CLIENT,
        context: (&raw mut context).cast(),
        epoch: process::epoch(),
        flags: if probed { PROBED } else { 0 },
        words: 0,
        stop: 0,
        result: 0,
    };
    // SAFETY: a valid request; faults reach `on_fault`, which `must_probe` made sure of.
    let done = unsafe { (process.library.sample)(&raw mut request) } == SAMPLED;
    // SAFETY: this thread is the writer.
    let ring = unsafe { ring(block) };
    let sequence = shared.next_sequence();
    if sequence == 1 {
        name_thread(&ring);
    }
    let words = if done { request.words.min(FRAME_WORDS) } else { 0 };
    let size = core::mem::size_of::<SampleRecord>() + words * 8;
    let Some(mut record) = ring.reserve(RecordType::Sample, size) else {
        shared.lost.fetch_add(1, Ordering::Relaxed);
        shared.lost_weight.fetch_add(u64::from(weight), Ordering::Relaxed);
        return;
    };
    let mut flags = 0;
    for (set, flag) in [
        (request.result & RESULT_DESYNC != 0, SAMPLE_DESYNC),
        (request.result & RESULT_FACTS_PENDING != 0, SAMPLE_FACTS_PENDING),
        (probed, SAMPLE_NO_PLUGINS),
        // SAFETY: the kernel's ucontext.
        (unsafe { was_blocked(process, weight, ucontext) }, SAMPLE_BLOCKED),
    ] {
        if set {
            flags |= flag;
        }
    }
    record.fixed(SampleRecord {
        header: HEADER,
        time,
        weight,
        stop: request.stop as u16,
        kind: kind as u8,
        flags,
        words: words as u32,
        sequence,
    });
    let room = record.room(words * 8);
    if !room.is_null() {
        // SAFETY: room for `words` words, which the walk has written to `frames`.
        unsafe { core::ptr::copy_nonoverlapping(frames.cast::<u8>(), room, words * 8) };
        record.commit();
    }
}

/// The thread's name, once.
fn name_thread(ring: &uunwind_ring::writer::RingWriter<'_>) {
    const PR_GET_NAME: usize = 16;
    let mut name = [0u8; 16];
    // SAFETY: prctl(PR_GET_NAME) writes 16 bytes.
    unsafe { syscall::call(nr::PRCTL, [PR_GET_NAME, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    if let Some(mut record) = ring.reserve(RecordType::Thread, core::mem::size_of::<ThreadRecord>()) {
        record.fixed(ThreadRecord { header: HEADER, name });
        record.commit();
    }
}

/// Whether this walk must not fault, and makes sure that it may if it need not.
///
/// A fault needs room for a second signal frame on the stack that it is pushed on, and its signal unblocked.
///
/// # Safety
/// The kernel's ucontext.
unsafe fn must_probe(process: &Process, ucontext: *const u8) -> bool {
    const SS_ONSTACK: i32 = 1;
    const SS_DISABLE: i32 = 2;
    /// What a fault handler needs below its frame.
    const FAULT_HANDLER: u64 = 1024;
    let stack = UCONTEXT_STACK as usize;
    // SAFETY: stack_t (ss_sp, ss_flags, ss_size) and the mask lie in the ucontext.
    let (low, flags, size, mask, sp) = unsafe {
        (
            field::<u64>(ucontext, stack),
            field::<i32>(ucontext, stack + 8),
            field::<u64>(ucontext, stack + 16),
            field::<u64>(ucontext, UCONTEXT_SIGMASK as usize),
            ucontext as u64,
        )
    };
    let needed = process.signal_frame + FAULT_HANDLER;
    if flags & SS_DISABLE == 0 && size != 0 {
        // The ucontext lies on the stack that we run on; below it comes what this handler itself uses.
        let on_it = flags & SS_ONSTACK != 0 || (sp >= low && sp - low < size);
        let room = if on_it { sp.saturating_sub(low).saturating_sub(4096) } else { size };
        if room < needed {
            return true;
        }
    }
    let faults = bit(libc::SIGSEGV) | bit(libc::SIGBUS);
    if mask & faults != 0 {
        const SIG_UNBLOCK: usize = 1;
        // SAFETY: unblocks both for the rest of this handler; sigreturn restores the mask.
        let done =
            unsafe { syscall::call(nr::RT_SIGPROCMASK, [SIG_UNBLOCK, (&raw const faults) as usize, 0, 8, 0, 0]) };
        return done != 0;
    }
    false
}

/// Whether the overruns gathered while the thread had signals blocked: far more than ticks can explain, and the
/// interrupted code is either user code, or just behind the rt_sigprocmask that let the signal through. Behind another
/// system call the time was spent in that call.
///
/// # Safety
/// The kernel's ucontext.
unsafe fn was_blocked(process: &Process, weight: u32, ucontext: *const u8) -> bool {
    let tick = u64::from(process.setting.rate).div_ceil(SLOWEST_TICK_HZ);
    if u64::from(weight) <= BURST_TICKS * tick + 1 {
        return false;
    }
    // SAFETY: rip lies in gregs.
    let pc: u64 = unsafe { field(ucontext, (UCONTEXT_GREGS + 8 * GREG_RIP) as usize) };
    // The code at pc was executing, so the bytes before it in the same page can be read; else leave it.
    if pc & 0xfff < 7 {
        return false;
    }
    // SAFETY: as said.
    let before: [u8; 7] = unsafe { field((pc - 7) as *const u8, 0) };
    match before {
        // mov $14, %eax; syscall
        [0xb8, 14, 0, 0, 0, 0x0f, 0x05] => true,
        [.., 0x0f, 0x05] => false,
        _ => true,
    }
}
