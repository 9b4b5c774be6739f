//! `lua_State` and its chain of CallInfos, read with checks: the interrupted interpreter may be in the middle of a
//! change to them.
//!
//! The structures are in <https://github.com/lua/lua/blob/v5.4.0/lstate.h> and lobject.h; the order in which a stack is
//! moved is that of `luaD_reallocstack` in <https://github.com/lua/lua/blob/v5.4.0/ldo.c>, v5.4.5 and v5.1.1.

use super::facts::{role, Facts, InfoLayout};
use super::function::{Function, Proto};
use uunwind_core::plugin::guest::Guest;

/// Offset of `tt` in every collectable object, and its value for a thread (`LUA_TTHREAD`).
const TYPE: u64 = 8;
const THREAD: u8 = 8;
/// `status` of a coroutine that has yielded (`LUA_YIELD`); of a running one it is 0, of a dead one greater.
const YIELD: u8 = 1;
/// Limit of nested protected calls (`LUAI_MAXCCALLS` is 200).
const PROTECTED_LIMIT: u32 = 512;
/// Offset of `lua_State.top`, in all versions.
const TOP: u32 = 16;
/// Size of a TValue in bytes.
pub const VALUE: u64 = 16;
/// Number of slots above `stack_last` that may be used (`EXTRA_STACK`).
const EXTRA: u64 = 5;
/// Limit of a stack's size in bytes: `LUAI_MAXSTACK` slots, and those that error handling may add.
const STACK_LIMIT: u64 = 1_100_000 * VALUE;

/// A `lua_State` that was read and checked.
#[derive(Clone, Copy)]
pub struct State {
    /// Its process address.
    pub address: u64,
    /// `ci`: the running function's CallInfo; 0 in [`State::of_callers`].
    pub info: u64,
    /// `stack`: the first slot.
    stack: u64,
    /// End of the slots that may be used.
    stack_end: u64,
    /// The interpreter is moving the stack: some pointers lead to the old one, and others to the new one.
    moving: bool,
}

impl State {
    /// The state at the process address `address`. `None`: there is no object of this type whose fields agree.
    #[inline(never)]
    pub fn read(guest: &Guest<'_>, facts: &Facts, address: u64) -> Option<State> {
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        let layout = &facts.state;
        let kind = guest.byte(address.wrapping_add(TYPE))?;
        // When the stack is moved, `top` is the first pointer into it to be corrected, and 5.1's `base` the last.
        let inside = if layout.base != 0 { layout.base } else { TOP };
        let mut words = [0; 4];
        guest.words(address, [layout.ci, layout.stack, layout.stack_last, inside], &mut words)?;
        let [info, stack, last, inside] = words;
        if kind != THREAD || info == 0 || !info.is_multiple_of(8) || stack == 0 || !stack.is_multiple_of(8) {
            return None;
        }
        // The base CallInfo's function is in the first slot, except while the CallInfos of a moved stack are not
        // corrected yet.
        let first = State::first_slot(guest, facts, address)?;
        let long = match (first == stack, facts.minor) {
            (true, _) => last.checked_sub(stack)?,
            // From 5.4.5 on, pointers into the stack are offsets meanwhile (`relstack`), and the new size is not
            // available.
            (false, 4..) if first == 0 => STACK_LIMIT,
            // The new stack is larger, but the used part is not. `stack_last` is corrected soon after `stack`.
            (false, _) => {
                let sane = |start: u64| last.checked_sub(start).filter(|long| (1..=STACK_LIMIT).contains(long));
                sane(first).or_else(|| sane(stack))?
            }
        };
        if long == 0 || long > STACK_LIMIT {
            return None;
        }
        let stack_end = stack.wrapping_add(long).wrapping_add(EXTRA * VALUE);
        let moving = first != stack || inside < stack || inside > stack_end;
        Some(State { address, info, stack, stack_end, moving })
    }

    /// `func` of the base CallInfo: where the stack begins, as long as it is not moved.
    fn first_slot(guest: &Guest<'_>, facts: &Facts, address: u64) -> Option<u64> {
        guest.word(State::base_info(guest, facts, address)?.wrapping_add(u64::from(facts.info.func)))
    }

    /// The base CallInfo, the outermost of the state at `address`: that of no Lua function.
    pub fn base_info(guest: &Guest<'_>, facts: &Facts, address: u64) -> Option<u64> {
        let base = address.wrapping_add(u64::from(facts.state.base_ci));
        if facts.info.bytes == 0 {
            Some(base)
        } else {
            guest.word(base)
        }
    }

    /// First slot and end of the stack: all that [`Info::read`] depends on for waiting functions, besides the words
    /// that it reads.
    pub fn stack(&self) -> [u64; 2] {
        [self.stack, self.stack_end]
    }

    /// The state for reading functions that wait for a callee: none of them is the running one.
    pub fn of_callers(&self) -> State {
        State { info: 0, ..*self }
    }

    /// Is the interpreter moving the stack? Then some CallInfos refer to the old stack, and others to the new one.
    pub fn is_moving(&self) -> bool {
        self.moving
    }

    /// Could there be a CallInfo of this state at `address`?
    pub fn is_info(&self, guest: &Guest<'_>, facts: &Facts, address: u64) -> bool {
        let func = || guest.word(address.wrapping_add(u64::from(facts.info.func)));
        address != 0 && address.is_multiple_of(8) && func().and_then(|func| self.slot(guest, facts, func)).is_some()
    }

    /// Is `slot` an address within the stack?
    #[inline(always)]
    pub fn has_slot(&self, slot: u64) -> bool {
        slot >= self.stack && slot < self.stack_end && slot.is_multiple_of(8)
    }

    /// The process address of the slot that a CallInfo's `func` refers to. While the stack is moved, `func` is the
    /// slot's offset from 5.4.5 on, and earlier its address in the old stack. The old stack's address is still in the
    /// base CallInfo, which is corrected last; except in 5.1, which corrects it first.
    fn slot(&self, guest: &Guest<'_>, facts: &Facts, func: u64) -> Option<u64> {
        let inside = |slot: u64| self.has_slot(slot).then_some(slot);
        let at = |offset: u64| inside(self.stack.checked_add(offset)?);
        if !self.moving {
            return inside(func);
        }
        inside(func).or_else(|| match facts.minor {
            1 => None,
            4.. if func < STACK_LIMIT => at(func),
            _ => at(func.checked_sub(State::first_slot(guest, facts, self.address)?)?),
        })
    }

    /// The process address of the slot `func` in the old stack, while the stack is moved by an unknown distance. The
    /// old stack may be free already, so the caller must check what it finds there.
    fn slot_elsewhere(&self, func: u64) -> Option<u64> {
        let is_address = (0x1000..1 << 47).contains(&func) && func.is_multiple_of(8);
        (self.moving && is_address).then_some(func)
    }

    /// 5.1: is a tail called function being moved into its caller's CallInfo (`OP_TAILCALL` in
    /// <https://github.com/lua/lua/blob/v5.1.1/lvm.c>)? Then `lua_State.base` is that of the caller's CallInfo already.
    pub fn is_taking_place(&self, guest: &Guest<'_>, facts: &Facts) -> bool {
        let info = if facts.minor == 1 { Info::read(guest, facts, self, self.info) } else { None };
        info.is_some_and(|info| info.takes_place)
    }

    /// 5.1: does `lua_State.base` equal that of the CallInfo `previous`, and not the running function's?
    fn has_base_of(&self, guest: &Guest<'_>, facts: &Facts, previous: u64) -> Option<bool> {
        let base = guest.word(self.address.wrapping_add(u64::from(facts.state.base)))?;
        Some(previous != 0 && base == guest.word(previous.wrapping_add(BASE_5_1))?)
    }

    /// Did the current native frame resume the state at `address`, which still runs? All protected calls of the state
    /// are then callees of that frame. Each has a `lua_longjmp` on the C stack; one at a higher address belongs to a
    /// coroutine that tries to resume itself or its resumer. See `luaD_rawrunprotected` in
    /// <https://github.com/lua/lua/blob/v5.4.0/ldo.c>.
    pub fn resumed_inside(guest: &Guest<'_>, facts: &Facts, address: u64) -> bool {
        let status = guest.byte(address.wrapping_add(u64::from(facts.state.status)));
        if status.is_none_or(|status| status > YIELD) {
            return false;
        }
        // The first field of `lua_longjmp` is `previous`.
        let mut at = guest.word(address.wrapping_add(u64::from(facts.state.error_jump)));
        for calls in 0..PROTECTED_LIMIT {
            match at {
                Some(0) => return calls > 0,
                Some(jump) if jump < guest.view().sp => at = guest.word(jump),
                _ => return false,
            }
        }
        false
    }
}

/// The kind of function that runs in a CallInfo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Running {
    /// A Lua function: the process address of its closure.
    Lua(u64),
    /// A C function, or the state's base.
    C,
}

/// A CallInfo that was read and checked.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Its process address.
    pub address: u64,
    /// `func`, as it is stored: the address of the function's slot, or its offset while the stack is moved.
    pub func: u64,
    /// The caller's CallInfo; 0: there is none, this is the base.
    pub previous: u64,
    /// `savedpc`: the address of the next instruction.
    pub saved_pc: u64,
    /// `callstatus`; 5.1: `tailcalls`, the number of tail calls.
    pub status: u32,
    /// The kind of function.
    pub running: Running,
    /// See [`State::is_taking_place`]: `previous` and `status` are then those of the CallInfo that the function is
    /// moved into.
    pub takes_place: bool,
}

/// Tag of functions of both kinds in 5.1 (`LUA_TFUNCTION`).
pub const FUNCTION_5_1: u8 = 6;
/// Tag of Lua functions from 5.2 on, in the low six bits (`LUA_VLCL`); then those of C functions (`LUA_VLCF`,
/// `LUA_VCCL`).
pub const LUA_CLOSURE: u8 = 0x06;
const LIGHT_C: u8 = 0x16;
const C_CLOSURE: u8 = 0x26;
/// 5.2 and 5.3: offset of `CallInfo.top`; and the distance from `u.l.base` up to `u.l.savedpc`.
const INFO_TOP: u32 = 8;
const BASE_BELOW_PC: u32 = 8;
/// 5.1: offset of `CallInfo.base`.
const BASE_5_1: u64 = 0;
/// 5.1: offset of `isC` in a closure.
pub const IS_C_5_1: u64 = 10;

impl Info {
    /// The CallInfo at the process address `address` in a state's chain. `None`: it is none, or not complete yet.
    pub fn read(guest: &Guest<'_>, facts: &Facts, state: &State, address: u64) -> Option<Info> {
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        let layout = &facts.info;
        let mut words = [0; 4];
        guest.words(address, [layout.func, layout.saved_pc, layout.status & !7, layout.previous], &mut words)?;
        let [func, saved_pc, status, linked] = words;
        let status = status_in(layout, status);
        let previous = if layout.bytes == 0 { linked } else { previous(guest, facts, state, address)? };
        if facts.minor == 1 && address == state.info && state.has_base_of(guest, facts, previous)? {
            return Info::taking_place(guest, facts, state, func, previous);
        }
        let inside = state.slot(guest, facts, func);
        let mut words = [0; 2];
        guest.words(inside.or_else(|| state.slot_elsewhere(func))?, [0, 8], &mut words)?;
        let (value, tag) = (words[0], words[1] as u8);
        let running = if facts.minor == 1 {
            running_5_1(guest, value, tag, previous)?
        } else if status & layout.kind_mask == layout.kind_lua {
            (tag & 0x3f == LUA_CLOSURE).then_some(())?;
            Running::Lua(value)
        } else {
            (previous == 0 || matches!(tag & 0x3f, LIGHT_C | C_CLOSURE)).then_some(())?;
            Running::C
        };
        let info = Info { address, func, previous, saved_pc, status, running, takes_place: false };
        match running {
            // The slot is in the old stack: its function counts only if the saved pc lies in that function's code.
            Running::Lua(closure) if inside.is_none() => {
                let pc = info.pc(guest, facts, state);
                Function { guest, facts, closure, pc }.holds_pc().then_some(info)
            }
            _ => Some(info),
        }
    }

    /// The CallInfo of [`State::is_taking_place`], whose function is at its first instruction. The function's value is
    /// in its own slot, or already in its caller's: its own slot may be overwritten when the two frames overlap.
    /// `None`: the CallInfo is not complete yet.
    #[cold]
    #[inline(never)]
    fn taking_place(guest: &Guest<'_>, facts: &Facts, state: &State, func: u64, caller: u64) -> Option<Info> {
        let start = guest.word(state.address.wrapping_add(u64::from(facts.state.saved_pc)))?;
        let slots = [Some(func), guest.word(caller.wrapping_add(u64::from(facts.info.func)))];
        let found = slots.into_iter().flatten().find_map(|func| {
            let mut words = [0; 2];
            guest.words(state.slot(guest, facts, func)?, [0, 8], &mut words)?;
            let Running::Lua(closure) = running_5_1(guest, words[0], words[1] as u8, caller)? else { return None };
            let proto = guest.word(closure.wrapping_add(u64::from(facts.proto.closure)))?;
            (guest.word(proto.wrapping_add(u64::from(facts.proto.code)))? == start).then_some(closure)
        });
        Some(Info {
            address: state.info,
            func,
            previous: previous(guest, facts, state, caller)?,
            saved_pc: start,
            status: 1,
            running: Running::Lua(found?),
            takes_place: true,
        })
    }

    /// The saved pc; for 5.1's running function it is in `lua_State.savedpc`.
    pub fn pc(&self, guest: &Guest<'_>, facts: &Facts, state: &State) -> u64 {
        if facts.state.saved_pc != 0 && self.address == state.info {
            let at = state.address.wrapping_add(u64::from(facts.state.saved_pc));
            return guest.word(at).unwrap_or(self.saved_pc);
        }
        self.saved_pc
    }

    /// Finds the Proto of its Lua function, and the current instruction. False: as [`Function::find`].
    pub fn find(&self, guest: &Guest<'_>, facts: &Facts, state: &State, proto: &mut Proto) -> bool {
        match self.running {
            Running::Lua(closure) => Function { guest, facts, closure, pc: self.pc(guest, facts, state) }.find(proto),
            Running::C => false,
        }
    }

    /// Does this function, at the current instruction of `proto`, call the function of `callee`, the CallInfo after it?
    /// In 5.2 and 5.3 a tail called function soon leaves its own CallInfo for its caller's, and the one that it left
    /// looks like that of a function that begins, until it is used again.
    #[inline(never)]
    pub fn calls(&self, guest: &Guest<'_>, facts: &Facts, state: &State, proto: &Proto, callee: &Info) -> bool {
        if !matches!(facts.minor, 2 | 3) || state.moving {
            return true;
        }
        let field = |info: &Info, offset: u32| guest.word(info.address.wrapping_add(u64::from(offset)));
        match proto.current(guest).map(|instruction| (facts.role(instruction), facts.register_a(instruction))) {
            // The callee's slot is the instruction's register A.
            Some((role::CALL, register)) => {
                let base = field(self, facts.info.saved_pc.wrapping_sub(BASE_BELOW_PC));
                base.is_some_and(|base| base.wrapping_add(u64::from(register) * VALUE) == callee.func)
            }
            // `top` is set last when a CallInfo is made.
            _ => {
                let top = guest.word(state.address.wrapping_add(TOP.into()));
                callee.status & facts.info.hooked != 0 || top == field(callee, INFO_TOP)
            }
        }
    }

    /// Is this function the outermost of its activation, by its own mark? 5.1 has none.
    pub fn is_fresh(&self, facts: &Facts) -> bool {
        self.status & facts.info.fresh_mask == facts.info.fresh
    }
}

/// The process address of the caller's CallInfo; 0 for the base.
pub fn previous(guest: &Guest<'_>, facts: &Facts, state: &State, address: u64) -> Option<u64> {
    if facts.info.bytes == 0 {
        return guest.word(address.wrapping_add(u64::from(facts.info.previous)));
    }
    let base = guest.word(state.address.wrapping_add(u64::from(facts.state.base_ci)))?;
    let bytes = u64::from(facts.info.bytes);
    let from_base = address.checked_sub(base)?;
    if !from_base.is_multiple_of(bytes) {
        return None;
    }
    Some(if from_base == 0 { 0 } else { address.wrapping_sub(bytes) })
}

/// `callstatus`, from the aligned word that holds it.
#[inline(always)]
pub fn status_in(layout: &InfoLayout, word: u64) -> u32 {
    let word = word >> ((layout.status & 7) * 8);
    match layout.status_bytes {
        1 => u32::from(word as u8),
        2 => u32::from(word as u16),
        _ => word as u32,
    }
}

fn running_5_1(guest: &Guest<'_>, closure: u64, tag: u8, previous: u64) -> Option<Running> {
    if tag != FUNCTION_5_1 {
        return (previous == 0).then_some(Running::C);
    }
    Some(match guest.byte(closure.wrapping_add(IS_C_5_1))? {
        0 => Running::Lua(closure),
        _ => Running::C,
    })
}
