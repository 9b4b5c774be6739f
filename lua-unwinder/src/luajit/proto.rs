//! Prototypes: what names a Lua function, and the line of a place in it.

use super::state::{is_proto, is_string, plausible, TYPE};
use super::Vm;
use uunwind_core::plugin::Text;

/// Bytes of a `GCproto`; its bytecode follows.
pub const CODE: u64 = 104;
/// `sizebc` is the upper half of the word in which the type stands.
const CONSTANTS: u64 = 32;
const FLAGS: u64 = 61;
/// LuaJIT compiles no longer function.
const COUNT_LIMIT: u64 = 1 << 26;
const CHUNK_NAME: u32 = 64;
const FIRST_LINE: u32 = 72;
const LINE_INFO: u32 = 80;
const UPVALUES: u64 = 88;
const VARIABLES: u64 = 96;
/// `GCstr.sid` and, behind it, `hash`.
const TEXT_NUMBER: u64 = 12;
/// `GCstr.len`, and its bytes.
const TEXT_LEN: u64 = 20;
const TEXT_BYTES: u64 = 24;

/// A prototype, copied.
#[derive(Clone, Copy)]
pub struct Proto {
    /// Its address.
    pub address: u64,
    /// Number of bytecode instructions.
    pub count: u64,
    /// The chunk's name: a `GCstr`.
    pub chunk: u64,
    /// Line of its definition.
    pub first_line: u32,
    /// Lines of its definition.
    lines: u32,
    /// One, two or four bytes for each instruction but the first; 0 = stripped.
    line_info: u64,
}

/// A prototype's bytecode, which is all that most frames need of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// Address of the prototype.
    pub proto: u64,
    /// Number of bytecode instructions.
    pub count: u64,
}

impl Code {
    /// Address of the first instruction.
    pub fn start(&self) -> u64 {
        self.proto.wrapping_add(CODE)
    }

    /// Number of the instruction at a place, if it is one of this prototype's.
    #[inline(always)]
    pub fn instruction(&self, place: Place) -> Option<u64> {
        let (address, back) = match place {
            Place::Behind(pc) => (pc, 4),
            Place::At(pc) => (pc, 0),
            Place::Unknown => return None,
        };
        let bytes = address.checked_sub(self.start())?;
        if !bytes.is_multiple_of(4) {
            return None;
        }
        // Behind nothing: the function has just been entered.
        let number = bytes.saturating_sub(back) / 4;
        (number < self.count).then_some(number)
    }

    /// Does it take variable arguments?
    pub fn takes_varargs(&self, vm: &Vm<'_>) -> bool {
        const VARIABLE_ARGUMENTS: u32 = 2;
        vm.half(self.proto.wrapping_add(FLAGS)).is_some_and(|flags| flags & VARIABLE_ARGUMENTS != 0)
    }
}

/// A place in a prototype's bytecode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The instruction before this address was the last to begin: how the interpreter keeps its PC.
    Behind(u64),
    /// The instruction at this address is in hand: how traces' snapshots say it.
    At(u64),
    /// Nothing is known.
    Unknown,
}

impl Place {
    /// In one word; equal words are equal places. `None`: no address is like this.
    #[inline(always)]
    pub fn word(self) -> Option<u64> {
        const KIND: u32 = 62;
        let (kind, pc) = match self {
            Place::Unknown => (0, 0),
            Place::Behind(pc) => (1, pc),
            Place::At(pc) => (2, pc),
        };
        (pc >> KIND == 0).then_some(pc | kind << KIND)
    }
}

impl Proto {
    /// Reads the prototype at `address`. `None`: it is none.
    #[inline(always)]
    pub fn read(vm: &Vm<'_>, address: u64) -> Option<Proto> {
        if !plausible(address) {
            return None;
        }
        let mut words = [0; 4];
        vm.words(address, [TYPE, CHUNK_NAME, FIRST_LINE, LINE_INFO], &mut words)?;
        let [head, chunk, lines, line_info] = words;
        if !is_proto(head) {
            return None;
        }
        // The upper half of the head's word.
        let count = head >> 32;
        let proto = Proto { address, count, chunk, first_line: lines as u32, lines: (lines >> 32) as u32, line_info };
        (proto.count < COUNT_LIMIT && is_string(vm, proto.chunk)).then_some(proto)
    }

    /// Its bytecode.
    pub fn code(&self) -> Code {
        Code { proto: self.address, count: self.count }
    }

    /// See [`Code::instruction`].
    pub fn instruction(&self, place: Place) -> Option<u64> {
        self.code().instruction(place)
    }

    /// The line of a place; that of the definition where the place is not known or the chunk was stripped.
    pub fn line(&self, vm: &Vm<'_>, place: Place) -> u32 {
        let told = || {
            let number = self.instruction(place)?.checked_sub(1)?;
            if self.line_info == 0 {
                return None;
            }
            // Entries of one, two or four bytes, each within an aligned word.
            let scale = match self.lines {
                0..=0xff => 0,
                0x100..=0xffff => 1,
                _ => 2,
            };
            let entry = vm.walk.in_word(self.line_info.wrapping_add(number << scale))?;
            let mask = u32::MAX >> (32 - (8 << scale));
            Some(self.first_line.wrapping_add(entry as u32 & mask))
        };
        told().unwrap_or(self.first_line)
    }

    /// The chunk's name without the sign before it, or the first line of its text.
    #[inline(never)]
    pub fn file(&self, vm: &Vm<'_>) -> Text {
        let Some(len) = vm.half(self.chunk.wrapping_add(TEXT_LEN)) else { return EMPTY };
        let first = self.chunk.wrapping_add(TEXT_BYTES);
        let mut head = [0u8; 64];
        let Some(head) = head.get_mut(..(len as usize).min(64)).filter(|head| !head.is_empty()) else { return EMPTY };
        if !vm.bytes(first, head) {
            return EMPTY;
        }
        match head.first() {
            Some(b'@' | b'=') => utf8(first.wrapping_add(1), len.wrapping_sub(1)),
            _ => {
                let line = head.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(head.len());
                utf8(first, line as u32)
            }
        }
    }

    /// Is it the main function of a chunk? Those are defined at no line, and take variable arguments.
    pub fn is_chunk(&self, vm: &Vm<'_>) -> bool {
        self.first_line == 0 && self.code().takes_varargs(vm)
    }

    /// The constants: objects lie below, from this address downwards.
    pub fn constants(&self, vm: &Vm<'_>) -> Option<u64> {
        vm.word(self.address.wrapping_add(CONSTANTS))
    }

    /// Names of upvalues, one after the other; 0 = stripped.
    pub fn upvalues(&self, vm: &Vm<'_>) -> Option<u64> {
        vm.word(self.address.wrapping_add(UPVALUES))
    }

    /// Names and lives of local variables; 0 = stripped.
    pub fn variables(&self, vm: &Vm<'_>) -> Option<u64> {
        vm.word(self.address.wrapping_add(VARIABLES))
    }

    /// The words that tell this prototype from another that may come to lie in the same place.
    pub fn fingerprint(&self, vm: &Vm<'_>) -> u64 {
        let mut h: u64 = 0x2545_f491_4f6c_dd1d;
        let lines = u64::from(self.first_line) | u64::from(self.lines) << 32;
        // Each string gets a number of its own, also where another one lay before.
        let number = vm.word(self.chunk.wrapping_add(TEXT_NUMBER)).unwrap_or(0);
        for word in [self.count, number, lines, self.line_info] {
            h = (h ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            h ^= h >> 29;
        }
        h
    }
}

/// The bytes of a string object.
pub fn string(vm: &Vm<'_>, object: u64) -> Option<Text> {
    /// No longer one is a name.
    const LIMIT: u32 = 1 << 16;
    let len = vm.half(object.wrapping_add(TEXT_LEN)).filter(|len| is_string(vm, object) && *len < LIMIT)?;
    Some(utf8(object.wrapping_add(TEXT_BYTES), len))
}

/// A text of nothing.
pub const EMPTY: Text = Text { address: 0, len: 0, width: 1, utf8: 1 };

/// Bytes of the foreign process, as UTF-8.
pub fn utf8(address: u64, len: u32) -> Text {
    Text { address, len, width: 1, utf8: 1 }
}

/// The prototype whose bytecode `pc` lies in, by looking backwards for its head. For frames of which only the place is known.
pub fn containing(vm: &Vm<'_>, pc: u64) -> Option<Proto> {
    /// At most so many instructions are looked at.
    const LIMIT: u64 = 4096;
    /// Opcodes of function heads lie here in all builds.
    const HEADS: core::ops::RangeInclusive<u8> = 85..=110;
    let mut chunk = [0u8; 64];
    let mut at = pc;
    let mut looked = 0;
    while looked < LIMIT {
        at = at.wrapping_sub(chunk.len() as u64);
        if !vm.bytes(at.wrapping_add(4), &mut chunk) {
            return None;
        }
        for (index, instruction) in chunk.chunks_exact(4).enumerate().rev() {
            let address = at.wrapping_add(4).wrapping_add(index as u64 * 4);
            if instruction.first().is_some_and(|opcode| HEADS.contains(opcode)) {
                let found = Proto::read(vm, address.wrapping_sub(CODE));
                if let Some(proto) = found.filter(|proto| proto.instruction(Place::At(pc)).is_some()) {
                    return Some(proto);
                }
            }
        }
        looked += chunk.len() as u64 / 4;
    }
    None
}
