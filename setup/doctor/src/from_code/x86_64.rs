//! x86-64.

use crate::unwind_row::{normal, FP};
use uunwind_core::rule::{Rule, RuleKind, SAME, UNKNOWN};
use uunwind_sframe::row::{Base, Location, Unwind};

/// Index of rbp among a rule's slots.
const RBP_SLOT: usize = 1;

/// A rule in SFrame's terms.
pub fn words(rule: &Rule) -> Result<Unwind, &'static str> {
    let deref = rule.kind == RuleKind::Deref;
    if deref && rule.cfa_addend != 0 {
        return Err("a word plus a distance for the CFA");
    }
    let base = Base::Register(u32::from(rule.cfa_register));
    let cfa = Location { base, offset: i64::from(rule.cfa_offset), deref };
    let [_, slot, ..] = rule.slots;
    let from_rbp = rule.from_fp >> RBP_SLOT & 1 != 0;
    let fp = match slot {
        SAME => None,
        UNKNOWN => return Err("a lost frame pointer"),
        slot => {
            let base = if from_rbp { Base::Register(FP) } else { Base::Cfa };
            Some(Location { base, offset: i64::from(slot) * 8, deref: true })
        }
    };
    let ra = Some(Location { base: Base::Cfa, offset: -8, deref: true });
    Ok(normal(Unwind::Caller { cfa, ra, fp }))
}
