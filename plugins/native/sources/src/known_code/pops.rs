//! Code that only takes registers from the stack and returns, in functions without unwind information: what is popped
//! shows where the return address lies. Go's `crosscall_amd64` (runtime/cgo/gcc_amd64.S), the first function of its
//! threads, is such a one.
//!
//! A return address there must follow a call, and a call whose target is known must lead to code shortly before the pc:
//! after a call that does not return, the instructions may be another path's, with another stack pointer.

use uunwind_core::call_site;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::regs::{CALLEE_SAVED, RSP};
use uunwind_core::rule::Rule;

/// Bytes that are looked at: no function pops more.
const CODE: u64 = 16;
/// DWARF numbers of the registers, as instructions number them.
const NUMBERS: [u8; 8] = [0, 2, 1, 3, 7, 6, 4, 5];

/// Largest distance of the pc from the function's first instruction, in bytes.
const NEAR: u64 = 1 << 16;

/// The rule where at least one `pop`, then `ret` follows, and a caller is there.
pub fn rule(cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Rule> {
    let pc = cursor.regs.pc;
    let rule = by_code(pc, reader)?;
    let above = u64::try_from(rule.cfa_offset).ok()?.wrapping_sub(8);
    let caller = reader.word(cursor.regs.sp().wrapping_add(above))?;
    let is_called = match call_site::fixed_target(caller, reader) {
        Some(target) => pc.wrapping_sub(target) < NEAR,
        None => call_site::precedes(caller, reader),
    };
    is_called.then_some(rule)
}

fn by_code(pc: u64, reader: &mut Reader<'_>) -> Option<Rule> {
    let mut rule = Rule::simple(RSP, 0);
    let mut popped = [None; CODE as usize];
    let mut count = 0usize;
    let mut at = pc;
    loop {
        let mut byte = || {
            let byte = reader.u8(at).filter(|_| at.wrapping_sub(pc) < CODE);
            at = at.wrapping_add(1);
            byte
        };
        let register = match byte()? {
            0xc3 => break,
            first @ 0x58..=0x5f => *NUMBERS.get(usize::from(first & 7))?,
            0x41 => 8 + byte().filter(|second| (0x58..=0x5f).contains(second))?.wrapping_sub(0x58),
            _ => return None,
        };
        // The stack pointer would be somewhere else.
        *popped.get_mut(count)? = Some(register).filter(|register| *register != RSP);
        popped.get(count).copied().flatten()?;
        count = count.saturating_add(1);
    }
    if count == 0 {
        return None;
    }
    rule.cfa_offset = 8 * (i32::try_from(count).ok()?) + 8;
    for (slot, register) in rule.slots.iter_mut().zip(CALLEE_SAVED) {
        // The last one counts.
        let place = popped.iter().take(count).rposition(|popped| *popped == Some(register));
        if let Some(place) = place {
            *slot = i16::try_from(place).ok()?.checked_sub(i16::try_from(count).ok()?)?.checked_sub(1)?;
        }
    }
    Some(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::cursor::Cursor;
    use uunwind_core::memory::Region;
    use uunwind_core::regs::Regs;

    fn at(code: &[u8]) -> Option<Rule> {
        let regions = [Region { address: 0x1000, bytes: code }];
        by_code(0x1000, &mut Reader::recorded(&regions))
    }

    #[test]
    fn a_caller_must_have_called_this_code() {
        // pop %rbx; ret; nops: the first bytes of a call's target are read, for it may be a stub.
        let code = [0x5b, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];
        let found = |call: &[u8; 8]| {
            let stack: Vec<u8> = [7u64, 0x3000].iter().flat_map(|word| word.to_le_bytes()).collect();
            let regions = [
                Region { address: 0x2000, bytes: &code },
                Region { address: 0x2ff8, bytes: call },
                Region { address: 0x8000, bytes: &stack },
            ];
            let cursor = Cursor { regs: Regs::new(0x2000, 0x8000, 0), exact: false };
            rule(&cursor, &mut Reader::recorded(&regions)).is_some()
        };
        // A call of this code; one of other code; call *%rbx; no call.
        let direct = |target: u32| {
            let [a, b, c, d] = target.wrapping_sub(0x3000).to_le_bytes();
            [0x90, 0x90, 0x90, 0xe8, a, b, c, d]
        };
        let through_rbx = [0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd3];
        let calls = [direct(0x2000), direct(0x2ff8), through_rbx, [0x90; 8]];
        assert_eq!(calls.map(|call| found(&call)), [true, false, true, false]);
    }

    #[test]
    fn each_register_has_what_is_popped_into_it() {
        // pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret
        let code = [0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3];
        let order = [15, 14, 13, 12, 6, 3];
        for from in 0..order.len() {
            let bytes: usize = order[..from].iter().map(|register| if *register > 7 { 2 } else { 1 }).sum();
            let rule = at(&code[bytes..]).expect("a rule");
            let stack: Vec<u8> = (0..8u64).flat_map(|word| (0xaa00 + word).to_le_bytes()).collect();
            let regions = [Region { address: 0x8000, bytes: &stack }];
            let mut reader = Reader::recorded(&regions);
            let mut cursor = Cursor { regs: Regs::full(0x1000, [7; 16]), exact: false };
            cursor.regs.set(RSP, 0x8000);
            let cfa = rule.pack().cfa(&cursor, &mut reader).expect("a CFA");
            rule.pack().advance(&mut cursor, cfa, &mut reader).expect("a caller");
            let left = &order[from..];
            assert_eq!(cursor.regs.pc, 0xaa00 + left.len() as u64);
            assert_eq!(cursor.regs.sp(), 0x8000 + 8 * left.len() as u64 + 8);
            for (place, register) in left.iter().enumerate() {
                assert_eq!(cursor.regs.get(*register), Some(0xaa00 + place as u64), "register {register}");
            }
            order[..from].iter().for_each(|register| assert_eq!(cursor.regs.get(*register), Some(7)));
        }
    }

    #[test]
    fn other_code_has_no_rule() {
        // ret; nop; ret — pop %rsp; ret — pop %rbx; nop — mov; 17 times pop
        let many = [0x5b; 17];
        for code in [&[0xc3][..], &[0x90, 0xc3], &[0x5c, 0xc3], &[0x5b, 0x90, 0xc3], &[0x41, 0x50, 0xc3], &many] {
            assert_eq!(at(code), None, "{code:x?}");
        }
    }
}
