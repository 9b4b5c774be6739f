//! Finds `luaV_execute` among all functions of a file. No symbol names it, so it is recognised by what it does: it
//! decodes bytecode with shifts and masks, of which no other function has as many, and jumps through a table. Source:
//! <https://github.com/lua/lua/blob/v5.4.0/lvm.c>, and the instructions' fields in
//! <https://github.com/lua/lua/blob/v5.4.0/lopcodes.h>.

use crate::detect::Version;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use uunwind_elf::{Elf, Function, Span};
use uunwind_language::machine_code::{dwarf, each_instruction};
use uunwind_lua::puc::facts::{Extent, Facts, Location};

/// Least size of the loop in bytes.
const SHORTEST: u64 = 2500;
/// Least number of decoding steps in the loop.
const LEAST: u32 = 40;
/// Limit of parts of the loop's function, the main one included: the facts have no more places for them.
const PARTS: usize = 4;
/// Limit of instructions in which the mark and the loop's head are searched.
const FIRST: u32 = 60;
/// DWARF number of rsp.
const RSP: u8 = 7;

/// `luaV_execute`, as it was found.
pub struct Execute {
    /// The function with its entry.
    pub main: Function,
    /// Its code: `main`, and parts that the compiler has split off.
    pub parts: Vec<Span>,
    /// The register that it stores most often as the saved pc: it holds the bytecode pc.
    pub pc: Location,
    /// The register by which it addresses the saved pc most often: it holds `ci`, or 5.1's `L`.
    pub info: Location,
}

/// Finds `luaV_execute`. `saved_pc`: offset of the saved pc in `CallInfo` (5.1: in `lua_State`). Errors: the reason why
/// it was not recognised.
pub fn find(elf: &dyn Elf, functions: &[Function], version: Version, saved_pc: u32) -> Result<Execute, String> {
    let mut scores: Vec<(u32, Function)> = functions
        .iter()
        .filter(|f| f.span.end - f.span.start >= SHORTEST)
        .map(|f| (score(elf, f.span, version), *f))
        .collect();
    scores.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    let (best, second) = (scores.first(), scores.get(1).map_or(0, |(score, _)| *score));
    let main = match best {
        Some((score, main)) if *score >= LEAST && *score >= second * 2 => *main,
        Some((score, _)) => {
            return Err(format!(
                "Lua {version} whose interpreter loop was not recognised (best marks {score} and {second})"
            ))
        }
        None => return Err(format!("Lua {version} without unwind information for its interpreter loop")),
    };
    let mut uses = Uses::default();
    let parts = follow(elf, functions, &main, &mut |i| uses.look(i, saved_pc));
    Ok(Execute { main, parts, pc: most(&uses.stored), info: most(&uses.bases) })
}

/// The number of steps that decode bytecode; 0 if there is no jump through a table, or a kind of step is missing.
fn score(elf: &dyn Elf, range: Span, version: Version) -> u32 {
    let shifts: &[u64] = if version.minor <= 3 { &[6, 14, 23] } else { &[7, 16, 24] };
    let mask = if version.minor <= 3 { 0x3f } else { 0x7f };
    let mut counts = [0u32; 3];
    let (mut masks, mut tables) = (0, 0);
    each_instruction(elf, range, &mut |i| {
        match i.mnemonic() {
            Mnemonic::Shr | Mnemonic::Sar if is_immediate(i) => {
                if let Some(at) = shifts.iter().position(|shift| *shift == i.immediate(1)) {
                    counts[at] += 1;
                }
            }
            Mnemonic::And if is_immediate(i) => masks += u32::from(i.immediate(1) == mask),
            Mnemonic::Jmp if i.flow_control() == FlowControl::IndirectBranch => tables += 1,
            _ => {}
        }
        true
    });
    if tables == 0 || masks == 0 || counts.contains(&0) {
        return 0;
    }
    counts.iter().sum::<u32>() + masks
}

fn is_immediate(i: &Instruction) -> bool {
    i.op_count() == 2 && i.op0_kind() == OpKind::Register && !matches!(i.op1_kind(), OpKind::Register | OpKind::Memory)
}

/// Bytes from the function's start to the end of the first store to a field at the offset `status`: the CallInfo's
/// mark. 0: not found.
pub fn marked(elf: &dyn Elf, main: &Function, status: u32) -> u32 {
    let (mut end, mut left) = (0, FIRST);
    each_instruction(elf, main.span, &mut |i| {
        left -= 1;
        let there = i.op0_kind() == OpKind::Memory
            && i.memory_base() != Register::RSP
            && i.memory_index() == Register::None
            && matches!(i.mnemonic(), Mnemonic::Or | Mnemonic::Mov)
            && i.memory_displacement64() == u64::from(status);
        if there {
            end = u32::try_from(i.next_ip() - main.span.start).unwrap_or(0);
        }
        !there && left > 0
    });
    end
}

/// Bytes from the function's start to the loop's: to the first instruction to which many jump back, if there is no
/// branch before it. 0: there is none near the start.
pub fn to_loop(elf: &dyn Elf, main: &Function) -> u32 {
    /// Least number of opcodes that end in a jump to the loop's head.
    const MANY: usize = 8;
    let (start, mut straight, mut left) = (main.span.start, main.span.start, FIRST);
    each_instruction(elf, main.span, &mut |i| {
        left -= 1;
        straight = i.ip();
        i.flow_control() == FlowControl::Next && left > 0
    });
    let mut targets = Vec::new();
    each_instruction(elf, main.span, &mut |i| {
        if matches!(i.flow_control(), FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch) {
            targets.push(i.near_branch_target());
        }
        true
    });
    targets.retain(|target| (start..=straight).contains(target));
    targets.sort_unstable();
    let first = targets.chunk_by(|a, b| a == b).find(|same| same.len() >= MANY);
    first.and_then(|same| u32::try_from(same.first()? - start).ok()).unwrap_or(0)
}

/// 5.2: from the instruction after the load of a called function's `ci` to the end of the one that marks it.
pub fn marking(elf: &dyn Elf, parts: &[Span], facts: &Facts) -> Extent {
    let mut found = Extent::default();
    for part in parts {
        let mut loaded = (Register::None, 0);
        each_instruction(elf, *part, &mut |i| {
            let at = |offset: u32| i.memory_index() == Register::None && i.memory_displacement64() == u64::from(offset);
            if i.mnemonic() == Mnemonic::Mov && i.op1_kind() == OpKind::Memory && at(facts.state.ci) {
                loaded = (i.op0_register(), i.next_ip());
            }
            let marks = i.mnemonic() == Mnemonic::Or && i.op0_kind() == OpKind::Memory && at(facts.info.status);
            if marks && i.memory_base() == loaded.0 && is_immediate_mark(i, facts.info.fresh_mask) {
                found = Extent { start: loaded.1, end: i.next_ip() };
            }
            found.end == 0
        });
    }
    found
}

fn is_immediate_mark(i: &Instruction, mark: u32) -> bool {
    i.op_count() == 2 && i.op1_kind() != OpKind::Register && i.immediate(1) == u64::from(mark)
}

/// The function, and the parts that it jumps to outside of itself. Calls `look` with all their instructions.
fn follow(elf: &dyn Elf, functions: &[Function], main: &Function, look: &mut dyn FnMut(&Instruction)) -> Vec<Span> {
    let mut parts = vec![main.span];
    let mut at = 0;
    while let Some(part) = parts.get(at).copied() {
        at += 1;
        let mut targets = Vec::new();
        each_instruction(elf, part, &mut |i| {
            if matches!(i.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch) {
                targets.push(i.near_branch_target());
            }
            look(i);
            true
        });
        for target in targets {
            let before = functions.partition_point(|f| f.span.start <= target);
            let Some(holder) = before.checked_sub(1).and_then(|at| functions.get(at)) else { continue };
            // A jump to a function's first byte is a tail call, unless that code begins with a frame on the stack.
            let split = holder.span.start != target || holder.cfa_offset > 8;
            let new = !parts.contains(&holder.span) && parts.len() < PARTS;
            if holder.span.contains(target) && split && new {
                parts.push(holder.span);
            }
        }
    }
    parts
}

/// How often each register, by DWARF number, occurs in accesses to the saved pc.
#[derive(Default)]
struct Uses {
    /// As the value that is stored.
    stored: [u32; 16],
    /// As the base of the address.
    bases: [u32; 16],
}

impl Uses {
    fn look(&mut self, i: &Instruction, saved_pc: u32) {
        let memory = (0..i.op_count()).any(|operand| i.op_kind(operand) == OpKind::Memory);
        let there = memory
            && i.memory_displacement64() == u64::from(saved_pc)
            && i.memory_index() == Register::None
            && i.memory_size().size() == 8;
        let Some(base) = dwarf(i.memory_base()).filter(|base| there && *base != RSP) else { return };
        if let Some(count) = self.bases.get_mut(usize::from(base)) {
            *count += 1;
        }
        let stores = i.mnemonic() == Mnemonic::Mov && i.op0_kind() == OpKind::Memory;
        let source = dwarf(i.op1_register()).filter(|_| stores).map(usize::from);
        if let Some(count) = source.and_then(|source| self.stored.get_mut(source)) {
            *count += 1;
        }
    }
}

fn most(counts: &[u32; 16]) -> Location {
    let most = counts.iter().enumerate().max_by_key(|(_, count)| **count);
    most.filter(|(_, count)| **count > 0).map_or(Location::NONE, |(register, _)| Location::register(register as u8))
}
