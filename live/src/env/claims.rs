//! Whose functions a walk calls for a frame: a plugin's, an embedder's, or a window's own.

use super::Live;
use crate::embedder::{self, marks::MARKS};
use crate::in_window;
use crate::state::PLUGINS;
use uunwind_core::cursor::Cursor;
use uunwind_core::library::RESULT_PLUGIN_NOT_CALLED;
use uunwind_core::memory::Reader;
use uunwind_core::objects::{Answer, Object};
use uunwind_core::plugin::{Plugin, STEP_UNOWNED_ONLY};
use uunwind_core::registry::window::{Kind, NO_DATA};
use uunwind_core::rule::{Packed, RuleKind, BY_FRAME_POINTER};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{Claim, Claimed, Look};

impl Live<'_> {
    /// What there is at a frame besides its rule, unless it lies in an object without a claim.
    #[inline(never)]
    pub(super) fn look_further(&mut self, rule: Packed, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        if let Some(object) = self.current.object() {
            let claim = self.object_claim(object, cursor.lookup_pc());
            if matches!(claim, Claimed::Off) && PLUGINS.get(self.current.plugin as u8).is_some() {
                self.result |= RESULT_PLUGIN_NOT_CALLED;
                // A later walk may call it, and must say so again if it may not.
                self.met.unsettled = true;
            }
            return Look { claim, ..Look::at(rule) };
        }
        let by_code = core::mem::take(&mut self.met.by_code);
        let Some(held) = self.windows.here() else {
            let unguessed = rule.failed_for(StopReason::NoOwner);
            return Look { claim: self.unowned_claim(rule, false), unguessed, by_code, ..Look::at(rule) };
        };
        let window = held.window();
        let claim = if window.kind == Kind::Stepper && self.may_call(held) {
            Claimed::By(in_window::claim(held))
        } else {
            self.unowned_claim(rule, window.flags & NO_DATA != 0)
        };
        Look { claim, window: Some(self.window_identity(held, cursor, reader)), by_code, ..Look::at(rule) }
    }

    /// The claim on the current object at a process address.
    fn object_claim(&self, object: &Object, lookup: u64) -> Claimed {
        if self.current.marked && MARKS.covers(lookup) {
            return Claimed::By(embedder::overlay::claim(object.text(), self.current.generation));
        }
        let index = self.current.plugin as u8;
        match PLUGINS.get(index) {
            Some(plugin) if self.calls.leaves_out(plugin) => Claimed::Off,
            Some(plugin) => Claimed::By(self.plugin_claim(plugin, index, object)),
            None if PLUGINS.get_any(index).is_some() => Claimed::Off,
            None => Claimed::No,
        }
    }

    /// A plugin's claim on the current object.
    pub(super) fn plugin_claim(&self, plugin: &Plugin, index: u8, object: &Object) -> Claim {
        self.claim_on(plugin, index, object, self.current.generation)
    }

    /// A plugin's claim on an object, which need not be the current one.
    pub(crate) fn claim_on(&self, plugin: &Plugin, index: u8, object: &Object, generation: u64) -> Claim {
        let answer = object.claim.get().unwrap_or(Answer::NONE);
        Claim {
            step: plugin.step.filter(|_| plugin.flags & STEP_UNOWNED_ONLY == 0),
            overlay: plugin.overlay,
            index,
            facts: answer.bytes,
            facts_len: answer.len,
            bias: object.bias,
            flags: plugin.flags,
            scratch_bytes: plugin.scratch_bytes,
            range: object.text(),
            generation,
            user: core::ptr::null_mut(),
        }
    }

    /// The claim on a frame in no object, whose `rule` is missing, or guessed from the frame pointer: plugins may step
    /// it. `has_no_data`: it lies in a window that has no unwind data.
    #[cold]
    fn unowned_claim(&mut self, rule: Packed, has_no_data: bool) -> Claimed {
        let missing = [StopReason::NoOwner, StopReason::NotCode].into_iter().any(|reason| rule.failed_for(reason));
        let guessed = rule.flags() & BY_FRAME_POINTER != 0 || missing;
        // A signal's frame is recognised by its code, whatever window that lies in.
        let has_no_data = has_no_data && rule.kind() != RuleKind::Signal;
        if !guessed && !has_no_data {
            return Claimed::No;
        }
        self.claim_after(&Claim::NOTHING).map_or(Claimed::No, Claimed::By)
    }

    /// See [`Live::unowned_claim_after`]. The walk's result says what is missing.
    pub(super) fn claim_after(&mut self, left: &Claim) -> Option<Claim> {
        let (claim, missing) = self.unowned_claim_after(left);
        if missing != 0 {
            self.result |= missing;
            // A replay would not say so.
            self.met.unsettled = true;
        }
        claim
    }
}
