//! The PHP plugin, called by the walk, over the structures of a running PHP with any damage.
//!
//! | bytes | |
//! |---|---|
//! | 1 | bit 0: the innermost frame was interrupted; other bits: number of activations, less one |
//! | rest | damage: 2 bytes offset in memory or in the facts (modulo their size), 1 byte length, the bytes |
//!
//! Memory is three pages: objects, PHP's frames, the native stack. Each activation has a function in C, a method that
//! called it, and a generator's code around the method, which is the activation's outermost and waits for another one
//! through a placeholder. All native frames are the interpreter's loop.

use super::language::{Memory, BASE};
use super::overlay::{walk_damaged, Place, Thread, FRAME, TEXT};
use crate::input::Input;
use std::mem::size_of;
use uunwind_built_in::php::layout;
use uunwind_built_in::php::signal::facts::{Extent, Facts, Plain};
use uunwind_built_in::php::Version;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::regs::RSP;
use uunwind_core::stop_reason::StopReason;

const BYTES: usize = 3 * 4096;
/// Addresses in memory: the globals, functions, texts, a class, opcodes, generators.
const GLOBALS: u64 = BASE;
const METHOD: u64 = BASE + 0x600;
const C_FUNCTION: u64 = BASE + 0x700;
const CLASS: u64 = BASE + 0x740;
const NAME: u64 = BASE + 0x780;
const CLASS_NAME: u64 = BASE + 0x7c0;
const FILE: u64 = BASE + 0x800;
const OPCODES: u64 = BASE + 0x880;
const WAITING: u64 = BASE + 0x900;
const RUNNING: u64 = BASE + 0xb00;
const FRAMES: u64 = BASE + 0x1000;
const NATIVE: u64 = BASE + 0x2000;
/// Distances between frames, and between activations' frames.
const FRAME_BYTES: u64 = 0x50;
const GROUP_BYTES: u64 = 4 * FRAME_BYTES;
/// Call information: `ZEND_CALL_TOP`, `ZEND_CALL_GENERATOR`, and the type of an object.
const TOP: u64 = 1 << 17;
const GENERATOR: u64 = 1 << 24;
const OBJECT: u64 = 8;

/// DWARF numbers of the registers of the frame and of the opline.
const ANCHOR: u8 = 14;
const OPLINE: u8 = 15;
/// From the CFA down to the saved register.
const SAVED: u64 = 0x58;

static FACTS: Place<{ size_of::<Facts>() }> = Place::new();

/// Address of a frame of an activation.
fn frame_at(activation: u64, index: u64) -> u64 {
    FRAMES + activation * GROUP_BYTES + index * FRAME_BYTES
}

/// The type of a string, with the flag that it is not collected, as all have it.
const STRING: u64 = 0x16;

fn string(memory: &mut Memory, address: u64, text: &[u8]) {
    memory.words(address, &[1 | STRING << 32, 0, text.len() as u64]);
    memory.put(address + 24, text);
}

fn frame(memory: &mut Memory, address: u64, (opline, function, this): (u64, u64, u64), (info, previous): (u64, u64)) {
    memory.words(address, &[opline, 0, 0, function, this, info, previous]);
}

/// A runtime with this number of activations.
fn runtime(facts: &Facts, activations: u64) -> Memory {
    let mut memory = Memory::new(BYTES);
    objects(&mut memory, facts);
    memory.word(GLOBALS + u64::from(facts.globals_frame), frame_at(0, 0));
    let placeholder = WAITING + u64::from(facts.generator_placeholder);
    for activation in 0..activations {
        let at = |index| frame_at(activation, index);
        let next = if activation + 1 < activations { frame_at(activation + 1, 0) } else { 0 };
        frame(&mut memory, at(0), (0, C_FUNCTION, 0), (TOP, at(1)));
        frame(&mut memory, at(1), (OPCODES + 32, METHOD, CLASS), (OBJECT, at(2)));
        // The innermost activation's outermost frame is that of a generator for which another one waits.
        let outer = if activation == 0 && next != 0 { placeholder } else { next };
        frame(&mut memory, at(2), (OPCODES, METHOD, 0), (TOP | GENERATOR, outer));
        if outer == placeholder {
            frame(&mut memory, at(3), (OPCODES + 64, METHOD, 0), (TOP | GENERATOR, placeholder));
            frame(&mut memory, placeholder, (0, 0, WAITING), (OBJECT, next));
            memory.word(WAITING + u64::from(facts.generator_frame), at(3));
            memory.word(WAITING + u64::from(facts.generator_parent), RUNNING);
            memory.word(RUNNING + u64::from(facts.generator_frame), at(2));
        }
    }
    for native in 0..activations {
        let cfa = NATIVE + (native + 1) * FRAME as u64;
        // The outermost native frame is not the interpreter's, and has no caller.
        let (caller, outer) = match native + 1 < activations {
            true => (TEXT + 0x100, frame_at(native + 1, 1)),
            false => (TEXT + 0x3000, 0),
        };
        memory.word(cfa - 8, caller);
        memory.word(cfa - SAVED, outer);
    }
    memory
}

fn objects(memory: &mut Memory, facts: &Facts) {
    string(memory, NAME, b"run");
    string(memory, CLASS_NAME, b"Kind");
    string(memory, FILE, b"/p.php");
    memory.word(CLASS + u64::from(facts.class_name), CLASS_NAME);
    memory.words(C_FUNCTION, &[1, NAME, 0]);
    memory.words(METHOD, &[2, NAME, CLASS]);
    memory.put(METHOD + u64::from(facts.code_len), &3u32.to_le_bytes());
    memory.word(METHOD + u64::from(facts.code_oplines), OPCODES);
    memory.word(METHOD + u64::from(facts.code_file), FILE);
    memory.put(METHOD + u64::from(facts.code_line), &7u32.to_le_bytes());
    for opcode in 0..3 {
        let line = 8 + opcode as u32;
        memory.put(OPCODES + opcode * 32 + u64::from(facts.opline_line), &line.to_le_bytes());
    }
}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let kind = input.u8();
    let activations = u64::from(kind >> 1 & 7) + 1;
    let Some((stop, desync, words)) = walked((&mut input, kind), OPCODES + 32, |_, _| ()) else { return false };
    // All functions of all activations, and no doubt.
    let shown = frames(&words).filter(|frame| matches!(frame, Frame::Semantic { .. })).count();
    let all = 3 * activations + u64::from(activations > 1);
    stop == StopReason::Complete && desync == 0 && shown as u64 == all
}

/// A walk with this opline in its register, and a change of memory: why it stopped, the doubts, the frames.
fn walked(
    (input, kind): (&mut Input<'_>, u8),
    opline: u64,
    change: impl Fn(&mut Memory, &Facts),
) -> Option<(StopReason, u32, Vec<u64>)> {
    let activations = u64::from(kind >> 1 & 7) + 1;
    let mut facts = layout::of(Version { major: 8, minor: 2, release: 36 })?;
    facts.globals = GLOBALS;
    facts.exec = Extent { start: TEXT, end: TEXT + 0x1000 };
    facts.leaving[0] = Extent { start: TEXT + 0x800, end: TEXT + 0x820 };
    facts.switching[0] = Extent { start: TEXT + 0x1000, end: TEXT + 0x1100 };
    (facts.exec_entry, facts.exec_loaded, facts.exec_saved) = (16, 20, SAVED as u32);
    (facts.frame_register, facts.opline_register) = (ANCHOR.into(), OPLINE.into());
    let mut registers = [0; 16];
    registers[usize::from(RSP)] = NATIVE;
    (registers[usize::from(ANCHOR)], registers[usize::from(OPLINE)]) = (frame_at(0, 1), opline);
    let thread = Thread { frames: activations as u8, registers, thread_pointer: BASE };
    let (entry, mut whole) = (uunwind_built_in::php::signal::uu_plugin, runtime(&facts, activations));
    change(&mut whole, &facts);
    // SAFETY: the entry of a plugin that is linked in.
    let ((stop, _, desync), words) =
        unsafe { walk_damaged(entry, (input, kind), (&FACTS, facts.as_bytes()), &whole, &thread) };
    Some((stop, desync, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undamaged_every_activation_is_emitted() {
        for kind in 0..16 {
            assert!(run(&[kind]), "{kind}");
        }
    }

    #[test]
    fn damage_is_doubt() {
        // The current frame, its function, its link, a method's kind, its class, the saved register, the generator's
        // link.
        let link = frame_at(0, 0) + 48;
        let saved = NATIVE + FRAME as u64 - SAVED;
        for at in [GLOBALS + 488, frame_at(0, 0) + 24, link, METHOD, METHOD + 16, saved, WAITING + 152] {
            let [low, high] = ((at - BASE) as u16).to_le_bytes();
            assert!(!run(&[2, low, high, 2, 0x55, 0x77]), "{at:#x}");
        }
    }

    /// While an exception leaves a function, the register has the globals' opcode already and its caller is the frame:
    /// the caller is at the opcode that it has stored.
    #[test]
    fn a_caller_that_an_exception_reaches_is_at_its_call() {
        const EXCEPTION: u64 = GLOBALS + 0x100;
        let line = |opline: u64| {
            let change = |memory: &mut Memory, facts: &Facts| {
                memory.put(EXCEPTION + u64::from(facts.opline_opcode), &[facts.handle_exception as u8]);
                // No function in C runs.
                memory.word(GLOBALS + u64::from(facts.globals_frame), frame_at(0, 1));
            };
            let walked = walked((&mut Input::new(&[]), 1), opline, change);
            let (stop, desync, words) = walked.expect("a served version");
            assert_eq!((stop, desync), (StopReason::Complete, 0));
            let found = frames(&words).find_map(|frame| match frame {
                Frame::Semantic { position, .. } => Some(position),
                _ => None,
            });
            found
        };
        assert_eq!(line(OPCODES + 64), Some(10), "the register's");
        assert_eq!(line(EXCEPTION), Some(9), "the stored one");
    }

    /// The text of a freed string stays for a while; its first word is the address of the next free block.
    #[test]
    fn a_freed_string_is_no_name() {
        for at in [NAME, CLASS_NAME, FILE] {
            let [low, high] = ((at - BASE) as u16).to_le_bytes();
            let [a, b, c, d, e, f, g, h] = 0x7f56_1234_5678_u64.to_le_bytes();
            assert!(!run(&[2, low, high, 8, a, b, c, d, e, f, g, h]), "{at:#x}");
        }
    }
}
