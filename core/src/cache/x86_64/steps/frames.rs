//! Unwinding by short rules alone.

use super::prefix::PREFIX_FRAMES;
use super::{At, Step};
use crate::cache::query::{Rules, Top, EXACT_KEY};
use crate::cache::short::{Short, LOST, RBP_FIELD, SLOT_BITS};
use crate::frame::user_word;
use crate::memory::{StackWords, USER_END};
use crate::regs::{UCONTEXT_PC, UCONTEXT_SP, UCONTEXT_STACK};
use crate::walk::{Saved, MAX_FRAMES};
use core::hint::select_unpredictable;

/// Limit of frames: fewer than a walk emits, even with an exact frame before them. The walk goes on in
/// deeper stacks.
pub(super) const MOST: usize = MAX_FRAMES as usize - 2;

/// Limit of a stretch that may go up to the outermost frame: above every stack pointer.
pub(super) const NO_LIMIT: u64 = u64::MAX;

/// Distance from a return address to the words of the stack that are looked at, as return addresses perhaps, while its
/// frame is stepped: so far that the rules of the frames there have come from memory when they are needed.
const AHEAD: u64 = 272;

/// Number of steps beyond the log's room that are kept at a time.
const AT_ONCE: usize = 32;

/// Where rbp of a frame is: where the last frame that did not leave it alone has put it.
#[derive(Clone, Copy)]
pub(super) struct RbpAt {
    /// That frame's rule. Of one that leaves rbp alone: rbp is in the register, as at the frame that the stack begins
    /// with.
    rule: Short,
    /// That frame's CFA.
    cfa: u64,
}

impl RbpAt {
    /// In the register.
    pub(super) const REGISTER: RbpAt = RbpAt { rule: Short::NONE, cfa: 0 };

    /// Where rbp of the caller is, after this step.
    #[inline(always)]
    pub(super) fn after(self, rule: Short, cfa: u64) -> RbpAt {
        let is_same = rule.keeps_rbp();
        // A branch here would be unpredictable.
        RbpAt { rule: Short::select(is_same, self.rule, rule), cfa: select_unpredictable(is_same, self.cfa, cfa) }
    }

    /// rbp of a frame at `sp` whose CFA counts from it; 0 if rbp is not available, or no frame pointer: below the stack
    /// pointer, misaligned, or outside user space.
    #[inline(always)]
    fn base(self, register: Option<u64>, sp: u64, bare: impl StackWords) -> u64 {
        self.get(register, bare).filter(|fp| (sp..USER_END).contains(fp) && fp & 7 == 0).unwrap_or(0)
    }

    #[inline(always)]
    pub(super) fn get(self, register: Option<u64>, bare: impl StackWords) -> Option<u64> {
        if self.rule.keeps_rbp() {
            return register;
        }
        let place = Step { rule: self.rule, cfa: self.cfa, caller: 0 }.place(RBP_FIELD);
        (place & LOST != LOST).then(|| bare.word_below((place >> SLOT_BITS).wrapping_sub(8 * (place & LOST)), 0))
    }
}

/// The current frame.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) pc: u64,
    pub(super) sp: u64,
    /// rbp of the run's first frame.
    pub(super) fp: Option<u64>,
    pub(super) fp_at: RbpAt,
}

/// Where a stretch of frames ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stretch {
    /// The buffer is full, or the frame's stack pointer has reached the given limit.
    Full,
    /// The current frame is the outermost one.
    End,
    /// The current frame is a signal frame: [`Frame::cross`].
    Signal,
    /// The current frame is not plain, or its caller is no user-space address.
    Other,
}

impl Frame {
    /// The frame that a stack begins with.
    #[inline(always)]
    pub(super) fn first(top: &Top) -> Frame {
        Frame { pc: top.pc, sp: top.sp, fp: Some(top.fp), fp_at: RbpAt::REGISTER }
    }

    /// Its pc and stack pointer.
    #[inline(always)]
    pub(super) fn at(&self) -> At {
        At { pc: self.pc, sp: self.sp }
    }

    #[inline(always)]
    pub(super) fn go(&mut self, step: &Step) {
        self.fp_at = self.fp_at.after(step.rule, step.cfa);
        (self.pc, self.sp) = (step.caller, step.cfa);
    }

    /// Goes from a signal frame to the caller of the interrupted code: two frames, whose words and steps are written.
    /// They are one step here, since the interrupted pc has a key of its own, which nothing else need know then. False:
    /// nothing was done, since there is no room, the interrupted frame is not plain, it lies not on the same stack
    /// towards the root, or the signal's frame lies on an alternate stack.
    #[cold]
    #[inline(never)]
    pub(super) fn cross<const WORDS: usize>(
        &mut self,
        rules: &Rules<'_, WORDS>,
        bare: impl StackWords,
        words: &mut [u64],
        steps: &mut [Step],
    ) -> bool {
        let ([word, interrupted, ..], [step, further, ..]) = (words, steps) else { return false };
        let saved = |offset: u64| bare.word_below(self.sp.wrapping_add(offset + 8), 0);
        let (pc, sp) = (saved(UCONTEXT_PC), saved(UCONTEXT_SP));
        // Whether a signal's frame on an alternate stack leads on is for the walk to say.
        if self.sp.wrapping_sub(saved(UCONTEXT_STACK)) < saved(UCONTEXT_STACK + 16) {
            return false;
        }
        let Some(rule) = Short::signal_in_frame(self.sp, sp).filter(|_| sp < USER_END && (1..USER_END).contains(&pc))
        else {
            return false;
        };
        let signal = Step { rule, cfa: sp, caller: pc | EXACT_KEY };
        let mut frame = Frame { pc, sp, fp: self.fp, fp_at: self.fp_at.after(signal.rule, signal.cfa) };
        let above = signal.caller.wrapping_add(1);
        let room = core::slice::from_mut(further);
        if frame.stretch::<WORDS>(above, NO_LIMIT, rules, bare, &mut [0], room) != (1, Stretch::Full) {
            return false;
        }
        (*word, *interrupted, *step) = (user_word(self.pc), signal.word(), signal);
        *self = frame;
        true
    }

    /// As [`Frame::stretch`] from a return address, through signal frames.
    #[inline(always)]
    pub(super) fn stretch_across<const WORDS: usize>(
        &mut self,
        until: u64,
        rules: &Rules<'_, WORDS>,
        bare: impl StackWords,
        words: &mut [u64],
        steps: &mut [Step],
    ) -> usize {
        let mut count = 0;
        loop {
            let (Some(words), Some(steps)) = (words.get_mut(count..), steps.get_mut(count..)) else { return count };
            let (passed, why) = self.stretch::<WORDS>(self.pc, until, rules, bare, words, steps);
            count += passed;
            let (Some(words), Some(steps)) = (words.get_mut(passed..), steps.get_mut(passed..)) else { return count };
            if why != Stretch::Signal || !self.cross(rules, bare, words, steps) {
                return count;
            }
            count += 2;
        }
    }

    /// As [`Frame::stretch`] from a return address, beyond the room of the log: steps are kept only until their effect
    /// on the places of registers is known.
    #[cold]
    #[inline(never)]
    pub(super) fn stretch_beyond<const WORDS: usize>(
        &mut self,
        saved: &mut Saved,
        rules: &Rules<'_, WORDS>,
        bare: impl StackWords,
        words: &mut [u64],
    ) -> (usize, Stretch) {
        let (mut count, mut steps) = (0, [Step::end(0); AT_ONCE]);
        loop {
            let room = words.get_mut(count..).unwrap_or_default();
            let (passed, why) = self.stretch::<WORDS>(self.pc, NO_LIMIT, rules, bare, room, &mut steps);
            saved.pass(steps.get(..passed).unwrap_or_default(), u64::MAX);
            count += passed;
            if why != Stretch::Full || count == words.len() {
                return (count, why);
            }
        }
    }

    /// Unwinds while frames are plain, their stack pointers lie below `until`, and there is room for their words and
    /// steps. Returns the number of frames. `above`: the first frame's key plus 1 (its return address). The word of a
    /// first frame with an exact pc is for the caller to write. Not inlined, so that all state stays in registers: the
    /// latency from one frame to the next is the cost of the loop.
    #[inline(never)]
    pub(super) fn stretch<const WORDS: usize>(
        &mut self,
        above: u64,
        until: u64,
        rules: &Rules<'_, WORDS>,
        bare: impl StackWords,
        words: &mut [u64],
        steps: &mut [Step],
    ) -> (usize, Stretch) {
        let lookup = rules.table.under(rules.salt);
        let Frame { mut sp, mut fp_at, fp, .. } = *self;
        let (mut above, mut count) = (above, 0);
        let mut most = words.len().min(steps.len());
        if most == 0 || sp >= until {
            return (0, Stretch::Full);
        }
        let until = until.min(USER_END);
        if most > PREFIX_FRAMES {
            // The first frames' rules; from then on each frame asks for those that lie farther out.
            let returns = sp.wrapping_sub(8);
            lookup.prefetch::<16>(returns, bare);
            lookup.prefetch::<144>(returns, bare);
            lookup.prefetch::<AHEAD>(returns, bare);
        }
        let why = loop {
            let mut rule = match lookup.get_before(above) {
                Some(rule) => rule,
                None => match lookup.get_anywhere_before(above) {
                    Some(rule) => rule,
                    None => break Stretch::Other,
                },
            };
            let mut base = sp;
            if rule.from_rbp() {
                if rule == Short::END {
                    break Stretch::End;
                }
                if rule.is_signal() {
                    break Stretch::Signal;
                }
                base = fp_at.base(fp, sp, bare);
                if base == 0 {
                    break Stretch::Other;
                }
                if rule.is_realigned() {
                    let Some(here) = rule.in_frame(base, bare.word_just_below(base)) else { break Stretch::Other };
                    rule = here;
                }
            }
            let cfa = rule.cfa(base);
            if cfa >= until {
                if cfa >= USER_END {
                    break Stretch::Other;
                }
                // It is the last frame.
                most = count + 1;
            }
            let caller = bare.word_just_below(cfa);
            // A return address of 0, or outside user space: the walk determines what it means.
            if caller.wrapping_sub(1) >= USER_END - 1 {
                break Stretch::Other;
            }
            lookup.prefetch::<AHEAD>(cfa.wrapping_sub(8), bare);
            // SAFETY: the count is below the lengths of both; the limit is only lowered.
            unsafe {
                *words.get_unchecked_mut(count) = user_word(above);
                *steps.get_unchecked_mut(count) = Step { rule, cfa, caller };
            }
            (above, sp, fp_at) = (caller, cfa, fp_at.after(rule, cfa));
            count += 1;
            if count >= most {
                break Stretch::Full;
            }
        };
        let pc = if count == 0 { self.pc } else { above };
        *self = Frame { pc, sp, fp_at, fp };
        (count, why)
    }
}
