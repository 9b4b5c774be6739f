//! The checks that no table can fail, but a frame can (18 and 20 to 24). The walk makes them, here with rules from a
//! table that passes every other check.
#![cfg(target_arch = "x86_64")]

use uunwind_core::cursor::Cursor;
use uunwind_core::frame::frames;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::{Regs, RBP, RSP};
use uunwind_core::rule::Packed;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{walk, Env, Names, Replay, Setting, MAX_FRAMES};
use uunwind_sframe::{find, visit, Fault, Section, Visitor};

/// An odd address: nothing in the table is aligned (check 24).
const TABLE: u64 = 0x10_0001;
const STACK: u64 = 0x7000_0000;
const TEXT: Span = Span::new(0x1000, 0x8000);
const SIZE: u32 = 0x100;

// Functions, and their one row: (name's address, flexible, info, data words).
/// CFA fp+16, fp at CFA-16.
const BY_FP: u64 = 0x1000;
/// CFA sp+16.
const BY_SP: u64 = 0x2000;
/// CFA r10.
const BY_R10: u64 = 0x3000;
/// The outermost frame.
const LAST: u64 = 0x4000;
/// CFA sp, return address in rcx.
const POPPED: u64 = 0x5000;
/// CFA sp+12.
const CROOKED: u64 = 0x6000;
/// CFA sp-8.
const INWARDS: u64 = 0x7000;

const FROM_SP: u8 = 1;
const fn words(n: u8) -> u8 {
    n << 1
}

/// A version 3 table of these functions.
fn table() -> Vec<u8> {
    let functions: [(u64, bool, u8, &[i8]); 7] = [
        (BY_FP, false, words(2), &[16, -16]),
        (BY_SP, false, FROM_SP | words(1), &[16]),
        (BY_R10, true, words(2), &[10 << 3 | 1, 0]),
        (LAST, false, 0, &[]),
        (POPPED, true, words(4), &[7 << 3 | 1, 0, 2 << 3 | 1, 0]),
        (CROOKED, false, FROM_SP | words(1), &[12]),
        (INWARDS, false, FROM_SP | words(1), &[-8]),
    ];
    let (mut index, mut rows) = (Vec::new(), Vec::new());
    for (start, flexible, info, data) in functions {
        let field = TABLE + 28 + index.len() as u64;
        index.extend((start.wrapping_sub(field)).to_le_bytes());
        index.extend(SIZE.to_le_bytes());
        index.extend((rows.len() as u32).to_le_bytes());
        // Attributes: one row, starts of 2 bytes.
        rows.extend([1, 0, 1, u8::from(flexible), 0]);
        rows.extend([0, 0, info]);
        rows.extend(data.iter().map(|word| *word as u8));
    }
    // Magic, version 3, sorted and counted from the field, AMD64, return address at CFA-8.
    let mut bytes = vec![0xe2, 0xde, 3, 5, 3, 0, 0xf8, 0];
    for number in [functions.len(), functions.len(), rows.len(), 0, index.len()] {
        bytes.extend((number as u32).to_le_bytes());
    }
    [bytes, index, rows].concat()
}

fn section(bytes: &[u8]) -> Section {
    Section::new(Span::sized(TABLE, bytes.len() as u64), TEXT)
}

/// Rules from the table, and none for what lies outside of the text.
struct Rules<'a> {
    table: &'a [u8],
}

impl Names for Rules<'_> {}

impl Replay for Rules<'_> {}

impl Env for Rules<'_> {
    fn rule(&mut self, cursor: &Cursor, _: &mut Reader<'_>) -> Packed {
        let pc = cursor.lookup_pc();
        if !TEXT.contains(pc) {
            return Packed::failed(StopReason::NoOwner);
        }
        let regions = [Region { address: TABLE, bytes: self.table }];
        let answer = find(&section(self.table), pc, &mut Reader::recorded(&regions));
        Packed::from_result(answer.and_then(|answer| answer.rule))
    }
}

/// Walks from `pc` with sp at the stack's first word and these other registers; returns why it ended, and the number of
/// frames.
fn run(pc: u64, stack: &[u64], others: &[(u8, u64)]) -> (StopReason, usize) {
    let bytes: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
    let regions = [Region { address: STACK, bytes: &bytes }];
    let mut registers = [0; 16];
    registers[usize::from(RSP)] = STACK;
    others.iter().for_each(|(register, value)| registers[usize::from(*register)] = *value);
    let cursor = Cursor { regs: Regs::full(pc, registers), exact: true };
    let (table, mut found) = (table(), vec![0; 8192]);
    let mut reader = Reader::recorded(&regions);
    // SAFETY: no scratch, so no plugin is called.
    let outcome = unsafe { walk(cursor, &mut Rules { table: &table }, &mut reader, &mut found, &Setting::EMPTY) };
    (outcome.stop, frames(&found[..outcome.words]).count())
}

#[test]
fn the_table_passes_every_check_of_the_reader() {
    #[derive(Default)]
    struct Faults(Vec<Fault>);
    impl Visitor for Faults {
        fn fault(&mut self, fault: Fault) {
            self.0.push(fault);
        }
    }
    let (table, mut seen) = (table(), Faults::default());
    let regions = [Region { address: TABLE, bytes: &table }];
    visit(&section(&table), &mut Reader::recorded(&regions), &mut seen);
    assert_eq!(seen.0, []);
}

#[test]
fn check_18_only_the_leaf_frame_has_every_register() {
    assert_eq!(run(BY_R10, &[0, LAST + 1], &[(10, STACK + 16)]), (StopReason::Complete, 2));
    // The same function as a caller: its callee may have overwritten r10.
    let stack = [0, BY_R10 + 1, 0, LAST + 1];
    assert_eq!(run(BY_SP, &stack, &[(10, STACK + 32)]), (StopReason::UnknownRegister, 2));
}

#[test]
fn check_20_a_frame_pointer_is_not_below_the_stack_pointer() {
    let stack = [0, LAST + 1, LAST + 1, LAST + 1];
    assert_eq!(run(BY_FP, &stack, &[(RBP, STACK)]), (StopReason::Complete, 2));
    assert_eq!(run(BY_FP, &stack, &[(RBP, STACK + 16)]), (StopReason::Complete, 2));
    // The leaf has moved the stack pointer up to its return address, and restores registers from the red zone below it.
    let popped = [LAST + 1, 1, 1, 1];
    assert_eq!(run(BY_FP, &popped, &[(RBP, STACK - 8)]), (StopReason::Complete, 2));
    // This frame's return address would lie below the stack pointer.
    assert_eq!(run(BY_FP, &stack, &[(RBP, STACK - 16)]), (StopReason::BadCfa, 1));
    assert_eq!(run(BY_FP, &stack, &[(RBP, 0)]), (StopReason::BadCfa, 1));
    // In an outer frame: a slot that holds an address of an inner frame.
    assert_eq!(run(BY_FP, &[STACK + 8, BY_FP + 1, 1, LAST + 1], &[(RBP, STACK)]), (StopReason::BadCfa, 2));
}

#[test]
fn check_21_the_cfa_moves_up_and_is_aligned() {
    assert_eq!(run(CROOKED, &[LAST + 1; 8], &[]), (StopReason::BadCfa, 1));
    assert_eq!(run(INWARDS, &[LAST + 1; 8], &[]), (StopReason::BadCfa, 1));
    // A frame of size 0: only possible for the leaf, whose return address may be in a register.
    assert_eq!(run(POPPED, &[0; 8], &[(2, LAST + 1)]), (StopReason::Complete, 2));
    assert_eq!(run(BY_SP, &[0, POPPED + 1, 0, 0], &[(2, LAST + 1)]), (StopReason::BadCfa, 2));
}

#[test]
fn check_22_slots_are_readable() {
    assert_eq!(run(BY_SP, &[0], &[]), (StopReason::UnreadableStack, 1));
    assert_eq!(run(BY_FP, &[0, LAST + 1], &[(RBP, STACK + 4096)]), (StopReason::UnreadableStack, 1));
}

#[test]
fn check_23_return_addresses_are_code_and_walks_end() {
    assert_eq!(run(BY_SP, &[0, 0], &[]), (StopReason::NullReturnAddress, 1));
    assert_eq!(run(BY_SP, &[0, STACK], &[]), (StopReason::NoOwner, 2));
    let endless = vec![BY_SP + 1; 2 * MAX_FRAMES as usize + 8];
    assert_eq!(run(BY_SP, &endless, &[]), (StopReason::TooManyFrames, MAX_FRAMES as usize));
}
