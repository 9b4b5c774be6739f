//! A capture's log of steps while it unwinds, and how it meets the cached steps.
//!
//! A capture logs in the half that does not hold the cached steps. Where it reaches a frame of these ([`Inner::meet`]),
//! the logged steps are copied in front of the rest of them ([`Inner::splice`]), and the log continues in their place.
//!
//! | the log | `spliced` | `kept` | `turn` meanwhile | `candidate_at` | when it is finished |
//! |---|---|---|---|---|---|
//! | in the other half | false | true | even | unless the epoch differs | it becomes the cached steps |
//! | in the other half, while the cache rests | false | false | even | none, so it is never spliced | the cached steps stay; it has only said where registers are |
//! | in the half of the cached steps | true | true | odd | none: it has met them | it becomes the cached steps |
//!
//! In the first two, an abandoned capture leaves the cached steps as they were. The walk that continues a log makes
//! `turn` odd in any case.

use super::frames::Frame;
use super::{At, Inner, Step, FRONT};
use crate::cache::short::Short;
use core::ops::Range;

/// The current capture's steps, from the start of a run on.
pub(super) struct CaptureSteps {
    /// Index of the half that the log lies in.
    pub(super) half: usize,
    /// Index of the log's first step there, the start of a run.
    pub(super) first_at: usize,
    /// Index after the log's last step.
    pub(super) end: usize,
    /// Index, in the other half, of the next cached step that may be reached. `None`: none may.
    pub(super) candidate_at: Option<usize>,
    /// The log lies in the half of the cached steps, which are inconsistent until it is finished.
    pub(super) spliced: bool,
    /// Whether the log becomes the cached steps. `false` only while the cache rests ([`Inner::rests`]).
    pub(super) kept: bool,
    /// The step from the frame with an exact pc, which precedes the log.
    pub(super) exact: Option<Step>,
}

impl Inner {
    /// The cached steps, up to their end.
    #[inline(always)]
    pub(super) fn cached(&self) -> &[Step] {
        let half = self.halves.get(self.half as usize & 1);
        half.and_then(|half| half.get(..self.end as usize)).unwrap_or_default()
    }

    /// The steps of a log, with the start of its run.
    #[inline(always)]
    pub(super) fn logged(&self, log: &CaptureSteps) -> &[Step] {
        self.halves.get(log.half & 1).and_then(|half| half.get(log.first_at..log.end)).unwrap_or_default()
    }

    /// Number of frames, inwards from the frame after the cached step at `met_at`, that the log and the cached steps
    /// have in common.
    #[inline(always)]
    pub(super) fn shared(&self, log: &CaptureSteps, met_at: usize) -> usize {
        let noted = self.logged(log);
        let there = self.cached().get(self.first_at as usize..=met_at);
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

    /// Index of the first cached step from `next_at` on whose caller's stack pointer is not below that of the frame
    /// `at`, and whether that caller is this frame. At most `limit` steps are passed.
    #[inline(always)]
    pub(super) fn meet(&self, mut next_at: usize, limit: usize, at: At) -> (usize, bool) {
        let steps = self.cached();
        let steps = steps.get(..next_at.saturating_add(limit)).unwrap_or(steps);
        while steps.get(next_at).is_some_and(|step| step.cfa < at.sp) {
            next_at += 1;
        }
        (next_at, steps.get(next_at).is_some_and(|step| step.cfa == at.sp && step.caller == at.pc))
    }

    /// Copies logged steps, of the half that does not hold the cached ones, in front of what follows the cached step at
    /// `met_at`, to which they lead. Returns the index of the first. `None`: there is no room.
    #[inline(always)]
    pub(super) fn splice(&mut self, logged: Range<usize>, met_at: usize) -> Option<usize> {
        let to = (met_at + 1).checked_sub(logged.len())?;
        let [a, b] = &mut self.halves;
        let (from, into) = if self.half & 1 == 0 { (b, a) } else { (a, b) };
        let (from, into) = (from.get(logged)?, into.get_mut(to..=met_at)?);
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
        let candidate_at = (inner.stamp == stamp).then_some(inner.first_at as usize);
        let half = inner.half as usize & 1 ^ 1;
        let (first_at, end) = (FRONT, FRONT);
        let mut log = CaptureSteps { half, first_at, end, candidate_at, spliced: false, kept: true, exact: None };
        log.add(inner, Step { rule: Short::NONE, cfa: frame.sp, caller: frame.pc });
        log
    }

    /// The cached steps from the start of their run, at index `first_at`, up to the index `end`, to be continued where
    /// they lie.
    pub(super) fn of_cached(inner: &Inner, first_at: usize, end: usize) -> CaptureSteps {
        let half = inner.half as usize & 1;
        CaptureSteps { half, first_at, end, candidate_at: None, spliced: true, kept: true, exact: None }
    }

    /// A copy of the cached steps from the start of their run, at index `first_at`, up to the index `end`, in the half
    /// that does not hold them: what differs after those are few frames, perhaps, and then the rest is to be met.
    /// `None`: less is left of them than would be copied.
    pub(super) fn copied(inner: &mut Inner, first_at: usize, end: usize) -> Option<CaptureSteps> {
        let (count, cached) = (end - first_at, inner.half as usize & 1);
        if (inner.end as usize).saturating_sub(end) < count {
            return None;
        }
        let [a, b] = &mut inner.halves;
        let (from, to) = if cached == 0 { (a, b) } else { (b, a) };
        let (from, to) = (from.get(first_at..end)?, to.get_mut(FRONT..FRONT + count)?);
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        let (half, candidate_at) = (cached ^ 1, Some(end));
        Some(CaptureSteps {
            half,
            first_at: FRONT,
            end: FRONT + count,
            candidate_at,
            spliced: false,
            kept: true,
            exact: None,
        })
    }

    /// Whether it has room in front of what follows the cached step at `met_at`.
    pub(super) fn fits_before(&self, met_at: usize) -> bool {
        met_at + 1 >= self.end - self.first_at
    }

    /// Space for further steps in its half.
    #[inline(always)]
    pub(super) fn room<'i>(&self, inner: &'i mut Inner) -> &'i mut [Step] {
        inner.halves.get_mut(self.half & 1).and_then(|half| half.get_mut(self.end..)).unwrap_or_default()
    }

    #[inline(always)]
    pub(super) fn add(&mut self, inner: &mut Inner, step: Step) {
        if let Some(place) = self.room(inner).first_mut() {
            *place = step;
            self.end += 1;
        }
    }
}
