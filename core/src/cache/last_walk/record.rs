//! The record of a thread's last walk.

use super::point::Call;
use crate::memory::{Read, Recalled};

/// Limit of frames.
pub(super) const FRAMES: usize = 512;
/// Limit of reads.
pub(super) const READS: usize = 3072;
/// Limit of frame words.
pub(super) const WORDS: usize = 1024;
/// Limit of points inside plugins' calls.
pub(super) const POINTS: usize = 128;
/// Limit of words of states of the plugins' scratch memory.
pub(super) const STATES: usize = 512;
/// Limit of removable objects.
pub const LAST_WALK_OBJECTS: usize = 24;

/// [`FrameRecord::flags`]: the pc is an interrupted instruction.
pub(super) const EXACT: u8 = 1;
/// [`FrameRecord::flags`]: found by a frame pointer.
pub(super) const BY_FRAME_POINTER: u8 = 2;
/// [`FrameRecord::flags`]: `fp` is rbp at this frame.
pub(super) const HAS_FP: u8 = 4;
/// [`FrameRecord::flags`]: the state at index `state` is the plugins' scratch memory after this frame.
pub(super) const HAS_STATE: u8 = 8;
/// [`FrameRecord::flags`]: there was no room for the state after this frame.
pub(super) const LOST_STATE: u8 = 16;

/// A frame of a walk, in the state in which the walk reached it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FrameRecord {
    pub(super) pc: u64,
    pub(super) sp: u64,
    /// rbp, with [`HAS_FP`].
    pub(super) fp: u64,
    /// Indices of the first read, word, state and point of this frame in their arrays.
    pub(super) read: u16,
    pub(super) word: u16,
    pub(super) state: u16,
    pub(super) point: u16,
    /// Number of frames. While the walk is logged: those before this frame. When the log has ended and is kept: those
    /// from this frame on.
    pub(super) count: u16,
    /// Number of doubtful overlay calls, before or from here on as `count`.
    pub(super) desync: u16,
    /// Registers that the step uses and restores; bits in the order of the callee-saved registers, and [`OTHER`].
    pub(super) uses: u8,
    pub(super) restores: u8,
    /// Registers that the rest of the walk, from this frame on, reads before it restores them.
    pub(super) needs: u8,
    pub(super) flags: u8,
}

/// A place in each of the five arrays.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub(super) frame: u16,
    pub(super) read: u16,
    pub(super) word: u16,
    pub(super) state: u16,
    pub(super) point: u16,
}

impl Places {
    /// The ends of the arrays.
    pub(super) const ENDS: Places = Places {
        frame: FRAMES as u16,
        read: READS as u16,
        word: WORDS as u16,
        state: STATES as u16,
        point: POINTS as u16,
    };

    /// As many entries before this place as there are before `len`. `None`: they do not fit there.
    pub(super) fn before(self, len: Places) -> Option<Places> {
        Some(Places {
            frame: self.frame.checked_sub(len.frame)?,
            read: self.read.checked_sub(len.read)?,
            word: self.word.checked_sub(len.word)?,
            state: self.state.checked_sub(len.state)?,
            point: self.point.checked_sub(len.point)?,
        })
    }
}

impl FrameRecord {
    /// Where the frame begins, which is itself at index `frame`.
    pub(super) fn places(&self, frame: u16) -> Places {
        Places { frame, read: self.read, word: self.word, state: self.state, point: self.point }
    }
}

/// A place inside a plugin's call from which on its result depends on a few words; or, in front of the points of a
/// call, the further inputs of all of them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Point {
    /// The plugin's number of the place, a position on the language's stack: it decreases from point to point of a
    /// call. [`CALL`]: the entry in front of a call's points.
    pub(super) order: u64,
    /// What the rest depends on.
    pub(super) state: PointState,
    /// Reads, words, frames and doubtful overlay calls, as in [`FrameRecord`].
    pub(super) read: u16,
    pub(super) word: u16,
    pub(super) count: u16,
    pub(super) desync: u16,
}

/// Number of words of which a plugin says that the rest of its call depends on them.
pub const POINT_WORDS: usize = 10;
/// The words that the rest of a call depends on, as the plugin gives them; unused ones are 0.
pub type PointState = [u64; POINT_WORDS];
/// [`Point::order`] in front of a call's points.
pub(super) const CALL: u64 = u64::MAX;

/// The validity epochs of a walk. While they are equal, the same pc has the same owner, rule and names, except for
/// removable objects, which are checked separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Stamp {
    /// The epoch of everything but windows and removable objects ([`crate::walk::Replay::stamp`]).
    pub general: u64,
    /// The epoch of the windows ([`crate::walk::DependsOn::windows`]); 0: the walk met none.
    pub windows: u64,
}

/// A thread's last whole walk: the sampler has one for each thread, and `uu_walk` another. All-zero is empty. Only its
/// own thread uses it, one walk at a time.
#[repr(C)]
pub struct LastWalk {
    /// 1: there is a walk.
    pub(super) valid: u32,
    /// Where it begins in the arrays; it reaches to their ends.
    pub(super) first: Places,
    /// Number of entries of `object`.
    pub(super) objects: u16,
    /// The stop reason's number.
    pub(super) stop: u16,
    /// 1: reads were probed.
    pub(super) probed: u32,
    pub(super) stamp: Stamp,
    /// Generations of the removable objects that the walk met.
    pub(super) object: [u64; LAST_WALK_OBJECTS],
    pub(super) frames: [FrameRecord; FRAMES],
    pub(super) reads: [Read; READS],
    pub(super) words: [u64; WORDS],
    pub(super) states: [u64; STATES],
    pub(super) points: [Point; POINTS],
    pub(super) call: Call,
    /// Answers of earlier walks; entries among `reads` name them.
    pub(super) recalled: Recalled,
}

/// Size of a [`LastWalk`] in bytes.
pub const LAST_WALK_BYTES: usize = core::mem::size_of::<LastWalk>();

impl LastWalk {
    /// The record before a thread's first walk: it matches nothing.
    pub const fn new() -> LastWalk {
        const FRAME: FrameRecord = FrameRecord {
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
        LastWalk {
            valid: 0,
            first: Places { frame: 0, read: 0, word: 0, state: 0, point: 0 },
            objects: 0,
            stop: 0,
            probed: 0,
            stamp: Stamp { general: 0, windows: 0 },
            object: [0; LAST_WALK_OBJECTS],
            frames: [FRAME; FRAMES],
            reads: [Read::NONE; READS],
            words: [0; WORDS],
            states: [0; STATES],
            points: [POINT; POINTS],
            call: Call::NONE,
            recalled: Recalled::new(),
        }
    }

    /// Drops the walk, and the plugins' answers of all earlier ones: they are another thread's. Async-signal-safe.
    pub fn reset(&mut self) {
        self.forget();
        self.recalled.clear();
    }

    /// Drops the walk: the next one replays nothing. Async-signal-safe.
    pub fn forget(&mut self) {
        self.valid = 0;
        self.objects = 0;
        self.first = Places::ENDS;
    }
}

impl Default for LastWalk {
    fn default() -> Self {
        LastWalk::new()
    }
}
