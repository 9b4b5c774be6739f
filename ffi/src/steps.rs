//! A stack in parts, for the drop-in object: the next frames, and the registers with which to go on.

use uunwind_core::call_site;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::rule::{RuleKind, BY_FRAME_POINTER as RULE_BY_FRAME_POINTER};
use uunwind_core::steps::{State, Step, Steps, BY_FRAME_POINTER, EXACT, SIGNAL, STEPS, UNSURE, WINDOW};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::syscall;
use uunwind_core::walk::{walk, Look, Setting};
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
    request.count = 0;
    // SAFETY: passed on.
    let stop = unsafe { walk_on(&mut request.state, request.sp, steps, &mut request.count) };
    request.stop = u32::from(stop.number());
}

/// # Safety
/// `sp` must be the stack pointer of an active caller.
unsafe fn walk_on(state: &mut State, sp: u64, steps: &mut [Step], count: &mut usize) -> StopReason {
    let Some(slot) = SLOTS.current_or_claim() else { return StopReason::TooManyThreads };
    if !slot.admits(sp) {
        return StopReason::Fault;
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
    // So a walk writes no more frames than there is room for; of those in windows, with two words, fewer.
    let mut words = [0u64; STEPS];
    let words = words.get_mut(..steps.len()).unwrap_or_default();
    let mut seen = Seen { steps, count: 0, last: State::EMPTY, by_frame_pointer };
    let mut env = Traced { live: &mut live, watcher: &mut seen };
    let setting = Setting { thread_pointer: syscall::thread_pointer(), by_frame_pointer, ..Setting::EMPTY };
    // SAFETY: no scratch, so no plugin is called; the other pointers are null.
    let outcome = unsafe { walk(cursor, &mut env, &mut reader, words, &setting) };
    live.leave();
    *count = seen.fill(words.get(..outcome.words).unwrap_or(&[]));
    *state = seen.last;
    if outcome.stop == StopReason::BufferFull && (*count == 0 || seen.count != count.wrapping_add(1)) {
        // Of the frame that found no room, the registers are not known.
        return StopReason::Fault;
    }
    outcome.stop
}

/// What the walk has looked at.
struct Seen<'s> {
    steps: &'s mut [Step],
    /// Frames looked at.
    count: usize,
    /// The last of them.
    last: State,
    /// A frame pointer leads to the next one.
    by_frame_pointer: bool,
}

impl Watcher for Seen<'_> {
    fn looked(&mut self, cursor: &Cursor, look: &Look, _reader: &mut Reader<'_>) {
        if let Some(step) = self.steps.get_mut(self.count) {
            let flags = if look.rule.kind() == RuleKind::Signal { SIGNAL } else { 0 };
            *step = Step { sp: cursor.regs.sp(), flags, ..Step::NONE };
        }
        let exact = if cursor.exact { EXACT } else { 0 };
        let by = if self.by_frame_pointer { BY_FRAME_POINTER } else { 0 };
        self.last = State::new(&cursor.regs, exact | by);
        self.by_frame_pointer = look.rule.flags() & RULE_BY_FRAME_POINTER != 0;
        self.count += 1;
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
            let all = [(exact, EXACT), (by_frame_pointer, BY_FRAME_POINTER), (generation.is_some(), WINDOW)];
            step.pc = pc;
            step.flags |= all.into_iter().fold(0, |sum, (is_so, flag)| if is_so { sum | flag } else { sum });
            step.generation = generation.unwrap_or(0);
            count += 1;
        }
        count
    }
}
