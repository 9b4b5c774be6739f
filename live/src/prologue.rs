//! The rule of a frame that was interrupted at the beginning of a function that keeps a frame pointer, before it has
//! set it up: the frame pointer is still the caller's, and would lead past the caller.
//!
//! The instructions at the pc are recognised by their bytes, and the return address must follow a call.

use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::rule::Rule;

/// The rule, if the pc is interrupted and stands at such an instruction. Async-signal-safe.
#[cfg(target_arch = "x86_64")]
pub fn rule(cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Rule> {
    use uunwind_core::call_site;
    use uunwind_core::regs::SP;
    // Slots are in the order of CALLEE_SAVED: rbx, rbp.
    const RBP_SLOT: usize = 1;
    if !cursor.exact {
        return None;
    }
    let was = reader.pause(true);
    let pushed = words_pushed(cursor.regs.pc, reader);
    let caller = pushed.and_then(|words| reader.word(cursor.regs.sp().wrapping_add(8 * words)));
    let is_called = caller.is_some_and(|caller| call_site::precedes(caller, reader));
    reader.pause(was);
    match pushed.filter(|_| is_called)? {
        0 => Some(Rule::simple(SP, 8)),
        _ => {
            let mut rule = Rule::simple(SP, 16);
            *rule.slots.get_mut(RBP_SLOT)? = -2;
            Some(rule)
        }
    }
}

/// How many words above the return address a prologue has pushed before the instruction at `pc`: 0 at `push %rbp`, or
/// at `endbr64` before it, 1 at `mov %rsp, %rbp` after it. Encodings: Intel SDM, volume 2.
#[cfg(target_arch = "x86_64")]
fn words_pushed(pc: u64, reader: &mut Reader<'_>) -> Option<u64> {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    const PUSH_RBP: u8 = 0x55;
    const MOV_RSP_RBP: [[u8; 3]; 2] = [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]];
    let mut code = [0; 4];
    let mut starts = |at: u64| {
        let [push, mov @ ..] = if reader.read(at, &mut code) { code } else { return None };
        Some(push == PUSH_RBP && MOV_RSP_RBP.contains(&mov))
    };
    if starts(pc)? {
        return Some(0);
    }
    if starts(pc.wrapping_sub(1)) == Some(true) {
        return Some(1);
    }
    let is_next = starts(pc.wrapping_add(ENDBR64.len() as u64))?;
    let is_endbr64 = reader.read(pc, &mut code) && code == ENDBR64;
    (is_next && is_endbr64).then_some(0)
}

/// On AArch64, prologues are not recognised.
#[cfg(target_arch = "aarch64")]
pub fn rule(_cursor: &Cursor, _reader: &mut Reader<'_>) -> Option<Rule> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;
    use uunwind_core::regs::{Regs, RBP};

    /// What becomes of the cursor at each offset of `code`: the caller's stack pointer and rbp.
    fn steps(code: &[u8], stack: [u64; 2]) -> Vec<Option<(u64, Option<u64>)>> {
        let stack: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
        // `call *%rbx` before 0x2000.
        let regions = [
            Region { address: 0x1000, bytes: code },
            Region { address: 0x1ff8, bytes: &[0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd3] },
            Region { address: 0x8000, bytes: &stack },
        ];
        let step = |offset: usize| {
            let mut reader = Reader::recorded(&regions);
            let mut cursor = Cursor { regs: Regs::new(0x1000 + offset as u64, 0x8000, 0x9000), exact: true };
            let rule = rule(&cursor, &mut reader)?.pack();
            let cfa = rule.cfa(&cursor, &mut reader).expect("a CFA");
            rule.advance(&mut cursor, cfa, &mut reader).expect("a caller");
            assert_eq!(cursor.regs.pc, 0x2000);
            Some((cursor.regs.sp(), cursor.regs.get(RBP)))
        };
        (0..code.len()).map(step).collect()
    }

    #[test]
    fn callers_are_found_before_the_frame_pointer_is_set_up() {
        let (before, after) = (Some((0x8008, Some(0x9000))), Some((0x8010, Some(0x9008))));
        for mov in [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]] {
            let code = [&[0xf3, 0x0f, 0x1e, 0xfa, 0x55][..], &mov, &[0x5d, 0xc3]].concat();
            let none = [None; 10];
            let mut expected = none;
            (expected[0], expected[4]) = (before, before);
            assert_eq!(steps(&code, [0x2000, 0]), expected);
            let mut expected = none;
            expected[5] = after;
            assert_eq!(steps(&code, [0x9008, 0x2000]), expected);
            assert_eq!(steps(&code, [0x2004, 0x2004]), none, "no return address");
        }
        assert_eq!(steps(&[0x55, 0x90, 0x48, 0x89, 0xe5], [0x2000, 0x2000]), [None; 5]);
    }
}
