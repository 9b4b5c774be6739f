//! AArch64.

use super::Cpu;
use crate::function::Function;
use crate::row::{Base, Location, Row, Unwind};
use crate::table::{Machine, Table};
use uunwind_core::regs::aarch64::{COUNT, FP, SP};
use uunwind_core::rule::aarch64::{Rule, FP_SLOT, RA_SIGNED, RA_SLOT};
use uunwind_core::rule::{RA_IN_REGISTER, SAME, UNKNOWN};
use uunwind_core::stop_reason::StopReason;

/// AArch64, as a [`Cpu`].
#[derive(Clone, Copy, Debug)]
pub struct AArch64;

impl Cpu for AArch64 {
    type Rule = Rule;
    const MACHINE: Machine = Machine::AArch64;
    const END: Rule = Rule::end();

    fn rule(row: &Row, _: &Table, function: &Function) -> Result<Rule, StopReason> {
        let unsupported = StopReason::UnsupportedRule;
        let Unwind::Caller { cfa, ra, fp } = row.unwind else { return Ok(Rule::end()) };
        // The interrupted pc is in the kernel's signal frame, which no row describes; `Rule::at_sigreturn` does.
        if function.signal || cfa.deref {
            return Err(unsupported);
        }
        let register = register(cfa.base).ok_or(unsupported)?;
        let mut rule = Rule::simple(register, i32::try_from(cfa.offset).map_err(|_| unsupported)?);
        rule.slots[..FP_SLOT].fill(UNKNOWN);
        if let Some(fp) = fp {
            rule.slots[FP_SLOT] = slot(fp).unwrap_or(UNKNOWN);
        }
        // Without a location, the return address is in x30.
        if let Some(ra) = ra {
            rule.slots[RA_SLOT] = slot(ra).ok_or(unsupported)?;
            rule.flags &= !RA_IN_REGISTER;
        }
        if row.signed_ra {
            rule.flags |= RA_SIGNED;
        }
        Ok(rule)
    }
}

fn register(base: Base) -> Option<u8> {
    match base {
        Base::Cfa => None,
        Base::Sp => Some(SP),
        Base::Fp => Some(FP),
        Base::Register(n) => u8::try_from(n).ok().filter(|n| usize::from(*n) < COUNT),
    }
}

/// Distance of a location in memory from the CFA, in words.
fn slot(location: Location) -> Option<i16> {
    let words = i16::try_from(location.offset / 8).ok()?;
    let fits = location.base == Base::Cfa && location.deref && location.offset % 8 == 0;
    (fits && words != SAME && words != UNKNOWN).then_some(words)
}
