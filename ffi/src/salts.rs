//! Under what short rules are remembered: whoever finds one must be in the same surroundings as whoever stored it.
//!
//! A walk of a caller's, of which nobody is told, needs to know nothing of the objects that it passes but their rules. While the loader
//! loads and unloads nothing, and nothing becomes known of plugins, marks and tables, an address means the same; so there is one salt for
//! all objects that nobody claims, made from what counts those changes, and the chain goes from object to object without a
//! look at them. A sampler's walk must meet each object, to report it: there each has its own.

use crate::state::{CHANGES, OBJECTS};
use core::sync::atomic::Ordering;
use uunwind_core::chain::Surroundings;
use uunwind_core::short_rule::Salt;

/// The shared salt's origin as it is now, and the words that it follows from.
#[inline(always)]
fn shared(mut each: impl FnMut(u64, u64)) -> Option<u64> {
    let loads = OBJECTS.loads().told_by(&mut each)?;
    let changes = CHANGES.load(Ordering::Acquire);
    each(CHANGES.as_ptr() as u64, changes);
    Some(stamp(loads, changes))
}

/// Another one whenever one of the two is. The factor is none of those that [`uunwind_core::loads`] multiplies its words by: else a change
/// would undo what an unload has done.
#[inline(always)]
fn stamp(loads: u64, changes: u64) -> u64 {
    loads.wrapping_add(changes.wrapping_mul(0xbf58_476d_1ce4_e5b9)) | SHARED
}

/// What [`Salts::stamp`] follows from.
pub struct Shared;

impl Surroundings for Shared {
    #[cold]
    fn words(&self, each: &mut dyn FnMut(u64, u64)) -> Option<u64> {
        shared(each)
    }
}

/// The salts of one walk.
#[derive(Clone, Copy)]
pub struct Salts {
    now: Salt,
    /// What the shared one was made from.
    shared: Option<u64>,
}

/// Nothing is stored under it: no object has this generation.
const NOTHING: u64 = 0;
/// Keeps shared ones apart from generations.
const SHARED: u64 = 1 << 63;

impl Salts {
    /// For one walk. `unseen`: nobody is told of the objects that it meets.
    pub fn new(unseen: bool) -> Salts {
        // Before any object is looked up: what changes meanwhile is stored under a salt that nobody will ask for.
        match unseen.then(|| shared(|_, _| {})).flatten() {
            Some(shared) => Salts { now: Salt::new(shared), shared: Some(shared) },
            None => Salts { now: Salt::new(NOTHING), shared: None },
        }
    }

    /// The one to use now.
    #[inline(always)]
    pub fn salt(&self) -> Salt {
        self.now
    }

    /// What stands for the surroundings of all plain frames, if there is one such thing: while it is the same, so are their rules.
    pub fn stamp(&self) -> Option<u64> {
        self.shared
    }

    /// The frame in hand lies in an object of this generation that nobody claims.
    pub fn enter(&mut self, generation: u64) {
        if self.shared.is_none() {
            self.now = Salt::new(generation);
        }
    }

    /// It does not.
    pub fn nowhere(&mut self) {
        self.enter(NOTHING);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;
    use uunwind_core::loads::Loads;

    #[test]
    fn no_change_undoes_what_loads_and_unloads_have_done() {
        // In the loader's order: objects that there are, and all that were ever loaded.
        let words = [AtomicU64::new(40), AtomicU64::new(60)];
        let loads = Loads::new();
        // SAFETY: the words outlive `loads`.
        assert!(unsafe { loads.locate(words.as_ptr().cast(), 16, (60, 20)) });
        let mut seen = std::collections::HashSet::new();
        for objects in 1..40 {
            for all in 40..80 {
                for changes in 0..40 {
                    words[0].store(objects, Ordering::Relaxed);
                    words[1].store(all, Ordering::Relaxed);
                    let now = stamp(loads.now().expect("located"), changes);
                    assert!(seen.insert(now), "{objects} objects of {all} loaded, {changes} changes: as once before");
                }
            }
        }
    }
}
