//! The Ruby plugin, called by the walk, over the structures of a running CRuby with any damage.
//!
//! | bytes | |
//! |---|---|
//! | 1 | bit 0: the innermost frame was interrupted; other bits: number of activations, less one |
//! | rest | damage: 2 bytes offset in memory or in the facts (modulo their size), 1 byte length, the bytes |
//!
//! Memory is three pages: objects, the VM stack, the native stack. Each activation has a C function, a block that
//! called it, and the method around the block, which is the activation's outermost. The innermost native frame is the
//! interpreter's loop.

use super::language::{Memory, BASE};
use super::overlay::{walk_damaged, Place, Thread, FRAME, TEXT};
use crate::input::Input;
use std::mem::size_of;
use uunwind_built_in::ruby::layout;
use uunwind_built_in::ruby::signal::facts::{Extent, Facts, Plain, CONTEXT_AT};
use uunwind_built_in::ruby::Version;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::regs::RSP;
use uunwind_core::stop_reason::StopReason;

const BYTES: usize = 3 * 4096;
/// Addresses in memory. The thread pointer is `BASE`.
const CONTEXT: u64 = BASE + 0x100;
const ISEQ: u64 = BASE + 0x200;
const BODY: u64 = BASE + 0x300;
const LINES: u64 = BASE + 0x3c0;
const INDEX_TABLE: u64 = BASE + 0x400;
const CODE: u64 = BASE + 0x500;
const LABEL: u64 = BASE + 0x600;
const BASE_LABEL: u64 = BASE + 0x640;
const PATH: u64 = BASE + 0x680;
const METHOD: u64 = BASE + 0x700;
const C_METHOD: u64 = BASE + 0x740;
const DEFINITION: u64 = BASE + 0x780;
const C_DEFINITION: u64 = BASE + 0x7c0;
const CLASS: u64 = BASE + 0x800;
const EXTENSION: u64 = BASE + 0x840;
const TABLE: u64 = BASE + 0x880;
const ENTRIES: u64 = BASE + 0x8c0;
const CLASS_PATH: u64 = BASE + 0x940;
const SYMBOLS: u64 = BASE + 0xa00;
const IDS: u64 = BASE + 0xa40;
const PART: u64 = BASE + 0xa80;
const ID_WORDS: u64 = BASE + 0xb00;
const KEY_TEXT: u64 = BASE + 0xd00;
const C_TEXT: u64 = BASE + 0xd40;
const VM_STACK: u64 = BASE + 0x1000;
const VM_WORDS: u64 = 512;
const NATIVE: u64 = BASE + 0x2000;
/// Serial numbers of `__classpath__` and of the C function's name, and their ids.
const KEY_SERIAL: u64 = 20;
const C_SERIAL: u64 = 21;
const fn id(serial: u64) -> u64 {
    serial << 4 | 1
}

const EXEC: u64 = TEXT + 0x1000;
/// Where a tag lies in the native frame of `vm_exec`.
const TAG: u64 = 16;
/// DWARF number of the register that holds the loop's control frame.
const ANCHOR: u8 = 15;

static FACTS: Place<{ size_of::<Facts>() }> = Place::new();

/// An embedded string.
fn string(memory: &mut Memory, address: u64, text: &[u8]) {
    memory.words(address, &[5 | (text.len() as u64) << 14, 0]);
    memory.put(address + 16, text);
}

/// A runtime with this number of activations.
fn runtime(facts: &Facts, activations: u64) -> Memory {
    let mut memory = Memory::new(BYTES);
    let size = u64::from(facts.frame_bytes);
    let end = VM_STACK + 8 * VM_WORDS;
    let first = end - size * (1 + 3 * activations);
    memory.word(BASE + 0x10, CONTEXT);
    memory.words(CONTEXT, &[VM_STACK, VM_WORDS, first, NATIVE + FRAME as u64 + TAG]);
    objects(&mut memory, facts);
    // Environments: of the C function, of the block, of the method around it, of the outermost frame.
    let (c, block, method, dummy) = (VM_STACK + 16, VM_STACK + 40, VM_STACK + 64, VM_STACK + 88);
    memory.words(c - 16, &[C_METHOD, 0, 0x5555_0083]);
    memory.words(block - 16, &[0, method | 1, 0x2222_0001]);
    memory.words(method - 16, &[METHOD, 0, 0x1111_0023]);
    memory.words(dummy - 16, &[0, 0, 0x7999_00a3]);
    let mut frame = |index: u64, pc: u64, iseq: u64, ep: u64| {
        let at = first + index * size;
        memory.word(at + u64::from(facts.frame_pc), pc);
        memory.word(at + u64::from(facts.frame_iseq), iseq);
        memory.word(at + u64::from(facts.frame_ep), ep);
    };
    for activation in 0..activations {
        frame(3 * activation, 0, 0, c);
        frame(3 * activation + 1, CODE + 16, ISEQ, block);
        frame(3 * activation + 2, CODE + 32, ISEQ, method);
    }
    frame(3 * activations, 0, 0, dummy);
    // The outermost native frame has no caller.
    for native in 1..=activations + 1 {
        let sp = NATIVE + native * FRAME as u64;
        // The return address into this frame, and its tag.
        memory.word(sp - 8, EXEC + 0x100);
        let next = if native < activations { sp + FRAME as u64 + TAG } else { 0 };
        memory.word(sp + TAG + u64::from(facts.tag_previous), next);
    }
    memory
}

fn objects(memory: &mut Memory, facts: &Facts) {
    let iseq = 0x1a | 7 << 12;
    memory.words(ISEQ, &[iseq, 0, BODY]);
    let body = |offset: u32| BODY + u64::from(offset);
    memory.put(body(facts.body_size), &8u32.to_le_bytes());
    for (offset, value) in [
        (facts.body_code, CODE),
        (facts.body_path, PATH),
        (facts.body_base_label, BASE_LABEL),
        (facts.body_label, LABEL),
        (facts.body_first_line, 7 << 1 | 1),
        (facts.body_lines, LINES),
        (facts.body_index, INDEX_TABLE),
    ] {
        memory.word(body(offset), value);
    }
    memory.put(body(facts.body_lines_len), &2u32.to_le_bytes());
    for entry in 0..2 {
        memory.put(LINES + entry * u64::from(facts.line_bytes), &(8 + entry as u32).to_le_bytes());
    }
    // The second entry begins at position 2.
    let ranks = (0..9).fold(0, |ranks, at| ranks | (if at < 2 { 1 } else { 2 }) << (7 * at));
    memory.word(INDEX_TABLE, ranks);
    string(memory, LABEL, b"block in f");
    string(memory, BASE_LABEL, b"f");
    string(memory, PATH, b"/p.rb");
    let entry = 0x1a | 6 << 12;
    memory.words(METHOD, &[entry, CLASS, DEFINITION, id(C_SERIAL), CLASS]);
    memory.words(C_METHOD, &[entry, CLASS, C_DEFINITION, id(C_SERIAL), CLASS]);
    memory.word(DEFINITION, 0);
    memory.word(C_DEFINITION, 1);
    memory.word(C_DEFINITION + u64::from(facts.definition_id), id(C_SERIAL));
    memory.word(CLASS, 2);
    memory.word(CLASS + u64::from(facts.class_extension), EXTENSION);
    memory.word(EXTENSION + u64::from(facts.extension_variables), TABLE);
    memory.words(TABLE + 0x20, &[0, 1, ENTRIES]);
    memory.words(ENTRIES, &[0, id(KEY_SERIAL), CLASS_PATH]);
    string(memory, CLASS_PATH, b"Kind");
    memory.put(SYMBOLS, &40u32.to_le_bytes());
    memory.word(SYMBOLS + u64::from(facts.symbols_ids), IDS);
    // One element, in the object itself; and as many as a part has, elsewhere.
    memory.words(IDS, &[7 | 1 << 13 | 1 << 15, 0, PART]);
    memory.words(PART, &[7, 0, 1024, 1024, ID_WORDS]);
    memory.word(ID_WORDS + KEY_SERIAL * 16, KEY_TEXT);
    memory.word(ID_WORDS + C_SERIAL * 16, C_TEXT);
    string(memory, KEY_TEXT, b"__classpath__");
    string(memory, C_TEXT, b"each");
}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let kind = input.u8();
    let activations = u64::from(kind >> 1 & 7) + 1;
    let Some(mut facts) = layout::of(Version { major: 3, minor: 1, teeny: 2 }) else { return false };
    (facts.context, facts.context_offset, facts.symbols) = (CONTEXT_AT, 0x10, SYMBOLS);
    facts.core = Extent { start: TEXT, end: TEXT + 0x1000 };
    facts.exec = Extent { start: EXEC, end: EXEC + 0x1000 };
    facts.leaving[0] = Extent { start: EXEC + 0x800, end: EXEC + 0x900 };
    (facts.core_entry, facts.exec_entry, facts.core_register) = (16, 16, ANCHOR.into());
    facts.core_frame = FRAME as u32;
    let mut registers = [0; 16];
    let size = u64::from(facts.frame_bytes);
    let first = VM_STACK + 8 * VM_WORDS - size * (1 + 3 * activations);
    (registers[usize::from(RSP)], registers[usize::from(ANCHOR)]) = (NATIVE, first + size);
    let thread = Thread { frames: activations as u8 + 1, registers, thread_pointer: BASE };
    let (entry, whole) = (uunwind_built_in::ruby::signal::uu_plugin, runtime(&facts, activations));
    // SAFETY: the entry of a plugin that is linked in.
    let ((stop, _, desync), words) =
        unsafe { walk_damaged(entry, (&mut input, kind), (&FACTS, facts.as_bytes()), &whole, &thread) };
    // All functions of all activations, and no doubt.
    let shown = frames(&words).filter(|frame| matches!(frame, Frame::Semantic { .. })).count();
    stop == StopReason::Complete && desync == 0 && shown as u64 == 3 * activations
}

#[cfg(test)]
mod tests {
    #[test]
    fn undamaged_every_activation_is_emitted() {
        for kind in 0..16 {
            assert!(super::run(&[kind]), "{kind}");
        }
    }

    #[test]
    fn damage_is_doubt() {
        // The innermost frame's flags, a tag's link, the context's control frame, a method's iseq.
        for at in [0x1010u16, 0x10a0 + 0x1000 + 0x48, 0x110, 0x210] {
            let [low, high] = at.to_le_bytes();
            assert!(!super::run(&[2, low, high, 2, 0x55, 0x77]), "{at:#x}");
        }
    }
}
