//! `execute_ex`, the interpreter's loop (<https://github.com/php/php-src/blob/PHP-8.2/Zend/zend_vm_execute.h>): where
//! it keeps its frame and its opcode, and where their registers' former values are.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::BTreeSet;
use uunwind_elf::{Elf, Function, Span};
use uunwind_language::machine_code::{self, dwarf, instructions};
use uunwind_php::facts::{Extent, RANGES};

/// `ZEND_VM_KIND_HYBRID`: the loop keeps its frame and its opcode in registers of their own.
const HYBRID: u64 = 4;
/// Limit of instructions from a function's start to what is sought.
const NEAR: usize = 48;
/// One of the functions that set the frame's register and set it back.
const SWITCHES: &str = "zend_init_func_execute_data";
/// Limit of the functions that are searched, in bytes.
const LARGEST: u64 = 16 << 10;

/// What was found.
pub struct Loop {
    /// `execute_ex`.
    pub exec: Extent,
    /// See [`uunwind_php::facts::Facts::cold`].
    pub cold: Vec<Extent>,
    /// See [`uunwind_php::facts::Facts::leaving`].
    pub leaving: Vec<Extent>,
    /// See [`uunwind_php::facts::Facts::switching`].
    pub switching: Vec<Extent>,
    /// How it begins.
    pub entry: Entry,
}

/// How the loop begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// File address after the load of the frame's register.
    pub frame_loaded: u64,
    /// File address after the load of the opline's register.
    pub opline_loaded: u64,
    /// DWARF numbers of the registers of the frame and of the opline.
    pub registers: (u8, u8),
    /// How its body finds its frame.
    pub base: Base,
    /// CFA minus the address of the frame register's former value.
    pub saved: u32,
}

/// The register from which a function's body addresses its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    /// rsp or rbp.
    register: Register,
    /// CFA minus its value.
    below_cfa: u32,
}

impl Base {
    /// CFA minus the address of a memory operand, if it is a word of the frame.
    fn slot(&self, instruction: &Instruction) -> Option<u32> {
        let is_plain = instruction.memory_base() == self.register && instruction.memory_index() == Register::None;
        let distance = (instruction.memory_displacement64() as i64).checked_neg()?;
        let below = i64::from(self.below_cfa).checked_add(distance).filter(|_| is_plain)?;
        u32::try_from(below).ok().filter(|below| *below >= 8)
    }

    /// What [`Function::cfa_offset`] says of a function's part that begins with this frame.
    fn cfa_offset(&self) -> u64 {
        if self.register == Register::RSP {
            self.below_cfa.into()
        } else {
            0
        }
    }
}

/// Is the loop built with registers of its own? `None`: the file does not say.
pub fn is_hybrid(elf: &dyn Elf) -> Option<bool> {
    let code = instructions(elf, machine_code::function(elf, elf.symbol("zend_vm_kind")?.address)?);
    let load = code.iter().find(|i| i.mnemonic() == Mnemonic::Mov && i.op0_register() == Register::EAX)?;
    (load.op1_kind() == OpKind::Immediate32).then(|| load.immediate(1) == HYBRID)
}

/// Finds the loop. `None`: the code has an unexpected form.
pub fn find(elf: &dyn Elf) -> Option<Loop> {
    let exec = machine_code::function(elf, elf.symbol("execute_ex")?.address)?;
    let code = instructions(elf, exec);
    // All of it was decoded, or parts that lie elsewhere might be missed.
    if code.last()?.next_ip() != exec.end {
        return None;
    }
    let entry = entry(&code)?;
    let cold = cold(elf, exec, &code, &entry.base);
    let leaving = leaving(&code, &entry)?;
    let switching = switching(elf, exec, &code, entry.registers.0);
    let known = elf.symbol(SWITCHES)?.address;
    let is_whole = switching.iter().any(|range| range.start == known)
        && [&cold, &leaving, &switching].iter().all(|list| list.len() <= RANGES);
    is_whole.then_some(Loop { exec: extent(exec), cold, leaving, switching, entry })
}

fn extent(span: Span) -> Extent {
    Extent { start: span.start, end: span.end }
}

/// Reads the loop's start: `mov [rsp + saved], frame; mov frame, rdi; ... mov opline, [frame]`, or the same by rbp.
fn entry(code: &[Instruction]) -> Option<Entry> {
    // The return address.
    let mut frame_bytes = 8u32;
    let mut by_rbp = None;
    let mut saved = Vec::new();
    let mut loaded = None;
    for instruction in code.iter().take(NEAR) {
        let (to, from) = (instruction.op0_register(), instruction.op1_register());
        let base = by_rbp.unwrap_or(Base { register: Register::RSP, below_cfa: frame_bytes });
        match instruction.mnemonic() {
            Mnemonic::Push => frame_bytes = frame_bytes.checked_add(8)?,
            Mnemonic::Sub if to == Register::RSP => {
                frame_bytes = frame_bytes.checked_add(u32::try_from(instruction.immediate(1)).ok()?)?;
            }
            Mnemonic::Mov if to == Register::RBP && from == Register::RSP => {
                by_rbp = Some(Base { register: Register::RBP, below_cfa: frame_bytes });
            }
            Mnemonic::Mov if instruction.op0_kind() == OpKind::Memory => {
                saved.extend(base.slot(instruction).map(|slot| (dwarf(from), slot)));
            }
            Mnemonic::Mov if from == Register::RDI && loaded.is_none() => {
                let register = dwarf(to).filter(|number| matches!(number, 3 | 6 | 12..=15))?;
                let (_, slot) = saved.iter().find(|(saved, _)| *saved == Some(register))?;
                loaded = Some((register, instruction.next_ip(), *slot));
            }
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Memory => {
                let Some((register, frame_loaded, saved)) = loaded else { continue };
                let address = instruction.memory_base();
                let is_frame = address == Register::RDI || dwarf(address) == Some(register);
                let is_first = instruction.memory_displacement64() == 0 && instruction.memory_index() == Register::None;
                if is_frame && is_first && instruction.memory_size().size() == 8 {
                    let opline = dwarf(to).filter(|number| matches!(number, 3 | 6 | 12..=15) && *number != register)?;
                    let opline_loaded = instruction.next_ip();
                    return Some(Entry { frame_loaded, opline_loaded, registers: (register, opline), base, saved });
                }
            }
            _ => {}
        }
    }
    None
}

/// From each place that restores the frame's register, to the return.
fn leaving(code: &[Instruction], entry: &Entry) -> Option<Vec<Extent>> {
    let restores = |i: &Instruction| {
        i.mnemonic() == Mnemonic::Mov
            && i.op1_kind() == OpKind::Memory
            && dwarf(i.op0_register()) == Some(entry.registers.0)
            && entry.base.slot(i) == Some(entry.saved)
    };
    let mut ranges = Vec::new();
    for (at, restore) in code.iter().enumerate().filter(|(_, i)| restores(i)) {
        let after = code.iter().skip(at).take(NEAR);
        let end = after.clone().find(|i| i.flow_control() == FlowControl::Return)?;
        ranges.push(Extent { start: restore.next_ip(), end: end.next_ip() });
    }
    (!ranges.is_empty()).then_some(ranges)
}

/// The parts that the compiler has put elsewhere: what the loop jumps to and is part of a function with its frame.
fn cold(elf: &dyn Elf, exec: Span, code: &[Instruction], base: &Base) -> Vec<Extent> {
    let targets = code.iter().filter(is_jump).map(Instruction::near_branch_target);
    let functions = elf.functions();
    let outside = targets.filter(|target| !(exec.start..exec.end).contains(target)).filter_map(|target| {
        let at = functions.partition_point(|function| function.span.start <= target).checked_sub(1)?;
        functions.get(at).filter(|f| f.span.end > target && f.cfa_offset == base.cfa_offset())
    });
    let mut parts: Vec<Extent> = outside.map(|function| extent(function.span)).collect();
    parts.sort_by_key(|part| part.start);
    parts.dedup();
    parts
}

/// Functions that keep the frame's register in another place, set it, and set it back, and that the loop does not call
/// itself: in those that it calls, the register is its own.
fn switching(elf: &dyn Elf, exec: Span, code: &[Instruction], frame: u8) -> Vec<Extent> {
    let handlers = handlers(elf, code);
    let is_other = |function: &Function| {
        let span = function.span;
        function.cfa_offset == 8 && span.start != exec.start && span.end - span.start <= LARGEST
    };
    let functions = elf.functions().into_iter().filter(is_other).map(|function| function.span);
    let others = functions.filter(|span| !handlers.contains(&span.start));
    others.filter(|span| switches(&instructions(elf, *span), frame)).map(extent).collect()
}

/// Starts of the functions that the loop calls, and of those that they jump to.
fn handlers(elf: &dyn Elf, code: &[Instruction]) -> BTreeSet<u64> {
    let calls = code.iter().filter(|i| i.flow_control() == FlowControl::Call);
    let functions = elf.functions();
    let around = |address: u64| {
        let at = functions.partition_point(|function| function.span.start <= address).checked_sub(1)?;
        functions.get(at).map(|function| function.span).filter(|span| span.end > address)
    };
    let mut waiting: Vec<Span> = calls.filter_map(|call| around(call.near_branch_target())).collect();
    let mut found = BTreeSet::new();
    while let Some(span) = waiting.pop() {
        if !found.insert(span.start) {
            continue;
        }
        let code = instructions(elf, span);
        let targets = code.iter().filter(is_jump).map(Instruction::near_branch_target);
        waiting.extend(targets.filter(|target| !(span.start..span.end).contains(target)).filter_map(around));
    }
    found
}

fn is_jump(i: &&Instruction) -> bool {
    matches!(i.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
}

/// Does it set the frame's register back to what it was, without having pushed it?
fn switches(code: &[Instruction], frame: u8) -> bool {
    let is_frame = |register: Register| dwarf(register) == Some(frame);
    if code.iter().any(|i| i.mnemonic() == Mnemonic::Push && is_frame(i.op0_register())) {
        return false;
    }
    let moves = |i: &&Instruction| i.mnemonic() == Mnemonic::Mov;
    let kept: Vec<Place> =
        code.iter().filter(moves).filter(|i| is_frame(i.op1_register())).filter_map(Place::to).collect();
    let mut back = code.iter().filter(moves).filter(|i| is_frame(i.op0_register())).filter_map(Place::from);
    back.any(|place| kept.contains(&place))
}

/// Where a value is kept: a register, or a place on the stack.
#[derive(PartialEq)]
enum Place {
    Register(Register),
    Stack(u64),
}

impl Place {
    fn of(i: &Instruction, operand: OpKind, register: Register) -> Option<Place> {
        match operand {
            OpKind::Register => Some(Place::Register(register)),
            OpKind::Memory if i.memory_base() == Register::RSP => Some(Place::Stack(i.memory_displacement64())),
            _ => None,
        }
    }

    fn to(i: &Instruction) -> Option<Place> {
        Place::of(i, i.op0_kind(), i.op0_register())
    }

    fn from(i: &Instruction) -> Option<Place> {
        Place::of(i, i.op1_kind(), i.op1_register())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn decoded(code: &[u8]) -> Vec<Instruction> {
        Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).into_iter().collect()
    }

    /// As objdump shows Debian's php8.2, without the stack protector.
    const START: [u8; 31] = [
        0x41, 0x55, 0x41, 0x54, 0x55, 0x53, 0x48, 0x83, 0xec, 0x78, 0x31, 0xc0, 0x4c, 0x89, 0x74, 0x24, 0x48, 0x49,
        0x89, 0xfe, 0x4c, 0x89, 0x7c, 0x24, 0x40, 0x48, 0x85, 0xff, 0x4c, 0x8b, 0x3f,
    ];

    #[test]
    fn the_start_shows_the_registers() {
        let found = entry(&decoded(&START));
        let base = Base { register: Register::RSP, below_cfa: 0xa0 };
        let expected = Entry { frame_loaded: 0x1014, opline_loaded: 0x101f, registers: (14, 15), base, saved: 0x58 };
        assert_eq!(found, Some(expected));
        // The register is not saved, or is loaded from elsewhere.
        for (at, byte) in [(13, 0x90), (14, 0x6c), (19, 0xf6), (30, 0x3e)] {
            let mut other = START;
            other[at] = byte;
            assert_eq!(entry(&decoded(&other)), None, "{at}");
        }
    }

    /// As objdump shows Debian's php8.4, without the stack protector.
    const BY_RBP: [u8; 33] = [
        0x55, 0x48, 0x89, 0xe5, 0x41, 0x55, 0x41, 0x54, 0x53, 0x48, 0x83, 0xec, 0x78, 0x31, 0xc0, 0x4c, 0x89, 0x75,
        0xc8, 0x49, 0x89, 0xfe, 0x4c, 0x89, 0x7d, 0xc0, 0x48, 0x85, 0xff, 0x90, 0x4c, 0x8b, 0x3f,
    ];

    #[test]
    fn a_frame_by_rbp_is_read() {
        let base = Base { register: Register::RBP, below_cfa: 16 };
        let expected = Entry { frame_loaded: 0x1016, opline_loaded: 0x1021, registers: (14, 15), base, saved: 0x48 };
        assert_eq!(entry(&decoded(&BY_RBP)), Some(expected));
        // mov r14, [rbp - 0x38]; mov r15, [rbp - 0x40]; pop rbx; ret
        let end = [0x4c, 0x8b, 0x75, 0xc8, 0x4c, 0x8b, 0x7d, 0xc0, 0x5b, 0xc3];
        assert_eq!(leaving(&decoded(&end), &expected), Some(vec![Extent { start: 0x1004, end: 0x100a }]));
    }

    #[test]
    fn a_function_that_sets_the_register_back_is_recognised() {
        // mov r12, r14; mov r14, rdi; mov r14, r12
        let code = [0x4d, 0x89, 0xf4, 0x49, 0x89, 0xfe, 0x4d, 0x89, 0xe6];
        assert!(switches(&decoded(&code), 14));
        assert!(!switches(&decoded(&code), 15));
        assert!(!switches(&decoded(&code[3..]), 14));
        let pushed: Vec<u8> = [0x41, 0x56].into_iter().chain(code).collect();
        assert!(!switches(&decoded(&pushed), 14));
    }

    #[test]
    fn the_end_is_from_the_restored_register_to_the_return() {
        let end =
            [0x4c, 0x8b, 0x74, 0x24, 0x48, 0x4c, 0x8b, 0x7c, 0x24, 0x40, 0x48, 0x83, 0xc4, 0x78, 0x5b, 0xc3, 0x90];
        let entry = entry(&decoded(&START)).expect("a start");
        assert_eq!(leaving(&decoded(&end), &entry), Some(vec![Extent { start: 0x1005, end: 0x1010 }]));
        assert_eq!(leaving(&decoded(&end[5..]), &entry), None);
    }
}
