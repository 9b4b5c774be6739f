//! A capture's log of steps while it unwinds, and how it meets the cached steps.
//!
//! A capture logs in the half that does not hold the cached steps. Where it reaches a frame of these ([`Inner::meet`]),
//! the logged steps are copied in front of the rest of them ([`Inner::splice`]), and the log continues in their place.

use super::frames::Frame;
use super::{At, Inner, Step, FRONT};
use crate::cache::short::Short;

/// The current capture's steps, from the start of a run on.
pub(super) struct CaptureSteps {
    /// Where they are: the half, and the indices of the first step and of the end.
    pub(super) half: usize,
    pub(super) first: usize,
    pub(super) len: usize,
    /// Index of the next cached step that may be reached, in the other half.
    pub(super) old: Option<usize>,
    /// The log lies in the half of the cached steps, which are inconsistent until it is finished.
    pub(super) spliced: bool,
    /// Whether the log becomes the cached steps.
    pub(super) kept: bool,
    /// The step from the frame with an exact pc, which precedes the log.
    pub(super) exact: Option<Step>,
}

impl Inner {
    /// The cached steps, up to their end.
    #[inline(always)]
    pub(super) fn live(&self) -> &[Step] {
        let half = self.halves.get(self.half as usize & 1);
        half.and_then(|half| half.get(..self.end as usize)).unwrap_or_default()
    }

    /// The steps of a log, with the start of its run.
    #[inline(always)]
    pub(super) fn logged(&self, log: &CaptureSteps) -> &[Step] {
        self.halves.get(log.half & 1).and_then(|half| half.get(log.first..log.len)).unwrap_or_default()
    }

    /// Number of frames, inwards from the frame after the cached step at `met`, that the log and the cached steps have
    /// in common.
    #[inline(always)]
    pub(super) fn shared(&self, log: &CaptureSteps, met: usize) -> usize {
        let noted = self.logged(log);
        let there = self.live().get(self.first as usize..=met);
        let (noted, there) = (noted.iter().rev(), there.unwrap_or_default().iter().rev());
        let mut shared = 0;
        for (index, (step, old)) in noted.zip(there).enumerate() {
            if step.cfa != old.cfa || step.caller != old.caller {
                break;
            }
            shared = index;
            if step.rule != old.rule {
                break;
            }
        }
        shared
    }

    /// Index of the first cached step from `next` on whose caller's stack pointer is not below that of the frame `at`,
    /// and whether that caller is this frame.
    #[inline(always)]
    pub(super) fn meet(&self, mut next: usize, at: At) -> (usize, bool) {
        let steps = self.live();
        while steps.get(next).is_some_and(|step| step.cfa < at.sp) {
            next += 1;
        }
        (next, steps.get(next).is_some_and(|step| step.cfa == at.sp && step.caller == at.pc))
    }

    /// Copies the logged steps in front of what follows the cached step at `met`, to which they lead. Returns the index
    /// of the first. `None`: there is no room.
    #[inline(always)]
    pub(super) fn splice(&mut self, log: &CaptureSteps, met: usize) -> Option<usize> {
        let to = (met + 1).checked_sub(log.len - log.first)?;
        let [here, there] = &mut self.halves;
        let (from, into) = if log.half == 0 { (here, there) } else { (there, here) };
        let (from, into) = (from.get(log.first..log.len)?, into.get_mut(to..=met)?);
        for (into, from) in into.iter_mut().zip(from) {
            *into = *from;
        }
        Some(to)
    }
}

impl CaptureSteps {
    /// A log in the half that does not hold the cached steps, which it may reach.
    #[inline(always)]
    pub(super) fn begin(inner: &mut Inner, stamp: u64, frame: &Frame) -> CaptureSteps {
        let old = (inner.stamp == stamp).then_some(inner.first as usize);
        let half = inner.half as usize & 1 ^ 1;
        let mut log = CaptureSteps { half, first: FRONT, len: FRONT, old, spliced: false, kept: true, exact: None };
        log.add(inner, Step { rule: Short::NONE, cfa: frame.sp, caller: frame.pc });
        log
    }

    /// The cached steps from the start of their run, at index `first`, up to the index `len`, to be continued in their place.
    pub(super) fn in_place(inner: &Inner, first: usize, len: usize) -> CaptureSteps {
        CaptureSteps { half: inner.half as usize & 1, first, len, old: None, spliced: true, kept: true, exact: None }
    }

    /// Whether it has room in front of what follows the cached step at `met`.
    pub(super) fn fits_before(&self, met: usize) -> bool {
        met + 1 >= self.len - self.first
    }

    /// Space for further steps in its half.
    #[inline(always)]
    pub(super) fn room<'i>(&self, inner: &'i mut Inner) -> &'i mut [Step] {
        inner.halves.get_mut(self.half & 1).and_then(|half| half.get_mut(self.len..)).unwrap_or_default()
    }

    #[inline(always)]
    pub(super) fn add(&mut self, inner: &mut Inner, step: Step) {
        if let Some(place) = self.room(inner).first_mut() {
            *place = step;
            self.len += 1;
        }
    }
}
