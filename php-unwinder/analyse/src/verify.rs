//! Does the file's own code read the structures where the version's layout has them? A build may differ from the
//! sources by patches or options, and then nothing may be believed.
//!
//! `zend_get_executed_lineno`, `zend_get_executed_filename_ex` and `zend_get_executed_scope`
//! (<https://github.com/php/php-src/blob/PHP-8.2/Zend/zend_execute_API.c>) follow the chain to the innermost frame of
//! PHP code, and read its line, file and class.

use iced_x86::{Instruction, Register};
use uunwind_elf::Elf;
use uunwind_language::machine_code;
use uunwind_php::facts::Facts;

/// Limit of instructions from a function's start to the accesses.
const NEAR: usize = 120;

/// A field that code must read: its offset, and whether it is one of the globals.
type Field = (u32, bool);

/// The first function whose code reads other fields than the layout says.
pub fn differs(elf: &dyn Elf, layout: &Facts) -> Option<&'static str> {
    let current = (layout.globals_frame, true);
    let (function, previous) = ((layout.frame_function, false), (layout.frame_previous, false));
    let expected: [(&str, &[Field]); 4] = [
        (
            "zend_get_executed_lineno",
            &[current, function, previous, (layout.globals_opline, true), (layout.opline_line, false)],
        ),
        ("zend_get_executed_filename_ex", &[current, function, previous, (layout.code_file, false)]),
        ("zend_get_executed_scope", &[current, function, previous, (layout.function_scope, false)]),
        ("destroy_op_array", &[(layout.code_oplines, false)]),
    ];
    let differs = |(name, fields): &(&str, &[Field])| {
        let code = elf.symbol(name).and_then(|symbol| machine_code::function(elf, symbol.address));
        let code = code.map(|span| machine_code::instructions(elf, span)).unwrap_or_default();
        let is_read = |field: &Field| code.iter().take(NEAR).any(|i| reads(i, layout.globals, *field));
        !fields.iter().all(is_read)
    };
    expected.iter().find(|function| differs(function)).map(|(name, _)| *name)
}

/// Does the instruction have this field as its memory operand? Of the globals: by a register with their address, or by
/// its own address.
fn reads(instruction: &Instruction, globals: u64, (offset, is_global): Field) -> bool {
    let displacement = instruction.memory_displacement64();
    match instruction.memory_base() {
        Register::None | Register::RSP => false,
        Register::RIP => is_global && displacement == globals.wrapping_add(offset.into()),
        _ => displacement == u64::from(offset),
    }
}
