//! A whole walk of the calling thread, for the program itself.

use crate::cfas::Cfas;
use crate::client::CLIENT;
use crate::memory::{self, Memory};
use crate::traced::Traced;
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use uunwind_core::cursor::Cursor;
use uunwind_core::library::{RESULT_FACTS_PENDING, UNRECORDED};
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::recovery::{self, Call};
use uunwind_core::slots::{Slot, Stake};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::syscall;
use uunwind_core::walk::{walk_part, Outcome, Setting};
use uunwind_live::env::{Calls, Live};
use uunwind_live::own_stack;
use uunwind_live::state::{DUE, OBJECTS, SLOTS, TSD_OFFSET};

/// How a walk reads, and whom it may call.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// SIGSEGV and SIGBUS are unblocked and reach a handler of the library's: reads may fault.
    pub guarded: bool,
    /// Where reads are not guarded: the thread's own stack need not be probed where that was done before. Not in a
    /// thread that has crashed, whose stack pointer may be anything.
    pub believing: bool,
    /// Plugins that do not promise to read through the walk only are called although reads are probed, so that a fault
    /// of theirs is the program's.
    pub trusting: bool,
    /// CFAs are noted. Nothing of earlier walks is taken over then.
    pub with_cfas: bool,
    /// The context with which a handler of this thread was entered that the walk begins in, or null.
    pub ucontext: *const u8,
}

/// The result of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'m> {
    /// The frames, leaf first.
    pub frames: &'m [u64],
    /// Why it ended.
    pub stop: StopReason,
    /// A plugin reported missing or doubtful frames.
    pub desync: bool,
    /// A sum of `RESULT_*`.
    pub result: u32,
    /// The machine frames' CFAs, if they were asked for.
    pub cfas: Option<&'m Cfas>,
}

/// Why no walk can begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The thread has no slot, and none is free.
    TooManyThreads,
    /// The kernel has no memory for the thread's walks.
    NoMemory,
    /// The thread is inside another whole walk, or the sampler's.
    Inside,
}

impl Refused {
    /// The stop reason that says so.
    pub fn stop(self) -> StopReason {
        match self {
            Refused::TooManyThreads | Refused::NoMemory => StopReason::TooManyThreads,
            Refused::Inside => StopReason::Fault,
        }
    }
}

/// What the protected part gets, and leaves.
struct Work<'w, 's> {
    cursor: Cursor,
    env: &'w mut Live<'s>,
    reader: &'w mut Reader<'s>,
    memory: *mut Memory,
    with_cfas: bool,
    ucontext: *const u8,
    words: usize,
    outcome: Option<Outcome>,
}

/// Walks from `cursor`, and passes the result to `then`, which must not walk. `sp`: the caller's stack pointer.
/// Async-signal-safe.
///
/// # Safety
/// `cursor` must describe the calling thread, at a frame that is still active; `how` must be true.
pub unsafe fn whole(cursor: Cursor, sp: u64, how: How, then: &mut dyn FnMut(Whole<'_>)) -> Result<(), Refused> {
    let slot = SLOTS.current_or_claim().ok_or(Refused::TooManyThreads)?;
    let stake = Stake::new();
    let admitted = slot.admits(sp).then(|| slot.whole_walk.hold(&stake)).flatten();
    // Another whole walk of this thread was interrupted or is suspended, or the sampler's is under way.
    let held = admitted.ok_or(Refused::Inside)?;
    let Some(memory) = memory::of(slot) else {
        held.leave();
        stake.withdraw();
        return Err(Refused::NoMemory);
    };
    // An earlier walk may have been left in the middle.
    slot.own_recovery.disarm();
    let tid = syscall::gettid();
    // SAFETY: the slot's memory, which is held.
    unsafe { (*memory).begin(tid) };
    // SAFETY: passed on.
    let walked = unsafe { walked(cursor, (slot, sp), how, memory) };
    // SAFETY: as above; the walk has ended.
    unsafe { (*memory).end(tid) };
    then(walked);
    held.leave();
    stake.withdraw();
    Ok(())
}

/// The walk, in the slot's memory. `at`: the slot, and the caller's stack pointer.
///
/// # Safety
/// As [`whole`]; the memory must be the slot's, and held.
unsafe fn walked<'m>(cursor: Cursor, at: (&Slot, u64), how: How, memory: *mut Memory) -> Whole<'m> {
    let (slot, sp) = at;
    let calls = match how {
        How { guarded: true, .. } | How { trusting: true, .. } => Calls::All,
        _ => Calls::Checked,
    };
    let client = Some((&CLIENT, memory.cast::<c_void>()));
    let mut env = Live::new(client, (UNRECORDED, 0), Some(&slot.own_recovery), calls);
    env.marks_itself(slot, sp);
    // SAFETY: the caller says when reads may be guarded.
    let mut reader = unsafe { Reader::new(if how.guarded { Mode::Guarded } else { Mode::Probed }) };
    if how.believing && !how.guarded {
        // SAFETY: the frame that the walk begins with is active on the calling thread.
        reader.believe(unsafe { own_stack::believed(slot, cursor.regs.sp()) });
    }
    let mut work = Work {
        cursor,
        env: &mut env,
        reader: &mut reader,
        memory,
        with_cfas: how.with_cfas,
        ucontext: how.ucontext,
        words: 0,
        outcome: None,
    };
    let call = Call::new(protected as *const () as usize, [(&raw mut work) as u64]);
    // SAFETY: `protected` allocates and locks nothing, so it may be left at any instruction; the recovery point is this
    // thread's, and not armed.
    let called = unsafe { recovery::call(&slot.own_recovery, &call) };
    let (words, outcome) = (work.words, work.outcome);
    let result = env.result;
    env.leave();
    if result & RESULT_FACTS_PENDING != 0 {
        DUE.ask(OBJECTS.loads().now());
    }
    let (words, stop, desync) = match (outcome, called) {
        (Some(outcome), Ok(_)) => (outcome.words, outcome.stop, outcome.desync > 0),
        (_, Err(reason)) => {
            // SAFETY: as above.
            unsafe { (*memory).last_walk.forget() };
            (words, StopReason::from_number(reason as u16).unwrap_or(StopReason::Fault), false)
        }
        (None, Ok(_)) => (words, StopReason::Fault, false),
    };
    // SAFETY: as above; the walk has ended.
    let (frames, cfas): (&[u64], _) = unsafe { (&(*memory).frames, &(*memory).cfas) };
    let cfas = how.with_cfas.then_some(cfas);
    Whole { frames: frames.get(..words).unwrap_or(&[]), stop, desync, result, cfas }
}

unsafe extern "C" fn protected(work: *mut c_void) {
    // SAFETY: `whole` passes its work.
    let work = unsafe { &mut *work.cast::<Work<'_, '_>>() };
    // SAFETY: the slot's memory, which is held.
    let memory = unsafe { &mut *work.memory };
    let last_walk = if work.with_cfas { core::ptr::null_mut() } else { &raw mut memory.last_walk };
    let setting = Setting {
        thread_pointer: syscall::thread_pointer(),
        tsd_offset: TSD_OFFSET.load(Ordering::Relaxed),
        ucontext: work.ucontext,
        scratch: memory.scratch.as_mut_ptr(),
        exchange: memory.exchange.as_mut_ptr(),
        progress: &raw mut work.words,
        last_walk,
        keep_outermost: true,
        by_frame_pointer: false,
    };
    let frames = &mut memory.frames;
    work.outcome = Some(if work.with_cfas {
        memory.cfas.begin();
        let mut traced = Traced { live: work.env, watcher: &mut memory.cfas };
        // SAFETY: the memory is this walk's; `progress` lives in the work.
        unsafe { walk_part(&mut work.cursor, &mut traced, work.reader, frames, &setting) }
    } else {
        // SAFETY: as above.
        unsafe { walk_part(&mut work.cursor, work.env, work.reader, frames, &setting) }
    });
}
