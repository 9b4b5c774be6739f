//! The facts: what the analyse half found out for the signal half about one object that contains V8.
//!
//! Addresses are file addresses (the load bias is to be added). Offsets are in bytes from the start of the object that
//! the field's prefix names, tag not included. Each comment gives V8's name of the field; ASSUMPTIONS.md lists the
//! source files. The facts are followed by the list of builtins, and by their rows: see [`Builtin`].

use core::mem::size_of;
pub use uunwind_core::plugin::guest::Plain;

/// Version of this layout.
pub const FACTS_VERSION: u32 = 4;
/// Limit of all offsets in structures of the heap, in bytes.
const LARGEST: u32 = 1024;
/// Limit of offsets in an isolate.
const LARGEST_IN_ISOLATE: u32 = 1 << 20;
/// Limit of the machine code of all builtins, in bytes.
const LARGEST_BLOB: u32 = 16 << 20;
/// Number of callee-saved registers but rbp: rbx, r12 to r15.
pub const SAVED: usize = 5;
/// Number of bytecodes in one part of [`Facts::bytecode_sizes`], at most; there are three parts: for operands of one,
/// two and four bytes.
pub const BYTECODES: usize = 224;
/// Number of opcodes of frame translations, at most.
pub const OPCODES: usize = 64;
/// [`Facts::opcodes`]: number of operands.
pub const OPCODE_OPERANDS: u8 = 7;
/// [`Facts::opcodes`]: it begins a translation.
pub const OPCODE_BEGIN: u8 = 0x20;
/// [`Facts::opcodes`]: it is a frame.
pub const OPCODE_FRAME: u8 = 0x40;
/// [`Facts::opcodes`]: it is a frame that executes bytecode.
pub const OPCODE_FUNCTION: u8 = 0x80;

uunwind_core::plain! {
    /// Facts of one object.
    #[derive(PartialEq, Eq, Debug)]
    pub struct Facts {
        /// `size_of::<Facts>()` at the time the analyser was built.
        pub size: u32,
        /// Layout version, [`FACTS_VERSION`].
        pub version: u32,
        /// V8's version: major, minor, build.
        pub v8: [u16; 4],
        /// The machine code of the builtins (`v8_Default_embedded_blob_code_`).
        pub blob: u64,
        /// Its size in bytes.
        pub blob_size: u32,
        /// Number of builtins in the list after the facts.
        pub builtins: u32,
        /// Where the address of the thread's isolate (`g_current_isolate_`) is, from the thread pointer.
        pub isolate: i64,
        /// `Isolate.heap_.code_range_`.
        pub isolate_code_range: u32,
        /// `CodeRange.reservation_.region_`: begin and size.
        pub range_region: u32,
        /// `CodeRange.embedded_blob_code_copy_`.
        pub range_copy: u32,
        /// Where `JSEntry` saves rbx, r12, r13, r14 and r15: bytes below its frame pointer. 0: nowhere.
        pub entry_saves: [u32; SAVED],

        /// `Map.instance_type` (16 bits).
        pub map_type: u32,
        /// First and last instance type of contexts.
        pub contexts: [u16; 2],
        /// First and last instance type of functions.
        pub functions: [u16; 2],
        /// Instance types of single classes.
        pub type_shared: u16,
        /// `SCRIPT_TYPE`
        pub type_script: u16,
        /// `SCOPE_INFO_TYPE`
        pub type_scope_info: u16,
        /// `BYTECODE_ARRAY_TYPE`
        pub type_bytecode: u16,
        /// The type of tables: source positions, and offsets of bytecodes.
        pub type_bytes: u16,
        /// The type of the array of `InliningPosition`s.
        pub type_inlining: u16,
        /// `CODE_TYPE`
        pub type_code: u16,
        /// The type of an optimised function's `DeoptimizationData`.
        pub type_array: u16,
        /// `FIRST_NONSTRING_TYPE`: all below are strings.
        pub type_nonstring: u16,
        /// `ScopeType::MODULE_SCOPE`
        pub scope_module: u16,

        /// `StandardFrameConstants`: bytes below the frame pointer of context, function, bytecode array and offset.
        pub frame_context: u32,
        /// See above.
        pub frame_function: u32,
        /// See above.
        pub frame_bytecode: u32,
        /// See above.
        pub frame_offset: u32,

        /// `JSFunction.shared_function_info`
        pub function_shared: u32,
        /// `JSFunction.code`, or `JSFunction.dispatch_handle` (32 bits).
        pub function_code: u32,
        /// `Isolate.isolate_data_.js_dispatch_table_base_`, to which the handle belongs. 0: functions have their code.
        pub isolate_dispatch: u32,
        /// `Code.instruction_start`, an address.
        pub code_start: u32,
        /// `SharedFunctionInfo.name_or_scope_info`
        pub shared_name: u32,
        /// `SharedFunctionInfo.script_or_debug_info`
        pub shared_script: u32,
        /// `Script.source`
        pub script_source: u32,
        /// `Script.name`
        pub script_name: u32,
        /// `Script.line_ends`
        pub script_line_ends: u32,
        /// `Script.line_offset`: lines that precede the source in its file.
        pub script_line: u32,
        /// `Script.id`
        pub script_id: u32,
        /// `ScopeInfo.flags`, the 32 bits that hold them.
        pub scope_flags: u32,
        /// In the flags: where `has_saved_class_variable`, `function_variable` (2 bits), `has_inferred_function_name`
        /// are.
        pub scope_class_bit: u32,
        /// See above.
        pub scope_function_bit: u32,
        /// See above.
        pub scope_inferred_bit: u32,
        /// `ScopeInfo.context_local_count`
        pub scope_locals: u32,
        /// The first of the fields that may be there.
        pub scope_first: u32,
        /// `ScopeInfo.position_info`: first and last character. 0: it follows the fields that may be there.
        pub scope_positions: u32,
        /// `String.length` (32 bits)
        pub string_length: u32,
        /// `SeqString.chars`
        pub string_chars: u32,
        /// `ConsString.first`; `second` follows it. Also `ThinString.actual` and `SlicedString.parent`.
        pub string_first: u32,
        /// `ExternalString.resource_data`
        pub string_data: u32,
        /// `SlicedString.offset`
        pub string_offset: u32,
        /// `FixedArrayBase.length`
        pub array_length: u32,
        /// `FixedArray.objects`, and the bytes of a `ByteArray`.
        pub array_data: u32,
        /// `BytecodeArray.source_position_table`
        pub bytecode_positions: u32,
        /// `BytecodeArray.kHeaderSize`
        pub bytecode_first: u32,
        /// Bytes from the address of the code's object to its first instruction.
        pub code_object: u32,
        /// `Code.flags` (32 bits)
        pub code_flags: u32,
        /// `Code.instruction_size` (32 bits)
        pub code_size: u32,
        /// `Code.bytecode_offset_table`, of baseline code.
        pub code_offsets: u32,
        /// `Code.source_position_table`, of optimised code; the same field.
        pub code_positions: u32,
        /// `Code.deoptimization_data`, of optimised code.
        pub code_deoptimization: u32,
        /// Where in that are `DeoptimizationData::LiteralArray` and `InliningPositions`.
        pub deopt_literals: u32,
        /// See above.
        pub deopt_positions: u32,
        /// Likewise, `ProtectedDeoptimizationLiteralArray`: the functions' bytecode.
        pub deopt_bytecodes: u32,
        /// Likewise, the first entry of three words: offset of a bytecode, start of a frame translation, pc.
        pub deopt_entries: u32,
        /// Where the number of entries is in a safepoint table, which begins where the instructions end; what entries
        /// look like follows it.
        pub safepoint_length: u32,
        /// `CodeKind::BASELINE`
        pub kind_baseline: u32,
        /// `CodeKind::MAGLEV`
        pub kind_maglev: u32,
        /// Number of opcodes of frame translations. 0: they are not read.
        pub opcode_count: u16,
        /// Tables of source positions: number of flags in the lowest bits of an entry's first number, the rest of which
        /// is the distance in code. 0: the sign is the only flag.
        pub position_flags: u16,
        /// What an opcode is ([`OPCODE_FRAME`] and so on).
        pub opcodes: [u8; OPCODES],
        /// Number of bytecodes.
        pub bytecodes: u32,
        /// Sizes of bytecodes with their operands of one, two and four bytes.
        pub bytecode_sizes: [[u8; BYTECODES]; 3],
    }
}

/// [`Builtin::kind`]: one that runs no JavaScript function itself.
pub const OTHER: u32 = 0;
/// [`Builtin::kind`]: its frame is that of an interpreted function.
pub const INTERPRETER: u32 = 1;
/// [`Builtin::kind`]: it makes the frame of a function of baseline code.
pub const PROLOGUE: u32 = 2;
/// [`Builtin::kind`]: it executes a bytecode.
pub const HANDLER: u32 = 3;
/// [`Builtin::kind`]: C++ calls it, to enter JavaScript.
pub const ENTRY: u32 = 4;
/// [`Builtin::kind`]: it passes a call on, and may be hidden.
pub const PASSING: u32 = 5;

uunwind_core::plain! {
    /// A builtin. Sorted by address; each one ends where the next one begins.
    #[derive(PartialEq, Eq, Debug)]
    pub struct Builtin {
        /// Bytes from the start of all builtins.
        pub start: u32,
        /// Its kind in the four highest bits, and where its rows begin, in bytes from the start of all rows.
        pub rows: u32,
    }
}

impl Builtin {
    /// One of [`OTHER`] and so on.
    pub fn kind(&self) -> u32 {
        self.rows >> 28
    }

    /// Where its rows begin.
    pub fn first_row(&self) -> usize {
        (self.rows & 0x0fff_ffff) as usize
    }
}

/// Where the return address is, and whose frame rbp points to: from one instruction of a builtin to the next row. A row
/// is the distance to its first instruction from that of the row before (7 bits in a byte, the lowest first, the
/// highest bit set where more follow), and a byte; [`Framing`] stands for two rows. Before the first row, the return
/// address is at the stack pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// rbp points to this frame: the caller's rbp, and the return address above it.
    Framed,
    /// The return address is this number of words above the stack pointer; rbp is the caller's.
    Above(u32),
    /// The same, after this frame was taken down.
    Left(u32),
    /// The return address is in this register (DWARF number); rbp is the caller's, and the stack pointer, too.
    Register(u8),
    /// rbp is the caller's, and points to its frame; the return address is somewhere in between.
    Inside,
    /// Not known.
    Unknown,
}

impl State {
    const LEFT: u8 = 0x80;
    const REGISTER: u8 = 0xc0;
    const INSIDE: u8 = 0xfe;
    const UNKNOWN: u8 = 0xff;

    /// As it stands in a row.
    pub fn byte(self) -> u8 {
        match self {
            State::Framed => 0,
            State::Above(words) if words < u32::from(State::LEFT) - 1 => words as u8 + 1,
            State::Left(words) if words < u32::from(State::REGISTER - State::LEFT) => State::LEFT + words as u8,
            State::Above(_) | State::Left(_) => State::INSIDE,
            State::Register(number) => State::REGISTER | number & 15,
            State::Inside => State::INSIDE,
            State::Unknown => State::UNKNOWN,
        }
    }

    /// What a row's byte means.
    pub fn of(byte: u8) -> State {
        match byte {
            0 => State::Framed,
            State::INSIDE => State::Inside,
            _ if byte < State::LEFT => State::Above(u32::from(byte) - 1),
            _ if byte < State::REGISTER => State::Left(u32::from(byte - State::LEFT)),
            _ if byte < State::REGISTER + 16 => State::Register(byte & 15),
            _ => State::Unknown,
        }
    }
}

/// Two rows in one byte, since most builtins set frames up and leave them by the same instructions: a state for a few
/// bytes of code, and then [`State::Framed`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Framing {
    /// [`State::Above`] with one word (rbp was pushed), or [`State::Left`] with none (it was popped).
    pub first: State,
    /// Bytes of code, at most [`Framing::LONGEST`].
    pub bytes: u32,
}

impl Framing {
    /// Limit of its bytes of code.
    pub const LONGEST: u32 = 13;
    const PUSHED: u8 = 0xd0;
    const POPPED: u8 = 0xe0;

    /// As it stands in a row. `None`: there is no such byte.
    pub fn byte(self) -> Option<u8> {
        let kind = match self.first {
            State::Above(1) => Framing::PUSHED,
            State::Left(0) => Framing::POPPED,
            _ => return None,
        };
        (1..=Framing::LONGEST).contains(&self.bytes).then_some(kind | self.bytes as u8)
    }

    /// What a row's byte means, if it stands for two rows.
    pub fn of(byte: u8) -> Option<Framing> {
        let bytes = u32::from(byte & 15);
        let first = match byte & 0xf0 {
            Framing::PUSHED => State::Above(1),
            Framing::POPPED => State::Left(0),
            _ => return None,
        };
        (1..=Framing::LONGEST).contains(&bytes).then_some(Framing { first, bytes })
    }
}

/// Facts with what follows them.
#[derive(Clone, Copy)]
pub struct Whole<'f> {
    /// The facts.
    pub facts: &'f Facts,
    builtins: &'f [u8],
    rows: &'f [u8],
}

impl<'f> Whole<'f> {
    /// The facts that these bytes are, in place. `None` if they are cut short, not aligned, of another version, or hold
    /// what cannot be. Async-signal-safe.
    pub fn read(bytes: &'f [u8]) -> Option<Whole<'f>> {
        let facts = Facts::view(bytes).filter(|facts| facts.plausible())?;
        let rest = bytes.get(size_of::<Facts>()..)?;
        let len = (facts.builtins as usize).checked_mul(size_of::<Builtin>())?;
        Some(Whole { facts, builtins: rest.get(..len)?, rows: rest.get(len..)? })
    }

    fn builtin(&self, index: usize) -> Option<Builtin> {
        let at = index.checked_mul(size_of::<Builtin>())?;
        Builtin::from_bytes(self.builtins.get(at..)?)
    }

    /// The builtin at this distance from the start of all builtins, and its state there. Async-signal-safe.
    pub fn at(&self, offset: u32) -> Option<(Builtin, State)> {
        let (mut low, mut high) = (0, self.facts.builtins as usize);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.builtin(middle)?.start <= offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let index = low.checked_sub(1)?;
        let builtin = self.builtin(index)?;
        let end = self.builtin(low).map_or(self.rows.len(), |next| next.first_row());
        let rows = self.rows.get(builtin.first_row()..end)?;
        Some((builtin, state_in(rows, offset.wrapping_sub(builtin.start))))
    }
}

/// The state at a distance from a builtin's start, by its rows.
fn state_in(rows: &[u8], offset: u32) -> State {
    let (mut state, mut from, mut distance, mut shift) = (State::Above(0), 0u32, 0u32, 0u32);
    let mut is_state = false;
    for byte in rows {
        if is_state {
            if from > offset {
                break;
            }
            is_state = false;
            state = State::of(*byte);
            let Some(framing) = Framing::of(*byte) else { continue };
            state = framing.first;
            from = from.saturating_add(framing.bytes);
            if from > offset {
                break;
            }
            state = State::Framed;
        } else {
            distance |= u32::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                from = from.saturating_add(distance);
                (distance, shift, is_state) = (0, 0, true);
            }
        }
    }
    state
}

impl Facts {
    /// V8's version as text has it.
    fn plausible(&self) -> bool {
        let offsets = [
            self.range_region,
            self.range_copy,
            self.map_type,
            self.frame_context,
            self.frame_function,
            self.frame_bytecode,
            self.frame_offset,
            self.function_shared,
            self.function_code,
            self.code_start,
            self.shared_name,
            self.shared_script,
            self.script_source,
            self.script_name,
            self.script_line_ends,
            self.script_line,
            self.script_id,
            self.scope_flags,
            self.scope_locals,
            self.scope_first,
            self.scope_positions,
            self.string_length,
            self.string_chars,
            self.string_first,
            self.string_data,
            self.string_offset,
            self.array_length,
            self.array_data,
            self.bytecode_positions,
            self.bytecode_first,
            self.code_object,
            self.code_flags,
            self.code_size,
            self.code_offsets,
            self.code_positions,
            self.code_deoptimization,
        ];
        self.size as usize == size_of::<Facts>()
            && self.version == FACTS_VERSION
            && self.blob_size <= LARGEST_BLOB
            && self.isolate_code_range <= LARGEST_IN_ISOLATE
            && self.isolate_code_range.is_multiple_of(8)
            && self.isolate_dispatch <= LARGEST_IN_ISOLATE
            && self.isolate_dispatch.is_multiple_of(8)
            && self.contexts[0] <= self.contexts[1]
            && self.functions[0] <= self.functions[1]
            && self.entry_saves.iter().all(|below| *below <= LARGEST && below.is_multiple_of(8))
            && self.bytecodes as usize <= BYTECODES
            && self.deopt_literals <= 64
            && self.deopt_positions <= 64
            && self.deopt_bytecodes <= 64
            && self.deopt_entries <= 64
            && self.safepoint_length <= 64
            && self.position_flags <= 8
            && self.opcode_count as usize <= OPCODES
            && offsets.iter().all(|offset| *offset <= LARGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_rows_mean_one_thing() {
        for byte in 0..=u8::MAX {
            match Framing::of(byte) {
                Some(framing) => {
                    assert_eq!((framing.byte(), State::of(byte)), (Some(byte), State::Unknown));
                }
                None if State::of(byte) != State::Unknown => assert_eq!(State::of(byte).byte(), byte),
                None => {}
            }
        }
    }

    #[test]
    fn rows_are_read() {
        // push %rbp at 0; mov %rsp,%rbp; at 200 popped, 3 bytes; at 300 unknown.
        let rows = [1, 0xd3, 0xc4, 0x01, 0xe3, 97, 0xff];
        let expected = [
            (0, State::Above(0)),
            (1, State::Above(1)),
            (3, State::Above(1)),
            (4, State::Framed),
            (199, State::Framed),
            (200, State::Left(0)),
            (202, State::Left(0)),
            (203, State::Framed),
            (299, State::Framed),
            (300, State::Unknown),
        ];
        for (at, state) in expected {
            assert_eq!(state_in(&rows, at), state, "{at}");
        }
    }
}
