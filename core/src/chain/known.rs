//! The part of a chain that was met twice, as what it depends on: words of the stack and what they were.
//!
//! Whether all of them still are is asked in one pass, in which no load waits for another and next to nothing branches; and then the
//! words to be told are copied. Rules, and where rbp comes from, were looked at when the list was made.

use super::{fp_behind, Step, STEPS};
use crate::frame::user_word;
use crate::memory::Bare;
use crate::short_rule::{Short, LOST, RBP_FIELD};
use crate::stop_reason::StopReason;
use core::sync::atomic::{compiler_fence, Ordering};

/// Checks that are made together.
const BLOCK: usize = 8;
/// Most checks: a step has one for its return address, and another one if it counts from a saved rbp.
const CHECKS: usize = 2 * STEPS + BLOCK;

/// See above. All-zero: nothing is known.
#[repr(C)]
pub(super) struct Known {
    /// The first step in the chain that stands; 0: nothing is known.
    from: u16,
    /// So many steps.
    steps: u16,
    /// Where the steps that held last began; 0: nowhere.
    met: u16,
    /// Behind the last step the stack ends.
    ends: bool,
    /// rbp of the first step's frame; 0: no step depends on it.
    fp: u64,
    /// That frame's pc and stack pointer.
    pc: u64,
    sp: u64,
    /// The steps' callers, as they are told.
    words: [u64; STEPS],
    /// So many checks are those of the steps up to this one.
    upto: [u16; STEPS],
    /// An address, and what the word just below it was.
    checks: [[u64; 2]; CHECKS],
}

impl Known {
    pub(super) const fn new() -> Known {
        Known {
            from: 0,
            steps: 0,
            met: 0,
            ends: false,
            fp: 0,
            pc: 0,
            sp: 0,
            words: [0; STEPS],
            upto: [0; STEPS],
            checks: [[0; 2]; CHECKS],
        }
    }

    /// Where the first step is in the chain, and its frame's pc and stack pointer.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<(usize, u64, u64)> {
        (self.from != 0).then_some((usize::from(self.from), self.pc, self.sp))
    }

    /// The chain's steps up to `last` are others.
    #[inline(always)]
    pub(super) fn forget_up_to(&mut self, last: usize) {
        if usize::from(self.met) <= last {
            self.forget();
        }
    }

    /// The chain is another one.
    #[inline(always)]
    pub(super) fn forget(&mut self) {
        (self.from, self.met) = (0, 0);
    }

    /// The chain's steps from `from` on, whose first frame's rbp is `fp()`, if they are known and all hold up to the stack's end or that of
    /// `words`: how many words there are, and why it ends.
    #[inline(always)]
    pub(super) fn tell(
        &self,
        from: usize,
        fp: impl FnOnce() -> Option<u64>,
        bare: Bare,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        let all = usize::from(self.steps);
        if usize::from(self.from) != from || from == 0 {
            return None;
        }
        // Where there is no room for all, there must be one more frame.
        let (told, last, stop) = if self.ends && words.len() >= all {
            (all, all.checked_sub(1)?, StopReason::Complete)
        } else {
            (words.len(), words.len(), StopReason::BufferFull)
        };
        if last >= all || self.fp != 0 && fp() != Some(self.fp) {
            return None;
        }
        let checks = usize::from(*self.upto.get(last)?).div_ceil(BLOCK);
        let (room, known) = (words.get_mut(..told)?, self.words.get(..told)?);
        for block in self.checks.as_chunks::<BLOCK>().0.get(..checks)? {
            if bare.any_changed(block) {
                return None;
            }
        }
        room.copy_from_slice(known);
        Some((told, stop))
    }

    /// The chain's steps `from..end` hold, in a run that begins at `run` with `fp`; the stack `ends` behind them, or there is no room. What holds twice
    /// in a row is known from now on.
    #[inline(never)]
    pub(super) fn met(
        &mut self,
        chain: &[Step],
        (run, from, end): (usize, usize, usize),
        fp: Option<u64>,
        ends: bool,
        bare: Bare,
    ) {
        let again = usize::from(self.met) == from;
        self.forget();
        self.met = from as u16;
        let (true, Some(before), Some(steps @ [_, ..])) = (again, chain.get(run..from), chain.get(from..end)) else {
            return;
        };
        let Some(further_in) = from.checked_sub(1).and_then(|at| chain.get(at)) else { return };
        compiler_fence(Ordering::SeqCst);
        (self.pc, self.sp) = (further_in.caller, further_in.cfa);
        if self.learn(steps, fp_behind(before, fp, bare)).is_some() {
            (self.steps, self.ends) = (steps.len() as u16, ends);
            compiler_fence(Ordering::SeqCst);
            self.from = from as u16;
        }
    }

    fn learn(&mut self, steps: &[Step], fp: Option<u64>) -> Option<()> {
        /// Where rbp of the frame in hand is.
        enum Rbp {
            /// Where it was at the first one.
            AtFirst,
            /// Just below this address.
            Below(u64),
            Lost,
        }
        self.fp = 0;
        let (mut rbp, mut count) = (Rbp::AtFirst, 0);
        for ((step, word), upto) in steps.iter().zip(&mut self.words).zip(&mut self.upto) {
            let mut add = |behind, word| {
                *self.checks.get_mut(count)? = [behind, word];
                count += 1;
                Some(())
            };
            if step.rule.from_rbp() {
                if step.rule == Short::END || step.rule == Short::NONE {
                    return None;
                }
                let base = step.cfa.wrapping_sub(step.rule.cfa(0));
                match rbp {
                    Rbp::AtFirst => self.fp = fp.filter(|fp| *fp == base && base != 0)?,
                    Rbp::Below(address) => add(address, base)?,
                    Rbp::Lost => return None,
                }
            }
            add(step.cfa, step.caller)?;
            *upto = count as u16;
            *word = user_word(step.caller);
            rbp = match step.rule.field(RBP_FIELD) {
                0 => rbp,
                LOST => Rbp::Lost,
                field => Rbp::Below(step.cfa.wrapping_sub(8 * field)),
            };
        }
        // The last block is a whole one.
        let last = *self.checks.get(count.checked_sub(1)?)?;
        self.checks.get_mut(count..count.next_multiple_of(BLOCK))?.fill(last);
        Some(())
    }
}
