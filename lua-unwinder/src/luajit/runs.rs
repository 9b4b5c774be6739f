//! The kind of function that a frame on a Lua stack runs: it decides what is emitted of it.

use super::proto::{Code, CodePosition};
use uunwind_core::memory::ANSWER;

/// The kind of function that a frame runs.
#[derive(Clone, Copy)]
pub enum Runs {
    /// A Lua function, with this bytecode.
    Lua(Code),
    /// A function of the VM itself, which has no native frame: the address of the function object, and its `ffid`.
    Builtin(u64, u8),
    /// A function with a native frame, or none.
    Other,
}

impl Runs {
    /// Is it a Lua function whose bytecode holds `place`?
    pub fn is_lua_at(&self, place: CodePosition) -> bool {
        match self {
            Runs::Lua(code) => code.instruction(place).is_some(),
            _ => false,
        }
    }

    const KIND: u32 = 56;
    const LUA: u64 = 1;
    const BUILTIN: u64 = 2;
    const OTHER: u64 = 3;

    /// The kind of a function object, from a cached answer.
    pub fn of_answer(object: u64, [first, second]: [u64; ANSWER]) -> Runs {
        match first >> Runs::KIND {
            Runs::LUA => Runs::Lua(Code { proto: first & !(u64::MAX << Runs::KIND), count: second }),
            Runs::BUILTIN => Runs::Builtin(object, second as u8),
            _ => Runs::Other,
        }
    }

    /// The answer that is cached.
    pub fn answer(&self) -> [u64; ANSWER] {
        let (kind, first, second) = match self {
            Runs::Lua(code) => (Runs::LUA, code.proto, code.count),
            Runs::Builtin(_, number) => (Runs::BUILTIN, 0, u64::from(*number)),
            Runs::Other => (Runs::OTHER, 0, 0),
        };
        [first | kind << Runs::KIND, second]
    }

    /// Can a frame of this kind be at this place?
    pub fn fits(&self, place: CodePosition) -> bool {
        match self {
            Runs::Lua(code) => place == CodePosition::Unknown || code.instruction(place).is_some(),
            _ => true,
        }
    }
}
