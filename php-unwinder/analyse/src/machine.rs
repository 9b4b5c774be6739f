//! Decoding of functions' machine code.

use iced_x86::{Decoder, DecoderOptions, Instruction, Register};
use uunwind_elf::{Elf, Span};

/// Limit of bytes of a function that are decoded.
const LIMIT: u64 = 256 << 10;

/// The instructions of a range, up to bytes that are none.
pub fn instructions(elf: &dyn Elf, range: Span) -> Vec<Instruction> {
    let mut bytes = vec![0; range.end.saturating_sub(range.start).min(LIMIT) as usize];
    if !elf.read(range.start, &mut bytes) {
        return Vec::new();
    }
    let decoder = Decoder::with_ip(64, &bytes, range.start, DecoderOptions::NONE);
    decoder.into_iter().take_while(|instruction| !instruction.is_invalid()).collect()
}

/// The range of the function that begins at an address, by the file's unwind information.
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
