//! The HotSpot plugin, called by the walk, over the frames, code and methods of a running JVM with any damage.
//!
//! | bytes | |
//! |---|---|
//! | 1 | bits 0 and 1: the frames are interpreted, compiled, a stub's, or compiled ones with an interpreted one at the leaf; other bits: number of frames, less one |
//! | rest | damage: 2 bytes offset in memory or in the facts (modulo their size), 1 byte length, the bytes |
//!
//! Memory is seven pages: variables and methods, the native stack, the code cache. No object covers the code.

use super::language::{self, Memory, Walked, BASE, INDEX};
use super::step::{Process, NATIVE_CODE};
use crate::input::Input;
use std::mem::size_of;
use std::sync::Mutex;
use uunwind_built_in::hotspot::signal::facts::{Facts, Place, Plain, ADDRESS, FACTS_VERSION, FROM_BLOB, NUMBERS_OLD};
use uunwind_core::cache::last_walk::LastWalk;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::{Reader, Region};
use uunwind_core::plugin::ABI;
use uunwind_core::regs::{Regs, RBP, RSP};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::Claim;

const BYTES: usize = 7 * 4096;
/// Addresses in memory. The static fields are at `BASE`, which is the load bias.
const HEAPS: u64 = BASE + 0x40;
const HEAP_LIST: u64 = BASE + 0x60;
const HEAP: u64 = BASE + 0x80;
const QUEUE: u64 = BASE + 0x1c0;
const METHOD: u64 = BASE + 0x200;
const CONSTANT: u64 = BASE + 0x300;
const POOL: u64 = BASE + 0x400;
const CLASS: u64 = BASE + 0x500;
const SYMBOLS: u64 = BASE + 0x600;
const BLOB_NAMES: u64 = BASE + 0x700;
const SEGMENTS: u64 = BASE + 0x800;
const NATIVE: u64 = BASE + 0x1000;
/// Bytes of a frame, and where its frame pointer is.
const FRAME: u64 = 0x80;
const POINTER: u64 = 0x70;
/// The code cache: a block for the interpreter, for a compiled method, and for a stub, of a page each.
const CODE: u64 = BASE + 0x4000;
const PAGE: u64 = 0x1000;
const BLOB: u64 = 16;
const INSTRUCTIONS: u64 = 0x200;
const TABLES: u64 = 0x800;
/// Where code was interrupted, or something was called.
const AT: u64 = INSTRUCTIONS + 0x80;
/// r13: DWARF's number.
const R13: usize = 13;

/// The layout of OpenJDK 17.
fn facts() -> Facts {
    let address = |at: u32| Place { at, form: ADDRESS };
    let from_blob = |at: u32| Place { at, form: FROM_BLOB };
    Facts {
        size: size_of::<Facts>() as u32,
        version: FACTS_VERSION,
        cache_low: 8,
        cache_high: 16,
        cache_heaps: 24,
        interpreter: 32,
        call_stub_return: 40,
        continuation_return: 0,
        jdk: 17,
        numbers: NUMBERS_OLD,
        array_len: 0,
        array_data: 8,
        heap_memory: 8,
        heap_segments: 120,
        heap_segment_shift: 256,
        space_low: 16,
        space_high: 24,
        block_size: BLOB as u32,
        block_used: 8,
        queue_buffer: 8,
        queue_limit: 20,
        blob_name: 96,
        blob_frame_size: 28,
        blob_frame_complete: 20,
        blob_frame_complete_bits: 32,
        blob_immutable: 0,
        blob_mutable: 0,
        blob_relocation_size: 0,
        blob_code: address(32),
        blob_end: address(40),
        nmethod_method: 112,
        nmethod_orig_pc: 300,
        nmethod_entry_bci: 192,
        interpreter_bytecode: 64,
        nmethod_deopt: address(128),
        nmethod_deopt_mh: address(136),
        nmethod_verified: address(224),
        nmethod_osr: address(232),
        nmethod_stubs: from_blob(252),
        nmethod_metadata: from_blob(260),
        nmethod_scopes: address(120),
        nmethod_pcs: from_blob(268),
        nmethod_pcs_end: from_blob(272),
        pc_size: 16,
        pc_offset: 0,
        pc_scope: 4,
        method_const: 8,
        const_size: 48,
        const_constants: 8,
        const_words: 24,
        const_flags: 28,
        const_has_lines: 1,
        const_code_size: 32,
        const_name: 34,
        const_signature: 36,
        const_max_stack: 40,
        pool_size: 72,
        pool_length: 60,
        pool_holder: 24,
        pool_source: 54,
        klass_name: 24,
        klass_source: 0,
        klass_constants: 0,
        klass_flags: 0,
        klass_anonymous: 0,
        symbol_length: 4,
        symbol_body: 6,
    }
}

const FACTS_LEN: usize = size_of::<Facts>();

/// The facts, aligned as in the memfd.
#[repr(align(16))]
struct Aligned([u8; FACTS_LEN]);

static FACTS: Mutex<Aligned> = Mutex::new(Aligned([0; FACTS_LEN]));

struct World(Memory);

impl World {
    fn new(kind: u64, count: u64) -> World {
        let mut world = World(Memory::new(BYTES));
        world.heap();
        world.method();
        world.code(kind);
        for frame in 0..count {
            let pointer = NATIVE + frame * FRAME + POINTER;
            let next = if frame + 1 < count { Self::returned_to(kind) } else { NATIVE_CODE };
            world.0.word(pointer, pointer + FRAME);
            world.0.word(pointer + 8, next);
            world.0.word(pointer - 8, pointer + 16);
            world.0.word(pointer - 24, METHOD);
            world.0.word(pointer - 64, CONSTANT + 48 + 3);
        }
        world
    }

    fn heap(&mut self) {
        let end = CODE + 3 * PAGE;
        for (at, word) in [CODE, end, HEAPS, QUEUE].into_iter().enumerate() {
            self.0.word(BASE + 8 + 8 * at as u64, word);
        }
        self.0.half(HEAPS, 1);
        self.0.word(HEAPS + 8, HEAP_LIST);
        self.0.word(HEAP_LIST, HEAP);
        self.0.word(HEAP + 8 + 16, CODE);
        self.0.word(HEAP + 8 + 24, end);
        self.0.word(HEAP + 120 + 16, SEGMENTS);
        self.0.half(HEAP + 256, 7);
        // A page has 32 segments.
        for segment in 0..96u8 {
            self.0.put(SEGMENTS + u64::from(segment), &[segment % 32]);
        }
        self.0.word(QUEUE + 8, CODE);
        self.0.half(QUEUE + 20, PAGE as u32);
    }

    fn method(&mut self) {
        self.0.word(METHOD + 8, CONSTANT);
        self.0.word(CONSTANT + 8, POOL);
        self.0.half(CONSTANT + 24, 8);
        for (at, short) in [(28, 1), (32, 8), (34, 1), (36, 2), (40, 4)] {
            self.0.short(CONSTANT + at, short);
        }
        // Lines: 5, and 6 from the fourth bytecode on.
        self.0.put(CONSTANT + 56, &[5, 4 << 3 | 1, 0]);
        self.0.word(POOL + 24, CLASS);
        self.0.short(POOL + 54, 3);
        self.0.half(POOL + 60, 4);
        self.0.word(CLASS + 24, SYMBOLS);
        let texts: [&[u8]; 4] = [b"a/B", b"method", b"()V", b"B.java"];
        for (index, text) in (0..).zip(texts) {
            let symbol = SYMBOLS + 32 * index;
            self.0.short(symbol + 4, text.len() as u16);
            self.0.put(symbol + 6, text);
            self.0.word(POOL + 72 + 8 * index, symbol);
        }
    }

    fn code(&mut self, kind: u64) {
        let names: [&[u8]; 3] = [b"Interpreter", b"nmethod", b"a stub"];
        for (page, name) in (0..).zip(names) {
            let block = CODE + page * PAGE;
            self.0.word(block + 8, 1);
            let blob = block + BLOB;
            self.0.put(BLOB_NAMES + 16 * page, name);
            self.0.word(blob + 96, BLOB_NAMES + 16 * page);
            self.0.half(blob + 20, 8);
            self.0.half(blob + 28, (FRAME / 8) as u32);
            self.0.word(blob + 32, block + INSTRUCTIONS);
            self.0.word(blob + 40, block + TABLES);
            self.0.put(block + INSTRUCTIONS, &[0x90; (TABLES - INSTRUCTIONS) as usize]);
            // What was called from there.
            self.0.put(block + AT - 5, &[0xe8, 0, 0, 0, 0]);
        }
        // add $0x70,%rsp; pop %rbp; ret
        if kind == 2 {
            self.0.put(CODE + 2 * PAGE + AT, &[0x48, 0x83, 0xc4, 0x70, 0x5d, 0xc3]);
        }
        let block = CODE + PAGE;
        let blob = block + BLOB;
        self.0.word(blob + 112, METHOD);
        self.0.word(blob + 120, block + TABLES + 0x100);
        let tables = (TABLES - BLOB) as u32;
        for (at, half) in [(252, tables), (260, tables), (268, tables + 0x40), (272, tables + 0x70)] {
            self.0.half(blob + at, half);
        }
        self.0.word(block + TABLES, METHOD);
        // A call in a method that is inlined in itself, between two that are none.
        let entries = [(u32::MAX, 0), ((AT - INSTRUCTIONS) as u32, 8), (i32::MAX as u32, 0)];
        for (at, (offset, record)) in (0..).zip(entries) {
            self.0.half(block + TABLES + 0x40 + 16 * at, offset);
            self.0.half(block + TABLES + 0x44 + 16 * at, record);
        }
        self.0.put(block + TABLES + 0x108, &[20, 1, 4]);
        self.0.put(block + TABLES + 0x114, &[0, 1, 2]);
    }

    /// Where a frame of this kind was interrupted.
    fn interrupted_at(kind: u64) -> u64 {
        CODE + [0, PAGE, 2 * PAGE, 0][kind as usize] + AT
    }

    /// Where it returns to.
    fn returned_to(kind: u64) -> u64 {
        CODE + [0, PAGE, 2 * PAGE, PAGE][kind as usize] + AT
    }
}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let first = input.u8();
    let (kind, count) = (u64::from(first & 3), u64::from(first >> 2 & 15) + 1);
    let whole = World::new(kind, count);
    let mut world = World::new(kind, count);
    // A panic of an earlier input leaves only bytes in it.
    let mut place = FACTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    place.0.copy_from_slice(facts().as_bytes());
    language::damage(&mut input, &mut world.0, &mut place.0);
    // SAFETY: the entry of a plugin that is linked in, which returns a static table for this ABI.
    let plugin = unsafe { uunwind_built_in::hotspot::signal::uu_plugin(ABI).as_ref() }.expect("a table for this ABI");
    let claim = Claim {
        step: plugin.step,
        index: INDEX,
        facts: place.0.as_ptr(),
        facts_len: FACTS_LEN,
        bias: BASE,
        generation: 1,
        ..Claim::NOTHING
    };
    let pc = World::interrupted_at(kind);
    let mut names = Vec::new();
    let emitted = emit(&world, claim, pc, &mut names, std::ptr::null_mut());
    language::compared([&whole, &world, &whole], &mut names, |memory, names, last| {
        emit(memory, claim, pc, names, last)
    });
    let ((stop, _, desync), words) = emitted;
    let shown = frames(&words).filter(|frame| matches!(frame, Frame::Semantic { .. })).count() as u64;
    let expected = [count, 2 * count, 0, 2 * count - 1][kind as usize];
    stop == StopReason::Complete && desync == 0 && shown == expected
}

/// One walk. Returns how it ended, the numbers of its frames and of the doubtful ones; and its words.
fn emit(world: &World, claim: Claim, pc: u64, names: &mut language::Names, last_walk: *mut LastWalk) -> Walked {
    let regions = [Region { address: BASE, bytes: &world.0 .0 }];
    let mut reader = Reader::recorded(&regions);
    let mut process = Process { claim, names: std::mem::take(names) };
    let mut registers = [0; 16];
    (registers[usize::from(RSP)], registers[usize::from(RBP)]) = (NATIVE, NATIVE + POINTER);
    registers[R13] = CONSTANT + 48 + 5;
    let cursor = Cursor { regs: Regs::full(pc, registers), exact: true };
    let walked = language::walk_once(cursor, &mut process, &mut reader, BASE, last_walk, 512);
    *names = process.names;
    walked
}

#[cfg(test)]
mod tests {
    #[test]
    fn undamaged_every_method_is_emitted() {
        for kind in 0..64 {
            assert!(super::run(&[kind]), "{kind}");
        }
    }

    #[test]
    fn damage_is_doubt_or_another_stack() {
        // The code cache's start, the method's constant part, the map of segments, a frame's method.
        for at in [0x8u16, 0x208, 0x800, 0x1058] {
            let [low, high] = at.to_le_bytes();
            assert!(!super::run(&[2 << 2, low, high, 2, 0x55, 0x77]), "{at:#x}");
        }
    }
}
