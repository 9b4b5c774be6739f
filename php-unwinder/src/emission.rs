//! Emits the frames of one activation.

use crate::cursor::Cursor;
use crate::facts::Facts;
use crate::frame::{Frame, Kind};
use crate::function::{self, Place};
use crate::generator;
use uunwind_core::plugin::guest::Guest;

/// Number of frames after which the host is asked again whether to leave some out.
const ASK: u32 = 256;
/// Limit of frames that are counted then.
const COUNTED: u32 = 1 << 17;
/// Limit of frames that one call looks at: more than a walk keeps or leaves out.
const LIMIT: u32 = 1 << 20;
/// Limit of frames between the cursor and the anchor.
const ABOVE: u32 = 1 << 12;

/// What came of emitting a frame.
pub enum Emitted {
    /// It was emitted, or is one that PHP itself hides from backtraces.
    Done,
    /// It is not a frame that runs a function.
    Invalid,
    /// The walk's buffer is full.
    Full,
}

/// An activation's frames: from the cursor to the first one with the mark TOP from the anchor on.
pub struct Group {
    /// The frame that `execute_ex` executes.
    pub anchor: u64,
    /// The opcode that it executes, where the register with it is known.
    pub opline: Option<u64>,
    /// No activation was met before: a call may have been prepared that no activation runs yet.
    pub is_innermost: bool,
}

/// What was found between the cursor and the anchor.
enum Above {
    /// The cursor is at the first frame of PHP code of the activation. `is_calling`: it has called something, so its
    /// opline is stored.
    Reached { is_calling: bool },
    /// The activation has no frame, or none any more.
    Empty,
    /// Something else.
    Doubt,
    /// The walk's buffer is full.
    Full,
}

/// Emits a group, and moves the cursor to the next one. False: some frames are missing or doubtful.
pub fn emit(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor, group: &Group) -> bool {
    match above(guest, facts, cursor, group) {
        Above::Reached { is_calling } => activation(guest, facts, cursor, group.opline.filter(|_| !is_calling)),
        Above::Empty | Above::Full => true,
        Above::Doubt => false,
    }
}

/// Emits what the anchor has called, and moves the cursor to the anchor.
fn above(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor, group: &Group) -> Above {
    let Some(anchor) = Frame::links(guest, facts, group.anchor) else { return Above::Doubt };
    let (mut is_calling, mut has_extra) = (false, false);
    for _ in 0..ABOVE {
        let at = cursor.frame;
        if at == group.anchor {
            return Above::Reached { is_calling };
        }
        if at == anchor.previous {
            // Its call begins or ends.
            return match anchor.is_top() {
                true => Above::Empty,
                false => Above::Reached { is_calling: true },
            };
        }
        let Some(frame) = Frame::read(guest, facts, at) else { return Above::Doubt };
        let emitted = match frame.kind {
            Kind::Placeholder => generator::emit_waiting(guest, facts, at, &frame),
            Kind::Internal => function::emit(guest, facts, &frame, Place::None),
            Kind::Code | Kind::Eval | Kind::Trampoline => {
                // One that is about to run, or has just run.
                let may_be = group.is_innermost && !has_extra && (frame.is_top() || frame.previous == group.anchor);
                if !may_be {
                    return Above::Doubt;
                }
                has_extra = true;
                let place = if frame.is_generator() { Place::At(frame.opline) } else { Place::Start };
                function::emit(guest, facts, &frame, place)
            }
        };
        match emitted {
            Emitted::Done => {}
            Emitted::Invalid => return Above::Doubt,
            Emitted::Full => return Above::Full,
        }
        is_calling = true;
        cursor.frame = frame.previous;
    }
    Above::Doubt
}

/// Emits an activation's frames of PHP code. `opline`: the innermost one's, if its own may be old.
fn activation(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor, opline: Option<u64>) -> bool {
    let (mut opline, mut shown, mut omitted) = (opline, 0u32, 0u32);
    for _ in 0..LIMIT {
        let at = cursor.frame;
        let Some(frame) = Frame::read(guest, facts, at).filter(|frame| frame.kind.is_code()) else { return false };
        cursor.frame = frame.previous;
        if shown % ASK == ASK - 1 && omitted == 0 {
            omitted = guest.omit(left(guest, facts, at));
        }
        shown = shown.wrapping_add(1);
        if omitted > 0 {
            omitted -= 1;
            opline = None;
        } else {
            let place = opline.take().map_or(Place::At(frame.opline), |now| Place::Now(now, frame.opline));
            match function::emit(guest, facts, &frame, place) {
                Emitted::Done => {}
                Emitted::Invalid => return false,
                Emitted::Full => return true,
            }
        }
        if frame.is_top() {
            return true;
        }
    }
    false
}

/// The number of frames of the activation from `at` on.
#[inline(never)]
fn left(guest: &Guest<'_>, facts: &Facts, at: u64) -> u32 {
    let mut address = at;
    for count in 0..COUNTED {
        match Frame::links(guest, facts, address) {
            Some(frame) if !frame.is_top() => address = frame.previous,
            Some(_) => return count.wrapping_add(1),
            None => return count,
        }
    }
    COUNTED
}
