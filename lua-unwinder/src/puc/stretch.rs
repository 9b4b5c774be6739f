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
    let room = frames.get_mut(..most).unwrap_or_default();
    let (told, ended) = match walk.near() {
        Some(near) if facts.info.bytes == 0 => {
            Stretch::<Linked> { near, walk, facts, state, ends, chain: Linked }.known(info, room)
        }
        Some(mut near) => match Array::of(&mut near, facts, state, info.address) {
            Some(chain) => Stretch { near, walk, facts, state, ends, chain }.known(info, room),
            None => (0, false),
        },
        None => (0, false),
    };
    let full = told > 0 && !walk.emit_all(frames.get(..told).unwrap_or_default());
    Passed { told: told as u32, ended, full }
}

/// How CallInfos follow one another.
trait Chain {
    /// The words `func`, `savedpc`, that of the status, and the CallInfo before this one.
    fn words(&self, near: &mut Near<'_>, facts: &Facts, address: u64) -> Option<[u64; 4]>;

    /// Does the tag of a slot say that its value is a Lua function's?
    fn is_lua(&self, near: &mut Near<'_>, facts: &Facts, status: u32, slot: [u64; 2]) -> bool;
}

/// From 5.2 on: by links.
struct Linked;

impl Chain for Linked {
    #[inline(always)]
    fn words(&self, near: &mut Near<'_>, facts: &Facts, address: u64) -> Option<[u64; 4]> {
        let layout = &facts.info;
        near.words(address, [layout.func, layout.saved_pc, layout.status & !7, layout.previous])
    }

    #[inline(always)]
    fn is_lua(&self, _: &mut Near<'_>, facts: &Facts, status: u32, [_, tag]: [u64; 2]) -> bool {
        let layout = &facts.info;
        facts.minor != 1 && status & layout.kind_mask == layout.kind_lua && tag as u8 & 0x3f == LUA_CLOSURE
    }
}

/// 5.1: they are an array, which begins here.
struct Array {
    base: u64,
}

impl Array {
    /// `None`: this CallInfo is not in it.
    #[inline(always)]
    fn of(near: &mut Near<'_>, facts: &Facts, state: &State, address: u64) -> Option<Array> {
        let [base] = near.words(state.address, [facts.state.base_ci])?;
        let fits = address.checked_sub(base)?.is_multiple_of(u64::from(facts.info.bytes));
        fits.then_some(Array { base })
    }
}

impl Chain for Array {
    #[inline(always)]
    fn words(&self, near: &mut Near<'_>, facts: &Facts, address: u64) -> Option<[u64; 4]> {
        let layout = &facts.info;
        let previous = match address.checked_sub(self.base)? {
            0 => 0,
            _ => address.wrapping_sub(u64::from(layout.bytes)),
        };
        let [func, saved_pc, status] = near.words(address, [layout.func, layout.saved_pc, layout.status & !7])?;
        Some([func, saved_pc, status, previous])
    }

    #[inline(always)]
    fn is_lua(&self, near: &mut Near<'_>, facts: &Facts, _: u32, [closure, tag]: [u64; 2]) -> bool {
        let head = near.words(closure & !7, [IS_C_5_1 as u32 & !7]);
        let is_c = head.is_none_or(|[head]| (head >> (8 * (IS_C_5_1 & 7))) as u8 != 0);
        facts.minor == 1 && closure.is_multiple_of(8) && tag as u8 == FUNCTION_5_1 && !is_c
    }
}

struct Stretch<'a, 'n, C> {
    near: Near<'n>,
    walk: &'a Walk<'a>,
    facts: &'a Facts,
    state: &'a State,
    ends: bool,
    chain: C,
}

impl<C: Chain> Stretch<'_, '_, C> {
    #[inline(always)]
    fn known(mut self, first: &mut Info, frames: &mut [[u64; 2]]) -> (usize, bool) {
        let (walk, facts) = (self.walk, self.facts);
        let mut told = 0;
        let mut ended = false;
        let mut info = *first;
        for frame in frames {
            let (Running::Lua(closure), Some(caller)) = (info.running, self.read(info.previous)) else { break };
            let Running::Lua(by) = caller.running else { break };
            let called = Called::by_lua(facts, &info, by, caller.saved_pc);
            let Some(key) = (Function { walk, facts, closure, pc: info.saved_pc }).key(&called) else { break };
            let Some(answer) = self.near.recall(key) else { break };
            let function = Told::of_answer(answer);
            ended = match function.by_call {
                _ if !facts.has_no_mark() => info.is_fresh(facts),
                Some(by_call) => !by_call,
                None => break,
            } && self.ends;
            *frame = function.frame();
            told += 1;
            info = caller;
            if ended {
                break;
            }
        }
        *first = info;
        (told, ended)
    }

    /// As [`Info::read`], of a Lua function that waits for another, whose stack is where it belongs.
    #[inline(always)]
    fn read(&mut self, address: u64) -> Option<Info> {
        let (facts, layout) = (self.facts, &self.facts.info);
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        let [func, saved_pc, status, previous] = self.chain.words(&mut self.near, facts, address)?;
        let status = status_in(layout, status);
        // What is called by a hook, or as a finalizer, has its name from there.
        if !self.state.has_slot(func) || status & (layout.hooked | layout.finalizer) != 0 {
            return None;
        }
        let slot = self.near.words(func, [0, 8])?;
        let is_lua = self.chain.is_lua(&mut self.near, facts, status, slot);
        is_lua.then_some(Info { address, func, previous, saved_pc, status, running: Running::Lua(slot[0]) })
    }
}
