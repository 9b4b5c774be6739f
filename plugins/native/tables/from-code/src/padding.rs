//! What fills the space before a function that begins at an aligned address.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

/// Length in bytes of what fills space where the bytes begin: instructions that do nothing, traps and zeros.
pub fn len(bytes: &[u8]) -> usize {
    let mut at = 0;
    let mut instruction = Instruction::default();
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let trap = rest.iter().take_while(|byte| **byte == 0xcc).count();
        // Two zeros are an instruction, but none that follows a return.
        let zeros = rest.iter().take_while(|byte| **byte == 0).count();
        let more = if trap > 0 {
            trap
        } else if zeros > 1 || zeros == rest.len() {
            zeros
        } else {
            let mut decoder = Decoder::new(64, rest, DecoderOptions::NONE);
            decoder.decode_out(&mut instruction);
            let nothing = !instruction.is_invalid() && instruction.mnemonic() == Mnemonic::Nop;
            if nothing {
                instruction.len()
            } else {
                0
            }
        };
        if more == 0 {
            break;
        }
        at += more;
    }
    at
}
