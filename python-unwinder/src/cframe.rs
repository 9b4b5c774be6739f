//! Activations of CPython 3.11 and 3.12: each has a `_PyCFrame` in its own C stack frame, which shows the activation's
//! innermost Python frame and links to the outer `_PyCFrame`.
//!
//! The interpreter publishes a new `_PyCFrame` before it has filled it, so a sample there would read what an earlier
//! call left on the stack. Hence: of the thread state's pointer only the *address* is trusted (it tells which native
//! frame is the innermost activation), and an activation is told only when its chain agrees with its outer
//! `_PyCFrame` and no frame in it was popped. Activations that have called something are past that window.

use crate::chain::{self, Emission, End, Live, Stretch};
use crate::cursor::{Cursor, ENDED, TENTATIVE, TRACKING};
use crate::facts::CHAIN_CFRAME_SHIM;
use crate::overlay::Here;
use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER};

/// The window in which a `_PyCFrame` is published and not filled lies in so many bytes from the loop's entry (the
/// farthest seen is 0xa6).
const ENTRY_BYTES: u64 = 0x140;

/// Starts at the thread state's `cframe`.
pub fn begin(cursor: &mut Cursor, cframe: u64) {
    cursor.boundary = cframe;
    cursor.state = TRACKING;
}

/// One native frame.
pub fn step(here: &Here<'_>, cursor: &mut Cursor) -> u32 {
    let known = matches!(cursor.state, TRACKING | TENTATIVE);
    // A hint may lead anywhere, so it counts only where a boundary can be.
    let here_it_is = here.walk.inside(cursor.boundary)
        && (cursor.state == TRACKING || here.usual_boundary().is_none_or(|usual| usual == cursor.boundary));
    if known && here_it_is {
        return activation(here, cursor, cursor.boundary);
    }
    if !known || !here.is_loop || here.walk.exact() {
        return here.without_frames();
    }
    // An activation that is not the one the chain goes on with. Its own `_PyCFrame` is where it always is.
    let surprise = if cursor.state == TENTATIVE { 0 } else { OVERLAY_DESYNC };
    match here.usual_boundary() {
        Some(cframe) => surprise | activation(here, cursor, cframe),
        None => OVERLAY_INTERPRETER | OVERLAY_DESYNC,
    }
}

/// A `_PyCFrame`.
struct CFrame {
    /// Innermost Python frame of the activation.
    current: u64,
    /// The outer activation's `_PyCFrame`; 0 in the outermost one, which belongs to no activation.
    previous: u64,
}

fn read(here: &Here<'_>, at: u64) -> Option<CFrame> {
    if at == 0 || !at.is_multiple_of(8) {
        return None;
    }
    Some(CFrame {
        current: here.walk.word(at.wrapping_add(u64::from(here.facts.cframe_current)))?,
        previous: here.walk.word(at.wrapping_add(u64::from(here.facts.cframe_previous)))?,
    })
}

/// Tells the activation whose `_PyCFrame` stands at `at`, inside the native frame.
fn activation(here: &Here<'_>, cursor: &mut Cursor, at: u64) -> u32 {
    let own = read(here, at);
    if let Some((own, outer)) = own.as_ref().and_then(|own| Some((own, outer(here, cursor, own)?))) {
        if let Some(stretch) = checked(here, cursor, own, &outer) {
            cursor.boundary = own.previous;
            cursor.state = if outer.current == 0 { ENDED } else { TRACKING };
            if !here.confirm(at) {
                return OVERLAY_INTERPRETER | OVERLAY_DESYNC;
            }
            let emission = chain::emit(&here.walk, &here.facts, stretch.first, stretch.frames);
            if matches!(stretch.end, End::TooLong) && emission != Emission::Full {
                return OVERLAY_INTERPRETER | OVERLAY_DESYNC;
            }
            return OVERLAY_INTERPRETER | emission.doubt();
        }
    }
    // Not filled yet, or torn. The link outwards may be right all the same: the next activation will tell.
    cursor.boundary = own.map_or(0, |own| own.previous);
    cursor.state = TENTATIVE;
    if in_entry(here) {
        OVERLAY_INTERPRETER
    } else {
        OVERLAY_INTERPRETER | OVERLAY_DESYNC
    }
}

/// The outer `_PyCFrame`, if it stands where it can stand and says what it can say.
///
/// It belongs to an activation further out, with a frame; or it is the outermost one, in the thread state, all zero; or
/// it is a copy of that, with a link to it, which greenlets put on the stack where they start.
fn outer(here: &Here<'_>, cursor: &Cursor, own: &CFrame) -> Option<CFrame> {
    let further_out = own.previous >= here.walk.view().cfa;
    // An activation that has called something is past the window, so what it links to may be another thread state (of a
    // subinterpreter) as well.
    let is_root = |at: u64| {
        let this_one = at == cursor.tstate.wrapping_add(u64::from(here.facts.tstate_root_cframe));
        (this_one || !here.walk.exact()) && read(here, at).is_some_and(|root| root.current == 0 && root.previous == 0)
    };
    let outer = read(here, own.previous)?;
    let plausible = match (outer.current, outer.previous) {
        (0, 0) => is_root(own.previous),
        (0, root) => further_out && is_root(root),
        (_, previous) => further_out && previous != 0,
    };
    plausible.then_some(outer)
}

/// Measures the activation's chain and compares its end with the outer `_PyCFrame`. `None`: they disagree.
fn checked(here: &Here<'_>, cursor: &mut Cursor, own: &CFrame, outer: &CFrame) -> Option<Stretch> {
    let live = Live::read(&here.walk, &here.facts, cursor.tstate, !in_entry(here))?;
    let with_shim = here.facts.chain == CHAIN_CFRAME_SHIM;
    let stop = if with_shim { 0 } else { outer.current };
    let stretch = chain::measure(&here.walk, &here.facts, cursor, own.current, stop, Some(&live));
    let agrees = match stretch.end {
        End::Stop { entry } => !with_shim && entry,
        End::Shim { address, previous } => with_shim && here.walk.inside(address) && previous == outer.current,
        // As a rule it fills the stack.
        End::TooLong => true,
        End::Torn => false,
    };
    agrees.then_some(stretch)
}

/// May this interrupted frame be in the part of the loop function where the `_PyCFrame` is not filled yet?
fn in_entry(here: &Here<'_>) -> bool {
    let view = here.walk.view();
    here.walk.exact() && here.is_loop && view.pc.wrapping_sub(view.function_start) < ENTRY_BYTES
}
