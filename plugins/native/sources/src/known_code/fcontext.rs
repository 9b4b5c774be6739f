//! Boost.Context's switches of stacks, where its builds have no unwind data for them: `jump_fcontext`, `ontop_fcontext`
//! and what `make_fcontext` begins a stack with
//! ([Boost 1.74, `src/asm/*_x86_64_sysv_elf_gas.S`](https://github.com/boostorg/context/tree/boost-1.74.0/src/asm)).
//!
//! ```text
//! lea -N(%rsp), %rsp; stores of registers; mov %rsp, %rax     on the stack that is left
//! mov %rdi, %rsp; loads of registers                          on the other one: its context lies at rsp
//! mov D(%rsp), %rbp; lea M(%rsp), %rsp; mov %rsi, %rdx; mov %rax, %rdi; jmp *%r8
//! ```
//! Of a context, the stack pointer is below the return address by N = D + 8 bytes: up to the last `lea` on either
//! stack. `jump_fcontext` has loaded that address into r8 and drops it (M = N + 8); `ontop_fcontext` leaves it to the
//! function that it jumps to (M = N).

use super::{b, Instructions, ANY};
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::regs::{CALLEE_SAVED, RSP};
use uunwind_core::rule::{Rule, RA_IN_REGISTER, RA_SLOT};
use uunwind_core::stop_reason::StopReason;

/// `push %rbp; jmp *%rbx`, the first instructions of a context, then where its function returns to: `xor %rdi, %rdi;
/// call _exit; hlt`. The last one is what that call would return to.
const BASE: Instructions<5> = Instructions {
    code: &[b(0x55), b(0xff), b(0xe3), b(0x48), b(0x31), b(0xff), b(0xe8), ANY, ANY, ANY, ANY, b(0xf4)],
    starts: [0, 1, 3, 6, 11],
};

/// Instructions up to the jump, at most.
const INSTRUCTIONS: usize = 32;
/// Length of what stands before the jump: the load of rbp, `lea`, and two moves between registers.
const BEFORE_JUMP: u64 = 16;
/// The register that the jump takes.
const R8: u8 = 8;
/// DWARF numbers of the registers, as instructions number them.
const NUMBERS: [u8; 8] = [0, 2, 1, 3, 7, 6, 4, 5];

/// The instructions that such a function consists of.
enum Step {
    /// `lea -N(%rsp), %rsp`.
    Lower,
    /// `lea M(%rsp), %rsp`.
    Raise,
    /// `mov %rdi, %rsp`.
    Switch,
    /// A callee-saved register, by its DWARF number, is loaded from this number of bytes above the stack pointer.
    Load(u8, u8),
    /// `jmp *%r8`.
    Jump,
    /// Anything that changes neither of them.
    Other,
}

/// The rule, or the reason why there is no caller, in this code. Async-signal-safe.
pub fn rule(cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Result<Rule, StopReason>> {
    let pc = cursor.regs.pc;
    if BASE.find(pc, reader).is_some() {
        return Some(Err(StopReason::SwitchedStack));
    }
    if !cursor.exact {
        return None;
    }
    in_switch(pc, reader).map(Ok)
}

fn in_switch(pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
    let (mut lowers, mut switches, mut raises) = (false, false, false);
    let mut loads = [None; CALLEE_SAVED.len()];
    let mut at = pc;
    for _ in 0..INSTRUCTIONS {
        let (step, len) = instruction(at, reader)?;
        match step {
            Step::Lower => lowers = true,
            Step::Raise => raises = true,
            Step::Switch => switches = true,
            Step::Load(register, place) if !switches => {
                let index = CALLEE_SAVED.iter().position(|saved| *saved == register)?;
                *loads.get_mut(index)? = Some(place);
            }
            Step::Load(..) | Step::Other => {}
            Step::Jump => return at_jump(at, (lowers, switches, raises), loads, reader),
        }
        at = at.wrapping_add(len);
    }
    None
}

/// The rule where a jump at `jump` follows: which instructions stand between, and the loads among them.
fn at_jump(
    jump: u64,
    (lowers, switches, raises): (bool, bool, bool),
    loads: [Option<u8>; CALLEE_SAVED.len()],
    reader: &mut Reader<'_>,
) -> Option<Rule> {
    let mut code = [0; BEFORE_JUMP as usize];
    if !reader.read(jump.wrapping_sub(BEFORE_JUMP), &mut code) {
        return None;
    }
    let [0x48, 0x8b, 0x6c, 0x24, rbp, 0x48, 0x8d, 0x64, 0x24, raised, 0x48, 0x89, 0xf2, 0x48, 0x89, 0xc7] = code else {
        return None;
    };
    let size = i32::from(rbp) + 8;
    let drops = match i32::from(raised) - size {
        0 => false,
        8 => true,
        _ => return None,
    };
    if !raises {
        // The last instructions: the return address is dropped, and in r8; or it is at the stack pointer.
        let mut rule = Rule::simple(RSP, if drops { 0 } else { 8 });
        if drops {
            rule.flags = RA_IN_REGISTER;
            *rule.slots.get_mut(RA_SLOT)? = i16::from(R8);
        }
        return Some(rule);
    }
    let mut rule = Rule::simple(RSP, if lowers { 8 } else { size + 8 });
    if !switches {
        for (slot, place) in rule.slots.iter_mut().zip(loads) {
            if let Some(place) = place {
                *slot = i16::try_from((i32::from(place) - size - 8) / 8).ok()?;
            }
        }
    }
    Some(rule)
}

/// The instruction at an address, if it is one of those, and its length. Encodings: Intel SDM, volume 2.
fn instruction(at: u64, reader: &mut Reader<'_>) -> Option<(Step, u64)> {
    let mut code = [0; 5];
    if !reader.read(at, &mut code) && !reader.read(at, code.get_mut(..3)?) {
        return None;
    }
    Some(match code {
        [0x41, 0xff, 0xe0, ..] => (Step::Jump, 3),
        [0x48, 0x89, 0xfc, ..] => (Step::Switch, 3),
        [0x48, 0x8d, 0x64, 0x24, bytes] => (if bytes >= 0x80 { Step::Lower } else { Step::Raise }, 5),
        // mov %rsp, %rax; mov %rsi, %rdx; mov %rax, %rdi; mov %rdx, %r8.
        [0x48, 0x89, 0xe0 | 0xf2 | 0xc7, ..] | [0x49, 0x89, 0xd0, ..] => (Step::Other, 3),
        // stmxcsr and ldmxcsr (%rsp), fnstcw and fldcw 4(%rsp).
        [0x0f, 0xae, 0x1c | 0x14, 0x24, _] | [0xd9, 0x7c | 0x6c, 0x24, _, _] => (Step::Other, 4),
        // Stores and loads at a distance from rsp.
        [0x48 | 0x4c, 0x89, modrm, 0x24, _] if modrm & 0xc7 == 0x44 => (Step::Other, 5),
        [0x4c, 0x8b, 0x44, 0x24, _] => (Step::Other, 5),
        [rex @ (0x48 | 0x4c), 0x8b, modrm, 0x24, place] if modrm & 0xc7 == 0x44 => {
            let number = modrm >> 3 & 7;
            let register = if rex == 0x4c { 8 + number } else { *NUMBERS.get(usize::from(number))? };
            (Step::Load(register, place), 5)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;
    use uunwind_core::regs::{Regs, RBP, RBX};

    /// The instructions of both functions, as GNU as 2.40 writes them.
    const SAVE: [&[u8]; 10] = [
        &[0x48, 0x8d, 0x64, 0x24, 0xc8],
        &[0x0f, 0xae, 0x1c, 0x24],
        &[0xd9, 0x7c, 0x24, 0x04],
        &[0x4c, 0x89, 0x64, 0x24, 0x08],
        &[0x4c, 0x89, 0x6c, 0x24, 0x10],
        &[0x4c, 0x89, 0x74, 0x24, 0x18],
        &[0x4c, 0x89, 0x7c, 0x24, 0x20],
        &[0x48, 0x89, 0x5c, 0x24, 0x28],
        &[0x48, 0x89, 0x6c, 0x24, 0x30],
        &[0x48, 0x89, 0xe0],
    ];
    const SWITCH: &[u8] = &[0x48, 0x89, 0xfc];
    const RESTORE: [&[u8]; 8] = [
        &[0x0f, 0xae, 0x14, 0x24],
        &[0xd9, 0x6c, 0x24, 0x04],
        &[0x4c, 0x8b, 0x64, 0x24, 0x08],
        &[0x4c, 0x8b, 0x6c, 0x24, 0x10],
        &[0x4c, 0x8b, 0x74, 0x24, 0x18],
        &[0x4c, 0x8b, 0x7c, 0x24, 0x20],
        &[0x48, 0x8b, 0x5c, 0x24, 0x28],
        &[0x48, 0x8b, 0x6c, 0x24, 0x30],
    ];
    const REST: [&[u8]; 3] = [&[0x48, 0x89, 0xf2], &[0x48, 0x89, 0xc7], &[0x41, 0xff, 0xe0]];

    fn jump() -> Vec<&'static [u8]> {
        let (load, raise): (&[u8], &[u8]) = (&[0x4c, 0x8b, 0x44, 0x24, 0x38], &[0x48, 0x8d, 0x64, 0x24, 0x40]);
        [&SAVE[..], &[SWITCH, load], &RESTORE, &[raise], &REST].concat()
    }

    fn ontop() -> Vec<&'static [u8]> {
        let raise: &[u8] = &[0x48, 0x8d, 0x64, 0x24, 0x38];
        [&[&[0x49, 0x89, 0xd0][..]], &SAVE[..], &[SWITCH], &RESTORE, &[raise], &REST].concat()
    }

    const CODE: u64 = 0x1000;
    const STACK: u64 = 0x8000;
    const OTHER: u64 = 0x9000;
    const CALLER: u64 = 0x20_0000;
    const RESUMED: u64 = 0x30_0000;

    /// The state of a processor that executes only these instructions: rsp, and rbx and rbp.
    struct Machine {
        sp: u64,
        rbx: u64,
        rbp: u64,
        r8: u64,
        stack: Vec<u64>,
        other: Vec<u64>,
    }

    impl Machine {
        fn word(&mut self, address: u64) -> &mut u64 {
            let (words, base) = if address < OTHER { (&mut self.stack, STACK) } else { (&mut self.other, OTHER) };
            &mut words[((address - base) / 8) as usize]
        }

        fn execute(&mut self, code: &[u8]) {
            match *code {
                [0x48, 0x8d, 0x64, 0x24, bytes] => self.sp = self.sp.wrapping_add_signed(i64::from(bytes as i8)),
                [0x48, 0x89, 0xfc] => self.sp = OTHER,
                [0x48, 0x89, 0x5c, 0x24, place] => *self.word(self.sp + u64::from(place)) = self.rbx,
                [0x48, 0x89, 0x6c, 0x24, place] => *self.word(self.sp + u64::from(place)) = self.rbp,
                [0x48, 0x8b, 0x5c, 0x24, place] => self.rbx = *self.word(self.sp + u64::from(place)),
                [0x48, 0x8b, 0x6c, 0x24, place] => self.rbp = *self.word(self.sp + u64::from(place)),
                [0x4c, 0x8b, 0x44, 0x24, place] => self.r8 = *self.word(self.sp + u64::from(place)),
                _ => {}
            }
        }
    }

    /// At each instruction the caller is that of the stack that rsp is on, with its registers.
    #[test]
    fn both_stacks_have_their_callers_at_each_instruction() {
        for code in [jump(), ontop()] {
            let bytes = code.concat();
            // A word that is lost would be found missing: all others are zero.
            let (mut stack, mut other) = (vec![0; 16], vec![0; 16]);
            (stack[8], other[7], other[5], other[6]) = (CALLER, RESUMED, 0xbb, 0xb9);
            let mut machine = Machine { sp: STACK + 64, rbx: 0xab, rbp: 0xa9, r8: 0, stack, other };
            let (mut at, mut is_switched) = (CODE, false);
            for step in &code {
                let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
                let (stack, other) = (words(&machine.stack), words(&machine.other));
                let regions = [
                    Region { address: CODE, bytes: &bytes },
                    Region { address: STACK, bytes: &stack },
                    Region { address: OTHER, bytes: &other },
                ];
                let mut reader = Reader::recorded(&regions);
                let mut regs = Regs::new(at, machine.sp, machine.rbp);
                regs.set(RBX, machine.rbx);
                regs.set(R8, machine.r8);
                let mut cursor = Cursor { regs, exact: true };
                let rule = rule(&cursor, &mut reader).expect("recognised").expect("a rule").pack();
                let cfa = rule.cfa(&cursor, &mut reader).expect("a CFA");
                rule.advance(&mut cursor, cfa, &mut reader).expect("a caller");
                let found = (cursor.regs.pc, cursor.regs.sp(), cursor.regs.get(RBX), cursor.regs.get(RBP));
                let expected = if is_switched {
                    (RESUMED, OTHER + 64, Some(0xbb), Some(0xb9))
                } else {
                    (CALLER, STACK + 72, Some(0xab), Some(0xa9))
                };
                assert_eq!(found, expected, "{step:x?} at +{:#x}", at - CODE);
                let mut inside = Cursor { regs: Regs::new(at, STACK, 0), exact: false };
                assert!(super::rule(&inside, &mut reader).is_none(), "no call returns to it");
                inside.regs.pc = at + 1;
                inside.exact = true;
                assert!(super::rule(&inside, &mut reader).is_none(), "{step:x?}: within an instruction");
                machine.execute(step);
                is_switched |= *step == SWITCH;
                at += step.len() as u64;
            }
        }
    }

    #[test]
    fn other_code_is_not_recognised() {
        for code in [jump(), ontop()] {
            let bytes = code.concat();
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] = 0xcc;
                let regions = [Region { address: CODE, bytes: &other }];
                let cursor = Cursor { regs: Regs::new(CODE, STACK, 0), exact: true };
                let found = rule(&cursor, &mut Reader::recorded(&regions));
                // Places of registers and control words may be others.
                let is_place = bytes[..at].ends_with(&[0x24]) || bytes[..at].ends_with(&[0x24, 0x04]);
                assert!(found.is_none() || is_place, "byte {at:#x}");
            }
        }
    }

    #[test]
    fn a_context_begins_in_its_base() {
        BASE.are_exactly(|pc, reader| {
            let cursor = Cursor { regs: Regs::new(pc, STACK, 0), exact: true };
            rule(&cursor, reader).filter(|rule| *rule == Err(StopReason::SwitchedStack))
        });
    }
}
