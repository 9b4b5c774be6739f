//! What all sources of rules have in common: an answer for a pc, whose range contains the pc, and a rule that can be
//! executed.

use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::regs::Regs;
use uunwind_core::rule::Rule;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;

/// Address of an input's first byte.
pub const START: u64 = 0x40_0000_0000;

/// A rule, or why there is none; and the range of its function.
pub type Answer = (Result<Rule, StopReason>, Span);

/// Checks an answer for `pc` and executes its rule. Returns the function's range if there is a rule.
pub fn check(pc: u64, answer: Result<Answer, StopReason>, reader: &mut Reader<'_>) -> Option<Span> {
    match answer {
        Ok((rule, function)) => {
            assert!(function.contains(pc), "a rule for {function:x?}, not for {pc:#x}");
            let rule = rule.ok()?.pack();
            let registers = std::array::from_fn(|r| START + 8 * r as u64);
            let mut cursor = Cursor { regs: Regs::full(pc, registers), exact: true };
            if let Ok(cfa) = rule.cfa(&cursor, reader) {
                let _ = rule.advance(&mut cursor, cfa, reader);
            }
            Some(function)
        }
        Err(
            StopReason::NoRule
            | StopReason::BadUnwindInfo
            | StopReason::UnreadableUnwindInfo
            | StopReason::UnsupportedRule,
        ) => None,
        Err(other) => panic!("{other:?} is no reason of unwind data"),
    }
}

/// An answer of `.eh_frame`.
pub fn by_eh_frame(answer: Result<uunwind_eh_frame::Answer, StopReason>) -> Result<Answer, StopReason> {
    answer.map(|answer| (answer.rule, answer.function))
}

/// An answer of SFrame.
pub fn by_sframe(answer: Result<uunwind_sframe::Answer, StopReason>) -> Result<Answer, StopReason> {
    answer.map(|answer| (answer.rule, answer.function))
}
