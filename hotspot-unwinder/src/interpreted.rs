//! A frame of the interpreter. Its code keeps rbp, but where it makes the frame and where it takes it down
//! (<https://github.com/openjdk/jdk17u/blob/master/src/hotspot/cpu/x86/frame_x86.hpp>,
//! `templateInterpreterGenerator_x86.cpp`, `generate_fixed_frame`; `interp_masm_x86.cpp`, `remove_activation`).
//!
//! ```text
//! rbp + 8   return address        rbp - 24  the method
//! rbp       the caller's rbp      rbp - 64  address of the bytecode, when something is called (JDK 8: - 56)
//! rbp - 8   the caller's stack pointer, after the return address was popped
//! ```
//! An interrupted instruction may be one at which rbp is still, or again, the caller's, which may be a frame much
//! further out. So rbp counts as this frame's only where something says so: r13, which points to a bytecode of the
//! method in the frame, or instructions to come that load r13 from the frame.

use crate::ahead::{self, Ahead, At, Base, End};
use crate::code::{Blob, Java};
use crate::instruction::{R13, RAX, RBP, RBX};
use crate::method::Bytecode;
use crate::step::{at, register, Outer};

/// Words of the frame that are read, below rbp.
const WORDS: usize = 8;
/// Limit of a method's local variables and arguments, in bytes.
const LOCALS: u64 = 65536 * 8;
/// Bytes that a frame may have beside its fixed part and its operands: monitors, saved registers, arguments.
const SLACK: u64 = 8192;

/// What a frame is, and where it leads.
pub struct Frame {
    pub outer: Outer,
    /// The method, and the index of its bytecode. `None`: it is entered or left.
    pub method: Option<(u64, Option<u32>)>,
}

/// The current frame. `None`: the caller is not known.
pub fn frame(java: &Java<'_, '_>, blob: &Blob) -> Option<Frame> {
    if !java.guest.exact() {
        return set_up(java, blob, None);
    }
    let code = ahead::Code { start: blob.code, end: blob.end, until: 0, until_frame: true, over: false };
    let ahead = ahead::from(java.guest, &code, java.guest.view().pc);
    if ahead.enters {
        return entered(java, blob, &ahead);
    }
    // Where the stack is too small for a frame, none is made.
    let otherwise = ahead::from(java.guest, &ahead::Code { over: true, ..code }, java.guest.view().pc);
    if otherwise.enters {
        return entered(java, blob, &otherwise);
    }
    // Another jump to a register may follow what an earlier instruction has popped into it: it leaves no frame.
    if let (End::PopJump(_), false, Base::Register(_)) = (ahead.end, ahead.leaves, ahead.sp.0) {
        return left(java, blob, &ahead);
    }
    if let Some(frame) = after_pop(java, blob) {
        return Some(frame);
    }
    set_up(java, blob, Some(&ahead))
}

/// A frame that is set up.
#[inline(never)]
fn set_up(java: &Java<'_, '_>, blob: &Blob, ahead: Option<&Ahead>) -> Option<Frame> {
    let guest = java.guest;
    let sp = guest.view().sp;
    let rbp = register(guest, RBP).filter(|rbp| rbp.is_multiple_of(8) && *rbp >= sp)?;
    // The fixed part ends with the word below that of the bytecode. Of a caller, the stack pointer may be taken to be
    // a word higher than it is.
    let to_bytecode = u64::from(java.facts.interpreter_bytecode);
    let fixed = to_bytecode.wrapping_add(8);
    if sp > rbp.checked_sub(if ahead.is_some() { fixed } else { to_bytecode })? {
        return ahead.and_then(|_| half_made(java, blob, rbp));
    }
    let (mut words, mut links) = ([0; WORDS], [0; 2]);
    if !guest.run(rbp.wrapping_sub(64), &mut words) || !guest.run(rbp, &mut links) {
        return None;
    }
    let [eighth, seventh, _, _, _, method, _, caller_sp] = words;
    let bytecode = Bytecode::of(java, method)?;
    let operands = 8 * u64::from(java.short(method_constant(java, method)?, java.facts.const_max_stack)?);
    if rbp.wrapping_sub(sp) > fixed.wrapping_add(SLACK).wrapping_add(operands) {
        return None;
    }
    let saved = bytecode.index(if to_bytecode == 64 { eighth } else { seventh });
    let index = match ahead {
        None => saved,
        Some(ahead) => {
            let r13 = register(guest, R13)?;
            let current = bytecode.index(r13);
            // The next jump enters a method, whose caller's stack pointer r13 already is.
            let calls = ahead.end == End::Jump && r13 == sp.wrapping_add(8);
            // A native method has no bytecode.
            if current.is_none() && !ahead.restores_bytecode && !calls && bytecode.size != 0 {
                return None;
            }
            if ahead.restores_bytecode || calls {
                saved
            } else {
                current
            }
        }
    };
    let [frame, pc] = links;
    let outer = outer(blob, rbp, caller_sp, pc, frame)?;
    Some(Frame { outer, method: Some((method, index)) })
}

/// The caller of a frame that is made, and may not be filled in yet: nothing but its links is there.
#[inline(never)]
pub fn unfilled(java: &Java<'_, '_>, blob: &Blob) -> Option<Outer> {
    let guest = java.guest;
    let sp = guest.view().sp;
    let rbp = register(guest, RBP).filter(|rbp| rbp.is_multiple_of(8) && *rbp >= sp)?;
    let mut words = [0; 3];
    if rbp.wrapping_sub(sp) > SLACK + LOCALS || !guest.run(rbp.checked_sub(8)?, &mut words) {
        return None;
    }
    let [caller_sp, frame, pc] = words;
    outer(blob, rbp, caller_sp, pc, frame)
}

fn method_constant(java: &Java<'_, '_>, method: u64) -> Option<u64> {
    java.word(method, java.facts.method_const)
}

/// The caller, if its stack pointer may be this.
fn outer(blob: &Blob, rbp: u64, caller_sp: u64, pc: u64, frame: u64) -> Option<Outer> {
    let own = rbp.checked_add(16)?;
    // Where a method handle has dropped its last argument, the return address is a word further up than it was.
    let is_lower = caller_sp.checked_add(8) == Some(own) && blob.code <= pc && pc < blob.end;
    let caller_sp = if is_lower { own } else { caller_sp };
    let locals = caller_sp.checked_sub(own)?;
    let fits = caller_sp.is_multiple_of(8) && locals <= LOCALS;
    fits.then_some(Outer { pc, sp: caller_sp, frame: Some(frame), restored: true })
}

/// A frame whose fixed part is being pushed: rbp is set, rbx has the method, and r13 the caller's stack pointer
/// until it is pushed.
fn half_made(java: &Java<'_, '_>, blob: &Blob, rbp: u64) -> Option<Frame> {
    let guest = java.guest;
    let sp = guest.view().sp;
    let mut links = [0; 2];
    if !guest.run(rbp, &mut links) {
        return None;
    }
    let caller_sp = if sp == rbp { register(guest, R13)? } else { guest.word(rbp.wrapping_sub(8))? };
    let method = if rbp.wrapping_sub(sp) < 24 { register(guest, RBX)? } else { guest.word(rbp.wrapping_sub(24))? };
    // That what is there is a method says that it is this frame.
    Bytecode::of(java, method)?;
    let [frame, pc] = links;
    Some(Frame { outer: outer(blob, rbp, caller_sp, pc, frame)?, method: Some((method, None)) })
}

/// A method that is being entered: r13 is the caller's stack pointer, and the return address is on the stack, in rax
/// while local variables are made, and on the stack again.
#[inline(never)]
fn entered(java: &Java<'_, '_>, blob: &Blob, ahead: &Ahead) -> Option<Frame> {
    let guest = java.guest;
    let sp = guest.view().sp;
    let frame = register(guest, RBP);
    let pc = match (ahead.saves_frame, ahead.pushed) {
        // The next instruction sets rbp.
        (false, _) => guest.word(sp.wrapping_add(8))?,
        (true, None) => guest.word(sp)?,
        (true, Some(RAX)) if ahead.pops_rax => guest.word(sp)?,
        (true, Some(RAX)) => register(guest, RAX)?,
        (true, Some(_)) => return None,
    };
    let caller_sp = above(java, blob, pc, register(guest, R13)?)?;
    let method = register(guest, RBX).filter(|method| Bytecode::of(java, *method).is_some())?;
    // The frame pointer is still the caller's.
    Some(Frame { outer: Outer { pc, sp: caller_sp, frame, restored: false }, method: Some((method, None)) })
}

/// The caller's stack pointer, if it may be that. Where nothing of this frame is on the stack, it is the same; of a
/// caller in the interpreter, whose frame follows from rbp, the next word will do.
fn above(java: &Java<'_, '_>, blob: &Blob, pc: u64, caller_sp: u64) -> Option<u64> {
    let above = caller_sp.checked_sub(java.guest.view().sp).filter(|above| *above <= LOCALS && above.is_multiple_of(8));
    match above? {
        0 if blob.code <= pc && pc < blob.end => caller_sp.checked_add(8),
        0 => None,
        _ => Some(caller_sp),
    }
}

/// A frame that was taken down, or was never made: `pop %rdx; mov %rbx,%rsp; jmp *%rdx`.
#[inline(never)]
fn left(java: &Java<'_, '_>, blob: &Blob, ahead: &Ahead) -> Option<Frame> {
    let pc = java.guest.word(at(java.guest, ahead.popped?)?)?;
    leave(java, blob, pc, ahead.sp)
}

/// The instructions after the pop of `pop %rdx; mov %rbx,%rsp; jmp *%rdx`.
#[inline(never)]
fn after_pop(java: &Java<'_, '_>, blob: &Blob) -> Option<Frame> {
    const BEFORE: u64 = 6;
    let mut bytes = [0; 14];
    if !java.guest.bytes(java.guest.view().pc.wrapping_sub(BEFORE), &mut bytes) {
        return None;
    }
    for skip in 1..=BEFORE as usize {
        let rest = bytes.get(skip..)?;
        let to = BEFORE as usize - skip;
        if let Some((popped, base, size)) = pops_and_jumps(rest) {
            // At the move, or at the jump.
            let moved = match to {
                _ if to == size => false,
                _ if to == size.wrapping_add(3) => true,
                _ => continue,
            };
            let pc = register(java.guest, popped)?;
            return leave(java, blob, pc, if moved { (Base::Sp, 0) } else { (Base::Register(base), 0) });
        }
    }
    None
}

/// The register that the return address is popped to, the one that the stack pointer comes from, and the size of the
/// first instruction.
fn pops_and_jumps(bytes: &[u8]) -> Option<(u8, u8, usize)> {
    let (popped, size, rest) = match *bytes {
        [0x41, low @ 0x58..=0x5f, ref rest @ ..] => (low & 7 | 8, 2, rest),
        [low @ 0x58..=0x5f, ref rest @ ..] => (low & 7, 1, rest),
        _ => return None,
    };
    let (base, rest) = match *rest {
        // mov, in both encodings.
        [0x48, 0x8b, low @ 0xe0..=0xe7, ref rest @ ..] => (low & 7, rest),
        [0x49, 0x8b, low @ 0xe0..=0xe7, ref rest @ ..] => (low & 7 | 8, rest),
        _ => return None,
    };
    let jumps = match *rest {
        [0xff, low @ 0xe0..=0xe7, ..] => low & 7 == popped,
        [0x41, 0xff, low @ 0xe0..=0xe7, ..] => low & 7 | 8 == popped,
        _ => false,
    };
    jumps.then_some((popped, base, size))
}

fn leave(java: &Java<'_, '_>, blob: &Blob, pc: u64, caller_sp: At) -> Option<Frame> {
    let sp = above(java, blob, pc, at(java.guest, caller_sp)?)?;
    let frame = register(java.guest, RBP);
    Some(Frame { outer: Outer { pc, sp, frame, restored: false }, method: None })
}
