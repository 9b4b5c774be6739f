//! Code of 3.14's JIT: every place that a pc may have in a trace's entry and below it, and what is nearly one.

mod world;

use uunwind_core::plugin::{OVERLAY_INTERPRETER, STEP_DONE, STEP_MASK, STEP_NATIVE};
use uunwind_core::regs::{COUNT, SP};
use world::host;
use world::Memory;

/// The entry of Debian's 3.14.8 and 3.14.10: push %r15, %r14, %r13, %r12, %rbx; mov %rdi, %r12; mov %rsi, %r13;
/// mov %rdx, %r14; call; pop %rbx, %r12, %r13, %r14, %r15; ret. The trace follows.
const ENTRY: [u8; 33] = [
    0x41, 0x57, 0x41, 0x56, 0x41, 0x55, 0x41, 0x54, 0x53, 0x49, 0x89, 0xfc, 0x49, 0x89, 0xf5, 0x49, 0x89, 0xd6, 0xe8,
    0x0a, 0, 0, 0, 0x5b, 0x41, 0x5c, 0x41, 0x5d, 0x41, 0x5e, 0x41, 0x5f, 0xc3,
];
const AFTER_CALL: u64 = 0x17;
/// Where the trace's own page begins, and another one's, into which it may jump.
const PAGE: u64 = 0x7000_0000_0000;
const OTHER_TRACE: u64 = 0x7000_0002_0123;
/// The evaluation loop's stack pointer after the call of the entry, its frame pointer, and where it goes on.
const SP_OF_LOOP: u64 = 0x7100_0000_0800;
const FP_OF_LOOP: u64 = 0x7100_0000_0a00;
const LOOP: u64 = host::CLAIMED + 0x100;
/// Values of rbx and r12 to r15 in the loop, in the trace, and the registers' DWARF numbers.
const IN_LOOP: [u64; 5] = [0xb, 0xc, 0xd, 0xe, 0xf];
const IN_TRACE: u64 = 0x77;
const SAVED: [usize; 5] = [3, 12, 13, 14, 15];
const RBP: usize = 6;

fn process() -> Memory {
    let mut memory = Memory::default();
    memory.map(PAGE, 0x1000);
    memory.put(PAGE, &ENTRY);
    memory.map(0x7100_0000_0000, 0x1000);
    memory.map(host::CLAIMED, 0x1000);
    // call *%rax, in the loop and in its caller.
    memory.put(LOOP - 2, &[0xff, 0xd0]);
    memory.put(host::CLAIMED + 0x200 - 2, &[0xff, 0xd0]);
    memory.put64(SP_OF_LOOP - 8, LOOP);
    // The pushes: r15 lies highest.
    for (nth, value) in IN_LOOP.iter().rev().enumerate() {
        memory.put64(SP_OF_LOOP - 16 - 8 * nth as u64, *value);
    }
    memory.put64(SP_OF_LOOP - 56, PAGE + AFTER_CALL);
    memory.put64(FP_OF_LOOP + 8, host::CLAIMED + 0x200);
    memory
}

/// What the step says of the caller: `None` if it does not step; else pc, sp, rbp and the other saved registers.
fn step(memory: &Memory, pc: u64, sp: u64, exact: bool, registers: [u64; COUNT]) -> Option<(u64, u64, u64, [u64; 5])> {
    let (answer, caller) = host::step(memory, pc, sp, exact, registers);
    if answer & STEP_MASK == STEP_NATIVE {
        return None;
    }
    assert_eq!(answer, STEP_DONE | OVERLAY_INTERPRETER);
    let at = |number: usize| caller.registers[number];
    Some((caller.pc, at(usize::from(SP)), at(RBP), SAVED.map(at)))
}

/// Registers with the loop's frame pointer, and these values in the others that functions preserve.
fn registers(saved: [u64; 5]) -> [u64; COUNT] {
    let mut all = [IN_TRACE; COUNT];
    all[RBP] = FP_OF_LOOP;
    SAVED.iter().zip(saved).for_each(|(number, value)| all[*number] = value);
    all
}

const CALLER: Option<(u64, u64, u64, [u64; 5])> = Some((LOOP, SP_OF_LOOP, FP_OF_LOOP, IN_LOOP));

#[test]
fn every_place_in_an_entry_is_stepped() {
    let memory = process();
    // Before the n-th push, in the moves, and at the call.
    for (offset, pushed) in [(0, 0), (2, 1), (4, 2), (6, 3), (8, 4), (9, 5), (12, 5), (15, 5), (18, 5)] {
        let sp = SP_OF_LOOP - 8 - 8 * pushed;
        assert_eq!(step(&memory, PAGE + offset, sp, true, registers(IN_LOOP)), CALLER, "at +{offset:#x}");
    }
    // After the call, and after each pop.
    for (offset, popped) in [(0x17, 0), (0x18, 1), (0x1a, 2), (0x1c, 3), (0x1e, 4), (0x20, 5)] {
        let mut now = [IN_TRACE; 5];
        now[..popped].copy_from_slice(&IN_LOOP[..popped]);
        let sp = SP_OF_LOOP - 48 + 8 * popped as u64;
        assert_eq!(step(&memory, PAGE + offset, sp, true, registers(now)), CALLER, "at +{offset:#x}");
    }
}

#[test]
fn every_depth_of_a_traces_stack_is_stepped() {
    let memory = process();
    for pc in [PAGE + 0x21, PAGE + 0x345, OTHER_TRACE] {
        for words in 0..32 {
            let sp = SP_OF_LOOP - 56 - 8 * words;
            for exact in [true, false] {
                assert_eq!(step(&memory, pc, sp, exact, registers([IN_TRACE; 5])), CALLER, "{pc:#x}, {words} words");
            }
        }
        assert_eq!(step(&memory, pc, SP_OF_LOOP - 56 - 8 * 32, true, registers([IN_TRACE; 5])), None, "too deep");
    }
}

#[test]
fn a_trace_that_uses_rbp_has_saved_it() {
    let mut memory = process();
    let sp = SP_OF_LOOP - 56 - 16;
    let mut now = registers([IN_TRACE; 5]);
    now[RBP] = IN_TRACE;
    assert_eq!(step(&memory, PAGE + 0x345, sp, false, now), None, "it is nowhere");
    memory.put64(sp + 8, FP_OF_LOOP);
    assert_eq!(step(&memory, PAGE + 0x345, sp, false, now), CALLER);
}

#[test]
fn an_entry_that_differs_is_none() {
    let (sp, now) = (SP_OF_LOOP - 56, registers([IN_TRACE; 5]));
    for at in (0..9).chain([18]).chain(0x17..ENTRY.len()) {
        let mut memory = process();
        memory.put(PAGE + at as u64, &[ENTRY[at] ^ 1]);
        assert_eq!(step(&memory, PAGE + 0x345, sp, true, now), None, "byte {at:#x} differs");
    }
    // Not at a page's beginning.
    let mut memory = process();
    memory.put(PAGE, &[0x90; 64]);
    memory.put(PAGE + 8, &ENTRY);
    memory.put64(sp, PAGE + 8 + AFTER_CALL);
    assert_eq!(step(&memory, PAGE + 0x345, sp, true, now), None);
}

#[test]
fn one_that_the_interpreter_has_not_called_is_none() {
    let (sp, now) = (SP_OF_LOOP - 56, registers([IN_TRACE; 5]));
    // It returns elsewhere, or not to where something was called.
    for elsewhere in [0x1234_5678, LOOP + 1] {
        let mut memory = process();
        memory.put64(SP_OF_LOOP - 8, elsewhere);
        assert_eq!(step(&memory, PAGE + 0x345, sp, true, now), None, "{elsewhere:#x}");
    }
    // The frame pointer is below the loop's frame, or leads to no return address.
    for fp in [SP_OF_LOOP - 64, FP_OF_LOOP + 8, FP_OF_LOOP + 1, 0, u64::MAX] {
        let mut now = now;
        now[RBP] = fp;
        assert_eq!(step(&process(), PAGE + 0x345, sp, true, now), None, "{fp:#x}");
    }
    // The stack is unreadable.
    assert_eq!(step(&process(), PAGE + 0x345, 0x7300_0000_0000, true, now), None);
}
