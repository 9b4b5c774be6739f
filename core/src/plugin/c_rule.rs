//! A rule as C code gives it.

use crate::regs::COUNT;
use crate::rule::{Rule, RuleKind, RA_SLOT, SAME};

/// A rule, by a plugin or by a window's function. `repr(C)`: the same as `struct uu_rule`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CRule {
    /// `size_of::<CRule>()` at the time the plugin was built.
    pub size: u32,
    /// Number of the [`RuleKind`]: 0 CFA = register + offset; 1 CFA = word at register + offset, plus addend; 2 a
    /// ucontext lies at register + offset; 3 outermost frame.
    pub kind: u8,
    /// DWARF number of the register.
    pub register: u8,
    /// Must be zero.
    pub reserved: [u8; 2],
    /// Bytes added to the register.
    pub offset: i32,
    /// Bytes added to the word, with kind 1.
    pub addend: i32,
    /// Where the callee-saved registers (x86-64: rbx, rbp, r12-r15; AArch64: x19-x29) and the return address were
    /// saved: words (8 bytes) from the CFA, mostly negative; or [`SAME`], [`UNKNOWN`](crate::rule::UNKNOWN) (`UU_SAME`,
    /// `UU_UNKNOWN`). The return address must be saved; on AArch64 it may be [`SAME`]: in x30 still.
    pub slots: [i16; RA_SLOT + 1],
    /// Must be zero.
    pub reserved2: i16,
}

impl CRule {
    /// The rule of most functions: CFA = `register` + `offset`, return address just below it.
    pub const fn simple(register: u8, offset: i32) -> CRule {
        let mut slots = [SAME; RA_SLOT + 1];
        slots[RA_SLOT] = -1;
        CRule {
            size: core::mem::size_of::<CRule>() as u32,
            kind: 0,
            register,
            reserved: [0; 2],
            offset,
            addend: 0,
            slots,
            reserved2: 0,
        }
    }

    /// The form for C; `None` for what it cannot express: slots counted from rbp, on x86-64 a return address in a
    /// register, and the mark of a rule by frame pointer, which nothing guarantees.
    pub fn from_rule(rule: &Rule) -> Option<CRule> {
        let simple = CRule::simple(rule.cfa_register, rule.cfa_offset);
        let (addend, slots) = rule.plain_parts()?;
        Some(CRule { kind: rule.kind.number(), addend, slots, ..simple })
    }

    /// The core's form; `None` if the parts are no valid rule.
    pub fn to_rule(&self) -> Option<Rule> {
        let kind = RuleKind::from_number(self.kind)?;
        let plain = self.size as usize == core::mem::size_of::<CRule>()
            && self.reserved == [0; 2]
            && self.reserved2 == 0
            && usize::from(self.register) < COUNT;
        if !plain {
            return None;
        }
        let slots = if matches!(kind, RuleKind::End) { Rule::end().slots } else { self.slots };
        Rule::from_parts(kind, self.register, self.offset, self.addend, slots)
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::regs::{RBP, RSP};

    #[test]
    fn valid_rules_pass_and_others_do_not() {
        assert_eq!(CRule::simple(RSP, 24).to_rule(), Some(Rule::simple(RSP, 24)));
        let deref = Rule { kind: RuleKind::Deref, cfa_addend: -8, ..Rule::simple(RBP, 16) };
        for rule in [Rule::simple(RSP, 24), deref, Rule::end(), Rule::signal(0)] {
            assert_eq!(CRule::from_rule(&rule).and_then(|c| c.to_rule()), Some(rule));
        }
        assert_eq!(CRule::from_rule(&Rule::frame_pointer()), None, "nothing guarantees it, which C cannot express");
        let nonsense = [
            CRule { kind: 4, ..CRule::simple(RBP, 16) },
            CRule { register: 16, ..CRule::simple(RBP, 16) },
            CRule { size: 8, ..CRule::simple(RBP, 16) },
            CRule { addend: 1 << 20, ..CRule::simple(RBP, 16) },
            CRule { slots: [SAME; RA_SLOT + 1], ..CRule::simple(RBP, 16) },
        ];
        for rule in nonsense {
            assert_eq!(rule.to_rule(), None, "{rule:?}");
        }
    }
}
