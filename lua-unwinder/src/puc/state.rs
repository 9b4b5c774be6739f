//! `lua_State` and its chain of CallInfos, read with checks: an interrupted interpreter may just be changing them.

use super::facts::{Facts, InfoLayout};
use crate::walk::Walk;

/// `tt` of a thread, and where it stands in every collectable object.
const TYPE: u64 = 8;
const THREAD: u8 = 8;
/// `status` of a coroutine that has yielded; of one that runs it is 0, of a dead one more.
const YIELD: u8 = 1;
/// Protected calls, one in the other (`LUAI_MAXCCALLS` is 200).
const PROTECTED_LIMIT: u32 = 512;
/// `top`, in all versions.
const TOP: u64 = 16;
/// Bytes of a TValue.
pub const VALUE: u64 = 16;
/// Slots above `stack_last` that may be used (`EXTRA_STACK`).
const EXTRA: u64 = 5;
/// Longest stack (`LUAI_MAXSTACK` slots, and what error handling may add), in bytes.
const STACK_LIMIT: u64 = 1_100_000 * VALUE;

/// A `lua_State`.
#[derive(Clone, Copy)]
pub struct State {
    /// Its address.
    pub address: u64,
    /// `ci`: the running function.
    pub info: u64,
    /// `stack` and the end of what may be used.
    stack: u64,
    stack_end: u64,
}

impl State {
    /// The state at `address`, if there is one: an object of the right type whose parts agree.
    #[inline(never)]
    pub fn read(walk: &Walk<'_>, facts: &Facts, address: u64) -> Option<State> {
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        let layout = &facts.state;
        let kind = walk.byte(address.wrapping_add(TYPE))?;
        let mut words = [0; 3];
        walk.words(address, [layout.ci, layout.stack, layout.stack_last], &mut words)?;
        let [info, stack, last] = words;
        if kind != THREAD || info == 0 || !info.is_multiple_of(8) {
            return None;
        }
        let long = last.checked_sub(stack)?;
        if stack == 0 || !stack.is_multiple_of(8) || long == 0 || long > STACK_LIMIT {
            return None;
        }
        Some(State { address, info, stack, stack_end: last.wrapping_add(EXTRA * VALUE) })
    }

    /// Where the stack is: what reading a CallInfo depends on, besides what is read, once the running function is past.
    pub fn stack(&self) -> [u64; 2] {
        [self.stack, self.stack_end]
    }

    /// The state as it is for functions that wait for others: the running one is none of them.
    pub fn of_callers(&self) -> State {
        State { info: 0, ..*self }
    }

    /// Is the stack just being moved? `top` is corrected before the CallInfos are, and `stack` before or after all of that.
    pub fn is_moving(&self, walk: &Walk<'_>) -> bool {
        let top = walk.word(self.address.wrapping_add(TOP));
        !top.is_some_and(|top| self.stack <= top && top <= self.stack_end)
    }

    /// Could a CallInfo of this state stand here?
    pub fn is_info(&self, walk: &Walk<'_>, facts: &Facts, address: u64) -> bool {
        let func = || walk.word(address.wrapping_add(u64::from(facts.info.func)));
        address != 0 && address.is_multiple_of(8) && func().and_then(|func| self.slot(walk, facts, func)).is_some()
    }

    /// Could a slot of the stack be here?
    #[inline(always)]
    pub fn has_slot(&self, slot: u64) -> bool {
        slot >= self.stack && slot < self.stack_end && slot.is_multiple_of(8)
    }

    /// Where the stack slot at `func` is. While the stack is moved, from 5.4.5 on a CallInfo has the slot's offset, and before
    /// the address in the old stack, which the base CallInfo, corrected last, still shows.
    fn slot(&self, walk: &Walk<'_>, facts: &Facts, func: u64) -> Option<u64> {
        let inside = |slot: u64| self.has_slot(slot).then_some(slot);
        let at = |offset: u64| inside(self.stack.checked_add(offset)?);
        inside(func).or_else(|| match facts.minor {
            1 => None,
            4.. if func < STACK_LIMIT => at(func),
            _ => {
                let base = self.address.wrapping_add(u64::from(facts.state.base_ci) + u64::from(facts.info.func));
                at(func.checked_sub(walk.word(base)?)?)
            }
        })
    }

    /// 5.1: is `ci`, in which this function seems to run, one that was just taken into use? Then `base` is still that of the
    /// CallInfo before it; and it is not being left for a tail call, before its first instruction.
    fn is_unfilled(&self, walk: &Walk<'_>, facts: &Facts, previous: u64, running: Running) -> Option<bool> {
        let field = |offset: u32| walk.word(self.address.wrapping_add(u64::from(offset)));
        if previous == 0 || field(facts.state.base)? != walk.word(previous.wrapping_add(BASE_5_1))? {
            return Some(false);
        }
        let Running::Lua(closure) = running else { return Some(true) };
        let proto = walk.word(closure.wrapping_add(u64::from(facts.proto.closure)))?;
        Some(field(facts.state.saved_pc) != walk.word(proto.wrapping_add(u64::from(facts.proto.code))))
    }

    /// Was it resumed by the native frame in hand, and is it not yet out of that? All its protected calls then lie nearer the
    /// leaf than the frame; each has a buffer on the stack for the jump out of it. One that lies further out belongs to a
    /// coroutine that is asked to resume itself or its resumer.
    pub fn runs_inside(&self, walk: &Walk<'_>, facts: &Facts) -> bool {
        let status = walk.byte(self.address.wrapping_add(u64::from(facts.state.status)));
        if status.is_none_or(|status| status > YIELD) {
            return false;
        }
        // `lua_longjmp.previous` is that structure's first field.
        let mut at = walk.word(self.address.wrapping_add(u64::from(facts.state.error_jump)));
        for calls in 0..PROTECTED_LIMIT {
            match at {
                Some(0) => return calls > 0,
                Some(jump) if jump < walk.view().sp => at = walk.word(jump),
                _ => return false,
            }
        }
        false
    }
}

/// What runs in a CallInfo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Running {
    /// A Lua function, with this closure.
    Lua(u64),
    /// A C function, or the state's base.
    C,
}

/// A CallInfo.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Its address.
    pub address: u64,
    /// Its function's place on the stack, as it is stored.
    pub func: u64,
    /// The function that called it; 0: none, this is the base.
    pub previous: u64,
    /// `savedpc`.
    pub saved_pc: u64,
    /// `callstatus`; 5.1: number of tail calls.
    pub status: u32,
    /// What runs.
    pub running: Running,
}

/// Tags of functions: in 5.1 one for both kinds, from 5.2 on in the low six bits.
pub const FUNCTION_5_1: u8 = 6;
/// See [`FUNCTION_5_1`].
pub const LUA_CLOSURE: u8 = 0x06;
const LIGHT_C: u8 = 0x16;
const C_CLOSURE: u8 = 0x26;
/// 5.1: `CallInfo.base`.
const BASE_5_1: u64 = 0;
/// 5.1: `Closure.c.isC`.
pub const IS_C_5_1: u64 = 10;

impl Info {
    /// The CallInfo at `address` of a state's chain. `None`: it is none, or not complete yet.
    pub fn read(walk: &Walk<'_>, facts: &Facts, state: &State, address: u64) -> Option<Info> {
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        let layout = &facts.info;
        let mut words = [0; 4];
        walk.words(address, [layout.func, layout.saved_pc, layout.status & !7, layout.previous], &mut words)?;
        let [func, saved_pc, status, linked] = words;
        let status = status_in(layout, status);
        let previous = if layout.bytes == 0 { linked } else { previous(walk, facts, state, address)? };
        let mut words = [0; 2];
        walk.words(state.slot(walk, facts, func)?, [0, 8], &mut words)?;
        let (value, tag) = (words[0], words[1] as u8);
        let running = if facts.minor == 1 {
            let running = running_5_1(walk, value, tag, previous)?;
            if address == state.info && state.is_unfilled(walk, facts, previous, running)? {
                return None;
            }
            running
        } else if status & layout.kind_mask == layout.kind_lua {
            (tag & 0x3f == LUA_CLOSURE).then_some(())?;
            Running::Lua(value)
        } else {
            (previous == 0 || matches!(tag & 0x3f, LIGHT_C | C_CLOSURE)).then_some(())?;
            Running::C
        };
        Some(Info { address, func, previous, saved_pc, status, running })
    }

    /// The saved pc: for 5.1's running function it is in the state.
    pub fn pc(&self, walk: &Walk<'_>, facts: &Facts, state: &State) -> u64 {
        if facts.state.saved_pc != 0 && self.address == state.info {
            let at = state.address.wrapping_add(u64::from(facts.state.saved_pc));
            return walk.word(at).unwrap_or(self.saved_pc);
        }
        self.saved_pc
    }

    /// Is this function the outermost of its activation, by its own mark? 5.1 has none.
    pub fn is_fresh(&self, facts: &Facts) -> bool {
        self.status & facts.info.fresh_mask == facts.info.fresh
    }
}

/// The CallInfo before one in the chain; 0 for the base.
pub fn previous(walk: &Walk<'_>, facts: &Facts, state: &State, address: u64) -> Option<u64> {
    if facts.info.bytes == 0 {
        return walk.word(address.wrapping_add(u64::from(facts.info.previous)));
    }
    let base = walk.word(state.address.wrapping_add(u64::from(facts.state.base_ci)))?;
    let bytes = u64::from(facts.info.bytes);
    let from_base = address.checked_sub(base)?;
    if !from_base.is_multiple_of(bytes) {
        return None;
    }
    Some(if from_base == 0 { 0 } else { address.wrapping_sub(bytes) })
}

/// The status, in the aligned word that holds it.
#[inline(always)]
pub fn status_in(layout: &InfoLayout, word: u64) -> u32 {
    let word = word >> ((layout.status & 7) * 8);
    match layout.status_bytes {
        1 => u32::from(word as u8),
        2 => u32::from(word as u16),
        _ => word as u32,
    }
}

fn running_5_1(walk: &Walk<'_>, closure: u64, tag: u8, previous: u64) -> Option<Running> {
    if tag != FUNCTION_5_1 {
        return (previous == 0).then_some(Running::C);
    }
    Some(match walk.byte(closure.wrapping_add(IS_C_5_1))? {
        0 => Running::Lua(closure),
        _ => Running::C,
    })
}
