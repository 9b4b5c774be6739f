//! A stack in parts, for the drop-in object: the next frames, and the registers with which to go on.
//!
//! ```text
//! whole  the same with the frames of languages
//! text   what these are, in words
//! ```

pub mod text;
pub mod whole;

use uunwind_core::call_site;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::rule::RuleKind;
use uunwind_core::steps::{State, Step, Steps, BY_FRAME_POINTER, EXACT, SIGNAL, STEPS, UNSURE};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::syscall;
use uunwind_core::walk::{walk_part, Claimed, Look, Setting};
use uunwind_live::env::Live;
use uunwind_live::own_stack;
use uunwind_live::short_rule_keys::Salts;
use uunwind_live::state::SLOTS;
use uunwind_stacks::traced::{Traced, Watcher};

/// See [`uunwind_core::library::Library::steps`].
///
/// # Safety
/// `request` must be valid, with room for its steps; its stack pointer must be that of an active caller.
pub unsafe extern "C" fn steps(request: *mut Steps) {
    // SAFETY: the caller's.
    let request = unsafe { &mut *request };
    // SAFETY: the caller has room for this number of steps.
    let steps = unsafe { core::slice::from_raw_parts_mut(request.steps, request.capacity.min(STEPS)) };
    // So a walk writes no more frames than there is room for; of those in windows, with two words, fewer, but one.
    let mut words = steps.len();
    let from = request.state;
    loop {
        request.state = from;
        // SAFETY: passed on.
        let (count, stop) = unsafe { walk_on(&mut request.state, request.sp, steps, words, request.watched != 0) };
        (request.count, request.stop) = (count, u32::from(stop.number()));
        if count > 0 || stop != StopReason::BufferFull || words > 1 {
            return;
        }
        words = 2;
    }
}

/// Walks, and leaves the registers of the frame that found no room. Returns the number of frames, and why they end.
///
/// # Safety
/// `sp` must be the stack pointer of an active caller.
unsafe fn walk_on(state: &mut State, sp: u64, steps: &mut [Step], room: usize, watched: bool) -> (usize, StopReason) {
    let Some(slot) = SLOTS.current_or_claim() else { return (0, StopReason::TooManyThreads) };
    if !slot.admits(sp) {
        return (0, StopReason::Fault);
    }
    let mode = if crate::faults::handled() { Mode::Guarded } else { Mode::Probed };
    // SAFETY: probed mode has no precondition; for the other one the program called uu_handle_faults, whose
    // documentation asks for the signals to be unblocked here.
    let mut reader = unsafe { Reader::new(mode) };
    if reader.is_probed() {
        // SAFETY: the thread's stack pointer, or one that it had in an active caller.
        reader.believe(unsafe { own_stack::believed(slot, sp) });
    }
    let mut live = Live::capture(Salts::new(true));
    live.marks_itself(slot, sp);
    let mut cursor = state.cursor();
    if state.flags & UNSURE != 0 {
        cursor.exact = !call_site::precedes(state.pc, &mut reader);
    }
    let by_frame_pointer = state.flags & BY_FRAME_POINTER != 0;
    let mut words = [0u64; STEPS];
    let words = words.get_mut(..room).unwrap_or_default();
    let mut written = 0usize;
    let progress = &raw mut written;
    let setting = Setting { thread_pointer: syscall::thread_pointer(), by_frame_pointer, progress, ..Setting::EMPTY };
    steps.fill(Step::NONE);
    let mut seen = Seen { steps, count: 0, stepped: Stepped { written: progress, at: None } };
    let outcome = if watched {
        let mut env = Traced { live: &mut live, watcher: &mut seen };
        // SAFETY: no scratch, so no plugin is called; the progress is a word of this frame.
        unsafe { walk_part(&mut cursor, &mut env, &mut reader, words, &setting) }
    } else {
        let mut env = Traced { live: &mut live, watcher: &mut seen.stepped };
        // SAFETY: as above.
        unsafe { walk_part(&mut cursor, &mut env, &mut reader, words, &setting) }
    };
    live.leave();
    let exact = if cursor.exact { EXACT } else { 0 };
    let by = if outcome.by_frame_pointer { BY_FRAME_POINTER } else { 0 };
    *state = match seen.stepped.at {
        Some((at, words)) if words == outcome.words => State { flags: at.flags | by, ..at },
        _ => State::new(&cursor.regs, exact | by),
    };
    (seen.fill(words.get(..outcome.words).unwrap_or(&[])), outcome.stop)
}

/// Keeps the registers of a frame whose claim moves the cursor before the frame finds room, or none.
struct Stepped {
    /// Words that the walk has written.
    written: *const usize,
    /// The last such frame, and how many words there were before it.
    at: Option<(State, usize)>,
}

impl Watcher for Stepped {
    const LEAVES_OUT_PLAIN: bool = true;

    #[inline(always)]
    fn looked(&mut self, cursor: &Cursor, look: &Look, _reader: &mut Reader<'_>) {
        if matches!(look.claim, Claimed::By(_)) {
            // SAFETY: a word that lives as long as the walk.
            let written = unsafe { self.written.read_volatile() };
            self.at = Some((State::new(&cursor.regs, if cursor.exact { EXACT } else { 0 }), written));
        }
    }
}

/// Notes the stack pointer of each frame, and whether it is that of a signal's delivery.
struct Seen<'s> {
    steps: &'s mut [Step],
    /// Frames looked at.
    count: usize,
    stepped: Stepped,
}

impl Watcher for Seen<'_> {
    fn looked(&mut self, cursor: &Cursor, look: &Look, reader: &mut Reader<'_>) {
        if let Some(step) = self.steps.get_mut(self.count) {
            let flags = if look.rule.kind() == RuleKind::Signal { SIGNAL } else { 0 };
            *step = Step { sp: cursor.regs.sp(), flags, ..Step::NONE };
        }
        self.count += 1;
        self.stepped.looked(cursor, look, reader);
    }
}

impl Seen<'_> {
    /// Adds what the walk has written of the frames. Returns how many they are.
    fn fill(&mut self, words: &[u64]) -> usize {
        let mut count = 0;
        for (step, frame) in self.steps.iter_mut().zip(frames(words)) {
            let (pc, exact, by_frame_pointer, generation) = match frame {
                Frame::Native { address, exact, by_frame_pointer, .. } => (address, exact, by_frame_pointer, None),
                Frame::Window { address, exact, by_frame_pointer, generation, .. } => {
                    (address, exact, by_frame_pointer, Some(generation))
                }
                Frame::Semantic { .. } | Frame::Omitted { .. } => break,
            };
            step.pc = pc;
            step.flags |= whole::flags(exact, by_frame_pointer, generation.is_some());
            step.generation = generation.unwrap_or(0);
            count += 1;
        }
        count
    }
}
