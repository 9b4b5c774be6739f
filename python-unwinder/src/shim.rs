//! Activations of CPython 3.13: the chain of frames runs through all activations of the thread, and each activation
//! ends with a shim frame in its own C stack frame.

use crate::chain::{self, Emission, End};
use crate::cursor::{Cursor, ENDED, FAR, LOST, TRACKING};
use crate::frame::{PyFrame, OWNER_CSTACK};
use crate::overlay::Here;
use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER};

/// Starts at the thread state's `current_frame`.
pub fn begin(here: &Here<'_>, cursor: &mut Cursor, current_frame: u64) {
    cursor.next = current_frame;
    advance(here, cursor);
}

/// One native frame.
pub fn step(here: &Here<'_>, cursor: &mut Cursor) -> u32 {
    let mut answer = OVERLAY_INTERPRETER;
    if here.is_loop && !here.walk.exact() {
        // Activations that lie nearer the leaf than this frame and were never shown: the native walk went around them.
        // Each round takes at least one step, so the loop ends.
        while cursor.state == TRACKING && cursor.boundary < here.walk.view().sp {
            answer |= OVERLAY_DESYNC;
            advance(here, cursor);
        }
    }
    if cursor.state == FAR && here.is_loop {
        return far(here, cursor);
    }
    if cursor.state != TRACKING || !here.walk.inside(cursor.boundary) {
        return here.without_frames();
    }
    if here.confirm(cursor.boundary) {
        answer |= chain::emit(&here.walk, &here.facts, cursor.frame, cursor.frames).doubt();
    } else {
        answer |= OVERLAY_DESYNC;
    }
    advance(here, cursor);
    answer
}

/// Measures the chain from behind the boundary up to the next one.
fn advance(here: &Here<'_>, cursor: &mut Cursor) {
    let first = cursor.next;
    let stretch = chain::measure(&here.walk, &here.facts, cursor, first, 0, None);
    cursor.frame = stretch.first;
    cursor.frames = stretch.frames;
    match stretch.end {
        End::Shim { address, previous } => {
            cursor.state = TRACKING;
            cursor.boundary = address;
            cursor.next = previous;
        }
        End::Stop { .. } if stretch.frames == 0 => cursor.state = ENDED,
        End::Stop { .. } | End::Torn => cursor.state = LOST,
        End::TooLong => cursor.state = FAR,
    }
}

/// A chain too long to be measured fills the stack anyway. It belongs to this frame if a shim stands where this
/// interpreter has it.
fn far(here: &Here<'_>, cursor: &mut Cursor) -> u32 {
    cursor.state = LOST;
    let shim = here.usual_boundary().and_then(|at| PyFrame::read(&here.walk, &here.facts, at));
    let ours = shim.is_some_and(|shim| shim.owner == OWNER_CSTACK);
    if ours && chain::emit(&here.walk, &here.facts, cursor.frame, cursor.frames) == Emission::Full {
        return OVERLAY_INTERPRETER;
    }
    OVERLAY_INTERPRETER | OVERLAY_DESYNC
}
