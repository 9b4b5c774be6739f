//! Prototypes: the source of a Lua function, and the line of a place in it. `GCproto` and `GCstr` are in
//! <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_obj.h>, the line table is read as in
//! <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_debug.c>.

use super::state::{is_proto, is_string, plausible, TYPE};
use super::Vm;
use crate::source::Source;
use uunwind_core::plugin::{Text, OWN_TEXT};

/// Size of a `GCproto` in bytes; its bytecode follows.
pub const CODE: u64 = 104;
/// Offsets: `k`, `flags`. (`sizebc` is the upper half of the word that holds the type.)
const CONSTANTS: u64 = 32;
const FLAGS: u64 = 61;
/// Limit of instructions in a function (`LJ_MAX_BCINS`).
const COUNT_LIMIT: u64 = 1 << 26;
/// Offsets: `chunkname`, `firstline` with `numline`, `lineinfo`, `uvinfo`, `varinfo`.
const CHUNK_NAME: u32 = 64;
const FIRST_LINE: u32 = 72;
const LINE_INFO: u32 = 80;
const UPVALUES: u64 = 88;
const VARIABLES: u64 = 96;
/// First line of LuaJIT's own functions that are written in Lua, which have no line table.
const NO_LINE: u32 = u32::MAX;
/// Offsets of `GCstr.len` and of the string's bytes.
const TEXT_LEN: u64 = 20;
const TEXT_BYTES: u64 = 24;

/// The fields of a prototype.
#[derive(Clone, Copy)]
pub struct Proto {
    /// Process address of the `GCproto`.
    pub address: u64,
    /// Number of bytecode instructions.
    pub count: u64,
    /// The chunk's name: the address of a `GCstr`.
    pub chunk: u64,
    /// Line of its definition, or [`NO_LINE`].
    first_line: u32,
    /// Number of lines of its definition.
    lines: u32,
    /// Address of one, two or four bytes for each instruction except the first; 0: the table was stripped.
    line_info: u64,
}

/// A prototype's bytecode, which is all that most frames need of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// Process address of the prototype.
    pub proto: u64,
    /// Number of bytecode instructions.
    pub count: u64,
}

impl Code {
    /// Address of the first instruction.
    pub fn start(&self) -> u64 {
        self.proto.wrapping_add(CODE)
    }

    /// Index of the instruction at a place, if it is in this prototype.
    #[inline(always)]
    pub fn instruction(&self, place: CodePosition) -> Option<u64> {
        let (address, back) = match place {
            CodePosition::After(pc) => (pc, 4),
            CodePosition::At(pc) => (pc, 0),
            CodePosition::Unknown => return None,
        };
        let bytes = address.checked_sub(self.start())?;
        if !bytes.is_multiple_of(4) {
            return None;
        }
        // After no instruction: the function has just been entered.
        let number = bytes.saturating_sub(back) / 4;
        (number < self.count).then_some(number)
    }

    /// Does the function take variable arguments (`PROTO_VARARG`)?
    pub fn takes_varargs(&self, vm: &Vm<'_>) -> bool {
        const VARIABLE_ARGUMENTS: u32 = 2;
        vm.half(self.proto.wrapping_add(FLAGS)).is_some_and(|flags| flags & VARIABLE_ARGUMENTS != 0)
    }
}

/// A place in a prototype's bytecode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodePosition {
    /// The instruction before this address executes: the interpreter's PC is that of the next instruction.
    After(u64),
    /// The instruction at this address executes, as snapshots of traces have it.
    At(u64),
    /// Not available.
    Unknown,
}

impl CodePosition {
    /// The place in one word; equal words are equal places. `None`: it has no possible address.
    #[inline(always)]
    pub fn word(self) -> Option<u64> {
        const KIND: u32 = 62;
        let (kind, pc) = match self {
            CodePosition::Unknown => (0, 0),
            CodePosition::After(pc) => (1, pc),
            CodePosition::At(pc) => (2, pc),
        };
        (pc >> KIND == 0).then_some(pc | kind << KIND)
    }
}

impl Proto {
    /// Reads the prototype at a process address. `None`: there is none.
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

    /// Its bytecode, as a range of process addresses.
    pub fn code(&self) -> Code {
        Code { proto: self.address, count: self.count }
    }

    /// See [`Code::instruction`].
    pub fn instruction(&self, place: CodePosition) -> Option<u64> {
        self.code().instruction(place)
    }

    /// The line of a place; that of the definition, if the place is not available or the line table was stripped.
    pub fn line(&self, vm: &Vm<'_>, place: CodePosition) -> u32 {
        let found = || {
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
            let entry = vm.guest.in_word(self.line_info.wrapping_add(number << scale))?;
            let mask = u32::MAX >> (32 - (8 << scale));
            Some(self.first_line.wrapping_add(entry as u32 & mask))
        };
        found().unwrap_or(self.defined_at())
    }

    /// Line of its definition; 0: it has none.
    pub fn defined_at(&self) -> u32 {
        if self.is_builtin() {
            0
        } else {
            self.first_line
        }
    }

    /// Is it a function that LuaJIT itself brings?
    pub fn is_builtin(&self) -> bool {
        self.first_line == NO_LINE
    }

    /// The chunk's name, or its source. `None`: it is unreadable.
    #[inline(never)]
    pub fn file(&self, vm: &Vm<'_>) -> Option<Source> {
        let len = vm.half(self.chunk.wrapping_add(TEXT_LEN))?;
        Source::of(vm.guest, utf8(self.chunk.wrapping_add(TEXT_BYTES), len))
    }

    /// Is it the main function of a chunk? These have the first line 0, and take variable arguments.
    pub fn is_chunk(&self, vm: &Vm<'_>) -> bool {
        self.first_line == 0 && self.code().takes_varargs(vm)
    }

    /// The address below which the constants are that are objects.
    pub fn constants(&self, vm: &Vm<'_>) -> Option<u64> {
        vm.word(self.address.wrapping_add(CONSTANTS))
    }

    /// Address of the names of upvalues; 0: stripped.
    pub fn upvalues(&self, vm: &Vm<'_>) -> Option<u64> {
        vm.word(self.address.wrapping_add(UPVALUES))
    }

    /// Address of the names and scopes of local variables; 0: stripped.
    pub fn variables(&self, vm: &Vm<'_>) -> Option<u64> {
        vm.word(self.address.wrapping_add(VARIABLES))
    }
}

/// The bytes of a string object.
pub fn string(vm: &Vm<'_>, object: u64) -> Option<Text> {
    /// Limit in bytes: a longer string is taken for no name.
    const LIMIT: u32 = 1 << 16;
    let len = vm.half(object.wrapping_add(TEXT_LEN)).filter(|len| is_string(vm, object) && *len < LIMIT)?;
    Some(utf8(object.wrapping_add(TEXT_BYTES), len))
}

/// The empty text.
pub const EMPTY: Text = Text { address: 0, len: 0, width: 1, utf8: 1 };

/// A text of `len` bytes in the process, as UTF-8.
pub fn utf8(address: u64, len: u32) -> Text {
    Text { address, len, width: 1, utf8: 1 }
}

/// A static text of the plugin.
pub fn own(bytes: &'static [u8]) -> Text {
    Text { utf8: 1 | OWN_TEXT, ..utf8(bytes.as_ptr() as u64, bytes.len() as u32) }
}

/// The prototype whose bytecode `pc` lies in, by a backward search for its head. For frames whose function object is
/// not available.
pub fn containing(vm: &Vm<'_>, pc: u64) -> Option<Proto> {
    /// Limit of instructions that are searched.
    const LIMIT: u64 = 4096;
    /// The range that holds the opcodes of function heads in all builds.
    const HEADS: core::ops::RangeInclusive<u8> = 85..=110;
    let mut chunk = [0u8; 64];
    let mut at = pc;
    let mut searched = 0;
    while searched < LIMIT {
        at = at.wrapping_sub(chunk.len() as u64);
        if !vm.bytes(at.wrapping_add(4), &mut chunk) {
            return None;
        }
        for (index, instruction) in chunk.chunks_exact(4).enumerate().rev() {
            let address = at.wrapping_add(4).wrapping_add(index as u64 * 4);
            if instruction.first().is_some_and(|opcode| HEADS.contains(opcode)) {
                let found = Proto::read(vm, address.wrapping_sub(CODE));
                if let Some(proto) = found.filter(|proto| proto.instruction(CodePosition::At(pc)).is_some()) {
                    return Some(proto);
                }
            }
        }
        searched += chunk.len() as u64 / 4;
    }
    None
}
