//! Frames in code that nobody owns: which plugins want to be asked about them.

use crate::state::PLUGINS;
use uunwind_core::plugin::PLUGIN_STRAYS;
use uunwind_core::walk::MAX_PLUGINS;

/// The first such plugin behind an index; 0 = there is none.
pub fn after(index: u8) -> u8 {
    let wants = |index: &u8| {
        PLUGINS.get(*index).is_some_and(|plugin| plugin.flags & PLUGIN_STRAYS != 0 && plugin.step.is_some())
    };
    (index.saturating_add(1)..=MAX_PLUGINS as u8).find(wants).unwrap_or(0)
}
