//! `vm_exec` and the interpreter's loop, `vm_exec_core` (<https://github.com/ruby/ruby/blob/v3_1_2/vm.c>, `vm_exec.c`).
//!
//! `vm_exec` is exported as `rb_vm_exec`, or, from 3.3 on, it is what `rb_iseq_eval_main` calls last. The loop has no
//! symbol: of the functions that `vm_exec` calls it is the one with the most jumps through a register or a table.

use crate::operands::is_field;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};
use uunwind_elf::{Elf, Span};
use uunwind_language::machine_code::{self, dwarf, instructions};
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
    let by_symbol = elf.symbol("rb_vm_exec").and_then(|symbol| machine_code::function(elf, symbol.address));
    let candidates = match by_symbol {
        Some(exec) => vec![exec],
        None => {
            callees(elf, &instructions(elf, machine_code::function(elf, elf.symbol("rb_iseq_eval_main")?.address)?))
        }
    };
    let (exec, core) = candidates.into_iter().find_map(|exec| Some((exec, core(elf, exec)?)))?;
    let code = instructions(elf, exec);
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

/// The functions that code calls, or leaves to.
fn callees(elf: &dyn Elf, code: &[Instruction]) -> Vec<Span> {
    let leads = |i: &&Instruction| is_call(i) || i.flow_control() == FlowControl::UnconditionalBranch;
    let mut targets: Vec<u64> = code.iter().filter(leads).map(Instruction::near_branch_target).collect();
    targets.sort_unstable();
    targets.dedup();
    targets.truncate(CALLEES);
    targets.iter().filter_map(|target| machine_code::function(elf, *target)).collect()
}

/// The interpreter's loop, if this is the function that calls it.
fn core(elf: &dyn Elf, exec: Span) -> Option<Span> {
    let callees = callees(elf, &instructions(elf, exec));
    callees.into_iter().max_by_key(|span| jumps(elf, *span)).filter(|span| jumps(elf, *span) >= JUMPS)
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

/// From each return of the loop, along jumps, up to a store to `ec->tag`: without the code from where the tag's state
/// is cleared, since something was thrown, up to the return of the call that handles it.
fn leaving(code: &[Instruction], core: u64, layout: &Facts) -> Vec<Extent> {
    let mut found: Vec<Extent> = Vec::new();
    let mut waiting: Vec<usize> = Vec::new();
    for (at, call) in code.iter().enumerate() {
        waiting.extend((is_call(call) && call.near_branch_target() == core).then_some(at + 1));
    }
    let mut next = 0;
    while let Some(from) = waiting.get(next).copied().filter(|_| found.len() < LEAVING) {
        next += 1;
        let mut start = None;
        let mut is_cleared = false;
        for instruction in code.iter().skip(from).take(NEAR) {
            if !is_cleared {
                start = start.or(Some(instruction.ip()));
            }
            let is_jump = instruction.flow_control() == FlowControl::UnconditionalBranch;
            let unlinks = instruction.mnemonic() == Mnemonic::Mov && is_field(instruction, 0, layout.ec_tag);
            if is_call(instruction) && is_cleared {
                is_cleared = false;
            } else if is_jump || unlinks || is_call(instruction) || clears(instruction) {
                found.extend(start.take().map(|start| Extent { start, end: instruction.next_ip() }));
                is_cleared |= clears(instruction);
                if is_jump || unlinks || is_call(instruction) {
                    let target = code.iter().position(|i| i.ip() == instruction.near_branch_target());
                    // Where the loop goes on after something was thrown, nothing was left.
                    waiting.extend(target.filter(|at| is_jump && !is_cleared && !waiting.contains(at)));
                    break;
                }
            }
        }
    }
    found.truncate(LEAVING);
    found
}

/// Does it store 0 in a 32-bit variable of the native frame?
fn clears(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Memory
        && matches!(instruction.memory_base(), iced_x86::Register::RSP | iced_x86::Register::RBP)
        && instruction.memory_size().size() == 4
        && matches!(instruction.op1_kind(), OpKind::Immediate32)
        && instruction.immediate(1) == 0
}
