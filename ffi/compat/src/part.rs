//! A part of a stack: as many frames as there is room for, and where the next part begins.

use uunwind_core::frame::{omitted_word, KIND_OMITTED};
use uunwind_core::library::Library;
use uunwind_core::regs::{Regs, SP};
use uunwind_core::steps::{State, Step, Steps, WholeSteps, EXACT, IN_WORDS, SIGNAL};
use uunwind_core::stop_reason::StopReason;

/// Frames of a part: with them a cursor is as large as libunwind's.
pub const PART: usize = 21;
/// At most this number of frames of one stack: one that leads in a circle ends, too.
const LIMIT: u32 = 1 << 20;

/// Frames were left out before this part.
const UNCOUNTED: u32 = u32::MAX;

/// Some frames of a stack, one of which is the current one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Part {
    /// The registers of the first frame; with the frames of languages, of the stack's first frame.
    start: State,
    /// Those of the frame after the last one, where `stop` says that there is one.
    next: State,
    steps: [Step; PART],
    count: u32,
    index: u32,
    /// Frames before this part; with the frames of languages, machine frames, or [`UNCOUNTED`].
    passed: u32,
    /// Of a stack with the frames of languages: its words before the frame after this part, and the last frame's word.
    words: u64,
    last: u64,
    /// Why frames of languages may be missing, a sum of `MISSING_*`: said at the end of the stack.
    missing: u32,
    /// The stack has the frames of languages.
    with_languages: bool,
    /// The `StopReason` number; `BufferFull`: the stack goes on.
    stop: u16,
    /// The frame before the first one was that of a signal's delivery.
    after_signal: bool,
    /// The frames are those of a walk. Otherwise there is one, as its owner gave it.
    walked: bool,
    /// The stack pointers of all of them are known, and whose frames are those of a signal's delivery.
    watched: bool,
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
            words: 0,
            last: 0,
            missing: 0,
            with_languages: false,
            stop: StopReason::BufferFull.number(),
            after_signal: false,
            walked: false,
            watched: false,
        }
    }

    /// The same stack with the frames of languages.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for cursors"))]
    pub fn with_languages(self) -> Part {
        Part { with_languages: true, ..self }
    }

    /// The current frame.
    pub fn here(&self) -> Step {
        self.steps.get(self.index as usize).copied().unwrap_or(Step::NONE)
    }

    /// The stack pointer of the current frame; 0: not known.
    pub fn sp(&mut self, library: &Library) -> u64 {
        let here = self.here();
        if here.flags & IN_WORDS != 0 {
            return 0;
        }
        if here.sp == 0 && self.with_languages {
            return self.registers(library).and_then(|registers| registers.get(SP)).unwrap_or(0);
        }
        if here.sp == 0 {
            self.watch(library);
        }
        self.here().sp
    }

    /// Whether the current frame was interrupted by a signal that is handled further up.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for cursors"))]
    pub fn is_interrupted(&mut self, library: &Library) -> bool {
        // Other frames' pcs are return addresses.
        if self.here().flags & EXACT == 0 {
            return false;
        }
        if self.with_languages {
            let before = self.machine_frames_to(self.index).filter(|before| *before > 0);
            let delivery = before.and_then(|before| self.go_past(library, before, true));
            return delivery.is_some_and(|(_, flags)| flags & SIGNAL != 0);
        }
        match self.index.checked_sub(1) {
            None => self.after_signal,
            Some(before) => {
                self.watch(library);
                self.steps.get(before as usize).is_some_and(|before| before.flags & SIGNAL != 0)
            }
        }
    }

    /// Makes sure that the current frame, which its owner gave, is one. The reason why it is not.
    pub fn begin(&mut self, library: &Library) -> Result<(), StopReason> {
        if self.walked {
            return Ok(());
        }
        if self.with_languages {
            if self.walk_whole(library).is_ok() {
                return Ok(());
            }
            // Its machine frames are there, in another way.
            self.with_languages = false;
        }
        let start = self.start;
        self.walk(library, start)
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
            return self.end(stop);
        }
        if self.with_languages {
            return self.walk_whole(library);
        }
        let passed = self.passed.saturating_add(self.count);
        if passed >= LIMIT {
            return Err(StopReason::TooManyFrames);
        }
        let next = self.next;
        if next.flags & EXACT != 0 {
            self.watch(library);
        }
        let after_signal = self.here().flags & SIGNAL != 0;
        self.walk(library, next)?;
        (self.passed, self.after_signal) = (passed, after_signal);
        Ok(())
    }

    /// The frames from `start` on. If there is none, the part stays as it is, but for `stop`.
    fn walk(&mut self, library: &Library, start: State) -> Result<(), StopReason> {
        let mut steps = [Step::NONE; PART];
        let (state, count, stop) = request(library, start, &mut steps, false);
        self.stop = stop;
        self.walked = true;
        if count == 0 {
            return Err(StopReason::from_number(stop).unwrap_or(StopReason::Fault));
        }
        if let Some(first) = steps.first_mut() {
            first.sp = Regs::some(start.pc, start.values, start.known).get(SP).unwrap_or(0);
        }
        (self.start, self.next, self.steps, self.watched) = (start, state, steps, false);
        (self.count, self.index) = (count as u32, 0);
        Ok(())
    }

    /// After the last frame: before the stack ends, one stands for the frames of languages that may be missing.
    fn end(&mut self, stop: StopReason) -> Result<(), StopReason> {
        let missing = core::mem::take(&mut self.missing);
        if missing == 0 {
            return Err(stop);
        }
        let stands_for_them = Step { pc: omitted_word(0), sp: missing.into(), flags: IN_WORDS, ..Step::NONE };
        if let Some(first) = self.steps.first_mut() {
            *first = stands_for_them;
        }
        (self.count, self.index) = (1, 0);
        Ok(())
    }

    /// The frames after this part, those of languages among them. If there is none, the part stays as it is, but for
    /// `stop`.
    fn walk_whole(&mut self, library: &Library) -> Result<(), StopReason> {
        let mut steps = [Step::NONE; PART];
        let mut request = WholeSteps {
            origin: self.start,
            sp: 0,
            steps: steps.as_mut_ptr(),
            capacity: steps.len(),
            words: self.words,
            last: self.last,
            count: 0,
            stop: 0,
            missing: 0,
        };
        // This function's frame is active.
        request.sp = core::ptr::from_ref(&request).addr() as u64;
        // SAFETY: a valid request with its steps.
        unsafe { (library.whole_steps)(&raw mut request) };
        self.missing = request.missing;
        self.stop = request.stop as u16;
        if request.count == 0 {
            return Err(StopReason::from_number(self.stop).unwrap_or(StopReason::Fault));
        }
        self.walked = true;
        // Nothing of this part is before the first one.
        let passed = if self.words == 0 { Some(0) } else { self.machine_frames_to(self.count) };
        self.passed = passed.unwrap_or(UNCOUNTED);
        (self.words, self.last, self.steps) = (request.words, request.last, steps);
        (self.count, self.index) = (request.count as u32, 0);
        Ok(())
    }

    /// How many machine frames there are before the one of this part with this index; `None`: some were left out.
    fn machine_frames_to(&self, index: u32) -> Option<u32> {
        let mut count = Some(self.passed).filter(|passed| *passed != UNCOUNTED)?;
        for step in self.steps.iter().take(index as usize) {
            if step.flags & IN_WORDS == 0 {
                count = count.checked_add(1)?;
            } else if step.pc >> 56 & 15 == u64::from(KIND_OMITTED) {
                return None;
            }
        }
        Some(count)
    }

    /// Walks the part again, frame by frame, for what few callers want.
    #[cold]
    fn watch(&mut self, library: &Library) {
        if self.watched || !self.walked {
            return;
        }
        self.watched = true;
        let mut steps = [Step::NONE; PART];
        let (_, count, _) = request(library, self.start, &mut steps, true);
        for (step, watched) in self.steps.iter_mut().zip(steps.get(..count).unwrap_or_default()) {
            if step.pc != watched.pc {
                // The stack is another one by now.
                return;
            }
            (step.sp, step.flags) = (watched.sp, watched.flags);
        }
    }

    /// The registers of the current frame, as far as they are known.
    pub fn registers(&self, library: &Library) -> Option<Regs> {
        if self.here().flags & IN_WORDS != 0 {
            return None;
        }
        let before = if self.with_languages { self.machine_frames_to(self.index)? } else { self.index };
        let mut state = self.start;
        if before > 0 {
            (state, _) = self.go_past(library, before, false)?;
        }
        // The stack may be another one by now.
        let is_here = !self.with_languages || state.pc == self.here().pc;
        is_here.then(|| Regs::some(state.pc, state.values, state.known))
    }

    /// The registers of the machine frame after this number of them, from `start` on, and the flags of the one before
    /// it; `watched`: with [`SIGNAL`].
    fn go_past(&self, library: &Library, frames: u32, watched: bool) -> Option<(State, u32)> {
        let (mut state, mut left, mut flags) = (self.start, frames as usize, 0);
        let mut steps = [Step::NONE; PART];
        while left > 0 {
            let room = steps.get_mut(..left.min(PART))?;
            let (next, count, stop) = request(library, state, room, watched);
            if count == 0 || stop != StopReason::BufferFull.number() {
                return None;
            }
            flags = room.get(count.checked_sub(1)?)?.flags;
            (state, left) = (next, left.checked_sub(count)?);
        }
        Some((state, flags))
    }
}

/// The frames from this one on, the registers after them, their number, and the number of the stop reason.
/// `watched`: with stack pointers.
fn request(library: &Library, state: State, steps: &mut [Step], watched: bool) -> (State, usize, u16) {
    let mut request = Steps {
        state,
        sp: 0,
        steps: steps.as_mut_ptr(),
        capacity: steps.len(),
        watched: watched.into(),
        stop: 0,
        count: 0,
    };
    // This function's frame is active.
    request.sp = core::ptr::from_ref(&request).addr() as u64;
    // SAFETY: a valid request with its steps.
    unsafe { (library.steps)(&raw mut request) };
    (request.state, request.count, request.stop as u16)
}
