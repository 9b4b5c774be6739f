//! What the plugin learns about an interpreter while it runs: the distance from an activation's boundary to its CFA,
//! and the unwind ranges of the interpreter loop besides the one with the exported symbol (compilers split functions).
//!
//! The distance is the same throughout a build, because the boundary is a local variable of one function. A distance
//! that differs therefore means that the native walk and the chain disagree, and the activation's frames are not
//! emitted. If the first distance came from a wrong walk, [`VOTES`] equal other distances in a row replace it.
//!
//! Shared by all threads, without locks; a lost update costs one more observation.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Number of interpreters (libpythons) in one process for which there is room.
const SLOTS: usize = 8;
/// Number of ranges kept for each interpreter.
const RANGES: usize = 8;
/// Number of equal other distances in a row that replace the learned one.
const VOTES: u64 = 16;
/// Distances of this many bytes or more are taken for errors.
const DISTANCE_LIMIT: u64 = 1 << 16;

/// What was learned about one interpreter.
pub struct Learned {
    /// Address of its facts, the key; 0: the slot is free.
    facts: AtomicUsize,
    /// The distance (16 bits), another one seen lately (16 bits), and how often in a row (32 bits).
    distance: AtomicU64,
    /// Addresses at which the learned ranges begin; 0: free.
    ranges: [AtomicU64; RANGES],
}

/// Result of comparing an observed distance with the learned one.
#[derive(PartialEq, Eq, Debug)]
pub enum Distance {
    /// It equals the learned one.
    Same,
    /// It is the learned one from now on: there was none, or the old one was outvoted.
    New,
    /// It differs: boundary and native frame do not belong together.
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

    /// What was learned about the interpreter with these facts. `None`: there are no facts, or [`SLOTS`] other
    /// interpreters came first.
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

    /// Compares an observed distance (in bytes) with the learned one, and learns from it.
    pub fn observe(&self, distance: u64) -> Distance {
        if distance == 0 || distance >= DISTANCE_LIMIT {
            return Distance::Other;
        }
        let word = self.distance.load(Relaxed);
        let (learned, other, votes) = (word % DISTANCE_LIMIT, (word >> 16) % DISTANCE_LIMIT, word >> 32);
        if learned == distance {
            if votes != 0 {
                self.distance.store(learned, Relaxed);
            }
            return Distance::Same;
        }
        let votes = if other == distance { votes + 1 } else { 1 };
        if learned == 0 || votes >= VOTES {
            self.distance.store(distance, Relaxed);
            return Distance::New;
        }
        self.distance.store(learned | distance << 16 | votes << 32, Relaxed);
        Distance::Other
    }

    /// Is the function that begins at `start` (a process address) a learned part of the interpreter loop?
    pub fn has_range(&self, start: u64) -> bool {
        self.ranges.iter().any(|range| range.load(Relaxed) == start)
    }

    /// Adds a part of the interpreter loop. True if it is new and there was room.
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
