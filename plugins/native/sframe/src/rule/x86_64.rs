//! AMD64.

use super::Cpu;
use crate::function::{Extent, Function};
use crate::row::{Base, Location, Row, Unwind};
use crate::table::{Machine, Table};
use uunwind_core::regs::{ucontext_offset, RA, RBP, RSP};
use uunwind_core::rule::{Rule, RuleKind, RA_IN_REGISTER, RA_SLOT, SAME, UNKNOWN};
use uunwind_core::stop_reason::StopReason;

/// Index of rbp among a rule's slots.
const RBP_SLOT: usize = 1;

/// x86-64 (AMD64 in the SFrame specification), as a [`Cpu`].
#[derive(Clone, Copy, Debug)]
pub struct X86_64;

impl Cpu for X86_64 {
    type Rule = Rule;
    const MACHINE: Machine = Machine::Amd64;
    const END: Rule = Rule::end();

    fn rule(row: &Row, _: &Table, function: &Function) -> Result<Rule, StopReason> {
        to_rule(row, function)
    }
}

fn to_rule(row: &Row, function: &Function) -> Result<Rule, StopReason> {
    let Unwind::Caller { cfa, ra, fp } = row.unwind else { return Ok(Rule::end()) };
    if matches!(function.extent, Extent::Blocks(_)) && row.start == 0 && cfa.offset != 8 {
        // A stub is entered by a call, so at its first instruction the CFA is rsp + 8. GNU ld writes 16 for .plt.got.
        return Err(StopReason::NoRule);
    }
    let ra = ra.ok_or(StopReason::UnsupportedRule)?;
    if function.signal {
        return signal_frame(cfa, ra);
    }
    let offset = |location: Location| i32::try_from(location.offset).map_err(|_| StopReason::UnsupportedRule);
    let mut rule = Rule::simple(register(cfa.base).ok_or(StopReason::UnsupportedRule)?, offset(cfa)?);
    if cfa.deref {
        rule.kind = RuleKind::Deref;
    }
    rule.slots = [UNKNOWN, SAME, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, -1];
    if let Some(fp) = fp {
        let unchanged = register(fp.base) == Some(RBP) && !fp.deref && fp.offset == 0;
        let (slot, from_fp) = if unchanged { (SAME, false) } else { slot(fp).unwrap_or((UNKNOWN, false)) };
        rule.slots[RBP_SLOT] = slot;
        rule.from_fp |= u8::from(from_fp) << RBP_SLOT;
    }
    if ra.deref {
        let (slot, from_fp) = slot(ra).ok_or(StopReason::UnsupportedRule)?;
        rule.slots[RA_SLOT] = slot;
        rule.from_fp |= u8::from(from_fp) << RA_SLOT;
    } else {
        let register = register(ra.base).filter(|_| ra.offset == 0).ok_or(StopReason::UnsupportedRule)?;
        rule.flags |= RA_IN_REGISTER;
        rule.slots[RA_SLOT] = i16::from(register);
    }
    Ok(rule)
}

fn register(base: Base) -> Option<u8> {
    match base {
        Base::Cfa => None,
        Base::Sp => Some(RSP),
        Base::Fp => Some(RBP),
        Base::Register(n) => u8::try_from(n).ok().filter(|n| *n < RA),
    }
}

/// Distance of a location in memory from the CFA or from rbp, in words; whether it is from rbp.
fn slot(location: Location) -> Option<(i16, bool)> {
    let from_fp = match location.base {
        Base::Cfa => false,
        base => (register(base)? == RBP).then_some(true)?,
    };
    let words = i16::try_from(location.offset / 8).ok()?;
    let fits = location.deref && location.offset % 8 == 0 && words != SAME && words != UNKNOWN;
    fits.then_some((words, from_fp))
}

/// The kernel's signal frame contains a ucontext. If CFA and return address are where a ucontext at rsp + n has rsp and
/// rip, the rule for signal frames loads all registers from it. Only that rule can make the caller's pc exact.
fn signal_frame(cfa: Location, ra: Location) -> Result<Rule, StopReason> {
    let on_stack = |l: Location| register(l.base) == Some(RSP) && l.deref;
    let ucontext = cfa.offset.wrapping_sub(ucontext_offset(RSP) as i64);
    if on_stack(cfa) && on_stack(ra) && ra.offset.wrapping_sub(ucontext) == ucontext_offset(RA) as i64 {
        return i32::try_from(ucontext).map(Rule::signal).map_err(|_| StopReason::UnsupportedRule);
    }
    Err(StopReason::UnsupportedRule)
}
