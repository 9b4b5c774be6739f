//! Which CallInfos belong to the current native frame.
//!
//! The walk meets native frames from the leaf to the root, and each state's chain lists CallInfos in the same order. An
//! activation of `luaV_execute` hosts those from the cursor up to the first whose mark says that it is an activation's
//! outermost. The activation's local variable `ci`, where it is available, is the *anchor*: it shows whether the chain
//! and the native stack agree. They disagree while the interpreter enters or leaves a function, and after an error was
//! thrown.

use super::cursor::Cursors;
use super::facts::Facts;
use super::function::{Called, Function, Proto};
use super::omit::{self, Omitted};
use super::state::{self, Info, Running, State};
use super::{places, stretch};
use crate::points::{is_point, up_to_point};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER, OVERLAY_NONE};

/// DWARF number of rdi: the first argument, until the function has moved it.
const RDI: u8 = 5;
/// Limit of CallInfos between the cursor and the anchor: C functions that call each other, and all that an error has
/// just left.
const ANCHOR_LIMIT: u32 = 1 << 12;
/// Limit of Lua functions that are searched for the one whose code holds the bytecode pc.
const PC_LIMIT: u32 = 256;
/// Limit of CallInfos that the loop has not begun to execute: a called function, the hook of its call, and a function
/// that the hook calls.
const ENTERED_LIMIT: u32 = 4;
/// Limit of adjacent CallInfos of C functions (`LUAI_MAXCCALLS` is 200).
const C_LIMIT: u32 = 512;

/// The answer where Lua frames must be, but were not found.
const DOUBT: u32 = OVERLAY_INTERPRETER | OVERLAY_DESYNC;

/// The current native frame.
pub struct Frame<'v> {
    /// The host, and the host's view of the frame.
    pub guest: &'v Guest<'v>,
    /// The interpreter's facts.
    pub facts: &'v Facts,
    /// File address of the current instruction: of the interrupted one, or within the call.
    pub lookup: u64,
}

/// Which part of `luaV_execute` executes.
#[derive(PartialEq, Eq)]
enum Stage {
    /// The native frame is being made; the activation's CallInfos are in the chain already.
    Entry,
    /// The native frame is complete, and the local variables are being loaded from a function's CallInfo: of the
    /// function that it was entered with, that it calls, or that it returns to. The saved pc is right, and the place of
    /// the bytecode pc holds another value.
    Loading,
    /// The native frame is complete, and the loop executes.
    Body,
    /// The native frame is being removed; its CallInfos are gone.
    Exit,
}

/// Which of a state's Lua functions are emitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Those of one activation.
    Activation,
    /// The innermost only: it is its activation's outermost, but not marked yet.
    One,
    /// Those of one activation. The mark of the innermost is not valid yet: it was called by the next one.
    Unmarked,
    /// All that remain.
    Rest,
}

/// Where an activation's CallInfos begin.
enum Start {
    /// At this one, its innermost.
    At(u64),
    /// Nowhere: it has none any more, or none yet.
    Nothing,
}

impl Frame<'_> {
    /// The overlay of a frame of `luaV_execute`.
    pub fn execute(&self, mut cursors: Cursors<'_>) -> u32 {
        let stage = self.stage();
        if stage == Stage::Exit {
            return OVERLAY_INTERPRETER;
        }
        let read = |at| State::read(self.guest, self.facts, at);
        // In the body, a compiler that is short of registers may keep `L` in the register of the first argument again.
        let argument = || self.guest.register(RDI).filter(|_| self.guest.exact()).and_then(read);
        let kept = || places::first(self.guest, &self.facts.execute_state, read);
        let found = if stage == Stage::Entry { argument().or_else(kept) } else { kept().or_else(argument) };
        let Some(state) = found.or_else(|| places::of_registered(self.guest, self.facts)) else { return DOUBT };
        let Some(cursor) = cursors.at(state.address, state.info) else { return DOUBT };
        let takes_place =
            self.guest.exact() && cursor.info == state.info && state.is_taking_place(self.guest, self.facts);
        let start = match stage {
            Stage::Entry | Stage::Loading => None,
            _ if takes_place => None,
            _ if self.facts.minor == 1 => self.anchor_by_pc(&state, cursor.info),
            _ => self.anchor(&state, cursor.info),
        };
        let (first, anchor) = match start {
            None => (cursor.info, 0),
            // Functions of this state were emitted before; the cursor is at their caller.
            Some(Start::At(anchor)) if cursor.info != state.info => (cursor.info, anchor),
            Some(Start::At(anchor)) => self.entered(&state, anchor).map_or((anchor, 0), |first| (first, anchor)),
            Some(Start::Nothing) => return OVERLAY_INTERPRETER,
        };
        let saved = takes_place || anchor != 0 || matches!(stage, Stage::Entry | Stage::Loading);
        let part = match stage {
            Stage::Entry if self.facts.execute_marked != 0 => Part::One,
            _ if self.guest.exact() && self.facts.marking.contains(self.lookup) => Part::Unmarked,
            _ => Part::Activation,
        };
        let (next, answer) = self.emit(&state, (first, anchor), part, saved);
        cursor.info = next;
        answer
    }

    /// The overlay of a frame of `lua_resume`. The coroutine's functions that are not emitted yet have no native frames
    /// of their own: they yielded across calls of C functions, and `unroll` resumes them one after the other
    /// (<https://github.com/lua/lua/blob/v5.4.0/ldo.c>).
    pub fn resume(&self, mut cursors: Cursors<'_>) -> u32 {
        // A state whose functions were all emitted is not read again: its fields change with each step of the running
        // function, and what was read here would keep the next walk from reusing this one.
        let is_at_end = |at| {
            let ended = |info| info == 0 || State::base_info(self.guest, self.facts, at) == Some(info);
            cursors.position(at).is_some_and(ended)
        };
        let read = |at| match is_at_end(at) {
            true => Some(Err(at)),
            false => State::read(self.guest, self.facts, at).map(Ok),
        };
        let Some(found) = places::first(self.guest, &self.facts.resume_state, read) else { return OVERLAY_NONE };
        let state = match found {
            Ok(state) => state,
            Err(ended) => {
                if !self.guest.exact() && State::resumed_inside(self.guest, self.facts, ended) {
                    cursors.forget(ended);
                }
                return OVERLAY_NONE;
            }
        };
        // Not before `lua_resume` has started the coroutine, and not after it has yielded or ended. `status` is not
        // enough: it is set while `lua_yield` runs, when the functions that yield are still on this native stack.
        if self.guest.exact() || !State::resumed_inside(self.guest, self.facts, state.address) {
            return OVERLAY_NONE;
        }
        let left = match cursors.at(state.address, state.info) {
            Some(cursor) => cursor.info,
            None => return OVERLAY_NONE,
        };
        cursors.forget(state.address);
        let (_, answer) = self.emit(&state, (left, 0), Part::Rest, true);
        answer
    }

    fn stage(&self) -> Stage {
        let view = self.guest.view();
        let start = self.facts.execute.first().map_or(0, |main| main.start);
        let done = self.lookup.wrapping_sub(start);
        if view.exact == 0 {
            return Stage::Body;
        }
        if done < u64::from(self.facts.execute_prologue.max(self.facts.execute_marked)) {
            return Stage::Entry;
        }
        if done < u64::from(self.facts.execute_loop) {
            return Stage::Loading;
        }
        // The native frame is smaller than in the body, and this is not the entry.
        let size = view.cfa.wrapping_sub(view.sp);
        if size < u64::from(self.facts.execute_frame) {
            Stage::Exit
        } else {
            Stage::Body
        }
    }

    /// Where the activation begins according to its own `ci`. `None`: that is not available, or no CallInfo that fits.
    #[inline(never)]
    fn anchor(&self, state: &State, cursor: u64) -> Option<Start> {
        places::first(self.guest, &self.facts.execute_info, |anchor| {
            if !state.is_info(self.guest, self.facts, anchor) {
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
                at = state::previous(self.guest, self.facts, state, at)?;
            }
            // `ci` was taken out of the chain, but the activation still executes. Its CallInfo is unchanged.
            let next = self.guest.word(cursor.wrapping_add(u64::from(self.facts.info.next)));
            if cursor == 0 || next != Some(anchor) {
                return None;
            }
            let unlinked = Info::read(self.guest, self.facts, state, anchor);
            let ended = unlinked.is_some_and(|info| info.is_fresh(self.facts));
            Some(if ended { Start::Nothing } else { Start::At(cursor) })
        })
    }

    /// A called function is in the chain before the loop executes it: while its stack is made, and while the hook of
    /// its call runs. This is the innermost CallInfo of those above the anchor, if all of them are at their first
    /// instructions. Functions that an error has left are not: among them is a protected call's C function. A CallInfo
    /// that is being made may still have contents of an earlier use.
    #[inline(never)]
    fn entered(&self, state: &State, anchor: u64) -> Option<u64> {
        let (guest, facts) = (self.guest, self.facts);
        if state.info == anchor {
            return None;
        }
        let mut first = None;
        let mut outermost = None;
        let mut at = state.info;
        for _ in 0..ENTERED_LIMIT {
            let info = Info::read(guest, facts, state, at);
            let mut proto = Proto::default();
            let begins =
                info.as_ref().is_some_and(|info| info.find(guest, facts, state, &mut proto) && proto.index == 0);
            if at == anchor {
                // If the anchor's function is at its first instruction, it was tail called and has just been moved
                // here: it calls nothing.
                let calls = || {
                    info.as_ref()
                        .zip(outermost.as_ref())
                        .is_some_and(|(info, called)| info.calls(guest, facts, state, &proto, called))
                };
                return first.filter(|_| !begins && calls());
            }
            match begins {
                true => {
                    first = first.or(Some(at));
                    outermost = info;
                }
                // It is being made.
                false if at == state.info => {}
                false => return None,
            }
            at = state::previous(guest, facts, state, at)?;
        }
        None
    }

    /// 5.1, whose `luaV_execute` has no variable `ci`: where the activation begins according to its bytecode pc.
    #[inline(never)]
    fn anchor_by_pc(&self, state: &State, cursor: u64) -> Option<Start> {
        let (guest, facts) = (self.guest, self.facts);
        let pc = places::value(guest, facts.execute_pc).filter(|pc| *pc != 0 && pc.is_multiple_of(4))?;
        let holds = |info: &Info| match info.running {
            Running::Lua(closure) => Function { guest, facts, closure, pc }.holds_pc(),
            Running::C => false,
        };
        let mut at = cursor;
        let mut holder = None;
        let mut searched = 0;
        for _ in 0..ANCHOR_LIMIT {
            let info = Info::read(guest, facts, state, at);
            if let Some(info) = info.as_ref().filter(|info| holds(info)) {
                // When a function has just called itself, both hold the pc, and only the caller has saved it.
                if guest.exact() || info.pc(guest, facts, state) == pc {
                    return Some(Start::At(at));
                }
                holder = holder.or(Some(at));
            }
            searched += u32::from(!info.is_some_and(|info| info.running == Running::C));
            // A CallInfo that an error has left may be overwritten; those before it are complete.
            at = state::previous(guest, facts, state, at)?;
            if at == 0 || searched >= PC_LIMIT {
                break;
            }
        }
        if let Some(holder) = holder {
            return Some(Start::At(holder));
        }
        if cursor != state.info {
            return None;
        }
        // The loop does not execute while the Lua function calls a C function. So the Lua function has just ended, and
        // this C function called it.
        if Info::read(guest, facts, state, cursor).is_some_and(|info| info.running == Running::C) {
            return Some(Start::Nothing);
        }
        let unlinked = Info::read(guest, facts, state, cursor.wrapping_add(u64::from(facts.info.bytes)))?;
        if !holds(&unlinked) {
            return None;
        }
        let caller = Info::read(guest, facts, state, unlinked.previous);
        let called = Called::new(guest, facts, state, &unlinked, caller.as_ref());
        let ended = called.by_call_instruction(guest, facts) == Some(false);
        Some(if ended { Start::Nothing } else { Start::At(cursor) })
    }

    /// Emits the Lua functions from the CallInfo `first` on. `saved`: the first one's saved pc is right, else the
    /// bytecode pc is in its place. Marks before `anchor` do not count, unless it is 0. Returns the CallInfo after the
    /// last one, and the answer.
    fn emit(&self, state: &State, (first, anchor): (u64, u64), part: Part, saved: bool) -> (u64, u32) {
        let (guest, facts) = (self.guest, self.facts);
        let mut at = first;
        let mut state = *state;
        let mut emitted = 0u32;
        let mut asked = false;
        let mut read = None;
        let mut c_functions = 0;
        let mut anchored = anchor == 0;
        // Each turn emits a function, of which a walk has a limited number, or passes a C function.
        while at != 0 && c_functions <= C_LIMIT {
            let Some(info) = read.take().or_else(|| Info::read(guest, facts, &state, at)) else {
                // The innermost CallInfo may be in the making; then the next one is complete.
                match state::previous(guest, facts, &state, at) {
                    Some(previous) if at == state.info && previous != 0 && !state.is_moving() => {
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
            if anchored && !state.is_moving() && is_point(emitted) && self.rest_is_known(&state, &info, closure, part) {
                return (0, OVERLAY_INTERPRETER);
            }
            if emitted >= omit::ENOUGH && !asked && anchored && part == Part::Activation && !state.is_moving() {
                asked = true;
                match omit::omit(guest, facts, &info) {
                    Omitted::Nothing => {}
                    Omitted::Next(next) => {
                        at = next;
                        continue;
                    }
                    Omitted::Torn => return (at, DOUBT),
                }
            }
            if emitted > 0 && anchored && !state.is_moving() && part != Part::One {
                let mut info = info;
                let passed = stretch::emit(guest, facts, &state, &mut info, part != Part::Rest, up_to_point(emitted));
                if passed.full {
                    return (0, OVERLAY_INTERPRETER);
                }
                if passed.emitted > 0 {
                    emitted += passed.emitted;
                    at = info.address;
                    if passed.ended {
                        break;
                    }
                    read = Some(info);
                    continue;
                }
            }
            anchored |= at == anchor;
            let caller = Info::read(guest, facts, &state, info.previous);
            let called = Called::new(guest, facts, &state, &info, caller.as_ref());
            let unmarked = part == Part::Unmarked && emitted == 0;
            let pc =
                if emitted > 0 || saved { info.pc(guest, facts, &state) } else { self.live_pc(&state, &info, closure) };
            let Some(function) = Function { guest, facts, closure, pc }.semantic(&called) else { return (at, DOUBT) };
            if !function.emit(guest) {
                return (0, OVERLAY_INTERPRETER);
            }
            emitted += 1;
            state = state.of_callers();
            at = info.previous;
            let ends = match part {
                Part::One => true,
                Part::Rest => false,
                _ if !anchored => false,
                _ if facts.has_no_mark() => match function.by_call {
                    Some(by_call) => !by_call,
                    // Its caller's CallInfo is being reused for another function (a tail call, or an error's message
                    // handler).
                    None => return (at, DOUBT),
                },
                _ => info.is_fresh(facts) && !unmarked,
            };
            if ends {
                break;
            }
            read = caller;
        }
        match (emitted, part) {
            (1.., _) => (at, OVERLAY_INTERPRETER),
            (0, Part::Rest) => (at, OVERLAY_NONE),
            (0, _) => (at, DOUBT),
        }
    }

    /// A point ([`Guest::rest_is_known`]) before the function of `info`, which waits for its callee: all that the rest
    /// of the activation depends on. True: the rest was taken from a cached walk.
    #[inline(never)]
    fn rest_is_known(&self, state: &State, info: &Info, closure: u64, part: Part) -> bool {
        let [stack, end] = state.stack();
        let kind = u64::from(info.status) | u64::from(part == Part::Rest) << 32;
        let rest = [state.address, stack, end, info.address, info.previous, info.saved_pc, info.func, closure, kind, 0];
        self.guest.rest_is_known(info.func, &rest)
    }

    /// The bytecode pc of the activation's innermost function: the value at its place, if that lies in the function's
    /// code, else the saved one.
    #[inline(never)]
    fn live_pc(&self, state: &State, info: &Info, closure: u64) -> u64 {
        let saved = info.pc(self.guest, self.facts, state);
        let live = places::value(self.guest, self.facts.execute_pc);
        let Some(live) = live.filter(|live| live.is_multiple_of(4)) else { return saved };
        let function = Function { guest: self.guest, facts: self.facts, closure, pc: live };
        if function.holds_pc() {
            live
        } else {
            saved
        }
    }
}
