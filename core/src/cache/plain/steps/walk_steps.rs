//! The log of a walk's steps, and how it follows the cached ones.

use super::{holding, At, Inner, Step, SEARCH, STEPS};
use crate::cache::short::Short;
use crate::memory::Bare;
use core::sync::atomic::{compiler_fence, AtomicU64, Ordering};

/// The log of a walk's steps.
pub struct WalkSteps<'c> {
    pub(super) cache: &'c mut Inner,
    pub(super) turn: &'c AtomicU64,
    pub(super) stamp: u64,
    pub(super) half: usize,
    pub(super) first: usize,
    pub(super) len: usize,
    /// Index of the first step of the current run.
    pub(super) run: usize,
    /// The cached steps in the other half: index of the next one that may be reached, and the end.
    pub(super) old: Option<(usize, usize)>,
    /// End of the cached steps that follow the log in its own half, where it was continued in their place; else 0.
    pub(super) in_place: usize,
    /// Whether the log becomes the cached steps.
    pub(super) kept: bool,
}

impl WalkSteps<'_> {
    fn steps(&self) -> &[Step; STEPS] {
        self.cache.halves.get(self.half).unwrap_or(&self.cache.halves[0])
    }

    /// Space for further steps.
    #[inline(always)]
    pub(crate) fn room(&mut self) -> &mut [Step] {
        let half = self.cache.halves.get_mut(self.half & 1);
        half.and_then(|half| half.get_mut(self.len..)).unwrap_or_default()
    }

    /// Reports that `count` steps were written to [`WalkSteps::room`].
    #[inline(always)]
    pub(crate) fn add(&mut self, count: usize) {
        self.len += count;
        if count > 0 {
            self.in_place = 0;
        }
    }

    /// Whether frames of the cached steps may still be reached.
    #[inline(always)]
    pub(crate) fn may_follow(&self) -> bool {
        self.old.is_some() || self.is_in_place()
    }

    /// Whether a run has just begun that begins as the cached steps' next one.
    #[inline(always)]
    fn is_in_place(&self) -> bool {
        self.in_place > self.len && self.run == self.len
    }

    /// The steps of the current run.
    #[inline(always)]
    pub(crate) fn run(&self) -> &[Step] {
        self.steps().get(self.run..self.len).unwrap_or_default()
    }

    /// Begins a run of plain frames at this frame, or continues the run that has led there. False: there is no room.
    pub(crate) fn begin_run(&mut self, at: At) -> bool {
        if self.len > self.first && self.here() == Some(at) {
            return true;
        }
        let Some(room) = self.room().first_mut() else { return false };
        let was_there = room.rule == Short::NONE && (room.caller, room.cfa) == (at.pc, at.sp);
        *room = Step { rule: Short::NONE, cfa: at.sp, caller: at.pc };
        self.len += 1;
        if !was_there {
            self.in_place = 0;
        }
        self.run = self.len;
        true
    }

    /// Logs that the stack ends with the current frame, whose stack pointer is `sp`.
    pub(crate) fn end(&mut self, sp: u64) {
        if let Some(room) = self.room().first_mut() {
            *room = Step::end(sp);
            (self.len, self.in_place) = (self.len + 1, 0);
        }
    }

    /// Replays the cached steps as far as they are valid, if the walk, which is at the frame `at` after the steps so
    /// far, has reached them. Returns their number; their callers' frame words are written to `words`. `fp`: rbp at the
    /// first frame of the run.
    #[inline(never)]
    pub(crate) fn follow(&mut self, at: At, fp: Option<u64>, bare: Bare, words: &mut [u64]) -> usize {
        if self.is_in_place() {
            let held =
                holding(self.steps().get(..self.in_place).unwrap_or_default(), self.run, self.len, fp, bare, words);
            self.len += held;
            return held;
        }
        let Some((mut next, end)) = self.old else { return 0 };
        let Some(old) = self.cache.halves.get(self.half & 1 ^ 1).and_then(|half| half.get(..end)) else { return 0 };
        let limit = next.saturating_add(SEARCH);
        let found = loop {
            match old.get(next) {
                Some(step) if next < limit && step.cfa < at.sp => next += 1,
                Some(step) if step.cfa == at.sp && step.caller == at.pc => break true,
                Some(_) => break false,
                None => break false,
            }
        };
        self.old = Some((next, end));
        // The steps so far are copied in front of the cached ones.
        let count = self.len - self.first;
        let (true, Some(to)) = (found, (next + 1).checked_sub(count)) else { return 0 };
        let (here, there) = self.cache.halves.split_at_mut(1);
        let (Some(here), Some(there)) = (here.first_mut(), there.first_mut()) else { return 0 };
        let (from, into) = if self.half & 1 == 0 { (here, there) } else { (there, here) };
        let (Some(from), Some(into)) = (from.get(self.first..self.len), into.get_mut(to..=next)) else { return 0 };
        for (into, from) in into.iter_mut().zip(from) {
            *into = *from;
        }
        self.run = self.run - self.first + to;
        (self.half, self.first, self.len, self.old) = (self.half ^ 1, to, next + 1, None);
        let steps = self.steps().get(..end).unwrap_or_default();
        let held = holding(steps, self.run, self.len, fp, bare, words);
        self.cache.count_apart(end - next < count);
        self.len += held;
        held
    }

    /// The frame after the steps so far.
    pub(crate) fn here(&self) -> Option<At> {
        let last = self.steps().get(self.len.checked_sub(1)?)?;
        Some(At { pc: last.caller, sp: last.cfa })
    }

    /// Ends the log: it becomes the cached steps.
    pub fn finish(self) {
        if self.old.is_some() {
            self.cache.count_apart(true);
        }
        let first = self.steps().get(self.first).copied().filter(|_| self.kept);
        let cache = self.cache;
        if let Some(start) = first.filter(|start| self.first < self.len && start.rule == Short::NONE) {
            cache.at = At { pc: start.caller, sp: start.cfa };
        }
        if self.kept {
            cache.stamp = self.stamp;
            (cache.half, cache.first, cache.end) = (self.half as u32 & 1, self.first as u32, self.len as u32);
        }
        compiler_fence(Ordering::Release);
        self.turn.store(self.turn.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}
