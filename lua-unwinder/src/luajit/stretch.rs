//! A stretch of frames in which all is as usual: Lua functions that were called by instructions of Lua functions, and whose names are
//! known.
//!
//! Most of a deep stack is of this kind. Nothing but reads, checks and answers: what is not as usual is left, as it stands, to
//! [`super::frames`], which looks closer.

use super::frames::{base_below, Frame, LUA};
use super::name::Called;
use super::proto::Place;
use super::state::{function, Thread};
use super::Vm;
use crate::walk::STRIDE;
use uunwind_core::memory::near::Near;

/// What a stretch has told.
pub struct Passed {
    /// How many functions.
    pub told: u64,
    /// The stack of the walk is full.
    pub full: bool,
}

/// What stands below a frame's base.
struct Links {
    object: u64,
    link: u64,
}

/// Tells functions from `frame` on, at most so many. `frame` is then the first that was not told.
#[inline(never)]
pub fn tell(vm: &Vm<'_>, thread: &Thread, frame: &mut Frame, most: usize) -> Passed {
    let mut frames = [[0; 2]; STRIDE as usize];
    let told = match vm.walk.near() {
        Some(near) => known(near, vm, thread, frame, frames.get_mut(..most).unwrap_or_default()),
        None => 0,
    };
    let full = told > 0 && !vm.walk.emit_all(frames.get(..told).unwrap_or_default());
    Passed { told: told as u64, full }
}

#[inline(always)]
fn known(mut near: Near<'_>, vm: &Vm<'_>, thread: &Thread, frame: &mut Frame, frames: &mut [[u64; 2]]) -> usize {
    let mut told = 0;
    let Some(mut links) = links(&mut near, thread, frame.base) else { return told };
    for room in frames {
        let Some(caller) = caller(&mut near, thread, frame.base, links.link) else { break };
        let Some(below) = self::links(&mut near, thread, caller.base) else { break };
        let called = Called { object: links.object, caller: below.object };
        let Some(key) = called.key(vm, frame.place, caller.place) else { break };
        let Some(answer) = near.recall(key) else { break };
        *room = answer;
        told += 1;
        (*frame, links) = (caller, below);
    }
    told
}

/// The frame whose instruction called the function with this base, by its link.
#[inline(always)]
fn caller(near: &mut Near<'_>, thread: &Thread, base: u64, link: u64) -> Option<Frame> {
    if link & 3 != LUA {
        return None;
    }
    let call = link.wrapping_sub(4);
    let [word] = near.words(call & !7, [0])?;
    let below = base_below(base, (word >> ((call & 7) * 8)) as u32);
    let holds = below < base && thread.holds(below);
    holds.then_some(Frame { base: below, place: Place::Behind(link) })
}

/// The function of a frame on the stack, and its link.
#[inline(always)]
fn links(near: &mut Near<'_>, thread: &Thread, base: u64) -> Option<Links> {
    // The lowest frame holds the thread itself, not a function.
    if base <= thread.stack.wrapping_add(16) {
        return None;
    }
    let [value, link] = near.words(base.wrapping_sub(16), [0, 8])?;
    Some(Links { object: function(value)?, link })
}
