//! The table of ids, `ruby_global_symbols` (<https://github.com/ruby/ruby/blob/v3_1_2/symbol.c>): the code of
//! `rb_id2str`, or of what that jumps to or calls, compares a number with its first field and loads the field `ids`.

use iced_x86::{FlowControl, Mnemonic, OpKind, Register};
use uunwind_elf::Elf;
use uunwind_language::machine_code;
use uunwind_ruby::facts::Facts;

/// Limit of functions that are followed, and of instructions between the two accesses.
const FUNCTIONS: usize = 4;
const APART: usize = 12;

/// Its file address. `None`: it was not found.
pub fn find(elf: &dyn Elf, facts: &Facts) -> Option<u64> {
    let mut waiting = vec![elf.symbol("rb_id2str")?.address];
    let mut at = 0;
    while let Some(start) = waiting.get(at).copied() {
        at += 1;
        let Some(range) = machine_code::function(elf, start) else { continue };
        let code = machine_code::instructions(elf, range);
        for (index, compare) in code.iter().enumerate() {
            let is_rip = |i: &iced_x86::Instruction, bytes: usize| {
                i.memory_base() == Register::RIP && i.memory_size().size() == bytes
            };
            let loads = |field: u64| {
                let mut after = code.iter().skip(index).take(APART);
                after.any(|i| i.mnemonic() == Mnemonic::Mov && is_rip(i, 8) && i.memory_displacement64() == field)
            };
            let is_compared = matches!(compare.mnemonic(), Mnemonic::Cmp | Mnemonic::Mov)
                && (compare.op0_kind() == OpKind::Memory || compare.op1_kind() == OpKind::Memory)
                && is_rip(compare, 4);
            let first = compare.memory_displacement64();
            if is_compared && loads(first.wrapping_add(facts.symbols_ids.into())) {
                return Some(first);
            }
            let leads = matches!(compare.flow_control(), FlowControl::UnconditionalBranch | FlowControl::Call);
            let target = compare.near_branch_target();
            if leads && target != 0 && waiting.len() < FUNCTIONS && !waiting.contains(&target) {
                waiting.push(target);
            }
        }
    }
    None
}
