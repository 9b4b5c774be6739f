//! The facts: what the analyse half found out for the signal half about one PHP.
//!
//! Addresses are file addresses (the load bias is to be added). Offsets are in bytes from the start of the structure
//! that the field's prefix names. Each comment gives PHP's name of the field; ASSUMPTIONS.md lists the source files.

use core::mem::size_of;
pub use uunwind_core::plugin::guest::{Extent, Plain};

/// Version of this layout.
pub const FACTS_VERSION: u32 = 1;

/// Number of ranges in each list.
pub const RANGES: usize = 8;
/// Limit of all offsets in structures, in bytes.
const LARGEST: u32 = 4096;
/// Limit of the size of `executor_globals`, in bytes.
pub const GLOBALS_LIMIT: u32 = LARGEST;
/// Limit of the native frame of the interpreter's loop, in bytes.
const LARGEST_FRAME: u32 = 1 << 16;

uunwind_core::plain! {
    /// Facts of one object.
    #[derive(PartialEq, Eq, Debug)]
    pub struct Facts {
        /// `size_of::<Facts>()` at the time the analyser was built.
        pub size: u32,
        /// Layout version, [`FACTS_VERSION`].
        pub version: u32,
        /// PHP's version: a byte each for its three numbers, from the third lowest byte on.
        pub php: u32,
        /// Bytes from the start of `execute_ex` to the end of the instruction that loads its frame's register: before,
        /// the frame is in the register of the first argument.
        pub exec_entry: u32,
        /// Bytes from the start of `execute_ex` to the end of the instruction that loads the opline's register.
        pub exec_loaded: u32,
        /// CFA of `execute_ex` minus the address where it keeps its caller's value of the frame's register. Unwind
        /// information does not say so, because for the compiler the register is a global variable.
        pub exec_saved: u32,
        /// DWARF numbers of the registers: that of the frame, that of the opline.
        pub frame_register: u32,
        /// See [`Facts::frame_register`].
        pub opline_register: u32,

        /// File address of `executor_globals`.
        pub globals: u64,
        /// `execute_ex`: the interpreter's loop.
        pub exec: Extent,
        /// Its parts that lie elsewhere. Two zeros: no more.
        pub cold: [Extent; RANGES],
        /// In `execute_ex`, from where its caller's value of the frame's register is restored, to its return. Two
        /// zeros: no more.
        pub leaving: [Extent; RANGES],
        /// Other functions that use the frame's register as their own, and unwind information does not say so. Two
        /// zeros: no more.
        pub switching: [Extent; RANGES],

        /// `zend_executor_globals.current_execute_data`.
        pub globals_frame: u32,
        /// `zend_executor_globals.opline_before_exception`.
        pub globals_opline: u32,

        /// `zend_execute_data.opline`.
        pub frame_opline: u32,
        /// `zend_execute_data.func`.
        pub frame_function: u32,
        /// `zend_execute_data.This`: a value, whose type and call information are the 32 bits after 8 bytes.
        pub frame_this: u32,
        /// `zend_execute_data.prev_execute_data`.
        pub frame_previous: u32,

        /// `zend_function.common.fn_flags` (32 bits); the first byte is the function's type.
        pub function_flags: u32,
        /// `zend_function.common.function_name`.
        pub function_name: u32,
        /// `zend_function.common.scope`.
        pub function_scope: u32,
        /// `zend_op_array.last` (32 bits): the number of opcodes.
        pub code_len: u32,
        /// `zend_op_array.opcodes`.
        pub code_oplines: u32,
        /// `zend_op_array.filename`.
        pub code_file: u32,
        /// `zend_op_array.line_start` (32 bits).
        pub code_line: u32,

        /// `sizeof(zend_op)`.
        pub opline_bytes: u32,
        /// `zend_op.lineno` (32 bits).
        pub opline_line: u32,
        /// `zend_op.opcode` (8 bits).
        pub opline_opcode: u32,
        /// `ZEND_HANDLE_EXCEPTION`.
        pub handle_exception: u32,

        /// `zend_class_entry.name`.
        pub class_name: u32,
        /// `zend_string.len`.
        pub string_len: u32,
        /// `zend_string.val`.
        pub string_text: u32,

        /// `zend_generator.execute_data`.
        pub generator_frame: u32,
        /// `zend_generator.execute_fake`.
        pub generator_placeholder: u32,
        /// `zend_generator.node.parent`.
        pub generator_parent: u32,
        /// Zero.
        pub unused: u32,
    }
}

impl Facts {
    /// The facts that these bytes are, in place. `None` if they are cut short, not aligned, of another version, or hold
    /// what cannot be. Async-signal-safe.
    pub fn read(bytes: &[u8]) -> Option<&Facts> {
        Facts::view(bytes).filter(|facts| facts.plausible())
    }

    fn plausible(&self) -> bool {
        let offsets = [
            self.globals_frame,
            self.globals_opline,
            self.frame_opline,
            self.frame_function,
            self.frame_this,
            self.frame_previous,
            self.function_flags,
            self.function_name,
            self.function_scope,
            self.code_len,
            self.code_oplines,
            self.code_file,
            self.code_line,
            self.class_name,
            self.string_len,
            self.string_text,
            self.generator_frame,
            self.generator_placeholder,
            self.generator_parent,
        ];
        let in_opline = |offset: u32, bytes: u32| offset.checked_add(bytes).is_some_and(|end| end <= self.opline_bytes);
        self.size as usize == size_of::<Facts>()
            && self.version == FACTS_VERSION
            && self.frame_register < 16
            && self.opline_register < 16
            && (8..=LARGEST_FRAME).contains(&self.exec_saved)
            && (8..=64).contains(&self.opline_bytes)
            && in_opline(self.opline_line, 4)
            && in_opline(self.opline_opcode, 1)
            && self.handle_exception < 256
            && offsets.iter().all(|offset| *offset <= LARGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_bad_ones_are_refused() {
        let mut facts = Facts::from_bytes(&[0; size_of::<Facts>()]).expect("as many bytes");
        facts.size = size_of::<Facts>() as u32;
        facts.version = FACTS_VERSION;
        (facts.exec_saved, facts.opline_bytes, facts.opline_line, facts.opline_opcode) = (0x58, 32, 24, 28);
        assert_eq!(Facts::read(facts.as_bytes()), Some(&facts));
        assert_eq!(Facts::read(facts.as_bytes().get(8..).unwrap_or(&[])), None, "cut");
        for spoil in [
            |f: &mut Facts| f.version += 1,
            |f: &mut Facts| f.size -= 4,
            |f: &mut Facts| f.frame_register = 16,
            |f: &mut Facts| f.opline_register = 16,
            |f: &mut Facts| f.exec_saved = 0,
            |f: &mut Facts| f.exec_saved = 1 << 20,
            |f: &mut Facts| f.opline_bytes = 28,
            |f: &mut Facts| f.opline_bytes = u32::MAX,
            |f: &mut Facts| f.opline_line = u32::MAX,
            |f: &mut Facts| f.handle_exception = 256,
            |f: &mut Facts| f.code_file = 1 << 20,
        ] {
            let mut bad = facts;
            spoil(&mut bad);
            assert_eq!(Facts::read(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
