//! Captures of whole stacks by short rules alone, along the cached steps where these are valid, even if the same frames
//! now lie elsewhere on the stack.
//!
//! This reads only the stack, the table of short rules and the thread's step cache. So no writer of the registry has to
//! wait for it, and it needs little of a walk's state. Where short rules do not suffice, a walk goes on at that frame
//! ([`Part`]).

use super::capture_steps::CaptureSteps;
use super::frames::{Frame, RbpAt, Stretch, MOST, NO_LIMIT};
use super::prefix::PREFIX_FRAMES;
use super::tail::VerifiedTail;
use super::{count_valid, fp_after, is_valid, At, Inner, Part, Step, StepCache, Unwound, WalkSteps};
use crate::cache::query::{Rules, Top, Validity};
use crate::cache::short::Short;
use crate::frame::{native_word, user_word, FLAG_EXACT};
use crate::memory::{Bare, StackWords, USER_END};
use crate::stop_reason::StopReason;
use crate::walk::Saved;
use core::sync::atomic::{compiler_fence, Ordering};

/// Number of frames after which the cached steps are looked for again. It is doubled each time, up to [`LATER_LOOKS`].
const FIRST_LOOK: usize = 2;
/// See [`FIRST_LOOK`].
const LATER_LOOKS: usize = 32;

impl Inner {
    /// Replays the cached steps from index `from` on, in the run whose first is at index `run_at`, with rbp `fp` there.
    /// Returns the number of valid steps and, if these reach the end of the stack or of `words`, which of the two it
    /// is.
    #[inline(never)]
    fn replay_steps(
        &mut self,
        validity: &dyn Validity,
        run_at: usize,
        from: usize,
        fp: Option<u64>,
        bare: impl StackWords,
        words: &mut [u64],
    ) -> (usize, Option<StopReason>) {
        let half = self.halves.get(self.half as usize & 1);
        let steps = half.and_then(|half| half.get(..self.end as usize)).unwrap_or_default();
        let valid = count_valid(steps, run_at, from, fp, bare, words);
        let to = from + valid;
        let (stop, to) = match steps.get(to) {
            Some(step) if step.rule == Short::END => (StopReason::Complete, to),
            // There is at least one more frame.
            Some(_) if valid == words.len() && is_valid(steps, run_at, to, fp, bare) => {
                (StopReason::BufferFull, to + 1)
            }
            _ => return (valid, None),
        };
        if let (Some(before), Some(valid)) = (steps.get(..from), steps.get(from..to)) {
            let at = before.last().map_or(At::NOWHERE, |step| At { pc: step.caller, sp: step.cfa });
            let fp_there = || fp_after(before.get(run_at..).unwrap_or_default(), fp, bare);
            self.tail.observe((self.stamp, validity), at, valid, fp_there, stop == StopReason::Complete);
        }
        (valid, Some(stop))
    }

    /// The whole stack from `frame`, whose pc is a return address, if at most [`PREFIX_FRAMES`] frames lead to the
    /// verified tail, and the tail is valid. `Err(n)`: not so; `frame` and the log stand n frames further.
    #[inline(always)]
    fn unwind_to_tail<const WORDS: usize>(
        &mut self,
        rules: &Rules<'_, WORDS>,
        frame: &mut Frame,
        log: &mut CaptureSteps,
        bare: impl StackWords,
        words: &mut [u64],
    ) -> Result<(usize, StopReason), usize> {
        let at = self.tail.first(rules.stamp).ok_or(0_usize)?;
        let near = words.len().min(PREFIX_FRAMES);
        let (room, steps) = (words.get_mut(..near).unwrap_or_default(), log.room(self));
        let count = frame.stretch_across::<WORDS>(at.sp, rules, bare, room, steps);
        log.end += count;
        let is_there = frame.at() == at;
        let room = words.get_mut(count..).filter(|_| is_there).and_then(|words| words.split_first_mut());
        let replayed = room.and_then(|(first, further)| {
            *first = user_word(frame.pc);
            self.tail.replay(|| frame.fp_at.get(frame.fp, bare), bare, further)
        });
        match replayed {
            Some((further, stop)) => {
                self.count_apart(false);
                Ok((count + 1 + further, stop))
            }
            None => {
                self.tail.forget();
                Err(count)
            }
        }
    }

    /// Makes a verified prefix of the frames from `top` to the verified tail, at index `at`.
    #[cold]
    #[inline(never)]
    fn make_prefix<const WORDS: usize>(
        &mut self,
        at: usize,
        rules: &Rules<'_, WORDS>,
        top: Top,
        bare: impl StackWords,
    ) {
        let Some(first) = self.tail.first(rules.stamp) else { return };
        let (mut words, mut steps) = ([0; PREFIX_FRAMES], [Step::end(0); PREFIX_FRAMES]);
        let mut frame = Frame::first(&top);
        let mut passed = 0;
        if top.exact {
            let (word, step) = (&mut words[..1], &mut steps[..1]);
            let above = top.key().wrapping_add(1);
            passed = frame.stretch::<WORDS>(above, NO_LIMIT, rules, bare, word, step).0;
            words[0] = native_word(top.pc, FLAG_EXACT);
        }
        if let (Some(words), Some(steps)) = (words.get_mut(passed..), steps.get_mut(passed..)) {
            passed += frame.stretch_across::<WORDS>(first.sp, rules, bare, words, steps);
        }
        if frame.at() == first {
            self.tail.store_prefix(at, top.keyed(), top.fp, &words, steps.get(..passed).unwrap_or_default());
        }
    }
}

/// Why there is nothing more to unwind: the stack's number of words, and the reason why they end; `None`: no frame.
type Done = Option<(usize, StopReason)>;

#[inline(always)]
fn ended(done: Done) -> Unwound<'static> {
    done.map_or(Unwound::Nothing, |(count, stop)| Unwound::Whole(count, stop))
}

/// How far a stack was replayed from its first frame.
struct Begun {
    /// The current frame.
    frame: Frame,
    /// Number of frames before it, whose words are written.
    passed: usize,
    /// The log, where it continues the cached steps.
    log: Option<CaptureSteps>,
}

impl Frame {
    /// Goes from the frame `top`, whose pc is exact, to its caller, and writes its word.
    #[inline(always)]
    fn step_interrupted<const WORDS: usize>(
        &mut self,
        rules: &Rules<'_, WORDS>,
        top: Top,
        bare: impl StackWords,
        word: &mut u64,
    ) -> Result<Step, Done> {
        let mut step = [Step::end(0)];
        let above = top.key().wrapping_add(1);
        let why = self.stretch::<WORDS>(above, NO_LIMIT, rules, bare, &mut [0], &mut step).1;
        *word = native_word(top.pc, FLAG_EXACT);
        match why {
            Stretch::Full => (self.fp, self.fp_at) = (self.fp_at.get(self.fp, bare), RbpAt::REGISTER),
            Stretch::End => return Err(Some((1, StopReason::Complete))),
            Stretch::Signal | Stretch::Other => return Err(None),
        }
        Ok(step[0])
    }
}

impl StepCache {
    /// The whole stack from the frame `top` by a verified prefix and the verified tail: the number of words and the
    /// reason why they end, as from [`StepCache::unwind`]. `None`: no valid reply is cached. It only reads the cache,
    /// so that this need not be held: if another call has changed it meanwhile, the answer is void
    /// ([`Look`](crate::slots::Look)). Async-signal-safe.
    #[inline(always)]
    pub fn replay(&self, top: Top, bare: Bare, words: &mut [u64]) -> Option<(usize, StopReason)> {
        // The key of such an exact pc may be that of another frame. A return address that is cached is below it.
        if top.exact && top.pc >= USER_END {
            return None;
        }
        // SAFETY: a field of the cache. No reference to it is made here, since a handler may change it.
        unsafe {
            let tail = &raw const (*self.inner.get()).tail;
            VerifiedTail::replay_from_top::<false>(tail, top.keyed(), top.fp, bare, words)
        }
    }

    /// As [`StepCache::replay`], of words that are loaded in order ([`StackWords::ORDERED`]). `stamp`: the current
    /// validity epoch.
    #[inline(always)]
    pub fn replay_in_order(
        &self,
        top: Top,
        stamp: u64,
        stack: impl StackWords,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        if top.exact && top.pc >= USER_END {
            return None;
        }
        // SAFETY: as there.
        unsafe {
            let tail = &raw const (*self.inner.get()).tail;
            VerifiedTail::replay_in_order(tail, stamp, (top.keyed(), top.fp), stack, words)
        }
    }

    /// The stack from the frame `top`, as far as its frames are plain, up to its end or that of `words`.
    /// Async-signal-safe.
    ///
    /// # Safety
    /// To be called on the cache's own thread only, while no other call on it uses this cache, until the log of a
    /// [`Part`] is finished.
    #[inline(never)]
    pub unsafe fn unwind<const WORDS: usize>(
        &self,
        rules: &Rules<'_, WORDS>,
        top: Top,
        bare: impl StackWords,
        words: &mut [u64],
    ) -> Unwound<'_> {
        // Steps from an aligned stack pointer in user space lead towards the root. An odd turn says that the last
        // capture was abandoned: the walk that comes now begins a new log (`StepCache::begin`), after which it is even
        // again.
        let Top { pc, sp, .. } = top;
        if self.turn.load(Ordering::Relaxed) & 1 != 0 || sp & 7 != 0 || sp >= USER_END || pc >= USER_END {
            return Unwound::Nothing;
        }
        // SAFETY: the caller vouches for the thread. Another prefix of this top than the one that was tried may hold.
        let replayed = unsafe {
            let tail = &raw const (*self.inner.get()).tail;
            if bare.are_ordered() {
                VerifiedTail::replay_in_order(tail, rules.stamp, (top.keyed(), top.fp), bare, words)
            } else {
                VerifiedTail::replay_from_top::<true>(tail, top.keyed(), top.fp, bare, words)
            }
        };
        if let Some((count, stop)) = replayed {
            return Unwound::Whole(count, stop);
        }
        // SAFETY: passed on.
        let mut begun = match unsafe { self.replay_from_first(rules, top, bare, words) } {
            Ok(begun) => begun,
            Err(done) => return ended(done),
        };
        let Some((before, words)) = words.split_at_mut_checked(usize::from(top.exact)) else { return Unwound::Nothing };
        let interrupted = match before.first_mut().map(|word| begun.frame.step_interrupted(rules, top, bare, word)) {
            Some(Ok(step)) => Some(step),
            Some(Err(done)) => return ended(done),
            None => None,
        };
        // SAFETY: passed on.
        match unsafe { self.unwind_returns(rules, (top, interrupted), begun, bare, words) } {
            Unwound::Whole(count, stop) => Unwound::Whole(count + before.len(), stop),
            Unwound::Part(part) => Unwound::Part(Part { count: part.count + before.len(), ..part }),
            Unwound::Nothing => Unwound::Nothing,
        }
    }

    /// Replays the cached steps if they begin with the frame `top`, here or elsewhere on the stack.
    ///
    /// # Safety
    /// As [`StepCache::unwind`].
    #[inline(always)]
    unsafe fn replay_from_first<const WORDS: usize>(
        &self,
        rules: &Rules<'_, WORDS>,
        top: Top,
        bare: impl StackWords,
        words: &mut [u64],
    ) -> Result<Begun, Done> {
        let Top { pc, sp, fp, exact } = top;
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &mut *self.inner.get() };
        // With a verified tail, another top may lead to it, so the cached steps are not tried first.
        let has_tail = inner.tail.first(rules.stamp).is_some();
        let is_alike = !has_tail && inner.at.pc == pc && inner.stamp == rules.stamp && !exact;
        // SAFETY: passed on.
        let is_here = is_alike && (inner.at.sp == sp || unsafe { self.relocate(sp, fp, bare) });
        let mut begun = Begun { frame: Frame::first(&top), passed: 0, log: None };
        if is_here {
            // SAFETY: as above.
            let inner = unsafe { &mut *self.inner.get() };
            let Some((word, others)) = words.split_first_mut() else { return Err(None) };
            *word = user_word(pc);
            let from = inner.first_at as usize + 1;
            let (valid, stop) = inner.replay_steps(rules.validity, from, from, Some(fp), bare, others);
            if let Some(stop) = stop {
                return Err(Some((valid + 1, stop)));
            }
            if valid > 0 {
                let steps = inner.cached().get(from..from + valid).unwrap_or_default();
                steps.iter().for_each(|step| begun.frame.go(step));
                begun.passed = valid;
                begun.log = CaptureSteps::copied(inner, from - 1, from + valid).or_else(|| {
                    self.begin_change();
                    Some(CaptureSteps::of_cached(inner, from - 1, from + valid))
                });
            }
        }
        Ok(begun)
    }

    /// The stack from a return address, if few frames lead to the verified tail by that; else along the cached steps.
    /// `top`: the frame that the stack begins with, and the step from it, if its pc is exact.
    ///
    /// # Safety
    /// As [`StepCache::unwind`].
    #[inline(always)]
    unsafe fn unwind_returns<const WORDS: usize>(
        &self,
        rules: &Rules<'_, WORDS>,
        (top, interrupted): (Top, Option<Step>),
        Begun { mut frame, mut passed, log }: Begun,
        bare: impl StackWords,
        words: &mut [u64],
    ) -> Unwound<'_> {
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &mut *self.inner.get() };
        let mut log = match log {
            Some(log) => log,
            None => {
                let mut log = CaptureSteps::begin(inner, rules.stamp, &frame);
                match inner.unwind_to_tail(rules, &mut frame, &mut log, bare, words) {
                    Ok((count, stop)) => {
                        if let Some(at) = inner.tail.count_approach(top.keyed()) {
                            inner.make_prefix(at, rules, top, bare);
                        }
                        let capacity = usize::from(top.exact) + words.len();
                        inner.tail.prepare_for_capacity(top.keyed(), top.fp, bare, capacity);
                        return Unwound::Whole(count, stop);
                    }
                    Err(count) => passed = count,
                }
                if inner.rests() {
                    (log.candidate_at, log.kept) = (None, false);
                }
                log
            }
        };
        log.exact = interrupted;
        // SAFETY: passed on.
        unsafe { self.unwind_logging(rules, (&mut frame, passed), log, bare, words) }
    }

    /// Unwinds from a return address, along the cached steps where they are reached, and logs the steps. `words` may be
    /// empty. `frame`: the current frame, and the number of frames before it.
    ///
    /// # Safety
    /// As [`StepCache::unwind`].
    #[inline(never)]
    unsafe fn unwind_logging<const WORDS: usize>(
        &self,
        rules: &Rules<'_, WORDS>,
        (frame, passed): (&mut Frame, usize),
        mut log: CaptureSteps,
        bare: impl StackWords,
        words: &mut [u64],
    ) -> Unwound<'_> {
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &mut *self.inner.get() };
        let limit = words.len().min(MOST);
        // `until`: the number of frames at which the cached steps are looked for next. After the `passed` ones it is
        // what it would be if this function had stepped them: 0, 2, 6, 14, 30, 62, and then every 32.
        let (mut count, mut until, mut batch) = (passed, 0, FIRST_LOOK);
        while until < count {
            until += batch;
            batch = LATER_LOOKS.min(batch * 2);
        }
        until = until.min(limit);
        let mut beyond = None;
        let stop = loop {
            if count == until {
                if count == limit {
                    // There is at least one more frame.
                    break (limit == words.len()).then_some(StopReason::BufferFull);
                }
                until = limit;
                let Some(from) = log.candidate_at else { continue };
                let (met_at, is_met) = inner.meet(from, usize::MAX, frame.at());
                if !is_met {
                    log.candidate_at = Some(met_at);
                    until = limit.min(count + batch);
                    batch = LATER_LOOKS.min(batch * 2);
                    continue;
                }
                log.candidate_at = None;
                // The stacks may have met a few frames before: the last `shared` steps of the log are also cached. They
                // are replayed with the rest, so that the verified tail begins with them.
                //
                //            to      to + 1 ..            from ..         met_at  met_at + 1 ..
                //   steps   [start | the log's own steps | shared steps         ] the rest of the cached steps ...
                //   words            0 ..                  count - shared ..      count ..
                let shared = inner.shared(&log, met_at);
                let from = met_at + 1 - shared;
                let room = words.get_mut(count - shared..).and_then(|words| words.split_first_mut());
                let (true, Some((first, others))) = (log.fits_before(met_at), room) else { continue };
                self.begin_change();
                let to = inner.splice(log.first_at..log.end, met_at).unwrap_or_default();
                inner.count_apart(inner.cached().len() - met_at < count);
                *first = inner.cached().get(met_at - shared).map_or(0, Step::word);
                (log.half, log.first_at, log.end, log.spliced) =
                    (inner.half as usize & 1, to, inner.end as usize, true);
                let (valid, stop) = inner.replay_steps(rules.validity, to + 1, from, frame.fp, bare, others);
                if stop.is_some() {
                    count += valid - shared + 1;
                    break stop;
                }
                // Fewer can be valid only if memory has changed meanwhile.
                let Some(further) = valid.checked_sub(shared) else {
                    inner.stamp = 0;
                    self.end_change();
                    return Unwound::Nothing;
                };
                count += further;
                log.end = from + valid;
                let steps = inner.cached().get(met_at + 1..log.end).unwrap_or_default();
                steps.iter().for_each(|step| frame.go(step));
            }
            let (pc, room) = (frame.pc, words.get_mut(count..until).unwrap_or_default());
            let steps = log.room(inner);
            let (passed, why) = if steps.is_empty() {
                // Without a complete log, the cached steps cannot be extended.
                log.candidate_at = None;
                let steps = inner.logged(&log).get(1..).unwrap_or_default();
                let saved = beyond.get_or_insert_with(|| Saved::after(steps));
                frame.stretch_beyond(saved, rules, bare, room)
            } else {
                let (passed, why) = frame.stretch::<WORDS>(pc, NO_LIMIT, rules, bare, room, steps);
                log.end += passed;
                (passed, why)
            };
            count += passed;
            match why {
                Stretch::Full => {}
                Stretch::Signal => {
                    let room = words.get_mut(count..limit).unwrap_or_default();
                    if !frame.cross(rules, bare, room, log.room(inner)) {
                        break None;
                    }
                    (count, log.end) = (count + 2, log.end + 2);
                    until = until.max(count);
                }
                Stretch::Other => break None,
                Stretch::End => {
                    let Some(word) = words.get_mut(count) else { break None };
                    *word = user_word(frame.pc);
                    count += 1;
                    log.add(inner, Step::end(frame.sp));
                    break Some(StopReason::Complete);
                }
            }
        };
        if !log.spliced {
            self.begin_change();
        }
        let part = Part {
            count,
            exact: log.exact,
            beyond: beyond.map(|saved| (saved, frame.at())),
            steps: WalkSteps {
                turn: &self.turn,
                stamp: rules.stamp,
                half: log.half,
                first_at: log.first_at,
                end: log.end,
                run_at: log.first_at + 1,
                candidate_at: log.candidate_at,
                following_end: if log.spliced { inner.end as usize } else { 0 },
                kept: log.kept,
                cache: inner,
            },
        };
        match stop {
            Some(stop) => {
                part.steps.finish();
                Unwound::Whole(part.count, stop)
            }
            None => Unwound::Part(part),
        }
    }

    /// Marks the cached steps as being modified: if the capture is abandoned before [`StepCache::end_change`] or
    /// [`WalkSteps::finish`], the next one does not use them.
    #[inline(always)]
    pub(super) fn begin_change(&self) {
        self.count_turn();
    }

    /// Marks the cached steps as consistent again.
    #[inline(always)]
    pub(super) fn end_change(&self) {
        self.count_turn();
    }

    /// From even to odd, or back.
    #[inline(always)]
    fn count_turn(&self) {
        compiler_fence(Ordering::SeqCst);
        self.turn.store(self.turn.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }
}
