//! A rule in words: AArch64.

use uunwind_core::regs::{ucontext_offset, CALLEE_SAVED, RA, SP};
use uunwind_core::rule::{Rule, RuleKind, RA_IN_REGISTER, RA_SIGNED, RA_SLOT, SAME, UNKNOWN};

fn name(register: u8) -> String {
    match register {
        SP => "sp".to_owned(),
        number => format!("x{number}"),
    }
}

fn sum(base: &str, offset: i64) -> String {
    if offset == 0 {
        base.to_owned()
    } else {
        format!("{base}{offset:+}")
    }
}

/// A rule with the names of the registers that it restores: `CFA sp+32, x29 *(CFA-32), pc *(CFA-24)`. Registers that
/// are not named are unchanged.
pub fn rule_words(rule: &Rule) -> String {
    let base = sum(&name(rule.cfa_register), i64::from(rule.cfa_offset));
    let mut words = match rule.kind {
        RuleKind::End => return "outermost frame: it has no caller".to_owned(),
        RuleKind::Signal => {
            let sp = sum(&name(rule.cfa_register), i64::from(rule.cfa_offset) + ucontext_offset(SP) as i64);
            return format!("signal frame: CFA *({sp}), all registers from the ucontext at {base}");
        }
        RuleKind::Deref => format!("CFA *({base})"),
        RuleKind::Offset => format!("CFA {base}"),
    };
    let place = |slot: i16| match slot {
        UNKNOWN => "lost".to_owned(),
        slot => format!("*({})", sum("CFA", i64::from(slot) * 8)),
    };
    for (register, slot) in CALLEE_SAVED.into_iter().zip(rule.slots) {
        if slot != SAME {
            words += &format!(", {} {}", name(register), place(slot));
        }
    }
    let slot = rule.slots.get(RA_SLOT).copied().unwrap_or(UNKNOWN);
    let in_register = rule.flags & RA_IN_REGISTER != 0;
    let ra = if in_register { format!("in {}", name(u8::try_from(slot).unwrap_or(RA))) } else { place(slot) };
    words += &format!(", pc {ra}");
    if rule.flags & RA_SIGNED != 0 {
        words += ", signed";
    }
    words
}
