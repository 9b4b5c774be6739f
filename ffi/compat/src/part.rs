//! A part of a stack: as many frames as there is room for, and where the next part begins.

use uunwind_core::library::Library;
use uunwind_core::regs::{Regs, SP};
use uunwind_core::steps::{State, Step, Steps};
use uunwind_core::stop_reason::StopReason;

/// Frames of a part: with them a cursor is as large as libunwind's.
pub const PART: usize = 21;
/// Frames of the first part: who takes one step only does not pay for a whole part.
const FIRST: usize = 6;
/// At most this number of frames of one stack: one that leads in a circle ends, too.
const LIMIT: u32 = 1 << 20;

/// Some frames of a stack, one of which is the current one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Part {
    /// The registers of the first frame.
    start: State,
    /// Those of the frame after the last one, where `stop` says that there is one.
    next: State,
    steps: [Step; PART],
    count: u32,
    index: u32,
    /// Frames before this part.
    passed: u32,
    /// The `StopReason` number; `BufferFull`: the stack goes on.
    stop: u16,
    /// The frame before the first one was that of a signal's delivery.
    after_signal: bool,
    /// The frames are those of a walk. Otherwise there is one, as its owner gave it.
    walked: bool,
}

impl Part {
    /// The stack that begins with this frame.
    pub fn new(regs: &Regs, flags: u32) -> Part {
        let mut steps = [Step::NONE; PART];
        if let Some(first) = steps.first_mut() {
            *first = Step { pc: regs.pc, sp: regs.get(SP).unwrap_or(0), flags, ..Step::NONE };
        }
        Part {
            start: State::new(regs, flags),
            next: State::EMPTY,
            steps,
            count: 1,
            index: 0,
            passed: 0,
            stop: StopReason::BufferFull.number(),
            after_signal: false,
            walked: false,
        }
    }

    /// The current frame.
    pub fn here(&self) -> Step {
        self.steps.get(self.index as usize).copied().unwrap_or(Step::NONE)
    }

    /// Whether the current frame was interrupted by a signal that is handled further up.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for cursors"))]
    pub fn is_interrupted(&self) -> bool {
        let before = self.index.checked_sub(1).and_then(|before| self.steps.get(before as usize));
        before.map_or(self.after_signal, |before| before.flags & uunwind_core::steps::SIGNAL != 0)
    }

    /// Makes sure that the current frame, which its owner gave, is one. The reason why it is not.
    pub fn begin(&mut self, library: &Library) -> Result<(), StopReason> {
        if !self.walked {
            let start = self.start;
            self.walk(library, start, FIRST)?;
        }
        Ok(())
    }

    /// Goes to the caller of the current frame. The reason why it has none.
    pub fn step(&mut self, library: &Library) -> Result<(), StopReason> {
        self.begin(library)?;
        if self.index.wrapping_add(1) < self.count {
            self.index = self.index.wrapping_add(1);
            return Ok(());
        }
        let stop = StopReason::from_number(self.stop).unwrap_or(StopReason::Fault);
        if stop != StopReason::BufferFull {
            return Err(stop);
        }
        let passed = self.passed.saturating_add(self.count);
        if passed >= LIMIT {
            return Err(StopReason::TooManyFrames);
        }
        let after_signal = self.here().flags & uunwind_core::steps::SIGNAL != 0;
        let next = self.next;
        self.walk(library, next, PART)?;
        (self.passed, self.after_signal) = (passed, after_signal);
        Ok(())
    }

    /// The frames from `start` on, at most `room` of them. If there is none, the part stays as it is, but for `stop`.
    fn walk(&mut self, library: &Library, start: State, room: usize) -> Result<(), StopReason> {
        let mut steps = [Step::NONE; PART];
        let (state, count, stop) = request(library, start, steps.get_mut(..room).unwrap_or_default());
        self.stop = stop;
        self.walked = true;
        if count == 0 {
            return Err(StopReason::from_number(stop).unwrap_or(StopReason::Fault));
        }
        (self.start, self.next, self.steps) = (start, state, steps);
        (self.count, self.index) = (count as u32, 0);
        Ok(())
    }

    /// The registers of the current frame, as far as they are known.
    pub fn registers(&self, library: &Library) -> Option<Regs> {
        let mut state = self.start;
        let mut left = self.index as usize;
        let mut steps = [Step::NONE; PART];
        while left > 0 {
            let (next, count, stop) = request(library, state, steps.get_mut(..left)?);
            if count == 0 || stop != StopReason::BufferFull.number() {
                return None;
            }
            (state, left) = (next, left.checked_sub(count)?);
        }
        Some(Regs::some(state.pc, state.values, state.known))
    }
}

/// The frames from this one on, the registers after them, their number, and the number of the stop reason.
fn request(library: &Library, state: State, steps: &mut [Step]) -> (State, usize, u16) {
    let mut request = Steps { state, sp: 0, steps: steps.as_mut_ptr(), capacity: steps.len(), count: 0, stop: 0 };
    // This function's frame is active.
    request.sp = core::ptr::from_ref(&request).addr() as u64;
    // SAFETY: a valid request with its steps.
    unsafe { (library.steps)(&raw mut request) };
    (request.state, request.count, request.stop as u16)
}
