//! The machine code of `python -X perf` (3.12) and `-X perf_jit` (3.13): a trampoline for each Python function, through
//! which the interpreter calls its loop, so that profilers see a native frame for each function. All are copies of one
//! piece of code (<https://github.com/python/cpython/blob/v3.13.0/Python/asm_trampoline.S>) in memory that no object
//! covers and no unwind data describes:
//!
//! ```text
//!   +0  sub $8, %rsp      the return address is at [rsp]
//!   +4  call *%rcx                              at [rsp + 8]
//!   +6  add $8, %rsp                            at [rsp + 8]
//!  +10  ret                                     at [rsp]
//! ```
//! The step depends only on the instructions from the pc to the `ret`, so it is right for any code with these bytes.

use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{OVERLAY_INTERPRETER, STEP_DONE, STEP_NATIVE, UNTOUCHED};
use uunwind_core::regs::SP;

/// The trampoline's bytes.
const CODE: [u8; 11] = [0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3];
/// Offsets of possible pcs in it, each with the distance in bytes from the stack pointer to the return address there.
/// The offset after the call comes first.
const PLACES: [(u64, u64); 4] = [(6, 8), (0, 0), (4, 8), (10, 0)];
/// Registers that still hold the caller's values, a bit each in DWARF order: the callee-saved ones and the stack
/// pointer.
const PRESERVED: u32 = 1 << 3 | 1 << 6 | 1 << SP | 0xf << 12;

/// The first eight bytes of the code, and its last eight.
const fn halves() -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, i, j, k] = CODE;
    [u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([d, e, f, g, h, i, j, k])]
}

/// [`uunwind_core::plugin::Plugin::step`] of this plugin, called for frames in code that no object covers.
pub fn step(guest: &Guest<'_>) -> u32 {
    let (Some(caller), Some((pc, sp))) = (guest.caller(), caller_of(guest)) else {
        return STEP_NATIVE | UNTOUCHED;
    };
    caller.pc = pc;
    caller.known &= PRESERVED;
    if let Some(room) = caller.registers.get_mut(usize::from(SP)) {
        *room = sp;
    }
    let mark = if guest.is_claimed(pc) { OVERLAY_INTERPRETER } else { 0 };
    STEP_DONE | mark | UNTOUCHED
}

/// The caller's pc and stack pointer, if the frame's pc lies in a trampoline.
fn caller_of(guest: &Guest<'_>) -> Option<(u64, u64)> {
    let view = guest.view();
    // In a frame that has called something the pc follows the call.
    let places = if guest.exact() { &PLACES[..] } else { &PLACES[..1] };
    let at = places.iter().find(|(offset, _)| is_code(guest, view.pc.wrapping_sub(*offset)))?;
    let place = view.sp.wrapping_add(at.1);
    Some((guest.word(place)?, place.wrapping_add(8)))
}

fn is_code(guest: &Guest<'_>, start: u64) -> bool {
    let mut found = [0; 2];
    guest.words(start, [0, 3], &mut found).is_some() && found == halves()
}
