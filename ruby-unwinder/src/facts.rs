//! The facts: what the analyse half found out for the signal half about one libruby, or one executable that contains
//! it.
//!
//! Addresses are file addresses (the load bias is to be added). Offsets are in bytes from the start of the structure
//! that the field's prefix names. Each comment gives CRuby's name of the field; ASSUMPTIONS.md lists the source files.

use core::mem::size_of;
pub use uunwind_core::plugin::guest::{Extent, Plain};

/// Version of this layout.
pub const FACTS_VERSION: u32 = 3;

/// [`Facts::context`]: the variable is in the object's block of thread-local storage; the words at
/// [`Facts::context_module`] and after it are the block's module id and the variable's offset (general dynamic).
pub const CONTEXT_IN_BLOCK: u32 = 1;
/// [`Facts::context`]: as above, but [`Facts::context_offset`] is the offset (local dynamic).
pub const CONTEXT_IN_BLOCK_AT: u32 = 2;
/// [`Facts::context`]: at the distance [`Facts::context_offset`] from the thread pointer (local exec).
pub const CONTEXT_AT: u32 = 3;
/// [`Facts::context`]: at the distance that the word at [`Facts::context_module`] holds (initial exec).
pub const CONTEXT_BY_WORD: u32 = 4;

/// [`Facts::strings`]: up to 3.1, an embedded string has its length in its flags.
pub const STRINGS_BY_FLAGS: u32 = 1;
/// [`Facts::strings`]: from 3.3 on, the length is a word of its own in each string.
pub const STRINGS_BY_WORD: u32 = 2;

/// Number of ranges in [`Facts::leaving`].
pub const LEAVING: usize = 6;
/// Number of functions in [`Facts::pushing`] and in [`Facts::passing`].
pub const CALLERS: usize = 12;
/// Limit of all offsets in structures, in bytes.
const LARGEST: u32 = 1024;

uunwind_core::plain! {
    /// Facts of one object.
    #[derive(PartialEq, Eq, Debug)]
    pub struct Facts {
        /// `size_of::<Facts>()` at the time the analyser was built.
        pub size: u32,
        /// Layout version, [`FACTS_VERSION`].
        pub version: u32,
        /// Ruby's version: a byte each for major, minor and teeny, from the third lowest byte on.
        pub ruby: u32,
        /// Where the thread's execution context is found: one of the `CONTEXT_*` numbers.
        pub context: u32,
        /// See the `CONTEXT_*` numbers: a file address.
        pub context_module: u64,
        /// See the `CONTEXT_*` numbers: in bytes, modulo 2^64.
        pub context_offset: u64,
        /// File address of `ruby_global_symbols`; 0: not found, and C functions have no names.
        pub symbols: u64,

        /// `vm_exec`: the function that begins an activation.
        pub exec: Extent,
        /// `vm_exec_core`: the interpreter's loop, which it calls.
        pub core: Extent,
        /// In `vm_exec`, from where `vm_exec_core` returns, up to where the activation's tag is unlinked. Two zeros: no
        /// more.
        pub leaving: [Extent; LEAVING],
        /// Functions that make the control frame of a C function or a C block, and call it. Two zeros: no more.
        pub pushing: [Extent; CALLERS],
        /// Functions that call methods and do nothing else. Two zeros: no more.
        pub passing: [Extent; CALLERS],
        /// Bytes from the start of `vm_exec` to the end of the first store to `ec->tag`: the activation has no tag yet.
        pub exec_entry: u32,
        /// Bytes from the start of `vm_exec_core` to the end of the load of its control frame.
        pub core_entry: u32,
        /// CFA minus stack pointer in the body of `vm_exec_core`.
        pub core_frame: u32,
        /// DWARF number of the callee-saved register in which it keeps its control frame.
        pub core_register: u32,

        /// `rb_execution_context_t.vm_stack`.
        pub ec_stack: u32,
        /// `rb_execution_context_t.vm_stack_size`, in words.
        pub ec_stack_size: u32,
        /// `rb_execution_context_t.cfp`.
        pub ec_frame: u32,
        /// `rb_execution_context_t.tag`.
        pub ec_tag: u32,
        /// `rb_vm_tag.prev`.
        pub tag_previous: u32,
        /// `rb_vm_tag.state` (32 bits).
        pub tag_state: u32,

        /// `sizeof(rb_control_frame_t)`.
        pub frame_bytes: u32,
        /// `rb_control_frame_t.pc`.
        pub frame_pc: u32,
        /// `rb_control_frame_t.iseq`.
        pub frame_iseq: u32,
        /// `rb_control_frame_t.ep`.
        pub frame_ep: u32,

        /// `rb_iseq_t.body`.
        pub iseq_body: u32,
        /// `rb_iseq_constant_body.iseq_size` (32 bits).
        pub body_size: u32,
        /// `rb_iseq_constant_body.iseq_encoded`.
        pub body_code: u32,
        /// `rb_iseq_constant_body.location.pathobj`.
        pub body_path: u32,
        /// `rb_iseq_constant_body.location.base_label`.
        pub body_base_label: u32,
        /// `rb_iseq_constant_body.location.label`.
        pub body_label: u32,
        /// `rb_iseq_constant_body.location.first_lineno` (32 bits).
        pub body_first_line: u32,
        /// By how many bits it is shifted: 1 where it is a number of Ruby's.
        pub first_line_shift: u32,
        /// `rb_iseq_constant_body.insns_info.body`.
        pub body_lines: u32,
        /// `rb_iseq_constant_body.insns_info.size` (32 bits).
        pub body_lines_len: u32,
        /// `rb_iseq_constant_body.insns_info.succ_index_table`.
        pub body_index: u32,
        /// `sizeof(struct iseq_insn_info_entry)`, whose first 32 bits are the line.
        pub line_bytes: u32,

        /// `rb_method_entry_t.def`.
        pub method_definition: u32,
        /// `rb_method_entry_t.owner`.
        pub method_owner: u32,
        /// `rb_method_definition_t.original_id`.
        pub definition_id: u32,
        /// `RClass.ptr`, the address of the `rb_classext_t` (up to 3.1); 0: it follows the class.
        pub class_extension: u32,
        /// `rb_classext_t.iv_tbl`, where the two names below are (up to 3.1).
        pub extension_variables: u32,
        /// From the class to `rb_classext_t.classpath` (from 3.2 on).
        pub class_path: u32,
        /// From the class to `rb_classext_t.as.singleton_class.attached_object` (from 3.2 on).
        pub class_attached: u32,

        /// `rb_symbols_t.ids`; `last_id` (32 bits) is its first field.
        pub symbols_ids: u32,
        /// The largest id that is a token (`tLAST_OP_ID`), and its own serial number.
        pub last_operator: u32,
        /// How strings hold their length: one of the `STRINGS_*` numbers.
        pub strings: u32,
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
            self.ec_stack,
            self.ec_stack_size,
            self.ec_frame,
            self.ec_tag,
            self.tag_previous,
            self.tag_state,
            self.iseq_body,
            self.body_size,
            self.body_code,
            self.body_path,
            self.body_base_label,
            self.body_label,
            self.body_first_line,
            self.body_lines,
            self.body_lines_len,
            self.body_index,
            self.method_definition,
            self.method_owner,
            self.definition_id,
            self.class_extension,
            self.extension_variables,
            self.class_path,
            self.class_attached,
            self.symbols_ids,
        ];
        let in_frame = |offset: u32| offset.checked_add(8).is_some_and(|end| end <= self.frame_bytes);
        self.size as usize == size_of::<Facts>()
            && self.version == FACTS_VERSION
            && matches!(self.context, CONTEXT_IN_BLOCK..=CONTEXT_BY_WORD)
            && matches!(self.strings, STRINGS_BY_FLAGS | STRINGS_BY_WORD)
            && self.core_register < 16
            && self.frame_bytes.is_multiple_of(8)
            && (24..=256).contains(&self.frame_bytes)
            && [self.frame_pc, self.frame_iseq, self.frame_ep].into_iter().all(in_frame)
            && matches!(self.line_bytes, 4..=64)
            && self.first_line_shift <= 1
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
        facts.context = CONTEXT_IN_BLOCK;
        facts.strings = STRINGS_BY_FLAGS;
        facts.frame_bytes = 64;
        facts.line_bytes = 12;
        assert_eq!(Facts::read(facts.as_bytes()), Some(&facts));
        assert_eq!(Facts::read(facts.as_bytes().get(8..).unwrap_or(&[])), None, "cut");
        for spoil in [
            |f: &mut Facts| f.version += 1,
            |f: &mut Facts| f.size -= 4,
            |f: &mut Facts| f.context = 0,
            |f: &mut Facts| f.context = 5,
            |f: &mut Facts| f.strings = 3,
            |f: &mut Facts| f.core_register = 16,
            |f: &mut Facts| f.frame_bytes = 60,
            |f: &mut Facts| f.frame_bytes = 1 << 20,
            |f: &mut Facts| f.frame_ep = 60,
            |f: &mut Facts| f.frame_pc = u32::MAX,
            |f: &mut Facts| f.line_bytes = 0,
            |f: &mut Facts| f.body_index = 4096,
        ] {
            let mut bad = facts;
            spoil(&mut bad);
            assert_eq!(Facts::read(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
