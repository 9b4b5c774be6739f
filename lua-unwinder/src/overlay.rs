//! The plugin's entries: each passes the current native frame to the family of interpreters that its object holds.

use crate::facts::{FactsHead, FAMILY_LUAJIT, FAMILY_PUC};
use crate::{luajit, puc};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{OVERLAY_NONE, STEP_NATIVE, UNTOUCHED};

/// The overlay's answer about a frame that is no interpreter's: no frames, and the scratch memory is unchanged.
pub const NO_OVERLAY: u32 = OVERLAY_NONE | UNTOUCHED;
/// The step's answer about a frame that is no interpreter's: the core steps, and the scratch memory is unchanged.
pub const NO_STEP: u32 = STEP_NATIVE | UNTOUCHED;

/// [`uunwind_core::plugin::Plugin::overlay`] of this plugin.
pub fn overlay(guest: &Guest<'_>) -> u32 {
    let view = guest.view();
    if view.facts.is_null() || view.cfa <= view.sp {
        return NO_OVERLAY;
    }
    let bytes = guest.facts();
    match FactsHead::read(bytes).map(|head| head.family) {
        Some(FAMILY_PUC) => puc::overlay(guest, bytes),
        _ => NO_OVERLAY,
    }
}

/// [`uunwind_core::plugin::Plugin::step`] of this plugin.
pub fn step(guest: &Guest<'_>) -> u32 {
    let Some(caller) = guest.caller() else { return NO_STEP };
    let bytes = guest.facts();
    if bytes.is_empty() {
        return luajit::in_no_object(guest, caller);
    }
    match FactsHead::read(bytes).map(|head| head.family) {
        Some(FAMILY_LUAJIT) => luajit::in_object(guest, bytes, caller),
        _ => NO_STEP,
    }
}
