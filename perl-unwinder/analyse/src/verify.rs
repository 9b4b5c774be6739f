//! Does the file's own code read the structures where the version's layout has them? A build may differ from the
//! sources by patches or options, and then nothing may be believed.

use iced_x86::{Instruction, OpKind, Register};
use uunwind_elf::Elf;
use uunwind_language::machine_code;
use uunwind_perl::facts::Facts;

/// Limit of the instructions of one function that are looked at.
const NEAR: usize = 4000;

/// The first function whose code has none of the accesses that the layout says.
pub fn differs(elf: &dyn Elf, layout: &Facts) -> Option<&'static str> {
    let line = layout.op_type.saturating_add(4);
    // Displacement and size in bytes of each memory operand.
    let expected: [(&str, &[(u32, usize)]); 6] = [
        (
            "Perl_pp_leavesub",
            &[
                (layout.interpreter_stack, 8),
                (layout.stack_contexts, 8),
                (layout.stack_index, 4),
                (layout.interpreter_cop, 8),
                (layout.context_cop, 8),
                (layout.context_return, 8),
                (layout.context_cv, 8),
            ],
        ),
        ("Perl_pp_entersub", &[(layout.cv_start, 8), (layout.context_cv, 8), (layout.interpreter_op, 8)]),
        ("Perl_caller_cx", &[(layout.stack_type, 4), (layout.stack_previous, 8), (layout.stack_contexts, 8)]),
        ("Perl_pp_caller", &[(line, 4), (layout.cop_file, 8), (layout.cv_name, 8)]),
        ("Perl_gv_fullname4", &[(layout.gv_name, 8), (layout.gv_stash, 8), (layout.hv_name, 8)]),
        ("Perl_call_sv", &[(layout.interpreter_env, 8)]),
    ];
    let differs = |(name, fields): &(&str, &[(u32, usize)])| {
        let code = elf.symbol(name).and_then(|symbol| machine_code::function(elf, symbol.address));
        let code = code.map(|span| machine_code::instructions(elf, span)).unwrap_or_default();
        !fields.iter().all(|field| code.iter().take(NEAR).any(|i| accesses(i, *field)))
    };
    expected.iter().find(|function| differs(function)).map(|(name, _)| *name)
}

/// Has the instruction this memory operand, by a register but rsp?
fn accesses(instruction: &Instruction, (displacement, size): (u32, usize)) -> bool {
    let has_memory = (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    has_memory
        && instruction.memory_displacement64() == u64::from(displacement)
        && instruction.memory_size().size() == size
        && !matches!(instruction.memory_base(), Register::RSP | Register::RIP | Register::None)
}
