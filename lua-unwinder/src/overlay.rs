//! The entry: hands one native frame to the family of interpreters that its object holds.

use crate::facts::{Head, FAMILY_LUAJIT, FAMILY_PUC};
use crate::walk::Walk;
use crate::{luajit, puc};
use uunwind_core::plugin::{View, OVERLAY_NONE, STEP_NATIVE, UNTOUCHED};

/// Answers about a frame that is no interpreter's: they leave the walk's memory alone.
pub const NO_OVERLAY: u32 = OVERLAY_NONE | UNTOUCHED;
/// See [`NO_OVERLAY`].
pub const NO_STEP: u32 = STEP_NATIVE | UNTOUCHED;

/// [`uunwind_core::plugin::Plugin::overlay`] of this plugin.
///
/// # Safety
/// `view` must be null or a view filled by a host of this ABI: its facts, scratch memory and host functions are used.
pub unsafe extern "C" fn overlay(view: *mut View) -> u32 {
    // SAFETY: passed on.
    unsafe { visit(view, NO_OVERLAY, add_frames) }
}

/// [`uunwind_core::plugin::Plugin::step`] of this plugin.
///
/// # Safety
/// As [`overlay`], and the view's caller is filled.
pub unsafe extern "C" fn step(view: *mut View) -> u32 {
    // SAFETY: passed on.
    unsafe { visit(view, NO_STEP, to_caller) }
}

/// # Safety
/// As [`overlay`].
unsafe fn visit(view: *mut View, nothing: u32, answer: fn(&Walk<'_>) -> u32) -> u32 {
    // SAFETY: the caller's promise.
    let Some(walk) = (unsafe { Walk::new(view) }) else { return nothing };
    let answer = answer(&walk);
    let (used, restored) = walk.registers();
    // SAFETY: a view, by `Walk::new`, which nobody borrows any more; these are the plugin's to set.
    unsafe {
        (*view).used = used;
        (*view).restored = restored;
    }
    answer
}

fn add_frames(walk: &Walk<'_>) -> u32 {
    let view = walk.view();
    if view.facts.is_null() || view.cfa <= view.sp {
        return NO_OVERLAY;
    }
    let bytes = walk.facts();
    match Head::read(bytes).map(|head| head.family) {
        Some(FAMILY_PUC) => puc::overlay(walk, bytes),
        _ => NO_OVERLAY,
    }
}

fn to_caller(walk: &Walk<'_>) -> u32 {
    let Some(caller) = walk.caller() else { return NO_STEP };
    let bytes = walk.facts();
    if bytes.is_empty() {
        return luajit::in_no_object(walk, caller);
    }
    match Head::read(bytes).map(|head| head.family) {
        Some(FAMILY_LUAJIT) => luajit::in_object(walk, bytes, caller),
        _ => NO_STEP,
    }
}
