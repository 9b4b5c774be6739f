//! The end of the delivery of an exception by LLVM's libunwind, which no unwind data describes: it loads the registers
//! of the frame that the exception is delivered to
//! (`__libunwind_Registers_x86_64_jumpto` in
//! <https://github.com/llvm/llvm-project/blob/llvmorg-14.0.6/libunwind/src/UnwindRegistersRestore.S>) from the structure
//! that rdi points to (`Registers_x86_64` in `Registers.hpp` there: rax, rbx, rcx, rdx, rdi, rsi, rbp, rsp, r8 to r15,
//! rip). Before that it stores rdi and rip below that frame's stack pointer.

use super::{b, Instructions};
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::regs::{Regs, CALLEE_SAVED, RSP};

/// DWARF numbers.
const RDI: u8 = 5;
const RCX: u8 = 2;
/// Offsets in the structure, in bytes: of rsp, rip, and the callee-saved registers.
const OF_RSP: u64 = 0x38;
const OF_RIP: u64 = 0x80;
const OF_SAVED: [u64; 6] = [0x08, 0x30, 0x60, 0x68, 0x70, 0x78];

/// mov 56(%rdi),%rax; sub $16,%rax; mov %rax,56(%rdi); mov 32(%rdi),%rbx; mov %rbx,(%rax); mov 128(%rdi),%rbx;
/// mov %rbx,8(%rax); mov n(%rdi),... for each register; pop %rdi; pop %rcx; jmp *%rcx
const JUMPTO: Instructions<25> = Instructions {
    #[rustfmt::skip]
    code: &[
        b(0x48), b(0x8b), b(0x47), b(0x38), b(0x48), b(0x83), b(0xe8), b(0x10), b(0x48), b(0x89), b(0x47), b(0x38),
        b(0x48), b(0x8b), b(0x5f), b(0x20), b(0x48), b(0x89), b(0x18), b(0x48), b(0x8b), b(0x9f), b(0x80), b(0x00),
        b(0x00), b(0x00), b(0x48), b(0x89), b(0x58), b(0x08), b(0x48), b(0x8b), b(0x07), b(0x48), b(0x8b), b(0x5f),
        b(0x08), b(0x48), b(0x8b), b(0x4f), b(0x10), b(0x48), b(0x8b), b(0x57), b(0x18), b(0x48), b(0x8b), b(0x77),
        b(0x28), b(0x48), b(0x8b), b(0x6f), b(0x30), b(0x4c), b(0x8b), b(0x47), b(0x40), b(0x4c), b(0x8b), b(0x4f),
        b(0x48), b(0x4c), b(0x8b), b(0x57), b(0x50), b(0x4c), b(0x8b), b(0x5f), b(0x58), b(0x4c), b(0x8b), b(0x67),
        b(0x60), b(0x4c), b(0x8b), b(0x6f), b(0x68), b(0x4c), b(0x8b), b(0x77), b(0x70), b(0x4c), b(0x8b), b(0x7f),
        b(0x78), b(0x48), b(0x8b), b(0x67), b(0x38), b(0x5f), b(0x59), b(0xff), b(0xe1),
    ],
    starts: [0, 4, 8, 12, 16, 19, 26, 30, 33, 37, 41, 45, 49, 53, 57, 61, 65, 69, 73, 77, 81, 85, 89, 90, 91],
};
/// From where on the structure has the lowered stack pointer; and where all other registers are loaded.
const SP_IS_LOWERED: u8 = 12;
const POPS_RDI: u8 = 89;
const POPS_RCX: u8 = 90;
const JUMPS: u8 = 91;

/// Whether an interrupted pc lies in that code. Async-signal-safe.
pub fn is_at(cursor: &Cursor, reader: &mut Reader<'_>) -> bool {
    cursor.exact && JUMPTO.find(cursor.regs.pc, reader).is_some()
}

/// The frame that the exception is delivered to, from an interrupted pc in that code. `None`: it lies elsewhere.
pub fn target(cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Cursor> {
    let at = JUMPTO.find(cursor.regs.pc, reader).filter(|_| cursor.exact)?;
    let sp = cursor.regs.sp();
    let mut regs = cursor.regs;
    regs.keep_callee_saved();
    let (pc, new_sp) = match at {
        JUMPS => (cursor.regs.get(RCX)?, sp),
        POPS_RCX => (reader.word(sp)?, sp.wrapping_add(8)),
        POPS_RDI => (reader.word(sp.wrapping_add(8))?, sp.wrapping_add(16)),
        _ => {
            let from = cursor.regs.get(RDI)?;
            regs = Regs::some(0, [0; 16], 0);
            for (register, offset) in CALLEE_SAVED.into_iter().zip(OF_SAVED) {
                if let Some(value) = reader.word(from.wrapping_add(offset)) {
                    regs.set(register, value);
                }
            }
            let lowered = if at >= SP_IS_LOWERED { 16 } else { 0 };
            let new_sp = reader.word(from.wrapping_add(OF_RSP))?.wrapping_add(lowered);
            (reader.word(from.wrapping_add(OF_RIP))?, new_sp)
        }
    };
    regs.pc = pc;
    regs.set(RSP, new_sp);
    Some(Cursor { regs, exact: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;

    #[test]
    fn each_of_its_instructions_is_found_and_nothing_else() {
        JUMPTO.are_exactly(|pc, reader| {
            let cursor = Cursor { regs: Regs::new(pc, 0x8000, 0), exact: true };
            is_at(&cursor, reader).then_some(())
        });
    }

    /// At each instruction, with the registers and the memory that the ones before have left.
    #[test]
    fn the_target_is_the_same_at_each() {
        const FROM: u64 = 0x6000;
        const TARGET: u64 = 0x8100;
        let code = JUMPTO.bytes();
        let name = |offset: u64| 0x1_0000 + offset;
        for at in JUMPTO.starts {
            let mut from: Vec<u64> = (0..17).map(|index| name(8 * index)).collect();
            from[OF_RSP as usize / 8] = if at >= SP_IS_LOWERED { TARGET - 16 } else { TARGET };
            let (mut stack, mut regs) = (vec![0; 64], Regs::new(0x1000 + u64::from(at), 0x8000, 7));
            if at >= 30 {
                (stack[30], stack[31]) = (name(0x20), name(OF_RIP));
            }
            regs.set(RDI, FROM);
            if at >= POPS_RDI {
                for (register, offset) in CALLEE_SAVED.into_iter().zip(OF_SAVED) {
                    regs.set(register, name(offset));
                }
                regs.set(RDI, if at == POPS_RDI { FROM } else { name(0x20) });
                regs.set(RCX, if at == JUMPS { name(OF_RIP) } else { name(0x10) });
                regs.set(RSP, TARGET - [16, 8, 0][usize::from(at - POPS_RDI)]);
            }
            let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
            let (from, stack) = (bytes(&from), bytes(&stack));
            let regions = [
                Region { address: 0x1000, bytes: &code },
                Region { address: FROM, bytes: &from },
                Region { address: 0x8000, bytes: &stack },
            ];
            let mut reader = Reader::recorded(&regions);
            let cursor = Cursor { regs, exact: true };
            let target = target(&cursor, &mut reader).expect("the target");
            assert_eq!((target.regs.pc, target.regs.sp(), target.exact), (name(OF_RIP), TARGET, true), "+{at}");
            for (register, offset) in CALLEE_SAVED.into_iter().zip(OF_SAVED) {
                assert_eq!(target.regs.get(register), Some(name(offset)), "+{at}, register {register}");
            }
        }
    }
}
