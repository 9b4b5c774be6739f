//! Shapes of instructions' operands.

use iced_x86::{Instruction, OpKind, Register};

/// Is an operand a 64-bit memory operand at `[base + displacement]`, where the base is a register but rsp and rbp?
pub fn is_field(instruction: &Instruction, operand: u32, displacement: u32) -> bool {
    instruction.op_kind(operand) == OpKind::Memory
        && instruction.memory_displacement64() == u64::from(displacement)
        && instruction.memory_index() == Register::None
        && instruction.memory_size().size() == 8
        && instruction.segment_prefix() == Register::None
        && !matches!(instruction.memory_base(), Register::RSP | Register::RBP | Register::RIP | Register::None)
}
