//! x86-64.

use super::{words, Cpu};
use crate::bytes::Input;
use crate::entry::Entry;
use crate::expression::{self, Value};
use crate::program::{Cfa, Kind, Place, Row};
use uunwind_core::regs::{self, ucontext_offset, RBP, RSP};
use uunwind_core::rule::{Rule, RuleKind, RA_IN_REGISTER, RA_SLOT, SAME, UNKNOWN};
use uunwind_core::stop_reason::StopReason;

/// x86-64. A row keeps rbx, rbp, r12-r15, the return address and rsp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct X86_64;

impl Cpu for X86_64 {
    type Places = [Place; 8];
    type Rule = Rule;
    const UNSPECIFIED: Self::Places = [Place::UNSPECIFIED; 8];
    const RA: u8 = regs::RA;
    const PC: Option<u8> = Some(regs::RA);

    fn column(register: u64) -> Option<usize> {
        Some(match register {
            3 => 0,
            6 => 1,
            12..=15 => register as usize - 10,
            16 => 6,
            7 => 7,
            _ => return None,
        })
    }

    fn rule(row: &Row<X86_64>, entry: &Entry, pc: u64, input: &mut Input<'_, '_>) -> Result<Rule, StopReason> {
        to_rule(row, entry, pc, input)
    }
}

/// The rule that does what `row` says, or why there is none.
fn to_rule(row: &Row<X86_64>, entry: &Entry, pc: u64, input: &mut Input<'_, '_>) -> Result<Rule, StopReason> {
    let [.., ra, _] = *row.places();
    if ra.kind() == Kind::Undefined {
        return Ok(Rule::end());
    }
    let cfa = match row.cfa {
        Cfa::Undefined => return Err(StopReason::BadUnwindInfo),
        Cfa::Offset(register, n) => Value::Register(register, i64::from(n)),
        Cfa::Expression(at) => expression::evaluate::<X86_64>(at, pc, None, input)?,
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
    for (index, place) in row.places().iter().take(RA_SLOT + 1).enumerate() {
        let (slot, from_fp) = slot(*place, index, entry, pc, input)?;
        if let Some(s) = rule.slots.get_mut(index) {
            *s = slot;
        }
        rule.from_fp |= u8::from(from_fp) << index;
    }
    if ra.kind() == Kind::Register {
        rule.flags |= RA_IN_REGISTER;
        rule.from_fp &= !(1 << RA_SLOT);
        rule.slots[RA_SLOT] = ra.n() as i16;
    }
    Ok(rule)
}

/// A register's slot, and whether it counts from rbp.
fn slot(
    place: Place,
    index: usize,
    entry: &Entry,
    pc: u64,
    input: &mut Input<'_, '_>,
) -> Result<(i16, bool), StopReason> {
    let is_ra = index == RA_SLOT;
    let lost = if is_ra { Err(StopReason::UnsupportedRule) } else { Ok((UNKNOWN, false)) };
    match place.kind() {
        Kind::Unspecified | Kind::Same if is_ra => Err(StopReason::UnsupportedRule),
        Kind::Unspecified | Kind::Same => Ok((SAME, false)),
        Kind::Undefined | Kind::ValOffset | Kind::ValExpression => lost,
        Kind::Register if is_ra => Ok((0, false)),
        Kind::Register => lost,
        Kind::Offset => words(i64::from(place.n())).map_or(lost, |s| Ok((s, false))),
        Kind::Expression => {
            let at = entry.instructions.0.wrapping_add_signed(i64::from(place.n()));
            match expression::evaluate::<X86_64>(at, pc, Some(Value::Cfa(0)), input) {
                Ok(Value::Cfa(n)) => words(n).map_or(lost, |s| Ok((s, false))),
                Ok(Value::Register(RBP, n)) => words(n).map_or(lost, |s| Ok((s, true))),
                _ => lost,
            }
        }
    }
}

/// A signal trampoline restores everything from a ucontext near rsp. Its CFI says so register by register; if the CFA and
/// the return address are where a ucontext at rsp + n has rsp and rip, the frame is one, and `Rule::signal(n)` loads all.
fn signal_frame(
    cfa: Value,
    ra: Place,
    entry: &Entry,
    pc: u64,
    input: &mut Input<'_, '_>,
) -> Result<Option<Rule>, StopReason> {
    let (Value::Word(RSP, cfa_at, 0), Kind::Expression) = (cfa, ra.kind()) else { return Ok(None) };
    let at = entry.instructions.0.wrapping_add_signed(i64::from(ra.n()));
    let Value::Register(RSP, ra_at) = expression::evaluate::<X86_64>(at, pc, Some(Value::Cfa(0)), input)? else {
        return Ok(None);
    };
    let ucontext = cfa_at.wrapping_sub(ucontext_offset(RSP) as i64);
    if ra_at.wrapping_sub(ucontext) != ucontext_offset(regs::RA) as i64 {
        return Ok(None);
    }
    Ok(i32::try_from(ucontext).ok().map(Rule::signal))
}
