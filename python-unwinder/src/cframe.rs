//! Activations of CPython 3.11 and 3.12: each keeps a `_PyCFrame` in its own C stack frame, which points to the
//! activation's innermost Python frame and to the outer activation's `_PyCFrame`
//! (<https://github.com/python/cpython/blob/v3.12.1/Include/cpython/pystate.h>, set up in
//! <https://github.com/python/cpython/blob/v3.12.1/Python/ceval.c>).
//!
//! The interpreter publishes a new `_PyCFrame` before it has filled it, so a sample taken there would read what an
//! earlier call left on the stack. For this reason only the *address* in the thread state is trusted (it determines
//! which native frame is the innermost activation), and an activation's frames are emitted only if its chain agrees
//! with its outer `_PyCFrame` and none of its frames was popped. An activation that has called something has its
//! `_PyCFrame` filled.

use crate::chain::{self, Debt, Live, Stretch, StretchEnd};
use crate::cursor::{Cursor, ENDED, TENTATIVE, TRACKING};
use crate::draft::Drafted;
use crate::emission::{self, Emission};
use crate::facts::Boundary;
use crate::other_states;
use crate::overlay::Here;
use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER};

/// A `_PyCFrame` may be published and not filled only within this many bytes from the loop's entry (the
/// largest distance observed in a build is 0xa6).
const ENTRY_BYTES: u64 = 0x140;

/// Starts at the thread state's `cframe`.
pub fn begin(cursor: &mut Cursor, cframe: u64) {
    cursor.boundary = cframe;
    cursor.state = TRACKING;
}

/// Follows the chain of another thread state to its first boundary that is not on the leaf's side of this native frame.
fn lead(here: &Here<'_>, cursor: &mut Cursor) {
    let entry = cursor.tstate.wrapping_add(u64::from(here.facts.tstate_entry));
    let Some(cframe) = here.guest.word(entry) else { return };
    begin(cursor, cframe);
    while cursor.boundary < here.guest.view().sp && cursor.steps_left() > 0 {
        cursor.steps += 1;
        let outer = read(here, cursor.boundary).map_or(0, |cframe| cframe.previous);
        if outer <= cursor.boundary {
            cursor.state = ENDED;
            return;
        }
        cursor.boundary = outer;
    }
}

/// Handles one native frame: emits the Python frames that run in it. Returns `OVERLAY_*` flags.
pub fn step(here: &Here<'_>, cursor: &mut Cursor) -> u32 {
    let has_boundary = cursor.has_boundary();
    // A tentative boundary may be anywhere, so it counts only at the usual place.
    let here_it_is = here.guest.inside(cursor.boundary)
        && (cursor.state == TRACKING || here.usual_boundary().is_none_or(|usual| usual == cursor.boundary));
    if has_boundary && here_it_is {
        return activation(here, cursor, cursor.boundary);
    }
    if here.is_loop && !here.guest.exact() && other_states::follow(here, cursor, lead) {
        return activation(here, cursor, cursor.boundary);
    }
    if !has_boundary || !here.is_loop || here.guest.exact() {
        return here.without_frames();
    }
    // An activation that the chain does not continue with. Its own `_PyCFrame` lies at the usual place.
    let surprise = if cursor.state == TENTATIVE { 0 } else { OVERLAY_DESYNC };
    match here.usual_boundary() {
        Some(cframe) => surprise | activation(here, cursor, cframe),
        None => OVERLAY_INTERPRETER | OVERLAY_DESYNC,
    }
}

/// The fields of a `_PyCFrame`.
struct CFrame {
    /// Address of the innermost Python frame of the activation (`current_frame`).
    current: u64,
    /// Address of the outer activation's `_PyCFrame` (`previous`); 0 in the outermost one, which belongs to no
    /// activation.
    previous: u64,
}

fn read(here: &Here<'_>, at: u64) -> Option<CFrame> {
    if at == 0 || !at.is_multiple_of(8) {
        return None;
    }
    Some(CFrame {
        current: here.guest.word(at.wrapping_add(u64::from(here.facts.cframe_current)))?,
        previous: here.guest.word(at.wrapping_add(u64::from(here.facts.cframe_previous)))?,
    })
}

/// Emits the activation whose `_PyCFrame` lies at `at`, inside the native frame.
fn activation(here: &Here<'_>, cursor: &mut Cursor, at: u64) -> u32 {
    let own = read(here, at);
    if let Some((own, outer)) = own.as_ref().and_then(|own| Some((own, outer(here, cursor, own)?))) {
        if let Some(stretch) = checked(here, cursor, own, &outer) {
            cursor.boundary = own.previous;
            cursor.state = if outer.current == 0 { ENDED } else { TRACKING };
            if !here.confirm(at) {
                if stretch.owes {
                    Debt::miss(here.guest);
                }
                return OVERLAY_INTERPRETER | OVERLAY_DESYNC;
            }
            let emission = emission::emit(here.guest, here.facts, &stretch);
            if matches!(stretch.end, StretchEnd::TooLong) && emission != Emission::Full {
                return OVERLAY_INTERPRETER | OVERLAY_DESYNC;
            }
            return OVERLAY_INTERPRETER | emission.doubt();
        }
    }
    // Not filled yet, or torn. Its link to the outer activation may still be right: the next activation decides.
    cursor.boundary = own.map_or(0, |own| own.previous);
    cursor.state = TENTATIVE;
    if in_entry(here) {
        OVERLAY_INTERPRETER
    } else {
        OVERLAY_INTERPRETER | OVERLAY_DESYNC
    }
}

/// The outer `_PyCFrame`, if its address and its fields are possible.
///
/// It belongs to an outer activation and points to a frame; or it is the outermost one, in the thread state, all zero;
/// or it is a copy of the outermost one with a link to it, which greenlets put on the stack where they start.
fn outer(here: &Here<'_>, cursor: &Cursor, own: &CFrame) -> Option<CFrame> {
    let is_outer = own.previous >= here.guest.view().cfa;
    // A `_PyCFrame` is filled once its activation has called something, so then it may also link to the root of another
    // thread state (of a subinterpreter).
    let is_root = |at: u64| {
        let this_one = at == cursor.tstate.wrapping_add(u64::from(here.facts.tstate_root_cframe));
        (this_one || !here.guest.exact()) && read(here, at).is_some_and(|root| root.current == 0 && root.previous == 0)
    };
    let outer = read(here, own.previous)?;
    let plausible = match (outer.current, outer.previous) {
        (0, 0) => is_root(own.previous),
        (0, root) => is_outer && is_root(root),
        (_, previous) => is_outer && previous != 0,
    };
    plausible.then_some(outer)
}

/// Measures the activation's chain and compares its end with the outer `_PyCFrame`. `None` if they disagree.
fn checked(here: &Here<'_>, cursor: &mut Cursor, own: &CFrame, outer: &CFrame) -> Option<Stretch> {
    let live = Live::read(here.guest, here.facts, cursor.tstate, !in_entry(here))?;
    let with_shim = here.boundary == Boundary::CFrameShim;
    let stop = if with_shim { 0 } else { outer.current };
    let begin = Drafted::frames(here.guest, here.facts, own.current, stop, &live, cursor.steps_left());
    let stretch = chain::measure(here.guest, here.facts, cursor, begin, stop, Some(&live));
    let agrees = match stretch.end {
        StretchEnd::Stop { entry } => !with_shim && entry,
        StretchEnd::Shim { address, previous } => with_shim && here.guest.inside(address) && previous == outer.current,
        // Such a chain usually fills the stack.
        StretchEnd::TooLong => true,
        StretchEnd::Torn => false,
    };
    if stretch.owes {
        if agrees {
            Debt::owe(here.guest);
        } else {
            Debt::miss(here.guest);
        }
    }
    agrees.then_some(stretch)
}

/// May this interrupted frame be in the part of the loop function in which the `_PyCFrame` is not filled yet?
fn in_entry(here: &Here<'_>) -> bool {
    let view = here.guest.view();
    here.guest.exact() && here.is_loop && view.pc.wrapping_sub(view.function_start) < ENTRY_BYTES
}
