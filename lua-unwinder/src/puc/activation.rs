//! Which CallInfos belong to the native frame in hand.
//!
//! Native frames are met innermost first, and so are the CallInfos of each state. An activation of `luaV_execute` takes
//! those from the cursor up to the one that its mark names as its outermost. Its local variable `ci`, where it can be seen,
//! is the *anchor*: it shows whether the chain and the native stack stand at the same place, which they do not while the
//! interpreter is just entering or leaving a function, or after an error was thrown.

use super::cursor::Cursors;
use super::facts::Facts;
use super::function::{Called, Function, Proto};
use super::state::{self, Info, Running, State};
use super::{places, stretch};
use crate::walk::{is_point, up_to_point, Walk};
use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER, OVERLAY_NONE};

/// DWARF number of rdi: the first argument, before it is put where it stays.
const RDI: u8 = 5;
/// CallInfos between the cursor and the anchor: C functions that call each other, and all that an error has just left.
const ANCHOR_LIMIT: u32 = 1 << 12;
/// Lua functions among which the one that holds the bytecode pc is looked for.
const PC_LIMIT: u32 = 256;
/// Functions that are called and not taken up: one, the hook of its call, and the hook's own.
const ENTERED_LIMIT: u32 = 4;
/// CallInfos of C functions, one after the other (`LUAI_MAXCCALLS` is 200).
const C_LIMIT: u32 = 512;

/// The answer where frames should be and are not found.
const DOUBT: u32 = OVERLAY_INTERPRETER | OVERLAY_DESYNC;

/// The native frame in hand.
pub struct Frame<'v> {
    /// The frame and the host.
    pub walk: &'v Walk<'v>,
    /// The interpreter's facts.
    pub facts: &'v Facts,
    /// File address of the instruction in hand.
    pub lookup: u64,
}

/// Where execution stands within the function's frame.
#[derive(PartialEq, Eq)]
enum Stage {
    /// The frame is being set up: the activation's CallInfos are in the chain already.
    Entry,
    /// The frame is whole, and a function is taken up, at its saved pc: the one that it was entered with, that it calls, or that it
    /// returns to. Where the pc will be is something else yet.
    TakingUp,
    /// The frame is whole.
    Body,
    /// The frame is being torn down: its CallInfos are gone.
    Exit,
}

/// Which of a state's Lua functions are told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Those of one activation.
    Activation,
    /// The innermost only: it is its activation's outermost, but not marked as such yet.
    One,
    /// Those of one activation, whose innermost, called by the one before it, is not marked as such yet.
    Unmarked,
    /// All that are left.
    Rest,
}

/// What the cursor shows.
enum Start {
    /// The activation's innermost CallInfo.
    At(u64),
    /// The activation has none any more, or none yet.
    Nothing,
}

impl Frame<'_> {
    /// A frame of `luaV_execute`.
    pub fn execute(&self, mut cursors: Cursors<'_>) -> u32 {
        let stage = self.stage();
        if stage == Stage::Exit {
            return OVERLAY_INTERPRETER;
        }
        let read = |at| State::read(self.walk, self.facts, at);
        // In the body, a loop that is short of registers may have put it back into the one of the first argument.
        let argument = || self.walk.register(RDI).filter(|_| self.walk.exact()).and_then(read);
        let kept = || places::first(self.walk, &self.facts.execute_state, read);
        let found = if stage == Stage::Entry { argument().or_else(kept) } else { kept().or_else(argument) };
        let Some(state) = found.or_else(|| places::of_registered(self.walk, self.facts)) else { return DOUBT };
        let Some(cursor) = cursors.at(state.address, state.info) else { return DOUBT };
        let start = match stage {
            Stage::Entry | Stage::TakingUp => None,
            _ if self.facts.minor == 1 => self.anchor_by_pc(&state, cursor.info),
            _ => self.anchor(&state, cursor.info),
        };
        let (first, anchor) = match start {
            None => (cursor.info, 0),
            // What was told of this state before is called from where the cursor stands.
            Some(Start::At(anchor)) if cursor.info != state.info => (cursor.info, anchor),
            Some(Start::At(anchor)) => self.entered(&state, anchor).map_or((anchor, 0), |first| (first, anchor)),
            Some(Start::Nothing) => return OVERLAY_INTERPRETER,
        };
        let entry = matches!(stage, Stage::Entry | Stage::TakingUp);
        let part = match stage {
            Stage::Entry if self.facts.execute_marked != 0 => Part::One,
            _ if self.walk.exact() && self.facts.marking.contains(self.lookup) => Part::Unmarked,
            _ => Part::Activation,
        };
        let (next, told) = self.tell(&state, (first, anchor), part, entry || anchor != 0);
        cursor.info = next;
        told
    }

    /// A frame of `lua_resume`: what is left of its coroutine has no native frames of its own, because the functions yielded
    /// across calls of C functions and were resumed one after the other.
    pub fn resume(&self, mut cursors: Cursors<'_>) -> u32 {
        let read = |at| State::read(self.walk, self.facts, at);
        let Some(state) = places::first(self.walk, &self.facts.resume_state, read) else { return OVERLAY_NONE };
        // Not while it is looked whether it may be resumed at all, nor when it has yielded or ended. A status would not do: while
        // `lua_yield` is on its way out, the functions that yielded still stand on this stack.
        if self.walk.exact() || !state.runs_inside(self.walk, self.facts) {
            return OVERLAY_NONE;
        }
        let left = match cursors.at(state.address, state.info) {
            Some(cursor) => cursor.info,
            None => return OVERLAY_NONE,
        };
        cursors.forget(state.address);
        let (_, told) = self.tell(&state, (left, 0), Part::Rest, true);
        told
    }

    fn stage(&self) -> Stage {
        let view = self.walk.view();
        let start = self.facts.execute.first().map_or(0, |main| main.start);
        let done = self.lookup.wrapping_sub(start);
        if view.exact == 0 {
            return Stage::Body;
        }
        if done < u64::from(self.facts.execute_prologue.max(self.facts.execute_marked)) {
            return Stage::Entry;
        }
        if done < u64::from(self.facts.execute_loop) {
            return Stage::TakingUp;
        }
        // With less of a frame than in its body, and not entering.
        let size = view.cfa.wrapping_sub(view.sp);
        if size < u64::from(self.facts.execute_frame) {
            Stage::Exit
        } else {
            Stage::Body
        }
    }

    /// Where the activation's own `ci` says that it stands. `None`: it cannot be seen, or says nothing that makes sense.
    #[inline(never)]
    fn anchor(&self, state: &State, cursor: u64) -> Option<Start> {
        places::first(self.walk, &self.facts.execute_info, |anchor| {
            if !state.is_info(self.walk, self.facts, anchor) {
                return None;
            }
            let mut at = cursor;
            for _ in 0..ANCHOR_LIMIT {
                if at == anchor {
                    return Some(Start::At(at));
                }
                if at == 0 {
                    break;
                }
                at = state::previous(self.walk, self.facts, state, at)?;
            }
            // Unlinked, but its frame is still there. What it holds is as it was.
            let next = self.walk.word(cursor.wrapping_add(u64::from(self.facts.info.next)));
            if cursor == 0 || next != Some(anchor) {
                return None;
            }
            let gone = Info::read(self.walk, self.facts, state, anchor);
            let ended = gone.is_some_and(|gone| gone.is_fresh(self.facts));
            Some(if ended { Start::Nothing } else { Start::At(cursor) })
        })
    }

    /// A function that is called is in the chain before the loop takes it up: when its stack is made, and while the hook of its call runs.
    /// The innermost of those above the anchor, which stand at their first instructions. What an error has left does not: there,
    /// a protected call's C function is among them.
    #[inline(never)]
    fn entered(&self, state: &State, anchor: u64) -> Option<u64> {
        let (walk, facts) = (self.walk, self.facts);
        if state.info == anchor {
            return None;
        }
        let begins = |info: Info| match info.running {
            Running::Lua(closure) => {
                let mut proto = Proto::default();
                Function { walk, facts, closure, pc: info.pc(walk, facts, state) }.find(&mut proto) && proto.index == 0
            }
            Running::C => false,
        };
        let mut first = None;
        let mut at = state.info;
        for _ in 0..ENTERED_LIMIT {
            let begins = Info::read(walk, facts, state, at).is_some_and(begins);
            if at == anchor {
                // One that begins has just been given the frame of what it was tail called by.
                return first.filter(|_| !begins);
            }
            match begins {
                true => first = first.or(Some(at)),
                // It is just made.
                false if at == state.info => {}
                false => return None,
            }
            at = state::previous(walk, facts, state, at)?;
        }
        None
    }

    /// 5.1, which keeps no `ci`: where the bytecode pc says that the activation stands.
    #[inline(never)]
    fn anchor_by_pc(&self, state: &State, cursor: u64) -> Option<Start> {
        let (walk, facts) = (self.walk, self.facts);
        let pc = places::value(walk, facts.execute_pc).filter(|pc| *pc != 0 && pc.is_multiple_of(4))?;
        let holds = |info: &Info| match info.running {
            Running::Lua(closure) => Function { walk, facts, closure, pc }.holds_pc(),
            Running::C => false,
        };
        let mut at = cursor;
        let mut holder = None;
        let mut looked_at = 0;
        for _ in 0..ANCHOR_LIMIT {
            let info = Info::read(walk, facts, state, at);
            if let Some(info) = info.as_ref().filter(|info| holds(info)) {
                // While a function of the same code is just called, only its caller has saved this pc.
                if walk.exact() || info.pc(walk, facts, state) == pc {
                    return Some(Start::At(at));
                }
                holder = holder.or(Some(at));
            }
            looked_at += u32::from(!info.is_some_and(|info| info.running == Running::C));
            // One that an error has left may be overwritten; those before it are whole.
            at = state::previous(walk, facts, state, at)?;
            if at == 0 || looked_at >= PC_LIMIT {
                break;
            }
        }
        if let Some(holder) = holder {
            return Some(Start::At(holder));
        }
        if cursor != state.info {
            return None;
        }
        // What runs in the loop is a Lua function, and no C function's while that is called. So it has just ended, and C called it.
        if Info::read(walk, facts, state, cursor).is_some_and(|info| info.running == Running::C) {
            return Some(Start::Nothing);
        }
        let gone = Info::read(walk, facts, state, cursor.wrapping_add(u64::from(facts.info.bytes)))?;
        if !holds(&gone) {
            return None;
        }
        let caller = Info::read(walk, facts, state, gone.previous);
        let called = Called::new(walk, facts, state, &gone, caller.as_ref());
        let ended = called.by_call_instruction(walk, facts) == Some(false);
        Some(if ended { Start::Nothing } else { Start::At(cursor) })
    }

    /// Tells the Lua functions from `first` on, the first one at its saved pc if it has not begun to use a register. Gives the
    /// CallInfo behind them. No mark counts before `anchor`, unless that is 0.
    fn tell(&self, state: &State, (first, anchor): (u64, u64), part: Part, saved: bool) -> (u64, u32) {
        let (walk, facts) = (self.walk, self.facts);
        let mut at = first;
        let mut state = *state;
        let mut told = 0u32;
        let mut in_hand = None;
        let mut c_functions = 0;
        let mut anchored = anchor == 0;
        // Each turn tells a function, of which a walk has a limited number, or passes a C function.
        while at != 0 && c_functions <= C_LIMIT {
            let Some(info) = in_hand.take().or_else(|| Info::read(walk, facts, &state, at)) else {
                // The innermost one may just be made; then its activation's next one is whole.
                match state::previous(walk, facts, &state, at) {
                    Some(previous) if at == state.info && previous != 0 && !state.is_moving(walk) => {
                        at = previous;
                        c_functions += 1;
                        continue;
                    }
                    _ => return (at, DOUBT),
                }
            };
            let Running::Lua(closure) = info.running else {
                at = info.previous;
                c_functions += 1;
                continue;
            };
            c_functions = 0;
            if anchored && is_point(told) && self.rest_is_known(&state, &info, closure, part) {
                return (0, OVERLAY_INTERPRETER);
            }
            if told > 0 && anchored && part != Part::One {
                let mut info = info;
                let passed = stretch::tell(walk, facts, &state, &mut info, part != Part::Rest, up_to_point(told));
                if passed.full {
                    return (0, OVERLAY_INTERPRETER);
                }
                if passed.told > 0 {
                    told += passed.told;
                    at = info.address;
                    if passed.ended {
                        break;
                    }
                    in_hand = Some(info);
                    continue;
                }
            }
            anchored |= at == anchor;
            let caller = Info::read(walk, facts, &state, info.previous);
            let called = Called::new(walk, facts, &state, &info, caller.as_ref());
            let unmarked = part == Part::Unmarked && told == 0;
            let pc =
                if told > 0 || saved { info.pc(walk, facts, &state) } else { self.live_pc(&state, &info, closure) };
            let Some(function) = Function { walk, facts, closure, pc }.told(&called) else { return (at, DOUBT) };
            if !function.emit(walk) {
                return (0, OVERLAY_INTERPRETER);
            }
            told += 1;
            state = state.of_callers();
            at = info.previous;
            let ends = match part {
                Part::One => true,
                Part::Rest => false,
                _ if !anchored => false,
                _ if facts.has_no_mark() => match function.by_call {
                    Some(by_call) => !by_call,
                    // Its caller's frame is just being given to another function (a tail call, an error's message).
                    None => return (at, DOUBT),
                },
                _ => info.is_fresh(facts) && !unmarked,
            };
            if ends {
                break;
            }
            in_hand = caller;
        }
        match (told, part) {
            (1.., _) => (at, OVERLAY_INTERPRETER),
            (0, Part::Rest) => (at, OVERLAY_NONE),
            (0, _) => (at, DOUBT),
        }
    }

    /// Says what the rest of an activation depends on, from a function on that waits for another. True: it is known.
    #[inline(never)]
    fn rest_is_known(&self, state: &State, info: &Info, closure: u64, part: Part) -> bool {
        let [stack, end] = state.stack();
        let kind = u64::from(info.status) | u64::from(part == Part::Rest) << 32;
        let rest = [state.address, stack, end, info.address, info.previous, info.saved_pc, info.func, closure, kind, 0];
        self.walk.rest_is_known(info.func, &rest)
    }

    /// The bytecode pc of the activation's innermost function: in a register, where that shows it, else as it was saved.
    #[inline(never)]
    fn live_pc(&self, state: &State, info: &Info, closure: u64) -> u64 {
        let saved = info.pc(self.walk, self.facts, state);
        let live = places::value(self.walk, self.facts.execute_pc);
        let Some(live) = live.filter(|live| live.is_multiple_of(4)) else { return saved };
        let function = Function { walk: self.walk, facts: self.facts, closure, pc: live };
        if function.holds_pc() {
            live
        } else {
            saved
        }
    }
}
