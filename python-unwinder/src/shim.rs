//! Activations of CPython 3.13 and later: one chain of frames runs through all activations of the thread, and each
//! activation ends with a shim frame in its own C stack frame (`entry_frame` in
//! <https://github.com/python/cpython/blob/v3.13.0/Python/ceval.c>).

use crate::awaiting;
use crate::chain::{self, Debt, Live, Stretch, StretchEnd};
use crate::cursor::{Cursor, DUE, ENDED, FAR, LOST, TRACKING};
use crate::draft::Drafted;
use crate::emission::{self, Emission};
use crate::frame::{PyFrame, OWNER_CSTACK};
use crate::other_states;
use crate::overlay::Here;
use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER};

/// The chain is to be followed from this frame on: that of the thread state, or the one after a boundary. 0: it has
/// ended.
pub fn begin(cursor: &mut Cursor, next: u64) {
    // Nothing stays of the activation before: kept walks are compared with the cursor.
    (cursor.frame, cursor.boundary, cursor.frames) = (0, 0, 0);
    cursor.next = next;
    cursor.state = if next == 0 { ENDED } else { DUE };
}

/// Follows the chain of another thread state to its first boundary that is not on the leaf's side of this native frame.
fn lead(here: &Here<'_>, cursor: &mut Cursor) {
    let entry = cursor.tstate.wrapping_add(u64::from(here.facts.tstate_entry));
    let Some(current_frame) = here.guest.word(entry) else { return };
    cursor.next = current_frame;
    advance(here, cursor);
    // Each round takes at least one step, so the loop ends.
    while cursor.state == TRACKING && cursor.boundary < here.guest.view().sp {
        advance(here, cursor);
    }
}

/// Handles one native frame: emits the Python frames that run in it. Returns `OVERLAY_*` flags.
pub fn step(here: &Here<'_>, cursor: &mut Cursor) -> u32 {
    let mut drafted = None;
    if cursor.state == DUE {
        // The chain is followed as late as possible: in the native frame that it belongs to its frames can be drafted.
        if here.is_loop {
            let draft = Drafted::frames(here.guest, here.facts, cursor.next, 0, &Live::ALL, cursor.steps_left());
            drafted = Some(advance_after(here, cursor, draft));
        } else if here.may_hide_activation() {
            advance(here, cursor);
        } else {
            return here.without_frames();
        }
    }
    let mut answer = OVERLAY_INTERPRETER;
    if here.is_loop && !here.guest.exact() {
        // Boundaries below this frame's stack pointer belong to activations that were never shown: the native walk
        // missed them.
        // Each round takes at least one step, so the loop ends.
        while cursor.state == TRACKING && cursor.boundary < here.guest.view().sp {
            answer |= OVERLAY_DESYNC;
            advance(here, cursor);
            drafted = None;
        }
        if cursor.state != FAR && !(cursor.state == TRACKING && here.guest.inside(cursor.boundary)) {
            drafted = None;
            other_states::follow(here, cursor, lead);
        }
    }
    if cursor.state == FAR && here.is_loop {
        return far(here, cursor);
    }
    if cursor.state == LOST && here.is_loop {
        // Its frames may be among those that could not be read, also where the loop itself was interrupted.
        return OVERLAY_INTERPRETER | OVERLAY_DESYNC;
    }
    if cursor.state != TRACKING || !here.guest.inside(cursor.boundary) {
        return here.without_frames();
    }
    if here.confirm(cursor.boundary) {
        let owes = core::mem::take(&mut cursor.owes) != 0;
        let stretch = measured(cursor, owes, drafted);
        let emission = emission::emit(here.guest, here.facts, &stretch);
        if emission == Emission::Full || !awaiting::emit(here.guest, here.facts, cursor) {
            return answer;
        }
        answer |= emission.doubt();
    } else {
        answer |= OVERLAY_DESYNC;
    }
    begin(cursor, cursor.next);
    answer
}

/// Measures the chain from the frame after the boundary to the next boundary.
fn advance(here: &Here<'_>, cursor: &mut Cursor) {
    // Its activation's native frame is yet to come, so nothing can be drafted.
    advance_after(here, cursor, Drafted::nothing(cursor.next));
}

/// The same, from where the draft ends. The draft is given back.
fn advance_after(here: &Here<'_>, cursor: &mut Cursor, begin: Drafted) -> Drafted {
    if core::mem::take(&mut cursor.owes) != 0 {
        Debt::miss(here.guest);
    }
    let stretch = chain::measure(here.guest, here.facts, cursor, begin, 0, None);
    match stretch.end {
        StretchEnd::Shim { .. } if stretch.owes => {
            cursor.owes = 1;
            Debt::owe(here.guest);
        }
        _ if stretch.owes => Debt::miss(here.guest),
        _ => {}
    }
    cursor.frame = cursor.next;
    cursor.frames = stretch.frames;
    match stretch.end {
        // In 3.15 the chain ends in the thread state, with a frame that has the owner of shims.
        StretchEnd::Shim { address, previous: 0 } if stretch.frames == 0 && is_base(here, cursor, address) => {
            cursor.state = ENDED;
        }
        StretchEnd::Shim { address, previous } => {
            cursor.state = TRACKING;
            cursor.boundary = address;
            cursor.next = previous;
        }
        StretchEnd::Stop { .. } if stretch.frames == 0 => cursor.state = ENDED,
        StretchEnd::Stop { .. } | StretchEnd::Torn => cursor.state = LOST,
        StretchEnd::TooLong => cursor.state = FAR,
    }
    stretch.begin
}

/// The stretch before the boundary, as it was measured. These versions mark no frame as the first of its activation.
fn measured(cursor: &Cursor, owes: bool, drafted: Option<Drafted>) -> Stretch {
    let Cursor { frame: first, frames, boundary: after, next, .. } = *cursor;
    let end = StretchEnd::Shim { address: after, previous: next };
    let begin = drafted.unwrap_or_else(|| Drafted::nothing(first));
    Stretch { begin, frames, after, entry: frames == 0, owes, end }
}

/// A chain too long to be measured fills the stack in any case. It belongs to this frame if a shim lies at the place
/// that was learned for this interpreter.
fn far(here: &Here<'_>, cursor: &mut Cursor) -> u32 {
    cursor.state = LOST;
    let shim = here.usual_boundary().and_then(|at| PyFrame::read(here.guest, here.facts, at));
    let ours = shim.is_some_and(|shim| shim.owner == OWNER_CSTACK);
    let stretch = measured(cursor, false, None);
    if ours && emission::emit(here.guest, here.facts, &stretch) == Emission::Full {
        return OVERLAY_INTERPRETER;
    }
    OVERLAY_INTERPRETER | OVERLAY_DESYNC
}

/// Is this `PyThreadState.base_frame`, the end of the chain (3.15)?
fn is_base(here: &Here<'_>, cursor: &Cursor, frame: u64) -> bool {
    let at = here.facts.tstate_base_frame;
    at != 0 && here.guest.word(cursor.tstate.wrapping_add(u64::from(at))) == Some(frame)
}
