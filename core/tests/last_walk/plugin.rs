//! The plugin of these worlds: an interpreter that is no one's, which uses all that a plugin may.

use super::{HEAP, HEAP_WORDS};
use std::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::plugin::{View, OVERLAY_DESYNC, OVERLAY_INTERPRETER, STEP_DONE, STEP_LOST, STEP_NATIVE, UNTOUCHED};
use uunwind_core::regs::{RBP, RSP};

/// How often the rest of an overlay's call was cached.
pub static REST_KNOWN: AtomicU64 = AtomicU64::new(0);
/// The same of a step.
pub static STEP_KNOWN: AtomicU64 = AtomicU64::new(0);

/// An interpreter: a list of records on the heap; scratch memory holds the next record and the number of those emitted.
pub unsafe extern "C" fn overlay(view: *mut View) -> u32 {
    // SAFETY: the walk's view, host and scratch memory.
    unsafe {
        (*view).used = looked_at(&*view).fold(0, |used, register| used | 1 << register);
        let view = &*view;
        let scratch = view.scratch.cast::<u64>();
        let before = [*scratch, *scratch.add(1)];
        let read = |address: u64| {
            let mut word = 0;
            ((*view.host).read_word)(view.walk, address, &raw mut word).then_some(word)
        };
        if *scratch == 0 {
            *scratch = read(HEAP).unwrap_or(1);
        }
        let mut answer = OVERLAY_INTERPRETER;
        for turn in 0..6 {
            // The rest of the call depends on this and no more, unless it looks at registers.
            let rest = [*scratch, *scratch.add(1), turn, 0, 0, 0, 0, 0, 0, 0];
            let is_cached = turn > 0 && !looked_at(view).any(|_| true);
            if is_cached && ((*view.host).rest_is_known)(view.walk, 100 - turn, &rest) {
                REST_KNOWN.fetch_add(1, Ordering::Relaxed);
                // Whatever it does and says now has no meaning.
                ((*view.host).emit)(view.walk, 7, 7);
                *scratch = 4711;
                return OVERLAY_INTERPRETER | OVERLAY_DESYNC;
            }
            let at = HEAP + 8 * (*scratch % HEAP_WORDS as u64);
            let Some(record) = read(at) else {
                answer |= OVERLAY_DESYNC;
                break;
            };
            // Some records' names are remembered: they follow from the record and from what is read for them.
            let (key, mut recalled) = ([at, record, 0, 0, 0], [0; 2]);
            let name = if record & 4 != 0 && ((*view.host).recall)(view.walk, &key, &raw mut recalled) {
                recalled[1] as u32
            } else {
                let mut half = [0u8; 12];
                let code = if ((*view.host).read)(view.walk, at + 3, half.as_mut_ptr(), 12) { half[9] } else { 99 };
                let name = ((*view.host).find_name)(view.walk, record, u64::from(code));
                if record & 4 != 0 {
                    ((*view.host).remember)(view.walk, &key, &[0, u64::from(name)]);
                }
                name
            };
            if !((*view.host).emit)(view.walk, name, record & 0xff) {
                break;
            }
            *scratch = record >> 8 | 1;
            *scratch.add(1) = record & 1;
            if record & 2 != 0 {
                break;
            }
        }
        for register in looked_at(view) {
            let value = if view.known >> register & 1 != 0 { view.registers[register] } else { 4711 };
            ((*view.host).emit)(view.walk, 1, value);
        }
        answer | untouched(view.pc, before == [*scratch, *scratch.add(1)])
    }
}

/// The registers that the overlay looks at: rbp, rbx, r12, some of them or none, as the function has it. A plugin with
/// a stepper only.
fn looked_at(view: &View) -> impl Iterator<Item = usize> {
    let function = view.pc >> 12;
    // The step has asked for leave: it is not there in a plugin that looks at no registers.
    // SAFETY: the walk's scratch memory.
    let may = unsafe { view.scratch.cast::<u64>().add(2).read() } == 1;
    [(6, 1), (3, 2), (12, 4)]
        .into_iter()
        .filter(move |(_, bit)| may && function & bit != 0)
        .map(|(register, _)| register)
}

/// Steps from some functions: the return address and rbp from the stack, rbx made of r12, all else passed on.
pub unsafe extern "C" fn step(view: *mut View) -> u32 {
    // SAFETY: the walk's view, host, caller and scratch memory.
    unsafe {
        (*view).used = 0;
        let untouched = untouched((*view).pc, (*view).scratch.cast::<u64>().add(2).replace(1) == 1);
        let (function, sp, caller) = ((*view).pc >> 12, (*view).sp, &mut *(*view).caller);
        if function % 3 != 0 {
            return STEP_NATIVE | untouched;
        }
        let size = 16 + 8 * (function % 4);
        let (host, walk) = (&*(*view).host, (*view).walk);
        // Functions that look at no register: all that the step does follows from this.
        if function % 2 == 1 && (host.rest_is_known)(walk, 5, &[function, sp, size, 0, 0, 0, 0, 0, 0, 0]) {
            STEP_KNOWN.fetch_add(1, Ordering::Relaxed);
            (caller.pc, caller.registers) = (4711, [4711; 16]);
            return STEP_LOST;
        }
        let read = |address: u64| {
            let mut word = 0;
            (host.read_word)(walk, address, &raw mut word).then_some(word)
        };
        let Some(pc) = read(sp + size - 8).filter(|pc| *pc != 0) else { return STEP_LOST };
        (caller.pc, caller.exact, caller.registers[usize::from(RSP)]) = (pc, 0, sp + size);
        (*view).restored = 1 << RBP;
        caller.known &= uunwind_core::regs::CALLEE_SAVED_MASK & !(1 << RBP);
        if let Some(rbp) = read(sp) {
            caller.registers[usize::from(RBP)] = rbp;
            caller.known |= 1 << RBP;
        }
        if function % 2 == 0 {
            (*view).used = 1 << 12;
            (*view).restored |= 1 << 3;
            caller.known &= !(1 << 3);
            if (*view).known & (1 << 12) != 0 {
                caller.registers[3] = (*view).registers[12] ^ 5;
                caller.known |= 1 << 3;
                (host.emit)(walk, 3, caller.registers[3]);
            }
        }
        (host.emit)(walk, 2, size);
        STEP_DONE | untouched | if function % 2 == 1 { OVERLAY_INTERPRETER } else { 0 }
    }
}

/// In most functions, a plugin says so when it has left its scratch memory alone.
fn untouched(pc: u64, it_has: bool) -> u32 {
    if it_has && !(pc >> 12).is_multiple_of(5) {
        UNTOUCHED
    } else {
        0
    }
}
