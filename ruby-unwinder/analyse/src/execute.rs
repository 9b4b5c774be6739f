//! `vm_exec` and the interpreter's loop, `vm_exec_core` (<https://github.com/ruby/ruby/blob/v3_1_2/vm.c>, `vm_exec.c`).
//!
//! `vm_exec` is exported as `rb_vm_exec`. The loop has no symbol: of the functions that `vm_exec` calls it is the one
//! with the most jumps through a register or a table.

use crate::machine::{self, dwarf, instructions, is_field};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};
use uunwind_elf::{Elf, Span};
use uunwind_ruby::facts::{Extent, Facts, LEAVING};

/// Least number of indirect jumps of the loop: one an instruction of the interpreter.
const JUMPS: usize = 64;
/// Limit of instructions from a function's start, or from a call's return, to what is sought.
const NEAR: usize = 48;
/// Limit of callees that are looked at.
const CALLEES: usize = 64;

/// What was found.
pub struct Loops {
    /// `vm_exec`.
    pub exec: Extent,
    /// See [`Facts::exec_entry`].
    pub exec_entry: u32,
    /// `vm_exec_core`.
    pub core: Extent,
    /// See [`Facts::core_entry`].
    pub core_entry: u32,
    /// See [`Facts::core_frame`].
    pub core_frame: u32,
    /// See [`Facts::core_register`].
    pub core_register: u32,
    /// See [`Facts::leaving`].
    pub leaving: Vec<Extent>,
}

/// Finds both. `None`: the code has an unexpected form.
pub fn find(elf: &dyn Elf, layout: &Facts) -> Option<Loops> {
    let exec = machine::function(elf, elf.symbol("rb_vm_exec")?.address)?;
    let code = instructions(elf, exec);
    let mut targets: Vec<u64> = code.iter().filter(|i| is_call(i)).map(Instruction::near_branch_target).collect();
    targets.sort_unstable();
    targets.dedup();
    targets.truncate(CALLEES);
    let candidates = targets.iter().filter_map(|target| machine::function(elf, *target));
    let core = candidates.max_by_key(|span| jumps(elf, *span)).filter(|span| jumps(elf, *span) >= JUMPS)?;
    let (entry, register, frame) = entry(&instructions(elf, core), layout)?;
    Some(Loops {
        exec: extent(exec),
        exec_entry: tag_store(&code, layout)?.checked_sub(exec.start)?.try_into().ok()?,
        core: extent(core),
        core_entry: entry.checked_sub(core.start)?.try_into().ok()?,
        core_frame: frame,
        core_register: register.into(),
        leaving: leaving(&code, core.start, layout),
    })
}

fn extent(span: Span) -> Extent {
    Extent { start: span.start, end: span.end }
}

fn is_call(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Call
}

fn jumps(elf: &dyn Elf, range: Span) -> usize {
    let code = instructions(elf, range);
    code.iter().filter(|i| i.flow_control() == FlowControl::IndirectBranch).count()
}

/// The end of the first store to `ec->tag`.
fn tag_store(code: &[Instruction], layout: &Facts) -> Option<u64> {
    let store = code.iter().take(NEAR).find(|i| i.mnemonic() == Mnemonic::Mov && is_field(i, 0, layout.ec_tag))?;
    Some(store.next_ip())
}

/// The end of the load of the loop's control frame; the register that it is loaded into; CFA minus stack pointer there.
fn entry(code: &[Instruction], layout: &Facts) -> Option<(u64, u8, u32)> {
    // The return address.
    let mut frame = 8u32;
    for instruction in code.iter().take(NEAR) {
        match instruction.mnemonic() {
            Mnemonic::Push => frame += 8,
            Mnemonic::Sub if instruction.op0_register() == iced_x86::Register::RSP => {
                frame = frame.checked_add(u32::try_from(instruction.immediate(1)).ok()?)?;
            }
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Memory && is_field(instruction, 1, layout.ec_frame) => {
                let register = dwarf(instruction.op0_register()).filter(|number| matches!(number, 3 | 6 | 12..=15))?;
                return Some((instruction.next_ip(), register, frame));
            }
            _ => {}
        }
    }
    None
}

/// From each return of the loop, straight on to a store to `ec->tag` or a jump.
fn leaving(code: &[Instruction], core: u64, layout: &Facts) -> Vec<Extent> {
    let mut found = Vec::new();
    for (at, _) in code.iter().enumerate().filter(|(_, i)| is_call(i) && i.near_branch_target() == core) {
        let Some(start) = code.get(at).map(Instruction::next_ip) else { continue };
        let mut end = start;
        for instruction in code.iter().skip(at + 1).take(NEAR) {
            end = instruction.next_ip();
            let unlinks = instruction.mnemonic() == Mnemonic::Mov && is_field(instruction, 0, layout.ec_tag);
            if unlinks || instruction.flow_control() == FlowControl::UnconditionalBranch {
                break;
            }
        }
        found.push(Extent { start, end });
    }
    found.truncate(LEAVING);
    found
}
