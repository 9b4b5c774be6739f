//! What one walk depends on besides words of memory, as the condition for its replay: see
//! `uunwind_core::cache::last_walk`.

use crate::state::{CHANGES, REGISTRY};
use core::sync::atomic::Ordering;
use uunwind_core::objects::Object;

/// Limit of the number of removable objects that a walk may depend on.
const MET_OBJECTS: usize = 10;

/// The dependencies of a walk, collected during it.
pub struct Met {
    /// Generations of removable objects.
    objects: [u64; MET_OBJECTS],
    count: u8,
    too_many: bool,
    /// The walk met a window.
    pub window: bool,
    /// The walk met an unowned address, where an object may be loaded at any time.
    pub unowned: bool,
    /// The rule of the current frame, in no object, was made from its machine code, which may change at any time.
    pub by_code: bool,
    /// A repetition of the walk may have a better result, such as when an object's facts are still to come.
    pub unsettled: bool,
    /// Number of windows that were removed before this walk.
    removals: u64,
}

impl Met {
    /// The dependencies of a walk that begins now.
    #[allow(clippy::new_without_default, reason = "made once for each walk")]
    pub fn new() -> Met {
        Met {
            objects: [0; MET_OBJECTS],
            count: 0,
            too_many: false,
            by_code: false,
            window: false,
            unowned: false,
            unsettled: false,
            removals: REGISTRY.removals(),
        }
    }

    /// Adds the object of this generation, unless it is never unloaded.
    pub fn object(&mut self, object: &Object, generation: u64) {
        if object.permanent || self.objects().is_some_and(|met| met.contains(&generation)) {
            return;
        }
        match self.objects.get_mut(usize::from(self.count)) {
            Some(place) => {
                *place = generation;
                self.count += 1;
            }
            None => self.too_many = true,
        }
    }

    /// See `uunwind_core::walk::DependsOn::objects`. `None`: too many.
    pub fn objects(&self) -> Option<&[u64]> {
        self.objects.get(..usize::from(self.count)).filter(|_| !self.too_many)
    }

    /// See `uunwind_core::walk::DependsOn::windows`. New windows have no influence on a walk that met no unowned
    /// address. `None`: it met one, and no epoch changes when an object is loaded there.
    pub fn windows_stamp(&self) -> Option<u64> {
        (!self.unowned).then_some(if self.window { self.removals.wrapping_add(1) } else { 0 })
    }

    /// See `uunwind_core::walk::Replay::windows_hold`.
    pub fn windows_hold(&self, stamp: u64) -> bool {
        stamp == self.removals.wrapping_add(1)
    }
}

/// Reports a change of plugins, facts or rules, which changes the validity epoch: cached walks become invalid.
pub fn changed() {
    CHANGES.fetch_add(1, Ordering::Release);
}
