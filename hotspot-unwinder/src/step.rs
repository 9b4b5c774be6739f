//! One frame of HotSpot's code: its caller, and the methods that it runs.

use crate::ahead::{self, At, Base, End};
use crate::code::{self, Blob, Java, Kind};
use crate::compiled;
use crate::facts::Facts;
use crate::instruction::{R13, RAX};
use crate::interpreted;
use crate::method::{self, Room};
use crate::scopes::Scopes;
use core::mem::size_of;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{
    OVERLAY_DESYNC, OVERLAY_INTERPRETER, SCRATCH_BYTES, STEP_DONE, STEP_LOST, STEP_NATIVE, UNTOUCHED,
};

/// The answer about a frame that is none of HotSpot's.
pub const NOTHING: u32 = STEP_NATIVE | UNTOUCHED;
/// DWARF numbers of registers.
pub const RBP: u8 = 6;
const RSP: u8 = 7;
const REGISTERS: u8 = 16;
/// DWARF's number of each register, by that in instructions: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi.
const DWARF: [u8; 8] = [0, 2, 1, 3, 7, 6, 4, 5];
/// What the call stub saves, and where: bytes below its frame pointer
/// (<https://github.com/openjdk/jdk17u/blob/master/src/hotspot/cpu/x86/stubGenerator_x86_64.cpp>,
/// `generate_call_stub`).
const ENTRY_SAVES: [(u8, u64); 5] = [(3, 56), (12, 64), (13, 72), (14, 80), (15, 88)];
/// Limit of the arguments that an adapter copies, in bytes.
const LARGEST_ARGUMENTS: u64 = 4096;
/// Limit of the distance from the stack pointer to a frame pointer of a stub, in bytes.
const LARGEST_STUB: u64 = 1 << 20;

uunwind_core::plain! {
    /// What one walk keeps between frames.
    struct Scratch {
        known: code::Known,
        room: Room,
        /// Frames of the interpreter that were made a moment ago come next: [`NEXT`], or the return address that they
        /// have; 0: no.
        made: u64,
    }
}

/// In [`Scratch::made`]: the next frame is the innermost one.
const NEXT: u64 = 1;

/// Bytes of scratch memory that are used.
pub const SCRATCH: usize = size_of::<Scratch>();
const _: () = assert!(SCRATCH <= SCRATCH_BYTES);

/// The caller of a frame.
pub struct Outer {
    pub pc: u64,
    pub sp: u64,
    /// Its rbp, if that is known.
    pub frame: Option<u64>,
    /// The rbp was read from memory.
    pub restored: bool,
}

/// What was emitted of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// It runs no method.
    Nothing,
    /// Its methods.
    Methods,
    /// It runs a method, which could not be read.
    Doubt,
}

/// The value of a register, by its number in instructions.
pub fn register(guest: &Guest<'_>, number: u8) -> Option<u64> {
    match number {
        0..=7 => guest.register(DWARF.get(usize::from(number)).copied()?),
        _ => guest.register(number),
    }
}

/// The address of a place that instructions to come use.
pub fn at(guest: &Guest<'_>, (base, offset): At) -> Option<u64> {
    let base = match base {
        Base::Sp => guest.view().sp,
        Base::Frame => {
            let sp = guest.view().sp;
            guest.register(RBP).filter(|rbp| rbp.is_multiple_of(8) && rbp.wrapping_sub(sp) <= LARGEST_STUB)?
        }
        Base::Register(number) => register(guest, number)?,
        Base::Unknown => return None,
    };
    base.checked_add_signed(offset.into())
}

/// [`uunwind_core::plugin::Plugin::step`] of this plugin.
pub fn step(guest: &Guest<'_>) -> u32 {
    // Objects' own code has their rules.
    if guest.view().range_end != 0 {
        return NOTHING;
    }
    let Some(facts) = Facts::read(guest.facts()) else { return NOTHING };
    let Some(scratch) = guest.scratch::<Scratch>(0) else { return NOTHING };
    let java = Java { guest, facts };
    let address = guest.lookup_pc();
    let Some(known) = code::cache(&java, &mut scratch.known).filter(|known| known.covers(address)) else {
        return STEP_NATIVE;
    };
    let Some(blob) = code::find(&java, known, address) else { return STEP_LOST | OVERLAY_DESYNC };
    if is_made(guest.view().pc, blob.kind, &mut scratch.made) {
        let left = interpreted::unfilled(&java, &blob).and_then(|outer| leave(&java, &outer));
        return if left.is_some() { STEP_DONE | OVERLAY_DESYNC } else { STEP_LOST | OVERLAY_DESYNC };
    }
    match visit(&java, &blob, &mut scratch.room) {
        None => STEP_LOST | OVERLAY_DESYNC,
        Some(Shown::Doubt) => STEP_DONE | OVERLAY_DESYNC,
        Some(Shown::Nothing | Shown::Methods) => STEP_DONE | OVERLAY_INTERPRETER,
    }
}

/// Whether what a frame of the interpreter holds may not have been written yet, or be what an earlier frame left there.
/// The code that replaces a frame of compiled code makes all new frames with one and the same return address, and then
/// fills them in, the outermost first: a frame gets another return address, and then its method
/// (<https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/runtime/vframeArray.cpp>, `unpack_on_stack`).
fn is_made(pc: u64, kind: Kind, made: &mut u64) -> bool {
    let before = *made;
    let is_made = before != 0 && kind == Kind::Interpreter;
    *made = match kind {
        Kind::Replacement => NEXT,
        Kind::Interpreter if before == NEXT || before == pc => pc,
        _ => 0,
    };
    is_made
}

/// Fills in the caller, and emits the methods. `None`: the caller is not known.
#[inline(never)]
fn visit(java: &Java<'_, '_>, blob: &Blob, room: &mut Room) -> Option<Shown> {
    match blob.kind {
        Kind::Interpreter => {
            let method = interpreted(java, blob)?;
            Some(match method {
                None => Shown::Nothing,
                Some((method, index)) if method::emit(java, method, index, room) => Shown::Methods,
                Some(_) => Shown::Doubt,
            })
        }
        Kind::Method | Kind::Native => {
            let called = called_from(java, blob)?;
            // Not below each other: a handler's stack is short.
            let lowered = compiled::lowered(java, blob)?;
            leave(java, &compiled::outer(java, blob, lowered)?)?;
            Some(methods(java, blob, called, room))
        }
        Kind::Adapter => {
            leave(java, &adapter(java, blob)?)?;
            Some(Shown::Nothing)
        }
        Kind::Dispatch | Kind::Replacement | Kind::Stub => {
            leave(java, &stub(java, blob)?)?;
            Some(Shown::Nothing)
        }
    }
}

/// Fills in the caller of a frame of the interpreter, and returns its method.
#[inline(never)]
fn interpreted(java: &Java<'_, '_>, blob: &Blob) -> Option<Option<(u64, Option<u32>)>> {
    let interpreted::Frame { outer, method } = interpreted::frame(java, blob)?;
    leave(java, &outer)?;
    Some(method)
}

/// The instruction that a frame of a compiled method is at: bytes from the start of its code. `None`: it is neither
/// interrupted there, nor was anything called from there.
#[inline(never)]
fn called_from(java: &Java<'_, '_>, blob: &Blob) -> Option<i32> {
    let (guest, facts) = (java.guest, java.facts);
    let pc = guest.view().pc;
    let offset = |pc: u64| i32::try_from(pc.checked_sub(blob.code)?).ok();
    if guest.exact() || follows_call(guest, pc) {
        return offset(pc);
    }
    let handlers = [facts.nmethod_deopt, facts.nmethod_deopt_mh];
    if handlers.iter().any(|handler| java.place(blob.address, blob.code, *handler) == Some(pc)) {
        // The frame is to be replaced by frames of the interpreter: where it was called from is kept in it.
        let slot = java.half(blob.address, facts.nmethod_orig_pc)?;
        let kept = guest.word(guest.view().sp.checked_add(slot.into())?)?;
        return (blob.code <= kept && kept < blob.end).then(|| offset(kept))?;
    }
    // A poll at which the thread was stopped.
    let offset = offset(pc)?;
    Scopes::of(java, blob)?.exactly(offset).map(|_| offset)
}

/// Whether a call ends at an address.
fn follows_call(guest: &Guest<'_>, pc: u64) -> bool {
    let mut bytes = [0; 7];
    if !guest.bytes(pc.wrapping_sub(7), &mut bytes) {
        return false;
    }
    // call *%rax; call *8(%rax), with a SIB byte and a displacement of any size.
    let indirect = |at: usize, kinds: [u8; 2]| {
        let operand = bytes.get(at.wrapping_add(1)).copied().unwrap_or(0);
        bytes.get(at) == Some(&0xff) && operand >> 3 & 7 == 2 && kinds.contains(&(operand >> 6))
    };
    bytes.get(2) == Some(&0xe8)
        || indirect(5, [3, 0])
        || indirect(4, [1, 0])
        || indirect(3, [1, 1])
        || indirect(1, [2, 0])
        || indirect(0, [2, 2])
}

/// Emits the methods of a compiled method's frame.
#[inline(never)]
fn methods(java: &Java<'_, '_>, blob: &Blob, offset: i32, room: &mut Room) -> Shown {
    if blob.kind == Kind::Method {
        let is_made = blob.complete.is_some_and(|complete| java.guest.view().pc >= complete);
        if let Some(scopes) = Scopes::of(java, blob).filter(|_| is_made) {
            let emitted = match scopes.exactly(offset) {
                Some(entry) => scopes.emit_at(entry, room),
                None => scopes.emit_between(offset, room),
            };
            match emitted {
                Some(true) => return Shown::Methods,
                Some(false) => return Shown::Doubt,
                None => {}
            }
        }
    }
    let method = java.word(blob.address, java.facts.nmethod_method);
    match method.is_some_and(|method| method::emit(java, method, None, room)) {
        true => Shown::Methods,
        false => Shown::Doubt,
    }
}

/// The caller where its call is being adapted: to a compiled method, for which the arguments are copied below the
/// interpreter's and the return address below these, or to the interpreter, for which the return address is popped to
/// rax, and stored below the arguments. r13 is the caller's stack pointer once something was copied
/// (<https://github.com/openjdk/jdk17u/blob/master/src/hotspot/cpu/x86/sharedRuntime_x86_64.cpp>, `gen_i2c_adapter`,
/// `gen_c2i_adapter`).
#[inline(never)]
fn adapter(java: &Java<'_, '_>, blob: &Blob) -> Option<Outer> {
    let (guest, sp) = (java.guest, java.guest.view().sp);
    if !guest.exact() {
        return None;
    }
    let code = ahead::Code { start: blob.code, end: blob.end, until: 0, until_frame: false, over: false };
    let ahead = ahead::from(guest, &code, guest.view().pc);
    let is_still = ahead.pushes == 0 && ahead.pops == 0 && ahead.sp == (Base::Sp, 0) && !ahead.calls;
    let caller = register(guest, R13).filter(|caller| {
        let above = caller.wrapping_sub(sp);
        above.is_multiple_of(8) && (8..=LARGEST_ARGUMENTS).contains(&above)
    });
    let (pc, caller) = match ahead.end {
        // To what handles calls that are not for this method: nothing was done yet.
        End::JumpOut if is_still && !ahead.stores_rax => (guest.word(sp)?, sp.checked_add(8)?),
        End::Jump if ahead.calls => return None,
        // The interpreter's arguments lie above its return address, which stays there.
        End::Jump if ahead.pushes_rax => (guest.word(caller?.checked_sub(8)?)?, caller?),
        End::Jump if ahead.pops_rax && ahead.pops == 1 && ahead.sp.0 == Base::Sp => {
            (guest.word(sp)?, sp.checked_add(8)?)
        }
        End::Jump if ahead.stores_rax => (register(guest, RAX)?, caller?),
        End::Jump if is_still => (guest.word(sp)?, caller?),
        _ => return None,
    };
    Some(Outer { pc, sp: caller, frame: guest.register(RBP), restored: false })
}

/// The caller of a frame of a stub.
#[inline(never)]
fn stub(java: &Java<'_, '_>, blob: &Blob) -> Option<Outer> {
    let guest = java.guest;
    let pc = guest.view().pc;
    if !guest.exact() {
        if java.fixed(java.facts.call_stub_return) == Some(pc) {
            return entry(guest);
        }
        if !follows_call(guest, pc) {
            return None;
        }
        if blob.frame_words >= 2 {
            return compiled::by_size(java, blob, 0);
        }
    }
    let code = ahead::Code { start: blob.code, end: blob.end, until: 0, until_frame: false, over: false };
    let ahead = ahead::from(guest, &code, pc);
    let is_return = match ahead.end {
        End::Return => true,
        // To the method that was looked up.
        End::Jump | End::JumpOut => blob.kind == Kind::Dispatch,
        End::PopJump(_) | End::Reached | End::Unknown => false,
    };
    if !is_return {
        return None;
    }
    let address = at(guest, ahead.sp)?;
    let pc = guest.word(address)?;
    let popped = match ahead.frame {
        // It is pushed first.
        Some((Base::Sp, from)) if from < 0 => None,
        Some(from) => Some(guest.word(at(guest, from)?)?),
        None => None,
    };
    let frame = popped.or_else(|| guest.register(RBP));
    Some(Outer { pc, sp: address.checked_add(8)?, frame, restored: popped.is_some() })
}

/// The caller of the call stub: C++ that calls Java.
fn entry(guest: &Guest<'_>) -> Option<Outer> {
    let rbp = guest.register(RBP)?;
    let sp = guest.view().sp;
    if !rbp.is_multiple_of(8) || rbp < sp || rbp.wrapping_sub(sp) > LARGEST_STUB {
        return None;
    }
    let mut links = [0; 2];
    if !guest.run(rbp, &mut links) {
        return None;
    }
    let [frame, pc] = links;
    Some(Outer { pc, sp: rbp.checked_add(16)?, frame: Some(frame), restored: true })
}

/// Fills in the caller's frame.
fn leave(java: &Java<'_, '_>, outer: &Outer) -> Option<()> {
    let guest = java.guest;
    let caller = guest.caller()?;
    // Compiled code keeps nothing for its caller but rbp.
    for number in (0..REGISTERS).filter(|number| *number != RBP && *number != RSP) {
        caller.known &= !(1 << number);
        guest.restored(number);
    }
    if !guest.exact() && java.fixed(java.facts.call_stub_return) == Some(guest.view().pc) {
        let rbp = guest.register(RBP)?;
        for (number, below) in ENTRY_SAVES {
            let value = guest.word(rbp.checked_sub(below)?)?;
            *caller.registers.get_mut(usize::from(number))? = value;
            caller.known |= 1 << number;
        }
    }
    match outer.frame {
        Some(value) => {
            *caller.registers.get_mut(usize::from(RBP))? = value;
            caller.known |= 1 << RBP;
        }
        None => caller.known &= !(1 << RBP),
    }
    if outer.restored || outer.frame.is_none() {
        guest.restored(RBP);
    }
    *caller.registers.get_mut(usize::from(RSP))? = outer.sp;
    caller.known |= 1 << RSP;
    (caller.pc, caller.exact) = (outer.pc, 0);
    (outer.pc != 0 && outer.sp > guest.view().sp && outer.sp.is_multiple_of(8)).then_some(())
}
