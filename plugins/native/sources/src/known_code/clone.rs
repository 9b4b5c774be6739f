//! The end of glibc's `clone` and `clone3`
//! (<https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/unix/sysv/linux/x86_64/clone.S;hb=refs/tags/glibc-2.39>,
//! `clone3.S`): their unwind information ends at the system call, after which two threads continue, and begins again
//! where the new one branches off. Also the ends of functions that return by a few instructions after their unwind
//! information has ended (`setcontext`): code that leaves the stack pointer alone up to a `ret` finds the return
//! address there.

use super::{b, Instructions, ANY};
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::regs::RSP;
use uunwind_core::rule::Rule;

/// DWARF number of rax.
const RAX: u8 = 0;

/// syscall; test %rax,%rax; jl ...; je 1f; ret; 1: xor %ebp,%ebp
const AFTER_CALL: Instructions<5> = Instructions {
    #[rustfmt::skip]
    code: &[
        b(0x0f), b(0x05), b(0x48), b(0x85), b(0xc0), b(0x7c), ANY, b(0x74), b(0x01), b(0xc3), b(0x31), b(0xed),
    ],
    starts: [0, 2, 5, 7, 9],
};
/// Offsets at which both threads may be: from the end of the system call to the jump.
const BOTH: core::ops::RangeInclusive<u8> = 2..=7;

/// mov errno@GOTTPOFF(%rip),%rcx; neg %eax; mov %eax,%fs:(%rcx); or $-1,%rax; ret
const FAILURE: Instructions<5> = Instructions {
    #[rustfmt::skip]
    code: &[
        b(0x48), b(0x8b), b(0x0d), ANY, ANY, ANY, ANY, b(0xf7), b(0xd8), b(0x64), b(0x89), b(0x01),
        b(0x48), b(0x83), b(0xc8), b(0xff), b(0xc3),
    ],
    starts: [0, 7, 9, 12, 16],
};

/// xor %eax,%eax; ret
const SUCCESS: Instructions<2> = Instructions { code: &[b(0x31), b(0xc0), b(0xc3)], starts: [0, 2] };

/// The rule for an interrupted pc in these sequences. The new thread, for which the system call returns 0, has no
/// caller.
pub fn rule(cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Rule> {
    if !cursor.exact {
        return None;
    }
    let pc = cursor.regs.pc;
    if let Some(at) = AFTER_CALL.find(pc, reader) {
        let is_new = BOTH.contains(&at) && cursor.regs.get(RAX)? == 0;
        return Some(if is_new { Rule::end() } else { Rule::simple(RSP, 8) });
    }
    (FAILURE.find(pc, reader).is_some() || SUCCESS.find(pc, reader).is_some()).then(|| Rule::simple(RSP, 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;
    use uunwind_core::regs::Regs;

    fn at(pc: u64, rax: u64, reader: &mut Reader<'_>) -> Option<Rule> {
        let mut regs = Regs::new(pc, 0x8000, 0);
        regs.set(RAX, rax);
        rule(&Cursor { regs, exact: true }, reader)
    }

    #[test]
    fn each_of_their_instructions_is_found_and_nothing_else() {
        AFTER_CALL.are_exactly(|pc, reader| at(pc, 77, reader));
        FAILURE.are_exactly(|pc, reader| at(pc, 77, reader));
        SUCCESS.are_exactly(|pc, reader| at(pc, 77, reader));
    }

    #[test]
    fn the_new_thread_has_no_caller() {
        let bytes = AFTER_CALL.bytes();
        let regions = [Region { address: 0x1000, bytes: &bytes }];
        let mut reader = Reader::recorded(&regions);
        for start in AFTER_CALL.starts {
            let pc = 0x1000 + u64::from(start);
            assert_eq!(at(pc, 77, &mut reader), Some(Rule::simple(RSP, 8)), "+{start}, the calling thread");
            let both = Some(if (2..=7).contains(&start) { Rule::end() } else { Rule::simple(RSP, 8) });
            assert_eq!(at(pc, 0, &mut reader), both, "+{start}, rax 0");
            let returned = Cursor { regs: Regs::new(pc, 0x8000, 0), exact: false };
            assert_eq!(rule(&returned, &mut reader), None, "a return address");
        }
    }
}
