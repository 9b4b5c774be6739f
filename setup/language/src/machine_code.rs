//! Decoding of functions' x86-64 machine code, for what only an interpreter's code shows: where its loop keeps what.

use iced_x86::{Decoder, DecoderOptions, Instruction, Register};
use uunwind_elf::{Elf, Span};

/// Limit of bytes of a function that are decoded.
const LIMIT: u64 = 256 << 10;

/// Calls `look` with each instruction of a range of file addresses, in order, until it returns false. Ends at bytes
/// that are no instruction, and after 256 KiB.
pub fn each_instruction(elf: &dyn Elf, range: Span, look: &mut dyn FnMut(&Instruction) -> bool) {
    let mut bytes = vec![0; range.end.saturating_sub(range.start).min(LIMIT) as usize];
    if !elf.read(range.start, &mut bytes) {
        return;
    }
    let mut decoder = Decoder::with_ip(64, &bytes, range.start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() || !look(&instruction) {
            return;
        }
    }
}

/// The instructions of a range, up to bytes that are none.
pub fn instructions(elf: &dyn Elf, range: Span) -> Vec<Instruction> {
    let mut all = Vec::new();
    each_instruction(elf, range, &mut |instruction| {
        all.push(*instruction);
        true
    });
    all
}

/// The range of the function that begins at a file address, by the file's unwind information.
pub fn function(elf: &dyn Elf, start: u64) -> Option<Span> {
    let functions = elf.functions();
    let at = functions.partition_point(|function| function.span.start < start);
    functions.get(at).map(|function| function.span).filter(|span| span.start == start)
}

/// DWARF number of a 64-bit general register.
pub fn dwarf(register: Register) -> Option<u8> {
    let order = [
        Register::RAX,
        Register::RDX,
        Register::RCX,
        Register::RBX,
        Register::RSI,
        Register::RDI,
        Register::RBP,
        Register::RSP,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
    ];
    order.iter().position(|r| *r == register).map(|number| number as u8)
}

/// Is a register, by DWARF number, callee-saved (System V psABI)?
pub fn is_callee_saved(number: u8) -> bool {
    matches!(number, 3 | 6 | 12..=15)
}
