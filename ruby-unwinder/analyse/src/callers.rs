//! Functions that make control frames of C functions and blocks, and functions that only pass calls on.
//!
//! `vm_push_frame` is inlined into each of its callers
//! (<https://github.com/ruby/ruby/blob/v3_1_2/vm_insnhelper.c>). It stores the new frame's environment into the frame,
//! one frame below the innermost one, and then the frame's address into the context. The functions that call C
//! functions and C blocks keep their native frame meanwhile; the kind of control frame is a number in their code.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::BTreeMap;
use uunwind_elf::{Elf, Span};
use uunwind_language::machine_code::{self, instructions};
use uunwind_ruby::facts::{Extent, Facts, CALLERS};

/// Limit of instructions from the computation of the new frame's address to its store.
const NEAR: usize = 64;
/// Least number of places at which the loop calls a function that calls methods.
const PLACES: usize = 3;
/// Limit of the functions that are searched, in bytes.
const LARGEST: u64 = 16 << 10;

/// What was found, each sorted by address.
#[derive(Default)]
pub struct Callers {
    /// Functions that make a control frame of a C function or a C block, and call it.
    pub pushing: Vec<Extent>,
    /// Functions that call methods, blocks or activations, and do nothing else.
    pub passing: Vec<Extent>,
}

/// Finds them. `exec`, `core`: `vm_exec` and the interpreter's loop.
pub fn find(elf: &dyn Elf, layout: &Facts, exec: Extent, core: Extent) -> Callers {
    let mut found = Callers::default();
    let loop_calls = direct_calls(&instructions(elf, Span { start: core.start, end: core.end }));
    for function in elf.functions() {
        let span = function.span;
        let is_loop = |extent: Extent| extent.start == span.start;
        if function.cfa_offset != 8 || is_loop(core) || is_loop(exec) || span.end - span.start > LARGEST {
            continue;
        }
        let code = instructions(elf, span);
        let extent = Extent { start: span.start, end: span.end };
        if calls_c(&code) && pushes(&code, layout) {
            found.pushing.push(extent);
        } else if loop_calls.get(&span.start).is_some_and(|places| *places >= PLACES) && calls_indirectly(&code) {
            found.passing.push(extent);
        }
    }
    found.pushing.truncate(CALLERS);
    found.passing.truncate(CALLERS);
    found
}

/// How often each function is called directly.
fn direct_calls(code: &[Instruction]) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for call in code.iter().filter(|i| i.flow_control() == FlowControl::Call) {
        *counts.entry(call.near_branch_target()).or_insert(0) += 1;
    }
    counts
}

fn calls_indirectly(code: &[Instruction]) -> bool {
    code.iter().any(|i| i.flow_control() == FlowControl::IndirectCall)
}

/// Does it have the flags of a C function's or C block's frame among its numbers (`VM_FRAME_MAGIC_CFUNC`,
/// `VM_FRAME_MAGIC_IFUNC`)?
fn calls_c(code: &[Instruction]) -> bool {
    const MAGIC: u64 = 0x7fff_0001;
    let is_kind = |value: u64| matches!(value & MAGIC, 0x5555_0001 | 0x6666_0001) && value >> 32 == 0;
    let is_immediate =
        |kind: OpKind| matches!(kind, OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64);
    code.iter().any(|i| (0..i.op_count()).any(|at| is_immediate(i.op_kind(at)) && is_kind(i.immediate(at))))
}

/// Does it make a control frame?
fn pushes(code: &[Instruction], layout: &Facts) -> bool {
    let below = u64::from(layout.frame_bytes).wrapping_neg();
    let stores = |i: &Instruction, displacement: u64| {
        i.mnemonic() == Mnemonic::Mov && i.op0_kind() == OpKind::Memory && i.memory_displacement64() == displacement
    };
    code.iter().enumerate().any(|(at, link)| {
        let before = code.get(at.saturating_sub(NEAR)..at).unwrap_or_default();
        let links = stores(link, layout.ec_frame.into())
            && link.op1_kind() == OpKind::Register
            && machine_code::dwarf(link.op1_register()).is_some()
            && !matches!(link.memory_base(), Register::RSP | Register::RIP | Register::None);
        let computes = |i: &Instruction| {
            i.mnemonic() == Mnemonic::Lea
                && i.op0_register() == link.op1_register()
                && i.memory_displacement64() == below
        };
        let environment = below.wrapping_add(layout.frame_ep.into());
        links && before.iter().any(computes) && before.iter().any(|i| stores(i, environment))
    })
}
