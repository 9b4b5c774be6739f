//! Which frames of the chain belong to the current native frame.
//!
//! The walk meets native frames from the leaf to the root, and the chain from `executor_globals` has the same order. An
//! activation is a frame of `execute_ex`. See `execute_ex` in
//! <https://github.com/php/php-src/blob/PHP-8.2/Zend/zend_vm_execute.h>.
//!
//! * It keeps the frame that it executes in one register: the *anchor*. Between the cursor and the anchor lie C
//!   functions that this frame has called; the activation ends at the first frame from the anchor on with the mark
//!   TOP.
//! * The register is a global variable for the compiler. So unwind information does not say that `execute_ex` has
//!   saved its caller's value. A C function between two activations that uses the register has saved it, too, and
//!   says so. If none does, the register has in the outer activation what it has in the inner one, and its own value
//!   is the saved one.
//! * While a call begins, or ends and destroys its variables, the anchor is a frame that the chain does not have yet,
//!   or not any more; its caller is where the chain stands.

use crate::cursor::{Cursor, FRESH, NONE, READY};
use crate::emission::{self, Group};
use crate::facts::{Extent, Facts};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER, OVERLAY_NONE, UNTOUCHED};

/// The answer about a frame that is no activation: no frames, and the scratch memory is unchanged.
pub const NO_OVERLAY: u32 = OVERLAY_NONE | UNTOUCHED;
/// The answer where PHP frames must be, but were not found.
const DOUBT: u32 = OVERLAY_INTERPRETER | OVERLAY_DESYNC;
/// DWARF number of the register of a function's first argument.
const FIRST_ARGUMENT: u8 = 5;

/// [`uunwind_core::plugin::Plugin::overlay`] of this plugin.
pub fn overlay(guest: &Guest<'_>) -> u32 {
    let view = guest.view();
    if view.facts.is_null() || view.cfa <= view.sp {
        return NO_OVERLAY;
    }
    let Some(facts) = Facts::read(guest.facts()) else { return NO_OVERLAY };
    let lookup = guest.lookup_pc().wrapping_sub(view.bias);
    let is_among = |list: &[Extent]| list.iter().any(|range| range.contains(lookup));
    let is_exec = facts.exec.contains(lookup) || is_among(&facts.cold);
    let is_switching = is_among(&facts.switching);
    if !is_exec && !is_switching {
        return NO_OVERLAY;
    }
    let Some(cursor) = Cursor::of(guest) else { return DOUBT };
    let Some(register) = guest.register(facts.frame_register as u8) else {
        // Every activation further out is in doubt, too: each of them asks for the register.
        (cursor.register, cursor.saved) = (0, 0);
        return if is_exec { DOUBT } else { OVERLAY_INTERPRETER };
    };
    if is_switching {
        cursor.switched |= u32::from(cursor.met == 0);
        (cursor.register, cursor.saved) = (register, 0);
        return OVERLAY_INTERPRETER;
    }
    if cursor.state == FRESH {
        let current = view.bias.wrapping_add(facts.globals).wrapping_add(facts.globals_frame.into());
        cursor.state = NONE;
        if let Some(frame) = guest.word(current) {
            (cursor.frame, cursor.state) = (frame, READY);
        }
    }
    let Some(anchor) = anchor(guest, facts, cursor, (register, lookup)) else { return DOUBT };
    if cursor.state != READY {
        return DOUBT;
    }
    let is_innermost = cursor.met == 0;
    cursor.met = cursor.met.saturating_add(1);
    match anchor {
        Anchor::Left => OVERLAY_INTERPRETER,
        Anchor::At { frame, is_loaded } => {
            let opline = is_innermost && is_loaded && cursor.switched == 0;
            let opline = opline.then(|| guest.register(facts.opline_register as u8)).flatten();
            match emission::emit(guest, facts, cursor, &Group { anchor: frame, opline, is_innermost }) {
                true => OVERLAY_INTERPRETER,
                false => DOUBT,
            }
        }
    }
}

/// What an activation executes.
enum Anchor {
    /// Nothing any more.
    Left,
    /// A frame.
    At {
        /// Its address.
        frame: u64,
        /// The register of the opline is set.
        is_loaded: bool,
    },
}

/// The anchor of the current native frame. `None`: it is not known.
fn anchor(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor, (register, lookup): (u64, u64)) -> Option<Anchor> {
    let done = lookup.wrapping_sub(facts.exec.start);
    let is_whole = !guest.exact() || !facts.exec.contains(lookup);
    if !is_whole && done < u64::from(facts.exec_entry) {
        (cursor.register, cursor.saved) = (0, 0);
        return Some(Anchor::At { frame: guest.register(FIRST_ARGUMENT)?, is_loaded: false });
    }
    if !is_whole && facts.leaving.iter().any(|range| range.contains(lookup)) {
        (cursor.register, cursor.saved) = (0, 0);
        return Some(Anchor::Left);
    }
    let is_unchanged = cursor.register != 0 && register == cursor.register;
    let frame = if is_unchanged { cursor.saved } else { register };
    let place = guest.view().cfa.wrapping_sub(facts.exec_saved.into());
    (cursor.register, cursor.saved) = (register, guest.word(place).unwrap_or(0));
    let is_loaded = is_whole || done >= u64::from(facts.exec_loaded);
    (frame != 0).then_some(Anchor::At { frame, is_loaded })
}
