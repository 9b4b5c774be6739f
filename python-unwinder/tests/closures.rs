//! Closures of libffi: every place that a pc may have in one, and code that is nearly one. The bytes are those of
//! functions that ctypes made with libffi 3.4.4 and 3.5.2.

mod world;

use uunwind_core::plugin::{STEP_DONE, STEP_NATIVE};
use uunwind_core::regs::{COUNT, SP};
use world::host;
use world::Memory;

/// endbr64; lea -11(%rip), %r10; jmp *7(%rip).
const ALONE: [u8; 17] = [0xf3, 0x0f, 0x1e, 0xfa, 0x4c, 0x8d, 0x15, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x25, 7, 0, 0, 0];
/// endbr64; sub $16, %rsp; mov %r10, (%rsp); mov 4077(%rip), %r10; mov %r10, 8(%rsp); mov 4073(%rip), %r10; jmp *%r10.
const IN_TABLE: [u8; 34] = [
    0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x10, 0x4c, 0x89, 0x14, 0x24, 0x4c, 0x8b, 0x15, 0xed, 0x0f, 0, 0, 0x4c,
    0x89, 0x54, 0x24, 8, 0x4c, 0x8b, 0x15, 0xe9, 0x0f, 0, 0, 0x41, 0xff, 0xe2,
];
/// Offsets of their instructions, and of the return address from the stack pointer there.
const PLACES: [&[(u64, u64)]; 2] =
    [&[(0, 0), (4, 0), (11, 0)], &[(0, 0), (4, 0), (8, 16), (12, 16), (19, 16), (24, 16), (31, 16)]];
const CODES: [&[u8]; 2] = [&ALONE, &IN_TABLE];
/// In the middle of a page, and at the end of one.
const STARTS: [u64; 2] = [0x7000_0000_0010, 0x7000_0000_0fde];

/// The answer, the caller's pc, and the caller's stack pointer.
fn step(memory: &Memory, pc: u64, exact: bool) -> (u32, u64, u64) {
    let (answer, caller) = host::step(memory, pc, host::SP_AT, exact, [7; COUNT]);
    assert_eq!(caller.registers[6], 7, "rbp is left alone");
    (answer, caller.pc, caller.registers[usize::from(SP)])
}

#[test]
fn every_instruction_of_a_closure_is_stepped_and_none_else() {
    for (code, places) in CODES.into_iter().zip(PLACES) {
        for start in STARTS {
            let memory = host::process(start, code);
            for offset in 0..code.len() as u64 {
                let place = places.iter().find(|(at, _)| *at == offset);
                let expected = match place {
                    Some((_, above)) => (STEP_DONE, host::CLAIMED + above, host::SP_AT + above + 8),
                    None => (STEP_NATIVE, start + offset, 7),
                };
                assert_eq!(step(&memory, start + offset, true), expected, "at +{offset} of {code:02x?}");
                assert_eq!(step(&memory, start + offset, false).0, STEP_NATIVE, "it calls nothing");
            }
        }
    }
}

#[test]
fn code_that_differs_in_a_byte_is_none() {
    for (code, places) in CODES.into_iter().zip(PLACES) {
        for at in 0..code.len() {
            let mut other = code.to_vec();
            other[at] ^= 1;
            let memory = host::process(STARTS[0], &other);
            for (offset, _) in places {
                assert_eq!(step(&memory, STARTS[0] + offset, true).0, STEP_NATIVE, "byte {at} differs, at +{offset}");
            }
        }
    }
}
