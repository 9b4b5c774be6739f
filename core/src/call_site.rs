//! Whether an address is a return address: the instruction before it must be a call.
//!
//! Executable memory that no object and no window covers cannot be recognised by its permissions inside a handler, so a
//! word that is to become a frame there must stand after a call. Of a call, [`leads_to`] also determines the target,
//! from its operand and the registers at that target's first instruction; for an interrupted pc that nothing describes,
//! that proves who called it.
//!
//! Nothing here is written down as read: it is program text.

#[cfg_attr(target_arch = "x86_64", path = "call_site/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "call_site/aarch64.rs")]
mod cpu;

use crate::memory::Reader;
use crate::regs::Regs;
use crate::span::Span;

/// Addresses below this are never code: Linux maps nothing there (`vm.mmap_min_addr`). Words on a stack often are small
/// numbers, and need not be tried.
const LOWEST: u64 = 4096;

/// Whether `accept` takes one of the calls that may end at `return_address`.
fn any_call(
    return_address: u64,
    reader: &mut Reader<'_>,
    accept: impl FnMut(cpu::Call, &mut Reader<'_>) -> bool,
) -> bool {
    return_address >= LOWEST && cpu::any_call(return_address, reader, accept)
}

/// Whether a call instruction ends at `return_address`. Async-signal-safe; at most 8 reads of at most 8 bytes.
pub fn precedes(return_address: u64, reader: &mut Reader<'_>) -> bool {
    let was = reader.pause(true);
    let found = any_call(return_address, reader, |_, _| true);
    reader.pause(was);
    found
}

/// The target of the call that ends at `return_address`, whatever the registers were: the instruction has it, or a word
/// at a fixed address, which a stub of a linkage table may lead to. `None`: it depends on registers, the bytes can be
/// another call as well, or the word is not resolved. Async-signal-safe; as many reads as [`precedes`], and three.
pub fn fixed_target(return_address: u64, reader: &mut Reader<'_>) -> Option<u64> {
    let was = reader.pause(true);
    let (mut only, mut calls) = (None, 0);
    any_call(return_address, reader, |call, _| {
        (only, calls) = (Some(call), calls + 1);
        false
    });
    let found = only.filter(|_| calls == 1).and_then(|call| cpu::fixed_target(call, reader));
    reader.pause(was);
    found
}

/// Whether a call that ends at `return_address` leads to `regs.pc`, given the registers at the first instruction there.
/// Async-signal-safe; as many reads as [`precedes`], and one for each operand in memory.
pub fn leads_to(return_address: u64, regs: &Regs, reader: &mut Reader<'_>) -> bool {
    leads_near(return_address, regs, 1, reader)
}

/// As [`leads_to`], to less than `distance` bytes before `regs.pc`, as far as the registers are what they were at the
/// first instruction there.
pub fn leads_near(return_address: u64, regs: &Regs, distance: u64, reader: &mut Reader<'_>) -> bool {
    let was = reader.pause(true);
    let found = any_call(return_address, reader, |call, reader| {
        cpu::target(call, regs, reader).is_some_and(|target| regs.pc.wrapping_sub(target) < distance)
    });
    reader.pause(was);
    found
}

/// Where a call leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// To this process address: it stands in the instruction, in the one before that loads its register, in a word at a
    /// fixed address, or on the caller's stack.
    At(u64),
    /// To what was in the register with this DWARF number.
    In(u8),
    /// To what a word in memory said; this address, if the registers are still those of the call.
    Perhaps(Option<u64>),
}

/// Whether `accept` takes the target of one of the calls that may end at `return_address`. `regs`: the registers now,
/// but for the stack pointer, which is that of the call: where it has left the return address. Async-signal-safe; at
/// most 8 reads to find the calls, and for each of at most 7 calls three more.
pub fn any_target(
    return_address: u64,
    regs: &Regs,
    reader: &mut Reader<'_>,
    mut accept: impl FnMut(Target, &mut Reader<'_>) -> bool,
) -> bool {
    let was = reader.pause(true);
    let found = any_call(return_address, reader, |call, reader| {
        let target = cpu::target_of(call, return_address, regs, reader);
        accept(target, reader)
    });
    reader.pause(was);
    found
}

/// Whether some instruction in `code` loads the stack pointer from elsewhere, as code does that switches stacks: not
/// from itself or the frame pointer. A few other bytes that look like one count as well. Async-signal-safe; a read for
/// each 64 bytes.
pub fn loads_stack_pointer(code: Span, reader: &mut Reader<'_>) -> bool {
    any(code, reader, |bytes, _| cpu::loads_stack_pointer(bytes))
}

/// Whether some instruction in `code` jumps directly to the first one of `function`. As [`loads_stack_pointer`].
pub fn jumps(code: Span, function: Span, reader: &mut Reader<'_>) -> bool {
    any(code, reader, |bytes, at| cpu::is_jump(bytes, at, function.start))
}

/// Bytes of code that are looked through at a time, how many more an instruction may take up, and how often at most.
const AT_ONCE: usize = 64;
const AHEAD: usize = 8;
const MOST_TIMES: usize = 32;

/// Whether `is_one` is true of the bytes from some address on, which are passed with it.
fn any(code: Span, reader: &mut Reader<'_>, is_one: impl Fn(&[u8], u64) -> bool) -> bool {
    let was = reader.pause(true);
    let found = (code.start..code.end).step_by(AT_ONCE).take(MOST_TIMES).any(|from| {
        let mut bytes = [0; AT_ONCE + AHEAD];
        let len = bytes.len().min((code.end - from) as usize);
        let room = bytes.get_mut(..len).unwrap_or_default();
        reader.read(from, room)
            && (0..len.min(AT_ONCE))
                .any(|i| room.get(i..).is_some_and(|rest| is_one(rest, from.wrapping_add(i as u64))))
    });
    reader.pause(was);
    found
}

/// Whether the call before `return_address` is the first of a thread or of a program, in code that has no unwind data
/// to say so: after it the thread exits by a system call of its own, as after musl's `clone`; or before it the code
/// does what only a program's entry point does, as musl's `_start`. There is no caller then. Async-signal-safe; at most
/// 11 reads.
pub fn begins_stack(return_address: u64, reader: &mut Reader<'_>) -> bool {
    let was = reader.pause(true);
    let begins = any_call(return_address, reader, |_, _| true) && cpu::begins_stack(return_address, reader);
    reader.pause(was);
    begins
}

/// Where the code at `target` jumps to, if a jump is all that it does: an entry of a linkage table, or what a JIT puts
/// between functions. Async-signal-safe; at most 4 reads.
pub fn through_jump(target: u64, reader: &mut Reader<'_>) -> Option<u64> {
    let was = reader.pause(true);
    let to = cpu::through_jump(target, reader);
    reader.pause(was);
    to
}
