//! The entry: shows one native frame to the interpreter it may belong to.

use crate::cursor::{Cursor, ENDED, FRESH};
use crate::facts::{Facts, CHAIN_SHIM};
use crate::learned::{Distance, Learned};
use crate::thread_state;
use crate::walk::Walk;
use crate::{cframe, shim};
use uunwind_core::plugin::{View, OVERLAY_DESYNC, OVERLAY_INTERPRETER, OVERLAY_NONE};

/// The native frame in hand, with all that bears on it.
pub struct Here<'v> {
    /// The frame and the host.
    pub walk: Walk<'v>,
    /// The interpreter's facts.
    pub facts: Facts,
    /// What was learned about it.
    learned: Option<&'static Learned>,
    /// The frame's function is known to be part of the interpreter loop.
    pub is_loop: bool,
}

impl Here<'_> {
    /// The answer for a frame in which no boundary lies. An interrupted loop function may be in its prologue or exit;
    /// one that has called something has frames, so they are missing.
    pub fn without_frames(&self) -> u32 {
        match (self.is_loop, self.walk.exact()) {
            (false, _) => OVERLAY_NONE,
            (true, true) => OVERLAY_INTERPRETER,
            (true, false) => OVERLAY_INTERPRETER | OVERLAY_DESYNC,
        }
    }

    /// Where the activation of this frame has its boundary, by what was learned.
    pub fn usual_boundary(&self) -> Option<u64> {
        let boundary = self.walk.view().cfa.checked_sub(self.learned?.distance()?)?;
        self.walk.inside(boundary).then_some(boundary)
    }

    /// The boundary was found in this frame: is it where it always is? Learns its place and the frame's function.
    pub fn confirm(&self, boundary: u64) -> bool {
        let Some(learned) = self.learned else {
            return true;
        };
        let view = self.walk.view();
        let news = match learned.observe(view.cfa.wrapping_sub(boundary)) {
            Distance::Other => return false,
            Distance::New => true,
            Distance::Same => false,
        };
        let new_range = !self.is_loop && view.function_start != 0 && learned.add_range(view.function_start);
        if news || new_range {
            self.walk.learned();
        }
        true
    }
}

/// [`uunwind_core::plugin::Plugin::overlay`] of this plugin.
///
/// # Safety
/// `view` must be null or a view filled by a host of this ABI: its facts, scratch memory and host functions are used.
pub unsafe extern "C" fn overlay(view: *mut View) -> u32 {
    // SAFETY: the caller's promise.
    let Some(walk) = (unsafe { Walk::new(view) }) else {
        return OVERLAY_NONE;
    };
    let view = walk.view();
    if view.facts.is_null() || view.cfa <= view.sp {
        return OVERLAY_NONE;
    }
    // SAFETY: the host's facts are `facts_len` readable bytes that don't change during the call.
    let bytes = unsafe { core::slice::from_raw_parts(view.facts, view.facts_len) };
    let Some(facts) = Facts::from_bytes(bytes) else {
        return OVERLAY_NONE;
    };
    // SAFETY: the host's scratch memory is this plugin's alone, and zeroed when the walk begins.
    let Some(cursor) = (unsafe { Cursor::of(view.scratch, view.facts) }) else {
        return OVERLAY_NONE;
    };
    let learned = Learned::of(view.facts);
    let here = Here { is_loop: is_loop(view, &facts, learned), walk, facts, learned };
    if cursor.state == FRESH {
        begin(&here, cursor);
    }
    match here.facts.chain {
        CHAIN_SHIM => shim::step(&here, cursor),
        _ => cframe::step(&here, cursor),
    }
}

fn is_loop(view: &View, facts: &Facts, learned: Option<&Learned>) -> bool {
    let eval = view.bias.wrapping_add(facts.eval);
    let by_symbol = view.function_start <= eval && eval < view.function_end;
    view.function_start != 0 && (by_symbol || learned.is_some_and(|l| l.has_range(view.function_start)))
}

fn begin(here: &Here<'_>, cursor: &mut Cursor) {
    cursor.state = ENDED;
    let Some(tstate) = thread_state::current(&here.walk, &here.facts) else {
        return;
    };
    cursor.tstate = tstate;
    let Some(entry) = here.walk.word(tstate.wrapping_add(u64::from(here.facts.tstate_entry))) else {
        return;
    };
    match here.facts.chain {
        CHAIN_SHIM => shim::begin(here, cursor, entry),
        _ => cframe::begin(cursor, entry),
    }
}
