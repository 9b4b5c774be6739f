//! A stretch of CallInfos in which all is as usual: Lua functions that were called by Lua functions, and whose names are known.
//!
//! Most of a deep stack is of this kind. Nothing but reads, checks and answers: what is not as usual is left, as it stands, to
//! [`super::activation`], which looks closer.

use super::facts::Facts;
use super::function::{Called, Function, Told};
use super::state::{status_in, Info, Running, State, FUNCTION_5_1, IS_C_5_1, LUA_CLOSURE};
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
    let Some(array) = Array::of(&mut near, facts, state, info.address) else { return (0, false) };
    let mut told = 0;
    for frame in frames {
        let (Running::Lua(closure), Some(caller)) =
            (info.running, read(&mut near, facts, state, &array, info.previous))
        else {
            break;
        };
        let Running::Lua(by) = caller.running else { break };
        let called = Called::by_lua(facts, info, by, caller.saved_pc);
        let Some(key) = (Function { walk, facts, closure, pc: info.saved_pc }).key(&called) else { break };
        let Some(answer) = near.recall(&key) else { break };
        let function = Told::of_answer(answer);
        let ended = match function.by_call {
            _ if !facts.has_no_mark() => info.is_fresh(facts),
            Some(by_call) => !by_call,
            None => break,
        };
        *frame = function.frame();
        told += 1;
        *info = caller;
        if ended && ends {
            return (told, true);
        }
    }
    (told, false)
}

/// 5.1: where the CallInfos, which are an array, begin; else there is none, and it is 0.
struct Array {
    base: u64,
}

impl Array {
    /// `None`: this CallInfo is not in it.
    #[inline(always)]
    fn of(near: &mut Near<'_>, facts: &Facts, state: &State, address: u64) -> Option<Array> {
        if facts.info.bytes == 0 {
            return Some(Array { base: 0 });
        }
        let [base] = near.words(state.address, [facts.state.base_ci])?;
        let fits = address.checked_sub(base)?.is_multiple_of(u64::from(facts.info.bytes));
        fits.then_some(Array { base })
    }

    /// The CallInfo before one; 0 for the first. `None`: this one is not in it.
    #[inline(always)]
    fn previous(&self, facts: &Facts, address: u64) -> Option<u64> {
        let from_base = address.checked_sub(self.base)?;
        Some(if from_base == 0 { 0 } else { address.wrapping_sub(u64::from(facts.info.bytes)) })
    }
}

/// As [`Info::read`], of a Lua function that waits for another, whose stack is where it belongs.
#[inline(always)]
fn read(near: &mut Near<'_>, facts: &Facts, state: &State, array: &Array, address: u64) -> Option<Info> {
    if address == 0 || !address.is_multiple_of(8) {
        return None;
    }
    let layout = &facts.info;
    let status_word = layout.status & !7;
    let [func, saved_pc, status, previous] = if layout.bytes == 0 {
        near.words(address, [layout.func, layout.saved_pc, status_word, layout.previous])?
    } else {
        let [func, saved_pc, status] = near.words(address, [layout.func, layout.saved_pc, status_word])?;
        [func, saved_pc, status, array.previous(facts, address)?]
    };
    let status = status_in(layout, status);
    // What is called by a hook, or as a finalizer, has its name from there.
    if !state.has_slot(func) || status & (layout.hooked | layout.finalizer) != 0 {
        return None;
    }
    let [closure, tag] = near.words(func, [0, 8])?;
    let is_lua = if facts.minor == 1 {
        let [head] = near.words(closure & !7, [IS_C_5_1 as u32 & !7])?;
        closure.is_multiple_of(8) && tag as u8 == FUNCTION_5_1 && (head >> (8 * (IS_C_5_1 & 7))) as u8 == 0
    } else {
        status & layout.kind_mask == layout.kind_lua && tag as u8 & 0x3f == LUA_CLOSURE
    };
    is_lua.then_some(Info { address, func, previous, saved_pc, status, running: Running::Lua(closure) })
}
