//! The Perl plugin, called by the walk, over the structures of a running Perl with any damage.
//!
//! | bytes | |
//! |---|---|
//! | 1 | bit 0: the innermost frame was interrupted; bits 1 to 3: number of run loops, less one; bit 4: Perl 5.32 |
//! | rest | damage: 2 bytes offset in memory or in the facts (modulo their size), 1 byte length, the bytes |
//!
//! Memory is four pages: objects, arrays and their contexts, ops, the native stack. Each run loop but the outermost one
//! was called by `call_sv` for a function in C, and runs a sub, an eval with a loop in it, and another sub; the
//! innermost one has an array of its own. The outermost one runs the program.

use super::language::{Memory, BASE};
use super::overlay::{walk_damaged, Place, Thread, FRAME, TEXT};
use crate::input::Input;
use std::mem::size_of;
use uunwind_built_in::perl::layout;
use uunwind_built_in::perl::signal::facts::{self, Extent, Facts, Plain, Site, Xsub};
use uunwind_built_in::perl::Version;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::regs::RSP;
use uunwind_core::stop_reason::StopReason;

const BYTES: usize = 4 * 4096;
/// Addresses in memory: the interpreter, a sub and what names it, a file, arrays, contexts, ops.
const INTERPRETER: u64 = BASE;
const CV: u64 = BASE + 0x900;
const CV_BODY: u64 = BASE + 0x920;
const GV: u64 = BASE + 0x9a0;
const GV_BODY: u64 = BASE + 0x9c0;
const GP: u64 = BASE + 0xa00;
const STASH: u64 = BASE + 0xa80;
const STASH_BODY: u64 = BASE + 0xaa0;
const STASH_ARRAY: u64 = BASE + 0xac0;
const NAME: u64 = BASE + 0xb00;
const PACKAGE: u64 = BASE + 0xb40;
const FILE: u64 = BASE + 0xb80;
const OUTER: u64 = BASE + 0x1000;
const INNER: u64 = BASE + 0x1040;
const OUTER_CONTEXTS: u64 = BASE + 0x1100;
const INNER_CONTEXTS: u64 = BASE + 0x1e00;
const OPS: u64 = BASE + 0x2000;
const NATIVE: u64 = BASE + 0x3000;
const CONTEXT_BYTES: u64 = 104;
const COP_BYTES: u64 = 96;

/// DWARF numbers of the registers of the interpreter and of the sub.
const OWN: u8 = 3;
const SUB: u8 = 15;
/// Offsets in the code, after calls: of an op, of a run loop by `call_sv` and by `perl_run`, of a function in C.
const CALLED: u64 = 0x100;
const BY_CALL_SV: u64 = 0x1100;
const BY_RUN: u64 = 0x1200;
const IN_C: u64 = 0x1300;

static FACTS: Place<{ size_of::<Facts>() }> = Place::new();

fn context(memory: &mut Memory, address: u64, (kind, cop, returns): (u64, u64, bool)) {
    memory.words(address, &[kind, 0, OPS + cop * COP_BYTES, 0, 0, 0, if returns { OPS } else { 0 }, 0, 0, CV]);
}

/// The contexts of one run loop, from the outermost one on: a sub, an eval, a loop, a sub.
fn contexts(memory: &mut Memory, address: u64, is_main: bool) -> u64 {
    if is_main {
        context(memory, address, (9, 1, true));
        return 1;
    }
    let kinds = [(9, 0, false), (0x4b, 1, true), (4, 2, true), (9, 2, true)];
    for (at, kind) in kinds.into_iter().enumerate() {
        context(memory, address + at as u64 * CONTEXT_BYTES, kind);
    }
    kinds.len() as u64
}

/// A runtime with this number of run loops.
fn runtime(facts: &Facts, loops: u64) -> Memory {
    let mut memory = Memory::new(BYTES);
    objects(&mut memory, facts);
    // From the root on.
    let mut count = contexts(&mut memory, OUTER_CONTEXTS, true);
    for _ in 2..loops {
        count += contexts(&mut memory, OUTER_CONTEXTS + count * CONTEXT_BYTES, false);
    }
    let array = |memory: &mut Memory, at: u64, (contexts, previous, count, kind): (u64, u64, u64, u64)| {
        memory.words(at, &[0, contexts, previous, 0, count.wrapping_sub(1) & 0xffff_ffff, kind << 32]);
    };
    array(&mut memory, OUTER, (OUTER_CONTEXTS, 0, count, 1));
    let mut innermost = OUTER;
    if loops > 1 {
        let count = contexts(&mut memory, INNER_CONTEXTS, false);
        array(&mut memory, INNER, (INNER_CONTEXTS, OUTER, count, 5));
        innermost = INNER;
    }
    memory.word(INTERPRETER + u64::from(facts.interpreter_stack), innermost);
    // Return addresses: each run loop's, then those of what has called it.
    let mut callers = Vec::new();
    for left in (0..loops).rev() {
        match left {
            0 => callers.extend([BY_RUN, 0x3000 - TEXT % 0x1000]),
            _ => callers.extend([BY_CALL_SV, IN_C, CALLED]),
        }
    }
    for (at, caller) in callers.iter().enumerate() {
        memory.word(NATIVE + (at as u64 + 1) * FRAME as u64 - 8, TEXT + caller);
    }
    memory
}

fn objects(memory: &mut Memory, facts: &Facts) {
    let field = |offset: u32| u64::from(offset);
    for (address, text) in [(NAME, &b"run"[..]), (PACKAGE, b"Kind")] {
        memory.word(address, (text.len() as u64) << 32);
        memory.put(address + 8, text);
    }
    memory.put(FILE, b"/p.pl\0");
    memory.words(CV, &[CV_BODY, 1 | 13 << 32, 0]);
    memory.word(CV_BODY + field(facts.cv_name), GV);
    memory.word(CV_BODY + field(facts.cv_start), OPS);
    memory.words(GV, &[GV_BODY, 1 | 9 << 32, GP]);
    memory.word(GP + field(facts.gp_egv), GV);
    memory.word(GV_BODY + field(facts.gv_name), NAME);
    memory.word(GV_BODY + field(facts.gv_stash), STASH);
    memory.words(STASH, &[STASH_BODY, 1 | 0x0200_000c << 32, STASH_ARRAY]);
    // After an array of two, or in the body.
    let about = if facts.hv_max == 0 { STASH_BODY } else { STASH_ARRAY + 16 };
    if facts.hv_max != 0 {
        memory.word(STASH_BODY + field(facts.hv_max), 1);
    }
    memory.word(about + field(facts.hv_name), PACKAGE);
    for op in 0..4 {
        let address = OPS + op * COP_BYTES;
        memory.word(address + field(facts.op_type), u64::from(facts.nextstate) | (8 + op) << 32);
        memory.word(address + field(facts.cop_file), FILE);
    }
    memory.word(INTERPRETER + field(facts.interpreter_op), OPS + 3 * COP_BYTES);
    memory.word(INTERPRETER + field(facts.interpreter_cop), OPS + 3 * COP_BYTES);
}

pub fn run(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let kind = input.u8();
    let loops = u64::from(kind >> 1 & 7) + 1;
    let minor = if kind & 1 << 4 == 0 { 36 } else { 32 };
    let Some(layout) = layout::of(Version { major: 5, minor, release: 0 }) else { return false };
    let mut facts = layout.facts;
    facts.runops = Extent { start: TEXT, end: TEXT + 0x1000 };
    (facts.runops_entered, facts.runops_called) = (TEXT + 8, TEXT + CALLED);
    facts.interpreter_register = OWN.into();
    facts.call_sv = Extent { start: TEXT + BY_CALL_SV - 0x10, end: TEXT + BY_CALL_SV + 0x10 };
    facts.sites[0] = Site { after: TEXT + BY_CALL_SV, class: facts::SUB, unused: 0 };
    facts.sites[1] = Site { after: TEXT + BY_RUN, class: facts::MAIN, unused: 0 };
    facts.xsubs[0] = Xsub { after: TEXT + IN_C, cv: SUB.into(), interpreter: OWN.into() };
    let mut registers = [0; 16];
    registers[usize::from(RSP)] = NATIVE;
    (registers[usize::from(OWN)], registers[usize::from(SUB)]) = (INTERPRETER, CV);
    // The op that has returned leads to the next one.
    registers[0] = OPS + 3 * COP_BYTES;
    let thread = Thread { frames: (3 * loops - 1) as u8, registers, thread_pointer: BASE };
    let (entry, whole) = (uunwind_built_in::perl::signal::uu_plugin, runtime(&facts, loops));
    // SAFETY: the entry of a plugin that is linked in.
    let ((stop, _, desync), words) =
        unsafe { walk_damaged(entry, (&mut input, kind), (&FACTS, facts.as_bytes()), &whole, &thread) };
    // All subs, evals and functions in C of all run loops, the program, and no doubt.
    let shown = frames(&words).filter(|frame| matches!(frame, Frame::Semantic { .. })).count();
    stop == StopReason::Complete && desync == 0 && shown as u64 == 4 * (loops - 1) + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undamaged_every_run_loop_is_emitted() {
        for kind in 0..32 {
            assert!(run(&[kind]), "{kind}");
        }
    }

    #[test]
    fn damage_is_doubt() {
        // The array, its index, a context's type, what a sub returns to, the sub, its type, its glob, the package, a
        // caller of a run loop.
        let at = [
            INTERPRETER + 0xe0,
            INNER + 32,
            INNER_CONTEXTS,
            INNER_CONTEXTS + 48,
            INNER_CONTEXTS + 72,
            CV + 12,
            GV + 12,
            STASH + 12,
            NATIVE + FRAME as u64 - 8,
        ];
        for at in at {
            let [low, high] = ((at - BASE) as u16).to_le_bytes();
            assert!(!run(&[2, low, high, 2, 0x55, 0x77]), "{at:#x}");
        }
    }

    /// The array that a package's name lies behind, its length, the name.
    #[test]
    fn damage_of_a_package_of_perl_5_32_is_doubt() {
        for at in [STASH + 16, STASH_BODY + 24, STASH_ARRAY + 16] {
            let [low, high] = ((at - BASE) as u16).to_le_bytes();
            assert!(!run(&[2 | 1 << 4, low, high, 2, 0x55, 0x77]), "{at:#x}");
            assert!(run(&[2, low, high, 2, 0x55, 0x77]) || at == STASH_ARRAY + 16, "{at:#x}: not read by 5.36");
        }
    }

    /// The text of a freed sub's name stays for a while; its type does not.
    #[test]
    fn a_freed_sub_is_no_name() {
        let [low, high] = ((CV + 12 - BASE) as u16).to_le_bytes();
        assert!(!run(&[2, low, high, 4, 0xff, 0, 0, 0]));
    }
}
