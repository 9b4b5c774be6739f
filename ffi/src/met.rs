//! What one walk depends on besides words, so that it may be reused: see `uunwind_core::reuse`.

use crate::state::{CHANGES, REGISTRY};
use core::sync::atomic::Ordering;
use uunwind_core::objects::Object;

/// Objects that may be unloaded: so many are noted.
const OBJECTS: usize = 10;

/// Gathered while a walk is under way.
pub struct Met {
    objects: [u64; OBJECTS],
    count: u8,
    too_many: bool,
    /// It met a window.
    pub window: bool,
    /// It met an address without an owner: an object may be loaded there at any time.
    pub nobody: bool,
    /// Something that was told now may be told better next time.
    pub unsettled: bool,
    removals: u64,
}

impl Met {
    /// Nothing so far.
    pub fn new() -> Met {
        Met {
            objects: [0; OBJECTS],
            count: 0,
            too_many: false,
            window: false,
            nobody: false,
            unsettled: false,
            removals: REGISTRY.removals(),
        }
    }

    /// Notes an object, unless it stays for ever.
    pub fn object(&mut self, object: &Object) {
        let address = core::ptr::from_ref(object) as u64;
        if object.permanent || self.objects().is_some_and(|met| met.contains(&address)) {
            return;
        }
        match self.objects.get_mut(usize::from(self.count)) {
            Some(place) => {
                *place = address;
                self.count += 1;
            }
            None => self.too_many = true,
        }
    }

    /// See `uunwind_core::walk::Env::objects`.
    pub fn objects(&self) -> Option<&[u64]> {
        self.objects.get(..usize::from(self.count)).filter(|_| !self.too_many)
    }

    /// See `uunwind_core::walk::Env::windows_stamp`. Windows that come change nothing for a walk that had an owner for
    /// everything.
    pub fn windows_stamp(&self) -> Option<u64> {
        (!self.nobody).then_some(if self.window { self.removals.wrapping_add(1) } else { 0 })
    }

    /// See `uunwind_core::walk::Env::windows_hold`.
    pub fn windows_hold(&self, stamp: u64) -> bool {
        stamp == self.removals.wrapping_add(1)
    }
}

/// What is known of plugins, facts and rules has changed: walks from before tell less, or something else.
pub fn changed() {
    CHANGES.fetch_add(1, Ordering::Release);
}
