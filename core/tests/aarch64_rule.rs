//! AArch64's rules, on any machine: what is packed does what the rule says, addresses lose their authentication code
//! and nothing else, and a signal frame gives every register.

use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::aarch64::{
    ucontext_offset, Regs, CALLEE_SAVED, CALLEE_SAVED_MASK, COUNT, FP, RA, SP, UCONTEXT_PC, UCONTEXT_SP,
};
use uunwind_core::rule::aarch64::{Packed, Rule, FP_SLOT, RA_SIGNED, RA_SLOT};
use uunwind_core::rule::{RuleKind, BY_FRAME_POINTER, RA_IN_REGISTER, SAME, UNKNOWN};
use uunwind_core::stop_reason::StopReason;
use uunwind_random::Random;

/// What Linux has with 48-bit addresses (arch/arm64/include/asm/pointer_auth.h: GENMASK(54, 48)).
const MASK: u64 = 0x007f_0000_0000_0000;
const STACK: u64 = 0x7fff_0000_0000;
const WORDS: usize = 16 * 1024;

fn bytes(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn registers() -> [u64; COUNT] {
    std::array::from_fn(|r| STACK + 8 * (WORDS as u64 / 2 + 64 * r as u64))
}

/// What a rule says, done naively: pc, then sp and the callee-saved registers.
fn by_hand(rule: &Rule, regs: &Regs, stack: &[u64]) -> Result<(u64, [Option<u64>; 12]), StopReason> {
    let word = |at: u64| stack.get(usize::try_from(at.checked_sub(STACK)? / 8).ok()?).copied();
    let cfa = regs.values()[usize::from(rule.cfa_register)].wrapping_add_signed(i64::from(rule.cfa_offset));
    let saved = |slot: i16| word(cfa.wrapping_add_signed(8 * i64::from(slot)));
    let ra = rule.slots[RA_SLOT];
    let ra = if rule.flags & RA_IN_REGISTER != 0 {
        regs.get(ra as u8).ok_or(StopReason::UnknownRegister)?
    } else {
        saved(ra).ok_or(StopReason::UnreadableStack)?
    };
    let pc = if rule.flags & RA_SIGNED != 0 { ra & !MASK } else { ra };
    let mut values = [None; 12];
    values[11] = if rule.flags & BY_FRAME_POINTER != 0 { None } else { Some(cfa) };
    for (index, register) in CALLEE_SAVED.into_iter().enumerate() {
        values[index] = match rule.slots[index] {
            SAME => regs.get(register),
            // As the packed form has it, which keeps x29's place farther than the others'.
            UNKNOWN => None,
            slot if index != FP_SLOT && !(-2047..=2046).contains(&slot) => None,
            slot => saved(slot),
        };
    }
    Ok((pc, values))
}

#[test]
fn packed_rules_do_what_rules_say() {
    let mut random = Random::new(0xaa_5eed);
    let mut next = move || random.number();
    let stack: Vec<u64> = (0..WORDS).map(|_| next()).collect();
    let image = bytes(stack.iter().copied());
    let regions = [Region { address: STACK, bytes: &image }];
    let (mut whole, mut failed) = (0, 0);
    for _ in 0..50_000 {
        let mut rule = Rule::simple(next() as u8 % 32, (next() % 8192) as i32 * 8 - 4096);
        for slot in &mut rule.slots {
            *slot = match next() % 8 {
                0 | 1 => SAME,
                2 => UNKNOWN,
                3 => next() as i16,
                4 => [-2048, -2047, 2046, 2047][next() as usize % 4],
                _ => -1 - (next() % 64) as i16,
            };
        }
        rule.flags = next() as u8 & 7;
        rule.slots[RA_SLOT] =
            if rule.flags & RA_IN_REGISTER != 0 { (next() % 32) as i16 } else { -1 - (next() % 200) as i16 };
        let known = next() as u32 | 1 << rule.cfa_register;
        let regs = Regs::some(0x1234, registers(), known).with_pac_mask(MASK);
        let packed = Packed::from_words(rule.pack().words()).expect("its own words");
        let mut cursor = Cursor { regs, exact: true };
        let mut reader = Reader::recorded(&regions);
        let cfa = packed.cfa(&cursor, &mut reader).expect("a register that is known");
        let found = packed.advance(&mut cursor, cfa, &mut reader).map(|()| {
            let value = |index: usize| cursor.regs.get(CALLEE_SAVED.get(index).copied().unwrap_or(SP));
            (cursor.regs.pc, std::array::from_fn(value))
        });
        let expected = by_hand(&rule, &regs, &stack);
        assert_eq!(found, expected, "{rule:?}");
        let unpacked = packed.unpack().expect("a rule");
        assert_eq!((by_hand(&unpacked, &regs, &stack), unpacked.pack()), (expected, packed), "{rule:?}");
        assert!(!cursor.exact || found.is_err());
        assert_eq!(
            cursor.regs.known() & !CALLEE_SAVED_MASK,
            if found.is_ok() { 0 } else { known & !CALLEE_SAVED_MASK }
        );
        whole += usize::from(found.is_ok());
        failed += usize::from(found.is_err());
    }
    assert!(whole > 10_000 && failed > 1_000, "{whole} whole, {failed} failed");
}

#[test]
fn what_cannot_be_packed_is_no_rule() {
    let good = Rule::simple(SP, 16);
    assert!(!good.pack().is_failed());
    assert_eq!(good.pack().cfa_parts(), (SP, 16));
    let largest = ((1 << 20) - 1) * 8;
    for offset in [largest, -largest] {
        assert_eq!(Rule::simple(FP, offset).pack().cfa_parts(), (FP, offset));
    }
    let odd = [
        Rule { cfa_offset: 12, ..good },
        Rule { cfa_offset: largest + 8, ..good },
        Rule { cfa_offset: -largest - 8, ..good },
        Rule { cfa_register: 32, ..good },
        Rule { kind: RuleKind::Deref, ..good },
    ];
    for rule in odd {
        assert!(rule.pack().failed_for(StopReason::UnsupportedRule), "{rule:?}");
    }
    // Words of a damaged table: refused, or a rule that ends in an answer.
    let mut random = Random::new(7);
    let mut next = move || random.number();
    let refused = (0..10_000).filter(|_| Packed::from_words([next(), next() >> 2, next() >> 2]).is_none()).count();
    assert!(refused > 5_000 && refused < 10_000, "{refused}");
}

#[test]
fn a_failed_rule_tells_its_reason() {
    let mut reader = Reader::recorded(&[]);
    let cursor = Cursor { regs: Regs::new(1, STACK, STACK), exact: true };
    let packed = Packed::failed(StopReason::NoRule);
    assert_eq!(packed.cfa(&cursor, &mut reader), Err(StopReason::NoRule));
    assert_eq!(packed.unpack(), Err(StopReason::NoRule));
    assert_eq!(Rule::end().pack().cfa(&cursor, &mut reader), Err(StopReason::Complete));
    assert_eq!(Packed::from_result(Err(StopReason::NoOwner)).cfa(&cursor, &mut reader), Err(StopReason::NoOwner));
}

/// A leaf that has signed its x30; the caller's frame, signed too; then a frame record.
#[test]
fn return_addresses_are_stripped_where_the_rule_says_so_and_nowhere_else() {
    let signed = |address: u64| address | 0x0031_0000_0000_0000;
    let stack = bytes([0, 0, STACK + 40, signed(0x40_2000), 0, 0, signed(0x40_3000)]);
    let regions = [Region { address: STACK, bytes: &stack }];
    let mut reader = Reader::recorded(&regions);
    let mut values = registers();
    (values[usize::from(SP)], values[usize::from(RA)]) = (STACK, signed(0x40_1000));
    let start = Cursor { regs: Regs::full(0x40_0000, values).with_pac_mask(MASK), exact: true };

    let mut leaf = Rule::simple(SP, 16);
    let step = |rule: Rule, cursor: &mut Cursor<Regs>, reader: &mut Reader<'_>| {
        let cfa = rule.pack().cfa(cursor, reader).expect("a CFA");
        rule.pack().advance(cursor, cfa, reader).expect("a caller");
        cursor.regs.pc
    };
    assert_eq!(step(leaf, &mut { start }, &mut reader), signed(0x40_1000), "no rule says that it is signed");
    leaf.flags |= RA_SIGNED;
    let mut cursor = start;
    assert_eq!(step(leaf, &mut cursor, &mut reader), 0x40_1000);
    assert_eq!(cursor.regs.get(RA), None, "a call destroys x30");

    let mut caller = Rule::simple(SP, 16);
    caller.flags = RA_SIGNED;
    (caller.slots[FP_SLOT], caller.slots[RA_SLOT]) = (-2, -1);
    assert_eq!(step(caller, &mut cursor, &mut reader), 0x40_2000);
    assert_eq!((cursor.regs.get(FP), cursor.regs.sp()), (Some(STACK + 40), STACK + 32));

    assert_eq!(step(Rule::frame_pointer(), &mut cursor, &mut reader), 0x40_3000);
    assert_eq!(cursor.regs.get(SP), None, "a frame record may lie anywhere in its frame");
    assert_eq!(cursor.regs.sp(), STACK + 56, "no less than its end");
    let by_sp = Rule::simple(SP, 16).pack();
    assert_eq!(by_sp.cfa(&cursor, &mut reader), Err(StopReason::UnknownRegister));
}

/// Offsets by the kernel's structures, member by member: siginfo 128; uc_flags 8, uc_link 8, uc_stack 24, uc_sigmask 8,
/// unused 120, padding to 16; then fault_address 8, regs[31], sp, pc, pstate.
#[test]
fn a_signal_frame_gives_every_register() {
    let mcontext = (128 + 8 + 8 + 24 + 8 + 120u64).next_multiple_of(16);
    let mut frame = vec![0u64; 128];
    let at = (mcontext + 8) as usize / 8;
    for (index, word) in frame[at..at + 33].iter_mut().enumerate() {
        *word = 1000 + index as u64;
    }
    assert_eq!((128 + ucontext_offset(0), 128 + UCONTEXT_SP, 128 + UCONTEXT_PC), {
        let regs = mcontext + 8;
        (regs, regs + 8 * 31, regs + 8 * 32)
    });
    let image = bytes(frame.iter().copied());
    let text = bytes([0xd400_0001_d280_1168u64, 0xd503_201f]);
    let regions = [Region { address: STACK, bytes: &image }, Region { address: 0x1000, bytes: &text }];
    let mut reader = Reader::recorded(&regions);
    assert_eq!(Rule::at_sigreturn(0x1004, &mut reader), None);
    assert_eq!(Rule::at_sigreturn(0x1001, &mut reader), None);
    let rule = Rule::at_sigreturn(0x1000, &mut reader).expect("the trampoline").pack();
    let mut cursor = Cursor { regs: Regs::new(0x1000, STACK, 0).with_pac_mask(MASK), exact: false };
    assert_eq!(rule.cfa(&cursor, &mut reader), Ok(1031));
    rule.advance(&mut cursor, 1031, &mut reader).expect("the interrupted code");
    assert_eq!((cursor.regs.pc, cursor.regs.pac_mask, cursor.exact), (1032, MASK, true));
    assert!((0..32).all(|r| cursor.regs.get(r) == Some(1000 + u64::from(r))));
    assert_eq!(cursor.lookup_pc(), 1032);
}
