//! Snapshots that belong to comparisons. Their bytecode pc is where the interpreter would continue after an exit there:
//! in the branch that the trace does *not* take (`rec_comp_fixup` in
//! <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_record.c>). The comparison is found by a search for one with a jump
//! to that pc.

use super::bytecode::{self as bc, Instruction};
use super::proto::{containing, CodePosition, Proto};
use super::Vm;

/// Size of an `IRIns` in bytes, and offset of its type and opcode:
/// <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_ir.h>.
const IR_BYTES: u64 = 8;
const IR_TYPE: u64 = 4;
const GUARD: u32 = 0x80;
/// Number of comparisons, which are the first opcodes of the intermediate representation.
const IR_COMPARISONS: u32 = 10;
/// Limit of bytecode instructions that are searched, on either side.
const REACH: u64 = 128;

/// Is the IR instruction with this number a guarded comparison, which may leave the trace? `representation`: address of
/// `GCtrace.ir`.
pub fn is_comparison(vm: &Vm<'_>, representation: u64, number: u64) -> bool {
    let instruction = representation.wrapping_add(number.wrapping_mul(IR_BYTES));
    let head = vm.half(instruction.wrapping_add(IR_TYPE));
    head.is_some_and(|head| head & GUARD != 0 && (head >> 8) & 0xff < IR_COMPARISONS)
}

/// The place of the comparison with a branch to `pc`. Of several, the first after `after`, where the trace was before,
/// if that is in the same function. `None`: there is none.
pub fn comparison(vm: &Vm<'_>, pc: u64, after: u64) -> Option<CodePosition> {
    let proto = containing(vm, pc)?;
    let target = proto.instruction(CodePosition::At(pc))?;
    let after = proto.instruction(CodePosition::At(after)).unwrap_or(0);
    let first = target.saturating_sub(REACH);
    let last = target.saturating_add(REACH).min(proto.count.saturating_sub(1));
    let leads = |index: &u64| leads_to(vm, &proto, *index, target);
    let found = (first.max(after)..last).find(leads).or_else(|| (first..last.min(after)).rev().find(leads))?;
    Some(CodePosition::At(proto.code().start().wrapping_add(found.wrapping_mul(4))))
}

/// Is the instruction at `index` a comparison, followed by a jump one of whose branches is the instruction `target`?
fn leads_to(vm: &Vm<'_>, proto: &Proto, index: u64, target: u64) -> bool {
    let compares = |i: &Instruction| bc::COMPARISONS.contains(&i.opcode);
    let jumps = |i: &Instruction| i.opcode == bc::JMP;
    if Instruction::read(vm, proto, index).filter(compares).is_none() {
        return false;
    }
    let next = index.wrapping_add(2);
    let Some(jump) = Instruction::read(vm, proto, index.wrapping_add(1)).filter(jumps) else { return false };
    target == next || target == next.wrapping_add_signed(jump.distance())
}
