//! A rule in words: x86-64.

use crate::unwind_row::NAMES;
use uunwind_core::regs::{ucontext_offset, CALLEE_SAVED, RSP};
use uunwind_core::rule::{
    is_register, Rule, RuleKind, ON_OTHER_STACK, RA_IN_REGISTER, RA_SLOT, SAME, SP_IN_REGISTER, SP_SAVED, UNKNOWN,
};

fn name(register: u8) -> &'static str {
    NAMES.get(usize::from(register)).copied().unwrap_or("?")
}

fn sum(base: &str, offset: i64) -> String {
    if offset == 0 {
        base.to_owned()
    } else {
        format!("{base}{offset:+}")
    }
}

/// A rule with the names of the registers that it restores: `CFA rsp+16, rbp *(CFA-16), rip *(CFA-8)`. Registers that
/// are not named are unchanged.
pub fn rule_words(rule: &Rule) -> String {
    let base = sum(name(rule.cfa_register), i64::from(rule.cfa_offset));
    let stack = rule.flags & ON_OTHER_STACK;
    let mut words = match rule.kind {
        RuleKind::End => return "outermost frame: it has no caller".to_owned(),
        RuleKind::Signal => {
            let sp = sum(name(rule.cfa_register), i64::from(rule.cfa_offset) + ucontext_offset(RSP) as i64);
            return format!("signal frame: CFA *({sp}), all registers from the ucontext at {base}");
        }
        RuleKind::Deref if stack == ON_OTHER_STACK => {
            format!("CFA on the goroutine's stack, at the depth in *({base})")
        }
        RuleKind::Deref => format!("CFA {}", sum(&format!("*({base})"), i64::from(rule.cfa_addend))),
        RuleKind::Offset => format!("CFA {base}"),
    };
    let place = |index: usize, slot: i16| {
        let from = if rule.from_fp & 1 << index != 0 { "rbp" } else { "CFA" };
        match slot {
            UNKNOWN => "lost".to_owned(),
            slot if is_register(slot) => format!("in {}", name((slot & 0xff) as u8)),
            slot => format!("*({})", sum(from, i64::from(slot) * 8)),
        }
    };
    for (index, (register, slot)) in CALLEE_SAVED.into_iter().zip(rule.slots).enumerate() {
        if slot != SAME {
            words += &format!(", {} {}", name(register), place(index, slot));
        }
    }
    let [.., ra] = rule.slots;
    let ra = if rule.flags & RA_IN_REGISTER != 0 { format!("in {}", name(ra as u8)) } else { place(RA_SLOT, ra) };
    words += &format!(", rip {ra}");
    match stack {
        SP_SAVED => words += &format!(", rsp *({})", sum("CFA", i64::from(rule.cfa_addend) * 8)),
        SP_IN_REGISTER => words += &format!(", rsp in {}", name(rule.cfa_addend as u8)),
        ON_OTHER_STACK => words += "; the CFA is on another stack",
        _ => {}
    }
    words
}
