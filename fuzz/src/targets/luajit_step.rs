//! The Lua plugin's stepper for LuaJIT, called by the walk, over a small model of LuaJIT that the input damages.
//!
//! | bytes | |
//! |---|---|
//! | 1 | bits 0-2: where the walk begins (see below); from bit 3 on: the number of additional functions |
//! | 1 | bit 0: the pc is a return address; bit 1: registers follow; from bit 2 on: where the previous walk began |
//! | 8 x 16 | registers, if they follow |
//! | rest | patches of the memory: 2 bytes offset, 1 byte length, the bytes |
//!
//! The walk begins in the VM's body, a leaf function of it, a side exit, its entry, a trace, an exit stub; and again in
//! the body and the trace.

use super::language::{self, Walked, BASE, INDEX};
use crate::input::Input;
use std::ptr::from_ref;
use uunwind_built_in::lua::signal::facts::{FactsHead, FAMILY_LUAJIT};
use uunwind_built_in::lua::signal::luajit::facts::Facts;
use uunwind_core::cache::last_walk::LastWalk;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::{Reader, Region};
use uunwind_core::plugin::{Description, Owner, ABI, OWNER_OBJECT};
use uunwind_core::regs::{Regs, RBX, RSP};
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::walk::{Claim, Claimed, Env, Look, Names, Replay};

/// The memory, and addresses in it.
const SIZE: usize = 0x8000;
const GLOBAL: u64 = BASE;
const THREAD: u64 = BASE + 0x1000;
const CHUNK: u64 = BASE + 0x1100;
const PROTO: u64 = BASE + 0x1200;
const FUNCTION: u64 = BASE + 0x1400;
const TRACES: u64 = BASE + 0x1500;
const TRACE: u64 = BASE + 0x1600;
const SNAPSHOTS: u64 = BASE + 0x1800;
const MAP: u64 = BASE + 0x1900;
const IR: u64 = BASE + 0x1a00;
const LUA_STACK: u64 = BASE + 0x2000;
const AREA: u64 = BASE + 0x3000;
const DISPATCH_TABLE: u64 = GLOBAL + 0xf80;
const CFRAME: u64 = BASE + 0x6800;
/// Address of the VM's code, which is not read.
const VM: u64 = 0x40_0000;
const VM_END: u64 = VM + 0x4000;

static FACTS: Facts = Facts {
    head: FactsHead::of::<Facts>(FAMILY_LUAJIT),
    start: VM,
    end: VM_END,
    enter: [VM + 0x100, 0, 0, 0, 0, 0],
    leave: [VM + 0x200, 0, 0, 0, 0, 0],
    callback: VM + 0x3800,
    exit_start: VM + 0x3000,
    exit_stored: VM + 0x3040,
    exit_restored: VM + 0x3080,
    exit_end: VM + 0x3090,
    helpers_start: VM + 0x3400,
    helpers_end: VM + 0x3600,
    ask: VM + 0x3500,
    dispatch: 0xf80,
    vmstate: 184,
    cur_l: 368,
    jit_base: 376,
    trace: 1112,
    parent: 3744,
    exitno: 3748,
    lead: 0,
};

struct Process {
    names: language::Names,
}

impl Process {
    fn facts() -> (*const u8, usize) {
        (from_ref(&FACTS).cast(), size_of::<Facts>())
    }
}

fn in_vm(pc: u64) -> bool {
    (VM..VM_END).contains(&pc)
}

fn is_ours(pc: u64) -> bool {
    in_vm(pc) || (AREA..AREA + 0x3000).contains(&pc)
}

fn claim(pc: u64) -> Claimed {
    // SAFETY: the entry of a plugin that is linked in, which returns a static table for this ABI.
    match unsafe { uunwind_built_in::lua::signal::uu_plugin(ABI).as_ref() } {
        Some(plugin) if is_ours(pc) => {
            let claim = Claim { step: plugin.step, index: INDEX, ..Claim::NOTHING };
            let (facts, facts_len) = Process::facts();
            Claimed::By(if in_vm(pc) { Claim { facts, facts_len, ..claim } } else { claim })
        }
        _ => Claimed::No,
    }
}

impl Env for Process {
    fn rule(&mut self, cursor: &Cursor, _: &mut Reader<'_>) -> Packed {
        if is_ours(cursor.lookup_pc()) { Rule::simple(RSP, 16) } else { Rule::end() }.pack()
    }

    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        Look { claim: claim(cursor.lookup_pc()), ..Look::at(self.rule(cursor, reader)) }
    }

    fn owner(&mut self, address: u64, _: &mut Reader<'_>) -> Owner {
        if !in_vm(address) {
            return Owner::NONE;
        }
        let (facts, facts_len) = Process::facts();
        Owner { start: VM, end: VM_END, kind: OWNER_OBJECT, plugin: INDEX.into(), facts, facts_len, ..Owner::NONE }
    }
}

impl Names for Process {
    fn find_name(&mut self, _: u8, code: u64, fingerprint: u64) -> u32 {
        language::find_name(&self.names, code, fingerprint)
    }

    fn describe(&mut self, _: u8, description: &Description, _: &mut Reader<'_>) -> u32 {
        language::add_name(&mut self.names, description.code, description.fingerprint)
    }
}

impl Replay for Process {}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let (mode, bits) = (input.u8(), input.u8());
    let top = LUA_STACK + 0x80 + 0x20 * u64::from(mode >> 3);
    let whole = world(top);
    let mut memory = whole.clone();
    let mut registers = [0; 16];
    registers[1] = top;
    registers[usize::from(RBX)] = PROTO + 104 + 12;
    registers[14] = DISPATCH_TABLE;
    let usual = registers;
    if bits & 2 != 0 {
        registers = std::array::from_fn(|_| input.u64());
    }
    while !input.is_empty() {
        let (offset, len) = (usize::from(input.u16()), usize::from(input.u8()));
        let bytes = input.bytes(len);
        if let Some(place) = memory.get_mut(offset..offset.saturating_add(bytes.len())) {
            place.copy_from_slice(bytes);
        }
    }
    let mut names = Vec::new();
    let exact = bits & 1 == 0;
    let (_, words) = emit(&memory, mode, registers, exact, &mut names, std::ptr::null_mut());
    let other = bits >> 2;
    let walks = [
        (&whole, other, usual, true),
        (&memory, mode, registers, exact),
        (&whole, mode, usual, exact),
        (&memory, other, registers, true),
    ];
    language::compared(walks, &mut names, |(memory, mode, registers, exact), names, last| {
        emit(memory, *mode, *registers, *exact, names, last)
    });
    let mut emitted = frames(&words);
    emitted.any(|frame| matches!(frame, Frame::Semantic { .. }))
}

/// One walk. Returns how it ended, the numbers of its frames and of the doubtful ones; and its words.
fn emit(
    memory: &[u8],
    mode: u8,
    mut registers: [u64; 16],
    exact: bool,
    names: &mut language::Names,
    last_walk: *mut LastWalk,
) -> Walked {
    let (pc, sp) = match mode % 8 {
        0 => (VM + 0x1000, CFRAME),
        1 => (VM + 0x3500, CFRAME - 8),
        2 => (VM + 0x3060, CFRAME - 0x100),
        3 => (VM + 0x102, CFRAME - 0x80),
        4 => (AREA + 0x900, CFRAME - 32),
        5 => (AREA + 0x60, CFRAME - 32),
        6 => (VM + 0x1010, CFRAME),
        _ => (AREA + 0x910, CFRAME - 32),
    };
    registers[usize::from(RSP)] = sp;
    let regions = [Region { address: BASE, bytes: memory }];
    let mut reader = Reader::recorded(&regions);
    let mut process = Process { names: std::mem::take(names) };
    let cursor = Cursor { regs: Regs::full(pc, registers), exact };
    let walked = language::walk_once(cursor, &mut process, &mut reader, 0, last_walk, 4096);
    *names = process.names;
    walked
}

/// A LuaJIT with one thread, on whose stack a function has called itself at least three times, up to the activation
/// with this base; and one trace of it.
fn world(top: u64) -> Vec<u8> {
    let mut memory = vec![0; SIZE];
    let mut put = |address: u64, value: u64, bytes: usize| {
        let at = (address - BASE) as usize;
        memory[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    };
    let function = 0x1_fff7 << 47 | FUNCTION;
    // Object types, then fields.
    for (object, kind) in [(THREAD, 6), (CHUNK, 4), (PROTO, 7), (FUNCTION, 8), (TRACE, 9)] {
        put(object + 9, kind, 1);
    }
    for (at, value) in [(184, 1), (192, THREAD), (368, THREAD), (376, top), (1112, TRACES)] {
        put(GLOBAL + at, value, 8);
    }
    put(GLOBAL + 1112 + 12, 2, 4);
    put(GLOBAL + 3744, 1, 4);
    put(DISPATCH_TABLE, VM + 0x40, 8);
    let end = LUA_STACK + 0x800;
    for (at, value) in [(16, GLOBAL), (32, top), (48, end), (56, LUA_STACK), (80, CFRAME)] {
        put(THREAD + at, value, 8);
    }
    put(CHUNK + 20, 6, 4);
    put(CHUNK + 24, u64::from_le_bytes(*b"@f.lua\0\0"), 8);
    put(PROTO + 12, 16, 4);
    put(PROTO + 64, CHUNK, 8);
    put(PROTO + 72, 20 << 32 | 1, 8);
    put(PROTO + 80, PROTO + 0x180, 8);
    put(FUNCTION + 32, PROTO + 104, 8);
    // FUNCF, then calls that place the called function's base two slots higher.
    put(PROTO + 104, 89, 4);
    for instruction in 1..16 {
        put(PROTO + 104 + instruction * 4, 2 << 8 | 66, 4);
        put(PROTO + 0x180 + instruction, instruction, 1);
    }
    for base in (LUA_STACK + 0x20..=top).step_by(0x20) {
        put(base - 16, function, 8);
        let link = if base == LUA_STACK + 0x20 { 0x10 | 1 } else { PROTO + 104 + 8 };
        put(base - 8, link, 8);
    }
    put(TRACES + 8, TRACE, 8);
    put(TRACE + 10, 2, 2);
    for (at, value) in [(32, IR), (48, SNAPSHOTS), (56, MAP), (88, AREA + 0x800)] {
        put(TRACE + at, value, 8);
    }
    put(TRACE + 84, 0x200, 4);
    put(TRACE + 104, 1, 2);
    // Two snapshots: the trace's start, and an inlined call.
    put(SNAPSHOTS + 12, 2, 4);
    put(SNAPSHOTS + 16, 0x80 << 16, 4);
    put(SNAPSHOTS + 20, 2 << 16, 4);
    put(MAP, (PROTO + 104 + 4) << 8, 8);
    put(MAP + 8, 4 << 24 | 0x1_0010, 4);
    put(MAP + 12, 5 << 24 | 0x1_0020, 4);
    put(MAP + 16, (PROTO + 104 + 4) << 8 | 4, 8);
    put(IR + 0x11 * 8, FUNCTION, 8);
    put(IR + 0x21 * 8, PROTO + 104 + 8, 8);
    // The code area with its first words, and an exit stub.
    put(AREA + 8, 0x3000, 8);
    put(AREA + 16, 0x1c, 8);
    put(AREA + 24, u64::from_le_bytes([1, b'z', b'P', b'R', 0, 1, 0x78, 16]), 8);
    put(AREA + 34, VM + 0x2000, 8);
    put(AREA + 0x60, u64::from_le_bytes([0x6a, 1, 0x6a, 0, 0xe9, 0, 0, 0]), 8);
    // The C frame, the leaf function's return address, and the entry's.
    put(CFRAME - 0x80 + 16, 0x50_0000, 8);
    put(CFRAME - 8, VM + 0x1000, 8);
    put(CFRAME + 8, 1, 4);
    put(CFRAME + 16, THREAD, 8);
    put(CFRAME + 24, PROTO + 104 + 8, 8);
    put(CFRAME + 72, 0x50_0000, 8);
    memory
}

#[cfg(test)]
mod tests {
    #[test]
    fn undamaged_places_emit_frames() {
        for (mode, emits) in [(0, true), (1, true), (2, true), (3, false), (4, true), (5, true)] {
            for more in 0..32 {
                assert_eq!(super::run(&[mode | more << 3, 0]), emits, "{mode}, {more} more");
            }
        }
    }
}
