//! A stretch of CallInfos in which all is as usual: Lua functions that were called by Lua functions, and whose names are known.
//!
//! Most of a deep stack is of this kind. Nothing but reads, checks and answers: what is not as usual is left, as it stands, to
//! [`super::activation`], which looks closer. From 5.2 on; 5.1 keeps no mark and no pc in a CallInfo of its own.

use super::facts::Facts;
use super::function::{Called, Function, Told};
use super::state::{status_in, Info, Running, State, LUA_CLOSURE};
use crate::walk::{Walk, STRIDE};
use uunwind_core::memory::near::Near;

/// What a stretch has told.
pub struct Passed {
    /// How many functions.
    pub told: u32,
    /// The last one is its activation's outermost.
    pub ended: bool,
    /// The stack of the walk is full.
    pub full: bool,
}

/// Tells functions from `info` on, one that waits for another, at most so many. `info` is then the first that was not told. `ends`: an
/// activation's outermost function ends the stretch.
#[inline(never)]
pub fn tell(walk: &Walk<'_>, facts: &Facts, state: &State, info: &mut Info, ends: bool, most: usize) -> Passed {
    let mut frames = [[0; 2]; STRIDE as usize];
    let (told, ended) = match walk.near() {
        Some(near) => known(near, walk, facts, state, info, ends, frames.get_mut(..most).unwrap_or_default()),
        None => (0, false),
    };
    let full = told > 0 && !walk.emit_all(frames.get(..told).unwrap_or_default());
    Passed { told: told as u32, ended, full }
}

#[inline(always)]
fn known(
    mut near: Near<'_>,
    walk: &Walk<'_>,
    facts: &Facts,
    state: &State,
    info: &mut Info,
    ends: bool,
    frames: &mut [[u64; 2]],
) -> (usize, bool) {
    let mut told = 0;
    for frame in frames {
        let Running::Lua(closure) = info.running else { break };
        let Some(caller) = read(&mut near, facts, state, info.previous) else { break };
        let called = Called::new(walk, facts, state, info, Some(&caller));
        let Some(key) = (Function { walk, facts, closure, pc: info.saved_pc }).key(&called) else { break };
        let Some(answer) = near.recall(&key) else { break };
        *frame = Told::of_answer(answer).frame();
        told += 1;
        let ended = ends && info.is_fresh(facts);
        *info = caller;
        if ended {
            return (told, true);
        }
    }
    (told, false)
}

/// As [`Info::read`], of a Lua function that waits for another, whose stack is where it belongs.
#[inline(always)]
fn read(near: &mut Near<'_>, facts: &Facts, state: &State, address: u64) -> Option<Info> {
    if address == 0 || !address.is_multiple_of(8) {
        return None;
    }
    let layout = &facts.info;
    let [func, saved_pc, status, previous] =
        near.words(address, [layout.func, layout.saved_pc, layout.status & !7, layout.previous])?;
    let status = status_in(layout, status);
    if !state.has_slot(func) || status & layout.kind_mask != layout.kind_lua {
        return None;
    }
    let [closure, tag] = near.words(func, [0, 8])?;
    (tag as u8 & 0x3f == LUA_CLOSURE).then_some(Info {
        address,
        func,
        previous,
        saved_pc,
        status,
        running: Running::Lua(closure),
    })
}
