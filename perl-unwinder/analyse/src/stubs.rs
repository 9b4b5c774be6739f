//! Calls of a library's own exported functions, which lead to stubs (the procedure linkage table,
//! <https://gitlab.com/x86-psABIs/x86-64-ABI>, "Procedure Linkage Table") that jump to what a word holds.

use iced_x86::{FlowControl, Instruction};
use uunwind_elf::{Elf, Relocations, Span};
use uunwind_language::machine_code;

/// Limit in bytes of a stub up to its jump.
const STUB: u64 = 16;

/// The functions of a file that its stubs lead to.
pub struct Stubs<'r> {
    /// The words that they jump to.
    pub words: &'r Relocations,
}

impl Stubs<'_> {
    /// The file address of the function that a call leads to.
    pub fn resolve(&self, elf: &dyn Elf, target: u64) -> u64 {
        let mut jump = None;
        machine_code::each_instruction(elf, Span::sized(target, STUB), &mut |i: &Instruction| {
            let is_jump = i.flow_control() == FlowControl::IndirectBranch && i.is_ip_rel_memory_operand();
            jump = is_jump.then(|| i.ip_rel_memory_address());
            // `endbr64` may be before it.
            !is_jump && i.ip() == target
        });
        jump.and_then(|slot| self.words.word(slot)).unwrap_or(target)
    }
}
