//! The chain of Python frames: it is measured first, and emitted once its boundary is found in the current native
//! frame.

use crate::code::{self, Emitted};
use crate::cursor::Cursor;
use crate::facts::Facts;
use crate::frame::{PyFrame, OWNER_CSTACK, OWNER_GENERATOR, OWNER_THREAD};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::OVERLAY_DESYNC;

/// What a stretch of the chain ends with.
pub enum StretchEnd {
    /// The frame that the caller named (or the end of the chain, if it named 0). `entry`: the last frame before it is
    /// marked as the first of its activation; true for an empty stretch.
    Stop { entry: bool },
    /// A shim: its process address, and the frame that it links to.
    Shim { address: u64, previous: u64 },
    /// Nothing within the walk's limit of steps.
    TooLong,
    /// Something that is no live frame.
    Torn,
}

/// A measured stretch of the chain.
pub struct Stretch {
    /// Address of its innermost frame.
    pub first: u64,
    /// Number of frames in it; a shim at its end does not count.
    pub frames: u32,
    /// What follows its outermost frame.
    pub end: StretchEnd,
}

/// Distinguishes live frames from dead ones whose memory still looks like frames.
pub struct Live {
    /// The data stack's current chunk extends from `chunk` to `limit`; frames in it at or above `top` were popped.
    chunk: u64,
    top: u64,
    limit: u64,
    /// The link to the innermost frame is current. That frame may be about to be unlinked: a function that makes a
    /// generator pops its frame, and a generator that yields is marked as suspended, some instructions before the frame
    /// is unlinked.
    fresh: bool,
}

impl Live {
    /// Reads `PyThreadState.datastack_chunk`, `.datastack_top` and `.datastack_limit`, which are adjacent.
    pub fn read(guest: &Guest<'_>, facts: &Facts, tstate: u64, fresh: bool) -> Option<Live> {
        let at = tstate.wrapping_add(u64::from(facts.tstate_datastack));
        Some(Live {
            chunk: guest.word(at)?,
            top: guest.word(at.wrapping_add(8))?,
            limit: guest.word(at.wrapping_add(16))?,
            fresh,
        })
    }

    fn is_live(&self, guest: &Guest<'_>, facts: &Facts, frame: &PyFrame, innermost: bool) -> bool {
        let leaving = innermost && self.fresh;
        if frame.owner == OWNER_GENERATOR {
            return leaving || is_executing(guest, facts, frame.address);
        }
        let in_chunk = self.chunk <= frame.address && frame.address < self.limit;
        !in_chunk || frame.address < self.top || (leaving && frame.address == self.top)
    }
}

/// Is the generator that holds the frame at `address` running? A suspended one is in no chain, but old links may lead
/// to it. Reads `gi_frame_state` (<https://github.com/python/cpython/blob/v3.12.1/Include/cpython/genobject.h>).
fn is_executing(guest: &Guest<'_>, facts: &Facts, address: u64) -> bool {
    const FRAME_EXECUTING: u8 = 0;
    let before = facts.frame_generator_state as usize;
    if before == 0 {
        return true;
    }
    let state = guest.word(address.wrapping_sub(8)).map(u64::to_le_bytes);
    state.is_some_and(|bytes| bytes.iter().rev().nth(before - 1) == Some(&FRAME_EXECUTING))
}

/// Follows the chain from `first` up to the frame `stop` or a shim, for at most the cursor's remaining steps.
pub fn measure(
    guest: &Guest<'_>,
    facts: &Facts,
    cursor: &mut Cursor,
    first: u64,
    stop: u64,
    live: Option<&Live>,
) -> Stretch {
    let (mut at, mut frames, mut entry) = (first, 0u32, true);
    // A frame on the data stack that is an entry ends its activation. (A generator's frame keeps its mark from an
    // earlier activation.)
    let mut must_end = false;
    let mut left = cursor.steps_left();
    let end = loop {
        if at == stop {
            break StretchEnd::Stop { entry };
        }
        if must_end {
            break StretchEnd::Torn;
        }
        if left == 0 {
            break StretchEnd::TooLong;
        }
        left -= 1;
        let Some(frame) = PyFrame::read(guest, facts, at) else {
            break StretchEnd::Torn;
        };
        match frame.owner {
            OWNER_THREAD | OWNER_GENERATOR => {}
            OWNER_CSTACK => break StretchEnd::Shim { address: at, previous: frame.previous },
            _ => break StretchEnd::Torn,
        }
        if live.is_some_and(|live| !live.is_live(guest, facts, &frame, frames == 0)) {
            break StretchEnd::Torn;
        }
        entry = frame.is_entry;
        must_end = entry && frame.owner == OWNER_THREAD;
        frames += 1;
        at = frame.previous;
    };
    cursor.steps = crate::cursor::STEPS.saturating_sub(left);
    Stretch { first, frames, end }
}

/// What came of emitting a stretch.
#[derive(PartialEq, Eq)]
pub enum Emission {
    /// All its frames were emitted.
    Whole,
    /// Some frames could not be emitted.
    Doubtful,
    /// The walk's buffer is full.
    Full,
}

impl Emission {
    /// The `OVERLAY_*` flag for the answer.
    pub fn doubt(self) -> u32 {
        if self == Emission::Doubtful {
            OVERLAY_DESYNC
        } else {
            0
        }
    }
}

/// Number of frames after which the host is asked again whether to leave some out.
const ASK: u32 = 256;

/// Emits `frames` frames, beginning with the one at `first`. Not inlined: its stack is free for what follows it.
#[inline(never)]
pub fn emit(guest: &Guest<'_>, facts: &Facts, first: u64, frames: u32) -> Emission {
    let (mut at, mut emission) = (first, Emission::Whole);
    let mut omitted = 0;
    for nth in 0..frames {
        let Some(frame) = PyFrame::read(guest, facts, at) else {
            return Emission::Doubtful;
        };
        if omitted == 0 && nth % ASK == ASK - 1 {
            omitted = guest.omit(frames - nth);
        }
        if omitted > 0 {
            omitted -= 1;
            at = frame.previous;
            continue;
        }
        match code::emit(guest, facts, &frame, 0) {
            Emitted::Done => {}
            Emitted::Invalid => emission = Emission::Doubtful,
            Emitted::Full => return Emission::Full,
        }
        at = frame.previous;
    }
    emission
}
