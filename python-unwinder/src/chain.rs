//! The chain of Python frames: measured first, emitted when its boundary is known to lie in the native frame in hand.

use crate::code::{self, Emitted};
use crate::cursor::Cursor;
use crate::facts::Facts;
use crate::frame::{PyFrame, OWNER_CSTACK, OWNER_GENERATOR, OWNER_THREAD};
use crate::walk::Walk;
use uunwind_core::plugin::OVERLAY_DESYNC;

/// How a stretch of the chain ends.
pub enum End {
    /// At the frame that was asked for (or at the chain's end, for 0). `entry`: the last frame before it says that it
    /// is the first of its activation; true for an empty stretch.
    Stop { entry: bool },
    /// At a shim.
    Shim { address: u64, previous: u64 },
    /// Nowhere within the walk's limit.
    TooLong,
    /// At something that is no live frame.
    Torn,
}

/// A measured stretch.
pub struct Stretch {
    /// Its innermost frame.
    pub first: u64,
    /// Number of frames.
    pub frames: u32,
    /// How it ends.
    pub end: End,
}

/// What tells live frames from dead ones whose memory still looks like frames.
pub struct Live {
    /// The data stack's current chunk up to its limit; what lies in it above `top` was popped.
    chunk: u64,
    top: u64,
    limit: u64,
    /// The link to the innermost frame is known to be fresh. That frame may then be on its way out: a function that
    /// makes a generator pops its frame, and a generator that yields is suspended, some instructions before it is
    /// unlinked.
    fresh: bool,
}

impl Live {
    /// Reads `datastack_chunk`, `datastack_top` and `datastack_limit`, which stand side by side.
    pub fn read(walk: &Walk<'_>, facts: &Facts, tstate: u64, fresh: bool) -> Option<Live> {
        let at = tstate.wrapping_add(u64::from(facts.tstate_datastack));
        Some(Live {
            chunk: walk.word(at)?,
            top: walk.word(at.wrapping_add(8))?,
            limit: walk.word(at.wrapping_add(16))?,
            fresh,
        })
    }

    fn is_live(&self, walk: &Walk<'_>, facts: &Facts, frame: &PyFrame, innermost: bool) -> bool {
        let leaving = innermost && self.fresh;
        if frame.owner == OWNER_GENERATOR {
            return leaving || is_executing(walk, facts, frame.address);
        }
        let in_chunk = self.chunk <= frame.address && frame.address < self.limit;
        !in_chunk || frame.address < self.top || (leaving && frame.address == self.top)
    }
}

/// Is the generator that holds the frame at `address` running? A suspended one is in no chain, but old links lead to
/// it.
fn is_executing(walk: &Walk<'_>, facts: &Facts, address: u64) -> bool {
    const FRAME_EXECUTING: u8 = 0;
    let before = facts.frame_generator_state as usize;
    if before == 0 {
        return true;
    }
    let state = walk.word(address.wrapping_sub(8)).map(u64::to_le_bytes);
    state.is_some_and(|bytes| bytes.iter().rev().nth(before - 1) == Some(&FRAME_EXECUTING))
}

/// Follows the chain from `first` up to the frame `stop` or a shim. Takes at most the cursor's remaining steps.
pub fn measure(
    walk: &Walk<'_>,
    facts: &Facts,
    cursor: &mut Cursor,
    first: u64,
    stop: u64,
    live: Option<&Live>,
) -> Stretch {
    let (mut at, mut frames, mut entry) = (first, 0u32, true);
    // A frame on the data stack that is an entry ends its activation. (A generator's stays marked from an earlier
    // time.)
    let mut must_end = false;
    let mut left = cursor.steps_left();
    let end = loop {
        if at == stop {
            break End::Stop { entry };
        }
        if must_end {
            break End::Torn;
        }
        if left == 0 {
            break End::TooLong;
        }
        left -= 1;
        let Some(frame) = PyFrame::read(walk, facts, at) else {
            break End::Torn;
        };
        match frame.owner {
            OWNER_THREAD | OWNER_GENERATOR => {}
            OWNER_CSTACK => break End::Shim { address: at, previous: frame.previous },
            _ => break End::Torn,
        }
        if live.is_some_and(|live| !live.is_live(walk, facts, &frame, frames == 0)) {
            break End::Torn;
        }
        entry = frame.is_entry;
        must_end = entry && frame.owner == OWNER_THREAD;
        frames += 1;
        at = frame.previous;
    };
    cursor.steps = crate::cursor::STEPS.saturating_sub(left);
    Stretch { first, frames, end }
}

/// What became of a stretch that was to be emitted.
#[derive(PartialEq, Eq)]
pub enum Emission {
    /// All of it was told.
    Whole,
    /// Some frames could not be told.
    Doubtful,
    /// The stack is full.
    Full,
}

impl Emission {
    /// The flag for the answer.
    pub fn doubt(self) -> u32 {
        if self == Emission::Doubtful {
            OVERLAY_DESYNC
        } else {
            0
        }
    }
}

/// Emits `frames` frames from `first` on.
pub fn emit(walk: &Walk<'_>, facts: &Facts, first: u64, frames: u32) -> Emission {
    let (mut at, mut emission) = (first, Emission::Whole);
    for _ in 0..frames {
        let Some(frame) = PyFrame::read(walk, facts, at) else {
            return Emission::Doubtful;
        };
        match code::emit(walk, facts, &frame) {
            Emitted::Done => {}
            Emitted::Invalid => emission = Emission::Doubtful,
            Emitted::Full => return Emission::Full,
        }
        at = frame.previous;
    }
    emission
}
