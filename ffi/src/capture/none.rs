//! AArch64 has no short rules so far.

use super::ByShortRules;
use uunwind_core::caller::Caller;
use uunwind_core::memory::OwnStack;
use uunwind_core::slots::{Slot, Stake};
use uunwind_live::short_rule_keys::Salts;

/// Captures nothing.
pub(super) unsafe fn unwind_short<'s>(
    _: &mut [u64],
    _: *const u8,
    _: &Caller,
    _: OwnStack,
    _: (&'s Slot, &'s Stake),
    _: &Salts,
) -> ByShortRules<'s> {
    ByShortRules::Nothing(None)
}
