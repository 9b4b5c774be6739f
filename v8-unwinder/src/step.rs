//! One frame of V8's code: its caller, and the function that it runs.
//!
//! All code keeps frame pointers: the caller's rbp and the return address lie at rbp. Where a builtin has no frame, or
//! none yet, its rows say where the return address is; in compiled code, its instructions do. A frame that runs a
//! function has its context and the function below its rbp, and others have a small number there
//! (<https://github.com/v8/v8/blob/11.3.244/src/execution/frame-constants.h>). That word is looked at only where the pc
//! shows that the frame may run one.

use crate::baseline;
use crate::compiled;
use crate::facts::{Builtin, Facts, State, Whole, ENTRY, HANDLER, INTERPRETER, OTHER, PASSING, PROLOGUE, SAVED};
use crate::function::{self, Known};
use crate::heap::{self, Heap, Object};
use crate::inlined::{self, Inlined};
use crate::position;
use crate::ranges::{self, Place};
use crate::safepoint::{self, Call};
use crate::translation::Functions;
use core::mem::size_of;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{
    Caller, OVERLAY_DESYNC, OVERLAY_INTERPRETER, SCRATCH_BYTES, STEP_DONE, STEP_LOST, STEP_NATIVE, UNTOUCHED,
};

/// The answer about a frame that is none of V8's.
pub const NOTHING: u32 = STEP_NATIVE | UNTOUCHED;
/// DWARF numbers of registers.
const RBP: u8 = 6;
const RSP: u8 = 7;
const R9: u8 = 9;
const REGISTERS: u8 = 16;
const R12: u8 = 12;
/// The callee-saved registers but rbp, in the order of [`Facts::entry_saves`].
const SAVED_REGISTERS: [u8; SAVED] = [3, 12, 13, 14, 15];
/// Limit of the distance from the stack pointer to a frame pointer, in bytes.
const LARGEST_FRAME: u64 = 8 << 20;

uunwind_core::plain! {
    /// What one walk keeps between frames.
    struct Scratch {
        ranges: ranges::Known,
        /// The bytecode array and the offset in it that the interrupted handler has in registers; 0: none.
        array: u64,
        offset: u64,
    }
}

/// Bytes of scratch memory that are used.
pub const SCRATCH: usize = size_of::<Scratch>();
const _: () = assert!(SCRATCH <= SCRATCH_BYTES);

/// What runs in a frame, as far as its pc says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    /// A builtin of this kind.
    Builtin(u32),
    /// A function that was compiled.
    Compiled,
}

/// [`uunwind_core::plugin::Plugin::step`] of this plugin.
pub fn step(guest: &Guest<'_>) -> u32 {
    let Some(whole) = Whole::read(guest.facts()) else { return NOTHING };
    let Some(scratch) = guest.scratch::<Scratch>(0) else { return NOTHING };
    let heap = Heap { guest, facts: whole.facts };
    let address = guest.lookup_pc();
    let Some(place) = ranges::place(guest, whole.facts, &mut scratch.ranges, address) else { return STEP_NATIVE };
    let Some((code, state, entered)) = code_at(&heap, &whole, place) else { return STEP_LOST | OVERLAY_DESYNC };
    let Some(caller) = guest.caller() else { return STEP_LOST | OVERLAY_DESYNC };
    let Some(own) = leave(guest, caller, code, state, whole.facts) else { return STEP_LOST | OVERLAY_DESYNC };
    let shown = if entered {
        compiled::entered(&heap).map_or(Shown::Nothing, |(function, _)| show(&heap, function, None))
    } else {
        match own {
            // The frame around this one.
            Some(frame) if state == State::Inside => in_frame(&heap, scratch, frame, Code::Compiled),
            Some(frame) => in_frame(&heap, scratch, frame, code),
            None => Shown::Nothing,
        }
    };
    if guest.exact() && code == Code::Builtin(HANDLER) {
        scratch.array = guest.register(R12).unwrap_or(0);
        scratch.offset = guest.register(R9).unwrap_or(0);
    } else if own.is_some() {
        (scratch.array, scratch.offset) = (0, 0);
    }
    match (shown, code) {
        (Shown::Function, _) => STEP_DONE | OVERLAY_INTERPRETER,
        (Shown::Doubt, _) => STEP_DONE | OVERLAY_DESYNC,
        (Shown::Nothing, Code::Builtin(INTERPRETER | PROLOGUE | HANDLER | ENTRY | PASSING)) => {
            STEP_DONE | OVERLAY_INTERPRETER
        }
        (Shown::Nothing, _) => STEP_DONE,
    }
}

/// What runs at the frame's pc, where its return address is, and whether the function is being entered.
#[inline(never)]
fn code_at(heap: &Heap<'_, '_>, whole: &Whole<'_>, place: Place) -> Option<(Code, State, bool)> {
    Some(match place {
        Place::Builtin(offset) => {
            let (builtin, state) = whole.at(offset)?;
            builtin_at(heap.guest, builtin, state)
        }
        Place::Compiled if heap.guest.exact() => {
            let (state, entered) = compiled::state(heap, heap.guest.view().pc);
            (Code::Compiled, state, entered)
        }
        Place::Compiled => (Code::Compiled, State::Framed, false),
    })
}

/// What a builtin's pc says. Where the function's frame is not made yet, the function is in a register.
fn builtin_at(guest: &Guest<'_>, builtin: Builtin, state: State) -> (Code, State, bool) {
    let kind = builtin.kind();
    let makes_frame = kind == INTERPRETER || kind == PROLOGUE;
    let entered = guest.exact() && makes_frame && matches!(state, State::Above(_));
    (Code::Builtin(kind), state, entered)
}

/// Fills in the caller's frame. Returns the frame pointer of this frame: `None` where it has no frame. `None`: the
/// caller is not known.
#[inline(never)]
fn leave(guest: &Guest<'_>, caller: &mut Caller, code: Code, state: State, facts: &Facts) -> Option<Option<u64>> {
    let sp = guest.view().sp;
    let rbp = guest.register(RBP);
    let (own, pc, outer, sp) = match state {
        State::Framed | State::Inside => {
            let frame = rbp.filter(|frame| frame.is_multiple_of(8) && frame.wrapping_sub(sp) <= LARGEST_FRAME)?;
            let mut words = [0; 2];
            if !guest.run(frame, &mut words) {
                return None;
            }
            (Some(frame), words[1], Some(words[0]), frame.wrapping_add(16))
        }
        State::Above(words) | State::Left(words) => {
            let at = sp.wrapping_add(8 * u64::from(words));
            (None, guest.word(at)?, rbp, at.wrapping_add(8))
        }
        State::Register(number) => (None, guest.register(number)?, rbp, sp.wrapping_add(8)),
        State::Unknown => return None,
    };
    // Nothing that the caller keeps in other registers is saved here.
    for number in (0..REGISTERS).filter(|number| *number != RBP) {
        forget(guest, caller, number);
    }
    if code == Code::Builtin(ENTRY) {
        let saves = SAVED_REGISTERS.into_iter().zip(facts.entry_saves);
        for (number, below) in saves.filter(|(_, below)| *below != 0) {
            let value = own.and_then(|frame| guest.word(frame.wrapping_sub(below.into())));
            if let Some(value) = value {
                set(caller, number, value);
            }
        }
    }
    match outer {
        Some(value) => set(caller, RBP, value),
        None => forget(guest, caller, RBP),
    }
    if own.is_some() {
        guest.restored(RBP);
    }
    set(caller, RSP, sp);
    caller.pc = pc;
    caller.exact = 0;
    (pc != 0).then_some(own)
}

fn set(caller: &mut Caller, number: u8, value: u64) {
    if let Some(register) = caller.registers.get_mut(usize::from(number)) {
        *register = value;
        caller.known |= 1 << number;
    }
}

fn forget(guest: &Guest<'_>, caller: &mut Caller, number: u8) {
    caller.known &= !(1 << number);
    guest.restored(number);
}

/// What was emitted of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// It runs no function.
    Nothing,
    /// Its function.
    Function,
    /// It runs a function, which could not be read.
    Doubt,
}

/// Emits the function that a frame runs.
fn in_frame(heap: &Heap<'_, '_>, scratch: &Scratch, frame: u64, code: Code) -> Shown {
    let facts = heap.facts;
    match code {
        Code::Compiled | Code::Builtin(INTERPRETER | PROLOGUE) => {}
        // Inside of another frame, or on its own.
        Code::Builtin(OTHER | HANDLER | ENTRY | PASSING) | Code::Builtin(_) => return Shown::Nothing,
    }
    if is_unfilled(heap.guest, frame, facts.frame_function) {
        return in_unfilled(heap, frame);
    }
    let mut words = [0; 2];
    let below = facts.frame_function.max(facts.frame_context);
    let Some(start) = frame.checked_sub(below.into()) else { return Shown::Doubt };
    let offsets = [below.wrapping_sub(facts.frame_context), below.wrapping_sub(facts.frame_function)];
    if heap.guest.words(start, offsets, &mut words).is_none() {
        return Shown::Doubt;
    }
    let [context, function] = words;
    if context & 1 == 0 {
        // The frame's type, and not a context.
        return Shown::Nothing;
    }
    let [first, last] = facts.contexts;
    let is_context = heap.object(context).is_some_and(|object| first <= object.kind && object.kind <= last);
    if !is_context {
        // Frames of other code than functions may have anything there.
        return if code == Code::Compiled { Shown::Nothing } else { Shown::Doubt };
    }
    if code == Code::Compiled {
        return show_compiled(heap, frame, function);
    }
    show(heap, function, bytecode_position(heap, scratch, frame))
}

/// Whether a frame that is being made does not have a word yet, so many bytes below its frame pointer: under the stack
/// pointer there is what earlier calls have left. Where the frame is taken down, the word is still the frame's own.
#[inline(never)]
fn is_unfilled(guest: &Guest<'_>, frame: u64, below: u32) -> bool {
    /// `pop %rbp`
    const POP: u8 = 0x5d;
    let mut byte = [0];
    guest.exact()
        && frame.wrapping_sub(below.into()) < guest.view().sp
        && !(guest.bytes(guest.view().pc, &mut byte) && byte == [POP])
}

/// Emits the function that a frame is being made for, which is still in the register in which it was passed.
#[inline(never)]
fn in_unfilled(heap: &Heap<'_, '_>, frame: u64) -> Shown {
    let below = heap.facts.frame_context;
    if !is_unfilled(heap.guest, frame, below) {
        match heap.guest.word(frame.wrapping_sub(below.into())) {
            Some(context) if context & 1 != 0 => {}
            // The frame's type, and not a context.
            Some(_) => return Shown::Nothing,
            None => return Shown::Doubt,
        }
    }
    compiled::entered(heap).map_or(Shown::Nothing, |(function, _)| show(heap, function, None))
}

/// Emits the function of a frame of compiled code, after those that are inlined there.
fn show_compiled(heap: &Heap<'_, '_>, frame: u64, tagged: u64) -> Shown {
    let Some(code) = compiled_code(heap, tagged) else { return show(heap, tagged, None) };
    let kind = heap.half(code, heap.facts.code_flags).map(|flags| flags & 15);
    if kind == Some(heap.facts.kind_baseline) {
        return show(heap, tagged, baseline_position(heap, code, frame));
    }
    // Only calls have positions.
    if heap.guest.exact() {
        return show(heap, tagged, None);
    }
    let is_maglev = kind == Some(heap.facts.kind_maglev);
    match call(heap, code, is_maglev) {
        Some(Call { state: Some(state), .. }) if heap.facts.opcode_count != 0 => show_state(heap, code, tagged, state),
        Some(Call { offset, .. }) if !is_maglev => show_positions(heap, code, tagged, offset.wrapping_sub(1)),
        _ => show(heap, tagged, None),
    }
}

/// The call that returns to the frame's pc.
fn call(heap: &Heap<'_, '_>, code: Object, is_maglev: bool) -> Option<Call> {
    let offset = heap.guest.view().pc.wrapping_sub(heap.field(code, heap.facts.code_start)?);
    safepoint::call(heap, code, u32::try_from(offset).ok()?, is_maglev)
}

/// Emits the functions at a call with this state.
fn show_state(heap: &Heap<'_, '_>, code: Object, tagged: u64, state: u32) -> Shown {
    let Some(functions) = Functions::read(heap, code, state) else {
        show(heap, tagged, None);
        return Shown::Doubt;
    };
    let mut doubt = false;
    for depth in 0..functions.count {
        let found = functions.at(heap, depth);
        let shown = match found {
            _ if depth + 1 == functions.count => show(heap, tagged, found.and_then(|(_, position)| position)),
            Some((shared, position)) => show_shared(heap, function::of_shared(heap, shared), position),
            None => Shown::Doubt,
        };
        doubt |= shown == Shown::Doubt;
    }
    if doubt {
        Shown::Doubt
    } else {
        Shown::Function
    }
}

/// Emits the functions at a distance from the start of code whose table of source positions is right.
fn show_positions(heap: &Heap<'_, '_>, code: Object, tagged: u64, offset: u32) -> Shown {
    for depth in 0..inlined::DEEPEST {
        match inlined::at(heap, code, offset, depth) {
            Some(Inlined::Inner { shared, position }) => show_shared(heap, function::of_shared(heap, shared), position),
            Some(Inlined::Outer { position }) => return show(heap, tagged, position),
            None => break,
        };
    }
    show(heap, tagged, None)
}

/// The code that a frame of compiled code is in.
#[inline(never)]
fn compiled_code(heap: &Heap<'_, '_>, tagged: u64) -> Option<Object> {
    inlined::code_around(heap, heap.object(tagged)?, heap.guest.lookup_pc())
}

/// Where in the source a frame of baseline code is.
#[inline(never)]
fn baseline_position(heap: &Heap<'_, '_>, code: Object, frame: u64) -> Option<u32> {
    let facts = heap.facts;
    let array = heap.guest.word(frame.wrapping_sub(facts.frame_bytecode.into()))?;
    let bytecode = heap.of_kind(array, facts.type_bytecode)?;
    // A call belongs to the bytecode that its last byte is in.
    let distance = heap.guest.lookup_pc().wrapping_sub(heap.field(code, facts.code_start)?).checked_add(1)?;
    let offset = baseline::bytecode_at(heap, code, bytecode, u32::try_from(distance).ok()?)?;
    position::of_bytecode(heap, bytecode, offset)
}

/// Where in the source the frame of an interpreted function is.
fn bytecode_position(heap: &Heap<'_, '_>, scratch: &Scratch, frame: u64) -> Option<u32> {
    let facts = heap.facts;
    if is_unfilled(heap.guest, frame, facts.frame_bytecode.max(facts.frame_offset)) {
        return None;
    }
    let array = heap.guest.word(frame.wrapping_sub(facts.frame_bytecode.into()))?;
    let bytecode = heap.of_kind(array, facts.type_bytecode)?;
    let before = facts.bytecode_first.wrapping_sub(1);
    let (length, _) = heap.array(bytecode)?;
    let in_register = (scratch.offset as u32).wrapping_sub(before);
    let offset = if scratch.array == array && scratch.offset <= u64::from(u32::MAX) && in_register < length {
        in_register
    } else {
        let slot = heap.guest.word(frame.wrapping_sub(facts.frame_offset.into()))?;
        u32::try_from(heap::integer(slot)?).ok()?.checked_sub(before)?
    };
    position::of_bytecode(heap, bytecode, offset)
}

/// Emits a function. `position`: in characters from the start of its script.
fn show(heap: &Heap<'_, '_>, function: u64, position: Option<u32>) -> Shown {
    show_shared(heap, function::known(heap, function), position)
}

fn show_shared(heap: &Heap<'_, '_>, known: Option<Known>, position: Option<u32>) -> Shown {
    let Some(Known { name, start }) = known else { return Shown::Doubt };
    let inside = position.and_then(|position| position.checked_sub(start)).map_or(0, |inside| u64::from(inside) + 1);
    // That there is no room ends the walk.
    let _ = heap.guest.emit(name, inside);
    Shown::Function
}
