//! Programs of CFA instructions: of many, with operands across the words that they are read by, with expressions.
#![cfg(target_arch = "x86_64")]

use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::RSP;
use uunwind_core::rule::{Rule, UNKNOWN};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_eh_frame::find_in_list;
use uunwind_eh_frame::program::MAX_BYTES;

const CODE: u64 = 0x10_0000;

/// The rule at `CODE + offset`, by an FDE of 16 MiB of code with this program. The CIE says CFA = rsp + 8.
fn rule_at(offset: u64, program: &[u8]) -> Result<Rule, StopReason> {
    let mut bytes = vec![16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0];
    bytes.extend((4 + 16 + program.len() as u32).to_le_bytes());
    bytes.extend(24u32.to_le_bytes());
    bytes.extend(CODE.to_le_bytes());
    bytes.extend((16u64 << 20).to_le_bytes());
    bytes.extend(program);
    let bounds = Span::sized(0x8003, bytes.len() as u64);
    // Whole words are read.
    let padded = [&[0; 8][..], &bytes, &[0; 8]].concat();
    let regions = [Region { address: bounds.start - 8, bytes: &padded }];
    let pc = CODE + offset;
    find_in_list(bounds, pc, pc, &mut Reader::recorded(&regions)).and_then(|answer| answer.rule)
}

#[test]
fn a_program_is_run_up_to_its_limit_and_no_further() {
    let advances = |count: u64| vec![0x41; count as usize];
    assert_eq!(rule_at(0, &advances(MAX_BYTES + 1)), Ok(Rule::simple(RSP, 8)), "it is not run to its end");
    assert_eq!(rule_at(MAX_BYTES - 1, &advances(MAX_BYTES)), Ok(Rule::simple(RSP, 8)));
    assert_eq!(rule_at(MAX_BYTES, &advances(MAX_BYTES)), Ok(Rule::simple(RSP, 8)), "its end is its limit");
    assert_eq!(rule_at(MAX_BYTES, &advances(MAX_BYTES + 1)), Err(StopReason::BadUnwindInfo));
}

/// Each instruction, with its operands at each distance from the end of a word.
#[test]
fn operands_are_found_wherever_the_words_end() {
    for before in 0..17 {
        let nops = vec![0; before];
        let program = |rest: &[&[u8]]| [&[0x42], &*nops, &rest.concat(), &[0x44]].concat();
        let cfa = |rest: &[&[u8]]| rule_at(3, &program(rest)).map(|rule| rule.cfa_offset);
        // def_cfa_offset with operands of one byte, of two, and after remember_state.
        assert_eq!(cfa(&[&[0x0e, 16]]), Ok(16), "{before}");
        assert_eq!(cfa(&[&[0x0e, 0x90, 1]]), Ok(144), "{before}");
        assert_eq!(cfa(&[&[0x0a, 0x0e, 16, 0x0b, 0x0e, 32]]), Ok(32), "{before}");
        assert_eq!(cfa(&[&[0x0e, 16, 0x0a, 0x0e, 32, 0x0b]]), Ok(16), "{before}");
        // advance_loc1 beyond the address, within it, and def_cfa_offset after it.
        assert_eq!(cfa(&[&[2, 2, 0x0e, 16]]), Ok(8), "{before}");
        assert_eq!(cfa(&[&[2, 1, 0x0e, 16]]), Ok(16), "{before}");
        // rbx at CFA - 16 (offset), with an operand of one byte and of two; restored; the state at an empty stack.
        let rbx = |rest: &[&[u8]]| rule_at(3, &program(rest)).map(|rule| rule.slots[0]);
        assert_eq!(rbx(&[&[0x83, 2]]), Ok(-2), "{before}");
        assert_eq!(rbx(&[&[0x83, 0x80, 1]]), Ok(-128), "{before}");
        assert_eq!(rbx(&[&[0x83, 2, 0xc3]]), Ok(Rule::simple(RSP, 8).slots[0]), "{before}");
        assert_eq!(cfa(&[&[0x0b]]), Err(StopReason::BadUnwindInfo), "{before}");
        // The program ends within an operand.
        let cut = [&[0x42], &*nops, &[0x0e, 0x90]].concat();
        assert_eq!(rule_at(3, &cut), Err(StopReason::BadUnwindInfo), "{before}");
        let cut = [&[0x42], &*nops, &[0x0e]].concat();
        assert_eq!(rule_at(3, &cut), Err(StopReason::BadUnwindInfo), "{before}");
    }
}

/// A register that is saved at a distance from the register that the CFA counts from is at one from the CFA.
#[test]
fn a_place_that_counts_from_the_cfas_register_is_known() {
    const BREG_RBX: u8 = 0x73;
    const BREG_RSP: u8 = 0x77;
    // def_cfa_offset 32; expression: rbp at 8 bytes after a register.
    let rbp = |register: u8| rule_at(0, &[0x0e, 32, 0x10, 6, 2, register, 8]).map(|rule| (rule.slots[1], rule.from_fp));
    assert_eq!(rbp(BREG_RSP), Ok((-3, 0)));
    assert_eq!(rbp(BREG_RBX), Ok((UNKNOWN, 0)));
}

/// libgcrypt 1.10.1, SM3 for AVX: `.cfi_rel_offset` counts from rbp there, and the offsets are those from rsp. A row
/// that describes the stack pointer, too, may take registers from anywhere: longjmp's does.
#[test]
fn a_register_is_not_saved_in_a_callers_frame() {
    // offset_extended_sf: rbx at CFA + 176, and at the CFA itself.
    let rbx = |program: &[u8]| rule_at(0, program).map(|rule| rule.slots[0]);
    assert_eq!(rbx(&[0x11, 3, 0x6a]), Ok(UNKNOWN));
    assert_eq!(rbx(&[0x11, 3, 0]), Ok(UNKNOWN));
    assert_eq!(rbx(&[0x83, 2]), Ok(-2));
    // rsp at CFA + 8.
    assert_eq!(rbx(&[0x11, 3, 0x6a, 0x11, 7, 0x7f]), Ok(22));
}

/// libgcrypt's SHA-2 for SSSE3 and later: the CFA is the sum of a saved stack pointer and the offset, for a while.
#[test]
fn an_offset_counts_again_after_an_expression() {
    const BREG_RSP: u8 = 0x77;
    let expression = [0x0f, 2, BREG_RSP, 64];
    let cfa = |program: &[&[u8]]| rule_at(1, &program.concat()).map(|rule| (rule.cfa_register, rule.cfa_offset));
    // def_cfa_offset 56; the expression; def_cfa_register rsp.
    assert_eq!(cfa(&[&[0x0e, 56], &expression, &[0x41, 0x0d, 7]]), Ok((RSP, 56)));
    // Another expression in between, and a state that is kept across.
    assert_eq!(cfa(&[&[0x0e, 56], &expression, &expression, &[0x0d, 7]]), Ok((RSP, 56)));
    assert_eq!(cfa(&[&[0x0e, 56], &expression, &[0x0a, 0x0c, 7, 8, 0x0b, 0x0d, 7]]), Ok((RSP, 56)));
    // An offset alone needs a register.
    assert_eq!(cfa(&[&expression, &[0x0e, 56]]), Err(StopReason::BadUnwindInfo));
}
