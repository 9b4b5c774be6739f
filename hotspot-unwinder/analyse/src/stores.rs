//! What an object's initialisation stores into its variables. HotSpot's compilers do not make constants of the offsets
//! in `VMStructs::localHotSpotVMStructs`, nor of the variables that describe its entries: a function in the object's
//! `.init_array` stores each by one instruction, `movq $offset, entry(%rip)`; into a variable that is exported by two,
//! `mov entry_of_got(%rip), %rax; movq $offset, (%rax)`.

use crate::tables::Relocated;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use std::collections::HashMap;
use uunwind_elf::Image;

const DT_INIT_ARRAY: i64 = 25;
const DT_INIT_ARRAYSZ: i64 = 27;
/// Limits: of functions, and of the bytes of one.
const FUNCTIONS: u64 = 16384;
const BYTES: u64 = 64 << 10;

/// The constants that are stored, by the file address of the word.
pub fn of(image: &Image, relocated: &Relocated<'_>) -> HashMap<u64, u64> {
    let mut found = HashMap::new();
    let mut starts = functions(image, relocated).unwrap_or_default();
    starts.sort_unstable();
    starts.dedup();
    for (index, start) in starts.iter().enumerate() {
        let next = starts.get(index + 1).copied().unwrap_or(u64::MAX);
        let size = next.saturating_sub(*start).min(BYTES);
        let Some(code) = code(image, *start, size) else { continue };
        let mut decoder = Decoder::with_ip(64, &code, *start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut pointer = None;
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            found.extend(stored(&instruction).or_else(|| stored_by(&instruction, pointer?)));
            pointer = loaded(&instruction, relocated).or(pointer).filter(|(register, _)| {
                // Or it holds something else by now.
                is_load(&instruction) || instruction.op0_register() != *register
            });
        }
    }
    found
}

/// The object's functions for initialisation.
fn functions(image: &Image, relocated: &Relocated<'_>) -> Option<Vec<u64>> {
    let (start, size) = (image.dynamic().value(DT_INIT_ARRAY)?, image.dynamic().value(DT_INIT_ARRAYSZ)?);
    let count = (size / 8).min(FUNCTIONS);
    (0..count).map(|index| relocated.word(start.checked_add(8 * index)?)).collect()
}

/// The bytes of a function: as many as the file has of it.
fn code(image: &Image, start: u64, size: u64) -> Option<Vec<u8>> {
    let mut size = size;
    while size >= 16 {
        let mut bytes = vec![0; size as usize];
        if image.read_address(start, &mut bytes) {
            return Some(bytes);
        }
        size /= 2;
    }
    None
}

/// A load of a word beside the code into a register.
fn is_load(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().is_gpr64()
        && instruction.op1_kind() == OpKind::Memory
        && instruction.is_ip_rel_memory_operand()
}

/// The register that an instruction loads, and the address that it holds then.
fn loaded(instruction: &Instruction, relocated: &Relocated<'_>) -> Option<(Register, u64)> {
    let load = is_load(instruction).then(|| instruction.ip_rel_memory_address())?;
    Some((instruction.op0_register(), relocated.word(load)?))
}

/// Likewise as [`stored`], through a register.
fn stored_by(instruction: &Instruction, (register, address): (Register, u64)) -> Option<(u64, u64)> {
    let is_store = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() == register
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == 0
        && instruction.op1_kind() == OpKind::Immediate32to64;
    is_store.then(|| (address, instruction.immediate32to64() as u64))
}

/// Where an instruction stores a constant of 64 bits, and which.
fn stored(instruction: &Instruction) -> Option<(u64, u64)> {
    let is_store = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Memory
        && instruction.is_ip_rel_memory_operand()
        && instruction.op1_kind() == OpKind::Immediate32to64;
    is_store.then(|| (instruction.ip_rel_memory_address(), instruction.immediate32to64() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_that_is_stored_beside_the_code_is_found() {
        // movq $0x140, 0x1080874(%rip), of Debian's OpenJDK 17.
        let code = [0x48, 0xc7, 0x05, 0x74, 0x08, 0x08, 0x01, 0x40, 0x01, 0x00, 0x00];
        let first = |code: &[u8]| stored(&Decoder::with_ip(64, code, 0x281861, DecoderOptions::NONE).decode());
        assert_eq!(first(&code), Some((0x13020e0, 0x140)));
        // movl, a store through a register, and a store of a register.
        assert_eq!(first(&[0xc7, 0x05, 0x74, 0x08, 0x08, 0x01, 0x40, 0x01, 0x00, 0x00]), None);
        assert_eq!(first(&[0x48, 0xc7, 0x00, 0x40, 0x01, 0x00, 0x00]), None);
        assert_eq!(first(&[0x48, 0x89, 0x05, 0x74, 0x08, 0x08, 0x01]), None);
    }
}
