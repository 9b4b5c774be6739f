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
    // SAFETY: passed on.
    unsafe { visit(view, OVERLAY_NONE, add_frames) }
}

/// [`uunwind_core::plugin::Plugin::step`] of this plugin.
///
/// # Safety
/// As [`overlay`], and the view's caller is filled.
pub unsafe extern "C" fn step(view: *mut View) -> u32 {
    // SAFETY: passed on.
    unsafe { visit(view, STEP_NATIVE, to_caller) }
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
        return OVERLAY_NONE;
    }
    let bytes = walk.facts();
    match Head::read(bytes).map(|head| head.family) {
        Some(FAMILY_PUC) => puc::overlay(walk, bytes),
        _ => OVERLAY_NONE,
    }
}

fn to_caller(walk: &Walk<'_>) -> u32 {
    let Some(caller) = walk.caller() else { return STEP_NATIVE };
    let bytes = walk.facts();
    if bytes.is_empty() {
        return luajit::in_no_object(walk, caller);
    }
    match Head::read(bytes).map(|head| head.family) {
        Some(FAMILY_LUAJIT) => luajit::in_object(walk, bytes, caller),
        _ => STEP_NATIVE,
    }
}
