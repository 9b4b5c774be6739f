//! The chain of Python frames: it is measured first, and emitted once its boundary is found in the current native
//! frame.

use crate::code::{self, Emitted};
use crate::cursor::Cursor;
use crate::facts::Facts;
use crate::frame::{Link, PyFrame, OWNER_CSTACK, OWNER_GENERATOR, OWNER_THREAD};
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
        if frame.owner == OWNER_GENERATOR {
            return (innermost && self.fresh) || is_executing(guest, facts, frame.address);
        }
        self.is_on_stack(frame.address, innermost)
    }

    /// As `is_live`, for a frame of a function that is no generator.
    fn is_on_stack(&self, address: u64, innermost: bool) -> bool {
        let in_chunk = self.chunk <= address && address < self.limit;
        !in_chunk || address < self.top || (innermost && self.fresh && address == self.top)
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
    let mut way = Way { at: first, frames: 0, entry: true, must_end: false, left: cursor.steps_left() };
    let end = loop {
        way.follow(guest, facts, stop, live);
        if way.at == stop {
            break StretchEnd::Stop { entry: way.entry };
        }
        if way.must_end {
            break StretchEnd::Torn;
        }
        if way.left == 0 {
            break StretchEnd::TooLong;
        }
        way.left -= 1;
        let Some(frame) = PyFrame::read(guest, facts, way.at) else {
            break StretchEnd::Torn;
        };
        match frame.owner {
            OWNER_THREAD | OWNER_GENERATOR => {}
            OWNER_CSTACK => break StretchEnd::Shim { address: way.at, previous: frame.previous },
            _ => break StretchEnd::Torn,
        }
        if live.is_some_and(|live| !live.is_live(guest, facts, &frame, way.frames == 0)) {
            break StretchEnd::Torn;
        }
        let PyFrame { previous, owner, is_entry, .. } = frame;
        way.pass(&Link { previous, owner, is_entry });
    };
    cursor.steps = crate::cursor::STEPS.saturating_sub(way.left);
    Stretch { first, frames: way.frames, end }
}

/// The way along a chain.
struct Way {
    /// The frame that is reached.
    at: u64,
    /// Number of frames before it.
    frames: u32,
    /// The frame before it is marked as the first of its activation.
    entry: bool,
    /// A frame on the data stack that is an entry ends its activation. (A generator's frame keeps its mark from an
    /// earlier activation.)
    must_end: bool,
    /// Limit of further steps.
    left: u32,
}

impl Way {
    fn pass(&mut self, link: &Link) {
        self.entry = link.is_entry;
        self.must_end = link.is_entry && link.owner == OWNER_THREAD;
        self.frames += 1;
        self.at = link.previous;
    }

    /// Passes frames of the usual kind, up to the first one of which `measure` decides.
    #[inline(never)]
    #[allow(
        unsafe_code,
        reason = "the walk's reader is borrowed: a call of the host for each frame costs more than the frame"
    )]
    fn follow(&mut self, guest: &Guest<'_>, facts: &Facts, stop: u64, live: Option<&Live>) {
        // SAFETY: nothing below uses the guest until the reader is dropped.
        let Some(mut near) = (unsafe { guest.near() }) else { return };
        while self.at != stop && !self.must_end && self.left > 0 {
            let Some(link) = Link::near(&mut near, facts, self.at) else { return };
            let is_usual = match (link.owner, live) {
                (OWNER_THREAD, Some(live)) => live.is_on_stack(self.at, self.frames == 0),
                (OWNER_THREAD | OWNER_GENERATOR, None) => true,
                _ => false,
            };
            if !is_usual {
                return;
            }
            self.left -= 1;
            self.pass(&link);
        }
    }
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

/// Number of frames that are emitted at once.
const RUN: usize = 8;

/// Emits `frames` frames, beginning with the one at `first`. Not inlined: its stack is free for what follows it.
#[inline(never)]
pub fn emit(guest: &Guest<'_>, facts: &Facts, first: u64, frames: u32) -> Emission {
    let (mut at, mut emission) = (first, Emission::Whole);
    let (mut nth, mut omitted) = (0, 0);
    while nth < frames {
        if omitted == 0 {
            let before_asking = ASK - 1 - nth % ASK;
            let passed = run(guest, facts, &mut at, before_asking.min(frames - nth));
            if passed.full {
                return Emission::Full;
            }
            nth += passed.frames;
            if passed.frames > 0 && (nth == frames || passed.frames == RUN as u32) {
                continue;
            }
        }
        let Some(frame) = PyFrame::read(guest, facts, at) else {
            return Emission::Doubtful;
        };
        if omitted == 0 && nth % ASK == ASK - 1 {
            omitted = guest.omit(frames - nth);
        }
        at = frame.previous;
        nth += 1;
        if omitted > 0 {
            omitted -= 1;
            continue;
        }
        match code::emit(guest, facts, &frame, 0) {
            Emitted::Done => {}
            Emitted::Invalid => emission = Emission::Doubtful,
            Emitted::Full => return Emission::Full,
        }
    }
    emission
}

/// What came of a run.
struct Passed {
    /// Number of frames, those that CPython hides included.
    frames: u32,
    /// The walk's buffer is full.
    full: bool,
}

/// Emits frames of the usual kind from `at` on, at most `most` and at most [`RUN`]. `at` is then the first that was not
/// emitted.
#[inline(never)]
#[allow(
    unsafe_code,
    reason = "the walk's reader is borrowed: a call of the host for each frame costs more than the frame"
)]
fn run(guest: &Guest<'_>, facts: &Facts, at: &mut u64, most: u32) -> Passed {
    let mut words = [[0; 2]; RUN];
    let (mut frames, mut count) = (0, 0);
    // SAFETY: nothing below uses the guest's host until the reader is dropped.
    if let Some(mut near) = unsafe { guest.near() } {
        while frames < most.min(RUN as u32) {
            let Some(frame) = PyFrame::near(&mut near, facts, *at) else { break };
            let Some(emitted) = code::usual(&mut near, guest.view(), facts, &frame) else { break };
            if let (Some(emitted), Some(place)) = (emitted, words.get_mut(count)) {
                *place = emitted;
                count += 1;
            }
            *at = frame.previous;
            frames += 1;
        }
    }
    let full = count > 0 && !guest.emit_all(words.get(..count).unwrap_or_default());
    Passed { frames, full }
}
