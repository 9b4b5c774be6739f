//! Captures of whole stacks by short rules alone, along the cached steps where these are valid, even if the same frames
//! now lie elsewhere on the stack.
//!
//! This reads only the stack, the table of short rules and the thread's step cache. So no writer of the registry has to
//! wait for it, and it needs little of a walk's state. Where short rules do not suffice, a walk goes on at that frame
//! ([`Part`]).

use super::capture_steps::CaptureSteps;
use super::frames::{Frame, RbpAt, Stretch, MOST, OUTERMOST};
use super::prefix::PREFIX_FRAMES;
use super::{fp_after, holding, holds, At, Inner, Part, Step, StepCache, Unwound, WalkSteps};
use crate::cache::query::{Rules, Top, Validity};
use crate::cache::short::Short;
use crate::frame::{native_word, user_word, FLAG_EXACT};
use crate::memory::{Bare, USER_END};
use crate::stop_reason::StopReason;
use crate::walk::Saved;
use core::sync::atomic::{compiler_fence, Ordering};

/// Number of frames after which the cached steps are looked for again. It is doubled each time, up to [`BATCH`].
const FIRST_BATCH: usize = 2;
/// See [`FIRST_BATCH`].
const BATCH: usize = 32;

impl Inner {
    /// Replays the cached steps from index `from` on, in the run that begins at index `run` with rbp `fp`. Returns the
    /// number of valid steps and, if these reach the end of the stack or of `words`, which of the two it is.
    #[inline(never)]
    fn replay_steps(
        &mut self,
        validity: &dyn Validity,
        run: usize,
        from: usize,
        fp: Option<u64>,
        bare: Bare,
        words: &mut [u64],
    ) -> (usize, Option<StopReason>) {
        let half = self.halves.get(self.half as usize & 1);
        let steps = half.and_then(|half| half.get(..self.end as usize)).unwrap_or_default();
        let held = holding(steps, run, from, fp, bare, words);
        let to = from + held;
        let (stop, to) = match steps.get(to) {
            Some(step) if step.rule == Short::END => (StopReason::Complete, to),
            // There is at least one more frame.
            Some(_) if held == words.len() && holds(steps, run, to, fp, bare) => (StopReason::BufferFull, to + 1),
            _ => return (held, None),
        };
        if let (Some(before), Some(held)) = (steps.get(..from), steps.get(from..to)) {
            let at = before.last().map_or(At::NOWHERE, |step| At { pc: step.caller, sp: step.cfa });
            let fp_there = || fp_after(before.get(run..).unwrap_or_default(), fp, bare);
            self.tail.observe((self.stamp, validity), at, held, fp_there, stop == StopReason::Complete);
        }
        (held, Some(stop))
    }

    /// The whole stack from `frame`, whose pc is a return address, if at most [`PREFIX_FRAMES`] frames lead to the
    /// verified tail, and the tail is valid. Otherwise `frame` and the log have passed the number of frames that is the
    /// error.
    #[inline(always)]
    fn unwind_to_tail<const WORDS: usize>(
        &mut self,
        rules: &Rules<'_, WORDS>,
        frame: &mut Frame,
        log: &mut CaptureSteps,
        bare: Bare,
        words: &mut [u64],
    ) -> Result<(usize, StopReason), usize> {
        let at = self.tail.first(rules.stamp).ok_or(0_usize)?;
        let near = words.len().min(PREFIX_FRAMES);
        let (room, steps) = (words.get_mut(..near).unwrap_or_default(), log.room(self));
        let count = frame.stretch::<true, WORDS>(frame.pc, at.sp, rules, bare, room, steps).0;
        log.len += count;
        let is_there = frame.at() == at;
        let room = words.get_mut(count..).filter(|_| is_there).and_then(|words| words.split_first_mut());
        let replayed = room.and_then(|(first, further)| {
            *first = user_word(frame.pc);
            self.tail.replay(|| frame.fp_at.get(frame.fp, bare), bare, further)
        });
        match replayed {
            Some((further, stop)) => {
                self.apart = 0;
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
    fn learn_prefix<const WORDS: usize>(&mut self, at: usize, rules: &Rules<'_, WORDS>, top: Top, bare: Bare) {
        let Some(first) = self.tail.first(rules.stamp) else { return };
        let (mut words, mut steps) = ([0; PREFIX_FRAMES], [Step::end(0); PREFIX_FRAMES]);
        let mut frame = Frame::first(&top);
        let mut passed = 0;
        if top.exact {
            let (word, step) = (&mut words[..1], &mut steps[..1]);
            let above = top.key().wrapping_add(1);
            passed = frame.stretch::<true, WORDS>(above, OUTERMOST, rules, bare, word, step).0;
            words[0] = native_word(top.pc, FLAG_EXACT);
        }
        if let (Some(words), Some(steps)) = (words.get_mut(passed..), steps.get_mut(passed..)) {
            passed += frame.stretch::<true, WORDS>(frame.pc, first.sp, rules, bare, words, steps).0;
        }
        if frame.at() == first {
            self.tail.learn_prefix(at, top.keyed(), top.fp, &words, steps.get(..passed).unwrap_or_default());
        }
    }
}

impl StepCache {
    /// The whole stack from the frame `top` by a verified prefix and the verified tail: the number of words and the
    /// reason why they end, as from [`StepCache::unwind`]. `None`: no valid reply is cached. Async-signal-safe.
    ///
    /// # Safety
    /// As [`StepCache::unwind`].
    #[inline(always)]
    pub unsafe fn replay(&self, top: Top, bare: Bare, words: &mut [u64]) -> Option<(usize, StopReason)> {
        // SAFETY: the caller guarantees the thread.
        let inner = unsafe { &*self.inner.get() };
        if top.pc >= USER_END {
            return None;
        }
        inner.tail.replay_from_top(top.keyed(), top.fp, bare, words)
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
        bare: Bare,
        words: &mut [u64],
    ) -> Unwound<'_> {
        let Top { pc, sp, fp, exact } = top;
        // Steps from an aligned stack pointer in user space lead towards the root. An odd turn (an abandoned capture)
        // is handled by `begin`.
        if self.turn.load(Ordering::Relaxed) & 1 != 0 || sp & 7 != 0 || sp >= USER_END || pc >= USER_END {
            return Unwound::Nothing;
        }
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &mut *self.inner.get() };
        // With a verified tail, another top may lead to it, so the cached steps are not tried first.
        let is_alike = || inner.at.pc == pc && inner.stamp == rules.stamp && !exact;
        // SAFETY: passed on.
        let is_here = || inner.at.sp == sp || unsafe { self.moved(sp, fp, bare) };
        let mut frame = Frame::first(&top);
        let (mut passed, mut log) = (0, None);
        if inner.tail.first(rules.stamp).is_none() && is_alike() && is_here() {
            // SAFETY: as above.
            let inner = unsafe { &mut *self.inner.get() };
            let Some((word, others)) = words.split_first_mut() else { return Unwound::Nothing };
            *word = user_word(pc);
            let from = inner.first as usize + 1;
            let (held, stop) = inner.replay_steps(rules.validity, from, from, Some(fp), bare, others);
            if let Some(stop) = stop {
                return Unwound::Whole(held + 1, stop);
            }
            if held > 0 {
                self.turn();
                inner.live().get(from..from + held).unwrap_or_default().iter().for_each(|step| frame.go(step));
                passed = held;
                log = Some(CaptureSteps::in_place(inner, from - 1, from + held));
            }
        }
        let Some((before, words)) = words.split_at_mut_checked(usize::from(exact)) else { return Unwound::Nothing };
        let mut step = [Step::end(0)];
        if let (true, Some(word)) = (exact, before.first_mut()) {
            let above = top.key().wrapping_add(1);
            let why = frame.stretch::<true, WORDS>(above, OUTERMOST, rules, bare, &mut [0], &mut step).1;
            *word = native_word(pc, FLAG_EXACT);
            match why {
                Stretch::Full => (frame.fp, frame.fp_at) = (frame.fp_at.get(frame.fp, bare), RbpAt::REGISTER),
                Stretch::End => return Unwound::Whole(1, StopReason::Complete),
                Stretch::Other => return Unwound::Nothing,
            }
        }
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &mut *self.inner.get() };
        let mut log = match log {
            Some(log) => log,
            None => CaptureSteps::begin(inner, rules.stamp, &frame),
        };
        if !log.spliced {
            match inner.unwind_to_tail(rules, &mut frame, &mut log, bare, words) {
                Ok((count, stop)) => {
                    if let Some(at) = inner.tail.count_approach(top.keyed()) {
                        inner.learn_prefix(at, rules, top, bare);
                    }
                    inner.tail.prepare_for_capacity(top.keyed(), before.len() + words.len());
                    return Unwound::Whole(count + before.len(), stop);
                }
                Err(count) => passed = count,
            }
            if inner.rests() {
                (log.old, log.kept) = (None, false);
            }
        }
        log.exact = exact.then_some(step[0]);
        // SAFETY: passed on.
        match unsafe { self.unwind_logging(rules, (&mut frame, passed), log, bare, words) } {
            Unwound::Whole(count, stop) => Unwound::Whole(count + before.len(), stop),
            Unwound::Part(part) => Unwound::Part(Part { count: part.count + before.len(), ..part }),
            Unwound::Nothing => Unwound::Nothing,
        }
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
        bare: Bare,
        words: &mut [u64],
    ) -> Unwound<'_> {
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &mut *self.inner.get() };
        let limit = words.len().min(MOST);
        let (mut count, mut until, mut batch) = (passed, 0, FIRST_BATCH);
        while until < count {
            until += batch;
            batch = BATCH.min(batch * 2);
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
                let Some(from) = log.old else { continue };
                let (at, met) = inner.meet(from, frame.at());
                if !met {
                    log.old = Some(at);
                    until = limit.min(count + batch);
                    batch = BATCH.min(batch * 2);
                    continue;
                }
                log.old = None;
                // The stacks may have met a few frames before.
                let shared = inner.shared(&log, at);
                let from = at + 1 - shared;
                let room = words.get_mut(count - shared..).and_then(|words| words.split_first_mut());
                let (true, Some((first, others))) = (log.fits_before(at), room) else { continue };
                self.turn();
                let to = inner.splice(&log, at).unwrap_or_default();
                inner.count_apart(inner.live().len() - at < count);
                *first = user_word(inner.live().get(at - shared).map_or(0, |step| step.caller));
                (log.half, log.first, log.len, log.spliced) = (inner.half as usize & 1, to, inner.end as usize, true);
                let (held, stop) = inner.replay_steps(rules.validity, to + 1, from, frame.fp, bare, others);
                if stop.is_some() {
                    count += held - shared + 1;
                    break stop;
                }
                // Fewer can be valid only if memory has changed meanwhile.
                let Some(further) = held.checked_sub(shared) else {
                    inner.stamp = 0;
                    self.turn();
                    return Unwound::Nothing;
                };
                count += further;
                log.len = from + held;
                let steps = inner.live().get(at + 1..log.len).unwrap_or_default();
                steps.iter().for_each(|step| frame.go(step));
            }
            let (pc, room) = (frame.pc, words.get_mut(count..until).unwrap_or_default());
            let steps = log.room(inner);
            let (passed, why) = if steps.is_empty() {
                // Without a complete log, the cached steps cannot be extended.
                log.old = None;
                let steps = inner.logged(&log).get(1..).unwrap_or_default();
                let saved = beyond.get_or_insert_with(|| Saved::after(steps));
                frame.stretch_beyond(saved, rules, bare, room)
            } else {
                let (passed, why) = frame.stretch::<true, WORDS>(pc, OUTERMOST, rules, bare, room, steps);
                log.len += passed;
                (passed, why)
            };
            count += passed;
            match why {
                Stretch::Full => {}
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
            self.turn();
        }
        let part = Part {
            count,
            exact: log.exact,
            beyond: beyond.map(|saved| (saved, frame.at())),
            steps: WalkSteps {
                turn: &self.turn,
                stamp: rules.stamp,
                half: log.half,
                first: log.first,
                len: log.len,
                run: log.first + 1,
                old: log.old.map(|at| (at, inner.end as usize)),
                in_place: if log.spliced { inner.end as usize } else { 0 },
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

    /// Marks the cache as being modified or, the next time, as consistent.
    #[inline(always)]
    pub(super) fn turn(&self) {
        compiler_fence(Ordering::SeqCst);
        self.turn.store(self.turn.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }
}
