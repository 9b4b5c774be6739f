//! The whole stack of a caller at once: from its frame to the stack's end by short rules alone, and along the last chain where that
//! still holds, be it elsewhere on the stack.
//!
//! Nothing is looked at but the stack and two tables, of rules and of the thread's last steps; so it is no walk that a writer of the
//! registry would have to wait for, and it needs next to nothing of what a walk needs. What short rules do not tell is left to the
//! walk, which then begins at the caller again.

use super::asked::{Rules, Top, EXACT_KEY};
use super::{holding, holds, Chain, Inner, Step, FRONT, PATIENCE};
use crate::frame::{native_word, user_word, FLAG_EXACT};
use crate::memory::{Bare, USER_END};
use crate::short_rule::{Short, LOST, RBP_FIELD, SLOT_BITS};
use crate::stop_reason::StopReason;
use crate::walk::MAX_FRAMES;
use core::hint::select_unpredictable;
use core::sync::atomic::{compiler_fence, Ordering};

/// Behind so many frames it is asked for the last chain once more, and behind twice as many, until it is each [`BATCH`].
const FIRST_BATCH: usize = 2;
/// See [`FIRST_BATCH`].
const BATCH: usize = 32;
/// Less frames than a walk tells, even with an exact one before them: that there are too many is for the walk to say.
const MOST: usize = MAX_FRAMES as usize - 2;

/// Where rbp of a frame is to be found.
#[derive(Clone, Copy)]
struct At(u64);

impl At {
    /// In the register that the stack begins with.
    const REGISTER: At = At(0);

    /// Behind a frame with this rule and CFA. An address has 47 bits.
    #[inline(always)]
    fn behind(self, rule: Short, cfa: u64) -> At {
        let field = rule.field(RBP_FIELD);
        // Nobody can foresee which it is.
        At(select_unpredictable(field == 0, self.0, cfa << SLOT_BITS | field))
    }

    /// The CFA's base of a frame at `sp` whose rule counts it from rbp; 0 if rbp is not known, stale (below the stack pointer), or none.
    #[inline(always)]
    fn base(self, register: Option<u64>, sp: u64, bare: Bare) -> u64 {
        self.get(register, bare).filter(|fp| (sp..USER_END).contains(fp) && fp & 7 == 0).unwrap_or(0)
    }

    #[inline(always)]
    fn get(self, register: Option<u64>, bare: Bare) -> Option<u64> {
        match (self.0, self.0 & LOST) {
            (0, _) => register,
            (_, LOST) => None,
            (place, field) => Some(bare.word_below((place >> SLOT_BITS).wrapping_sub(8 * field), 0)),
        }
    }
}

/// The frame in hand.
#[derive(Clone, Copy)]
struct Frame {
    pc: u64,
    sp: u64,
    /// rbp of the run's first frame.
    fp: Option<u64>,
    fp_at: At,
}

/// Where a stretch of frames ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stretch {
    /// There was no more room.
    Full,
    /// At the outermost frame.
    End,
    /// At one that is not plain.
    Other,
}

impl Frame {
    #[inline(always)]
    fn go(&mut self, step: &Step) {
        self.fp_at = self.fp_at.behind(step.rule, step.cfa);
        (self.pc, self.sp) = (step.caller, step.cfa);
    }

    /// All of them from a return address on, not noted. `words` may be empty.
    #[inline(always)]
    fn rest<const WORDS: usize>(
        &mut self,
        rules: &Rules<'_, WORDS>,
        bare: Bare,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        let limit = words.len().min(MOST);
        let (told, why) = self.stretch::<false, WORDS>(self.pc, rules, bare, words.get_mut(..limit)?, &mut []);
        match why {
            // There is at least one more frame.
            Stretch::Full => (limit == words.len()).then_some((told, StopReason::BufferFull)),
            Stretch::End => {
                *words.get_mut(told)? = user_word(self.pc);
                Some((told + 1, StopReason::Complete))
            }
            Stretch::Other => None,
        }
    }

    /// Goes on while frames are plain, and there is room for their words, and for their steps if they are `NOTED`: how many they were.
    /// `behind`: what the first one's key is just below. By itself, so that all of it stays in registers: what leads from one frame to the next is waited for.
    #[inline(never)]
    fn stretch<const NOTED: bool, const WORDS: usize>(
        &mut self,
        behind: u64,
        rules: &Rules<'_, WORDS>,
        bare: Bare,
        words: &mut [u64],
        steps: &mut [Step],
    ) -> (usize, Stretch) {
        let (table, salt) = (rules.table, rules.salt);
        let Frame { mut pc, mut sp, mut fp_at, fp } = *self;
        let (mut behind, mut count) = (behind, 0);
        let most = if NOTED { words.len().min(steps.len()) } else { words.len() };
        let why = loop {
            let (true, Some(word)) = (count < most, words.get_mut(count)) else { break Stretch::Full };
            let rule = match table.get_behind(behind, salt) {
                Some(rule) => rule,
                None => match table.search(behind.wrapping_sub(1), salt) {
                    Some(rule) => rule,
                    None => break Stretch::Other,
                },
            };
            let mut base = sp;
            if rule.from_rbp() {
                if rule == Short::END {
                    break Stretch::End;
                }
                base = fp_at.base(fp, sp, bare);
                if base == 0 {
                    break Stretch::Other;
                }
            }
            let caller = bare.word_below(base, rule.words());
            // 0 is no caller, and what is no address of a user's is for the walk to tell.
            if caller.wrapping_sub(1) >= USER_END - 1 {
                break Stretch::Other;
            }
            let cfa = rule.cfa(base);
            *word = user_word(pc);
            if let Some(place) = steps.get_mut(count).filter(|_| NOTED) {
                *place = Step { rule, cfa, caller };
            }
            (pc, sp, fp_at) = (caller, cfa, fp_at.behind(rule, cfa));
            behind = caller;
            count += 1;
        };
        *self = Frame { pc, sp, fp_at, fp };
        (count, why)
    }
}

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
        &self,
        run: usize,
        from: usize,
        fp: Option<u64>,
        bare: Bare,
        words: &mut [u64],
    ) -> (usize, Option<StopReason>) {
        let steps = self.live();
        let held = holding(steps, run, from, fp, bare, words);
        let stop = match steps.get(from + held) {
            Some(step) if step.rule == Short::END => Some(StopReason::Complete),
            // There is at least one more frame.
            Some(_) if held == words.len() && holds(steps, run, from + held, fp, bare) => Some(StopReason::BufferFull),
            _ => None,
        };
        (held, stop)
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
    /// The whole stack from the frame `top` on, if all of its frames are plain, up to its end or to that of `words`: how many words there
    /// are, and why it ends. `None`: that is for a walk to tell; what is left in `words` then says nothing. Async-signal-safe.
    ///
    /// # Safety
    /// Only the chain's own thread may ask, while no other call of its is under way with this chain.
    #[inline(always)]
    pub unsafe fn whole<const WORDS: usize>(
        &self,
        rules: &Rules<'_, WORDS>,
        top: Top,
        bare: Bare,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        // A stack pointer that can be one leads outwards. What was left in the middle, `begin` clears up.
        if self.turn.load(Ordering::Relaxed) & 1 != 0 || top.sp & 7 != 0 || top.sp >= USER_END || top.pc >= USER_END {
            return None;
        }
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &*self.inner.get() };
        let (is_alike, is_here) = (inner.pc == top.pc && inner.stamp == rules.stamp && !top.exact, inner.sp == top.sp);
        // SAFETY: passed on.
        if is_alike && (is_here || unsafe { self.moved(top.sp, top.fp, bare) }) {
            // SAFETY: as above.
            let inner = unsafe { &*self.inner.get() };
            let (first, others) = words.split_first_mut()?;
            *first = user_word(top.pc);
            let from = inner.first as usize + 1;
            if let (held, Some(stop)) = inner.along(from, from, Some(top.fp), bare, others) {
                return Some((held + 1, stop));
            }
        }
        // SAFETY: passed on.
        unsafe { self.anew(rules, &top, bare, words) }
    }

    /// The same, if it is not the last chain's from the very frame on.
    ///
    /// # Safety
    /// As [`Chain::whole`].
    #[inline(never)]
    unsafe fn anew<const WORDS: usize>(
        &self,
        rules: &Rules<'_, WORDS>,
        top: &Top,
        bare: Bare,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        let Top { pc, sp, fp, exact } = *top;
        let mut frame = Frame { pc, sp, fp: Some(fp), fp_at: At::REGISTER };
        let (before, words) = words.split_at_mut_checked(usize::from(exact))?;
        if exact {
            let key = pc | EXACT_KEY;
            let why = frame.stretch::<false, WORDS>(key.wrapping_add(1), rules, bare, before, &mut []).1;
            *before.first_mut()? = native_word(pc, FLAG_EXACT);
            match why {
                Stretch::Full => (frame.fp, frame.fp_at) = (frame.fp_at.get(frame.fp, bare), At::REGISTER),
                Stretch::End => return Some((1, StopReason::Complete)),
                Stretch::Other => return None,
            }
        }
        // SAFETY: the caller vouches for the thread.
        let inner = unsafe { &mut *self.inner.get() };
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
                let (Some(to), Some((first, others))) =
                    (inner.splice(&notes, at), words.get_mut(told..).and_then(|words| words.split_first_mut()))
                else {
                    break None;
                };
                inner.apart = 0;
                *first = user_word(frame.pc);
                notes = Notes { half: inner.half as usize & 1, first: to, len: inner.end as usize };
                let (held, stop) = inner.along(to + 1, at + 1, frame.fp, bare, others);
                told += held;
                if stop.is_some() {
                    told += 1;
                    break stop;
                }
                notes.len = at + 1 + held;
                let steps = inner.live().get(at + 1..notes.len).unwrap_or_default();
                steps.iter().for_each(|step| frame.go(step));
            }
            let (pc, room) = (frame.pc, words.get_mut(told..until).unwrap_or_default());
            let steps = notes.room(inner);
            let (passed, why) = if steps.is_empty() {
                frame.stretch::<false, WORDS>(pc, rules, bare, room, steps)
            } else {
                let (passed, why) = frame.stretch::<true, WORDS>(pc, rules, bare, room, steps);
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
            inner.apart += u32::from(old.is_some() && inner.apart < PATIENCE);
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
