//! The V8 plugin, called by the walk, over the frames and objects of a running V8 with any damage.
//!
//! | bytes | |
//! |---|---|
//! | 1 | bits 0 and 1: the innermost frame is a builtin, an interpreted, a baseline or an optimised one; bits 2 to 5: number of frames, less one; bits 6 and 7: the layout, or 3, the last one with code of Maglev |
//! | rest | damage: 2 bytes offset in memory or in the facts (modulo their size), 1 byte length, the bytes |
//!
//! Memory is four pages: objects, code and tables, the source, the native stack. No object covers the code.

use super::language::{self, Memory, Walked, BASE, INDEX};
use super::step::{Process, NATIVE_CODE};
use crate::input::Input;
use std::mem::size_of;
use std::sync::Mutex;
use uunwind_built_in::v8::signal::facts::{
    Builtin, Facts, Plain, BYTECODES, FACTS_VERSION, INTERPRETER, OPCODES, OPCODE_BEGIN, OPCODE_FRAME, OPCODE_FUNCTION,
    OTHER, SAVED,
};
use uunwind_core::cache::last_walk::LastWalk;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::{Reader, Region};
use uunwind_core::plugin::ABI;
use uunwind_core::regs::{Regs, RBP, RSP};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::Claim;

const BYTES: usize = 4 * 4096;
/// Addresses in memory. The thread pointer is `BASE`.
const ISOLATE: u64 = BASE + 0x40;
const RANGE: u64 = BASE + 0x80;
const MAPS: u64 = BASE + 0x100;
const CONTEXT: u64 = BASE + 0x500;
const FUNCTION: u64 = BASE + 0x540;
const SHARED: u64 = BASE + 0x600;
const SCOPE: u64 = BASE + 0x680;
const SCRIPT: u64 = BASE + 0x700;
const NAME: u64 = BASE + 0x780;
const FILE: u64 = BASE + 0x7c0;
const BASELINE: u64 = BASE + 0x800;
const OPTIMISED: u64 = BASE + 0x880;
const ARRAY: u64 = BASE + 0x900;
const POSITIONS: u64 = BASE + 0x980;
const OFFSETS: u64 = BASE + 0x9c0;
const CODE_POSITIONS: u64 = BASE + 0xa00;
const DATA: u64 = BASE + 0xb80;
const TRANSLATIONS: u64 = BASE + 0xc40;
const BYTECODE_LITERALS: u64 = BASE + 0xc80;
/// The table after the instructions of optimised code: where memory has it, and its size.
const SAFEPOINTS: u64 = BASE + 0xcc0;
const SAFEPOINTS_SIZE: u64 = 0x40;
const LITERALS: u64 = BASE + 0xac0;
const INLINING: u64 = BASE + 0xb00;
/// The table through which functions are called, and a function's handle: its second entry.
const DISPATCH: u64 = BASE + 0xb40;
const HANDLE: u32 = 1 << 8;
const SOURCE: u64 = BASE + 0x2000;
const NATIVE: u64 = BASE + 0x3000;
/// Bytes of a frame, and where its frame pointer is.
const FRAME: u64 = 0x80;
const POINTER: u64 = 0x70;
/// DWARF number of rdi.
const RDI: usize = 5;
/// The code range: the builtins' copy, baseline code, optimised code.
const CODE: u64 = 0x40_0000;
const COPY: u64 = CODE + 0x8000;
const BASELINE_CODE: u64 = CODE + 0x100;
const OPTIMISED_CODE: u64 = CODE + 0x200;
/// Bytes of instructions of both.
const CODE_SIZE: u64 = 0x80;
const BLOB: u32 = 0x200;
const fn map(number: u64) -> u64 {
    (MAPS + 0x20 * number) | 1
}

/// Instance types, by the numbers of their maps.
fn types(facts: &Facts) -> [u16; 11] {
    [
        facts.contexts[0] + 5,
        facts.functions[0],
        facts.type_shared,
        facts.type_scope_info,
        facts.type_script,
        40,
        facts.type_code,
        facts.type_bytecode,
        facts.type_bytes,
        facts.type_array,
        facts.type_inlining,
    ]
}

/// The layouts: of V8 11.3, 12.4, 13.6 and 14.6, as the official Nodes 20, 22, 24 and 26 export them.
fn facts(layout: u64) -> Facts {
    match layout {
        1 => v12_4(v11_3()),
        2 => v13_6(v12_4(v11_3())),
        3 => Facts { position_flags: 2, ..v13_6(v12_4(v11_3())) },
        _ => v11_3(),
    }
}

fn v11_3() -> Facts {
    let mut sizes = [[1; BYTECODES]; 3];
    sizes[0][7] = 3;
    Facts {
        size: size_of::<Facts>() as u32,
        version: FACTS_VERSION,
        v8: [11, 3, 244, 8],
        blob: 0,
        blob_size: BLOB,
        builtins: 2,
        isolate: 0x10,
        isolate_code_range: 0x20,
        isolate_dispatch: 0,
        range_region: 0x28,
        range_copy: 0x38,
        entry_saves: [56, 24, 32, 40, 48] as [u32; SAVED],
        map_type: 12,
        contexts: [205, 214],
        functions: [2066, 2086],
        type_shared: 262,
        type_script: 167,
        type_scope_info: 261,
        type_bytecode: 191,
        type_bytes: 190,
        type_inlining: 190,
        type_code: 245,
        type_array: 175,
        type_nonstring: 128,
        frame_context: 8,
        frame_function: 16,
        frame_bytecode: 32,
        frame_offset: 40,
        function_shared: 24,
        function_code: 48,
        code_start: 0x28,
        code_object: 8,
        shared_name: 16,
        shared_script: 32,
        script_source: 8,
        script_name: 16,
        script_line_ends: 56,
        script_line: 24,
        script_id: 64,
        scope_flags: 12,
        scope_module: 3,
        scope_class_bit: 10,
        scope_function_bit: 12,
        scope_inferred_bit: 14,
        scope_locals: 24,
        scope_first: 32,
        scope_positions: 0,
        string_length: 12,
        string_chars: 16,
        string_first: 16,
        string_data: 24,
        string_offset: 24,
        array_length: 8,
        array_data: 16,
        bytecode_positions: 32,
        bytecode_first: 54,
        code_flags: 0x30,
        code_size: 0x38,
        code_offsets: 24,
        code_positions: 24,
        code_deoptimization: 16,
        deopt_literals: 2,
        deopt_positions: 7,
        deopt_bytecodes: 0,
        deopt_entries: 0,
        safepoint_length: 0,
        opcode_count: 0,
        position_flags: 0,
        opcodes: [0; OPCODES],
        kind_baseline: 11,
        kind_maglev: 12,
        bytecodes: 200,
        bytecode_sizes: sizes,
    }
}

fn v12_4(facts: Facts) -> Facts {
    Facts {
        v8: [12, 4, 254, 21],
        contexts: [190, 199],
        functions: [2066, 2082],
        type_shared: 274,
        type_scope_info: 272,
        type_bytecode: 205,
        type_bytes: 212,
        type_inlining: 186,
        type_code: 206,
        type_array: 213,
        function_shared: 32,
        function_code: 24,
        code_object: 24,
        bytecode_positions: 24,
        bytecode_first: 64,
        code_size: 52,
        code_offsets: 16,
        code_positions: 16,
        code_deoptimization: 8,
        kind_baseline: 10,
        kind_maglev: 11,
        bytecodes: 203,
        ..facts
    }
}

fn v13_6(facts: Facts) -> Facts {
    // A function's frame, a value, a beginning, and what an earlier translation has.
    let mut opcodes = [0; OPCODES];
    opcodes[..4].copy_from_slice(&[OPCODE_FUNCTION | OPCODE_FRAME | 4, 1, OPCODE_BEGIN | 3, 1]);
    Facts {
        v8: [13, 6, 233, 17],
        isolate_dispatch: 0x28,
        contexts: [220, 229],
        functions: [2065, 2081],
        type_shared: 282,
        type_scope_info: 280,
        type_bytecode: 186,
        type_bytes: 196,
        type_inlining: 196,
        type_code: 187,
        type_array: 193,
        shared_name: 24,
        shared_script: 40,
        scope_flags: 8,
        scope_module: 5,
        scope_first: 48,
        scope_positions: 32,
        code_flags: 52,
        code_size: 56,
        deopt_literals: 3,
        deopt_positions: 8,
        deopt_bytecodes: 2,
        deopt_entries: 12,
        safepoint_length: 4,
        opcode_count: 4,
        opcodes,
        bytecodes: 208,
        ..facts
    }
}

const WHOLE: usize = size_of::<Facts>() + 2 * size_of::<Builtin>() + ROWS.len();
/// Of both builtins: a return address above the stack pointer, and then a frame.
const ROWS: [u8; 8] = [0, 1, 4, 0, 0, 1, 4, 0];

/// The facts and what follows them, aligned as in the memfd.
#[repr(align(16))]
struct Aligned([u8; WHOLE]);

static FACTS: Mutex<Aligned> = Mutex::new(Aligned([0; WHOLE]));

struct World(Memory);

const fn tagged(address: u64) -> u64 {
    address | 1
}

const fn number(value: u64) -> u64 {
    value << 32
}

impl World {
    fn text(&mut self, address: u64, text: &[u8]) {
        self.0.words(address, &[map(5), (text.len() as u64) << 32]);
        self.0.put(address + 16, text);
    }

    /// An array of bytes, with the map of this number.
    fn bytes(&mut self, address: u64, kind: u64, bytes: &[u8]) {
        self.0.words(address, &[map(kind), (bytes.len() as u64) << 32]);
        self.0.put(address + 16, bytes);
    }

    /// An object: its map, and fields of a word.
    fn object(&mut self, address: u64, kind: u64, fields: &[(u32, u64)]) {
        self.0.words(address, &[map(kind)]);
        for (offset, value) in fields {
            self.0.words(address + u64::from(*offset), &[*value]);
        }
    }

    fn new(facts: &Facts, kind: u64, count: u64, is_maglev: bool) -> World {
        let mut world = World(Memory::new(BYTES));
        world.0.words(BASE + 0x10, &[ISOLATE]);
        world.0.words(ISOLATE + 0x20, &[RANGE, DISPATCH]);
        world.0.words(RANGE + 0x28, &[CODE, 0x1_0000, COPY]);
        for (number, kind) in (0u64..).zip(types(facts)) {
            world.0.put(MAPS + 0x20 * number + 12, &kind.to_le_bytes());
        }
        world.0.words(CONTEXT, &[map(0)]);
        world.function(facts, if kind == 3 { OPTIMISED } else { BASELINE });
        world.code(facts, is_maglev);
        world.optimised(facts, is_maglev);
        for frame in 0..count {
            let pointer = NATIVE + frame * FRAME + POINTER;
            let next = if frame + 1 < count { Self::code_at(kind) } else { NATIVE_CODE };
            world.0.words(pointer, &[pointer + FRAME, next]);
            world.0.words(pointer - 16, &[tagged(FUNCTION), tagged(CONTEXT)]);
            let offset = u64::from(facts.bytecode_first) - 1 + 3;
            world.0.words(pointer - 40, &[number(offset), tagged(ARRAY)]);
        }
        world
    }

    /// A function with a name, and no local variables.
    fn function(&mut self, facts: &Facts, code: u64) {
        self.object(FUNCTION, 1, &[(facts.function_shared, tagged(SHARED))]);
        if facts.isolate_dispatch == 0 {
            self.0.words(FUNCTION + u64::from(facts.function_code), &[tagged(code)]);
        } else {
            self.0.put(FUNCTION + u64::from(facts.function_code), &HANDLE.to_le_bytes());
            self.0.words(DISPATCH + 16, &[0, code << 16 | 1]);
        }
        self.object(SHARED, 2, &[(facts.shared_name, tagged(SCOPE)), (facts.shared_script, tagged(SCRIPT))]);
        let flags: u32 = 3 << 12 | 2;
        self.object(SCOPE, 3, &[(facts.scope_locals, 0), (facts.scope_first, tagged(NAME))]);
        self.0.put(SCOPE + u64::from(facts.scope_flags), &flags.to_le_bytes());
        let positions = if facts.scope_positions == 0 { facts.scope_first + 16 } else { facts.scope_positions };
        self.0.words(SCOPE + u64::from(positions), &[number(2), number(30)]);
        let script =
            [(facts.script_source, tagged(SOURCE)), (facts.script_name, tagged(FILE)), (facts.script_id, number(7))];
        self.object(SCRIPT, 4, &script);
        self.text(NAME, b"f");
        self.text(FILE, b"/p.js");
        self.text(SOURCE, b"//\nfunction f() {\n g();\n h(); }\n");
    }

    /// Its bytecode, its code in each tier, and their tables.
    fn code(&mut self, facts: &Facts, is_maglev: bool) {
        let optimised = facts.kind_maglev + u32::from(!is_maglev);
        let array = [(facts.array_length, number(8)), (facts.bytecode_positions, tagged(POSITIONS))];
        self.object(ARRAY, 7, &array);
        self.0.put(ARRAY + u64::from(facts.bytecode_first), &[7, 0, 0, 9, 9, 9, 9, 9]);
        // Offset 0 at character 2, offset 3 at 18.
        self.bytes(POSITIONS, 8, &[0, 12, 6, 64]);
        self.bytes(OFFSETS, 8, &[4, 8, 8, 8, 8, 8, 8]);
        for (at, start, kind, data, table) in [
            (BASELINE, BASELINE_CODE, facts.kind_baseline, ARRAY, OFFSETS),
            (OPTIMISED, OPTIMISED_CODE, optimised, DATA, CODE_POSITIONS),
        ] {
            let code = [
                (facts.code_deoptimization, tagged(data)),
                (facts.code_positions, tagged(table)),
                (facts.code_start, start),
            ];
            self.object(at, 6, &code);
            self.0.put(at + u64::from(facts.code_flags), &kind.to_le_bytes());
            self.0.put(at + u64::from(facts.code_size), &(CODE_SIZE as u32).to_le_bytes());
        }
    }

    /// What optimised code has of a call: the function itself, and what is inlined there, the function again.
    fn optimised(&mut self, facts: &Facts, is_maglev: bool) {
        let inlined = (1u64 << 31 | 19 << 1) << 1;
        let mut table = vec![0, 12];
        let mut distance = inlined - 12;
        table.push(16);
        while distance >= 0x80 {
            table.push(distance as u8 | 0x80);
            distance >>= 7;
        }
        table.push(distance as u8);
        self.bytes(CODE_POSITIONS, 8, &table);
        let element = |index: u32| facts.array_data + 8 * index;
        // The second translation, which has the outer function from the first one.
        let first = [2, 0, 4, 4, 0, 0, 0, 0, 0, 1, 0, 0, 6, 0, 0, 0];
        let second = [2, first.len() as u8, 4, 4, 6, 0, 6, 0, 0, 0];
        self.bytes(TRANSLATIONS, 8, &[&first[..], &second[..]].concat());
        self.0.words(BYTECODE_LITERALS, &[map(9), number(1), tagged(ARRAY)]);
        let data = [
            (facts.array_length, number(15)),
            (element(0), tagged(TRANSLATIONS)),
            (element(facts.deopt_bytecodes), tagged(BYTECODE_LITERALS)),
            (element(facts.deopt_literals), tagged(LITERALS)),
            (element(facts.deopt_positions), tagged(INLINING)),
            (element(facts.deopt_entries + 1), number(first.len() as u64)),
        ];
        let own = if facts.opcode_count == 0 { 2 } else { 0 };
        self.object(DATA, 9, &data[own..]);
        // One entry: where the call returns to, its state and its trampoline, each plus 1.
        let at = SAFEPOINTS + u64::from(facts.safepoint_length);
        let entry = [0x20, 0, 1, 0x71, 0];
        self.0.put(at, &1u32.to_le_bytes());
        self.0.put(at + 4, &1185u32.to_le_bytes());
        self.0.put(at + if is_maglev { 12 } else { 8 }, &entry);
        self.0.words(LITERALS, &[map(9), number(1), tagged(SHARED)]);
        self.0.words(INLINING, &[map(10), number(16), 3 << 1, 0]);
    }

    /// Where a frame of this kind returns to, or was interrupted.
    fn code_at(kind: u64) -> u64 {
        match kind {
            0 => COPY + 0x180,
            1 => COPY + 0x80,
            2 => BASELINE_CODE + 0x10,
            _ => OPTIMISED_CODE + 0x20,
        }
    }
}

pub fn run(data: &[u8]) -> bool {
    run_with(data, NATIVE)
}

/// `sp`: the interrupted stack pointer.
fn run_with(data: &[u8], sp: u64) -> bool {
    let mut input = Input::new(data);
    let first = input.u8();
    let (kind, count) = (u64::from(first & 3), u64::from(first >> 2 & 15) + 1);
    let facts = facts(u64::from(first >> 6));
    let whole = World::new(&facts, kind, count, first >> 6 == 3);
    let mut world = World::new(&facts, kind, count, first >> 6 == 3);
    let builtins = [Builtin { start: 0, rows: INTERPRETER << 28 }, Builtin { start: 0x100, rows: OTHER << 28 | 4 }];
    // A panic of an earlier input leaves only bytes in it.
    let mut place = FACTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let parts = facts.as_bytes().iter().chain(builtins[0].as_bytes()).chain(builtins[1].as_bytes()).chain(&ROWS);
    place.0.iter_mut().zip(parts).for_each(|(to, from)| *to = *from);
    language::damage(&mut input, &mut world.0, &mut place.0);
    // SAFETY: the entry of a plugin that is linked in, which returns a static table for this ABI.
    let plugin = unsafe { uunwind_built_in::v8::signal::uu_plugin(ABI).as_ref() }.expect("a table for this ABI");
    // In the object itself: the blob's file address is 0, so only the copy is V8's.
    let (bias, generation) = (0x7000_0000, 1);
    let claim = Claim {
        step: plugin.step,
        index: INDEX,
        facts: place.0.as_ptr(),
        facts_len: WHOLE,
        bias,
        generation,
        ..Claim::NOTHING
    };
    let pc = World::code_at(kind);
    let mut names = Vec::new();
    let emitted = emit(&world, claim, (pc, sp), &mut names, std::ptr::null_mut());
    language::compared([&whole, &world, &whole], &mut names, |memory, names, last| {
        emit(memory, claim, (pc, sp), names, last)
    });
    let ((stop, _, desync), words) = emitted;
    let shown = frames(&words).filter(|frame| matches!(frame, Frame::Semantic { .. })).count() as u64;
    // Of optimised code, what was interrupted shows no inlined function.
    let expected = [0, count, count, 2 * count - 1][kind as usize];
    stop == StopReason::Complete && desync == 0 && shown == expected
}

/// One walk. Returns how it ended, the numbers of its frames and of the doubtful ones; and its words.
fn emit(
    world: &World,
    claim: Claim,
    (pc, sp): (u64, u64),
    names: &mut language::Names,
    last_walk: *mut LastWalk,
) -> Walked {
    let code = vec![0x90; 0x1_0000];
    let memory: &[u8] = &world.0 .0;
    let (start, table) = ((OPTIMISED_CODE + CODE_SIZE - CODE) as usize, (SAFEPOINTS - BASE) as usize);
    let size = SAFEPOINTS_SIZE as usize;
    let regions = [
        Region { address: BASE, bytes: memory },
        Region { address: CODE, bytes: &code[..start] },
        Region { address: OPTIMISED_CODE + CODE_SIZE, bytes: &memory[table..table + size] },
        Region { address: OPTIMISED_CODE + CODE_SIZE + SAFEPOINTS_SIZE, bytes: &code[start + size..] },
    ];
    let mut reader = Reader::recorded(&regions);
    let mut process = Process { claim, names: std::mem::take(names) };
    let mut registers = [0; 16];
    (registers[usize::from(RSP)], registers[usize::from(RBP)]) = (sp, NATIVE + POINTER);
    // The function that is called, or was.
    registers[RDI] = tagged(FUNCTION);
    let cursor = Cursor { regs: Regs::full(pc, registers), exact: true };
    let walked = language::walk_once(cursor, &mut process, &mut reader, BASE, last_walk, 512);
    *names = process.names;
    walked
}

#[cfg(test)]
mod tests {
    #[test]
    fn undamaged_every_function_is_emitted() {
        for first in 0..=u8::MAX {
            assert!(super::run(&[first]), "{first}");
        }
    }

    #[test]
    fn a_frame_that_is_being_made_has_the_function_that_was_passed() {
        // What an earlier call has left in the place of the function, and of the context.
        let function = [0x60, 0x30, 7, 0x41, 5, 0, 0x40, 0, 0, 0, 0];
        let context = [0x68, 0x30, 7, 0x41, 5, 0, 0x40, 0, 0, 0, 0];
        for layout in 0..4 {
            for kind in 1..4 {
                let first = kind | layout << 6;
                let pushed = super::NATIVE + super::POINTER - 8;
                assert!(super::run_with(&[&[first], &function[..]].concat(), pushed), "{layout}, {kind}");
                assert!(super::run_with(&[&[first], &context[..]].concat(), pushed + 8), "{layout}, {kind}");
            }
        }
    }

    #[test]
    fn damage_is_doubt_or_another_stack() {
        // A context's map, a function's map, a frame's function, the thread's isolate.
        for at in [0x500u16, 0x540, 0x3060, 0x10] {
            let [low, high] = at.to_le_bytes();
            for layout in 0..4 {
                assert!(!super::run(&[1 | 2 << 2 | layout << 6, low, high, 2, 0x55, 0x77]), "{layout}, {at:#x}");
            }
        }
    }

    #[test]
    fn what_is_inlined_follows_from_a_call_s_entry() {
        let optimised = |layout: u8, address: u64, bytes: &[u8]| {
            let [low, high, ..] = (address - super::BASE).to_le_bytes();
            super::run(&[&[3 | 2 << 2 | layout << 6, low, high, bytes.len() as u8], bytes].concat())
        };
        for layout in 0..4 {
            let length = if layout < 2 { 0 } else { 4 };
            let entry = super::SAFEPOINTS + length + if layout == 3 { 12 } else { 8 };
            assert!(optimised(layout, entry, &[0x20]), "{layout}: the same");
            // The return address is the trampoline.
            assert!(optimised(layout, entry, &[0x10, 0, 1, 0x21, 0]), "{layout}: code that was given up");
            assert!(!optimised(layout, entry, &[0x10]), "{layout}: a call that follows all that have an entry");
            // TurboFan's positions are right where no state is needed.
            let without = optimised(layout, entry, &[0x20, 0, 0, 0, 0]);
            assert_eq!(without, layout != 3, "{layout}: a call without a state");
        }
    }
}
