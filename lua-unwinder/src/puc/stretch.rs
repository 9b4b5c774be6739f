//! A stretch of CallInfos of the usual kind: Lua functions that were called by Lua functions, and whose answers are
//! cached.
//!
//! Most of a deep stack is of this kind. This loop only reads words, checks them and looks answers up. It ends before a
//! CallInfo of another kind, which [`super::activation`] handles.

use super::facts::Facts;
use super::function::{Called, Function, Semantic};
use super::state::{status_in, Info, Running, State, FUNCTION_5_1, IS_C_5_1, LUA_CLOSURE};
use crate::points::STRIDE;
use uunwind_core::memory::near::Near;
use uunwind_core::plugin::guest::Guest;

/// What a stretch has emitted.
pub struct Passed {
    /// Number of functions.
    pub emitted: u32,
    /// The last one is its activation's outermost.
    pub ended: bool,
    /// The walk's stack is full.
    pub full: bool,
}

/// Emits functions from `info` on, at most `most`, none of which is the running one. `info` is then the first that
/// was not emitted. `ends`: an activation's outermost function ends the stretch.
#[inline(never)]
pub fn emit(guest: &Guest<'_>, facts: &Facts, state: &State, info: &mut Info, ends: bool, most: usize) -> Passed {
    let mut frames = [[0; 2]; STRIDE as usize];
    let room = frames.get_mut(..most).unwrap_or_default();
    // SAFETY: only the stretch uses the guest until it has dropped the reader.
    let (emitted, ended) = match unsafe { guest.near() } {
        Some(near) if facts.info.bytes == 0 => {
            Stretch::<Linked> { near, guest, facts, state, ends, chain: Linked }.cached(info, room)
        }
        Some(mut near) => match Array::of(&mut near, facts, state, info.address) {
            Some(chain) => Stretch { near, guest, facts, state, ends, chain }.cached(info, room),
            None => (0, false),
        },
        None => (0, false),
    };
    let full = emitted > 0 && !guest.emit_all(frames.get(..emitted).unwrap_or_default());
    Passed { emitted: emitted as u32, ended, full }
}

/// How CallInfos are chained.
trait Chain {
    /// `func`, `savedpc`, the word that holds the status, and the caller's CallInfo, of the CallInfo at `address`.
    fn words(&self, near: &mut Near<'_>, facts: &Facts, address: u64) -> Option<[u64; 4]>;

    /// Is the value in a slot (its two words) a Lua function?
    fn is_lua(&self, near: &mut Near<'_>, facts: &Facts, status: u32, slot: [u64; 2]) -> bool;
}

/// From 5.2 on: a list, linked by `previous`.
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

/// 5.1: an array.
struct Array {
    /// `lua_State.base_ci`: its process address.
    base: u64,
}

impl Array {
    /// The array of `state`. `None`: the CallInfo at `address` is not in it.
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
    guest: &'a Guest<'a>,
    facts: &'a Facts,
    state: &'a State,
    ends: bool,
    chain: C,
}

impl<C: Chain> Stretch<'_, '_, C> {
    /// Fills `frames` with the cached answers of functions from `first` on. Returns their number, and whether the last
    /// one is its activation's outermost. `first` is then the first function that follows.
    #[inline(always)]
    fn cached(mut self, first: &mut Info, frames: &mut [[u64; 2]]) -> (usize, bool) {
        let (guest, facts) = (self.guest, self.facts);
        let mut emitted = 0;
        let mut ended = false;
        let mut info = *first;
        for frame in frames {
            let (Running::Lua(closure), Some(caller)) = (info.running, self.read(info.previous)) else { break };
            let Running::Lua(by) = caller.running else { break };
            let called = Called::by_lua(facts, &info, by, caller.saved_pc);
            let Some(key) = (Function { guest, facts, closure, pc: info.saved_pc }).key(&called) else { break };
            let Some(answer) = self.near.recall(key) else { break };
            let function = Semantic::of_answer(answer);
            ended = match function.by_call {
                _ if !facts.has_no_mark() => info.is_fresh(facts),
                Some(by_call) => !by_call,
                None => break,
            } && self.ends;
            *frame = function.words();
            emitted += 1;
            info = caller;
            if ended {
                break;
            }
        }
        *first = info;
        (emitted, ended)
    }

    /// As [`Info::read`], for a Lua function that waits for its callee, while the stack is not moved.
    #[inline(always)]
    fn read(&mut self, address: u64) -> Option<Info> {
        let (facts, layout) = (self.facts, &self.facts.info);
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        let [func, saved_pc, status, previous] = self.chain.words(&mut self.near, facts, address)?;
        let status = status_in(layout, status);
        // The callee is a hook or a finalizer, which is not named by this function's instruction.
        if !self.state.has_slot(func) || status & (layout.hooked | layout.finalizer) != 0 {
            return None;
        }
        let slot = self.near.words(func, [0, 8])?;
        let is_lua = self.chain.is_lua(&mut self.near, facts, status, slot);
        is_lua.then_some(Info {
            address,
            func,
            previous,
            saved_pc,
            status,
            running: Running::Lua(slot[0]),
            takes_place: false,
        })
    }
}
