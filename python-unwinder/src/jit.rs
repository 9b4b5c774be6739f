//! The machine code of the JIT of CPython 3.14, which no object covers and no unwind data describes. Each trace lies on
//! pages of its own that begin with its *entry*, a function of C
//! (<https://github.com/python/cpython/blob/v3.14.0/Tools/jit/shim.c>), compiled by Clang 19:
//!
//! ```text
//!    push ...           callee-saved registers, but for rbp
//!    mov ...
//!    call the trace     return address: below the registers
//!    pop ...            the same registers
//!    ret
//! ```
//! The evaluation loop calls the entry, and the trace ends by returning to it: what a trace does in between, jumps into
//! other traces included, happens in some words of stack below the entry's return address. Traces have the convention
//! `preserve_none`, by which rbp is the only register that they leave as it was
//! (<https://clang.llvm.org/docs/AttributeReference.html#preserve-none>). So the evaluation loop is found by the entry's
//! return address, from any instruction of a trace; the caller's boundary then shows whether that was right.

use uunwind_core::call_site;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{Caller, OVERLAY_INTERPRETER, STEP_DONE, STEP_NATIVE, UNTOUCHED};
use uunwind_core::regs::{FP, SP};

/// Bytes of a page, at the beginning of which an entry lies.
const PAGE: u64 = 4096;
/// Below it lies no code (`vm.mmap_min_addr`).
const LOWEST: u64 = 1 << 16;
/// Bytes in which an entry must end; a multiple of 8.
const ENTRY_BYTES: usize = 64;
/// Bytes of `call rel32`.
const CALL: usize = 5;
/// Number of words above the stack pointer in which the entry's return address must lie.
const TRACE_WORDS: u64 = 32;
/// Limit of an evaluation loop's C frame, in bytes.
const LOOP_BYTES: u64 = 1 << 14;
/// Limit of registers that an entry saves: rbx, r12 to r15.
const SAVED: usize = 5;
/// What a step preserves: as in `trampoline`.
const PRESERVED: u32 = 1 << 3 | 1 << FP | 1 << SP | 0xf << 12;

/// The entry of a trace, as its bytes say.
struct Entry {
    /// DWARF numbers of the registers that it saves, in the order of its pushes.
    registers: [u8; SAVED],
    /// Number of them.
    saved: usize,
    /// Offsets at which the pushes begin, and where the last one ends.
    pushes: [usize; SAVED + 1],
    /// Offset of the instruction after the call.
    after_call: usize,
}

/// A position in or below an entry.
struct Position {
    entry: Entry,
    /// Stack address of the innermost register that is saved.
    at: u64,
    /// Number of registers that are saved there.
    saved: usize,
}

/// [`uunwind_core::plugin::Plugin::step`] for code of the JIT.
pub fn step(guest: &Guest<'_>) -> u32 {
    let Some(position) = position(guest) else { return STEP_NATIVE | UNTOUCHED };
    let place = position.at.wrapping_add(8 * position.saved as u64);
    let Some(pc) = guest.word(place).filter(|pc| guest.is_claimed(*pc) && is_return_address(guest, *pc)) else {
        return STEP_NATIVE | UNTOUCHED;
    };
    let Some((fp, from_stack)) = frame_pointer(guest, place) else { return STEP_NATIVE | UNTOUCHED };
    let Some(caller) = guest.caller() else { return STEP_NATIVE | UNTOUCHED };
    caller.pc = pc;
    caller.known &= PRESERVED;
    put(caller, SP, place.wrapping_add(8));
    put(caller, FP, fp);
    if from_stack {
        guest.restored(FP);
    }
    let saved = position.entry.registers.iter().take(position.saved).rev();
    for (register, at) in saved.zip((position.at..).step_by(8)) {
        let Some(value) = guest.word(at) else { return STEP_NATIVE | UNTOUCHED };
        put(caller, *register, value);
        guest.restored(*register);
    }
    STEP_DONE | OVERLAY_INTERPRETER | UNTOUCHED
}

fn put(caller: &mut Caller, register: u8, value: u64) {
    if let Some(room) = caller.registers.get_mut(usize::from(register)) {
        *room = value;
        caller.known |= 1u32.checked_shl(u32::from(register)).unwrap_or(0);
    }
}

fn is_return_address(guest: &Guest<'_>, pc: u64) -> bool {
    call_site::precedes(pc, &mut guest.reader())
}

/// Where the current frame is: in an entry, or in a trace below one.
fn position(guest: &Guest<'_>) -> Option<Position> {
    let view = guest.view();
    if guest.exact() {
        let offset = (view.pc % PAGE) as usize;
        let entry = if offset < ENTRY_BYTES { entry_at(guest, view.pc - offset as u64) } else { None };
        if let Some(in_entry) = entry.and_then(|entry| in_entry(entry, offset, view.sp)) {
            return Some(in_entry);
        }
    }
    // The stack pointer of a frame that has called something is where it was before the call.
    (0..TRACE_WORDS).find_map(|nth| {
        let at = view.sp.wrapping_add(8 * nth);
        let word = guest.word(at)?;
        let offset = (word % PAGE) as usize;
        // Small numbers are no addresses, and to read there costs a fault.
        if !(CALL..ENTRY_BYTES).contains(&offset) || word < LOWEST {
            return None;
        }
        let entry = entry_at(guest, word - offset as u64).filter(|entry| entry.after_call == offset)?;
        Some(Position { saved: entry.saved, entry, at: at.wrapping_add(8) })
    })
}

/// At an instruction of an entry itself, where some of the registers may not be saved yet, or be restored again.
fn in_entry(entry: Entry, offset: usize, sp: u64) -> Option<Position> {
    let before_call = entry.after_call - CALL;
    if offset <= before_call {
        let pushes = entry.pushes.iter().take(entry.saved + 1);
        let saved = pushes.skip(1).filter(|end| **end <= offset).count();
        return Some(Position { entry, at: sp, saved });
    }
    // The pops, in reverse order of the pushes and as long.
    let mut at = entry.after_call;
    for left in (0..=entry.saved).rev() {
        if at == offset {
            return Some(Position { entry, at: sp, saved: left });
        }
        let begins = entry.pushes.get(left.checked_sub(1)?)?;
        at += entry.pushes.get(left)?.checked_sub(*begins)?;
    }
    None
}

/// The evaluation loop's frame pointer: its frame lies above `place`, and holds a return address right above what the
/// frame pointer points to. It is in rbp, or among the words of the trace's stack if the trace uses rbp. True: the
/// latter.
fn frame_pointer(guest: &Guest<'_>, place: u64) -> Option<(u64, bool)> {
    let fits = |fp: &u64| {
        let distance = fp.wrapping_sub(place);
        distance > 0
            && distance < LOOP_BYTES
            && distance.is_multiple_of(8)
            && guest.word(fp.wrapping_add(8)).is_some_and(|pc| is_return_address(guest, pc))
    };
    if let Some(fp) = guest.register(FP).filter(|fp| fits(fp)) {
        return Some((fp, false));
    }
    let words = (guest.view().sp..place).step_by(8).take(TRACE_WORDS as usize);
    words.filter_map(|at| guest.word(at)).find(|fp| fits(fp)).map(|fp| (fp, true))
}

/// The entry that begins at an address, if one does: its pops are its pushes in reverse order.
fn entry_at(guest: &Guest<'_>, start: u64) -> Option<Entry> {
    let mut code = [0; ENTRY_BYTES];
    if !guest.bytes(start, &mut code) {
        return None;
    }
    let mut entry = Entry { registers: [0; SAVED], saved: 0, pushes: [0; SAVED + 1], after_call: 0 };
    let mut at = 0;
    while let Some((register, len)) = saved_register(&code, at, 0x50) {
        *entry.registers.get_mut(entry.saved)? = register;
        entry.saved += 1;
        at += len;
        *entry.pushes.get_mut(entry.saved)? = at;
    }
    if entry.saved == 0 {
        return None;
    }
    entry.after_call = (at + CALL..ENTRY_BYTES).find(|after| {
        code.get(after - CALL) == Some(&0xe8) && is_epilogue(&code, *after, entry.registers.iter().take(entry.saved))
    })?;
    Some(entry)
}

/// Do these registers' pops, from the last one to the first, and `ret` stand here?
fn is_epilogue<'r>(code: &[u8], mut at: usize, registers: impl DoubleEndedIterator<Item = &'r u8>) -> bool {
    for register in registers.rev() {
        match saved_register(code, at, 0x58) {
            Some((found, len)) if found == *register => at += len,
            _ => return false,
        }
    }
    code.get(at) == Some(&0xc3)
}

/// The register of a push (opcode 0x50) or pop (0x58) at this offset, by DWARF number, and the instruction's length:
/// rbx and r12 to r15.
fn saved_register(code: &[u8], at: usize, opcode: u8) -> Option<(u8, usize)> {
    let byte = |at: usize| code.get(at).copied();
    match byte(at)? {
        // The processor's number of rbx, and of r12 to r15 after the prefix, less 8. DWARF numbers are the same.
        first if first == opcode + 3 => Some((3, 1)),
        0x41 => {
            let low = byte(at + 1)?.checked_sub(opcode)?;
            (4..8).contains(&low).then_some((low + 8, 2))
        }
        _ => None,
    }
}
