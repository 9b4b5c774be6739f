//! What a thread keeps of its last walk.

use super::point::Call;
use crate::memory::{Read, Recalled};

/// Frames that a trail holds.
pub(super) const MARKS: usize = 512;
/// Reads that it holds.
pub(super) const READS: usize = 3072;
/// Frame words that it holds.
pub(super) const WORDS: usize = 1024;
/// Points within plugins' calls that it holds.
pub(super) const POINTS: usize = 128;
/// Words for states of plugins' scratch memory.
pub(super) const STATES: usize = 512;
/// Objects that may be unloaded.
pub const OBJECTS: usize = 24;

/// [`Mark::flags`]: the pc is an interrupted instruction.
pub(super) const EXACT: u8 = 1;
/// [`Mark::flags`]: found by a frame pointer.
pub(super) const BY_FRAME_POINTER: u8 = 2;
/// [`Mark::flags`]: `fp` is rbp at this frame.
pub(super) const HAS_FP: u8 = 4;
/// [`Mark::flags`]: a state stands at `state`: the plugins' scratch memory behind this frame.
pub(super) const HAS_STATE: u8 = 8;
/// [`Mark::flags`]: the state behind this frame found no room.
pub(super) const LOST_STATE: u8 = 16;

/// A frame of a walk, as it was before anything was done about it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) fp: u64,
    /// Reads, words, states and points before this frame; positions in the arrays.
    pub(super) read: u16,
    pub(super) word: u16,
    pub(super) state: u16,
    pub(super) point: u16,
    /// Frames and doubtful overlay calls before this frame while the walk is under way; from here on in one that is kept.
    pub(super) count: u16,
    pub(super) desync: u16,
    /// Registers that the step uses and restores; bits in the order of the callee-saved registers, and [`OTHER`].
    pub(super) uses: u8,
    pub(super) restores: u8,
    /// Registers that the rest of the walk looks at from here on.
    pub(super) needs: u8,
    pub(super) flags: u8,
}

/// A place within a plugin's call from which on what it tells depends on little; or, in front of those of a call, what it depends on
/// besides.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Point {
    /// Less from point to point; [`CALL`] in front of a call's points.
    pub(super) order: u64,
    /// What the rest depends on.
    pub(super) state: PointState,
    /// Reads, words, frames and doubtful overlay calls, as in [`Mark`].
    pub(super) read: u16,
    pub(super) word: u16,
    pub(super) count: u16,
    pub(super) desync: u16,
}

/// Words that a plugin says the rest of its call depends on.
pub const POINT_WORDS: usize = 10;
/// See [`POINT_WORDS`].
pub type PointState = [u64; POINT_WORDS];
/// [`Point::order`] in front of a call's points.
pub(super) const CALL: u64 = u64::MAX;

/// What the surroundings of a walk say of themselves. Equal stamps: the same pc has the same owner, rule and names, for all but
/// objects that are confirmed apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Stamp {
    /// Everything else.
    pub general: u64,
    /// Of the registry of windows, 0 if the walk met no window.
    pub windows: u64,
}

/// A thread's last walk. All-zero is none. Only its own thread touches it, one walk at a time.
#[repr(C)]
pub struct Trail {
    /// 1: the walk behind `first` and its fellows stands.
    pub(super) valid: u32,
    pub(super) first: u16,
    pub(super) first_read: u16,
    pub(super) first_word: u16,
    pub(super) first_state: u16,
    pub(super) first_point: u16,
    pub(super) objects: u16,
    pub(super) stop: u16,
    pub(super) probed: u32,
    pub(super) stamp: Stamp,
    pub(super) object: [u64; OBJECTS],
    pub(super) marks: [Mark; MARKS],
    pub(super) reads: [Read; READS],
    pub(super) words: [u64; WORDS],
    pub(super) states: [u64; STATES],
    pub(super) points: [Point; POINTS],
    pub(super) call: Call,
    /// Answers of earlier walks; entries among `reads` name them.
    pub(super) recalled: Recalled,
}

/// Bytes of a trail.
pub const TRAIL_BYTES: usize = core::mem::size_of::<Trail>();

impl Trail {
    /// No walk.
    pub const fn new() -> Trail {
        const MARK: Mark = Mark {
            pc: 0,
            sp: 0,
            fp: 0,
            read: 0,
            word: 0,
            state: 0,
            point: 0,
            count: 0,
            desync: 0,
            uses: 0,
            restores: 0,
            needs: 0,
            flags: 0,
        };
        const POINT: Point = Point { order: 0, state: [0; POINT_WORDS], read: 0, word: 0, count: 0, desync: 0 };
        Trail {
            valid: 0,
            first: 0,
            first_read: 0,
            first_word: 0,
            first_state: 0,
            first_point: 0,
            objects: 0,
            stop: 0,
            probed: 0,
            stamp: Stamp { general: 0, windows: 0 },
            object: [0; OBJECTS],
            marks: [MARK; MARKS],
            reads: [Read::NONE; READS],
            words: [0; WORDS],
            states: [0; STATES],
            points: [POINT; POINTS],
            call: Call::NONE,
            recalled: Recalled::new(),
        }
    }

    /// Gives the last walk up.
    pub fn forget(&mut self) {
        self.valid = 0;
        self.objects = 0;
        self.first = MARKS as u16;
        self.first_read = READS as u16;
        self.first_word = WORDS as u16;
        self.first_state = STATES as u16;
        self.first_point = POINTS as u16;
    }
}

impl Default for Trail {
    fn default() -> Self {
        Trail::new()
    }
}
