//! The rule of a frame whose pc is at its return instruction. JITs describe prologues, but some (Cranelift) do not
//! describe epilogues: at the `ret` their unwind data still counts the CFA from a frame pointer that already is the
//! caller's, and the caller would be skipped. At a `ret` no unwind data is needed: the return address is the word at
//! the stack pointer (AArch64: in x30), and every callee-saved register has been restored. A `ret` that is used as a
//! jump (retpolines) is recognised by that word: it follows no call.
//!
//! Used for exact frames in windows, and where the frame pointer is the only source.

use uunwind_core::call_site;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::regs::SP;
use uunwind_core::rule::Rule;

/// The rule, if the instruction at the pc is a plain `ret`. Async-signal-safe.
pub fn rule(cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Rule> {
    if !cursor.exact {
        return None;
    }
    let (returns, size) = is_return(cursor.regs.pc, reader)?;
    (returns && (size == 0 || goes_after_a_call(cursor, reader))).then(|| Rule::simple(SP, size))
}

/// Whether the word at the stack pointer follows a call.
fn goes_after_a_call(cursor: &Cursor, reader: &mut Reader<'_>) -> bool {
    let was = reader.pause(true);
    let to = reader.word(cursor.regs.sp());
    reader.pause(was);
    to.is_some_and(|to| call_site::precedes(to, reader))
}

/// Whether the instruction at `pc` is a return, and how many bytes of the stack the return address takes. `None`: the
/// code cannot be read. Encodings: Intel SDM, volume 2, RET.
#[cfg(target_arch = "x86_64")]
fn is_return(pc: u64, reader: &mut Reader<'_>) -> Option<(bool, i32)> {
    const RET: u8 = 0xc3;
    /// The `rep` prefix, which some compilers put before a `ret` for the branch predictor of AMD's K8.
    const REP: u8 = 0xf3;
    let returns = match reader.u8(pc)? {
        RET => true,
        REP => reader.u8(pc.wrapping_add(1))? == RET,
        _ => false,
    };
    Some((returns, 8))
}

/// Whether the instruction at `pc` is `ret` (x30). The return address takes no stack, and its pointer authentication
/// code has been removed by then. Encoding: Arm Architecture Reference Manual, RET.
#[cfg(target_arch = "aarch64")]
fn is_return(pc: u64, reader: &mut Reader<'_>) -> Option<(bool, i32)> {
    const RET: u32 = 0xd65f_03c0;
    Some((reader.u32(pc)? == RET, 0))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;
    use uunwind_core::regs::{Regs, RBP};

    /// `mov rsp, rbp; pop rbp; ret`, then `rep ret`, then `mov rbx, rax`, whose last byte is 0xc3.
    const CODE: [u8; 10] = [0x48, 0x89, 0xec, 0x5d, 0xc3, 0xf3, 0xc3, 0x48, 0x89, 0xc3];

    #[test]
    fn only_the_instruction_at_an_exact_pc_counts() {
        let stack: Vec<u8> = [0x1234u64, 0x5678].iter().flat_map(|w| w.to_le_bytes()).collect();
        // `call *%rbx` before the return address; 0x5678 follows none.
        let call = [0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd3];
        let regions = [
            Region { address: 0x1000, bytes: &CODE },
            Region { address: 0x122c, bytes: &call },
            Region { address: 0x8000, bytes: &stack },
        ];
        let mut reader = Reader::recorded(&regions);
        let at = |pc, exact| Cursor { regs: Regs::new(pc, 0x8000, 0x9000), exact };
        for (offset, returns) in [(0, false), (3, false), (4, true), (5, true), (6, true), (7, false), (8, false)] {
            assert_eq!(rule(&at(0x1000 + offset, true), &mut reader).is_some(), returns, "offset {offset}");
            assert_eq!(rule(&at(0x1000 + offset, false), &mut reader), None, "a return address");
        }
        assert_eq!(rule(&at(0x7000, true), &mut reader), None, "unreadable code");
        let jump = Cursor { regs: Regs::new(0x1004, 0x8008, 0x9000), exact: true };
        assert_eq!(rule(&jump, &mut reader), None, "a jump");
        let mut cursor = at(0x1004, true);
        let rule = rule(&cursor, &mut reader).expect("a rule").pack();
        let cfa = rule.cfa(&cursor, &mut reader).expect("a CFA");
        rule.advance(&mut cursor, cfa, &mut reader).expect("a caller");
        assert_eq!((cursor.regs.pc, cursor.regs.sp(), cursor.regs.get(RBP)), (0x1234, 0x8008, Some(0x9000)));
    }
}
