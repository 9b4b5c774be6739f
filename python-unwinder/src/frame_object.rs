//! Activations of CPython 3.8 to 3.10: one native activation of the loop for each Python function, whose
//! `PyFrameObject` the loop keeps in a callee-saved register
//! (<https://github.com/python/cpython/blob/v3.9.18/Include/cpython/frameobject.h>).
//!
//! There is no boundary on the C stack. Which register it is depends on the compiler, so it is not looked up: an
//! activation hosts the next frame of the chain if one of its callee-saved registers holds that frame's address. Where
//! none does, the activation and the chain disagree:
//!
//! * the chain has frames without an activation: `gen.throw()` links the generators that delegate to the one that is
//!   resumed (3.10);
//! * the chain was cut: in 3.9 `gen.throw()` links a delegating generator that has no caller; or the chain is that of
//!   another interpreter on the same stack. Then the frame object in a register is taken, if it is executing;
//! * the activation has taken its frame out of the chain, and is about to return.
//!
//! An interrupted activation whose registers are not set up yet, or restored already, hosts nothing: they are the
//! caller's.

use crate::code;
use crate::cursor::{Cursor, ENDED, TRACKING};
use crate::emission::Emission;
use crate::lines::NOT_BEGUN;
use crate::overlay::Here;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER};

/// The callee-saved registers, by DWARF number: rbx, r14, r12, r13, r15, rbp. GCC keeps the frame in rbx, debug builds
/// in r14.
const REGISTERS: [u8; 6] = [3, 14, 12, 13, 15, 6];
/// The registers in which the evaluation loop gets its frame: rdi up to 3.8, rsi later.
const ARGUMENTS: [u8; 2] = [5, 4];
/// Number of registers, from the first on, that were observed to hold it in all builds.
const USUAL: usize = 2;
/// Number of frames of the chain that may lack an activation of their own.
const SKIPS: u32 = 16;
/// A frame that holds the six callee-saved registers and the return address, and nothing else, has been left, or not
/// been set up.
const EMPTY_BYTES: u64 = 56;
/// Where the prologue saves the six registers, in bytes below the CFA.
const SAVED: [u64; 6] = [16, 24, 32, 40, 48, 56];
/// Words of the C frame that are searched for a frame that is in no register.
const SPILL_WORDS: u64 = 96;
/// Within this many bytes from the loop's entry its registers may still be the caller's (the largest distance observed
/// in a build is 0x28). The frame is linked into the chain later.
const ENTRY_BYTES: u64 = 0x60;

/// Starts at `PyThreadState.frame`.
pub fn begin(cursor: &mut Cursor, frame: u64) {
    cursor.frame = frame;
    cursor.state = TRACKING;
}

/// What is read of a `PyFrameObject`.
struct FrameObject {
    /// `f_back`; 0: there is none.
    back: u64,
    /// `f_code`.
    code: u64,
    /// Byte offset of the last instruction (`f_lasti`); `None`: it has not begun.
    position: Option<u64>,
    /// It is executing: neither suspended nor finished.
    executing: bool,
    /// `f_gen` is set: it belongs to a generator or coroutine.
    is_generator: bool,
}

/// Handles one native frame: emits the Python frame that runs in it. Returns `OVERLAY_*` flags.
pub fn step(here: &Here<'_>, cursor: &mut Cursor) -> u32 {
    if !here.is_loop {
        return here.without_frames();
    }
    let without_state = if cursor.state == ENDED { OVERLAY_DESYNC } else { 0 };
    if here.guest.exact() {
        return interrupted(here, cursor) | without_state;
    }
    let answer = match hosted(here, cursor) {
        Hosted::Next(0) => emit(here, cursor, 1),
        Hosted::Next(mut skipped) => {
            if cursor.frames != 0 {
                // The frame of the interrupted activation, which it does not host.
                cursor.frame = read(here, cursor.frame).map_or(0, |frame| frame.back);
                skipped = skipped.saturating_sub(1);
            }
            let usual = skipped_are_generators(here, cursor, skipped);
            emit(here, cursor, skipped + 1) | if usual { 0 } else { OVERLAY_DESYNC }
        }
        Hosted::Other { before, frame } => {
            let doubt = emit(here, cursor, before);
            cursor.frame = frame;
            emit(here, cursor, 1) | doubt
        }
        Hosted::Nothing => OVERLAY_INTERPRETER,
        Hosted::Unclear => OVERLAY_INTERPRETER | OVERLAY_DESYNC,
    };
    cursor.frames = 0;
    answer | without_state
}

/// An activation at an instruction of its own.
fn interrupted(here: &Here<'_>, cursor: &mut Cursor) -> u32 {
    let view = here.guest.view();
    let is_set_up = view.pc.wrapping_sub(view.function_start) >= ENTRY_BYTES
        && view.cfa.wrapping_sub(view.sp) > EMPTY_BYTES
        && cursor.frame != 0
        && !has_a_frame_before(here, cursor.frame);
    // The others may be the caller's for longer.
    if is_set_up && registers(here.guest).take(USUAL).any(|held| held == cursor.frame) {
        return emit(here, cursor, 1);
    }
    // For a few instructions the compiler may keep it in the C frame instead: a word there may also be an old one.
    let doubt = if is_set_up && is_spilled(here, cursor.frame) { OVERLAY_DESYNC } else { 0 };
    // Its frame may be in the chain already. Nothing ran in it yet, or nothing will. If it is known not to be there,
    // the chain may begin with a generator that delegates, which has no activation (3.10).
    cursor.frames = u32::from(!(has_a_frame_before(here, cursor.frame) || is_about_to_begin(here, cursor.frame)));
    OVERLAY_INTERPRETER | doubt
}

/// Does one of the registers hold a frame object that was called from this one: the activation's own, which the chain
/// does not lead to? It is an argument, is kept in a callee-saved register, or is the caller's again.
fn is_about_to_begin(here: &Here<'_>, frame: u64) -> bool {
    let guest = here.guest;
    let arguments = ARGUMENTS.iter().filter_map(|number| guest.register(*number));
    arguments.chain(registers(guest)).any(|held| held != frame && read(here, held).is_some_and(|f| f.back == frame))
}

/// Is there a word with this frame's address in the C frame, below what the prologue has saved?
fn is_spilled(here: &Here<'_>, frame: u64) -> bool {
    let view = here.guest.view();
    let end = view.cfa.saturating_sub(EMPTY_BYTES);
    let places = (0..SPILL_WORDS).map(|nth| (view.sp & !7).wrapping_add(8 * nth)).take_while(|at| *at < end);
    places.map_while(|at| here.guest.word(at)).any(|word| word == frame)
}

/// Does one of the words that the prologue saves (its caller's registers) hold a frame object that was called from this
/// one? It is the activation's own then, and the chain does not lead to it yet, or not any more. Compilers place blocks
/// of the entry anywhere in the loop, so the distance from the entry alone says nothing: there, a register may still
/// hold the outer activation's frame.
fn has_a_frame_before(here: &Here<'_>, frame: u64) -> bool {
    let cfa = here.guest.view().cfa;
    SAVED
        .into_iter()
        .filter_map(|below| here.guest.word(cfa.wrapping_sub(below)))
        .any(|saved| saved != frame && read(here, saved).is_some_and(|inner| inner.back == frame))
}

/// What an activation hosts.
enum Hosted {
    /// The next frame of the chain, after as many that have no activation.
    Next(u32),
    /// A frame that the chain does not lead to, after as many frames, which end the chain.
    Other { before: u32, frame: u64 },
    /// No frame any more: it is about to return.
    Nothing,
    /// The chain and the registers disagree.
    Unclear,
}

fn hosted(here: &Here<'_>, cursor: &mut Cursor) -> Hosted {
    let (guest, mut next) = (here.guest, cursor.frame);
    // The chain's rest, if it is suspended generators only.
    let (mut rest, mut suspended) = (0, true);
    while next != 0 && rest <= SKIPS && cursor.steps_left() > 0 {
        if registers(guest).any(|held| held == next) {
            return Hosted::Next(rest);
        }
        cursor.steps += 1;
        let frame = read(here, next);
        suspended &= frame.as_ref().is_some_and(|frame| frame.is_generator && !frame.executing);
        next = frame.map_or(0, |frame| frame.back);
        rest += 1;
    }
    let before = if next == 0 && suspended { rest } else { 0 };
    for held in registers(guest) {
        match read(here, held) {
            Some(frame) if frame.executing => return Hosted::Other { before, frame: held },
            Some(frame) if frame.back == cursor.frame => return Hosted::Nothing,
            _ => {}
        }
    }
    Hosted::Unclear
}

/// Values of the callee-saved registers that may be addresses of objects, in the order of [`REGISTERS`].
fn registers<'v>(guest: &'v Guest<'v>) -> impl Iterator<Item = u64> + 'v {
    REGISTERS.iter().filter_map(|number| guest.register(*number)).filter(|held| *held != 0 && held.is_multiple_of(8))
}

fn skipped_are_generators(here: &Here<'_>, cursor: &Cursor, count: u32) -> bool {
    let mut at = cursor.frame;
    (0..count).all(|_| {
        read(here, at).is_some_and(|frame| {
            at = frame.back;
            frame.is_generator
        })
    })
}

/// Emits the next frames of the chain.
fn emit(here: &Here<'_>, cursor: &mut Cursor, count: u32) -> u32 {
    let mut emission = Emission::Whole;
    for _ in 0..count {
        let Some(frame) = read(here, cursor.frame) else {
            cursor.frame = 0;
            return OVERLAY_INTERPRETER | OVERLAY_DESYNC;
        };
        cursor.frame = frame.back;
        // A function that has not begun may have called something nevertheless: its trace function, or a handler of a
        // signal that Python noticed before the first instruction. CPython shows it with its first line.
        let position = match frame.position {
            Some(position) => position,
            None if !here.guest.exact() => NOT_BEGUN,
            None => continue,
        };
        match code::emit_at(here.guest, here.facts, frame.code, position) {
            code::Emitted::Done | code::Emitted::Hidden => {}
            code::Emitted::Invalid => emission = Emission::Doubtful,
            code::Emitted::Full => return OVERLAY_INTERPRETER,
        }
    }
    OVERLAY_INTERPRETER | emission.doubt()
}

/// Reads the frame object at an address. `None`: there is none.
fn read(here: &Here<'_>, address: u64) -> Option<FrameObject> {
    const TYPE: u32 = 8;
    if address == 0 || !address.is_multiple_of(8) {
        return None;
    }
    let facts = here.facts;
    let (lasti_word, state_word) = (facts.frame_instruction & !7, facts.frame_state & !7);
    let offsets = [TYPE, facts.frame_previous, facts.frame_code, facts.frame_generator, lasti_word, state_word];
    let mut words = [0; 6];
    here.guest.words(address, offsets, &mut words)?;
    let [kind, back, code, generator, lasti, state] = words;
    if kind != here.guest.view().bias.wrapping_add(facts.frame_type) {
        return None;
    }
    // `f_lasti` is an int: a byte offset up to 3.9, then a number of code units.
    let lasti = (lasti >> ((facts.frame_instruction & 7) * 8)) as u32 as i32;
    let position = u64::try_from(lasti).ok().map(|units| units.wrapping_mul(u64::from(facts.frame_unit)));
    let state = (state >> ((facts.frame_state & 7) * 8)) as u8;
    let executing = u32::from(state) == facts.frame_executing;
    Some(FrameObject { back, code, position, executing, is_generator: generator != 0 })
}
