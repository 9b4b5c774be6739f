//! `_init` and `_fini` of the C library's start files
//! (<https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/x86_64/crti.S;hb=refs/tags/glibc-2.39>, `crtn.S`): every
//! object has them, and no unwind information describes them. The first instruction of `_init` is often the first
//! access to a library's text, whose page fault makes samples fall there more often than its size suggests.
//!
//! They begin with `endbr64` where the C library was built so. Older ones call `__gmon_start__` through the procedure
//! linkage table, newer ones through rax. Object files may put calls of their own into the sections, such as gcc's
//! `crtbegin.o` and libcrypto's assembly. All other code is refused, so nothing is guessed.

use super::{b, ANY};
use uunwind_core::memory::Reader;
use uunwind_core::regs::RSP;
use uunwind_core::rule::Rule;
use uunwind_core::span::Span;

type Code = &'static [Option<u8>];

const ENDBR: Code = &[b(0xf3), b(0x0f), b(0x1e), b(0xfa)];
/// sub $8,%rsp
const DOWN: Code = &[b(0x48), b(0x83), b(0xec), b(0x08)];
/// mov __gmon_start__@GOTPCREL(%rip),%rax
const LOAD: Code = &[b(0x48), b(0x8b), b(0x05), ANY, ANY, ANY, ANY];
/// test %rax,%rax
const TEST: Code = &[b(0x48), b(0x85), b(0xc0)];
/// je, over a call of each kind
const OVER_CALL_RAX: Code = &[b(0x74), b(0x02)];
const OVER_CALL: Code = &[b(0x74), b(0x05)];
const CALL_RAX: Code = &[b(0xff), b(0xd0)];
const CALL: Code = &[b(0xe8), ANY, ANY, ANY, ANY];
/// add $8,%rsp
const UP: Code = &[b(0x48), b(0x83), b(0xc4), b(0x08)];
const RET: Code = &[b(0xc3)];

/// Limit of the calls besides that of `__gmon_start__`.
const CALLS: usize = 4;
/// Length of the longest such function in bytes.
const LONGEST: usize = 4 + 4 + 7 + 3 + 2 + 5 + 5 * CALLS + 4 + 1;

/// Goes through the instructions of a function.
struct Decoder<'c> {
    code: &'c [u8],
    /// Where the next instruction begins.
    next: usize,
    /// Distance in bytes from rsp to the CFA before that instruction.
    cfa: i32,
    /// The offset of which the distance is wanted, and the distance, once an instruction began there.
    wanted: usize,
    found: Option<i32>,
}

impl Decoder<'_> {
    /// Passes the next instruction, if it is this one.
    fn take(&mut self, instruction: Code) -> bool {
        let code = self.code.get(self.next..self.next + instruction.len()).unwrap_or_default();
        let matches = |(byte, wanted): (&u8, &Option<u8>)| wanted.is_none_or(|wanted| wanted == *byte);
        if code.is_empty() || !code.iter().zip(instruction).all(matches) {
            return false;
        }
        if self.next == self.wanted {
            self.found = Some(self.cfa);
        }
        self.next += instruction.len();
        true
    }

    /// Passes the whole function.
    fn function(&mut self) -> bool {
        self.take(ENDBR);
        if !self.take(DOWN) {
            return false;
        }
        self.cfa = 16;
        if self.take(LOAD) {
            let calls = self.take(TEST)
                && (self.take(OVER_CALL_RAX) && self.take(CALL_RAX) || self.take(OVER_CALL) && self.take(CALL));
            if !calls {
                return false;
            }
        }
        for _ in 0..CALLS {
            if !self.take(CALL) {
                break;
            }
        }
        if !self.take(UP) {
            return false;
        }
        self.cfa = 8;
        self.take(RET)
    }
}

/// The rule at `pc`, an interrupted instruction or a return address in one of them, and that function's range.
/// Async-signal-safe; at most 55 reads, nearly all of four bytes.
#[cold]
pub fn rule(_lookup: u64, pc: u64, reader: &mut Reader<'_>) -> Option<(Rule, Span)> {
    let first = reader.u8(pc)?;
    let begins = [ENDBR, DOWN, OVER_CALL, CALL_RAX, CALL, RET].into_iter();
    if !begins.filter_map(|code| *code.first()?).any(|byte| byte == first) {
        return None;
    }
    // The farthest start first, so that it is that of `endbr64`.
    for at in (0..LONGEST).rev() {
        let start = pc.wrapping_sub(at as u64);
        let Some(head) = reader.u32(start) else { continue };
        let is = |code: Code| code.iter().zip(head.to_le_bytes()).all(|(wanted, byte)| *wanted == Some(byte));
        if !is(ENDBR) && !is(DOWN) {
            continue;
        }
        let mut bytes = [0; LONGEST];
        let there = readable(start, &mut bytes, reader);
        let code = bytes.get(..there).unwrap_or_default();
        let mut decoder = Decoder { code, next: 0, cfa: 8, wanted: at, found: None };
        if let (true, Some(cfa)) = (decoder.function(), decoder.found) {
            return Some((Rule::simple(RSP, cfa), Span::sized(start, decoder.next as u64)));
        }
    }
    None
}

/// Fills `bytes` as far as they can be read: all, or those up to the end of the page.
fn readable(start: u64, bytes: &mut [u8; LONGEST], reader: &mut Reader<'_>) -> usize {
    const PAGE: u64 = 4096;
    if reader.read(start, bytes) {
        return LONGEST;
    }
    let in_page = (PAGE - start % PAGE).min(LONGEST as u64) as usize;
    let got = bytes.get_mut(..in_page).is_some_and(|part| reader.read(start, part));
    if got {
        in_page
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;

    /// The instructions of a function, each with its distance from rsp to the CFA.
    type Function = Vec<(Code, i32)>;

    /// As crti.o of several C libraries and the files between it and crtn.o make them.
    fn functions() -> Vec<Function> {
        let around = |inner: &[Code], endbr: bool| {
            let mut all: Function = if endbr { vec![(ENDBR, 8)] } else { Vec::new() };
            all.push((DOWN, 8));
            all.extend(inner.iter().map(|code| (*code, 16)));
            all.extend([(UP, 16), (RET, 8)]);
            all
        };
        let by_register = [LOAD, TEST, OVER_CALL_RAX, CALL_RAX];
        let by_table = [LOAD, TEST, OVER_CALL, CALL];
        vec![
            around(&by_register, false),
            around(&by_register, true),
            around(&by_table, false),
            around(&[&by_register[..], &[CALL, CALL]].concat(), false),
            around(&[&by_table[..], &[CALL; CALLS]].concat(), true),
            around(&[], false),
            around(&[], true),
            around(&[CALL], false),
        ]
    }

    fn code(function: &Function) -> Vec<Option<u8>> {
        function.iter().flat_map(|(code, _)| code.iter().copied()).collect()
    }

    #[test]
    fn each_instruction_is_recognised_and_nothing_else() {
        for function in functions() {
            let code = code(&function);
            assert!(code.len() <= LONGEST);
            let bytes: Vec<u8> = code.iter().map(|byte| byte.unwrap_or(0x5a)).chain([0xcc; LONGEST]).collect();
            // Nothing can be read before it.
            let regions = [Region { address: 0x1000, bytes: &bytes }];
            let range = Span::sized(0x1000, code.len() as u64);
            let mut expected = vec![None; code.len()];
            let mut at = 0;
            for (code, cfa) in &function {
                expected[at] = Some((Rule::simple(RSP, *cfa), range));
                at += code.len();
            }
            for (at, expected) in expected.iter().enumerate() {
                let found = rule(0, 0x1000 + at as u64, &mut Reader::recorded(&regions));
                assert_eq!(found, *expected, "{function:x?} +{at}");
            }
            for at in (0..code.len()).filter(|at| code[*at].is_some()) {
                let mut other = bytes.clone();
                other[at] ^= 1;
                let regions = [Region { address: 0x1000, bytes: &other }];
                assert_eq!(rule(0, 0x1000, &mut Reader::recorded(&regions)), None, "byte {at} is another");
            }
        }
    }

    #[test]
    fn what_ends_with_a_page_is_read_up_to_it() {
        let function = functions().remove(0);
        let bytes: Vec<u8> = code(&function).iter().map(|byte| byte.unwrap_or(0x5a)).collect();
        let start = 0x2000 - bytes.len() as u64;
        let regions = [Region { address: start, bytes: &bytes }];
        let range = Span::sized(start, bytes.len() as u64);
        assert_eq!(rule(0, start, &mut Reader::recorded(&regions)), Some((Rule::simple(RSP, 8), range)));
    }
}
