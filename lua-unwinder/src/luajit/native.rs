//! The native step out of the VM and out of traces, where unwind tables are wrong or missing.

use super::state::{is_thread, plausible, Thread, FRAME_BYTES};
use super::{Vm, RBP, RBX, RSP};
use crate::luajit::facts::{ASK, ENTER, LEAVE};
use uunwind_core::plugin::Caller;

/// DWARF numbers of the other registers that the VM and traces save.
const R12: u8 = 12;
const R13: u8 = 13;
const R14: u8 = 14;
const R15: u8 = 15;

/// The part of the VM that a pc lies in: it determines where the stack pointer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zone {
    /// The C frame is being pushed: the bytes of it that are on the stack, return address included.
    Enter(u64),
    /// As `Enter`, for FFI callbacks: rbp was saved by the thunk, and holds another value from the first instruction
    /// on.
    EnterCallback(u64),
    /// The C frame is being popped: the bytes of it that are on the stack, return address included.
    Leave(u64),
    /// A leaf function: its return address is at the stack pointer.
    Helper,
    /// A leaf function that has pushed rbx: its return address is above that.
    HelperPushed,
    /// A side exit: the stack pointer is somewhere below the C frame.
    Exit,
    /// The stack pointer is at the C frame.
    Body,
}

/// The steps of [`ENTER`]: offset of an instruction, and the bytes between the stack pointer and the CFA before it.
const PUSHED: [(u64, u64); 5] = [(0, 8), (1, 16), (2, 24), (4, 32), (6, 40)];
/// The steps of [`LEAVE`].
const POPPED: [(u64, u64); 6] = [(0, 80), (4, 40), (6, 32), (8, 24), (9, 16), (10, 8)];

/// The zone of a pc inside the VM. `pc` is a file address.
#[inline(never)]
pub fn zone(vm: &Vm<'_>, pc: u64) -> Zone {
    let facts = vm.facts;
    let lead = u64::from(facts.lead);
    for enter in facts.enter.iter().filter(|at| **at != 0) {
        let within = pc.wrapping_sub(enter.wrapping_sub(lead));
        if within < lead.wrapping_add(ENTER.len() as u64) {
            return Zone::Enter(depth(&PUSHED, within.saturating_sub(lead)));
        }
    }
    for leave in facts.leave.iter().filter(|at| **at != 0) {
        let within = pc.wrapping_sub(*leave);
        if within <= LEAVE.len() as u64 {
            return Zone::Leave(depth(&POPPED, within));
        }
    }
    // The callback's thunk has executed the first push.
    let within = pc.wrapping_sub(facts.callback);
    if facts.callback != 0 && within < ENTER.len() as u64 - 1 {
        return Zone::EnterCallback(depth(&PUSHED, within.wrapping_add(1)));
    }
    // After its push, and before its pop has been executed.
    if facts.ask != 0 && (1..ASK.len() as u64 - 1).contains(&pc.wrapping_sub(facts.ask)) {
        return Zone::HelperPushed;
    }
    if facts.helpers_start <= pc && pc < facts.helpers_end {
        return Zone::Helper;
    }
    if facts.exit_start <= pc && pc < facts.exit_end {
        return Zone::Exit;
    }
    Zone::Body
}

fn depth(steps: &[(u64, u64)], within: u64) -> u64 {
    steps.iter().rev().find(|(at, _)| *at <= within).map_or(FRAME_BYTES, |(_, depth)| *depth)
}

/// The address of the C frame of a frame in the body of the VM. A few instructions lower the stack pointer temporarily:
/// then, and only then, there is a linked C frame 8 or 16 bytes above it.
pub fn frame_in_body(vm: &Vm<'_>, sp: u64, exact: bool) -> u64 {
    if exact && Thread::of_frame(vm, sp).is_none() {
        for above in [8, 16] {
            let frame = sp.wrapping_add(above);
            if Thread::of_frame(vm, frame).is_some() {
                return frame;
            }
        }
    }
    // libgcc's `_Unwind_RaiseException` writes the VM's registers and return address into its own frame before it
    // returns to the VM.
    let is_there = exact || vm.word(sp.wrapping_add(super::state::FRAME_L)).is_some_and(|l| is_thread(vm, l));
    let above = if is_there { None } else { frame_above(vm, sp, None) };
    above.map_or(sp, |(frame, _)| frame)
}

/// The C frame above a stack pointer in a trace, in a side exit, or in code that these call: the innermost one of the
/// running thread, whose `cframe` points back to it. `base`: an address that must lie on that thread's Lua stack, if it
/// is available.
pub fn frame_above(vm: &Vm<'_>, sp: u64, base: Option<u64>) -> Option<(u64, Thread)> {
    /// Limit in bytes of what a trace reserves for spilled values, and its side exit pushes.
    const REACH: u64 = 256 * 8 + 512;
    let near = |frame: u64| frame.wrapping_sub(sp) < REACH && frame.is_multiple_of(8);
    let holds = |thread: &Thread| base.is_none_or(|base| thread.holds(base));
    // `cur_L` is the running thread, except in callbacks in older releases. Functions called from here may have C
    // frames of their own.
    let noted = vm.global().and_then(|global| {
        let current = vm.word(global.wrapping_add(u64::from(vm.facts.cur_l)))?;
        let thread = Thread::read(vm, current).filter(holds)?;
        let frame = thread.frame_above(vm, sp).filter(|frame| near(*frame))?;
        (vm.word(frame.wrapping_add(super::state::FRAME_L)) == Some(current)).then_some((frame, thread))
    });
    if noted.is_some() {
        return noted;
    }
    (0..REACH / 8).find_map(|slot| {
        let frame = sp.wrapping_add(slot.wrapping_mul(8));
        vm.word(frame.wrapping_add(super::state::FRAME_L)).filter(|l| plausible(*l))?;
        Some((frame, Thread::of_frame(vm, frame).filter(holds)?))
    })
}

/// Steps to the caller of the C frame at `frame`, by its slots.
#[inline(never)]
pub fn leave_frame(vm: &Vm<'_>, caller: &mut Caller, frame: u64) -> Option<()> {
    let cfa = frame.wrapping_add(FRAME_BYTES);
    let slot = |below: u64| vm.word(cfa.wrapping_sub(below));
    caller.pc = slot(8)?;
    let saved = [(RBP, slot(16)), (RBX, slot(24)), (R15, slot(32)), (R14, slot(40))];
    forget_scratch(caller);
    for (register, value) in saved {
        set(vm, caller, register, value);
    }
    set(vm, caller, RSP, Some(cfa));
    caller.exact = 0;
    Some(())
}

/// As [`leave_frame`], from a trace or a side exit: traces save r12 in the C frame, and r13 below it.
pub fn leave_trace(vm: &Vm<'_>, caller: &mut Caller, frame: u64) -> Option<()> {
    let (r12, r13) = (vm.word(frame), vm.word(frame.wrapping_sub(8)));
    leave_frame(vm, caller, frame)?;
    set(vm, caller, R12, r12);
    set(vm, caller, R13, r13);
    Some(())
}

/// Steps to the caller of a frame of which `depth` bytes are on the stack, return address included. `saved`: where the
/// caller's registers are.
#[inline(never)]
pub fn leave_partial(vm: &Vm<'_>, caller: &mut Caller, depth: u64, saved: Saved) -> Option<()> {
    let sp = register(caller, RSP)?;
    let cfa = sp.wrapping_add(depth);
    caller.pc = vm.word(cfa.wrapping_sub(8))?;
    forget_scratch(caller);
    let slots: &[(u8, u64)] = match saved {
        Saved::InRegisters => &[],
        Saved::OnlyRbp => &[(RBP, 16)],
        Saved::OnlyRbx => &[(RBX, 16)],
        Saved::InSlots => &[(RBP, 16), (RBX, 24), (R15, 32), (R14, 40)],
    };
    for (register, below) in slots {
        // A slot that was popped is in its register again.
        if *below <= depth {
            set(vm, caller, *register, vm.word(cfa.wrapping_sub(*below)));
        }
    }
    set(vm, caller, RSP, Some(cfa));
    caller.exact = 0;
    Some(())
}

/// Where the caller's registers are, while a frame is being pushed or popped.
#[derive(Clone, Copy)]
pub enum Saved {
    /// All in their registers.
    InRegisters,
    /// In their registers, except rbp, which is in its slot.
    OnlyRbp,
    /// In their registers, except rbx, which is in its slot.
    OnlyRbx,
    /// In their slots, as far as these are still on the stack.
    InSlots,
}

/// A register's value, by DWARF number, if it is available.
pub fn register(caller: &Caller, number: u8) -> Option<u64> {
    let known = caller.known & 1u32.checked_shl(u32::from(number)).unwrap_or(0) != 0;
    caller.registers.get(usize::from(number)).copied().filter(|_| known)
}

fn set(vm: &Vm<'_>, caller: &mut Caller, number: u8, value: Option<u64>) {
    vm.guest.restored(number);
    let bit = 1u32.checked_shl(u32::from(number)).unwrap_or(0);
    match (value, caller.registers.get_mut(usize::from(number))) {
        (Some(value), Some(register)) => {
            *register = value;
            caller.known |= bit;
        }
        _ => caller.known &= !bit,
    }
}

/// Marks the registers unavailable that a called function may have changed.
fn forget_scratch(caller: &mut Caller) {
    caller.known &= uunwind_core::regs::CALLEE_SAVED_MASK;
}
