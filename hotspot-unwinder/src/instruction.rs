//! One instruction of x86-64: its length, and what it does to the stack. Only as much as code of HotSpot needs;
//! anything else is refused.

/// Bytes of the longest instruction.
pub const LONGEST: usize = 15;
/// Number of a register, as instructions have it.
pub const RAX: u8 = 0;
/// Likewise.
pub const RBX: u8 = 3;
/// Likewise.
const RSP: u8 = 4;
/// Likewise.
pub const RBP: u8 = 5;
/// Likewise.
pub const R13: u8 = 13;

/// What an instruction does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing to the stack pointer and the frame pointer.
    None,
    /// It pushes a register.
    Push(u8),
    /// It pushes something else.
    PushOther,
    /// It pops into a register.
    Pop(u8),
    /// It adds to the stack pointer.
    Add(i32),
    /// `mov %rsp,%rbp`
    SetFrame,
    /// The stack pointer becomes the frame pointer, plus this.
    ToFrame(i32),
    /// `leave`
    Leave,
    /// The stack pointer becomes this register.
    ToRegister(u8),
    /// The frame pointer is stored at the stack pointer plus this.
    StoreFrame(i32),
    /// `mov %rax,(%rsp)`
    StoreRax,
    /// The bytecode pointer is loaded from the interpreter's frame: `mov -64(%rbp),%r13`; in JDK 8, from -56.
    RestoreBytecode,
    /// It is stored there.
    SaveBytecode,
    /// It changes the stack pointer in another way.
    Other,
    /// A call.
    Call,
    /// `ret`
    Return,
    /// A jump to this distance from its end.
    Jump(i32),
    /// A jump to a register.
    JumpRegister(u8),
    /// A jump to an address in memory.
    JumpMemory,
    /// It does not go on: an undefined instruction, or a breakpoint.
    Stop,
}

/// An instruction's length and effect. `None`: it is none that is understood, or it is cut.
pub fn decode(bytes: &[u8]) -> Option<(usize, Effect)> {
    let mut at = 0usize;
    let (mut narrow, mut rex) = (false, 0u8);
    loop {
        match *bytes.get(at)? {
            0x66 => narrow = true,
            0x67 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0xf0 | 0xf2 | 0xf3 => {}
            prefix @ 0x40..=0x4f => {
                rex = prefix;
                at = at.wrapping_add(1);
                break;
            }
            _ => break,
        }
        at = at.wrapping_add(1);
        if at >= LONGEST {
            return None;
        }
    }
    let operand = Operand { narrow, rex };
    match *bytes.get(at)? {
        0xc5 => return vector(bytes, at.wrapping_add(2), 1),
        0xc4 => {
            let map = *bytes.get(at.wrapping_add(1))? & 0x1f;
            return vector(bytes, at.wrapping_add(3), map);
        }
        0x62 => {
            let map = *bytes.get(at.wrapping_add(1))? & 7;
            return vector(bytes, at.wrapping_add(4), map);
        }
        0x0f => return two_bytes(bytes, at.wrapping_add(1)),
        _ => {}
    }
    one_byte(bytes, at, operand)
}

/// Prefixes that matter.
#[derive(Clone, Copy)]
struct Operand {
    narrow: bool,
    rex: u8,
}

impl Operand {
    fn wide(self) -> bool {
        self.rex & 8 != 0
    }

    /// A register's number with its highest bit from the prefix.
    fn register(self, low: u8) -> u8 {
        low & 7 | (self.rex & 1) << 3
    }

    /// Bytes of an immediate operand that follows the size of operands.
    fn immediate(self) -> usize {
        if self.narrow {
            2
        } else {
            4
        }
    }
}

/// The bytes of a ModRM operand, from `at` on.
fn modrm(bytes: &[u8], at: usize) -> Option<usize> {
    let byte = *bytes.get(at)?;
    let (kind, low) = (byte >> 6, byte & 7);
    if kind == 3 {
        return Some(1);
    }
    let mut len = 1usize;
    let mut base = low;
    if low == 4 {
        base = *bytes.get(at.wrapping_add(1))? & 7;
        len = 2;
    }
    let displacement = match kind {
        0 if base == 5 => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    Some(len.wrapping_add(displacement))
}

/// The instruction ends at `end`, if the bytes go that far.
fn ends(bytes: &[u8], end: usize, effect: Effect) -> Option<(usize, Effect)> {
    (end <= bytes.len() && end <= LONGEST).then_some((end, effect))
}

/// A signed number of one or four bytes.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<i32> {
    match *bytes.get(at..at.checked_add(size)?)? {
        [low] => Some(i32::from(low as i8)),
        [a, b, c, d] => Some(i32::from_le_bytes([a, b, c, d])),
        _ => None,
    }
}

fn vector(bytes: &[u8], at: usize, map: u8) -> Option<(usize, Effect)> {
    let opcode = *bytes.get(at)?;
    let operand = at.wrapping_add(1);
    let immediate = match (map, opcode) {
        // vzeroupper
        (1, 0x77) => return ends(bytes, operand, Effect::None),
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => 1,
        (1 | 2, _) => 0,
        _ => return None,
    };
    ends(bytes, operand.wrapping_add(modrm(bytes, operand)?).wrapping_add(immediate), Effect::None)
}

fn two_bytes(bytes: &[u8], at: usize) -> Option<(usize, Effect)> {
    let opcode = *bytes.get(at)?;
    let next = at.wrapping_add(1);
    let with_operand =
        |more: usize| ends(bytes, next.wrapping_add(modrm(bytes, next)?).wrapping_add(more), Effect::None);
    match opcode {
        0x38 => {
            let operand = next.wrapping_add(1);
            ends(bytes, operand.wrapping_add(modrm(bytes, operand)?), Effect::None)
        }
        0x3a => {
            let operand = next.wrapping_add(1);
            ends(bytes, operand.wrapping_add(modrm(bytes, operand)?).wrapping_add(1), Effect::None)
        }
        0x0b => ends(bytes, next, Effect::Stop),
        0x05 | 0x31 | 0x77 | 0xa2 | 0xc8..=0xcf => ends(bytes, next, Effect::None),
        0x80..=0x8f => ends(bytes, next.wrapping_add(4), Effect::None),
        0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => with_operand(1),
        0x0d | 0x10..=0x1f | 0x28..=0x2f | 0x40..=0x6f | 0x74..=0x76 | 0x78..=0x7f | 0x90..=0x9f => with_operand(0),
        0xa3 | 0xa5 | 0xab | 0xad..=0xb9 | 0xbb..=0xc1 | 0xc3 | 0xc7 | 0xd0..=0xfe => with_operand(0),
        _ => None,
    }
}

fn one_byte(bytes: &[u8], at: usize, prefix: Operand) -> Option<(usize, Effect)> {
    let opcode = *bytes.get(at)?;
    let next = at.wrapping_add(1);
    let plain = |more: usize| ends(bytes, next.wrapping_add(more), Effect::None);
    match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => operand(bytes, opcode, next, 0, prefix),
            4 => plain(1),
            5 => plain(prefix.immediate()),
            _ => None,
        },
        0x50..=0x57 => ends(bytes, next, Effect::Push(prefix.register(opcode))),
        0x58..=0x5f => ends(bytes, next, Effect::Pop(prefix.register(opcode))),
        0x68 => ends(bytes, next.wrapping_add(4), Effect::PushOther),
        0x6a => ends(bytes, next.wrapping_add(1), Effect::PushOther),
        0x69 | 0x81 | 0xc7 => operand(bytes, opcode, next, prefix.immediate(), prefix),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => operand(bytes, opcode, next, 1, prefix),
        0x63 | 0x84..=0x8e | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe => operand(bytes, opcode, next, 0, prefix),
        0x8f => {
            let end = next.wrapping_add(modrm(bytes, next)?);
            ends(bytes, end, Effect::Add(8))
        }
        0x70..=0x7f | 0xe0..=0xe3 | 0xa8 | 0xb0..=0xb7 => plain(1),
        // xchg with rax.
        0x91..=0x97 if prefix.register(opcode) == RSP => ends(bytes, next, Effect::Other),
        0x90..=0x99 | 0x9b | 0xa4..=0xa7 | 0xaa..=0xaf | 0xf5 | 0xf8..=0xfd => plain(0),
        // pushf and popf.
        0x9c => ends(bytes, next, Effect::PushOther),
        0x9d => ends(bytes, next, Effect::Add(8)),
        0x9e | 0x9f => plain(0),
        0xa0..=0xa3 => plain(8),
        0xa9 => plain(prefix.immediate()),
        0xb8..=0xbf if prefix.register(opcode) == RSP => None,
        0xb8..=0xbf => plain(if prefix.wide() { 8 } else { prefix.immediate() }),
        0xc2 => ends(bytes, next.wrapping_add(2), Effect::Return),
        0xc3 => ends(bytes, next, Effect::Return),
        0xc9 => ends(bytes, next, Effect::Leave),
        0xcc | 0xf4 => ends(bytes, next, Effect::Stop),
        0xe8 => ends(bytes, next.wrapping_add(4), Effect::Call),
        0xe9 => ends(bytes, next.wrapping_add(4), Effect::Jump(number(bytes, next, 4)?)),
        0xeb => ends(bytes, next.wrapping_add(1), Effect::Jump(number(bytes, next, 1)?)),
        // test has an operand, and others of these have none.
        0xf6 => operand(bytes, opcode, next, usize::from(*bytes.get(next)? >> 3 & 7 < 2), prefix),
        0xf7 => {
            let immediate = if *bytes.get(next)? >> 3 & 7 < 2 { prefix.immediate() } else { 0 };
            operand(bytes, opcode, next, immediate, prefix)
        }
        0xff => indirect(bytes, next, prefix),
        _ => None,
    }
}

/// An instruction with a ModRM operand.
fn operand(bytes: &[u8], opcode: u8, at: usize, immediate: usize, prefix: Operand) -> Option<(usize, Effect)> {
    let byte = *bytes.get(at)?;
    let len = modrm(bytes, at)?;
    let end = at.wrapping_add(len).wrapping_add(immediate);
    let (kind, reg, low) = (byte >> 6, byte >> 3 & 7, byte & 7);
    let (reg, is_register) = (reg | (prefix.rex & 4) << 1, kind == 3);
    let rm = prefix.register(low);
    let immediate = || number(bytes, at.wrapping_add(len), immediate.min(4));
    // A memory operand at a base without an index, and its displacement.
    let base = || -> Option<(u8, i32)> {
        let (base, skip) = match (low, is_register) {
            (_, true) => return None,
            (4, _) => {
                let sib = *bytes.get(at.wrapping_add(1))?;
                if sib & 0x38 != 0x20 || prefix.rex & 2 != 0 {
                    return None;
                }
                (sib & 7 | (prefix.rex & 1) << 3, 2usize)
            }
            (low, _) => (prefix.register(low), 1),
        };
        match kind {
            0 if base & 7 != 5 => Some((base, 0)),
            1 => Some((base, number(bytes, at.wrapping_add(skip), 1)?)),
            2 => Some((base, number(bytes, at.wrapping_add(skip), 4)?)),
            _ => None,
        }
    };
    let is_bytecodes_place = || prefix.wide() && matches!(base(), Some((RBP, -64 | -56)));
    let effect = match opcode {
        // add, sub, and others on the stack pointer.
        0x81 | 0x83 if is_register && rm == RSP => match (reg & 7, prefix.wide()) {
            (0, true) => Effect::Add(immediate()?),
            (5, true) => Effect::Add(immediate()?.checked_neg()?),
            (7, _) => Effect::None,
            _ => Effect::Other,
        },
        // mov of registers, in both directions.
        0x89 if is_register && rm == RSP => to_stack_pointer(reg),
        0x8b if is_register && reg == RSP => to_stack_pointer(rm),
        0x89 if is_register && rm == RBP && reg == RSP => Effect::SetFrame,
        0x8b if is_register && reg == RBP && rm == RSP => Effect::SetFrame,
        0x89 if reg == RBP && prefix.wide() => match base() {
            Some((RSP, at)) => Effect::StoreFrame(at),
            _ => Effect::None,
        },
        0x89 if reg == RAX && prefix.wide() && base() == Some((RSP, 0)) => Effect::StoreRax,
        0x8b if reg == R13 && is_bytecodes_place() => Effect::RestoreBytecode,
        0x89 if reg == R13 && is_bytecodes_place() => Effect::SaveBytecode,
        0x8d if reg == RSP => match base() {
            Some((RSP, more)) if prefix.wide() => Effect::Add(more),
            Some((RBP, more)) if prefix.wide() => Effect::ToFrame(more),
            _ => Effect::Other,
        },
        // Anything else that writes to the stack pointer: arithmetic, loads, exchanges.
        0x01 | 0x09 | 0x11 | 0x19 | 0x21 | 0x29 | 0x31 | 0x87 | 0xc1 | 0xc7 | 0xd1 | 0xd3 | 0xf7
            if is_register && rm == RSP =>
        {
            Effect::Other
        }
        0x03 | 0x0b | 0x13 | 0x1b | 0x23 | 0x2b | 0x33 | 0x63 | 0x69 | 0x6b | 0x87 | 0x8b if reg == RSP => {
            Effect::Other
        }
        _ => Effect::None,
    };
    ends(bytes, end, effect)
}

fn to_stack_pointer(register: u8) -> Effect {
    match register {
        RBP => Effect::ToFrame(0),
        RSP => Effect::None,
        _ => Effect::ToRegister(register),
    }
}

/// `inc`, `dec`, `call`, `jmp` and `push` with a ModRM operand.
fn indirect(bytes: &[u8], at: usize, prefix: Operand) -> Option<(usize, Effect)> {
    let byte = *bytes.get(at)?;
    let end = at.wrapping_add(modrm(bytes, at)?);
    let (is_register, rm) = (byte >> 6 == 3, prefix.register(byte));
    let effect = match byte >> 3 & 7 {
        0 | 1 if is_register && rm == RSP => Effect::Other,
        0 | 1 => Effect::None,
        2 => Effect::Call,
        4 if is_register => Effect::JumpRegister(rm),
        4 => Effect::JumpMemory,
        6 => Effect::PushOther,
        _ => return None,
    };
    ends(bytes, end, effect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_with_the_stack_pointer_changes_it() {
        assert_eq!(decode(&[0x48, 0x94]), Some((2, Effect::Other)));
        // r12, and a nop.
        assert_eq!(decode(&[0x49, 0x94]), Some((2, Effect::None)));
        assert_eq!(decode(&[0x90]), Some((1, Effect::None)));
    }

    #[test]
    fn the_bytecode_pointer_has_a_place_in_the_interpreters_frame() {
        assert_eq!(decode(&[0x4c, 0x8b, 0x6d, 0xc0]), Some((4, Effect::RestoreBytecode)));
        assert_eq!(decode(&[0x4c, 0x89, 0x6d, 0xc0]), Some((4, Effect::SaveBytecode)));
        // JDK 8; r14; 32 bits.
        assert_eq!(decode(&[0x4c, 0x8b, 0x6d, 0xc8]), Some((4, Effect::RestoreBytecode)));
        assert_eq!(decode(&[0x4c, 0x8b, 0x75, 0xc8]), Some((4, Effect::None)));
        assert_eq!(decode(&[0x44, 0x89, 0x6d, 0xc0]), Some((4, Effect::None)));
    }
}
