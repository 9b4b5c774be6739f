//! The processes that a recording from outside follows: what each has used, and children that could not be followed.

use crate::objects::{Code, Objects};
use crate::record::Image;
use crate::refusal::refused;
use crate::sampler::Sampler;
use std::io;
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
pub fn parent_of(pid: u32, image: &Image, sampler: &Sampler, followed: &[Followed]) -> Option<Parent> {
    let id = u32::try_from(Stat::of(pid)?.number(4)?).ok()?;
    let (target, known) = sampler.targets.iter().zip(followed).find(|(target, _)| target.pid == id)?;
    Some(Parent { pid: id, index: target.process, is_same_program: *image == known.image })
}

/// A process that is recorded.
pub struct Followed {
    pid: u32,
    /// Its image, as it was prepared.
    pub image: Image,
    /// CPU time that it had used when its recording began, and has used by now, in ns.
    from: u64,
    now: u64,
}

impl Followed {
    /// `whole`: what it has used so far counts, too.
    pub fn new(pid: u32, image: Image, whole: bool) -> Followed {
        let now = machine::exact_cpu_of(pid).unwrap_or(0);
        Followed { pid, image, from: if whole { 0 } else { now }, now }
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

/// Children that were found and not recorded.
#[derive(Default)]
pub struct Unseen {
    /// Those that ended before they could be looked at.
    ended: u32,
    refused: u32,
    /// Why, of the first one.
    why: String,
}

impl Unseen {
    /// The objects of a child, if it can be recorded.
    pub fn check(&mut self, pid: u32, code: &Code, prepared: io::Result<Objects>) -> Option<Objects> {
        match prepared {
            Ok(objects) if !code.is_empty() => return Some(objects),
            Err(error) if !code.is_empty() => {
                self.refused += 1;
                if self.refused == 1 {
                    self.why = refused(pid, error).to_string();
                }
            }
            _ => self.ended += 1,
        }
        None
    }

    /// What is missing, for people.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.ended > 0 {
            notes.push(format!("{} children ended before they could be looked at, and were not recorded", self.ended));
        }
        if self.refused > 0 {
            notes.push(format!("{} children could not be recorded; the first: {}", self.refused, self.why));
        }
        notes
    }
}
