//! From frame to frame by short rules alone.

use super::asked::{Rules, Top};
use super::Step;
use crate::frame::user_word;
use crate::memory::{Bare, USER_END};
use crate::short_rule::{Short, LOST, RBP_FIELD, SLOT_BITS};
use crate::stop_reason::StopReason;
use crate::walk::MAX_FRAMES;
use core::hint::select_unpredictable;

/// Less frames than a walk tells, even with an exact one before them: that there are too many is for the walk to say.
pub(super) const MOST: usize = MAX_FRAMES as usize - 2;

/// A stretch of frames has no limit on the stack.
pub(super) const OUTERMOST: u64 = u64::MAX;

/// Where rbp of a frame is to be found.
#[derive(Clone, Copy)]
pub(super) struct At(u64);

impl At {
    /// In the register that the stack begins with.
    pub(super) const REGISTER: At = At(0);

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
    pub(super) fn get(self, register: Option<u64>, bare: Bare) -> Option<u64> {
        match (self.0, self.0 & LOST) {
            (0, _) => register,
            (_, LOST) => None,
            (place, field) => Some(bare.word_below((place >> SLOT_BITS).wrapping_sub(8 * field), 0)),
        }
    }
}

/// The frame in hand.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) pc: u64,
    pub(super) sp: u64,
    /// rbp of the run's first frame.
    pub(super) fp: Option<u64>,
    pub(super) fp_at: At,
}

/// Where a stretch of frames ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stretch {
    /// There was no more room, or it came as far out as it should.
    Full,
    /// At the outermost frame.
    End,
    /// At one that is not plain.
    Other,
}

impl Frame {
    /// The one that a stack begins with.
    #[inline(always)]
    pub(super) fn first(top: &Top) -> Frame {
        Frame { pc: top.pc, sp: top.sp, fp: Some(top.fp), fp_at: At::REGISTER }
    }

    #[inline(always)]
    pub(super) fn go(&mut self, step: &Step) {
        self.fp_at = self.fp_at.behind(step.rule, step.cfa);
        (self.pc, self.sp) = (step.caller, step.cfa);
    }

    /// All of them from a return address on, not noted. `words` may be empty.
    #[inline(always)]
    pub(super) fn rest<const WORDS: usize>(
        &mut self,
        rules: &Rules<'_, WORDS>,
        bare: Bare,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        let limit = words.len().min(MOST);
        let (told, why) =
            self.stretch::<false, WORDS>(self.pc, OUTERMOST, rules, bare, words.get_mut(..limit)?, &mut []);
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

    /// Goes on while frames are plain and further in than `until`, and there is room for their words, and for their steps if they are
    /// `NOTED`: how many they were. `behind`: what the first one's key is just below. By itself, so that all of it stays in registers: what leads from one frame to the next is waited for.
    #[inline(never)]
    pub(super) fn stretch<const NOTED: bool, const WORDS: usize>(
        &mut self,
        behind: u64,
        until: u64,
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
            let (true, Some(word)) = (count < most && sp < until, words.get_mut(count)) else { break Stretch::Full };
            let rule = match table.get_behind(behind, salt) {
                Some(rule) => rule,
                None => match table.search(behind.wrapping_sub(1), salt) {
                    Some(rule) => rule,
                    None => break Stretch::Other,
                },
            };
            table.prefetch(sp, bare);
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
