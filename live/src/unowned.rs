//! The plugins that step frames in unowned code ([`PLUGIN_UNOWNED`]).

use crate::env::Calls;
use crate::state::PLUGINS;
use uunwind_core::plugin::PLUGIN_UNOWNED;
use uunwind_core::walk::{Claim, MAX_PLUGINS};

/// The claim of the first such plugin after the one with this index (0: of the first).
pub fn claim_after(index: u8, calls: Calls) -> Option<Claim> {
    (index.saturating_add(1)..=MAX_PLUGINS as u8).find_map(|index| {
        let plugin = PLUGINS.get(index)?;
        if plugin.flags & PLUGIN_UNOWNED == 0 || calls == Calls::Checked && !calls.may(plugin) {
            return None;
        }
        let step = Some(plugin.step?);
        Some(Claim { step, index, flags: plugin.flags, scratch_bytes: plugin.scratch_bytes, ..Claim::NOTHING })
    })
}

/// The index of the plugin, if the claim is such a one.
pub fn of(claim: &Claim) -> Option<u8> {
    (claim.index != 0 && claim.range.is_empty()).then_some(claim.index)
}
