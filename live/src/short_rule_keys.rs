//! Cache keys of short rules. A *salt* is mixed into the key of an entry, so that an entry is found only under the salt
//! that it was stored with. A *stamp* is a validity epoch: while it is the same, the same pc has the same rule.
//!
//! A capture reports no objects to a recorder, so rules are all that it needs of an object. As long as the loader loads
//! and unloads nothing, and plugins, marks and tables do not change, an address has the same rule. So captures have one
//! salt for all unclaimed objects, made from the counts of those changes, and a walk crosses from one object to another
//! without a lookup. A sample must visit each object in order to report it, so there each object has its own salt, made
//! from its generation.

use crate::state::{CHANGES, OBJECTS};
use core::sync::atomic::Ordering;
use uunwind_core::cache::short::Salt;
use uunwind_core::cache::steps::Validity;

/// The current stamp, for the shared salt. `each` receives the address and the value of each word that it follows from.
/// `None`: it is not available, since the loader's counters were not found.
#[inline(always)]
fn shared_stamp(mut each: impl FnMut(u64, u64)) -> Option<u64> {
    let loads = OBJECTS.loads().from_words(&mut each)?;
    let changes = CHANGES.load(Ordering::Acquire);
    each(CHANGES.as_ptr() as u64, changes);
    Some(stamp(loads, changes))
}

/// A stamp that differs whenever one of the two counts does. The factor is large and odd, so that no number of changes
/// cancels out loads or unloads.
#[inline(always)]
fn stamp(loads: u64, changes: u64) -> u64 {
    loads.wrapping_add(changes.wrapping_mul(0xbf58_476d_1ce4_e5b9)) | SHARED_BIT
}

/// The words that [`Salts::stamp`] follows from.
pub struct SharedEpoch;

impl Validity for SharedEpoch {
    #[cold]
    fn words(&self, each: &mut dyn FnMut(u64, u64)) -> Option<u64> {
        shared_stamp(each)
    }
}

/// The salts of one walk.
#[derive(Clone, Copy)]
pub struct Salts {
    /// The salt for the current frame.
    now: Salt,
    /// The stamp that the shared salt was made from; `None`: each object has a salt of its own.
    shared: Option<u64>,
}

/// A generation that no object has, so that nothing is stored under it.
const NOTHING: u64 = 0;
/// Set in stamps, to distinguish them from generations.
const SHARED_BIT: u64 = 1 << 63;

impl Salts {
    /// The salts for one walk that begins now. `capture`: it reports no objects, so one salt serves for all of them.
    pub fn new(capture: bool) -> Salts {
        // Taken before any object is looked up: after a change during the walk, rules are stored under an outdated
        // salt, where no later walk finds them.
        match capture.then(|| shared_stamp(|_, _| {})).flatten() {
            Some(shared) => Salts { now: Salt::new(shared), shared: Some(shared) },
            None => Salts { now: Salt::new(NOTHING), shared: None },
        }
    }

    /// The salt for the current frame.
    #[inline(always)]
    pub fn salt(&self) -> Salt {
        self.now
    }

    /// The validity epoch of this walk's short rules, if one epoch stands for all of them: while it is the same, so are
    /// the rules. `None` for samples.
    pub fn stamp(&self) -> Option<u64> {
        self.shared
    }

    /// Says that the current frame lies in an unclaimed object whose rules have this key: the generation of its load,
    /// and whether it has a rule table.
    pub fn enter(&mut self, rules_key: u64) {
        if self.shared.is_none() {
            self.now = Salt::new(rules_key);
        }
    }

    /// Says that the current frame lies in no unclaimed object.
    pub fn nowhere(&mut self) {
        self.enter(NOTHING);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_changes_cancels_out_loads_and_unloads() {
        let mut seen = std::collections::HashSet::new();
        for adds in 40u64..80 {
            for unloads in 0..40 {
                for changes in 0..40 {
                    let now = stamp(adds << 32 | unloads, changes);
                    assert!(
                        seen.insert(now),
                        "{adds} loads, {unloads} unloads, {changes} changes: the stamp is not new"
                    );
                }
            }
        }
    }
}
