//! x86-64.

use super::CODE_BYTES;
use uunwind_elf::Elf;
use uunwind_python::facts::Facts;

/// Does `code`, at `address`, pass a structure before the key to a function that adds the distance to it?
pub fn callee_adds(elf: &dyn Elf, code: &[u8], address: u64, facts: &Facts) -> bool {
    /// Opcode of `call`, with a relative operand.
    const CALL: u8 = 0xe8;
    /// `add $8-bit,%rdi`, without its operand.
    const ADD_TO_ARGUMENT: [u8; 3] = [0x48, 0x83, 0xc7];
    (0u64..).zip(code.windows(5)).any(|(at, bytes)| {
        let &[CALL, a, b, c, d] = bytes else { return false };
        let operand = i64::from(i32::from_le_bytes([a, b, c, d])) as u64;
        let callee = address.wrapping_add(at).wrapping_add(5).wrapping_add(operand);
        let mut inner = [0u8; CODE_BYTES];
        if !elf.read(callee, &mut inner) {
            return false;
        }
        let added = inner.windows(4).find_map(|bytes| bytes.strip_prefix(&ADD_TO_ARGUMENT)?.first().copied());
        let structure = added.and_then(|added| facts.runtime_tss.checked_sub(u32::from(added)));
        structure.is_some_and(|structure| mentions(code, address, facts.runtime, structure))
    })
}

/// Does `code`, at `address`, refer to the key at `runtime + offset`, or to the second word of it?
pub fn mentions(code: &[u8], address: u64, runtime: u64, offset: u32) -> bool {
    (0u64..).zip(code.windows(4)).any(|(at, bytes)| {
        let operand = i32::from_le_bytes(bytes.try_into().unwrap_or([0; 4])) as i64 as u64;
        let next = address.wrapping_add(at).wrapping_add(4);
        [0, 4].into_iter().any(|half| {
            let wanted = u64::from(offset).wrapping_add(half);
            let target = runtime.wrapping_add(wanted);
            // An 8-bit or 32-bit immediate may stand between the relative operand and the next instruction.
            let relative =
                [0, 1, 4].into_iter().any(|immediate| next.wrapping_add(immediate).wrapping_add(operand) == target);
            operand == wanted || operand == target || relative
        })
    })
}
