//! What Go writes into `.debug_frame`, held against the code.
//!
//! Go's rows describe the CFA and the return address only, and no registers: its own calling convention keeps none but
//! the frame pointer, which functions with a frame save; where, is read from their first instructions. And of functions
//! written in assembly they know only the pushes and pops: where such a function takes another stack
//! (`runtime.systemstack`, `runtime.asmcgocall`, calls of the vDSO), its rows lead to words that are no return address.
//! So each function's rows are checked, instruction by instruction; those of a function that moves the stack pointer
//! otherwise are not used, and the frame pointer, which Go keeps, leads to the caller or ends the walk.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::cell::Cell;
use uunwind_core::regs::{CALLEE_SAVED, RBP};
use uunwind_core::rule::{Rule, UNKNOWN};
use uunwind_eh_frame::entry::Entry;
use uunwind_elf::{Image, Symbol};

/// Go counts offsets in words of 4 bytes; other compilers for x86-64 count in words of 8.
const DATA_ALIGNMENT: i64 = -4;
/// Functions that Go itself calls outermost (TOPFRAME in runtime/asm_amd64.s): what every goroutine begins in, and the
/// start of the program, which aligns its stack pointer and never returns. Each by the name that it has since Go 1.17,
/// and before.
const OUTERMOST: [[&str; 2]; 2] =
    [["runtime.goexit.abi0", "runtime.goexit"], ["runtime.rt0_go.abi0", "runtime.rt0_go"]];
/// Address and size of each of them that a program has.
pub type Outermost = [Option<Symbol>; OUTERMOST.len()];
/// DWARF number of r12, and the index of rbp among the slots.
const R12: u8 = 12;
const RBP_SLOT: usize = 1;
/// Where a function with a frame pointer stores its caller's, in words from the CFA.
const SAVED_RBP: i16 = -2;
/// The return address alone lies between the stack pointer and the CFA.
const WITHOUT_FRAME: i32 = 8;
/// Limit of the bytes of code that are compared with rows in one object; functions beyond it are left out. Go's largest
/// programs have some 100 MiB, and functions that overlap do not count for less.
const MOST_CODE: u64 = 256 << 20;

/// A program with code of Go.
pub struct Go<'a> {
    image: &'a Image,
    outermost: Outermost,
    left: Cell<u64>,
}

/// A row: the address from which it holds, and the distance from the stack pointer to the CFA, if it describes that.
pub type Depth = (u64, Option<i64>);

impl<'a> Go<'a> {
    /// For an object; finds the functions in which its stacks end.
    pub fn new(image: &'a Image) -> Go<'a> {
        Go { image, outermost: outermost(image), left: Cell::new(MOST_CODE) }
    }

    /// Whether a stack ends in this function, whatever its rows say.
    fn is_outermost(&self, function: &Entry) -> bool {
        self.outermost.iter().flatten().any(|symbol| symbol.address == function.start)
    }

    /// Whether a CIE of `.debug_frame` is Go's.
    pub fn wrote(cie: &Entry) -> bool {
        cie.data_align == DATA_ALIGNMENT
    }

    /// The rule of a row, with what Go's rows lack: which registers are lost, and where the stack ends. `saves`: from
    /// before or after its function has saved rbp, if it is known to do so.
    pub fn rule(&self, function: &Entry, rule: Rule, saves: Option<Saves>) -> Rule {
        if self.is_outermost(function) {
            return Rule::end();
        }
        let mut rule = rule;
        for (slot, register) in rule.slots.iter_mut().zip(CALLEE_SAVED) {
            *slot = match saves {
                // Without a frame the frame pointer is the caller's still, or again.
                _ if register == RBP && rule.cfa_offset == WITHOUT_FRAME => continue,
                Some(Saves::Later) if register == RBP => continue,
                Some(Saves::Done) if register == RBP => SAVED_RBP,
                _ => UNKNOWN,
            };
        }
        rule
    }

    /// What a function's code says of its rows; `None`: they are not what its instructions do.
    pub fn agrees(&self, function: &Entry, rows: &[Depth]) -> Option<Checked> {
        let len = function.end - function.start;
        if self.is_outermost(function) {
            return Some(Checked { saved_from: None, kept: None });
        }
        // What holds debugging information alone has no code to be checked, and is not run either.
        if !self.image.holds(function.start, len) {
            return Some(Checked { saved_from: None, kept: None });
        }
        self.left.set(self.left.get().checked_sub(len)?);
        // The file has that many bytes.
        let mut code = vec![0; len as usize];
        self.image.read_address(function.start, &mut code).then_some(())?;
        let saved_from = saved_from(&code, function.start, rows);
        if agree(&code, function.start, rows, None) {
            return Some(Checked { saved_from, kept: None });
        }
        let kept =
            Kept::find(&code, function.start, rows).filter(|kept| saved_from.is_some_and(|at| at <= kept.from))?;
        agree(&code, function.start, rows, Some(&kept)).then_some(Checked { saved_from, kept: Some(kept) })
    }
}

/// A function whose rows are what its instructions do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checked {
    /// From this address on, the caller's rbp lies below the return address wherever there is a frame; before, rbp is
    /// the caller's. `None`: nothing is known of rbp where there is a frame.
    pub saved_from: Option<u64>,
    /// Where the stack pointer may be another stack's.
    pub kept: Option<Kept>,
}

/// A function keeps its stack pointer in r12, which C leaves alone, while it calls the vDSO on the thread's system
/// stack (runtime/ sys_linux_amd64.s, time_linux_amd64.s).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// After `mov %rsp,%r12`.
    pub from: u64,
    /// After `mov %r12,%rsp`.
    pub until: u64,
    /// From here on, after the return, the stack pointer is another stack's again: jumps lead there and back.
    pub again: u64,
    /// From r12 to the CFA, in bytes.
    pub depth: i32,
}

impl Kept {
    fn find(code: &[u8], start: u64, rows: &[Depth]) -> Option<Kept> {
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let (mut from, mut until, mut again) = (None, None, None);
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let next = instruction.next_ip();
            let is =
                |n: u32, register| instruction.op_count() > n && instruction.op_register(n).full_register() == register;
            let moves = |to, from| instruction.mnemonic() == Mnemonic::Mov && is(0, to) && is(1, from);
            if moves(Register::R12, Register::RSP) && from.is_none() {
                from = Some((next, i32::try_from(depth_at(rows, instruction.ip())?).ok()?));
            } else if moves(Register::RSP, Register::R12) && until.is_none() {
                until = Some(next);
            } else if until.is_some() && again.is_none() {
                again = (instruction.flow_control() == FlowControl::Return).then_some(next);
            } else if from.is_some() && (is(0, Register::R12) || is(0, Register::RBP)) {
                return None;
            }
        }
        let (from, depth) = from?;
        Some(Kept { from, until: until.filter(|until| *until > from)?, again: again?, depth })
    }

    fn covers(&self, pc: u64) -> bool {
        (self.from..self.until).contains(&pc) || pc >= self.again
    }

    /// The rule wherever it covers.
    pub fn rule(&self) -> Rule {
        let mut rule = Rule::on_other_stack(R12, self.depth);
        rule.slots[RBP_SLOT] = SAVED_RBP;
        rule
    }
}

/// How far the CFA lies from the stack pointer.
fn depth_at(rows: &[Depth], pc: u64) -> Option<i64> {
    rows.get(rows.partition_point(|(from, _)| *from <= pc).checked_sub(1)?)?.1
}

/// Whether the function has saved rbp at a pc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saves {
    /// It saves rbp at a later pc.
    Later,
    /// It has saved rbp.
    Done,
}

/// From where on a function's frame has its caller's rbp below the return address: after its first instructions, up to
/// which rbp is the caller's. Those that compare the stack's limit, and jump to where it grows, are passed. It is
/// stored as soon as there is a frame: `push %rbp`, or, until Go 1.20, `sub $n,%rsp; mov %rbp,n-8(%rsp)`.
fn saved_from(code: &[u8], start: u64, rows: &[Depth]) -> Option<u64> {
    let (framed, depth) = rows.iter().find(|(_, depth)| *depth != Some(i64::from(WITHOUT_FRAME)))?;
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let is_rbp = |n: u32| instruction.op_count() > n && instruction.op_register(n).full_register() == Register::RBP;
        if instruction.next_ip() == *framed && instruction.mnemonic() == Mnemonic::Push {
            return (is_rbp(0) && *depth == Some(16)).then_some(*framed);
        }
        if instruction.ip() == *framed {
            let place = instruction.memory_displacement64() as i64;
            let stores = instruction.mnemonic() == Mnemonic::Mov
                && is_rbp(1)
                && instruction.op_kind(0) == OpKind::Memory
                && instruction.memory_base() == Register::RSP
                && instruction.memory_index() == Register::None
                && depth.is_some_and(|depth| depth - place == -8 * i64::from(SAVED_RBP));
            return stores.then_some(instruction.next_ip());
        }
        if is_rbp(0) || instruction.ip() > *framed {
            return None;
        }
    }
    None
}

/// Where the functions are in which Go's stacks end.
pub fn outermost(image: &Image) -> Outermost {
    OUTERMOST.map(|names| names.iter().find_map(|name| image.any_symbol(name)))
}

/// Whether each instruction moves the stack pointer as the rows say: to the next instruction, and to where it jumps.
/// Where it is `kept`, they need not say.
fn agree(code: &[u8], start: u64, rows: &[Depth], kept: Option<&Kept>) -> bool {
    let end = start + code.len() as u64;
    let depth = |pc: u64| depth_at(rows, pc);
    let is_kept = |pc: u64| kept.is_some_and(|kept| kept.covers(pc));
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    // A call that does not return (a panic), and the `nop` after it, are followed by code that is reached from
    // elsewhere.
    let mut called = false;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let loaded = kept.filter(|kept| kept.until == instruction.next_ip());
        if let Some(kept) = loaded {
            if depth(kept.until) != Some(i64::from(kept.depth)) {
                return false;
            }
            continue;
        }
        if is_kept(instruction.ip()) {
            let target = instruction.near_branch_target();
            // Nothing there leads to where the stack pointer is its own again, but the instruction that loads it.
            if instruction.near_branch_target() != 0 && (start..end).contains(&target) && !is_kept(target) {
                return false;
            }
            continue;
        }
        let (Some(before), Some(moved)) = (depth(instruction.ip()), moved(&instruction)) else { return false };
        let after = |pc: u64| !(start..end).contains(&pc) || is_kept(pc) || depth(pc) == Some(before + moved);
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

/// By how much an instruction moves the stack pointer down; `None`: to an unknown place.
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
    fn where_rbp_is_saved_is_read_from_the_first_instructions() {
        // cmp 16(%r14),%rsp; jbe .; push %rbp; mov %rsp,%rbp; sub $24,%rsp
        let pushed = [0x49, 0x3b, 0x66, 0x10, 0x76, 0xfe, 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 24];
        let rows = [(100, Some(8)), (107, Some(16)), (114, Some(40))];
        assert_eq!(saved_from(&pushed, 100, &rows), Some(107));
        // sub $24,%rsp; mov %rbp,16(%rsp); lea 16(%rsp),%rbp
        let stored = [0x48, 0x83, 0xec, 24, 0x48, 0x89, 0x6c, 0x24, 16, 0x48, 0x8d, 0x6c, 0x24, 16];
        let rows = [(100, Some(8)), (104, Some(32))];
        assert_eq!(saved_from(&stored, 100, &rows), Some(109));
        // Another register, another place, rbp written before, no frame.
        for (at, byte) in [(6, 0x5c), (8, 8), (0, 0x55)] {
            let mut other = stored;
            other[at] = byte;
            assert_eq!(saved_from(&other, 100, &rows), None, "byte {at}");
        }
        assert_eq!(saved_from(&[0x31, 0xed, 0x55], 100, &[(100, Some(8)), (103, Some(16))]), None);
        assert_eq!(saved_from(&[0x53], 100, &[(100, Some(8)), (101, Some(16))]), None);
        assert_eq!(saved_from(&stored, 100, &rows[..1]), None);
    }

    #[test]
    fn rows_are_held_against_the_code() {
        let rows = [(100, Some(8)), (104, Some(32)), (113, Some(8)), (115, Some(16)), (116, Some(8))];
        assert!(agree(&CODE, 100, &rows, None));
        // Each row a byte late, another depth, or missing.
        for wrong in 1..rows.len() {
            let mut one = rows;
            one[wrong].0 += 1;
            let mut other = rows;
            other[wrong].1 = Some(40);
            let mut untold = rows;
            untold[wrong].1 = None;
            let shows = |rows: &[Depth]| !agree(&CODE, 100, rows, None);
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
            assert!(!agree(bytes, 0, &[(0, Some(8))], None), "{bytes:x?}");
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
            assert!(agree(bytes, 0, &[(0, Some(8))], None), "{bytes:x?}");
        }
    }
}
