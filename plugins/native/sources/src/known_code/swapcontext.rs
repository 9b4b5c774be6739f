//! The end of glibc's `swapcontext`
//! (<https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/unix/sysv/linux/x86_64/swapcontext.S;hb=refs/tags/glibc-2.39>):
//! it has switched to the other context's stack, while its unwind information still has the return address at the top
//! of it. That becomes true again once the return address was pushed.

use super::{b, Instructions};
use uunwind_core::memory::Reader;
use uunwind_core::regs::{ucontext_offset, CALLEE_SAVED, RA, RSP};
use uunwind_core::rule::{Rule, RA_SLOT, SP_SAVED};

/// DWARF number of rdx, which holds the context's address.
const RDX: u8 = 1;

/// mov 160(%rdx),%rsp; then rbx, rbp, r12 to r15, and the return address in rcx, each from the context; push %rcx.
/// Offsets of all instructions after the first.
const END: Instructions<8> = Instructions {
    #[rustfmt::skip]
    code: &[
        b(0x48), b(0x8b), b(0xa2), b(0xa0), b(0), b(0), b(0),
        b(0x48), b(0x8b), b(0x9a), b(0x80), b(0), b(0), b(0),
        b(0x48), b(0x8b), b(0x6a), b(0x78),
        b(0x4c), b(0x8b), b(0x62), b(0x48),
        b(0x4c), b(0x8b), b(0x6a), b(0x50),
        b(0x4c), b(0x8b), b(0x72), b(0x58),
        b(0x4c), b(0x8b), b(0x7a), b(0x60),
        b(0x48), b(0x8b), b(0x8a), b(0xa8), b(0), b(0), b(0),
        b(0x51),
    ],
    starts: [7, 14, 18, 22, 26, 30, 34, 41],
};

/// Offset of a register in the context, in words.
fn word_of(register: u8) -> i16 {
    (ucontext_offset(register) / 8) as i16
}

/// The rule at `pc`: all of the caller's registers are in the context.
pub fn rule(pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
    END.find(pc, reader)?;
    let mut rule = Rule::simple(RDX, 0);
    (rule.flags, rule.cfa_addend) = (SP_SAVED, word_of(RSP));
    for (slot, register) in rule.slots.iter_mut().zip(CALLEE_SAVED) {
        *slot = word_of(register);
    }
    rule.slots[RA_SLOT] = word_of(RA);
    Some(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::cursor::Cursor;
    use uunwind_core::memory::Region;
    use uunwind_core::regs::Regs;

    #[test]
    fn each_of_its_instructions_is_found_and_nothing_else() {
        END.are_exactly(rule);
    }

    #[test]
    fn the_caller_is_the_one_of_the_context() {
        // The offsets that the instructions above load from.
        let wanted = [(3, 0x80), (6, 0x78), (12, 0x48), (13, 0x50), (14, 0x58), (15, 0x60), (RSP, 0xa0), (RA, 0xa8)];
        let mut context = [0u64; 32];
        wanted.iter().for_each(|(register, at)| context[at / 8] = 0x1_0000 + 16 * u64::from(*register));
        let (code, bytes) = (END.bytes(), context.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>());
        let regions = [Region { address: 0x1000, bytes: &code }, Region { address: 0x8000, bytes: &bytes }];
        let mut reader = Reader::recorded(&regions);
        let mut regs = Regs::full(0x1000 + 41, [0; 16]);
        regs.set(RDX, 0x8000);
        let mut cursor = Cursor { regs, exact: true };
        let packed = rule(regs.pc, &mut reader).expect("a rule").pack();
        let cfa = packed.cfa(&cursor, &mut reader).expect("a CFA");
        packed.advance(&mut cursor, cfa, &mut reader).expect("a caller");
        for (register, _) in wanted {
            let value = if register == RA { Some(cursor.regs.pc) } else { cursor.regs.get(register) };
            assert_eq!(value, Some(0x1_0000 + 16 * u64::from(register)), "register {register}");
        }
    }
}
