//! The plugins that step frames in unowned code ([`PLUGIN_UNOWNED`]).

use crate::env::Calls;
use crate::state::PLUGINS;
use uunwind_core::library::{RESULT_DESYNC, RESULT_PLUGIN_NOT_CALLED};
use uunwind_core::plugin::PLUGIN_UNOWNED;
use uunwind_core::walk::{Claim, LAST_INDEX};

/// The claim of the first such plugin after the one with this index (0: of the first), and what is missing because
/// plugins before it could not be asked: a sum of `RESULT_*`.
pub fn claim_after(index: u8, calls: Calls) -> (Option<Claim>, u32) {
    let mut missing = 0;
    for index in index.saturating_add(1)..=LAST_INDEX as u8 {
        let Some(plugin) = PLUGINS.get_any(index) else { continue };
        let Some(step) = plugin.step.filter(|_| plugin.flags & PLUGIN_UNOWNED != 0) else { continue };
        if PLUGINS.get(index).is_none() {
            missing |= RESULT_DESYNC;
        } else if calls.leaves_out(plugin) {
            missing |= RESULT_PLUGIN_NOT_CALLED;
        } else {
            let (flags, scratch_bytes) = (plugin.flags, plugin.scratch_bytes);
            return (Some(Claim { step: Some(step), index, flags, scratch_bytes, ..Claim::NOTHING }), missing);
        }
    }
    (None, missing)
}

/// The index of the plugin, if the claim is such a one.
pub fn of(claim: &Claim) -> Option<u8> {
    (claim.index != 0 && claim.range.is_empty()).then_some(claim.index)
}
