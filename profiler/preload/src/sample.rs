//! A sample whose walk is over: what is counted of it, and its record in the thread's ring.

use crate::client::{ring, HEADER};
use crate::copy;
use crate::events::Subject;
use crate::late::Late;
use crate::process::{self, Process};
use crate::signals::field;
use crate::slots::{Buffers, Slot};
use core::sync::atomic::Ordering;
use uunwind_core::library::{
    Request, RESULT_DESYNC, RESULT_FACTS_PENDING, RESULT_OBJECTS_FULL, RESULT_PLUGIN_NOT_CALLED, RESULT_UNREPORTED,
};
use uunwind_core::regs::{UCONTEXT_PC, UCONTEXT_SP};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::syscall::{self, nr};
use uunwind_ring::layout::SAMPLE_WORDS;
use uunwind_ring::record::{
    lock_flags, PlaceRecord, RecordType, SampleKind, ThreadRecord, SAMPLE_BLOCKED, SAMPLE_DESYNC, SAMPLE_FACTS_PENDING,
    SAMPLE_LATE, SAMPLE_NO_PLUGINS,
};
use uunwind_ring::samples::Sample;
use uunwind_ring::FLAG_COPIES_BESIDE;

/// A sample whose walk is over.
pub struct Taken<'a> {
    /// Why it was taken.
    pub kind: SampleKind,
    /// Of what event it is, if it is of one.
    pub subject: Option<&'a Subject>,
    /// When: ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// Periods that it stands for.
    pub weight: u32,
    /// Those that count as lost if it is.
    pub periods: u32,
    /// Periods of skipped ticks before it.
    pub carried: u32,
    /// Whether it comes late.
    pub late: Late,
    /// A timer's tick has asked for it.
    pub is_tick: bool,
    /// The kernel's event has the sample's place.
    pub is_placed: bool,
    /// Reads were probed, and no plugin was called.
    pub probed: bool,
    /// The stack was copied, not walked.
    pub copied: bool,
    /// The walk or the copy came to an end.
    pub done: bool,
    /// What the walk cost, in frames.
    pub cost: u32,
}

/// Counts what the walk found, and writes the sample into the thread's ring. False: it is lost. A function of its own,
/// so that nothing of it lies on the walk's stack.
///
/// # Safety
/// `request` must be that of the walk that this thread's handler has made in these buffers.
#[inline(never)]
pub unsafe fn write_sample(
    process: &'static Process,
    slot: &'static Slot,
    taken: &Taken<'_>,
    buffers: &Buffers,
    request: &mut Request,
) -> bool {
    let Taken {
        kind,
        subject,
        time,
        weight,
        periods,
        mut carried,
        late,
        is_tick,
        is_placed,
        probed,
        copied,
        done,
        cost,
    } = *taken;
    let (period, ucontext, block) = (process.setting.period(), request.ucontext, slot.block());
    // SAFETY: blocks stay mapped.
    let shared = unsafe { &*block };
    if request.interpreted > 0 {
        if let Some(counters) = process::block() {
            counters.interpreted.fetch_add(u64::from(request.interpreted), Ordering::Relaxed);
        }
    }
    if request.result & RESULT_OBJECTS_FULL != 0 {
        if let Some(counters) = process::block() {
            counters.objects_full.fetch_add(1, Ordering::Relaxed);
        }
    }
    if let Some(counters) = process::block() {
        counters.frames_emitted.fetch_add(u64::from(request.frames_emitted), Ordering::Relaxed);
        counters.frames_reused.fetch_add(u64::from(request.reused), Ordering::Relaxed);
    }
    if is_tick && request.stop == u32::from(StopReason::Watchdog.number()) {
        slot.budget.abandoned(period);
    } else if is_tick {
        slot.budget.walked(cost, period);
    } else {
        slot.budget.free();
    }
    // SAFETY: this thread is the writer.
    let ring = unsafe { ring(block) };
    let sequence = shared.next_sequence();
    // The main thread's name was recorded when it began: by now a seccomp filter of the program may forbid prctl.
    if sequence == 1 && slot.tid.load(Ordering::Relaxed) != process::pid() {
        name_thread(&ring);
    }
    let copied = copied && done && request.words > 0;
    let words = if done { request.words.min(SAMPLE_WORDS) } else { 0 };
    let mut flags = late.flag(request.code) | lock_flags(request.lock);
    for (set, flag) in [
        (request.result & (RESULT_DESYNC | RESULT_PLUGIN_NOT_CALLED) != 0, SAMPLE_DESYNC),
        (request.result & RESULT_FACTS_PENDING != 0, SAMPLE_FACTS_PENDING),
        (probed, SAMPLE_NO_PLUGINS),
    ] {
        if set {
            flags |= flag;
        }
    }
    // The weight of such a sample is attributed to no line. The skipped ticks before it must be, so the next sample
    // carries them.
    let later = if flags & (SAMPLE_BLOCKED | SAMPLE_LATE) != 0 { core::mem::take(&mut carried) } else { 0 };
    let weight = weight.saturating_add(carried);
    let sample = Sample { time, weight, sequence, stop: request.stop as u16, kind: kind.number(), flags };
    // A stack with objects that are not recorded would be symbolized wrongly, so it counts as lost, like one that does
    // not fit in the ring.
    let complete = request.result & RESULT_UNREPORTED == 0;
    // SAFETY: the kernel's ucontext.
    let complete = complete && (!is_placed || unsafe { place(&ring, ucontext) });
    let complete = complete && slot.labels.report(&ring);
    let complete = complete && subject.is_none_or(|subject| subject.write(&ring));
    // SAFETY: the slot's own memory, which only this thread uses, all zero before its first sample; the walk has
    // written this number of words, or the copy `request.words` bytes.
    let written = complete
        && unsafe {
            if copied {
                copy::write(&ring, &sample, false, buffers, request.words)
            } else {
                let frames = core::slice::from_raw_parts(buffers.frames, words);
                (&mut *buffers.past).write(&ring, &sample, frames)
            }
        };
    if written {
        if later > 0 {
            slot.budget.carry(later);
        }
        if process.setting.flags & FLAG_COPIES_BESIDE != 0 {
            // SAFETY: as for the walk, which is over; what it has left is in the ring.
            unsafe { copy::put_beside(process, slot, buffers, request, &ring) };
        }
    } else {
        shared.lost.fetch_add(1, Ordering::Relaxed);
        let periods = periods.saturating_add(carried).saturating_add(later);
        shared.lost_weight.fetch_add(u64::from(periods), Ordering::Relaxed);
    }
    shared.carried.store(slot.budget.carried(), Ordering::Relaxed);
    written
}

/// Records where the thread was interrupted for the sample that is written next. False: there was no room.
///
/// # Safety
/// The kernel's ucontext.
unsafe fn place(ring: &uunwind_ring::writer::RingWriter<'_>, ucontext: *const u8) -> bool {
    // SAFETY: both lie in every ucontext.
    let (pc, sp) = unsafe { (field(ucontext, UCONTEXT_PC as usize), field(ucontext, UCONTEXT_SP as usize)) };
    let Some(mut record) = ring.reserve(RecordType::Place, core::mem::size_of::<PlaceRecord>()) else { return false };
    record.fixed(PlaceRecord { header: HEADER, pc, sp });
    record.commit();
    true
}

/// Records the name of the calling thread
/// ([PR_GET_NAME](https://man7.org/linux/man-pages/man2/PR_SET_NAME.2const.html)).
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
