//! The entry: hands one native frame to the family of interpreters that its object holds.

use crate::facts::{Head, FAMILY_LUAJIT, FAMILY_PUC};
use crate::walk::Walk;
use crate::{luajit, puc};
use uunwind_core::plugin::{View, OVERLAY_NONE, STEP_NATIVE};

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
    match Head::read(bytes).map(|head| head.family) {
        Some(FAMILY_PUC) => puc::overlay(&walk, bytes),
        _ => OVERLAY_NONE,
    }
}

/// [`uunwind_core::plugin::Plugin::step`] of this plugin.
///
/// # Safety
/// As [`overlay`], and the view's caller is filled.
pub unsafe extern "C" fn step(view: *mut View) -> u32 {
    // SAFETY: the caller's promise.
    let Some(walk) = (unsafe { Walk::new(view) }) else {
        return STEP_NATIVE;
    };
    let view = walk.view();
    let Some(caller) = walk.caller() else { return STEP_NATIVE };
    if view.facts.is_null() {
        return luajit::in_no_object(&walk, caller);
    }
    // SAFETY: as above.
    let bytes = unsafe { core::slice::from_raw_parts(view.facts, view.facts_len) };
    match Head::read(bytes).map(|head| head.family) {
        Some(FAMILY_LUAJIT) => luajit::in_object(&walk, bytes, caller),
        _ => STEP_NATIVE,
    }
}
