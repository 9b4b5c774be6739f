//! What a frame on a Lua stack runs, as far as that decides what is told of it.

use super::proto::{Code, Place};
use uunwind_core::memory::ANSWER;

/// What a frame runs.
#[derive(Clone, Copy)]
pub enum Runs {
    /// A Lua function.
    Lua(Code),
    /// A function of the VM's own: the function object, and its number.
    Builtin(u64, u8),
    /// Something that has a native frame, or nothing.
    Other,
}

impl Runs {
    /// Is it a Lua function in which `place` lies?
    pub fn is_lua_at(&self, place: Place) -> bool {
        match self {
            Runs::Lua(code) => code.instruction(place).is_some(),
            _ => false,
        }
    }

    const KIND: u32 = 56;
    const LUA: u64 = 1;
    const BUILTIN: u64 = 2;
    const OTHER: u64 = 3;

    /// What was remembered of a function object.
    pub fn of_answer(object: u64, [first, second]: [u64; ANSWER]) -> Runs {
        match first >> Runs::KIND {
            Runs::LUA => Runs::Lua(Code { proto: first & !(u64::MAX << Runs::KIND), count: second }),
            Runs::BUILTIN => Runs::Builtin(object, second as u8),
            _ => Runs::Other,
        }
    }

    /// What is remembered of it.
    pub fn answer(&self) -> [u64; ANSWER] {
        let (kind, first, second) = match self {
            Runs::Lua(code) => (Runs::LUA, code.proto, code.count),
            Runs::Builtin(_, number) => (Runs::BUILTIN, 0, u64::from(*number)),
            Runs::Other => (Runs::OTHER, 0, 0),
        };
        [first | kind << Runs::KIND, second]
    }

    /// Can it stand at this place?
    pub fn fits(&self, place: Place) -> bool {
        match self {
            Runs::Lua(code) => place == Place::Unknown || code.instruction(place).is_some(),
            _ => true,
        }
    }
}
