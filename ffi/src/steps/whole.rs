//! A stack in parts, with the frames of languages: a whole walk from its first frame for each part, most of which is
//! taken over from the walk before.

use crate::faults;
use uunwind_core::call_site;
use uunwind_core::frame::{frame_words, frames, Frame};
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::steps::{
    Step, WholeSteps, BY_FRAME_POINTER, EXACT, IN_WORDS, MISSING_BY_PLUGIN, MISSING_CALL, MISSING_SETUP, MISSING_STACK,
    MISSING_WALK, STEPS, UNSURE, WINDOW,
};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::syscall;
use uunwind_live::own_stack;
use uunwind_stacks::request::{doubt, DOUBT_FRAMES, DOUBT_PLUGIN_NOT_CALLED, DOUBT_SETUP_DUE};
use uunwind_stacks::walk::{whole, How, Whole};

const _: () = assert!(MISSING_BY_PLUGIN == DOUBT_FRAMES as u32);
const _: () = assert!(MISSING_SETUP == DOUBT_SETUP_DUE as u32);
const _: () = assert!(MISSING_CALL == DOUBT_PLUGIN_NOT_CALLED as u32);

/// See [`uunwind_core::library::Library::whole_steps`].
///
/// # Safety
/// `request` must be valid, with room for its steps; its stack pointer must be that of an active caller.
pub unsafe extern "C" fn whole_steps(request: *mut WholeSteps) {
    // SAFETY: the caller's.
    let request = unsafe { &mut *request };
    // SAFETY: the caller has room for this number of steps.
    let steps = unsafe { core::slice::from_raw_parts_mut(request.steps, request.capacity.min(STEPS)) };
    (request.count, request.missing, request.stop) = (0, 0, StopReason::Fault.number().into());
    let guarded = faults::handled();
    // SAFETY: as in `steps`.
    let mut reader = unsafe { Reader::new(if guarded { Mode::Guarded } else { Mode::Probed }) };
    let mut cursor = request.origin.cursor();
    if !is_own(cursor.regs.sp(), request.sp, &mut reader) {
        request.missing = MISSING_STACK;
        return;
    }
    if request.origin.flags & UNSURE != 0 {
        cursor.exact = !call_site::precedes(request.origin.pc, &mut reader);
    }
    let how = How { guarded, believing: true, trusting: false, with_cfas: false, ucontext: core::ptr::null() };
    let sp = request.sp;
    // SAFETY: the first frame is active, as the caller says, and lies on the calling thread's stack.
    if let Err(refused) = unsafe { whole(cursor, sp, how, &mut |walked| take(request, steps, &walked)) } {
        (request.missing, request.stop) = (MISSING_WALK, refused.stop().number().into());
    }
}

/// Whether a frame with this stack pointer is one of the calling thread, whose own is `own`. Runtimes say which thread
/// they run on, and not which stack: another one would get this one's frames.
fn is_own(sp: u64, own: u64, reader: &mut Reader<'_>) -> bool {
    (sp >= own && own_stack::reaches(own, sp, reader)) || own_stack::holds(sp, syscall::thread_pointer(), reader)
}

/// Takes over the frames that are wanted.
fn take(request: &mut WholeSteps, steps: &mut [Step], walked: &Whole<'_>) {
    let from = request.words as usize;
    if from > 0 {
        let last = from.checked_sub(frame_words(request.last)).and_then(|at| walked.frames.get(at));
        if last != Some(&request.last) {
            // It is another stack by now.
            return;
        }
    }
    let rest = walked.frames.get(from..).unwrap_or(&[]);
    let mut at = 0;
    for (place, frame) in steps.iter_mut().zip(frames(rest)) {
        let Some(first) = rest.get(at) else { break };
        let words = frame_words(*first);
        *place = step(frame, [*first, rest.get(at + 1).copied().unwrap_or(0)]);
        (request.last, request.count) = (*first, request.count + 1);
        at += words;
    }
    request.words += at as u64;
    let ends = if walked.stop == StopReason::BufferFull { StopReason::TooManyFrames } else { walked.stop };
    let stop = if at < rest.len() { StopReason::BufferFull } else { ends };
    (request.stop, request.missing) = (stop.number().into(), doubt(walked).into());
}

/// A frame, with its first words.
fn step(frame: Frame, words: [u64; 2]) -> Step {
    let (pc, exact, by_frame_pointer, generation) = match frame {
        Frame::Native { address, exact, by_frame_pointer, .. } => (address, exact, by_frame_pointer, None),
        Frame::Window { address, exact, by_frame_pointer, generation, .. } => {
            (address, exact, by_frame_pointer, Some(generation))
        }
        Frame::Semantic { .. } => return Step { pc: words[0], sp: words[1], flags: IN_WORDS, ..Step::NONE },
        Frame::Omitted { .. } => return Step { pc: words[0], flags: IN_WORDS, ..Step::NONE },
    };
    Step {
        pc,
        flags: flags(exact, by_frame_pointer, generation.is_some()),
        generation: generation.unwrap_or(0),
        ..Step::NONE
    }
}

/// [`Step::flags`] of a machine frame.
pub(super) fn flags(exact: bool, by_frame_pointer: bool, in_window: bool) -> u32 {
    let all = [(exact, EXACT), (by_frame_pointer, BY_FRAME_POINTER), (in_window, WINDOW)];
    all.into_iter().fold(0, |sum, (is_so, flag)| if is_so { sum | flag } else { sum })
}
