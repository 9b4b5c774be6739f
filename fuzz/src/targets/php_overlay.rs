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

use super::language::{self, Memory, Walked, BASE, INDEX};
use crate::input::Input;
use std::mem::size_of;
use std::sync::Mutex;
use uunwind_built_in::php::layout;
use uunwind_built_in::php::signal::facts::{Extent, Facts, Plain};
use uunwind_built_in::php::Version;
use uunwind_core::cache::last_walk::LastWalk;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::{Reader, Region};
use uunwind_core::plugin::{Description, ABI, TEXT_LIMIT};
use uunwind_core::regs::{Regs, RSP};
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{Claim, Claimed, Env, Look, Names, Replay};

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

/// Code of the interpreter, and the size of its frames in bytes.
const TEXT: u64 = 0x40_0000;
const FRAME: i32 = 160;
/// DWARF numbers of the registers of the frame and of the opline.
const ANCHOR: u8 = 14;
const OPLINE: u8 = 15;
/// From the CFA down to the saved register.
const SAVED: u64 = 0x58;

/// The facts, aligned as in the memfd.
#[repr(align(16))]
struct Aligned([u8; size_of::<Facts>()]);

static FACTS: Mutex<Aligned> = Mutex::new(Aligned([0; size_of::<Facts>()]));

struct Process {
    claim: Claim,
    frames: u8,
    names: language::Names,
}

impl Env for Process {
    fn rule(&mut self, _: &Cursor, _: &mut Reader<'_>) -> Packed {
        match self.frames.checked_sub(1) {
            Some(left) => {
                self.frames = left;
                Rule::simple(RSP, FRAME).pack()
            }
            None => Rule::end().pack(),
        }
    }

    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        Look { claim: Claimed::By(self.claim), ..Look::at(self.rule(cursor, reader)) }
    }

    fn function(&mut self, _: &Claim, _: &Cursor, _: &mut Reader<'_>) -> Span {
        Span::sized(TEXT, 0x2000)
    }
}

impl Names for Process {
    fn find_name(&mut self, _: u8, code: u64, fingerprint: u64) -> u32 {
        language::find_name(&self.names, code, fingerprint)
    }

    fn describe(&mut self, _: u8, description: &Description, reader: &mut Reader<'_>) -> u32 {
        for text in [&description.name, &description.file].into_iter().filter(|text| !text.is_own()) {
            reader.read(text.address, &mut vec![0; text.len.min(TEXT_LIMIT) as usize]);
        }
        language::add_name(&mut self.names, description.code, description.fingerprint)
    }
}

impl Replay for Process {}

struct World(Memory);

/// Address of a frame of an activation.
fn frame_at(activation: u64, index: u64) -> u64 {
    FRAMES + activation * GROUP_BYTES + index * FRAME_BYTES
}

impl World {
    fn string(&mut self, address: u64, text: &[u8]) {
        self.0.words(address, &[1, 0, text.len() as u64]);
        self.0.put(address + 24, text);
    }

    fn frame(&mut self, address: u64, (opline, function, this): (u64, u64, u64), (info, previous): (u64, u64)) {
        self.0.words(address, &[opline, 0, 0, function, this, info, previous]);
    }

    /// A runtime with this number of activations.
    fn new(facts: &Facts, activations: u64) -> World {
        let mut world = World(Memory::new(BYTES));
        world.objects(facts);
        world.0.word(GLOBALS + u64::from(facts.globals_frame), frame_at(0, 0));
        let placeholder = WAITING + u64::from(facts.generator_placeholder);
        for activation in 0..activations {
            let at = |index| frame_at(activation, index);
            let next = if activation + 1 < activations { frame_at(activation + 1, 0) } else { 0 };
            world.frame(at(0), (0, C_FUNCTION, 0), (TOP, at(1)));
            world.frame(at(1), (OPCODES + 32, METHOD, CLASS), (OBJECT, at(2)));
            // The innermost activation's outermost frame is that of a generator for which another one waits.
            let outer = if activation == 0 && next != 0 { placeholder } else { next };
            world.frame(at(2), (OPCODES, METHOD, 0), (TOP | GENERATOR, outer));
            if outer == placeholder {
                world.frame(at(3), (OPCODES + 64, METHOD, 0), (TOP | GENERATOR, placeholder));
                world.frame(placeholder, (0, 0, WAITING), (OBJECT, next));
                world.0.word(WAITING + u64::from(facts.generator_frame), at(3));
                world.0.word(WAITING + u64::from(facts.generator_parent), RUNNING);
                world.0.word(RUNNING + u64::from(facts.generator_frame), at(2));
            }
        }
        for native in 0..activations {
            let cfa = NATIVE + (native + 1) * FRAME as u64;
            // The outermost native frame is not the interpreter's, and has no caller.
            let (caller, outer) = match native + 1 < activations {
                true => (TEXT + 0x100, frame_at(native + 1, 1)),
                false => (TEXT + 0x3000, 0),
            };
            world.0.word(cfa - 8, caller);
            world.0.word(cfa - SAVED, outer);
        }
        world
    }

    fn objects(&mut self, facts: &Facts) {
        self.string(NAME, b"run");
        self.string(CLASS_NAME, b"Kind");
        self.string(FILE, b"/p.php");
        self.0.word(CLASS + u64::from(facts.class_name), CLASS_NAME);
        self.0.words(C_FUNCTION, &[1, NAME, 0]);
        self.0.words(METHOD, &[2, NAME, CLASS]);
        self.0.put(METHOD + u64::from(facts.code_len), &3u32.to_le_bytes());
        self.0.word(METHOD + u64::from(facts.code_oplines), OPCODES);
        self.0.word(METHOD + u64::from(facts.code_file), FILE);
        self.0.put(METHOD + u64::from(facts.code_line), &7u32.to_le_bytes());
        for opcode in 0..3 {
            let line = 8 + opcode as u32;
            self.0.put(OPCODES + opcode * 32 + u64::from(facts.opline_line), &line.to_le_bytes());
        }
    }
}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let kind = input.u8();
    let activations = u64::from(kind >> 1 & 7) + 1;
    let Some(mut facts) = layout::of(Version { major: 8, minor: 2, release: 36 }) else { return false };
    facts.globals = GLOBALS;
    facts.exec = Extent { start: TEXT, end: TEXT + 0x1000 };
    facts.leaving[0] = Extent { start: TEXT + 0x800, end: TEXT + 0x820 };
    facts.switching[0] = Extent { start: TEXT + 0x1000, end: TEXT + 0x1100 };
    (facts.exec_entry, facts.exec_loaded, facts.exec_saved) = (16, 20, SAVED as u32);
    (facts.frame_register, facts.opline_register) = (ANCHOR.into(), OPLINE.into());
    let mut world = World::new(&facts, activations);
    // A panic of an earlier input leaves only bytes in it.
    let mut place = FACTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    place.0.copy_from_slice(facts.as_bytes());
    language::damage(&mut input, &mut world.0, &mut place.0);
    // SAFETY: the entry of a plugin that is linked in, which returns a static table for this ABI.
    let plugin = unsafe { uunwind_built_in::php::signal::uu_plugin(ABI).as_ref() }.expect("a table for this ABI");
    let (overlay, facts_len) = (plugin.overlay, place.0.len());
    let claim = Claim { overlay, index: INDEX, facts: place.0.as_ptr(), facts_len, ..Claim::NOTHING };
    let whole = World::new(&facts, activations);
    let mut names = Vec::new();
    let emitted = emit(&world, claim, (kind, 0x100), &mut names, std::ptr::null_mut());
    let walks = [(&whole, kind & !1, 0x200), (&world, kind, 0x100), (&whole, kind, 0x180)];
    language::compared(walks, &mut names, |(memory, kind, pc), names, last| {
        emit(memory, claim, (*kind, *pc), names, last)
    });
    let ((stop, _, desync), words) = emitted;
    // All functions of all activations, and no doubt.
    let shown = frames(&words).filter(|frame| matches!(frame, Frame::Semantic { .. })).count();
    let all = 3 * activations + u64::from(activations > 1);
    stop == StopReason::Complete && desync == 0 && shown as u64 == all
}

/// One walk. Returns how it ended, the numbers of its frames and of the doubtful ones; and its words.
fn emit(
    world: &World,
    claim: Claim,
    (kind, pc): (u8, u64),
    names: &mut language::Names,
    last_walk: *mut LastWalk,
) -> Walked {
    let regions = [Region { address: BASE, bytes: &world.0 .0 }];
    let mut reader = Reader::recorded(&regions);
    let activations = (kind >> 1 & 7) + 1;
    let mut process = Process { claim, frames: activations, names: std::mem::take(names) };
    let mut registers = [0; 16];
    registers[usize::from(RSP)] = NATIVE;
    (registers[usize::from(ANCHOR)], registers[usize::from(OPLINE)]) = (frame_at(0, 1), OPCODES + 32);
    let cursor = Cursor { regs: Regs::full(TEXT + pc, registers), exact: kind & 1 != 0 };
    let walked = language::walk_once(cursor, &mut process, &mut reader, BASE, last_walk, 512);
    *names = process.names;
    walked
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
}
