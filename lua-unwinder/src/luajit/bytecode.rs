//! The part of LuaJIT's bytecode from which names are inferred: <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_bc.h>.
//! The opcodes up to the jumps are the same in all builds of 2.1. Function heads follow, in builds since 2026 after
//! seven bit operations.

use super::proto::Proto;
use super::Vm;

/// Opcodes: `BC_ISLT` to `BC_ISNEP`. The names below are LuaJIT's, without `BC_`.
pub const COMPARISONS: core::ops::RangeInclusive<u8> = 0..=11;
pub const MOV: u8 = 18;
const UNM: u8 = 20;
const LEN: u8 = 21;
const ADDVN: u8 = 22;
const POW: u8 = 37;
const CAT: u8 = 38;
const KPRI: u8 = 43;
pub const KNIL: u8 = 44;
pub const UGET: u8 = 45;
const FNEW: u8 = 51;
pub const GGET: u8 = 54;
const GSET: u8 = 55;
const TGETV: u8 = 56;
pub const TGETS: u8 = 57;
const TGETR: u8 = 59;
const TSETV: u8 = 60;
const TSETM: u8 = 63;
const TSETR: u8 = 64;
pub const CALLM: u8 = 65;
pub const CALLT: u8 = 68;
pub const ITERC: u8 = 69;
pub const ITERN: u8 = 70;
const RETM: u8 = 73;
const FORI: u8 = 77;
const JITERL: u8 = 84;
pub const JMP: u8 = 88;
const BIT_OPERATIONS: core::ops::RangeInclusive<u8> = 89..=95;

/// A bytecode instruction, decoded.
#[derive(Clone, Copy)]
pub struct Instruction {
    /// The opcode.
    pub opcode: u8,
    /// Operand A.
    pub a: u8,
    /// Operand D; C is its lower half.
    pub d: u16,
}

impl Instruction {
    /// The instruction of a prototype with this index. `None`: it is unreadable.
    pub fn read(vm: &Vm<'_>, proto: &Proto, index: u64) -> Option<Instruction> {
        let [opcode, a, d @ ..] = vm.half(proto.code().start().wrapping_add(index.wrapping_mul(4)))?.to_le_bytes();
        Some(Instruction { opcode, a, d: u16::from_le_bytes(d) })
    }

    /// The number of instructions that a jump skips; negative backwards.
    pub fn distance(&self) -> i64 {
        i64::from(self.d) - 0x8000
    }
}

/// Does an instruction with this opcode set slot A?
pub fn changes(opcode: u8) -> bool {
    matches!(opcode, 12 | 13 | MOV..=KPRI | UGET | FNEW..=GGET | TGETV..=TGETR) || BIT_OPERATIONS.contains(&opcode)
}

/// Does an instruction with this opcode change all slots from A on?
pub fn changes_from(opcode: u8) -> bool {
    matches!(opcode, KNIL | TSETM | CALLM..=RETM | FORI..=JITERL)
}

/// The name of the metamethod that an instruction with this opcode may call.
pub fn metamethod(opcode: u8) -> Option<&'static [u8]> {
    const ARITHMETIC: [&[u8]; 5] = [b"__add", b"__sub", b"__mul", b"__div", b"__mod"];
    match opcode {
        0 | 1 => Some(b"__lt"),
        2 | 3 => Some(b"__le"),
        4..=11 => Some(b"__eq"),
        UNM => Some(b"__unm"),
        LEN => Some(b"__len"),
        ADDVN..POW => ARITHMETIC.get(usize::from(opcode.wrapping_sub(ADDVN) % 5)).copied(),
        POW => Some(b"__pow"),
        CAT => Some(b"__concat"),
        GGET | TGETV..=TGETR => Some(b"__index"),
        GSET | TSETV..=TSETR => Some(b"__newindex"),
        _ => None,
    }
}
