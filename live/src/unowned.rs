//! The plugins that step frames in unowned code ([`PLUGIN_UNOWNED`]).

use crate::env::Live;
use crate::state::{OBJECTS, PLUGINS, RUNTIMES};
use core::sync::atomic::{AtomicU64, Ordering};
use uunwind_core::library::{RESULT_DESYNC, RESULT_PLUGIN_NOT_CALLED};
use uunwind_core::memory::Reader;
use uunwind_core::objects::{Answer, Loaded};
use uunwind_core::plugin::{Plugin, PLUGIN_UNOWNED, UNOWNED_FACTS};
use uunwind_core::span::Span;
use uunwind_core::walk::{Claim, PLUGIN_INDICES};

/// What was loaded and known when all objects were searched for a plugin's runtimes, in vain (by the plugin's index).
static SEARCHED: [AtomicU64; PLUGIN_INDICES] = [const { AtomicU64::new(0) }; PLUGIN_INDICES];

/// Whether this plugin steps in code that its runtimes make, and is shown their facts there.
pub fn has_runtimes(plugin: &Plugin) -> bool {
    plugin.flags & PLUGIN_UNOWNED != 0 && plugin.flags & UNOWNED_FACTS != 0
}

/// The index of the plugin, if the claim is such a one.
pub fn of(claim: &Claim) -> Option<u8> {
    (claim.index != 0 && claim.range.is_empty()).then_some(claim.index)
}

impl Live<'_> {
    /// The next claim of such a plugin after one that was left ([`Claim::NOTHING`]: the first), and what is missing
    /// because plugins before it could not be asked: a sum of `RESULT_*`.
    pub(crate) fn unowned_claim_after(&mut self, left: &Claim) -> (Option<Claim>, u32) {
        let mut missing = 0;
        // Of the plugin that was asked last, the next runtime; of each other one, the first.
        for index in PLUGINS.from(left.index.max(1)) {
            let Some(plugin) = PLUGINS.get_any(index) else { continue };
            let Some(step) = plugin.step.filter(|_| plugin.flags & PLUGIN_UNOWNED != 0) else { continue };
            let again = index == left.index;
            if again && !has_runtimes(plugin) {
                continue;
            }
            if PLUGINS.get(index).is_none() {
                missing |= RESULT_DESYNC;
            } else if self.calls().leaves_out(plugin) {
                missing |= RESULT_PLUGIN_NOT_CALLED;
            } else if has_runtimes(plugin) {
                let claim = self.runtime_claim(plugin, index, if again { left.generation } else { 0 });
                if claim.is_some() {
                    return (claim, missing);
                }
            } else {
                let (flags, scratch_bytes) = (plugin.flags, plugin.scratch_bytes);
                return (Some(Claim { step: Some(step), index, flags, scratch_bytes, ..Claim::NOTHING }), missing);
            }
        }
        (None, missing)
    }

    /// The claim of the plugin's next runtime after this generation, as it is shown in unowned code.
    #[inline(never)]
    fn runtime_claim(&mut self, plugin: &'static Plugin, index: u8, after: u64) -> Option<Claim> {
        if after == 0 && !RUNTIMES.after(0).any(|known| plugin_of(OBJECTS.of_generation(known)) == index) {
            self.find_runtimes(index);
        }
        // By system calls, where the loader must be asked, which is seldom.
        let mut reader = Reader::probed();
        for known in RUNTIMES.after(after) {
            let Some(loaded) = OBJECTS.present(known, &mut self.memo, &mut reader) else { continue };
            if plugin_of(Some(loaded)) == index {
                let claim = self.claim_on(plugin, index, loaded.object, known);
                return Some(Claim { step: plugin.step, overlay: None, range: Span::EMPTY, ..claim });
            }
        }
        None
    }

    /// Notes the plugin's runtimes among all objects, before any frame in them was met: from what they have made, no
    /// walk may lead to them.
    #[cold]
    #[inline(never)]
    fn find_runtimes(&mut self, index: u8) {
        let state = self.loaded_and_published();
        let before = SEARCHED.get(usize::from(index)).zip(state);
        if before.is_some_and(|(searched, state)| searched.load(Ordering::Relaxed) == state) {
            self.looked_for_runtimes = true;
            return;
        }
        let mut found = false;
        OBJECTS.each_loaded(&mut Reader::probed(), |loaded| {
            self.settle_ahead(loaded.object);
            if plugin_of(Some(loaded)) == index {
                RUNTIMES.met(loaded.generation());
                found = true;
            }
        });
        if found {
            return;
        }
        self.looked_for_runtimes = true;
        if let Some((searched, state)) = before.filter(|_| self.loaded_and_published() == state) {
            searched.store(state, Ordering::Relaxed);
        }
    }

    /// Changes with what is loaded, and with what is known of objects; never 0. `None`: that cannot be said.
    fn loaded_and_published(&self) -> Option<u64> {
        let (count, source) = self.published();
        let known = (u64::from(count) << 1 | source as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Some((OBJECTS.loads().now()? ^ known).max(1))
    }
}

/// The index of the plugin that claims an object; 0: none.
fn plugin_of(loaded: Option<Loaded<'_>>) -> u8 {
    loaded.and_then(|loaded| loaded.object.claim.get()).unwrap_or(Answer::NONE).plugin as u8
}
