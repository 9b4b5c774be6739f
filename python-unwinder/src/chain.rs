//! The chain of Python frames: it is measured first, and emitted once its boundary is found in the current native
//! frame ([`crate::emission`]).
//!
//! Its first frames are read once, logged, and drafted meanwhile ([`crate::draft`]). Each of the others is read twice,
//! and logged once: what is measured is owed to the walk's log, until emitting has read the same frames again and found
//! that measuring them would have the same result. What is measured and not emitted is never replayed.

use crate::cursor::Cursor;
use crate::draft::Drafted;
use crate::facts::Facts;
use crate::frame::{Marks, PyFrame, Words, OWNER_CSTACK, OWNER_GENERATOR, OWNER_THREAD};
use uunwind_core::memory::near::Near;
use uunwind_core::plugin::guest::Guest;

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
    /// Its first frames, if some were drafted while it was measured.
    pub begin: Drafted,
    /// Number of frames in it; a shim at its end does not count.
    pub frames: u32,
    /// What its outermost frame links to.
    pub after: u64,
    /// Its outermost frame is marked as the first of its activation; true for an empty stretch.
    pub entry: bool,
    /// Some frames were read without being logged.
    pub owes: bool,
    /// What follows its outermost frame.
    pub end: StretchEnd,
}

/// Distinguishes live frames from dead ones whose memory still looks like frames.
pub struct Live {
    /// Frames in the data stack's current chunk at or above this address were popped.
    top: u64,
    /// Where these lie: from here on, in this number of bytes.
    popped: u64,
    bytes: u64,
    /// The link to the innermost frame is current. That frame may be about to be unlinked: a function that makes a
    /// generator pops its frame, and a generator that yields is marked as suspended, some instructions before the frame
    /// is unlinked.
    fresh: bool,
}

impl Live {
    /// Of versions whose chains have live frames only (from 3.13 on).
    pub const ALL: Live = Live { top: 0, popped: 0, bytes: 0, fresh: true };

    /// Reads `PyThreadState.datastack_chunk`, `.datastack_top` and `.datastack_limit`, which are adjacent.
    pub fn read(guest: &Guest<'_>, facts: &Facts, tstate: u64, fresh: bool) -> Option<Live> {
        let at = tstate.wrapping_add(u64::from(facts.tstate_datastack));
        let (chunk, top) = (guest.word(at)?, guest.word(at.wrapping_add(8))?);
        let limit = guest.word(at.wrapping_add(16))?;
        let popped = chunk.max(top);
        Some(Live { top, popped, bytes: limit.saturating_sub(popped), fresh })
    }

    fn is_live(&self, guest: &Guest<'_>, facts: &Facts, frame: &PyFrame, innermost: bool) -> bool {
        if frame.owner == OWNER_GENERATOR {
            return (innermost && self.fresh) || is_executing(guest, facts, frame.address);
        }
        self.is_on_stack(frame.address, innermost)
    }

    /// As `is_live`, for a frame of a function that is no generator.
    #[inline(always)]
    pub fn is_on_stack(&self, address: u64, innermost: bool) -> bool {
        let was_popped = address.wrapping_sub(self.popped) < self.bytes;
        !was_popped || (innermost && self.fresh && address == self.top)
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

/// Follows the chain, after the frames that were drafted, up to the frame `stop` or a shim, for at most the cursor's
/// remaining steps. What is measured here has to be read again later, and logged then, as the result says: see
/// [`Debt`].
pub fn measure(
    guest: &Guest<'_>,
    facts: &Facts,
    cursor: &mut Cursor,
    begin: Drafted,
    stop: u64,
    live: Option<&Live>,
) -> Stretch {
    let mut way = begin.way;
    let (mut left, mut owes) = (cursor.steps_left().saturating_sub(way.frames), false);
    let end = loop {
        owes |= way.follow(guest, facts, stop, live, &mut left);
        if way.at == stop {
            break StretchEnd::Stop { entry: way.entry() };
        }
        if way.last.end_activation() {
            break StretchEnd::Torn;
        }
        if left == 0 {
            break StretchEnd::TooLong;
        }
        left -= 1;
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
        way.pass(frame.previous, frame.marks());
    };
    cursor.steps = crate::cursor::STEPS.saturating_sub(left);
    Stretch { begin, frames: way.frames, after: way.at, entry: way.entry(), owes, end }
}

/// The way along a chain.
#[derive(Clone, Copy)]
pub struct Way {
    /// The frame that is reached.
    pub at: u64,
    /// Number of frames before it.
    pub frames: u32,
    /// Marks of the frame before it.
    last: Marks,
    /// Marks of the frames before that one.
    seen: Marks,
}

impl Way {
    /// The way that begins with this frame.
    pub fn from(at: u64) -> Way {
        Way { at, frames: 0, last: Marks::default(), seen: Marks::default() }
    }

    /// The frame before the one that is reached is marked as the first of its activation.
    fn entry(&self) -> bool {
        self.frames == 0 || self.last.is_entry
    }

    /// Goes on to the next frame.
    pub fn pass(&mut self, next: u64, marks: Marks) {
        self.pass_some(next, 1, Marks::default(), marks);
    }

    /// Passes this number of frames, up to `next`. `marks`: of all but the last of them.
    #[inline(always)]
    pub fn pass_some(&mut self, next: u64, frames: u32, marks: Marks, last: Marks) {
        if frames > 0 {
            self.seen = self.seen.or(self.last).or(marks);
            (self.at, self.frames, self.last) = (next, self.frames + frames, last);
        }
    }

    /// Whether this way, by frames that were read again, is the one that was measured. That a frame has the same marks
    /// again need not be compared: its thread is interrupted.
    pub fn is(&self, stretch: &Stretch) -> bool {
        const { assert!(OWNER_THREAD | OWNER_GENERATOR == 1) };
        let same = self.frames == stretch.frames && self.entry() == stretch.entry && self.at == stretch.after;
        same && self.seen.or(self.last).owner <= 1
    }

    /// Whether measuring these frames would not have ended earlier: none before the last is marked as an entry. (That
    /// of a generator may be, and does not end it; such a stretch is not replayed.)
    pub fn is_one_stretch(&self) -> bool {
        !self.seen.is_entry
    }

    /// Passes frames of which nothing else must be read to know that they are live, up to the first one of which
    /// `measure` decides. True: some were read without being logged.
    #[inline(never)]
    fn follow(&mut self, guest: &Guest<'_>, facts: &Facts, stop: u64, live: Option<&Live>, left: &mut u32) -> bool {
        let Some(words) = Words::of(facts).filter(|_| !self.last.end_activation()) else { return false };
        let (mut at, mut passed, mut last) = (self.at, 0, 0);
        let is_first = self.frames == 0;
        borrowing(guest, |near| {
            while at != stop && passed < *left {
                let Some((previous, marks)) = words.near(near, at) else { return };
                let owner = words.owner(marks);
                let is_usual = match live {
                    Some(live) => owner == OWNER_THREAD && live.is_on_stack(at, is_first && passed == 0),
                    None => owner | OWNER_GENERATOR == OWNER_GENERATOR,
                };
                if !is_usual {
                    return;
                }
                (at, last, passed) = (previous, marks, passed + 1);
                if words.is_entry(marks) && owner == OWNER_THREAD {
                    return;
                }
            }
        });
        self.pass_some(at, passed, Marks::default(), words.marks(last));
        *left = left.wrapping_sub(passed);
        passed > 0
    }
}

/// What was measured without being logged.
pub struct Debt;

impl Debt {
    /// Says that it will be read again; see [`Near::owe`].
    pub fn owe(guest: &Guest<'_>) {
        borrowing(guest, |near| near.owe());
    }

    /// Says that it was read again.
    pub fn settle(guest: &Guest<'_>) {
        borrowing(guest, |near| near.settle());
    }

    /// Says that it will not be read again: this walk is not replayed.
    #[cold]
    pub fn miss(guest: &Guest<'_>) {
        borrowing(guest, |near| near.miss());
    }
}

/// Borrows the walk's reader, where it is lent. `body` cannot use the guest.
#[inline(always)]
#[allow(
    unsafe_code,
    reason = "the walk's reader is borrowed: a call of the host for each frame costs more than the frame"
)]
fn borrowing(guest: &Guest<'_>, body: impl FnOnce(&mut Near<'_>)) {
    // SAFETY: no caller's `body` uses the guest, and the reader is dropped after it.
    if let Some(mut near) = unsafe { guest.near() } {
        body(&mut near);
    }
}
