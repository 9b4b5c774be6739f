//! The Lua plugin, called by the walk, over the structures of a running PUC Lua with any damage.
//!
//! | bytes | |
//! |---|---|
//! | 1 | modulo 5 the version, 5.1 to 5.5; divided by 5 the number of additional functions |
//! | 1 | bit 0: the innermost frame was interrupted; other bits: number of native frames, less one |
//! | rest | damage: 2 bytes offset in memory or in the facts (modulo their size), 1 byte length, the bytes |
//!
//! Memory is two pages: a state with a C function, a chunk and a function that it called, and the native stack.
//! Additional functions have their part of the state in a third page.

use super::language::{Memory, BASE};
use super::overlay::{walk_damaged, Place, Thread, FRAME, TEXT};
use crate::input::Input;
use std::mem::size_of;
use uunwind_built_in::lua::detect::Version;
use uunwind_built_in::lua::puc_layout;
use uunwind_built_in::lua::signal::facts::Plain;
use uunwind_built_in::lua::signal::puc::facts::{Extent, Facts, Location};
use uunwind_core::frame::{frames, Frame};
use uunwind_core::regs::RSP;

const BYTES: usize = 2 * 4096;
const DEEP_BYTES: usize = 3 * 4096;
/// Addresses in memory.
const STATE: u64 = BASE;
const PROTO: u64 = BASE + 0x700;
const CODE: u64 = BASE + 0x800;
const LINES: u64 = BASE + 0x900;
const SOURCE: u64 = BASE + 0xa00;
const NATIVE: u64 = BASE + 0x1000;
/// CallInfos, stack and closures of the functions.
struct Functions {
    count: u64,
    infos: u64,
    stack: u64,
    closures: u64,
}

impl Functions {
    fn new(more: u64) -> Functions {
        let (infos, stack, closures) = match more {
            0 => (BASE + 0x200, BASE + 0x400, BASE + 0x600),
            _ => (BASE + 0x2000, BASE + 0x2900, BASE + 0x2b00),
        };
        Functions { count: 3 + more, infos, stack, closures }
    }

    fn bytes(&self) -> usize {
        if self.count == 3 {
            BYTES
        } else {
            DEEP_BYTES
        }
    }
}

/// DWARF numbers of the registers that hold L and ci.
const L: u8 = 3;
const CI: u8 = 12;

static FACTS: Place<{ size_of::<Facts>() }> = Place::new();

/// A state with this chain: the base, a chunk, functions that each called the next one.
fn state(facts: &Facts, functions: &Functions) -> Memory {
    let &Functions { count, infos, stack, closures } = functions;
    let mut memory = Memory::new(functions.bytes());
    let bytes = if facts.info.bytes == 0 { 80 } else { u64::from(facts.info.bytes) };
    let info = |n: u64| infos + n * bytes;
    let state = |offset: u32| STATE + u64::from(offset);
    memory.put(STATE + 8, &[8]);
    memory.word(state(facts.state.stack), stack);
    memory.word(state(facts.state.stack_last), stack + 16 * (count + 13));
    memory.word(state(facts.state.ci), info(count - 1));
    // One protected call, on the leaf's side of all frames.
    memory.word(state(facts.state.error_jump), NATIVE - 64);
    // `top`, in all versions.
    memory.word(STATE + 16, stack + 16 * (count + 1));
    if facts.minor == 1 {
        memory.word(state(facts.state.base_ci), info(0));
        memory.word(state(facts.state.saved_pc), CODE + 8);
        memory.word(state(facts.state.base), stack + 16 * count);
    }
    for n in 0..count {
        let field = |offset: u32| info(n) + u64::from(offset);
        memory.word(field(facts.info.func), stack + 16 * n);
        let status = if n == 0 { facts.info.kind_mask ^ facts.info.kind_lua } else { facts.info.kind_lua };
        let mark = if n >= 2 { !facts.info.fresh & facts.info.fresh_mask } else { facts.info.fresh };
        let mark = if facts.minor == 1 { 0 } else { mark };
        memory.put(field(facts.info.status), &(status | mark).to_le_bytes()[..facts.info.status_bytes as usize]);
        if facts.minor == 1 {
            // `base`, its first field.
            memory.word(info(n), stack + 16 * (n + 1));
        }
        if facts.info.bytes == 0 {
            memory.word(field(facts.info.previous), if n == 0 { 0 } else { info(n - 1) });
        }
        memory.word(field(facts.info.saved_pc), CODE + 8);
        // Every third function has the same closure.
        let closure = closures + if count == 3 { 64 * n } else { 40 * (n % 3) };
        memory.word(stack + 16 * n, closure);
        memory.put(stack + 16 * n + 8, &[6]);
        memory.word(closure + u64::from(facts.proto.closure), PROTO);
    }
    let proto = |offset: u32| PROTO + u64::from(offset);
    for (offset, value) in [(facts.proto.code, CODE), (facts.proto.lines, LINES), (facts.proto.source, SOURCE)] {
        memory.word(proto(offset), value);
    }
    for offset in [facts.proto.code_len, facts.proto.lines_len, facts.proto.first_line] {
        memory.put(proto(offset), &8u32.to_le_bytes());
    }
    // The second instruction is a call.
    let call = facts.roles.iter().position(|role| *role & 0x7f == 3).unwrap_or(0) as u8;
    memory.put(CODE + 4, &[call]);
    memory.put(SOURCE + 8, &[4, 0, 0, 3]);
    memory.put(SOURCE + 16, &[3]);
    memory.put(SOURCE + 24, b"@ab");
    for frame in 1..16u64 {
        // Every fourth frame is one of `lua_resume`.
        let function = if frame % 4 == 3 { 0x1000 } else { 0 };
        memory.word(NATIVE + frame * FRAME as u64 - 8, TEXT + function + 0x100);
    }
    memory
}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let first = input.u8();
    let version = Version { minor: first % 5 + 1, release: None };
    let functions = Functions::new(u64::from(first / 5 % 24));
    let Some(mut facts) = puc_layout(version) else { return false };
    let kind = input.u8();
    facts.execute[0] = Extent { start: TEXT, end: TEXT + 0x1000 };
    facts.resume[0] = Extent { start: TEXT + 0x1000, end: TEXT + 0x2000 };
    (facts.execute_state[0], facts.resume_state[0]) = (Location::register(L), Location::register(L));
    facts.execute_info[0] = Location::register(CI);
    let mut registers = [0; 16];
    (registers[usize::from(RSP)], registers[usize::from(L)]) = (NATIVE, STATE);
    registers[usize::from(CI)] = functions.infos + (functions.count - 1) * 80;
    let thread = Thread { frames: (kind >> 1 & 7) + 1, registers, thread_pointer: 0 };
    let (entry, whole) = (uunwind_built_in::lua::signal::uu_plugin, state(&facts, &functions));
    // SAFETY: the entry of a plugin that is linked in.
    let (_, words) = unsafe { walk_damaged(entry, (&mut input, kind), (&FACTS, facts.as_bytes()), &whole, &thread) };
    // Both functions of the chain, doubtful or not.
    frames(&words).filter(|frame| matches!(frame, Frame::Semantic { .. })).count() >= 2
}

#[cfg(test)]
mod tests {
    #[test]
    fn long_chains_are_emitted() {
        for more in 0..24 {
            for minor in 0..5 {
                assert!(super::run(&[more * 5 + minor, 0]), "5.{} with {more} more", minor + 1);
            }
        }
    }

    #[test]
    fn undamaged_every_version_is_emitted() {
        for minor in 0..5 {
            for kind in [0, 1] {
                assert!(super::run(&[minor, kind]), "5.{} exact {kind}", minor + 1);
            }
            assert!(!super::run(&[minor, 0, 8, 0, 1, 7]), "5.{}: a state of another type", minor + 1);
        }
    }
}
