//! The callers of functions of libgcc that deliver an exception, where their unwind data describes none
//! ([`StopReason::StackInTransit`](uunwind_core::stop_reason::StopReason); `delivery.rs` of `uunwind_eh_frame`).
//!
//! `_Unwind_RaiseException`, `_Unwind_Resume`, `_Unwind_Resume_or_Rethrow` and `_Unwind_ForcedUnwind` keep two
//! structures in their frame, `this_context` and `cur_context`
//! (<https://github.com/gcc-mirror/gcc/blob/releases/gcc-12.2.0/libgcc/unwind.inc>). The first describes their own
//! caller, and the second the frame that the exception is delivered to. In both, each register is a pointer to the place
//! where its value is saved, also the return address (`struct _Unwind_Context` in
//! <https://github.com/gcc-mirror/gcc/blob/releases/gcc-12.2.0/libgcc/unwind-dw2.c>). To deliver, they copy what lies at
//! the places of the second one to those of the first, register by register (`uw_install_context_1`), store the address
//! to go on at just below the second one's CFA, load the registers, and jump.
//!
//! So both callers can be determined: the second one at each moment, and the first as long as nothing was stored below
//! the second one's CFA, but for those registers that may have been copied.

use super::jumpto;
use uunwind_core::call_site;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Reader, USER_END};
use uunwind_core::regs::{Regs, CALLEE_SAVED, RBP, RSP};
use uunwind_core::walk::Delivery;

/// Offsets in `struct _Unwind_Context`, in bytes: pointers to the places of 17 registers and one more come first.
const RETURN_ADDRESS: u64 = 8 * 16;
const CFA: u64 = 8 * 18;
/// Where to go on in the frame.
const PC: u64 = CFA + 8;
/// A byte for each register: its pointer is its value.
const BY_VALUE: u64 = PC + 8 * 8;
const BYTES: u64 = BY_VALUE + 18;
/// Largest frame of one of these functions, in bytes: about 950 with GCC 12.
const LARGEST_FRAME: u64 = 4096;
/// DWARF number of rcx.
const RCX: u8 = 2;

/// The two contexts in the frame of a function that delivers an exception, as process addresses.
struct Contexts {
    this: u64,
    target: u64,
    /// The function's CFA.
    cfa: u64,
}

/// Moves the cursor from a frame that an exception is delivered in to a caller. False: it is none, or that caller cannot
/// be determined. Async-signal-safe; at most some 2,000 reads.
pub fn deliver(to: Delivery, cursor: &mut Cursor, reader: &mut Reader<'_>) -> bool {
    if let Some(at) = jumpto::target(cursor, reader).or_else(|| at_exit(cursor, reader)) {
        // Nearly all registers are the target's.
        if to == Delivery::Target {
            *cursor = at;
        }
        return to == Delivery::Target;
    }
    let Some(contexts) = Contexts::find(cursor, reader) else { return false };
    let caller = match to {
        Delivery::Thrower => contexts.thrower(reader),
        Delivery::Target => contexts.target(reader),
    };
    let Some(regs) = caller.filter(|regs| call_site::precedes(regs.pc, reader)) else { return false };
    *cursor = Cursor { regs, exact: false };
    true
}

/// Where the exception is delivered to, at the last instructions, which have loaded its registers:
/// `mov %rcx,%rsp; pop %rcx; jmp *%rcx`, or `mov %rcx,%rsp; ret` (up to GCC 11). `None`: the cursor is at no such
/// instruction.
fn at_exit(cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Cursor> {
    const JUMPS: [u8; 6] = [0x48, 0x89, 0xcc, 0x59, 0xff, 0xe1];
    const RETURNS: [u8; 4] = [0x48, 0x89, 0xcc, 0xc3];
    if !cursor.exact {
        return None;
    }
    let pc = cursor.regs.pc;
    let mut is_at = |start: u64, code: &[u8]| {
        let mut bytes = [0; 6];
        let room = bytes.get_mut(..code.len());
        room.is_some_and(|room| reader.read(start, room) && room == code)
    };
    let (slot, popped) = if is_at(pc, &JUMPS) || is_at(pc, &RETURNS) {
        (cursor.regs.get(RCX)?, None)
    } else if is_at(pc.wrapping_sub(3), &JUMPS) || is_at(pc.wrapping_sub(3), &RETURNS) {
        (cursor.regs.sp(), None)
    } else if is_at(pc.wrapping_sub(4), &JUMPS) {
        (cursor.regs.sp().wrapping_sub(8), Some(cursor.regs.get(RCX)?))
    } else {
        return None;
    };
    let mut regs = cursor.regs;
    regs.keep_callee_saved();
    regs.set(RSP, slot.wrapping_add(8));
    regs.pc = popped.or_else(|| reader.word(slot))?;
    Some(Cursor { regs, exact: true })
}

impl Contexts {
    /// Looks for both in the frame, whose CFA counts from rbp: `this` is the context whose CFA is the frame's, and whose
    /// return address lies just below it; `target` another one, of the same caller or of a frame nearer the root.
    fn find(cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Contexts> {
        let sp = cursor.regs.sp();
        let cfa = cursor.regs.get(RBP)?.checked_add(16)?;
        if cfa <= sp || cfa - sp > LARGEST_FRAME || (cfa | sp) & 7 != 0 {
            return None;
        }
        let (mut this, mut target) = (None, None);
        for at in (sp..cfa.saturating_sub(BYTES)).step_by(8) {
            // A return address lies just below the CFA.
            let its_cfa = reader.word(at.wrapping_add(CFA)).filter(|its_cfa| (cfa..USER_END).contains(its_cfa));
            let Some(its_cfa) = its_cfa else { continue };
            if reader.word(at.wrapping_add(RETURN_ADDRESS)) != Some(its_cfa.wrapping_sub(8)) {
                continue;
            }
            // Pointers to places of registers may look like these two; after the last one of them, there is none.
            if reader.word(at.wrapping_add(PC)).is_none_or(|pc| pc == 0 || (sp..its_cfa).contains(&pc)) {
                continue;
            }
            let found = if its_cfa == cfa && this.is_none() { &mut this } else { &mut target };
            if found.replace(at).is_some() {
                // More of them than are known.
                return None;
            }
        }
        Some(Contexts { this: this?, target: target?, cfa })
    }

    /// The function's caller. `None`: a return address between it and the target is overwritten.
    fn thrower(&self, reader: &mut Reader<'_>) -> Option<Regs> {
        let target = self.target(reader)?;
        if reader.word(target.sp().wrapping_sub(8)) != Some(target.pc) {
            return None;
        }
        let mut regs = Regs::some(reader.word(self.this.wrapping_add(PC))?, [0; 16], 0);
        regs.set(RSP, self.cfa);
        for register in CALLEE_SAVED {
            let (own, new) = (place(self.this, register, reader), place(self.target, register, reader));
            let value = own.and_then(|own| reader.word(own));
            // What is the same at both places, may have been copied.
            if let Some(value) =
                value.filter(|value| own == new || new.and_then(|new| reader.word(new)) != Some(*value))
            {
                regs.set(register, value);
            }
        }
        Some(regs)
    }

    /// The frame that the exception is delivered to, after the call that has thrown it.
    fn target(&self, reader: &mut Reader<'_>) -> Option<Regs> {
        let sp = reader.word(self.target.wrapping_add(CFA))?;
        let (thrower, own) = (reader.word(self.this.wrapping_add(PC))?, reader.word(self.cfa.wrapping_sub(8))?);
        // What lies below the target's CFA is overwritten in the end, but was copied before.
        let pc = if own == thrower { reader.word(sp.wrapping_sub(8))? } else { own };
        let mut regs = Regs::some(pc, [0; 16], 0);
        regs.set(RSP, sp);
        for register in CALLEE_SAVED {
            if let Some(value) = place(self.target, register, reader).and_then(|place| reader.word(place)) {
                regs.set(register, value);
            }
        }
        Some(regs)
    }
}

/// Where a context's frame has saved a register; `None`: nowhere.
fn place(context: u64, register: u8, reader: &mut Reader<'_>) -> Option<u64> {
    let register = u64::from(register);
    if reader.u8(context.wrapping_add(BY_VALUE + register)).is_some_and(|is_value| is_value != 0) {
        return None;
    }
    reader.word(context.wrapping_add(8 * register))
}
