//! `_init` and `_fini` of the C library's start files
//! (<https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/x86_64/crti.S;hb=refs/tags/glibc-2.39>, `crtn.S`): every
//! object has them, and no unwind information describes them. The first instruction of `_init` is often the first
//! access to a library's text, whose page fault makes samples fall there more often than its size suggests.
//!
//! The whole function is compared byte for byte, except for one address, so nothing is guessed.

use super::{b, ANY};
use uunwind_core::memory::Reader;
use uunwind_core::regs::RSP;
use uunwind_core::rule::Rule;
use uunwind_core::span::Span;

/// A function's code (`None`: any byte), and its instructions: offset, and distance in bytes from rsp to the CFA there.
struct Function {
    code: &'static [Option<u8>],
    instructions: &'static [(u8, u8)],
}

/// sub $8,%rsp; mov __gmon_start__@GOTPCREL(%rip),%rax; test %rax,%rax; je 1f; call *%rax; 1: add $8,%rsp; ret
const INIT: Function = Function {
    code: &[
        b(0x48),
        b(0x83),
        b(0xec),
        b(0x08),
        b(0x48),
        b(0x8b),
        b(0x05),
        ANY,
        ANY,
        ANY,
        ANY,
        b(0x48),
        b(0x85),
        b(0xc0),
        b(0x74),
        b(0x02),
        b(0xff),
        b(0xd0),
        b(0x48),
        b(0x83),
        b(0xc4),
        b(0x08),
        b(0xc3),
    ],
    instructions: &[(0, 8), (4, 16), (11, 16), (14, 16), (16, 16), (18, 16), (22, 8)],
};

/// sub $8,%rsp; add $8,%rsp; ret
const FINI: Function = Function {
    code: &[b(0x48), b(0x83), b(0xec), b(0x08), b(0x48), b(0x83), b(0xc4), b(0x08), b(0xc3)],
    instructions: &[(0, 8), (4, 16), (8, 8)],
};

/// The rule at `pc`, an interrupted instruction or a return address in one of them, and that function's range.
/// Async-signal-safe; at most 11 reads of 23 bytes.
#[cold]
pub fn rule(_lookup: u64, pc: u64, reader: &mut Reader<'_>) -> Option<(Rule, Span)> {
    for function in [&INIT, &FINI] {
        for (at, cfa) in function.instructions {
            let mut bytes = [0u8; 23];
            let room = bytes.get_mut(..function.code.len())?;
            let start = pc.wrapping_sub(u64::from(*at));
            let is_there = reader.read(start, room)
                && room.iter().zip(function.code).all(|(byte, wanted)| wanted.is_none_or(|wanted| wanted == *byte));
            if is_there {
                let end = start.wrapping_add(function.code.len() as u64);
                return Some((Rule::simple(RSP, i32::from(*cfa)), Span::new(start, end)));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;

    fn code(function: &Function) -> Vec<u8> {
        function.code.iter().map(|byte| byte.unwrap_or(0x5a)).collect()
    }

    #[test]
    fn each_instruction_is_recognised_and_nothing_else() {
        for function in [&INIT, &FINI] {
            let bytes = code(function);
            let regions = [Region { address: 0x1000, bytes: &bytes }];
            for at in 0..bytes.len() as u8 {
                let found = rule(0, 0x1000 + u64::from(at), &mut Reader::recorded(&regions));
                let expected = function.instructions.iter().find(|(place, _)| *place == at);
                let range = Span::sized(0x1000, bytes.len() as u64);
                assert_eq!(found, expected.map(|(_, cfa)| (Rule::simple(RSP, i32::from(*cfa)), range)), "+{at}");
            }
            for at in (0..bytes.len()).filter(|at| function.code[*at].is_some()) {
                let mut other = bytes.clone();
                other[at] ^= 1;
                let regions = [Region { address: 0x1000, bytes: &other }];
                assert_eq!(rule(0, 0x1000, &mut Reader::recorded(&regions)), None, "byte {at} is another");
            }
        }
    }
}
