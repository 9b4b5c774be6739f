//! The sampling handler: one signal, one record.
//!
//! It saves nothing in errno (raw system calls only), allocates nothing, takes no lock and finds its thread by the thread
//! pointer. While it runs, every signal but faults is masked; the sampling signal itself until the walk calls code that is not
//! ours. One of the timer's that meets a walk on its own thread is a watchdog's tick.

use crate::client::{ring, Context, CLIENT, HEADER};
use crate::process::{self, Process};
use crate::signals::{altstack, bit, chain, faults, host, interrupted_handler, unblock, SAMPLING, VIRTUAL};
use crate::threads;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use uunwind_core::library::{
    Request, PROBED, RESULT_DESYNC, RESULT_FACTS_PENDING, RESULT_OBJECTS_FULL, RESULT_UNTOLD, SAMPLED, WANT_CODE,
};
use uunwind_core::regs::{UCONTEXT_SIGMASK, UCONTEXT_STACK};
use uunwind_core::syscall::{self, nr};
use uunwind_ring::layout::{
    ThreadBlock, FRAMES_OFFSET, FRAME_WORDS, PUT_OFF_SIGNALS, SCRATCH_OFFSET, SIGINFO_WORDS, TRAIL_OFFSET, TRAIL_ROOM,
    WALK_OFFSET, WALK_ROOM,
};
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

/// Makes the kernel deliver the sampling signal to us, or renews our flags after the program changed its disposition.
pub fn install() -> bool {
    let host = host::get(SAMPLING);
    let has_handler = host.handler != libc::SIG_DFL && host.handler != libc::SIG_IGN;
    // A program that handles this signal itself decides whether it interrupts its system calls.
    let restart = if has_handler { host.flags & libc::SA_RESTART } else { libc::SA_RESTART };
    // Not SA_ONSTACK: on a small alternate stack the frame of a contained fault would not fit. But a program that has its own
    // handler of this signal there may have no room for one elsewhere.
    let asked = has_handler && host.flags & libc::SA_ONSTACK != 0;
    let on_stack = if asked || altstack::is_needed() { libc::SA_ONSTACK } else { 0 };
    // Not SA_NODEFER: a program that sends itself this signal fast would pile up handlers.
    chain::install(SAMPLING, uu_sample_entry, restart | on_stack, crate::signals::handler_mask())
}

const _: () = assert!(VIRTUAL.len() == PUT_OFF_SIGNALS && core::mem::size_of::<libc::siginfo_t>() == SIGINFO_WORDS * 8);
const _: () = assert!(uunwind_core::reuse::TRAIL_BYTES <= TRAIL_ROOM - WALK_ROOM);
const _: () = assert!(uunwind_core::library::WALK_ROOM == WALK_ROOM && WALK_OFFSET.is_multiple_of(64));

unsafe fn field<T: Copy>(base: *const u8, offset: usize) -> T {
    // SAFETY: callers pass the kernel's siginfo or ucontext and an offset inside it.
    unsafe { base.add(offset).cast::<T>().read_unaligned() }
}

/// Stack that the handler, a walk and a plugin use together, at most (aim: 4 KiB, measured by a test).
const HANDLER_STACK: u64 = 5 * 1024;
/// What a fault handler needs besides the kernel's frame.
const FAULT_HANDLER_STACK: u64 = 1024;

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

unsafe extern "C" fn on_sample(signal: c_int, info: *mut libc::siginfo_t, ucontext: *mut c_void) -> usize {
    let Some(process) = process::process() else { return 0 };
    // SAFETY: the kernel passes a siginfo.
    let Some(origin) = (unsafe { origin(process, info.cast::<u8>()) }) else {
        // SAFETY: the handler's own arguments.
        return unsafe { foreign(signal, info, ucontext) };
    };
    // SAFETY: as above.
    unsafe { on_own_sample(origin, ucontext.cast()) };
    0
}

chain::entry!(uu_sample_entry, on_sample);

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
    // Before anything that needs stack: on an alternate stack that is nearly used up there is no room for a walk.
    // SAFETY: the kernel's ucontext.
    let room = unsafe { room_on_alternate_stack(shared, ucontext) };
    if room < HANDLER_STACK {
        if let Some(process) = process::block() {
            process.small_stack.fetch_add(1, Ordering::Relaxed);
        }
        return;
    }
    // SAFETY: the kernel's ucontext.
    if unsafe { is_walking(shared, ucontext) } {
        if let Some(process) = process::block() {
            process.nested.fetch_add(1, Ordering::Relaxed);
        }
        // Requests tell nothing of the time that the walk has used: they come by the clock, or as fast as they are sent.
        if matches!(origin.kind, SampleKind::Timer) {
            // SAFETY: libuu's function, the kernel's ucontext.
            unsafe { (process.library.on_tick)(ucontext) };
        }
        return;
    }
    // A walk may have been left behind, its recovery point armed. While that is so, no tick may take this handler for it; and
    // this handler may itself be left between any two of these lines.
    shared.busy.store(0, Ordering::Relaxed);
    // SAFETY: libuu's function, outside of walks.
    unsafe { (process.library.forget)() };
    shared.busy.store(1, Ordering::Relaxed);
    // SAFETY: inside the handler of this thread, not nested.
    unsafe { take(process, block, origin, room, ucontext) };
    shared.busy.store(0, Ordering::Relaxed);
    if shared.put_off.load(Ordering::Relaxed) != 0 {
        send_put_off(shared);
    }
}

/// A signal that somebody sent (not a fault, and none of ours): if a walk is under way on this thread, it is remembered, to be
/// sent again behind the walk, and this answers true. The program's handler might never come back to it, and the signal
/// cannot be blocked meanwhile, since the walk itself may fault, and its watchdog ticks by the sampling signal.
///
/// # Safety
/// The arguments of the running handler.
pub unsafe fn put_off(signal: c_int, info: *const libc::siginfo_t, ucontext: *const u8) -> bool {
    // SAFETY: passed on.
    shared_block().is_some_and(|block| unsafe { put_off_on(block, signal, info, ucontext) })
}

/// The thread's block. Not in a child that shares our blocks, or has a copy of our memory, without being a fork that we know of.
fn shared_block() -> Option<&'static ThreadBlock> {
    // SAFETY: blocks stay mapped; what handlers touch in them is atomic.
    threads::own_block().filter(|_| process::is_own()).map(|block| unsafe { &*block })
}

/// # Safety
/// As [`put_off`], with the thread's block.
unsafe fn put_off_on(block: &ThreadBlock, signal: c_int, info: *const libc::siginfo_t, ucontext: *const u8) -> bool {
    // SAFETY: passed on.
    let walking = unsafe { is_walking(block, ucontext) };
    // As the kernel has it: of signals with one number, the first waits, and the others are dropped.
    if walking && block.put_off.fetch_or(bit(signal), Ordering::Relaxed) & bit(signal) == 0 {
        let place = VIRTUAL.iter().position(|of| *of == signal).and_then(|at| block.put_off_info.get(at));
        for (at, word) in place.into_iter().flatten().enumerate() {
            // SAFETY: the kernel's siginfo has so many words.
            word.store(unsafe { field(info.cast(), at * 8) }, Ordering::Relaxed);
        }
    }
    walking
}

/// Sends again what was put off.
fn send_put_off(block: &ThreadBlock) {
    let signals = block.put_off.swap(0, Ordering::Relaxed);
    for (signal, words) in VIRTUAL.into_iter().zip(&block.put_off_info).filter(|of| signals & bit(of.0) != 0) {
        let mut info = [0u64; SIGINFO_WORDS];
        for (to, from) in info.iter_mut().zip(words) {
            *to = from.load(Ordering::Relaxed);
        }
        // SAFETY: what `put_off` was given.
        unsafe { send_again(signal, info.as_ptr().cast()) };
    }
}

/// Sends a signal again, to come when the running handler has returned: at once, it would come on top of this handler, and what
/// must wait would be sent again and again, until the stack is used up.
///
/// # Safety
/// A siginfo of this signal.
unsafe fn send_again(signal: c_int, info: *const libc::siginfo_t) {
    const SIG_BLOCK: usize = 0;
    let mask = bit(signal);
    let to = [process::pid() as usize, syscall::gettid() as usize, signal as usize, info as usize, 0, 0];
    // SAFETY: blocks it for the rest of this handler; sigreturn sets the mask that the interrupted code shall have. To this very
    // thread, for which the kernel takes any siginfo.
    unsafe {
        syscall::call(nr::RT_SIGPROCMASK, [SIG_BLOCK, (&raw const mask) as usize, 0, 8, 0, 0]);
        syscall::call(nr::RT_TGSIGQUEUEINFO, to);
    }
}

/// Whether a signal met a walk of its thread: the walk is marked, and the handler was interrupted.
///
/// # Safety
/// The kernel's ucontext.
unsafe fn is_walking(block: &ThreadBlock, ucontext: *const u8) -> bool {
    // SAFETY: passed on.
    block.busy.load(Ordering::Relaxed) != 0 && unsafe { interrupted_handler(ucontext) }
}

/// A sampling signal that is none of ours. 0, or the program's handler for it.
///
/// # Safety
/// The arguments of the running handler.
unsafe fn foreign(signal: c_int, info: *mut libc::siginfo_t, ucontext: *mut c_void) -> usize {
    let block = shared_block();
    // SAFETY: passed on.
    if block.is_some_and(|block| unsafe { put_off_on(block, signal, info, ucontext.cast()) }) {
        return 0;
    }
    if block.is_some_and(|block| block.masked.load(Ordering::Relaxed) != 0) {
        // The program believes that it has blocked this signal. So it is blocked for as long as the interrupted code runs, or
        // until the program unblocks it, and put back in the queue.
        // SAFETY: the mask lies in the kernel's ucontext; the signal's own siginfo.
        unsafe {
            let mask = ucontext.cast::<u8>().add(UCONTEXT_SIGMASK as usize).cast::<u64>();
            mask.write(mask.read() | bit(SAMPLING));
            send_again(signal, info);
        }
        return 0;
    }
    // SAFETY: passed on.
    unsafe { chain::deliver(signal, info, ucontext) }
}

/// # Safety
/// As [`on_own_sample`], on a block that this call has marked busy.
unsafe fn take(process: &'static Process, block: *mut ThreadBlock, origin: Origin, room: u64, ucontext: *const u8) {
    let Origin { kind, weight } = origin;
    // SAFETY: blocks stay mapped.
    let shared = unsafe { &*block };
    // SAFETY: the kernel's ucontext. Before the clock is asked, which may fault.
    let probed = unsafe { must_probe(process, room, ucontext) };
    let time = crate::clock::monotonic_ns();
    let mut context = Context { process, block, time };
    // SAFETY: FRAMES_OFFSET and SCRATCH_OFFSET lie inside the block.
    let (frames, scratch) =
        unsafe { (block.cast::<u8>().add(FRAMES_OFFSET).cast::<u64>(), block.cast::<u8>().add(SCRATCH_OFFSET)) };
    let burst = is_burst(process, weight);
    let mut request = Request {
        ucontext,
        frames,
        capacity: FRAME_WORDS,
        scratch,
        client: &raw const CLIENT,
        context: (&raw mut context).cast(),
        epoch: process::epoch(),
        flags: if probed { PROBED } else { 0 } | if burst { WANT_CODE } else { 0 },
        time,
        words: 0,
        code: 0,
        stop: 0,
        result: 0,

        // SAFETY: TRAIL_OFFSET lies inside the block, page-aligned, with room for a trail.
        trail: unsafe { block.cast::<u8>().add(TRAIL_OFFSET) }.cast(),
        // SAFETY: as above.
        room: unsafe { block.cast::<u8>().add(WALK_OFFSET) },
        frames_told: 0,
        reused: 0,
        interpreted: 0,
        reserved: 0,
    };
    // SAFETY: a valid request; faults reach `on_fault`, which `must_probe` made sure of.
    let done = unsafe { (process.library.sample)(&raw mut request) } == SAMPLED;
    if request.interpreted > 0 {
        if let Some(process) = process::block() {
            process.interpreted.fetch_add(u64::from(request.interpreted), Ordering::Relaxed);
        }
    }
    if request.result & RESULT_OBJECTS_FULL != 0 {
        if let Some(process) = process::block() {
            process.objects_full.fetch_add(1, Ordering::Relaxed);
        }
    }
    if let Some(process) = process::block() {
        process.frames_told.fetch_add(u64::from(request.frames_told), Ordering::Relaxed);
        process.frames_reused.fetch_add(u64::from(request.reused), Ordering::Relaxed);
    }
    // SAFETY: this thread is the writer.
    let ring = unsafe { ring(block) };
    let sequence = shared.next_sequence();
    // The main thread's was told when it began: a program may allow itself no such system call by now (seccomp).
    if sequence == 1 && shared.tid != shared.pid {
        name_thread(&ring);
    }
    let words = if done { request.words.min(FRAME_WORDS) } else { 0 };
    let size = core::mem::size_of::<SampleRecord>() + words * 8;
    // A stack whose objects are not known would be given other names, so it is as lost as one that has no room.
    let told = request.result & RESULT_UNTOLD == 0;
    let Some(mut record) = told.then(|| ring.reserve(RecordType::Sample, size)).flatten() else {
        shared.lost.fetch_add(1, Ordering::Relaxed);
        shared.lost_weight.fetch_add(u64::from(weight), Ordering::Relaxed);
        return;
    };
    let mut flags = 0;
    for (set, flag) in [
        (request.result & RESULT_DESYNC != 0, SAMPLE_DESYNC),
        (request.result & RESULT_FACTS_PENDING != 0, SAMPLE_FACTS_PENDING),
        (probed, SAMPLE_NO_PLUGINS),
        (burst && was_blocked(request.code), SAMPLE_BLOCKED),
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

/// Tells the name of the calling thread.
pub fn name_thread(ring: &uunwind_ring::writer::RingWriter<'_>) {
    const PR_GET_NAME: usize = 16;
    let mut name = [0u8; 16];
    // SAFETY: prctl(PR_GET_NAME) writes 16 bytes.
    unsafe { syscall::call(nr::PRCTL, [PR_GET_NAME, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    if let Some(mut record) = ring.reserve(RecordType::Thread, core::mem::size_of::<ThreadRecord>()) {
        record.fixed(ThreadRecord { header: HEADER, name });
        record.commit();
    }
}

/// Bytes left on the alternate signal stack, if the handler runs on one.
///
/// # Safety
/// The kernel's ucontext.
unsafe fn room_on_alternate_stack(block: &ThreadBlock, ucontext: *const u8) -> u64 {
    let (low, size) = alternate_stack(block, ucontext);
    // The ucontext lies on the stack that we run on.
    match (ucontext as u64).checked_sub(low) {
        Some(above) if above < size => above,
        _ => u64::MAX,
    }
}

/// The thread's alternate signal stack: as the kernel tells, or as it was last set (one with SS_AUTODISARM is not told of
/// while a handler runs on it). Size 0 when there is none.
fn alternate_stack(block: &ThreadBlock, ucontext: *const u8) -> (u64, u64) {
    const SS_DISABLE: i32 = 2;
    let at = UCONTEXT_STACK as usize;
    // SAFETY: stack_t (ss_sp, ss_flags, ss_size) lies in the ucontext of every handler.
    let (low, flags, size) =
        unsafe { (field::<u64>(ucontext, at), field::<i32>(ucontext, at + 8), field::<u64>(ucontext, at + 16)) };
    if flags & SS_DISABLE == 0 && size != 0 {
        (low, size)
    } else {
        (block.alternate_low.load(Ordering::Relaxed), block.alternate_size.load(Ordering::Relaxed))
    }
}

/// Whether this walk must not fault, and makes sure that it may if it need not.
///
/// A fault needs room for a second signal frame on the stack that it is pushed on, and its signal unblocked. `room`: what
/// is left on the alternate stack that the handler runs on; u64::MAX when it runs on another.
///
/// # Safety
/// The kernel's ucontext.
unsafe fn must_probe(process: &Process, room: u64, ucontext: *const u8) -> bool {
    let needed = process.signal_frame + FAULT_HANDLER_STACK;
    // SAFETY: as said.
    let (size, mask) = unsafe {
        let stack = UCONTEXT_STACK as usize;
        (field::<u64>(ucontext, stack + 16), field::<u64>(ucontext, UCONTEXT_SIGMASK as usize))
    };
    // On an alternate stack, the fault's frame goes below the walk; otherwise to the top of the thread's, if it has one.
    let free = if room != u64::MAX {
        room.saturating_sub(HANDLER_STACK)
    } else if size != 0 {
        size
    } else {
        u64::MAX
    };
    if free < needed {
        return true;
    }
    // Those of reads, and those that a plugin may raise: the kernel ends a process that raises a blocked one.
    let needed_signals = faults::SIGNALS.iter().fold(0, |mask, signal| mask | bit(*signal));
    if mask & needed_signals != 0 {
        // For the rest of this handler; sigreturn restores the mask.
        return !unblock(needed_signals);
    }
    false
}

/// Whether far more overruns were gathered than the kernel's ticks can explain.
fn is_burst(process: &Process, weight: u32) -> bool {
    let tick = u64::from(process.setting.rate).div_ceil(SLOWEST_TICK_HZ);
    u64::from(weight) > BURST_TICKS * tick + 1
}

/// Whether a burst was gathered while the thread had signals blocked: the interrupted code is user code, or just behind the
/// rt_sigprocmask that let the signal through. Behind another system call the time was spent in that call. `code`: the 8
/// bytes before the pc, 0 when they cannot be read.
fn was_blocked(code: u64) -> bool {
    match code.to_le_bytes() {
        [0, 0, 0, 0, 0, 0, 0, 0] => false,
        // mov $14, %eax; syscall
        [_, 0xb8, 14, 0, 0, 0, 0x0f, 0x05] => true,
        [.., 0x0f, 0x05] => false,
        _ => true,
    }
}
