//! The callers of functions of libgcc that deliver an exception, where their unwind data describes none
//! ([`StopReason::StackInTransit`](uunwind_core::stop_reason::StopReason); `delivery.rs` of `uunwind_eh_frame`).
//!
//! `_Unwind_RaiseException`, `_Unwind_Resume`, `_Unwind_Resume_or_Rethrow` and `_Unwind_ForcedUnwind` keep two
//! structures in their frame, `this_context` and `cur_context`
//! (<https://github.com/gcc-mirror/gcc/blob/releases/gcc-12.2.0/libgcc/unwind.inc>). The first describes their own
//! caller, and the second the frame that the exception is delivered to. In both, each register is a pointer to the
//! place where its value is saved, also the return address (`struct _Unwind_Context` in
//! <https://github.com/gcc-mirror/gcc/blob/releases/gcc-12.2.0/libgcc/unwind-dw2.c>). To deliver, they copy what lies
//! at the places of the second one to those of the first, register by register (`uw_install_context_1`), store the
//! address to go on at just below the second one's CFA, load the registers, and jump.
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

/// Moves the cursor from a frame that an exception is delivered in to a caller. False: it is none, or that caller
/// cannot be determined. Async-signal-safe; at most some 2,000 reads.
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
    /// Looks for both in the frame, whose CFA counts from rbp: `this` is the context whose CFA is the frame's, and
    /// whose return address lies just below it; `target` another one, of the same caller or of a frame nearer the root.
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
            // Pointers to places of registers may look like these two. After the last one is a null, and then the CFA.
            let no_register = reader.word(at.wrapping_add(RETURN_ADDRESS + 8)).is_none_or(|place| place == 0);
            let pc = reader.word(at.wrapping_add(PC)).unwrap_or(0);
            if !no_register || pc == 0 {
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
    let is_value = reader.u8(context.wrapping_add(BY_VALUE + register));
    let place = reader.word(context.wrapping_add(8 * register))?;
    let is_place = match is_value {
        Some(is_value) => is_value == 0,
        // Copies of stacks have addresses only. The frames that saved the register lie between the context and its CFA;
        // the register's own value, if it is a stack address, leads into a frame that is still there, above that.
        None => reader.word(context.wrapping_add(CFA)).is_some_and(|cfa| (context..cfa).contains(&place)),
    };
    is_place.then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;

    /// The function's frame lies from `SP` to `FRAME`, and the one that catches has the stack pointer `CATCHES`.
    const SP: u64 = 0x7000_0000;
    const FRAME: u64 = SP + 0x300;
    const CATCHES: u64 = SP + 0x400;
    const THIS: u64 = SP + 0x20;
    const TARGET: u64 = THIS + 0xf0;
    /// Return addresses after calls, into the function that throws and the one that catches; and where that goes on.
    const CODE: u64 = 0x1_0000;
    const THROWS: u64 = CODE + 0x10;
    const CALLS: u64 = CODE + 0x20;
    const HANDLER: u64 = CODE + 0x31;

    struct Stack(Vec<u64>);

    impl Stack {
        /// Before anything is copied. The thrower has saved r12, the catching function's r12 is another one; r15 is the
        /// same in both.
        fn new() -> Stack {
            let mut stack = Stack(vec![0; 0x200]);
            for context in [THIS, TARGET] {
                for (register, place) in [(3, 0x28), (6, 0), (12, 0x20), (13, 0x18), (14, 0x10), (15, 8)] {
                    stack.put(context + 8 * register, FRAME - 16 - place);
                }
            }
            stack.put(TARGET + 8 * 12, CATCHES - 0x20);
            for (context, cfa, pc) in [(THIS, FRAME, THROWS), (TARGET, CATCHES, HANDLER)] {
                stack.put(context + RETURN_ADDRESS, cfa - 8);
                stack.put(context + CFA, cfa);
                stack.put(context + PC, pc);
            }
            for (place, value) in [(0x28, 3), (0, 6), (0x20, 12), (0x18, 13), (0x10, 14), (8, 15)] {
                stack.put(FRAME - 16 - place, value);
            }
            stack.put(FRAME - 8, THROWS);
            stack.put(CATCHES - 0x20, 112);
            stack.put(CATCHES - 8, CALLS);
            stack
        }

        fn put(&mut self, address: u64, word: u64) {
            self.0[((address - SP) / 8) as usize] = word;
        }

        fn callers(&self) -> [Option<Cursor>; 2] {
            self.callers_with(|_| true)
        }

        /// As [`Stack::callers`], where only these words are there.
        fn callers_with(&self, is_there: impl Fn(u64) -> bool) -> [Option<Cursor>; 2] {
            let mut code = [0x90; 0x40];
            // call *%rax
            for returns in [THROWS, CALLS] {
                let at = (returns - CODE) as usize;
                code[at - 2..at].copy_from_slice(&[0xff, 0xd0]);
            }
            let words: Vec<[u8; 8]> = self.0.iter().map(|word| word.to_le_bytes()).collect();
            let there = words.iter().enumerate().filter(|(_, word)| is_there(u64::from_le_bytes(**word)));
            let stack = there.map(|(index, word)| Region { address: SP + 8 * index as u64, bytes: word });
            let regions: Vec<Region<'_>> = [Region { address: CODE, bytes: &code }].into_iter().chain(stack).collect();
            [Delivery::Thrower, Delivery::Target].map(|to| {
                let mut cursor = Cursor { regs: Regs::new(CODE + 1, SP, FRAME - 16), exact: true };
                deliver(to, &mut cursor, &mut Reader::recorded(&regions)).then_some(cursor)
            })
        }
    }

    fn of(cursor: Option<Cursor>) -> Option<(u64, u64, [Option<u64>; 6])> {
        cursor.map(|cursor| (cursor.regs.pc, cursor.regs.sp(), CALLEE_SAVED.map(|register| cursor.regs.get(register))))
    }

    #[test]
    fn each_step_of_a_delivery_has_its_callers() {
        let saved = |r12| [3, 6, r12, 13, 14, 15].map(Some);
        let catches = Some((CALLS, CATCHES, saved(112)));
        let mut stack = Stack::new();
        let [thrower, target] = stack.callers();
        assert_eq!((of(thrower), of(target)), (Some((THROWS, FRAME, saved(12))), catches));
        // r12 is copied: its old value is lost.
        stack.put(FRAME - 16 - 0x20, 112);
        let [thrower, target] = stack.callers();
        let lost = [Some(3), Some(6), None, Some(13), Some(14), Some(15)];
        assert_eq!((of(thrower), of(target)), (Some((THROWS, FRAME, lost)), catches));
        // The return address, too.
        stack.put(FRAME - 8, CALLS);
        let [thrower, target] = stack.callers();
        assert_eq!((of(thrower), of(target)), (Some((THROWS, FRAME, lost)), catches));
        // Where to go on is stored where the catching function's callee had its return address.
        stack.put(CATCHES - 8, HANDLER);
        let [thrower, target] = stack.callers();
        assert_eq!((of(thrower), of(target)), (None, catches));
    }

    /// A copy has addresses of code and of the stack, and nothing else.
    #[test]
    fn a_copy_of_the_stack_suffices() {
        let is_kept = |word| (CODE..CODE + 0x40).contains(&word) || (SP..SP + 0x1000).contains(&word);
        let mut stack = Stack::new();
        // Two registers have addresses, which is what walks need of them.
        stack.put(FRAME - 16, CATCHES + 0x80);
        stack.put(FRAME - 16 - 8, CODE + 1);
        let saved = [None, Some(CATCHES + 0x80), None, None, None, Some(CODE + 1)];
        let catches = Some((CALLS, CATCHES, saved));
        let [first, second] = stack.callers_with(is_kept);
        assert_eq!((of(first), of(second)), (Some((THROWS, FRAME, saved)), catches));
        // What is the same at both places may have been copied already; a word that is left out is another one.
        stack.put(TARGET + 8 * 6, CATCHES - 0x28);
        assert_eq!(of(stack.callers_with(is_kept)[0]), Some((THROWS, FRAME, saved)));
        stack.put(CATCHES - 0x28, CATCHES + 0x80);
        let unknown = [None, None, None, None, None, Some(CODE + 1)];
        assert_eq!(of(stack.callers_with(is_kept)[0]), Some((THROWS, FRAME, unknown)));
        // A value in the context itself, which a copy does not mark as such: it is no place.
        stack.put(TARGET + 8 * 6, CATCHES + 0x40);
        stack.put(CATCHES + 0x40, CATCHES + 0x100);
        stack.put(TARGET + BY_VALUE, 1 << 48);
        let [_, second] = stack.callers_with(is_kept);
        assert_eq!(of(second), Some((CALLS, CATCHES, unknown)));
        assert_eq!(of(stack.callers()[1]).map(|(.., saved)| saved[1]), Some(None));
    }

    #[test]
    fn what_is_no_such_frame_has_none() {
        for (place, word) in [
            (THIS + CFA, FRAME + 8),
            (THIS + RETURN_ADDRESS, 0),
            (TARGET + RETURN_ADDRESS, CATCHES),
            (TARGET + CFA, 8),
            (THIS + PC, 0),
        ] {
            let mut stack = Stack::new();
            stack.put(place, word);
            assert!(stack.callers().iter().all(Option::is_none), "{place:#x}");
        }
        // Pointers to registers' places look like a third context: only a null stands where it must.
        let mut stack = Stack::new();
        stack.put(TARGET + 8 * 12, CATCHES - 0x28);
        stack.put(TARGET + 8 * 13, CATCHES - 0x30);
        stack.put(TARGET + 8 * 14, CATCHES - 0x20);
        stack.put(TARGET + 8 * 15, CATCHES - 0x18);
        assert!(stack.callers().iter().all(Option::is_some));
        let mut stack = Stack::new();
        // No call stands before the return address.
        stack.put(CATCHES - 8, CALLS + 1);
        assert!(stack.callers()[1].is_none());
    }

    #[test]
    fn the_last_instructions_have_loaded_the_registers() {
        const RETURNS: [u8; 4] = [0x48, 0x89, 0xcc, 0xc3];
        const JUMPS: [u8; 6] = [0x48, 0x89, 0xcc, 0x59, 0xff, 0xe1];
        let at = |code: &[u8], offset: u64, sp: u64, rcx: u64| {
            let stack: Vec<u8> = [HANDLER, 0].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
            let regions = [Region { address: CODE, bytes: code }, Region { address: CATCHES - 8, bytes: &stack }];
            let mut regs = Regs::new(CODE + offset, sp, 6);
            regs.set(RCX, rcx);
            let mut cursor = Cursor { regs, exact: true };
            let found = deliver(Delivery::Target, &mut cursor, &mut Reader::recorded(&regions));
            found.then_some((cursor.regs.pc, cursor.regs.sp(), cursor.exact))
        };
        let target = Some((HANDLER, CATCHES, true));
        assert_eq!(at(&JUMPS, 0, SP, CATCHES - 8), target);
        assert_eq!(at(&JUMPS, 3, CATCHES - 8, 1), target);
        assert_eq!(at(&JUMPS, 4, CATCHES, HANDLER), target);
        assert_eq!(at(&RETURNS, 0, SP, CATCHES - 8), target);
        assert_eq!(at(&RETURNS, 3, CATCHES - 8, 1), target);
        assert_eq!(at(&[0x48, 0x89, 0xcc, 0x59, 0xff, 0xe0], 3, CATCHES - 8, 1), None);
    }
}
