//! The log of a walk's steps, and how it follows the cached ones.

use super::{count_valid, At, Inner, Step, SEARCH, STEPS};
use crate::cache::short::Short;
use crate::memory::StackWords;
use core::sync::atomic::{compiler_fence, AtomicU64, Ordering};

/// The log of a walk's steps.
pub struct WalkSteps<'c> {
    pub(super) cache: &'c mut Inner,
    /// [`super::StepCache::turn`]: odd as long as this log exists.
    pub(super) turn: &'c AtomicU64,
    /// The validity epoch of the walk, under which the log is kept.
    pub(super) stamp: u64,
    /// Index of the half that the log lies in.
    pub(super) half: usize,
    /// Index of the log's first step there, the start of a run.
    pub(super) first_at: usize,
    /// Index after the log's last step.
    pub(super) end: usize,
    /// Index of the first step of the current run, after its start.
    pub(super) run_at: usize,
    /// Index, in the other half, of the next cached step that may be reached. `None`: none may, or the log has met the
    /// cached steps and lies in their half.
    pub(super) candidate_at: Option<usize>,
    /// The log lies in the half of the cached steps, and up to this index the cached ones still stand after its end. 0:
    /// they do not, since the capture was not spliced there, or has written another step over them.
    ///
    /// ```text
    /// [ free | start, x, f, g,  start, h, i, ... | free ]     f, g: cached, still valid; then comes a frame that only
    ///                          end                            the walk can step. If it leads to the same `start`, the
    ///                                                         run h, i, ... is tried ([`WalkSteps::follow`])
    /// ```
    pub(super) following_end: usize,
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
        half.and_then(|half| half.get_mut(self.end..)).unwrap_or_default()
    }

    /// Reports that `count` steps were written to [`WalkSteps::room`].
    #[inline(always)]
    pub(crate) fn add(&mut self, count: usize) {
        self.end += count;
        if count > 0 {
            self.following_end = 0;
        }
    }

    /// Whether frames of the cached steps may still be reached.
    #[inline(always)]
    pub(crate) fn may_follow(&self) -> bool {
        self.candidate_at.is_some() || self.is_followed_by_run()
    }

    /// Whether a run has just begun whose start is the one that was cached there, so that its cached steps follow.
    #[inline(always)]
    fn is_followed_by_run(&self) -> bool {
        self.following_end > self.end && self.run_at == self.end
    }

    /// The steps of the current run.
    #[inline(always)]
    pub(crate) fn run(&self) -> &[Step] {
        self.steps().get(self.run_at..self.end).unwrap_or_default()
    }

    /// Begins a run of plain frames at this frame, or continues the run that has led there. False: there is no room.
    pub(crate) fn begin_run(&mut self, at: At) -> bool {
        if self.end > self.first_at && self.here() == Some(at) {
            return true;
        }
        let Some(room) = self.room().first_mut() else { return false };
        let was_there = room.rule == Short::NONE && (room.caller, room.cfa) == (at.pc, at.sp);
        *room = Step { rule: Short::NONE, cfa: at.sp, caller: at.pc };
        self.end += 1;
        if !was_there {
            self.following_end = 0;
        }
        self.run_at = self.end;
        true
    }

    /// Logs that the stack ends with the current frame, whose stack pointer is `sp`.
    pub(crate) fn end(&mut self, sp: u64) {
        if let Some(room) = self.room().first_mut() {
            *room = Step::end(sp);
            (self.end, self.following_end) = (self.end + 1, 0);
        }
    }

    /// Replays the cached steps as far as they are valid, if the walk, which is at the frame `at` after the steps so
    /// far, has reached them. Returns their number; their callers' frame words are written to `words`. `fp`: rbp at the
    /// first frame of the run.
    #[inline(never)]
    pub(crate) fn follow(&mut self, at: At, fp: Option<u64>, bare: impl StackWords, words: &mut [u64]) -> usize {
        if self.is_followed_by_run() {
            let valid = count_valid(
                self.steps().get(..self.following_end).unwrap_or_default(),
                self.run_at,
                self.end,
                fp,
                bare,
                words,
            );
            self.end += valid;
            return valid;
        }
        let (Some(next_at), end) = (self.candidate_at, self.cache.end as usize) else { return 0 };
        let (met_at, is_met) = self.cache.meet(next_at, SEARCH, at);
        self.candidate_at = Some(met_at);
        let spliced = is_met.then(|| self.cache.splice(self.first_at..self.end, met_at)).flatten();
        let (Some(to), count) = (spliced, self.end - self.first_at) else { return 0 };
        self.run_at = self.run_at - self.first_at + to;
        (self.half, self.first_at, self.end, self.candidate_at) = (self.half ^ 1, to, met_at + 1, None);
        let steps = self.steps().get(..end).unwrap_or_default();
        let valid = count_valid(steps, self.run_at, self.end, fp, bare, words);
        self.cache.count_apart(end - met_at < count);
        self.end += valid;
        valid
    }

    /// The frame after the steps so far.
    pub(crate) fn here(&self) -> Option<At> {
        let last = self.steps().get(self.end.checked_sub(1)?)?;
        Some(At { pc: last.caller, sp: last.cfa })
    }

    /// Ends the log: it becomes the cached steps.
    pub fn finish(self) {
        if self.candidate_at.is_some() {
            self.cache.count_apart(true);
        }
        let first = self.steps().get(self.first_at).copied().filter(|_| self.kept);
        let cache = self.cache;
        if let Some(start) = first.filter(|start| self.first_at < self.end && start.rule == Short::NONE) {
            cache.at = At { pc: start.caller, sp: start.cfa };
        }
        if self.kept {
            cache.stamp = self.stamp;
            (cache.half, cache.first_at, cache.end) = (self.half as u32 & 1, self.first_at as u32, self.end as u32);
        }
        compiler_fence(Ordering::Release);
        self.turn.store(self.turn.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}
