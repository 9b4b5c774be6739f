//! x86-64 ([System V ABI](https://gitlab.com/x86-psABIs/x86-64-ABI), 3.6.2).

use super::{words, Cpu};
use crate::bytes::Input;
use crate::delivery;
use crate::entry::Entry;
use crate::expression::{self, Value};
use crate::realigned;
use crate::row::{Cfa, Kind, Location, Row};
use core::hint::select_unpredictable;
use uunwind_core::cache::short::Short;
use uunwind_core::regs::{self, ucontext_offset, RBP, RSP};
use uunwind_core::rule::{
    in_register, is_register, Rule, RuleKind, RA_IN_REGISTER, RA_SLOT, SAME, SP_IN_REGISTER, SP_SAVED, UNKNOWN,
};
use uunwind_core::stop_reason::StopReason;

/// x86-64. A row keeps rbx, rbp, r12-r15, the return address, rsp, and rdx, by which functions that deliver exceptions
/// are recognised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct X86_64;

impl Cpu for X86_64 {
    type Locations = [Location; 9];
    type Rule = Rule;
    const UNSPECIFIED: Self::Locations = [Location::UNSPECIFIED; 9];
    const RA: u8 = regs::RA;
    const PC: Option<u8> = Some(regs::RA);

    #[inline(always)]
    fn column(register: u64) -> usize {
        // By DWARF number: rdx, rbx, rbp, rsp, r12 to r15, the return address.
        const NONE: u8 = u8::MAX;
        const COLUMNS: [u8; 17] = [NONE, 8, NONE, 0, NONE, NONE, 1, 7, NONE, NONE, NONE, NONE, 2, 3, 4, 5, 6];
        COLUMNS.get(register as usize).copied().unwrap_or(NONE).into()
    }

    fn replaces_its_caller(
        row: &Row<X86_64>,
        initial: &Row<X86_64>,
        entry: &Entry,
        lookup: u64,
        input: &mut Input<'_, '_>,
    ) -> bool {
        delivery::is_by(row) && delivery::has_begun(row, initial, entry, lookup, input)
    }

    #[inline(always)]
    fn short(row: &Row<X86_64>, entry: &Entry) -> Option<Short> {
        let (Cfa::Offset(register, n), [rbx, rbp, r12, r13, r14, r15, ra, sp, _]) = (row.cfa, *row.locations()) else {
            return None;
        };
        if entry.signal || ra != JUST_BELOW_CFA || sp != Location::UNSPECIFIED {
            return None;
        }
        Short::plain(register, n, [rbx, rbp, r12, r13, r14, r15].map(Location::words_below_return_address))
    }

    fn rule(row: &Row<X86_64>, entry: &Entry, pc: u64, input: &mut Input<'_, '_>) -> Result<Rule, StopReason> {
        to_rule(row, entry, pc, input)
    }
}

/// The rule of `row`, or the reason why there is none.
fn to_rule(row: &Row<X86_64>, entry: &Entry, pc: u64, input: &mut Input<'_, '_>) -> Result<Rule, StopReason> {
    let [.., ra, sp, _] = *row.locations();
    // Whether an exception is being delivered depends on the pc, not on the row alone.
    input.depends_on_pc |= delivery::is_by(row);
    if ra.kind() == Kind::Undefined {
        return Ok(Rule::end());
    }
    let cfa = match row.cfa {
        Cfa::Undefined => return Err(StopReason::BadUnwindInfo),
        Cfa::Offset(register, n) => Value::Register(register, i64::from(n)),
        Cfa::Expression(at, _) => expression::evaluate::<X86_64>(at, pc, None, input)?,
    };
    if entry.signal {
        if let Some(rule) = signal_frame(cfa, ra, entry, pc, input)? {
            return Ok(rule);
        }
    }
    let (register, n, addend, kind) = match cfa {
        Value::Register(register, n) => (register, n, 0, RuleKind::Offset),
        Value::Word(register, n, addend) => (register, n, addend, RuleKind::Deref),
        Value::Constant(_) | Value::Cfa(_) => return Err(StopReason::UnsupportedRule),
    };
    let mut rule = Rule::simple(register, i32::try_from(n).map_err(|_| StopReason::UnsupportedRule)?);
    rule.kind = kind;
    rule.cfa_addend = i16::try_from(addend).map_err(|_| StopReason::UnsupportedRule)?;
    for (index, (location, place)) in row.locations().iter().zip(&mut rule.slots).enumerate() {
        if *location == Location::UNSPECIFIED && index != RA_SLOT {
            *place = SAME;
        } else if let Some(words) = location.words_from_cfa() {
            *place = words;
        } else {
            let (slot, from_fp) = slot(*location, index, cfa, (entry, pc), input)?;
            *place = slot;
            rule.from_fp |= u8::from(from_fp) << index;
        }
    }
    let from_fp = rule.from_fp & !(1 << RA_SLOT);
    if from_fp != 0 && realigned::has_restored(row.cfa, pc, input) {
        for (index, slot) in rule.slots.iter_mut().enumerate().filter(|(index, _)| from_fp >> index & 1 != 0) {
            *slot = SAME;
            rule.from_fp &= !(1 << index);
        }
    }
    if ra.kind() == Kind::Register {
        rule.flags |= RA_IN_REGISTER;
        rule.from_fp &= !(1 << RA_SLOT);
        rule.slots[RA_SLOT] = ra.n() as i16;
    }
    with_stack_pointer(rule, sp)
}

/// The rule of a row that describes the stack pointer as well. In all other rows the caller's is the CFA.
#[inline(always)]
fn with_stack_pointer(mut rule: Rule, sp: Location) -> Result<Rule, StopReason> {
    let addend = match sp.kind() {
        Kind::ValOffset if sp.n() != 0 => None,
        Kind::Unspecified | Kind::Same | Kind::ValOffset => {
            // Other registers that are held in registers are lost: only hand-written code has such rows. So are those
            // that would have been saved in a caller's frame: libgcrypt's SM3 counts from the wrong register.
            let counts_from_fp = rule.from_fp;
            for (index, slot) in rule.slots.iter_mut().enumerate() {
                let is_above = *slot >= 0 && *slot != SAME && index != RA_SLOT && counts_from_fp >> index & 1 == 0;
                if is_above || is_register(*slot) {
                    *slot = UNKNOWN;
                }
            }
            return Ok(rule);
        }
        Kind::Offset => words(i64::from(sp.n())).map(|slot| (SP_SAVED, slot)),
        Kind::Register => u8::try_from(sp.n()).ok().and_then(in_register).map(|_| (SP_IN_REGISTER, sp.n() as i16)),
        _ => None,
    };
    let (flag, addend) = addend.filter(|_| rule.kind == RuleKind::Offset).ok_or(StopReason::UnsupportedRule)?;
    rule.flags |= flag;
    rule.cfa_addend = addend;
    Ok(rule)
}

/// Where calls push the return address.
const JUST_BELOW_CFA: Location = Location::new(Kind::Offset, -8);

impl Location {
    /// How many words below the return address a register is saved; 0: it is not. A large number: it is elsewhere.
    #[inline(always)]
    fn words_below_return_address(self) -> u64 {
        let words = JUST_BELOW_CFA.word().wrapping_sub(self.word()).rotate_right(3);
        // Each function saves other registers, so that no processor predicts this well.
        let words = select_unpredictable(words == 0, 1 << 32, words);
        select_unpredictable(self == Location::UNSPECIFIED, 0, words)
    }

    /// The distance in words from the CFA to where the register is saved, if it is a small one.
    #[inline(always)]
    fn words_from_cfa(self) -> Option<i16> {
        const SMALL: i32 = 1 << 15;
        let (n, is_offset) = (self.n(), self.word() >> 32 == Kind::Offset as u64);
        (is_offset && n & 7 == 0 && (-SMALL..SMALL).contains(&n)).then_some((n >> 3) as i16)
    }
}

/// A register's slot in the rule of a row with this CFA, and whether it counts from rbp.
#[inline(never)]
fn slot(
    location: Location,
    index: usize,
    cfa: Value,
    (entry, pc): (&Entry, u64),
    input: &mut Input<'_, '_>,
) -> Result<(i16, bool), StopReason> {
    let is_ra = index == RA_SLOT;
    let lost = if is_ra { Err(StopReason::UnsupportedRule) } else { Ok((UNKNOWN, false)) };
    match location.kind() {
        Kind::Unspecified | Kind::Same if is_ra => Err(StopReason::UnsupportedRule),
        Kind::Unspecified | Kind::Same => Ok((SAME, false)),
        Kind::Undefined | Kind::ValOffset | Kind::ValExpression => lost,
        Kind::Register if is_ra => Ok((0, false)),
        Kind::Register => Ok((u8::try_from(location.n()).ok().and_then(in_register).unwrap_or(UNKNOWN), false)),
        Kind::Offset => words(i64::from(location.n())).map_or(lost, |s| Ok((s, false))),
        Kind::Expression => {
            let at = entry.instructions.start.wrapping_add_signed(i64::from(location.n()));
            match expression::evaluate::<X86_64>(at, pc, Some(Value::Cfa(0)), input) {
                Ok(Value::Cfa(n)) => words(n).map_or(lost, |s| Ok((s, false))),
                Ok(Value::Register(RBP, n)) => words(n).map_or(lost, |s| Ok((s, true))),
                Ok(Value::Register(register, n)) => match cfa {
                    // Both count from the same register.
                    Value::Register(of_cfa, m) if of_cfa == register => {
                        words(n.wrapping_sub(m)).map_or(lost, |s| Ok((s, false)))
                    }
                    _ => lost,
                },
                _ => lost,
            }
        }
    }
}

/// A signal trampoline restores everything from a ucontext near rsp, and its CFI describes each register. If the CFA
/// and the return address are where a ucontext at rsp + n has rsp and rip, it is such a frame, and `Rule::signal(n)`
/// loads all.
fn signal_frame(
    cfa: Value,
    ra: Location,
    entry: &Entry,
    pc: u64,
    input: &mut Input<'_, '_>,
) -> Result<Option<Rule>, StopReason> {
    let (Value::Word(RSP, cfa_at, 0), Kind::Expression) = (cfa, ra.kind()) else { return Ok(None) };
    let at = entry.instructions.start.wrapping_add_signed(i64::from(ra.n()));
    let Value::Register(RSP, ra_at) = expression::evaluate::<X86_64>(at, pc, Some(Value::Cfa(0)), input)? else {
        return Ok(None);
    };
    let ucontext = cfa_at.wrapping_sub(ucontext_offset(RSP) as i64);
    if ra_at.wrapping_sub(ucontext) != ucontext_offset(regs::RA) as i64 {
        return Ok(None);
    }
    Ok(i32::try_from(ucontext).ok().map(Rule::signal))
}
