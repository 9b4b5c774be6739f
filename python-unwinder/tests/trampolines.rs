//! The trampolines of `-X perf`: every place that a pc may have in one, and code that is nearly one.

mod world;

use uunwind_core::plugin::{OVERLAY_INTERPRETER, STEP_DONE, STEP_MASK, STEP_NATIVE};
use uunwind_core::regs::{COUNT, SP};
use world::host;
use world::Memory;

/// `Python/asm_trampoline.S`, assembled: sub $8, %rsp; call *%rcx; add $8, %rsp; ret.
const TRAMPOLINE: [u8; 11] = [0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3];
/// Positions of the trampoline: in the middle of a page, and with its last byte at a page's end.
const STARTS: [u64; 2] = [0x7000_0000_0040, 0x7000_0000_0ff5];

/// The form from 3.14 on: endbr64; push %rbp; mov %rsp, %rbp; call *%rcx; pop %rbp; ret.
const PUSHING: [u8; 12] = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3];
/// Value of all registers in the trampoline's frame.
const ANY: u64 = 7;

/// The answer, the caller's pc, and the caller's stack pointer.
fn step(memory: &Memory, pc: u64, exact: bool) -> (u32, u64, u64) {
    let (answer, pc, sp, rbp) = step_with_rbp(memory, pc, exact);
    assert!(answer & STEP_MASK != STEP_DONE || rbp == ANY, "this form leaves rbp alone");
    (answer, pc, sp)
}

/// The same, and the caller's rbp.
fn step_with_rbp(memory: &Memory, pc: u64, exact: bool) -> (u32, u64, u64, u64) {
    let (answer, caller) = host::step(memory, pc, host::SP_AT, exact, [ANY; COUNT]);
    (answer, caller.pc, caller.registers[usize::from(SP)], caller.registers[6])
}

#[test]
fn every_place_in_a_trampoline_is_stepped() {
    for start in STARTS {
        let memory = host::process(start, &TRAMPOLINE);
        for (offset, exact, above) in [(0, true, 0), (4, true, 8), (6, true, 8), (10, true, 0), (6, false, 8)] {
            let expected = (STEP_DONE | OVERLAY_INTERPRETER, host::CLAIMED + above, host::SP_AT + above + 8);
            assert_eq!(step(&memory, start + offset, exact), expected, "at +{offset} of {start:#x}, exact: {exact}");
        }
        // A return address follows the call, and lies at no other instruction.
        for (offset, exact) in [(0, false), (4, false), (10, false), (1, true), (5, true), (11, true)] {
            assert_eq!(step(&memory, start + offset, exact).0, STEP_NATIVE, "at +{offset}, exact: {exact}");
        }
    }
}

#[test]
fn every_place_in_the_form_with_a_frame_pointer_is_stepped() {
    for start in STARTS.map(|start| start - 1) {
        let memory = host::process(start, &PUSHING);
        let saved = host::CLAIMED;
        for (offset, exact, above, rbp) in [
            (0, true, 0, ANY),
            (4, true, 0, ANY),
            (5, true, 8, saved),
            (8, true, 8, saved),
            (10, true, 8, saved),
            (11, true, 0, ANY),
            (10, false, 8, saved),
        ] {
            let expected = (STEP_DONE | OVERLAY_INTERPRETER, host::CLAIMED + above, host::SP_AT + above + 8, rbp);
            assert_eq!(step_with_rbp(&memory, start + offset, exact), expected, "at +{offset}, exact: {exact}");
        }
        for (offset, exact) in [(0, false), (4, false), (8, false), (11, false), (1, true), (6, true), (9, true)] {
            assert_eq!(step(&memory, start + offset, exact).0, STEP_NATIVE, "at +{offset}, exact: {exact}");
        }
        // Code that is compiled without endbr64 has the rest alone.
        let memory = host::process(start, &PUSHING[4..]);
        assert_eq!(step_with_rbp(&memory, start + 6, false).3, saved);
    }
}

#[test]
fn code_with_a_frame_pointer_that_differs_in_a_byte_is_none() {
    for at in 4..PUSHING.len() {
        let mut code = PUSHING;
        code[at] ^= 1;
        let memory = host::process(STARTS[0], &code);
        for offset in [0, 4, 5, 8, 10, 11] {
            assert_eq!(step(&memory, STARTS[0] + offset, true).0, STEP_NATIVE, "byte {at} differs, at +{offset}");
        }
    }
}

#[test]
fn code_that_differs_in_a_byte_is_none() {
    for at in 0..TRAMPOLINE.len() {
        let mut code = TRAMPOLINE;
        code[at] ^= 1;
        let memory = host::process(STARTS[0], &code);
        for offset in [0, 4, 6, 10] {
            assert_eq!(step(&memory, STARTS[0] + offset, true).0, STEP_NATIVE, "byte {at} differs, at +{offset}");
        }
    }
}

#[test]
fn one_that_the_interpreter_does_not_call_is_stepped_and_not_hidden() {
    let mut memory = host::process(STARTS[0], &TRAMPOLINE);
    memory.put64(host::SP_AT + 8, 0x1234_5678);
    assert_eq!(step(&memory, STARTS[0] + 6, false), (STEP_DONE, 0x1234_5678, host::SP_AT + 16));
    // The stack is unreadable.
    let mut memory = Memory::default();
    memory.map(STARTS[0] & !0xfff, 0x1000);
    memory.put(STARTS[0], &TRAMPOLINE);
    assert_eq!(step(&memory, STARTS[0] + 6, false).0, STEP_NATIVE);
}
