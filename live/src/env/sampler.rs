//! The exchange with the sampler about an object: the walk reports that it is loaded, and receives its facts.

use super::Live;
use crate::met::changed;
use crate::state::OBJECTS;
use core::sync::atomic::Ordering;
use uunwind_core::library::{RESULT_FACTS_PENDING, RESULT_UNREPORTED, UNRECORDED};
use uunwind_core::objects::{Object, FACTS_SETTLED};

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

    /// Looks up the object's facts, if they were not found before and facts have been published since.
    pub(super) fn settle_facts(&mut self, object: &Object) {
        let Some((client, context)) = self.client else { return };
        // SAFETY: the sampler's functions and context.
        let count = unsafe { (client.facts_count)(context) };
        if object.facts_asked.load(Ordering::Relaxed) != count {
            let (mut bytes, mut len) = (core::ptr::null(), 0);
            // SAFETY: as above; both results are written to local variables.
            let plugin = unsafe { (client.facts)(context, object.facts_key, &raw mut bytes, &raw mut len) };
            object.facts_asked.store(count, Ordering::Relaxed);
            if let Ok(plugin) = u32::try_from(plugin) {
                object.facts.store(bytes.cast_mut(), Ordering::Relaxed);
                object.facts_len.store(len, Ordering::Relaxed);
                object.plugin.store(plugin, Ordering::Release);
                object.facts_state.store(FACTS_SETTLED, Ordering::Release);
                changed();
                return;
            }
        }
        self.met.unsettled = true;
        self.result |= RESULT_FACTS_PENDING;
    }
}
