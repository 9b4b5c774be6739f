//! What Go writes into `.debug_frame`, held against the code.
//!
//! Go's rows tell the CFA and the return address only, and nothing of registers: its own calling convention keeps none but the
//! frame pointer, which functions with a frame save. And of functions written in assembly they know only the pushes and pops: where
//! such a function takes another stack (`runtime.systemstack`, `runtime.asmcgocall`, calls of the vDSO), its rows lead to words that
//! are no return address. So each function's rows are checked, instruction by instruction; those of a function that moves the
//! stack pointer otherwise are not used, and the frame pointer, which Go keeps, is left to tell of it, or to end the walk.

use crate::elf::Image;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::cell::Cell;
use uunwind_core::regs::{CALLEE_SAVED, RBP};
use uunwind_core::rule::{Rule, UNKNOWN};
use uunwind_eh_frame::entry::Entry;

/// Go counts offsets in words of 4 bytes; other compilers for x86-64 count in words of 8.
const DATA_ALIGNMENT: i64 = -4;
/// What every goroutine begins in: it has no caller.
const OUTERMOST: [&str; 2] = ["runtime.goexit.abi0", "runtime.goexit"];
/// The return address alone lies between the stack pointer and the CFA.
const WITHOUT_FRAME: i32 = 8;
/// So many bytes of code are held against rows in one object, and no more: what is left is not used. Go's largest programs have
/// some 100 MiB, and functions that overlap do not count for less.
const MOST_CODE: u64 = 256 << 20;

/// A program with code of Go.
pub struct Go<'a> {
    image: &'a Image,
    outermost: Option<(u64, u64)>,
    left: Cell<u64>,
}

/// A row: from where on it holds, and the distance from the stack pointer to the CFA, if it tells that.
pub type Depth = (u64, Option<i64>);

impl<'a> Go<'a> {
    /// Of an object.
    pub fn new(image: &'a Image) -> Go<'a> {
        let outermost = OUTERMOST.iter().find_map(|name| image.any_symbol(name));
        Go { image, outermost, left: Cell::new(MOST_CODE) }
    }

    /// Whether a CIE of `.debug_frame` is Go's.
    pub fn wrote(cie: &Entry) -> bool {
        cie.data_align == DATA_ALIGNMENT
    }

    /// The rule of a row, with what Go does not tell: which registers are lost, and where the stack ends.
    pub fn rule(&self, function: &Entry, rule: Rule) -> Rule {
        if self.outermost.is_some_and(|(start, _)| start == function.start) {
            return Rule::end();
        }
        let mut rule = rule;
        for (slot, register) in rule.slots.iter_mut().zip(CALLEE_SAVED) {
            // Without a frame the frame pointer is the caller's still, or again.
            if register != RBP || rule.cfa_offset != WITHOUT_FRAME {
                *slot = UNKNOWN;
            }
        }
        rule
    }

    /// Whether the rows of a function are what its instructions do.
    pub fn agrees(&self, function: &Entry, rows: &[Depth]) -> bool {
        let len = function.end - function.start;
        // What holds debugging information alone has no code to be checked, and is not run either.
        if !self.image.holds(function.start, len) {
            return true;
        }
        let Some(left) = self.left.get().checked_sub(len) else { return false };
        self.left.set(left);
        // The file has so many bytes.
        let mut code = vec![0; len as usize];
        self.image.read_address(function.start, &mut code) && agree(&code, function.start, rows)
    }
}

/// Whether each instruction moves the stack pointer as the rows say: to the next instruction, and to where it jumps.
fn agree(code: &[u8], start: u64, rows: &[Depth]) -> bool {
    let end = start + code.len() as u64;
    let depth = |pc: u64| rows.get(rows.partition_point(|(from, _)| *from <= pc).checked_sub(1)?)?.1;
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    // A call that does not return (a panic), and the `nop` behind it, are followed by code that is reached from elsewhere.
    let mut called = false;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let (Some(before), Some(moved)) = (depth(instruction.ip()), moved(&instruction)) else { return false };
        let after = |pc: u64| !(start..end).contains(&pc) || depth(pc) == Some(before + moved);
        let flow = instruction.flow_control();
        called = matches!(flow, FlowControl::Call | FlowControl::IndirectCall)
            || called && instruction.mnemonic() == Mnemonic::Nop;
        let goes_on = matches!(flow, FlowControl::Next | FlowControl::ConditionalBranch) && !called;
        let jumps = matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
        if goes_on && !after(instruction.next_ip()) || jumps && !after(instruction.near_branch_target()) {
            return false;
        }
    }
    true
}

/// By how much an instruction moves the stack pointer down; `None`: to where nobody knows.
fn moved(instruction: &Instruction) -> Option<i64> {
    let is_sp = |n: u32| {
        instruction.op_kind(n) == OpKind::Register && instruction.op_register(n).full_register() == Register::RSP
    };
    let count = instruction.op_count();
    let number = || instruction.try_immediate(1).ok().map(|n| n as i64);
    match instruction.mnemonic() {
        Mnemonic::INVALID | Mnemonic::Leave | Mnemonic::Enter => None,
        // What is pushed is taken away again when it returns.
        Mnemonic::Call => Some(0),
        Mnemonic::Cmp | Mnemonic::Test => Some(0),
        Mnemonic::Push => Some(-i64::from(instruction.stack_pointer_increment())),
        Mnemonic::Sub if count == 2 && is_sp(0) => number(),
        Mnemonic::Add if count == 2 && is_sp(0) => number().map(i64::wrapping_neg),
        Mnemonic::Lea if is_sp(0) => {
            let plain = instruction.memory_base() == Register::RSP && instruction.memory_index() == Register::None;
            plain.then(|| (instruction.memory_displacement64() as i64).wrapping_neg())
        }
        Mnemonic::Xchg | Mnemonic::Xadd if is_sp(1) => None,
        _ if count > 0 && is_sp(0) => None,
        _ => Some(-i64::from(instruction.stack_pointer_increment())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sub $24,%rsp; call .; add $24,%rsp; ret; push %rbp; pop %rbp; ret`
    const CODE: [u8; 18] =
        [0x48, 0x83, 0xec, 24, 0xe8, 0xfb, 0xff, 0xff, 0xff, 0x48, 0x83, 0xc4, 24, 0xc3, 0x55, 0x5d, 0xc3, 0x90];

    #[test]
    fn rows_are_held_against_the_code() {
        let rows = [(100, Some(8)), (104, Some(32)), (113, Some(8)), (115, Some(16)), (116, Some(8))];
        assert!(agree(&CODE, 100, &rows));
        // Each row a byte late, another depth, or not told.
        for wrong in 1..rows.len() {
            let mut one = rows;
            one[wrong].0 += 1;
            let mut other = rows;
            other[wrong].1 = Some(40);
            let mut untold = rows;
            untold[wrong].1 = None;
            let shows = |rows: &[Depth]| !agree(&CODE, 100, rows);
            assert!(shows(&one) && shows(&other) && shows(&untold), "row {wrong}");
        }
        // mov %rdx,%rsp; and $-16,%rsp; xchg %rax,%rsp; leave; lea 8(%rbx),%rsp; mov %edx,%esp
        let strange: [&[u8]; 6] = [
            &[0x48, 0x89, 0xd4],
            &[0x48, 0x83, 0xe4, 0xf0],
            &[0x48, 0x94],
            &[0xc9],
            &[0x48, 0x8d, 0x63, 0x08],
            &[0x89, 0xd4],
        ];
        for bytes in strange {
            assert!(!agree(bytes, 0, &[(0, Some(8))]), "{bytes:x?}");
        }
        // mov %rsp,%rdx; lea 8(%rsp),%rdx; cmp %rax,%rsp; test %rsp,%rsp; mov %rax,(%rsp)
        let plain: [&[u8]; 5] = [
            &[0x48, 0x89, 0xe2],
            &[0x48, 0x8d, 0x54, 0x24, 0x08],
            &[0x48, 0x39, 0xc4],
            &[0x48, 0x85, 0xe4],
            &[0x48, 0x89, 0x04, 0x24],
        ];
        for bytes in plain {
            assert!(agree(bytes, 0, &[(0, Some(8))]), "{bytes:x?}");
        }
    }
}
