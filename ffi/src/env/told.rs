//! What the sampler is told of an object, and what it tells: that the object is here, and its facts.

use super::Live;
use crate::met::changed;
use crate::state::OBJECTS;
use core::sync::atomic::Ordering;
use uunwind_core::library::{RESULT_FACTS_PENDING, RESULT_UNTOLD};
use uunwind_core::objects::{Object, FACTS_SETTLED};

impl Live<'_> {
    /// Tells the recorder that the object is here, unless it knows so for the time of this walk.
    pub(super) fn report(&mut self, object: &Object) {
        let Some((client, context)) = self.client else { return };
        let known = object.reported.load(Ordering::Acquire) == self.epoch
            && object.reported_at.load(Ordering::Relaxed) <= self.time;
        if known {
            return;
        }
        // SAFETY: the sampler's function and context.
        if unsafe { (client.object_seen)(context, object) } {
            OBJECTS.was_reported(object, self.epoch, self.time);
        } else {
            self.met.unsettled = true;
            self.result |= RESULT_UNTOLD;
        }
    }

    /// Looks for the object's facts if they were not found before and some have been published since.
    pub(super) fn settle_facts(&mut self, object: &Object) {
        let Some((client, context)) = self.client else { return };
        // SAFETY: the sampler's functions and context.
        let count = unsafe { (client.facts_count)(context) };
        if object.facts_asked.load(Ordering::Relaxed) != count {
            let (mut bytes, mut len) = (core::ptr::null(), 0);
            // SAFETY: as above; both places are ours.
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
