//! Which control frames belong to the current native frame.
//!
//! The walk meets native frames from the leaf to the root, and the control frames lie in the same order. An activation
//! is a frame of `vm_exec`; its callee is the interpreter's loop, `vm_exec_core`, unless it is just beginning, has just
//! ended, or handles an exception. See `vm_exec` in <https://github.com/ruby/ruby/blob/v3_1_2/vm.c>.
//!
//! * `vm_exec` links a tag, which lies in its own native frame, into the chain that begins at `ec->tag`: while the tag
//!   is linked, the activation lives.
//! * The loop keeps the control frame that it executes in one register: the *anchor*. Between the cursor and the anchor
//!   lie C functions that this frame has called; the activation ends at the first FINISH from the anchor on.
//! * C functions that no activation surrounds, as at the start of a Fiber, are hosted by the functions that call them:
//!   one by each.
//! * While the loop's `leave` returns from a frame, the anchor is one that was popped already.

use crate::context::Context;
use crate::control_frame::{ControlFrame, Kind};
use crate::cursor::{Cursor, ANCHORED, ANCHORED_EXACTLY, ENTERING, FRESH, LEAVING, NONE, NO_LOOP, READY, UNKNOWN};
use crate::emission::{self, Group};
use crate::facts::{Extent, Facts};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER, OVERLAY_NONE, UNTOUCHED};

/// The answer about a frame that is no activation: no frames, and the scratch memory is unchanged.
pub const NO_OVERLAY: u32 = OVERLAY_NONE | UNTOUCHED;
/// The answer about a frame that only passes a call on: it may be hidden, and the scratch memory is unchanged.
const PASSING: u32 = OVERLAY_INTERPRETER | UNTOUCHED;
/// The answer where Ruby frames must be, but were not found.
const DOUBT: u32 = OVERLAY_INTERPRETER | OVERLAY_DESYNC;
/// Limit of C functions that no activation surrounds.
const BASE_LIMIT: u32 = 64;
/// Limit of tags that one walk passes: each lies in a native frame.
const TAGS: u32 = uunwind_core::walk::DEEPEST;

/// [`uunwind_core::plugin::Plugin::overlay`] of this plugin.
pub fn overlay(guest: &Guest<'_>) -> u32 {
    let view = guest.view();
    if view.facts.is_null() || view.cfa <= view.sp {
        return NO_OVERLAY;
    }
    let Some(facts) = Facts::read(guest.facts()) else { return NO_OVERLAY };
    let lookup = guest.lookup_pc().wrapping_sub(view.bias);
    let (is_core, is_exec) = (facts.core.contains(lookup), facts.exec.contains(lookup));
    let is_among = |list: &[Extent]| list.iter().any(|function| function.contains(lookup));
    let calls_c = is_among(&facts.pushing);
    if !is_core && !is_exec && !calls_c {
        return if is_among(&facts.passing) { PASSING } else { NO_OVERLAY };
    }
    let Some(cursor) = Cursor::of(guest) else { return DOUBT };
    if cursor.state == FRESH {
        cursor.state = NONE;
        if let Some(context) = Context::of(guest, facts) {
            (cursor.frame, cursor.end, cursor.tag) = (context.frame, context.end, context.tag);
            cursor.state = READY;
        }
    }
    if is_core {
        (cursor.loop_state, cursor.anchor) = in_loop(guest, facts, lookup);
        return OVERLAY_INTERPRETER;
    }
    if calls_c {
        return call_c(guest, facts, cursor);
    }
    let loop_state = core::mem::replace(&mut cursor.loop_state, NO_LOOP);
    if cursor.state != READY {
        return DOUBT;
    }
    execute(guest, facts, cursor, loop_state, lookup)
}

/// A frame of a function that calls C functions or C blocks. What it has called is hosted by the activation around it,
/// if there is one.
fn call_c(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor) -> u32 {
    if cursor.state != READY || !is_at_base(guest, facts, cursor) {
        return OVERLAY_INTERPRETER;
    }
    if guest.exact() {
        // It has made the control frame, or not yet, or has none any more.
        return DOUBT;
    }
    cursor.met = cursor.met.saturating_add(1);
    answer(emission::emit_one(guest, facts, cursor))
}

/// Are some control frames left, and all of them those of C functions and C blocks?
fn is_at_base(guest: &Guest<'_>, facts: &Facts, cursor: &Cursor) -> bool {
    let mut at = cursor.frame;
    for _ in 0..BASE_LIMIT {
        let Some(frame) = ControlFrame::read(guest, facts, at) else { return false };
        match frame.kind {
            Kind::Ruby => return false,
            Kind::Dummy => return at != cursor.frame,
            Kind::C | Kind::CBlock => {}
        }
        at = at.wrapping_add(facts.frame_bytes.into());
    }
    false
}

/// The state of a frame of the interpreter's loop, and its anchor.
fn in_loop(guest: &Guest<'_>, facts: &Facts, lookup: u64) -> (u32, u64) {
    let view = guest.view();
    if guest.exact() {
        if lookup.wrapping_sub(facts.core.start) < u64::from(facts.core_entry) {
            return (ENTERING, 0);
        }
        if view.cfa.wrapping_sub(view.sp) < u64::from(facts.core_frame) {
            return (LEAVING, 0);
        }
    }
    match guest.register(facts.core_register as u8) {
        Some(anchor) if guest.exact() => (ANCHORED_EXACTLY, anchor),
        Some(anchor) => (ANCHORED, anchor),
        None => (UNKNOWN, 0),
    }
}

/// A frame of `vm_exec`.
fn execute(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor, loop_state: u32, lookup: u64) -> u32 {
    let is_innermost = cursor.met == 0;
    let Some(tag) = own_tag(guest, facts, cursor) else {
        // No tag is linked before the activation begins and after it has ended.
        if !is_innermost {
            return DOUBT;
        }
        if lookup.wrapping_sub(facts.exec.start) < u64::from(facts.exec_entry) {
            cursor.met = 1;
            return answer(emission::emit(guest, facts, cursor, &Group { anchor: 0, is_innermost }));
        }
        if !guest.exact() {
            return DOUBT;
        }
        return if begins(guest, facts, cursor) { DOUBT } else { OVERLAY_INTERPRETER };
    };
    cursor.met = cursor.met.saturating_add(1);
    let size = u64::from(facts.frame_bytes);
    let anchor = match loop_state {
        ANCHORED | ANCHORED_EXACTLY => {
            let anchor = cursor.anchor;
            if anchor >= cursor.end || !cursor.end.wrapping_sub(anchor).is_multiple_of(size) {
                return DOUBT;
            }
            if anchor < cursor.frame {
                // Popped, by the instruction that executes. If it was the activation's outermost, that has none now.
                if loop_state == ANCHORED || !is_innermost || anchor.wrapping_add(size) != cursor.frame {
                    return DOUBT;
                }
                match ControlFrame::read(guest, facts, anchor) {
                    Some(popped) if popped.is_finish() => return OVERLAY_INTERPRETER,
                    Some(_) => {}
                    None => return DOUBT,
                }
            }
            anchor.max(cursor.frame)
        }
        NO_LOOP if guest.exact() && facts.leaving.iter().any(|range| range.contains(lookup)) => {
            return has_ended(guest, facts, cursor, tag);
        }
        LEAVING => return has_ended(guest, facts, cursor, tag),
        NO_LOOP | ENTERING => 0,
        _ => return DOUBT,
    };
    answer(emission::emit(guest, facts, cursor, &Group { anchor, is_innermost }))
}

/// The loop has returned. Its control frames were popped, except where the tag's state says that something was thrown.
fn has_ended(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor, tag: u64) -> u32 {
    match guest.half(tag.wrapping_add(facts.tag_state.into())) {
        Some(0) => OVERLAY_INTERPRETER,
        Some(_) => answer(emission::emit(guest, facts, cursor, &Group { anchor: 0, is_innermost: true })),
        None => DOUBT,
    }
}

fn answer(is_sure: bool) -> u32 {
    if is_sure {
        OVERLAY_INTERPRETER
    } else {
        DOUBT
    }
}

/// The tag that lies in the current native frame. Passes those of inner frames. `None`: there is none.
fn own_tag(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor) -> Option<u64> {
    let view = guest.view();
    while cursor.tag != 0 && cursor.tag < view.sp && cursor.tags < TAGS {
        cursor.tags = cursor.tags.wrapping_add(1);
        let next = guest.word(cursor.tag.wrapping_add(facts.tag_previous.into())).unwrap_or(0);
        // Outer frames lie above.
        cursor.tag = if next > cursor.tag { next } else { 0 };
    }
    guest.inside(cursor.tag).then_some(cursor.tag)
}

/// Does the innermost control frame wait to be executed for the first time?
fn begins(guest: &Guest<'_>, facts: &Facts, cursor: &Cursor) -> bool {
    let Some(frame) = ControlFrame::read(guest, facts, cursor.frame) else { return true };
    let code = || {
        let body = guest.word(frame.iseq.wrapping_add(facts.iseq_body.into()))?;
        guest.word(body.wrapping_add(facts.body_code.into()))
    };
    frame.is_finish() && code().is_none_or(|code| code == frame.pc)
}
