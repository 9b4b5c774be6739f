//! A stack in parts: what `libuunwind-compat.so` asks of `libuunwind.so` ([`crate::library::Library::steps`]).
//!
//! Interfaces that show one frame at a time, such as libunwind's cursors, keep a [`State`] in memory of their caller's,
//! and go on from it as long as the frames are active.

use crate::cursor::Cursor;
use crate::regs::{Regs, COUNT};

/// [`State::flags`], [`Step::flags`]: the pc is an interrupted instruction, and no return address.
pub const EXACT: u32 = 1;
/// As [`EXACT`]: a frame pointer led to the frame.
pub const BY_FRAME_POINTER: u32 = 2;
/// [`State::flags`]: whether the pc is exact is to be found out. It is, where no call stands before it.
pub const UNSURE: u32 = 4;
/// [`Step::flags`]: the frame is that of a signal's delivery; its caller was interrupted.
pub const SIGNAL: u32 = 8;
/// [`Step::flags`]: the frame lies in a window.
pub const WINDOW: u32 = 16;

/// [`Step::flags`]: no machine frame. `pc` and `sp` are the words of a semantic frame ([`crate::frame`]), or of the
/// frame that stands for frames left out: after its word comes 0, or a sum of `MISSING_*`.
pub const IN_WORDS: u32 = 32;

/// [`WholeSteps::missing`]: a plugin reported missing or doubtful frames.
pub const MISSING_BY_PLUGIN: u32 = 1;
/// As above: an object was not seen by the set-up.
pub const MISSING_SETUP: u32 = 2;
/// As above: a plugin was not called.
pub const MISSING_CALL: u32 = 4;
/// As above: the thread is inside another whole walk, or there is no memory for one.
pub const MISSING_WALK: u32 = 8;
/// As above: the stack may be another one than the calling thread's.
pub const MISSING_STACK: u32 = 16;

/// Frames of one request; and words of its buffer on the stack.
pub const STEPS: usize = 32;

/// A frame's registers: where a walk goes on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Process address of the instruction, or the return address.
    pub pc: u64,
    /// By DWARF number.
    pub values: [u64; COUNT],
    /// Bit n set: the value of register n is known. That of the stack pointer always is.
    pub known: u32,
    /// A sum of [`EXACT`], [`BY_FRAME_POINTER`] and [`UNSURE`].
    pub flags: u32,
}

impl State {
    /// Nothing is known.
    pub const EMPTY: State = State { pc: 0, values: [0; COUNT], known: 0, flags: 0 };

    /// The state of a frame with these registers.
    pub fn new(regs: &Regs, flags: u32) -> State {
        State { pc: regs.pc, values: *regs.values(), known: regs.known(), flags }
    }

    /// The cursor of a walk that begins here.
    pub fn cursor(&self) -> Cursor {
        Cursor { regs: Regs::some(self.pc, self.values, self.known), exact: self.flags & EXACT != 0 }
    }
}

/// One machine frame.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// As [`State::pc`].
    pub pc: u64,
    /// Its stack pointer; of a caller, that after its callee has returned. 0: it was not asked for.
    pub sp: u64,
    /// A sum of [`EXACT`], [`BY_FRAME_POINTER`], [`WINDOW`], and, where stack pointers were asked for, [`SIGNAL`].
    pub flags: u32,
    /// Of a frame in a window, the generation of that.
    pub generation: u32,
}

impl Step {
    /// No frame.
    pub const NONE: Step = Step { pc: 0, sp: 0, flags: 0, generation: 0 };
}

/// A request for the next frames.
#[repr(C)]
pub struct Steps {
    /// In: the first frame. Out: the one after the last of `steps`, where `stop` is `BufferFull`.
    pub state: State,
    /// The stack pointer of whoever asks: what lies above it on the thread's own stack is in use.
    pub sp: u64,
    /// Where frames are written, `capacity` of them.
    pub steps: *mut Step,
    /// From 1 on; at most [`STEPS`] are written.
    pub capacity: usize,
    /// 1: stack pointers are wanted, which takes several times as long; else 0.
    pub watched: u32,
    /// Out: the `StopReason` number: `BufferFull` where there are more.
    pub stop: u32,
    /// Out: number of frames.
    pub count: usize,
}

/// A request for a part of a stack with the frames of languages. It is walked from its first frame each time: whose
/// semantic frames a machine frame hosts depends on those before it.
#[repr(C)]
pub struct WholeSteps {
    /// The stack's first frame, which is active.
    pub origin: State,
    /// As [`Steps::sp`].
    pub sp: u64,
    /// Where frames are written, `capacity` of them.
    pub steps: *mut Step,
    /// At least 1.
    pub capacity: usize,
    /// In: number of frame words before the first frame that is wanted. Out: before the one after the last of `steps`.
    pub words: u64,
    /// In, if `words` is not 0: the word of the frame before the first one that is wanted. Out: that of the last one.
    pub last: u64,
    /// Out: number of frames. 0 where `words` was 0: there was no walk, as `missing` says.
    pub count: usize,
    /// Out: the `StopReason` number: `BufferFull` where there are more.
    pub stop: u32,
    /// Out: why frames of languages may be missing, a sum of `MISSING_*`.
    pub missing: u32,
}
