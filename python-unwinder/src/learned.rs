//! What the plugin learns about an interpreter while it runs: the distance from an activation's boundary to its CFA,
//! and the unwind ranges of the interpreter loop besides the one with the exported symbol (compilers split it).
//!
//! The distance is one number for a build, because the boundary is a local variable of one function. So a distance
//! that differs means that the native walk and the chain disagree: such an activation is not told. Should the number
//! have been learned from a bad walk, a run of [`VOTES`] equal other distances replaces it.
//!
//! Shared by all threads, without locks; a lost update costs one more observation.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Interpreters (libpythons) in one process for which things are remembered.
const SLOTS: usize = 4;
/// Ranges remembered for each.
const RANGES: usize = 8;
/// So many equal other distances in a row replace the learned one.
const VOTES: u64 = 16;
/// Distances at or above are nonsense.
const DISTANCE_LIMIT: u64 = 1 << 16;

/// What is known of one interpreter.
pub struct Learned {
    /// Address of its facts; 0: free.
    facts: AtomicUsize,
    /// The distance (16 bits), another one seen lately (16 bits), and how often in a row (32 bits).
    distance: AtomicU64,
    /// First addresses of learned ranges.
    ranges: [AtomicU64; RANGES],
}

/// How an observed distance compares.
#[derive(PartialEq, Eq, Debug)]
pub enum Distance {
    /// As learned.
    Same,
    /// Nothing was known, or the known one was outvoted: this one holds from now on.
    New,
    /// Another: boundary and native frame don't belong together.
    Other,
}

static LEARNED: [Learned; SLOTS] = [const { Learned::new() }; SLOTS];

impl Learned {
    const fn new() -> Learned {
        Learned {
            facts: AtomicUsize::new(0),
            distance: AtomicU64::new(0),
            ranges: [const { AtomicU64::new(0) }; RANGES],
        }
    }

    /// What is known of the interpreter with these facts. `None`: more than [`SLOTS`] interpreters, or no facts.
    pub fn of(facts: *const u8) -> Option<&'static Learned> {
        let key = facts as usize;
        if key == 0 {
            return None;
        }
        LEARNED.iter().find(|slot| {
            slot.facts.load(Relaxed) == key
                || match slot.facts.compare_exchange(0, key, Relaxed, Relaxed) {
                    Ok(_) => true,
                    Err(owner) => owner == key,
                }
        })
    }

    /// The learned distance from boundary to CFA, in bytes.
    pub fn distance(&self) -> Option<u64> {
        match self.distance.load(Relaxed) % DISTANCE_LIMIT {
            0 => None,
            distance => Some(distance),
        }
    }

    /// Compares an observed distance, and learns.
    pub fn observe(&self, distance: u64) -> Distance {
        if distance == 0 || distance >= DISTANCE_LIMIT {
            return Distance::Other;
        }
        let word = self.distance.load(Relaxed);
        let (known, other, votes) = (word % DISTANCE_LIMIT, (word >> 16) % DISTANCE_LIMIT, word >> 32);
        if known == distance {
            if votes != 0 {
                self.distance.store(known, Relaxed);
            }
            return Distance::Same;
        }
        let votes = if other == distance { votes + 1 } else { 1 };
        if known == 0 || votes >= VOTES {
            self.distance.store(distance, Relaxed);
            return Distance::New;
        }
        self.distance.store(known | distance << 16 | votes << 32, Relaxed);
        Distance::Other
    }

    /// Is the function that begins at `start` a learned part of the interpreter loop?
    pub fn has_range(&self, start: u64) -> bool {
        self.ranges.iter().any(|range| range.load(Relaxed) == start)
    }

    /// Remembers a part of the interpreter loop. True: it was new.
    pub fn add_range(&self, start: u64) -> bool {
        if self.has_range(start) {
            return false;
        }
        self.ranges.iter().any(|range| range.compare_exchange(0, start, Relaxed, Relaxed).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_learned_once_and_outvoted_only_by_a_run() {
        let learned = Learned::new();
        assert_eq!(learned.distance(), None);
        assert_eq!(learned.observe(144), Distance::New);
        assert_eq!(learned.observe(144), Distance::Same);
        for _ in 0..100 {
            for _ in 1..VOTES {
                assert_eq!(learned.observe(160), Distance::Other);
            }
            assert_eq!(learned.observe(144), Distance::Same, "a run that is interrupted counts for nothing");
        }
        for _ in 1..VOTES {
            assert_eq!(learned.observe(160), Distance::Other);
        }
        assert_eq!(learned.observe(160), Distance::New);
        assert_eq!(learned.distance(), Some(160));
        assert_eq!(learned.observe(0), Distance::Other);
        assert_eq!(learned.observe(1 << 16), Distance::Other);
    }

    #[test]
    fn ranges_and_slots_are_bounded() {
        let learned = Learned::new();
        for start in 1..=RANGES as u64 {
            assert!(learned.add_range(start * 16));
            assert!(!learned.add_range(start * 16));
        }
        assert!(!learned.add_range(0x5000), "full");
        assert!(!learned.has_range(0x5000) && learned.has_range(16));
        assert!(Learned::of(core::ptr::null()).is_none());
        let many = [0u8; 64];
        let found = many.iter().filter(|byte| Learned::of(core::ptr::from_ref(*byte)).is_some()).count();
        assert!(found <= SLOTS);
    }
}
