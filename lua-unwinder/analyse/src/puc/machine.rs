//! Decoding of a function's machine code.

use iced_x86::{Decoder, DecoderOptions, Instruction, Register};
use uunwind_elf::{Elf, Span};

/// Limit of bytes of a function that are decoded.
const LIMIT: u64 = 256 << 10;

/// Calls `look` with each instruction of a range, in order, until it returns false. Ends at bytes that are no
/// instruction.
pub fn instructions(elf: &dyn Elf, range: Span, look: &mut dyn FnMut(&Instruction) -> bool) {
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
