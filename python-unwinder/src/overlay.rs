//! The plugin's `overlay` function: the host shows it each native frame of an interpreter's object.

use crate::cursor::{Cursor, ENDED, FRESH};
use crate::facts::{Boundary, Facts};
use crate::runtime_discovery::{Distance, Learned};
use crate::thread_state;
use crate::{cframe, frame_object, shim};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{View, OVERLAY_DESYNC, OVERLAY_INTERPRETER, OVERLAY_NONE};

/// The current native frame, with all that is needed to judge it.
pub struct Here<'v> {
    /// The native frame, and the functions of the host.
    pub guest: &'v Guest<'v>,
    /// Facts about the interpreter.
    pub facts: &'v Facts,
    /// How its activations are bounded.
    pub boundary: Boundary,
    /// What was learned about it; `None` if there is no room for it.
    learned: Option<&'static Learned>,
    /// The frame's function is part of the interpreter loop, by its symbol or as learned.
    pub is_loop: bool,
}

impl Here<'_> {
    /// The answer for a frame in which no boundary lies. An interrupted loop function may be in its prologue or
    /// epilogue; one that has called something must have frames, so they are missing.
    pub fn without_frames(&self) -> u32 {
        match (self.is_loop, self.guest.exact()) {
            (false, _) => OVERLAY_NONE,
            (true, true) => OVERLAY_INTERPRETER,
            (true, false) => OVERLAY_INTERPRETER | OVERLAY_DESYNC,
        }
    }

    /// Whether this frame of another function may have an activation: the compiler may have split the loop into
    /// several, and a wrong step may have made it span the loop's frame. False: it is too small for what was learned.
    pub fn may_hide_activation(&self) -> bool {
        let is_learning = self.learned.is_none_or(|learned| learned.distance().is_none());
        is_learning || self.usual_boundary().is_some()
    }

    /// The address at which this frame's activation must have its boundary, by the learned distance.
    pub fn usual_boundary(&self) -> Option<u64> {
        let boundary = self.guest.view().cfa.checked_sub(self.learned?.distance()?)?;
        self.guest.inside(boundary).then_some(boundary)
    }

    /// A boundary was found in this frame: does it lie at the usual place? Learns its place and the frame's function.
    pub fn confirm(&self, boundary: u64) -> bool {
        let Some(learned) = self.learned else {
            return true;
        };
        let view = self.guest.view();
        let news = match learned.observe(view.cfa.wrapping_sub(boundary)) {
            Distance::Other => return false,
            Distance::New => true,
            Distance::Same => false,
        };
        let new_range = !self.is_loop && view.function_start != 0 && learned.add_range(view.function_start);
        if news || new_range {
            self.guest.learned();
        }
        true
    }
}

/// [`uunwind_core::plugin::Plugin::overlay`] of this plugin.
pub fn overlay(guest: &Guest<'_>) -> u32 {
    let view = guest.view();
    if view.facts.is_null() || view.cfa <= view.sp {
        return OVERLAY_NONE;
    }
    let Some(facts) = Facts::read(guest.facts()) else {
        return OVERLAY_NONE;
    };
    let Some(boundary) = facts.boundary() else {
        return OVERLAY_NONE;
    };
    let learned = Learned::of(view.facts);
    let is_loop = is_loop(view, facts, learned);
    let Some(cursor) = Cursor::of(guest, view.facts) else {
        // One interpreter more than a walk has cursors for: its frames are missing.
        return if is_loop { OVERLAY_INTERPRETER | OVERLAY_DESYNC } else { OVERLAY_NONE };
    };
    let here = Here { is_loop, guest, facts, boundary, learned };
    if cursor.state == FRESH {
        begin(&here, cursor);
    }
    match here.boundary {
        Boundary::CFrame | Boundary::CFrameShim => cframe::step(&here, cursor),
        Boundary::Shim => shim::step(&here, cursor),
        Boundary::FrameObject => frame_object::step(&here, cursor),
    }
}

fn is_loop(view: &View, facts: &Facts, learned: Option<&Learned>) -> bool {
    let eval = view.bias.wrapping_add(facts.eval);
    let by_symbol = view.function_start <= eval && eval < view.function_end;
    view.function_start != 0 && (by_symbol || learned.is_some_and(|l| l.has_range(view.function_start)))
}

fn begin(here: &Here<'_>, cursor: &mut Cursor) {
    cursor.state = ENDED;
    let Some(tstate) = thread_state::current(here.guest, here.facts) else {
        return;
    };
    cursor.tstate = tstate;
    let Some(entry) = here.guest.word(tstate.wrapping_add(u64::from(here.facts.tstate_entry))) else {
        return;
    };
    match here.boundary {
        Boundary::CFrame | Boundary::CFrameShim => cframe::begin(cursor, entry),
        Boundary::Shim => shim::begin(cursor, entry),
        Boundary::FrameObject => frame_object::begin(cursor, entry),
    }
}
