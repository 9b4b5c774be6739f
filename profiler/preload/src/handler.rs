//! The sampling handler: one signal, one record.
//!
//! It leaves errno alone (raw system calls only), allocates nothing, takes no lock and finds its thread's slot by the
//! thread pointer. While it runs, every signal but faults is masked; the sampling signal is masked until the walk calls
//! foreign code. A timer signal that interrupts a walk on its own thread is a tick of the watchdog.

use crate::client::{Context, CLIENT};
use crate::cpu::{self, HANDLER_STACK};
use crate::events::Subject;
use crate::late::Late;
use crate::process::{self, Process};
use crate::sample::{write_sample, Taken};
use crate::signals::{altstack, bit, deferred, deliver, dispositions, faults, field, masks, sampling, unblock};
use crate::slots::{self, Slot};
use crate::{copy, ending, injected, pause, threads};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use uunwind_core::library::{Request, PROBED, REQUEST_AWAITING, SAMPLED, WANT_CODE};
use uunwind_core::regs::{UCONTEXT_SIGMASK, UCONTEXT_STACK};
use uunwind_core::walk::{DEEP_WORDS, MAX_WORDS};
use uunwind_ring::layout::SAMPLE_WORDS;
use uunwind_ring::record::SampleKind;
use uunwind_ring::{EVENT_COOKIE, FLAG_AWAITING, FLAG_COPIES, FLAG_EXPLICIT, FLAG_NO_REPLAY, FLAG_USER_MODE};

/// Offsets in the kernel's siginfo, in bytes
/// ([asm-generic/siginfo.h](https://github.com/torvalds/linux/blob/v6.12/include/uapi/asm-generic/siginfo.h)).
const SI_CODE: usize = 8;
const SI_PID: usize = 16;
const SI_OVERRUN: usize = 20;
/// See `SI_CODE`.
pub const SI_VALUE: usize = 24;
/// `si_perf_data`.
const SI_PERF_DATA: usize = 24;
const SI_TIMER: i32 = -2;
const SI_TKILL: i32 = -6;
/// Of a SIGTRAP: a perf event sent it.
const TRAP_PERF: i32 = 6;

/// Installs our handler of the sampling signal, or updates its flags after the program changed its own disposition.
/// False: the kernel refused.
pub fn install() -> bool {
    let programs = dispositions::get(sampling());
    let has_handler = programs.handler != libc::SIG_DFL && programs.handler != libc::SIG_IGN;
    // A program that handles this signal itself decides whether it interrupts its system calls.
    let restart = if has_handler { programs.flags & libc::SA_RESTART } else { libc::SA_RESTART };
    // Normally without SA_ONSTACK: on a small alternate stack the frame of a contained fault would not fit. But a
    // program that has its own handler of this signal on the alternate stack may run on stacks that have no space for a
    // signal frame.
    let asked = has_handler && programs.flags & libc::SA_ONSTACK != 0;
    let on_stack = if asked || altstack::is_needed() { libc::SA_ONSTACK } else { 0 };
    // Without SA_NODEFER: handlers would nest without limit in a program that sends itself this signal at a high rate.
    deliver::install(sampling(), uu_sample_entry, restart | on_stack, crate::signals::handler_mask())
}

const _: () = assert!(SAMPLE_WORDS == MAX_WORDS);

/// Stack that a fault handler needs besides the kernel's signal frame, in bytes.
const FAULT_HANDLER_STACK: u64 = 1024;

/// Why a sample is taken, and how many ticks it stands for (`SampleRecord::weight`).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Origin<'a> {
    kind: SampleKind,
    weight: u32,
    by_event: bool,
    /// By its place: on a handler's stack, each copy counts.
    subject: Option<&'a Subject>,
}

impl Origin<'_> {
    /// The origin of a signal of a timer; `None`: no timer has sent it.
    ///
    /// # Safety
    /// `info` must be the kernel's.
    pub unsafe fn of_timer(info: *const u8) -> Option<Origin<'static>> {
        // SAFETY: the kernel passes a valid siginfo.
        let (code, overrun) = unsafe { (field::<i32>(info, SI_CODE), field::<i32>(info, SI_OVERRUN)) };
        let weight = (overrun.max(0) as u32).saturating_add(1);
        (code == SI_TIMER).then_some(Origin { kind: SampleKind::Timer, weight, by_event: false, subject: None })
    }
}

/// The origin of a signal that is ours: it comes from one of our timers, or it is a request that the session allows.
/// `None` for all others.
///
/// # Safety
/// `info` must be the kernel's.
unsafe fn origin(process: &Process, info: *const u8) -> Option<Origin<'static>> {
    // SAFETY: the kernel passes a valid siginfo.
    let (code, value, sender) =
        unsafe { (field::<i32>(info, SI_CODE), field::<u64>(info, SI_VALUE), field::<u32>(info, SI_PID)) };
    if code == SI_TIMER && value == threads::cookie() {
        // SAFETY: as above.
        return unsafe { Origin::of_timer(info) };
    }
    if code == TRAP_PERF && sampling() == libc::SIGTRAP {
        // SAFETY: as above.
        let data = unsafe { field::<u64>(info, SI_PERF_DATA) };
        return (data == EVENT_COOKIE).then_some(Origin {
            kind: SampleKind::Timer,
            weight: 1,
            by_event: true,
            subject: None,
        });
    }
    let explicit = code == SI_TKILL && process.setting.flags & FLAG_EXPLICIT != 0 && sender == process::pid();
    explicit.then_some(Origin { kind: SampleKind::Explicit, weight: 1, by_event: false, subject: None })
}

unsafe extern "C" fn on_sample(signal: c_int, info: *mut libc::siginfo_t, ucontext: *mut c_void) -> usize {
    let Some(process) = process::process() else { return 0 };
    // SAFETY: the kernel passes a valid siginfo.
    let Some(origin) = (unsafe { origin(process, info.cast::<u8>()) }) else {
        // SAFETY: the handler's own arguments.
        return unsafe { deferred::pass_on(signal, info, ucontext) };
    };
    // SAFETY: as above.
    unsafe { on_own_sample(origin, ucontext.cast()) };
    0
}

crate::cpu::signal_entry!(uu_sample_entry, on_sample);

/// Handles one of our signals: writes one record, or counts one tick of the watchdog. This is the whole signal path; a
/// check object proves that it needs no external symbols but the memory functions.
///
/// # Safety
/// `ucontext` must be that of the running handler.
// Into both of its callers: a frame of its own would lie on the stack of every sample.
#[inline(always)]
pub unsafe fn on_own_sample(origin: Origin<'_>, ucontext: *mut u8) {
    let (Some(process), Some(slot)) = (process::process(), slots::own()) else { return };
    if origin.by_event && slot.events.load(Ordering::Relaxed) == 0 {
        slot.events.store(1, Ordering::Relaxed);
    }
    // Before anything that needs stack: an alternate stack that is nearly full has no space for a walk. SAFETY: the
    // kernel's ucontext.
    let room = unsafe { altstack::room(slot, ucontext) };
    if room < HANDLER_STACK {
        if let Some(counters) = process::block() {
            counters.small_stack.fetch_add(1, Ordering::Relaxed);
        }
        return;
    }
    if slot.masked.load(Ordering::Relaxed) != 0 && masks::are_the_kernels() {
        // Another thread has installed a handler of the program's after this thread blocked the signal. SAFETY: the
        // kernel's ucontext.
        unsafe { masks::block_for_real(slot, ucontext) };
    }
    // SAFETY: the kernel's ucontext.
    if unsafe { deferred::is_walking(slot, ucontext) } {
        if origin.by_event {
            // The recorder sees that it stands apart; the timer is the watchdog.
            return;
        }
        let counters = process::block().filter(|_| slot.events.load(Ordering::Relaxed) == 0);
        if let Some(counters) = counters {
            counters.nested.fetch_add(1, Ordering::Relaxed);
        }
        // Only ticks measure the CPU time that the walk has used. Requests arrive by the wall clock, or as fast as they
        // are sent.
        if matches!(origin.kind, SampleKind::Timer) {
            slot.budget.on_ticks_of_walk(origin.weight);
            // SAFETY: libuunwind's function, the kernel's ucontext.
            unsafe { (process.library.on_tick)(ucontext) };
        }
        return;
    }
    // The program may have left an earlier walk by a longjmp, with its recovery point armed. A tick must not mistake
    // this handler for that walk, and this handler may itself be left between any two of these lines.
    slot.busy.store(0, Ordering::Relaxed);
    // SAFETY: libuunwind's function, outside of walks.
    unsafe { (process.library.forget)() };
    if process.facts.is_over() || !ending::enter(slot) {
        ending::end(process);
        return;
    }
    if pause::is_paused(process) {
        if matches!(origin.kind, SampleKind::Timer) {
            pause::skip(process, slot, origin.weight);
        }
    } else {
        // SAFETY: inside the handler of this thread, not nested.
        unsafe { take(process, slot, origin, room, ucontext) };
    }
    slot.busy.store(0, Ordering::SeqCst);
    if slot.deferred.load(Ordering::Relaxed) != 0 {
        deferred::send_all(slot);
    }
    if ending::has_begun() {
        ending::end(process);
    }
}

/// Writes the thread's last record, when a signal is about to end the process: its stack, whatever the rate is.
///
/// # Safety
/// `ucontext` must be that of the running handler of a fault signal.
pub unsafe fn on_fatal(signal: c_int, ucontext: *mut u8) {
    let (Some(process), Some(slot)) = (process::process(), slots::own()) else { return };
    // SAFETY: the kernel's ucontext.
    let room = unsafe { altstack::room(slot, ucontext) };
    // SAFETY: as above.
    if room < HANDLER_STACK || unsafe { deferred::is_walking(slot, ucontext) } {
        return;
    }
    slot.busy.store(0, Ordering::Relaxed);
    // SAFETY: libuunwind's function, outside of walks.
    unsafe { (process.library.forget)() };
    if process.facts.is_over() || !ending::enter(slot) {
        return;
    }
    let origin = Origin { kind: SampleKind::Fatal, weight: signal as u32, by_event: false, subject: None };
    // SAFETY: inside a handler of this thread, not nested.
    unsafe { take(process, slot, origin, room, ucontext) };
    slot.busy.store(0, Ordering::SeqCst);
}

/// Writes a sample of an event that the calling thread has met. False: it was not written, because the thread is
/// inside a walk, its stack or its ring has no room, or the recording is over.
///
/// # Safety
/// All signals but faults must be blocked, as in the handler. `ucontext` must describe a frame that lives until this
/// function returns, on the stack that it runs on, with the thread's mask before.
#[inline(never)]
pub unsafe fn on_event(subject: &Subject, ucontext: *mut u8) -> bool {
    let (Some(process), Some(slot)) = (process::process(), slots::own()) else { return false };
    // SAFETY: laid out as the kernel's.
    let room = unsafe { altstack::room(slot, ucontext) };
    // SAFETY: as above.
    if room < HANDLER_STACK || unsafe { deferred::is_walking(slot, ucontext) } {
        return false;
    }
    slot.busy.store(0, Ordering::Relaxed);
    // SAFETY: libuunwind's function, outside of walks.
    unsafe { (process.library.forget)() };
    if process.facts.is_over() || !ending::enter(slot) {
        ending::end(process);
        return false;
    }
    let origin = Origin { kind: subject.kind(), weight: 1, by_event: false, subject: Some(subject) };
    // SAFETY: as in the handler of this thread, not nested.
    let written = unsafe { take(process, slot, origin, room, ucontext) };
    slot.busy.store(0, Ordering::SeqCst);
    if slot.deferred.load(Ordering::Relaxed) != 0 {
        deferred::send_all(slot);
    }
    if ending::has_begun() {
        ending::end(process);
    }
    written
}

/// Returns whether the sample was written.
///
/// # Safety
/// As [`on_own_sample`], on a slot that the caller has marked busy.
unsafe fn take(
    process: &'static Process,
    slot: &'static Slot,
    origin: Origin<'_>,
    room: u64,
    ucontext: *const u8,
) -> bool {
    let Origin { kind, weight, by_event, subject } = origin;
    let is_tick = matches!(kind, SampleKind::Timer);
    let period = process.setting.period();
    let last_event = if is_tick { slot.events.load(Ordering::Relaxed) } else { 0 };
    // In a system call, the timer's tick may have taken the place of an event's signal, which the kernel drops while
    // one of the same number is pending: both become due in one call where that is long. In user mode, they do only if
    // they come in one interrupt. SAFETY: the kernel's ucontext.
    let in_call = last_event != 0 && !by_event && unsafe { cpu::is_in_system_call(ucontext) };
    // SAFETY: the kernel's ucontext. Before the clock is read, which may fault.
    let probed = unsafe { must_probe(process, room, ucontext) };
    let time = crate::clock::monotonic_ns();
    if by_event {
        slot.events.store(time.max(1), Ordering::Relaxed);
    } else if last_event != 0 && !in_call && time.saturating_sub(last_event) < period - period / 4 {
        // Too early for an event: this tick has not taken the place of one's signal.
        return false;
    }
    // Where events see the user mode alone, time in system calls is the timer's.
    let is_placed = last_event != 0 && (!in_call || process.setting.flags & FLAG_USER_MODE == 0);
    let weight = match is_tick {
        // What the timer counts, the events have counted.
        true if is_placed => 1,
        true => slot.first.weight(weight, period),
        false => weight,
    };
    let carried = if is_tick { slot.budget.on_ticks(weight, period) } else { Some(0) };
    let block = slot.block();
    // SAFETY: blocks stay mapped.
    let shared = unsafe { &*block };
    let Some(carried) = carried else {
        shared.carried.store(slot.budget.carried(), Ordering::Relaxed);
        return false;
    };
    let Some(buffers) = slot.buffers() else { return false };
    let mut context = Context { process, block, time };
    let periods = if is_tick { weight } else { 1 };
    let late = Late::of(process, slot, periods, time);
    let mut request = Request {
        ucontext,
        frames: buffers.frames,
        capacity: DEEP_WORDS,
        scratch: buffers.scratch,
        client: &raw const CLIENT,
        context: (&raw mut context).cast(),
        epoch: process::epoch(),
        flags: [
            (probed, PROBED),
            (late.is_burst(), WANT_CODE),
            (process.setting.flags & FLAG_AWAITING != 0, REQUEST_AWAITING),
        ]
        .iter()
        .fold(0, |flags, (set, flag)| if *set { flags | flag } else { flags }),
        time,
        words: 0,
        code: 0,
        stop: 0,
        result: 0,
        // A walk without one neither replays frames nor plugins' answers.
        last_walk: if process.setting.flags & FLAG_NO_REPLAY == 0 {
            buffers.last_walk.cast()
        } else {
            core::ptr::null_mut()
        },
        room: buffers.room,
        frames_emitted: 0,
        reused: 0,
        interpreted: 0,
        lock: 0,
    };
    let copied = process.setting.flags & FLAG_COPIES != 0;
    // SAFETY: a valid request; faults reach `on_fault`, which `must_probe` made sure of.
    let (done, cost) = unsafe {
        if copied {
            let cost = copy::take(process, slot, &buffers, &mut request);
            (cost.is_some(), cost.unwrap_or(0))
        } else {
            let done = (process.library.sample)(&raw mut request) == SAMPLED;
            (done, request.frames_emitted)
        }
    };
    let taken =
        Taken { kind, subject, time, weight, periods, carried, late, is_tick, is_placed, probed, copied, done, cost };
    // SAFETY: passed on.
    unsafe { write_sample(process, slot, &taken, &buffers, &mut request) }
}

/// Whether this walk must use probed reads, which cannot fault. If not, unblocks the fault signals so that guarded
/// reads may fault.
///
/// A fault needs its signal unblocked, and space for a second signal frame on the stack that the kernel pushes it on.
/// `room`: bytes left on the alternate stack that the handler runs on; u64::MAX when it does not run on one.
///
/// # Safety
/// The kernel's ucontext.
unsafe fn must_probe(process: &Process, room: u64, ucontext: *const u8) -> bool {
    if injected::is_so() {
        // There, reads are checked by themselves, and raise no faults.
        return false;
    }
    // SAFETY: the kernel's ucontext.
    let frame = unsafe { cpu::frame_of(ucontext) }.map_or(process.signal_frame, |own| own.min(process.signal_frame));
    let needed = frame + FAULT_HANDLER_STACK;
    // SAFETY: the kernel's ucontext.
    let (size, mask) = unsafe {
        let stack = UCONTEXT_STACK as usize;
        (field::<u64>(ucontext, stack + 16), field::<u64>(ucontext, UCONTEXT_SIGMASK as usize))
    };
    // On an alternate stack, the fault's frame is pushed below the walk; otherwise on the thread's alternate stack, if
    // it has one.
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
    // The faults of reads, and those that a plugin may raise: the kernel kills a process that raises a blocked fault
    // signal (https://man7.org/linux/man-pages/man2/sigprocmask.2.html).
    let needed_signals = faults::OF_WALKS.iter().fold(0, |mask, signal| mask | bit(*signal));
    if mask & needed_signals != 0 {
        // For the rest of this handler; sigreturn restores the mask.
        return !unblock(needed_signals);
    }
    false
}
