//! The frame-pointer chain: the last resort, with its checks.
//!
//! Nothing guarantees rbp, or x29: in code built without frame pointers it is an ordinary register. So this source is
//! used only where no other one has a rule, frames that it finds are marked, and a chain that ends has a stop reason of
//! its own.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

use uunwind_core::cursor::{Cursor, Registers};
use uunwind_core::stop_reason::StopReason;

/// Largest distance in bytes from the stack pointer up to a frame pointer: larger frames are not credible.
pub const MAX_FRAME: u64 = 1 << 20;

/// The frame-pointer rule for this frame, if its frame pointer is plausible; else `reason`, why no other source had a
/// rule. For any CPU. Async-signal-safe.
pub fn rule<R: Registers>(cursor: &Cursor<R>, reason: StopReason) -> Result<R::Rule, StopReason> {
    let fp = cursor.regs.fp().ok_or(reason)?;
    if fp == 0 {
        return Err(reason);
    }
    let plausible = fp & 7 == 0 && fp >= cursor.regs.sp() && fp - cursor.regs.sp() <= MAX_FRAME;
    if plausible {
        Ok(R::BY_FRAME_POINTER)
    } else {
        Err(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::regs::{aarch64, Regs};
    use uunwind_core::rule::Rule;

    fn at(sp: u64, fp: u64) -> Result<Rule, StopReason> {
        rule(&Cursor { regs: Regs::new(1, sp, fp), exact: false }, StopReason::NoRule)
    }

    #[test]
    fn only_plausible_frame_pointers_are_followed() {
        assert_eq!(at(0x1000, 0x1040), Ok(Rule::frame_pointer()));
        for (sp, fp) in [(0x1000, 0), (0x1000, 0xff8), (0x1000, 0x1041), (0x1000, 0x1000 + MAX_FRAME + 8)] {
            assert_eq!(at(sp, fp), Err(StopReason::NoRule), "sp {sp:#x} fp {fp:#x}");
        }
        let mut regs = aarch64::Regs::new(1, 0x1000, 0x1040);
        let found = rule(&Cursor { regs, exact: false }, StopReason::NoRule);
        assert_eq!(found, Ok(uunwind_core::rule::aarch64::Rule::frame_pointer()));
        regs.forget(aarch64::FP);
        assert_eq!(rule(&Cursor { regs, exact: false }, StopReason::NoRule), Err(StopReason::NoRule));
    }
}
