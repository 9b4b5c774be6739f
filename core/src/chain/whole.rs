//! The whole stack of a caller at once: from its frame to the stack's end by short rules alone, and along the last chain where that
//! still holds, be it elsewhere on the stack.
//!
//! Nothing is looked at but the stack and two tables, of rules and of the thread's last steps; so it is no walk that a writer of the
//! registry would have to wait for, and it needs next to nothing of what a walk needs. What short rules do not tell is left to the
//! walk, which then begins at the caller again.

use super::asked::{Rules, Surroundings, Top};
use super::frames::{At, Frame, Stretch, MOST, OUTERMOST};
use super::head::NEAR;
use super::{fp_behind, holding, holds, Chain, Inner, Step, FRONT};
use crate::frame::{native_word, user_word, FLAG_EXACT};
use crate::memory::{Bare, USER_END};
use crate::short_rule::Short;
use crate::stop_reason::StopReason;
use core::sync::atomic::{compiler_fence, Ordering};

/// Behind so many frames it is asked for the last chain once more, and behind twice as many, until it is each [`BATCH`].
const FIRST_BATCH: usize = 2;
/// See [`FIRST_BATCH`].
const BATCH: usize = 32;

/// Where the steps of the stack in hand are written.
struct Notes {
    half: usize,
    first: usize,
    len: usize,
}

impl Inner {
    /// The chain that stands.
    #[inline(always)]
    fn live(&self) -> &[Step] {
        let half = self.halves.get(self.half as usize & 1);
        half.and_then(|half| half.get(..self.end as usize)).unwrap_or_default()
    }

    /// Makes the live chain's steps from `from` on, of the run of steps that begins at `run`, with `fp`: how many hold, and, if they are
    /// all up to the stack's end or to that of `words`, which of the two it is.
    #[inline(never)]
    fn along(
        &mut self,
        surroundings: &dyn Surroundings,
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
            let at = before.last().map_or((0, 0), |step| (step.caller, step.cfa));
            let fp_there = || fp_behind(before.get(run..).unwrap_or_default(), fp, bare);
            self.known.met((self.stamp, surroundings), at, held, fp_there, stop == StopReason::Complete);
        }
        (held, Some(stop))
    }

    /// The whole stack from `frame`, a return address, on, if a few frames lead to what is known, and all of that holds.
    #[inline(always)]
    fn soon_known<const WORDS: usize>(
        &mut self,
        rules: &Rules<'_, WORDS>,
        mut frame: Frame,
        bare: Bare,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        let at = self.known.first(rules.stamp)?;
        let near = words.len().min(NEAR);
        let told = frame.stretch::<false, WORDS>(frame.pc, at.1, rules, bare, words.get_mut(..near)?, &mut []).0;
        let is_there = (frame.pc, frame.sp) == at;
        let known = words.get_mut(told..).filter(|_| is_there).and_then(|words| words.split_first_mut());
        let known = known.and_then(|(first, further)| {
            *first = user_word(frame.pc);
            self.known.tell(|| frame.fp_at.get(frame.fp, bare), bare, further)
        });
        match known {
            Some((further, stop)) => {
                self.apart = 0;
                Some((told + 1 + further, stop))
            }
            None => {
                self.known.forget();
                None
            }
        }
    }

    /// The whole stack from `top` on was known but for a few frames: they are learned, too.
    #[cold]
    #[inline(never)]
    fn learn_head<const WORDS: usize>(&mut self, at: usize, rules: &Rules<'_, WORDS>, top: Top, bare: Bare) {
        let Some(known) = self.known.first(rules.stamp) else { return };
        let (mut words, mut steps) = ([0; NEAR], [Step::end(0); NEAR]);
        let mut frame = Frame::first(&top);
        let mut passed = 0;
        if top.exact {
            let (word, step) = (&mut words[..1], &mut steps[..1]);
            let behind = top.key().wrapping_add(1);
            passed = frame.stretch::<true, WORDS>(behind, OUTERMOST, rules, bare, word, step).0;
            words[0] = native_word(top.pc, FLAG_EXACT);
        }
        if let (Some(words), Some(steps)) = (words.get_mut(passed..), steps.get_mut(passed..)) {
            passed += frame.stretch::<true, WORDS>(frame.pc, known.1, rules, bare, words, steps).0;
        }
        if (frame.pc, frame.sp) == known {
            self.known.learn_head(at, (top.key(), top.sp), top.fp, &words, steps.get(..passed).unwrap_or_default());
        }
    }

    /// How many frames further in than that behind the step at `met`, to which the noted steps lead, too, are those of the live chain.
    #[inline(always)]
    fn shared(&self, notes: &Notes, met: usize) -> usize {
        let noted = self.halves.get(notes.half & 1).and_then(|half| half.get(notes.first..notes.len));
        let there = self.live().get(self.first as usize..=met);
        let (noted, there) = (noted.unwrap_or_default().iter().rev(), there.unwrap_or_default().iter().rev());
        let mut shared = 0;
        for (behind, (step, old)) in noted.zip(there).enumerate() {
            if step.cfa != old.cfa || step.caller != old.caller {
                break;
            }
            shared = behind;
            if step.rule != old.rule {
                break;
            }
        }
        shared
    }

    /// The first of the live chain's frames from `next` on that is no further in than `sp`; where it stands, and whether it is that
    /// with `pc`.
    #[inline(always)]
    fn meet(&self, mut next: usize, pc: u64, sp: u64) -> (usize, bool) {
        let steps = self.live();
        while steps.get(next).is_some_and(|step| step.cfa < sp) {
            next += 1;
        }
        (next, steps.get(next).is_some_and(|step| step.cfa == sp && step.caller == pc))
    }

    /// Puts the noted steps in front of the live chain's step at `met`, at which they have come. Where they begin there; `None`: there
    /// is no room.
    #[inline(always)]
    fn splice(&mut self, notes: &Notes, met: usize) -> Option<usize> {
        let to = (met + 1).checked_sub(notes.len - notes.first)?;
        let [here, there] = &mut self.halves;
        let (from, into) = if notes.half == 0 { (here, there) } else { (there, here) };
        let (from, into) = (from.get(notes.first..notes.len)?, into.get_mut(to..=met)?);
        for (into, from) in into.iter_mut().zip(from) {
            *into = *from;
        }
        Some(to)
    }
}

impl Notes {
    /// Room for further steps in its half.
    #[inline(always)]
    fn room<'i>(&self, inner: &'i mut Inner) -> &'i mut [Step] {
        inner.halves.get_mut(self.half & 1).and_then(|half| half.get_mut(self.len..)).unwrap_or_default()
    }

    #[inline(always)]
    fn add(&mut self, inner: &mut Inner, step: Step) {
        if let Some(place) = self.room(inner).first_mut() {
            *place = step;
            self.len += 1;
        }
    }
}

impl Chain {
    /// The whole stack from the frame `top` on, if all of it is known: as [`Chain::whole`] tells it, to which all others are left.
    /// Async-signal-safe.
    ///
    /// # Safety
    /// As [`Chain::whole`].
    #[inline(always)]
    pub unsafe fn known(&self, top: Top, bare: Bare, words: &mut [u64]) -> Option<(usize, StopReason)> {
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &*self.inner.get() };
        if top.pc >= USER_END {
            return None;
        }
        inner.known.whole((top.key(), top.sp), top.fp, bare, words)
    }

    /// The whole stack from the frame `top` on, if all of its frames are plain, up to its end or to that of `words`: how many words there
    /// are, and why it ends. `None`: that is for a walk to tell; what is left in `words` then says nothing. Async-signal-safe.
    ///
    /// # Safety
    /// Only the chain's own thread may ask, while no other call of its is under way with this chain.
    #[inline(never)]
    pub unsafe fn whole<const WORDS: usize>(
        &self,
        rules: &Rules<'_, WORDS>,
        top: Top,
        bare: Bare,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        let Top { pc, sp, fp, exact } = top;
        // A stack pointer that can be one leads outwards. What was left in the middle, `begin` clears up.
        if self.turn.load(Ordering::Relaxed) & 1 != 0 || sp & 7 != 0 || sp >= USER_END || pc >= USER_END {
            return None;
        }
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &mut *self.inner.get() };
        // Where something is known, another stack's top may lead to it.
        let is_alike = || inner.pc == pc && inner.stamp == rules.stamp && !exact;
        // SAFETY: passed on.
        let is_here = || inner.sp == sp || unsafe { self.moved(sp, fp, bare) };
        if inner.known.first(rules.stamp).is_none() && is_alike() && is_here() {
            // SAFETY: as above.
            let inner = unsafe { &mut *self.inner.get() };
            let (word, others) = words.split_first_mut()?;
            *word = user_word(pc);
            let from = inner.first as usize + 1;
            if let (held, Some(stop)) = inner.along(rules.surroundings, from, from, Some(fp), bare, others) {
                return Some((held + 1, stop));
            }
        }
        let mut frame = Frame::first(&top);
        let (before, words) = words.split_at_mut_checked(usize::from(exact))?;
        if exact {
            let why =
                frame.stretch::<false, WORDS>(top.key().wrapping_add(1), OUTERMOST, rules, bare, before, &mut []).1;
            *before.first_mut()? = native_word(pc, FLAG_EXACT);
            match why {
                Stretch::Full => (frame.fp, frame.fp_at) = (frame.fp_at.get(frame.fp, bare), At::REGISTER),
                Stretch::End => return Some((1, StopReason::Complete)),
                Stretch::Other => return None,
            }
        }
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &mut *self.inner.get() };
        if let Some((told, stop)) = inner.soon_known(rules, frame, bare, words) {
            if let Some(at) = inner.known.led_from((top.key(), sp)) {
                inner.learn_head(at, rules, top, bare);
            }
            inner.known.make_room((top.key(), sp), before.len() + words.len());
            return Some((told + before.len(), stop));
        }
        let (told, stop) = if inner.rests() {
            frame.rest(rules, bare, words)
        } else {
            // SAFETY: passed on.
            unsafe { self.noted(rules, &mut frame, bare, words) }
        }?;
        Some((told + before.len(), stop))
    }

    /// The same from a return address on, along the last chain if it is met, and noted. `words` may be empty.
    ///
    /// # Safety
    /// As [`Chain::whole`].
    #[inline(never)]
    unsafe fn noted<const WORDS: usize>(
        &self,
        rules: &Rules<'_, WORDS>,
        frame: &mut Frame,
        bare: Bare,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &mut *self.inner.get() };
        let limit = words.len().min(MOST);
        let mut old = (inner.stamp == rules.stamp).then_some(inner.first as usize);
        let mut notes = Notes { half: inner.half as usize & 1 ^ 1, first: FRONT, len: FRONT };
        let mark = Step { rule: Short::NONE, cfa: frame.sp, caller: frame.pc };
        notes.add(inner, mark);
        let (mut told, mut until, mut batch, mut spliced) = (0, 0, FIRST_BATCH, false);
        let stop = loop {
            if told == until {
                if told == limit {
                    // There is at least one more frame.
                    break (limit == words.len()).then_some(StopReason::BufferFull);
                }
                until = limit;
                let Some(from) = old else { continue };
                let (at, met) = inner.meet(from, frame.pc, frame.sp);
                if !met {
                    old = Some(at);
                    until = limit.min(told + batch);
                    batch = BATCH.min(batch * 2);
                    continue;
                }
                old = None;
                self.turn();
                spliced = true;
                // It may have been passed a little before.
                let shared = inner.shared(&notes, at);
                let from = at + 1 - shared;
                let (Some(to), Some((first, others))) = (
                    inner.splice(&notes, at),
                    words.get_mut(told - shared..).and_then(|words| words.split_first_mut()),
                ) else {
                    break None;
                };
                inner.count_apart(inner.live().len() - at < told);
                *first = user_word(inner.live().get(at - shared).map_or(0, |step| step.caller));
                notes = Notes { half: inner.half as usize & 1, first: to, len: inner.end as usize };
                let (held, stop) = inner.along(rules.surroundings, to + 1, from, frame.fp, bare, others);
                if stop.is_some() {
                    told += held - shared + 1;
                    break stop;
                }
                // What has just been read still reads the same.
                let Some(further) = held.checked_sub(shared) else { break None };
                told += further;
                notes.len = from + held;
                let steps = inner.live().get(at + 1..notes.len).unwrap_or_default();
                steps.iter().for_each(|step| frame.go(step));
            }
            let (pc, room) = (frame.pc, words.get_mut(told..until).unwrap_or_default());
            let steps = notes.room(inner);
            let (passed, why) = if steps.is_empty() {
                // What is not noted cannot be put in front of the last chain.
                old = None;
                frame.stretch::<false, WORDS>(pc, OUTERMOST, rules, bare, room, steps)
            } else {
                let (passed, why) = frame.stretch::<true, WORDS>(pc, OUTERMOST, rules, bare, room, steps);
                notes.len += passed;
                (passed, why)
            };
            told += passed;
            match why {
                Stretch::Full => {}
                Stretch::Other => break None,
                Stretch::End => {
                    *words.get_mut(told)? = user_word(frame.pc);
                    told += 1;
                    notes.add(inner, Step::end(frame.sp));
                    break Some(StopReason::Complete);
                }
            }
        };
        if stop.is_some() {
            if !spliced {
                self.turn();
            }
            (inner.pc, inner.sp) = (mark.caller, mark.cfa);
            (inner.half, inner.first, inner.end) = (notes.half as u32, notes.first as u32, notes.len as u32);
            inner.stamp = rules.stamp;
            if old.is_some() {
                inner.count_apart(true);
            }
            self.turn();
        } else if spliced {
            inner.stamp = 0;
            self.turn();
        }
        Some((told, stop?))
    }

    /// From now on the chain is being changed; or, the next time, is as it should be.
    #[inline(always)]
    pub(super) fn turn(&self) {
        compiler_fence(Ordering::SeqCst);
        self.turn.store(self.turn.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }
}
