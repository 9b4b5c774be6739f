//! The processes that a recording follows: what each has used, and children that could not be followed.

use crate::prepared::{Image, Prepared, Unprepared};
use crate::target::Target;
use std::collections::HashSet;
use std::fmt::Display;
use uunwind_recorder::machine::{self, Stat};

/// The process that a child was forked from.
pub struct Parent {
    /// Its id.
    pub pid: u32,
    /// The index of its image.
    pub index: u32,
    /// The child still runs the same program.
    pub is_same_program: bool,
}

/// The recorded process that a child with this image was forked from.
pub fn parent_of(pid: u32, image: &Image, targets: &[Target]) -> Option<Parent> {
    let id = u32::try_from(Stat::of(pid)?.number(4)?).ok()?;
    let target = targets.iter().find(|target| target.pid == id)?;
    Some(Parent { pid: id, index: target.process, is_same_program: *image == target.usage.image })
}

/// A process that is recorded from outside: its program, and what it has used.
#[derive(Default)]
pub struct Usage {
    pid: u32,
    /// Its image, as it was prepared.
    pub image: Image,
    /// CPU time that it had used when its recording began, and has used by now, in ns.
    from: u64,
    now: u64,
}

impl Usage {
    /// `whole`: what it has used so far counts, too.
    pub fn new(pid: u32, image: Image, whole: bool) -> Usage {
        let now = machine::exact_cpu_of(pid).unwrap_or(0);
        Usage { pid, image, from: if whole { 0 } else { now }, now }
    }

    /// Reads its CPU time.
    pub fn update(&mut self) {
        self.now = machine::exact_cpu_of(self.pid).map_or(self.now, |now| now.max(self.now));
    }

    /// CPU time that it has used while it was recorded, in ns.
    pub fn used(&self) -> u64 {
        self.now.saturating_sub(self.from)
    }
}

/// Children that were found, by their ids and beginnings (field 22 of `/proc/PID/stat`): an id may be used again.
pub struct Known {
    children: HashSet<(u32, u64)>,
    /// At this number of them, those that have ended are forgotten.
    full: usize,
}

impl Known {
    /// None so far.
    pub fn new(full: usize) -> Known {
        Known { children: HashSet::new(), full }
    }

    /// Whether a child is found for the first time. `begun`: when the process with an id has begun, if there is one.
    pub fn is_new(&mut self, child: u32, begun: impl Fn(u32) -> Option<u64>) -> bool {
        if self.children.len() >= self.full {
            self.children.retain(|(pid, began)| begun(*pid) == Some(*began));
            self.full = self.full.max(self.children.len().saturating_mul(2));
        }
        self.children.insert((child, begun(child).unwrap_or(0)))
    }
}

/// Processes that were found and not recorded, or no longer.
#[derive(Default)]
pub struct Unseen {
    /// Children that ended before they could be looked at.
    ended: u32,
    /// Children that could not be recorded.
    refused: u32,
    /// Why, of the first one.
    why: String,
    /// Processes whose recording ended before they did, and why, of the first ones.
    left: usize,
    notes: Vec<String>,
}

impl Unseen {
    /// A child, if it can be recorded.
    pub fn check(&mut self, prepared: Result<Prepared, Unprepared>) -> Option<Prepared> {
        match prepared {
            Ok(prepared) if !prepared.code.is_empty() => return Some(prepared),
            Err(Unprepared::Refused(why)) => self.refused(&why),
            _ => self.ended(),
        }
        None
    }

    /// A child ended before it could be looked at.
    pub fn ended(&mut self) {
        self.ended += 1;
    }

    /// A child could not be recorded.
    pub fn refused(&mut self, why: &dyn ToString) {
        self.refused += 1;
        if self.refused == 1 {
            self.why = why.to_string();
        }
    }

    /// A recorded process lives on, and cannot be looked at any more.
    pub fn left(&mut self, pid: u32, why: &dyn Display) {
        /// At most this number of them has a note of its own.
        const NOTES: usize = 4;
        self.left += 1;
        if self.notes.len() < NOTES {
            self.notes.push(format!("the recording of process {pid} ended early: {why}"));
        }
    }

    /// What is missing, for people.
    pub fn notes(self) -> Vec<String> {
        let mut notes = self.notes;
        if self.left > notes.len() {
            notes.push(format!("the recording of {} more processes ended early", self.left - notes.len()));
        }
        if self.ended > 0 {
            notes.push(format!("{} children ended before they could be looked at, and were not recorded", self.ended));
        }
        if self.refused > 0 {
            notes.push(format!("{} children could not be recorded; the first: {}", self.refused, self.why));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many have ended, a child is found, and found once.
    #[test]
    fn children_that_have_ended_are_forgotten() {
        let mut known = Known::new(8);
        for pid in 1..1000 {
            // The last two live; each began at a time of its own.
            let begun = |other: u32| (other == pid || other + 1 == pid).then_some(u64::from(other) * 10);
            assert!(known.is_new(pid, begun), "{pid}");
            assert!(!known.is_new(pid, begun) && (pid == 1 || !known.is_new(pid - 1, begun)), "{pid}");
            assert!(known.children.len() <= 8, "{pid}");
        }
        let all = |pid: u32| Some(u64::from(pid) * 10);
        let mut known = Known::new(8);
        for _ in 0..2 {
            let new = (1..1000).filter(|pid| known.is_new(*pid, all)).count();
            assert!(new == 999 || new == 0, "{new} children");
        }
        assert_eq!(known.children.len(), 999, "those that live are all known");
        assert!(known.is_new(5, |_| Some(7)), "another one with this id");
    }
}
