//! The exchange with the sampler about an object: the walk reports that it is loaded, and receives its facts.

use super::Live;
use crate::replay_dependencies::changed;
use crate::state::OBJECTS;
use core::sync::atomic::Ordering;
use uunwind_core::library::{RESULT_FACTS_PENDING, RESULT_UNREPORTED, UNRECORDED};
use uunwind_core::objects::{Answer, Object, Source};

impl Live<'_> {
    /// Reports this load of the object to the recorder, unless it was already reported as loaded at the time of this
    /// walk.
    pub(super) fn report(&mut self, object: &Object, generation: u64) {
        let Some((client, context)) = self.client.filter(|_| self.epoch != UNRECORDED) else { return };
        let reported = object.reported.load(Ordering::Acquire) == self.epoch
            && object.reported_at.load(Ordering::Relaxed) <= self.time;
        if reported {
            return;
        }
        // SAFETY: the sampler's function and context.
        if unsafe { (client.object_seen)(context, object) } {
            if let Some(loaded) = OBJECTS.of_generation(generation) {
                OBJECTS.was_reported(loaded, self.epoch, self.time);
            }
        } else {
            self.met.unsettled = true;
            self.result |= RESULT_UNREPORTED;
        }
    }

    /// Whose answers this walk gets. A capture asks for no others than those of the process.
    pub(super) fn source(&self) -> Source {
        if self.epoch == UNRECORDED || self.client.is_none() {
            Source::Process
        } else {
            Source::Recorder
        }
    }

    /// How much has been published for this walk, and by whom.
    pub(crate) fn published(&self) -> (u32, Source) {
        // SAFETY: the sampler's function and context.
        let count = self.client.map_or(0, |(client, context)| unsafe { (client.facts_count)(context) });
        (count, self.source())
    }

    /// As [`Live::settle_facts`], of an object that the walk has not met: what is still to come is no loss.
    pub(crate) fn settle_ahead(&mut self, object: &Object) {
        if !object.claim.is_settled_for(self.source()) {
            let (result, unsettled) = (self.result, self.met.unsettled);
            self.settle_facts(object);
            (self.result, self.met.unsettled) = (result, unsettled);
        }
    }

    /// Looks up who claims the object, if that was not found before and facts have been published since.
    pub(super) fn settle_facts(&mut self, object: &Object) {
        let Some((client, context)) = self.client else { return };
        // SAFETY: the sampler's functions and context.
        let count = unsafe { (client.facts_count)(context) };
        if object.claim.may_ask(self.source(), count) {
            let (mut bytes, mut len) = (core::ptr::null(), 0);
            // SAFETY: as above; both results are written to local variables.
            let plugin = unsafe { (client.facts)(context, object.facts_key, &raw mut bytes, &raw mut len) };
            match u32::try_from(plugin) {
                Ok(0) => {
                    // The other source may have another plugin.
                    object.claim.settle_nothing(self.source());
                    changed();
                    return;
                }
                Ok(plugin) => {
                    object.claim.settle(self.source(), Answer { bytes, len, plugin });
                    changed();
                    return;
                }
                Err(_) => {}
            }
        }
        self.met.unsettled = true;
        self.result |= RESULT_FACTS_PENDING;
    }
}
