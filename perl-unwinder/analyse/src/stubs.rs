//! Calls of a library's own exported functions, which lead to stubs (the procedure linkage table,
//! <https://gitlab.com/x86-psABIs/x86-64-ABI>, "Procedure Linkage Table") that jump to what a word holds.

use iced_x86::{FlowControl, Instruction};
use std::collections::BTreeMap;
use uunwind_elf::{Elf, Image, Span};
use uunwind_language::machine_code;

/// `DT_PLTRELSZ`, `DT_SYMTAB`, `DT_JMPREL`, and the size of their entries in bytes.
const RELOCATIONS_SIZE: i64 = 2;
const SYMBOLS: i64 = 6;
const RELOCATIONS: i64 = 23;
const ENTRY: u64 = 24;
/// Limit of relocations.
const LIMIT: u64 = 1 << 16;
/// Limit in bytes of a stub up to its jump.
const STUB: u64 = 16;

/// The functions of a file that its stubs lead to.
#[derive(Default)]
pub struct Stubs {
    /// By the file address of the word.
    slots: BTreeMap<u64, u64>,
}

impl Stubs {
    /// Reads them. A file without any has none.
    pub fn of(image: &Image) -> Stubs {
        Stubs { slots: read(image).unwrap_or_default() }
    }

    /// The file address of the function that a call leads to.
    pub fn resolve(&self, elf: &dyn Elf, target: u64) -> u64 {
        if self.slots.is_empty() || target == 0 {
            return target;
        }
        let mut jump = None;
        machine_code::each_instruction(elf, Span::sized(target, STUB), &mut |i: &Instruction| {
            let is_jump = i.flow_control() == FlowControl::IndirectBranch && i.is_ip_rel_memory_operand();
            jump = is_jump.then(|| i.ip_rel_memory_address());
            // `endbr64` may be before it.
            !is_jump && i.ip() == target
        });
        jump.and_then(|slot| self.slots.get(&slot).copied()).unwrap_or(target)
    }
}

fn read(image: &Image) -> Option<BTreeMap<u64, u64>> {
    let value = |tag| image.dynamic().value(tag);
    let (relocations, symbols) = (value(RELOCATIONS)?, value(SYMBOLS)?);
    let count = (value(RELOCATIONS_SIZE)? / ENTRY).min(LIMIT);
    let word = |address: u64| {
        let mut bytes = [0; 8];
        image.read_address(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    };
    let mut slots = BTreeMap::new();
    for index in 0..count {
        let entry = relocations.checked_add(index.checked_mul(ENTRY)?)?;
        let (slot, about) = (word(entry)?, word(entry.checked_add(8)?)?);
        let symbol = symbols.checked_add((about >> 32).checked_mul(ENTRY)?)?;
        let function = word(symbol.checked_add(8)?).filter(|address| *address != 0);
        slots.extend(function.map(|function| (slot, function)));
    }
    Some(slots)
}
