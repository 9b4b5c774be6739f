//! AArch64 (<https://github.com/ARM-software/abi-aa/blob/main/aadwarf64/aadwarf64.rst>).

use super::{words, Cpu};
use crate::bytes::Input;
use crate::entry::Entry;
use crate::expression::{evaluate, Value};
use crate::row::{Cfa, Kind, Location, Row};
use uunwind_core::regs::aarch64::{self as regs, SIGFRAME_UCONTEXT, SIGRETURN};
use uunwind_core::rule::aarch64::{Rule, RA_SIGNED, RA_SLOT};
use uunwind_core::rule::{RA_IN_REGISTER, SAME, UNKNOWN};
use uunwind_core::stop_reason::StopReason;

/// AArch64. A row keeps x19 to x29, the return address, sp, and whether the return address is signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AArch64;

const SP: usize = RA_SLOT + 1;
const RA_STATE: usize = RA_SLOT + 2;
/// In place of a location for RA_SIGN_STATE: the return address is signed. Each negate_ra_state toggles it.
const SIGNED: Location = Location::new(Kind::Same, 1);

impl Cpu for AArch64 {
    type Locations = [Location; 14];
    type Rule = Rule;
    const UNSPECIFIED: Self::Locations = [Location::UNSPECIFIED; 14];
    const RA: u8 = regs::RA;
    const PC: Option<u8> = None;

    fn column(register: u64) -> usize {
        match register {
            19..=31 => register as usize - 19,
            34 => RA_STATE,
            _ => usize::MAX,
        }
    }

    fn negate_ra_state(row: &mut Row<AArch64>) -> Result<(), StopReason> {
        let location = match row.locations()[RA_STATE] {
            SIGNED => Location::UNSPECIFIED,
            Location::UNSPECIFIED => SIGNED,
            _ => return Err(StopReason::UnsupportedRule),
        };
        row.put::<true>(RA_STATE, location);
        Ok(())
    }

    fn rule(row: &Row<AArch64>, entry: &Entry, pc: u64, input: &mut Input<'_, '_>) -> Result<Rule, StopReason> {
        let unsupported = StopReason::UnsupportedRule;
        let ra = row.locations()[RA_SLOT];
        if ra.kind() == Kind::Undefined {
            return Ok(Rule::end());
        }
        if entry.signal {
            return signal_frame(pc, input);
        }
        let (register, n) = match row.cfa {
            Cfa::Undefined => return Err(StopReason::BadUnwindInfo),
            Cfa::Offset(register, n) => (register, n),
            Cfa::Expression(at, _) => match evaluate::<AArch64>(at, pc, None, input)? {
                Value::Register(register, n) => (register, i32::try_from(n).map_err(|_| unsupported)?),
                _ => return Err(unsupported),
            },
        };
        // Without a rule for sp, the caller's sp is the CFA; other rules are not supported.
        let sp = row.locations()[SP];
        if !matches!((sp.kind(), sp.n()), (Kind::Unspecified, _) | (Kind::ValOffset, 0)) {
            return Err(unsupported);
        }
        let mut rule = Rule::simple(register, n);
        for (slot, location) in rule.slots.iter_mut().zip(row.locations()).take(RA_SLOT) {
            *slot = match location.kind() {
                Kind::Unspecified | Kind::Same => SAME,
                _ => saved(*location, entry, pc, input).unwrap_or(UNKNOWN),
            };
        }
        match ra.kind() {
            Kind::Unspecified | Kind::Same => {}
            Kind::Register => rule.slots[RA_SLOT] = ra.n() as i16,
            _ => {
                rule.flags &= !RA_IN_REGISTER;
                rule.slots[RA_SLOT] = saved(ra, entry, pc, input).ok_or(unsupported)?;
            }
        }
        match row.locations()[RA_STATE] {
            Location::UNSPECIFIED => {}
            SIGNED => rule.flags |= RA_SIGNED,
            _ => return Err(unsupported),
        }
        Ok(rule)
    }
}

/// The slot of a register that is saved near the CFA.
fn saved(location: Location, entry: &Entry, pc: u64, input: &mut Input<'_, '_>) -> Option<i16> {
    match location.kind() {
        Kind::Offset => words(i64::from(location.n())),
        Kind::Expression => {
            let at = entry.instructions.start.wrapping_add_signed(i64::from(location.n()));
            match evaluate::<AArch64>(at, pc, Some(Value::Cfa(0)), input) {
                Ok(Value::Cfa(n)) => words(n),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The vDSO's tables leave the interrupted function out of its trampoline's rows: only its instructions describe the
/// frame rightly.
fn signal_frame(pc: u64, input: &mut Input<'_, '_>) -> Result<Rule, StopReason> {
    input.depends_on_pc = true;
    input.at = pc;
    match input.u64() {
        Ok(SIGRETURN) => Ok(Rule::signal(SIGFRAME_UCONTEXT)),
        _ => Err(StopReason::UnsupportedRule),
    }
}
