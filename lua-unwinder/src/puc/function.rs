//! A running Lua function: its Proto, and where in it execution stands.

use super::facts::{role, Facts};
use super::lines;
use super::name;
use super::state::{Info, Running, State};
use super::text;
use crate::walk::Walk;
use uunwind_core::plugin::{Description, TABLE_NONE};

/// Bytes of an instruction.
const INSTRUCTION: u64 = 4;
/// More instructions than any Proto has.
const CODE_LIMIT: u64 = 1 << 27;

/// What became of a frame.
pub enum Emitted {
    /// It was emitted.
    Done,
    /// It is no function: the chain is torn.
    Invalid,
    /// The stack is full.
    Full,
}

/// Who called a function, as far as that gives it a name.
pub struct Called {
    /// The caller, if it is a Lua function.
    caller: Option<(Info, u64)>,
    /// There is a CallInfo of the caller that could be read.
    caller_is_whole: bool,
    /// The function was tail called, so its caller is gone.
    tail: bool,
    hooked: bool,
    finalizer: bool,
}

impl Called {
    /// From the CallInfos of a function and of its caller.
    pub fn new(facts: &Facts, info: &Info, caller: Option<&Info>) -> Called {
        let flag = |mask: u32| caller.is_some_and(|c| c.status & mask != 0);
        let lua = caller.and_then(|c| match c.running {
            Running::Lua(closure) => Some((*c, closure)),
            Running::C => None,
        });
        let tail = if facts.minor == 1 { info.status != 0 } else { info.status & facts.info.tail != 0 };
        // From 5.4 on the marks stand in the caller's CallInfo; in 5.3 and before too (`ci->previous`).
        Called {
            caller: lua,
            caller_is_whole: caller.is_some(),
            tail,
            hooked: flag(facts.info.hooked),
            finalizer: flag(facts.info.finalizer),
        }
    }

    /// Is the caller a Lua function that stands at a call instruction? Then both run in one activation (5.1). `None`: what the
    /// caller is cannot be told now.
    pub fn by_call_instruction(&self, walk: &Walk<'_>, facts: &Facts, state: &State) -> Option<bool> {
        let Some((info, closure)) = &self.caller else { return self.caller_is_whole.then_some(false) };
        let function = Function { walk, facts, closure: *closure, pc: info.pc(walk, facts, state) };
        Some(facts.role(function.proto()?.current(walk)?) == role::CALL)
    }
}

/// The function that runs in a CallInfo.
pub struct Function<'v> {
    /// The host.
    pub walk: &'v Walk<'v>,
    /// The interpreter's facts.
    pub facts: &'v Facts,
    /// `LClosure`.
    pub closure: u64,
    /// Address of the next bytecode instruction.
    pub pc: u64,
}

/// A Proto, as far as it is needed, and a place in its code.
#[derive(Clone, Copy)]
pub struct Proto {
    /// Its address.
    pub address: u64,
    /// First instruction.
    pub code: u64,
    /// Number of instructions.
    pub code_len: u32,
    /// Index of the instruction in hand.
    pub index: u32,
}

impl Proto {
    /// The instruction in hand.
    pub fn current(&self, walk: &Walk<'_>) -> Option<u32> {
        self.instruction(walk, self.index)
    }

    /// An instruction.
    pub fn instruction(&self, walk: &Walk<'_>, index: u32) -> Option<u32> {
        if index >= self.code_len {
            return None;
        }
        walk.half(self.code.wrapping_add(u64::from(index) * INSTRUCTION))
    }

    /// A word of the Proto.
    pub fn word(&self, walk: &Walk<'_>, offset: u32) -> Option<u64> {
        walk.word(self.address.wrapping_add(u64::from(offset)))
    }

    /// 32 bits of the Proto.
    pub fn half(&self, walk: &Walk<'_>, offset: u32) -> Option<u32> {
        walk.half(self.address.wrapping_add(u64::from(offset)))
    }
}

impl Function<'_> {
    /// Its Proto. `None`: there is none, or the pc is not in it.
    pub fn proto(&self) -> Option<Proto> {
        let layout = &self.facts.proto;
        let address = self.walk.word(self.closure.wrapping_add(u64::from(layout.closure)))?;
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        let mut proto = Proto { address, code: 0, code_len: 0, index: 0 };
        (proto.code, proto.code_len) = (proto.word(self.walk, layout.code)?, proto.half(self.walk, layout.code_len)?);
        let ahead = self.pc.wrapping_sub(proto.code);
        let length = u64::from(proto.code_len).wrapping_mul(INSTRUCTION);
        if !ahead.is_multiple_of(INSTRUCTION) || ahead > length || u64::from(proto.code_len) > CODE_LIMIT || length == 0
        {
            return None;
        }
        // The pc is already past the instruction; at the very first it is not.
        proto.index = u32::try_from((ahead / INSTRUCTION).saturating_sub(1)).ok()?;
        Some(proto)
    }

    /// Does the pc lie in the function's code?
    pub fn holds_pc(&self) -> bool {
        self.proto().is_some()
    }

    /// Emits the frame; describes the function first if it was never seen to be called like this.
    pub fn emit(&self, state: &State, called: &Called) -> Emitted {
        let Some(proto) = self.proto() else { return Emitted::Invalid };
        let (walk, layout) = (self.walk, &self.facts.proto);
        let (Some(source), Some(first_line)) = (proto.word(walk, layout.source), proto.half(walk, layout.first_line))
        else {
            return Emitted::Invalid;
        };
        let origin = self.origin(state, called);
        let fingerprint = fingerprint([source, u64::from(first_line), proto.code, origin.identity()]);
        let mut id = walk.find_name(proto.address, fingerprint);
        if id == 0 {
            let name = match &origin {
                Origin::Main | Origin::Unknown => text::EMPTY,
                Origin::Event(event) => text::of_event(event),
                Origin::Caller(caller, instruction) => name::of_callee(walk, self.facts, caller, *instruction),
            };
            let name = if first_line == 0 && name.len == 0 { text::own(text::MAIN) } else { name };
            id = walk.describe(&Description {
                code: proto.address,
                fingerprint,
                name,
                file: text::of_source(walk, self.facts, source),
                table: text::EMPTY,
                first_line,
                table_kind: TABLE_NONE,
            });
        }
        let line = lines::line(walk, self.facts, &proto, first_line).unwrap_or(0);
        if walk.emit(id, u64::from(line)) {
            Emitted::Done
        } else {
            Emitted::Full
        }
    }

    /// What names the function.
    fn origin(&self, state: &State, called: &Called) -> Origin {
        if called.finalizer {
            return Origin::Event(text::FINALIZER);
        }
        if called.hooked {
            return Origin::Event(text::HOOK);
        }
        let Some((info, closure)) = called.caller.as_ref().filter(|_| !called.tail) else { return Origin::Unknown };
        let pc = info.pc(self.walk, self.facts, state);
        let caller = Function { walk: self.walk, facts: self.facts, closure: *closure, pc };
        let Some(proto) = caller.proto() else { return Origin::Unknown };
        match proto.current(self.walk) {
            Some(instruction) => Origin::Caller(proto, instruction),
            None => Origin::Unknown,
        }
    }
}

/// What names a function.
enum Origin {
    /// It is a chunk.
    #[allow(dead_code, reason = "told by its first line")]
    Main,
    /// Nothing does.
    Unknown,
    /// The runtime calls it, for a reason that has a name.
    Event(&'static [u8]),
    /// The instruction that calls it.
    Caller(Proto, u32),
}

impl Origin {
    /// A number that differs where the name may.
    fn identity(&self) -> u64 {
        match self {
            Origin::Main | Origin::Unknown => 0,
            Origin::Event(event) => event.as_ptr() as u64,
            Origin::Caller(proto, instruction) => {
                fingerprint([proto.address, proto.code, u64::from(proto.index), u64::from(*instruction)])
            }
        }
    }
}

/// Mixes the words that name a function. One that died and whose address was used again differs in them, but for the
/// improbable case that all were the same again.
fn fingerprint(words: [u64; 4]) -> u64 {
    let mut h: u64 = 0x243f_6a88_85a3_08d3;
    for word in words {
        h = (h ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        h ^= h >> 29;
    }
    h
}
