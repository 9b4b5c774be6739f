//! The machine code of `python -X perf` (from 3.12 on) and `-X perf_jit` (from 3.13 on): a trampoline for each Python
//! function, through which the interpreter calls its loop, so that profilers see a native frame for each function. All
//! are copies of one piece of code (<https://github.com/python/cpython/blob/v3.13.0/Python/asm_trampoline.S>) in memory
//! that no object covers and no unwind data describes:
//!
//! ```text
//! 3.12, 3.13                                     from 3.14 on, after an endbr64
//!   +0  sub $8, %rsp   return address: [rsp]       +0  push %rbp        return address: [rsp]
//!   +4  call *%rcx                     [rsp + 8]   +1  mov %rsp, %rbp                   [rsp + 8]
//!   +6  add $8, %rsp                   [rsp + 8]   +4  call *%rcx                       [rsp + 8]
//!  +10  ret                            [rsp]       +6  pop %rbp                         [rsp + 8]
//!                                                  +7  ret                              [rsp]
//! ```
//! The step depends only on the instructions from the pc to the `ret`, so it is right for any code with these bytes.

use crate::{jit, libffi_closure};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{OVERLAY_INTERPRETER, STEP_DONE, STEP_NATIVE, UNTOUCHED};
use uunwind_core::regs::SP;

/// One form of the code.
struct Form {
    /// Its first eight bytes, and its last eight, which begin at `last_at`.
    words: [u64; 2],
    last_at: u32,
    /// Offsets of possible pcs in it, each with the distance in bytes from the stack pointer to the return address
    /// there. The offset after the call comes first.
    places: &'static [(u64, u64)],
    /// Where the return address is not at the stack pointer, the caller's rbp is.
    saves_rbp: bool,
}

const FORMS: [Form; 2] = [
    Form {
        words: [
            word([0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83]),
            word([8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3]),
        ],
        last_at: 3,
        places: &[(6, 8), (0, 0), (4, 8), (10, 0)],
        saves_rbp: false,
    },
    Form { words: [PUSHING; 2], last_at: 0, places: &[(6, 8), (0, 0), (1, 8), (4, 8), (7, 0)], saves_rbp: true },
];
const PUSHING: u64 = word([0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3]);
/// `endbr64`, before the second form.
const ENDBR64: u32 = u32::from_le_bytes([0xf3, 0x0f, 0x1e, 0xfa]);
const ENDBR64_BYTES: u64 = 4;
const RBP: u8 = 6;

const fn word(bytes: [u8; 8]) -> u64 {
    u64::from_le_bytes(bytes)
}

/// Registers that still hold the caller's values, a bit each in DWARF order: the callee-saved ones and the stack
/// pointer.
const PRESERVED: u32 = 1 << 3 | 1 << 6 | 1 << SP | 0xf << 12;

/// [`uunwind_core::plugin::Plugin::step`] of this plugin, called for frames in code that no object covers. What is no
/// trampoline may be a closure, or code of the JIT.
pub fn step(guest: &Guest<'_>) -> u32 {
    let (found, is_closure) = match caller_of(guest) {
        Some(found) => (Some(found), false),
        None => (libffi_closure::place(guest).and_then(|above| caller_at(guest, above, false)), true),
    };
    let Some((pc, sp, rbp)) = found else { return jit::step(guest) };
    let Some(caller) = guest.caller() else { return STEP_NATIVE | UNTOUCHED };
    caller.pc = pc;
    caller.known &= PRESERVED;
    if let Some(room) = caller.registers.get_mut(usize::from(SP)) {
        *room = sp;
    }
    if let (Some(rbp), Some(room)) = (rbp, caller.registers.get_mut(usize::from(RBP))) {
        *room = rbp;
        caller.known |= 1 << RBP;
        guest.restored(RBP);
    }
    // What calls a closure is no interpreter, also where it is a part of one.
    let mark = if !is_closure && guest.is_claimed(pc) { OVERLAY_INTERPRETER } else { 0 };
    STEP_DONE | mark | UNTOUCHED
}

/// The caller's pc, stack pointer, and rbp if the trampoline saved it: if the frame's pc lies in a trampoline.
fn caller_of(guest: &Guest<'_>) -> Option<(u64, u64, Option<u64>)> {
    let (above, saved) = FORMS.iter().find_map(|form| place(guest, form)).or_else(|| before(guest))?;
    caller_at(guest, above, saved)
}

/// The same, where the distance to the return address is known, and whether rbp is saved at the stack pointer.
fn caller_at(guest: &Guest<'_>, above: u64, saved: bool) -> Option<(u64, u64, Option<u64>)> {
    let sp = guest.view().sp;
    let place = sp.wrapping_add(above);
    let rbp = if saved { Some(guest.word(sp)?) } else { None };
    Some((guest.word(place)?, place.wrapping_add(8), rbp))
}

/// The distance to the return address, and whether the caller's rbp lies at the stack pointer.
fn place(guest: &Guest<'_>, form: &Form) -> Option<(u64, bool)> {
    // In a frame that has called something the pc follows the call.
    let places = if guest.exact() { form.places } else { form.places.get(..1)? };
    let is_code = |start: u64| {
        let mut found = [0; 2];
        guest.words(start, [0, form.last_at], &mut found).is_some() && found == form.words
    };
    let (_, above) = places.iter().find(|(offset, _)| is_code(guest.view().pc.wrapping_sub(*offset)))?;
    Some((*above, form.saves_rbp && *above != 0))
}

/// An interrupted pc at the `endbr64`: nothing has been pushed yet.
fn before(guest: &Guest<'_>) -> Option<(u64, bool)> {
    let pc = guest.view().pc;
    let is_first = guest.exact()
        && guest.word(pc)? as u32 == ENDBR64
        && guest.word(pc.wrapping_add(ENDBR64_BYTES)) == Some(PUSHING);
    is_first.then_some((0, false))
}
