//! The part of a chain that was met twice, as what it depends on: words of the stack and what they were.
//!
//! Whether all of them still are is asked in one pass, in which no load waits for another and next to nothing branches; and then the
//! words to be told are copied. Rules, and where rbp comes from, were looked at when the list was made.

use super::{Step, STEPS};
use crate::frame::user_word;
use crate::memory::guarded::Words;
use crate::memory::Bare;
use crate::short_rule::{Short, LOST, RBP_FIELD};
use crate::stop_reason::StopReason;
use core::sync::atomic::{compiler_fence, Ordering};

/// Most blocks of words: a step depends on its return address, and on another word if it counts from a saved rbp.
const BLOCKS: usize = 2 * STEPS / Words::COUNT;

/// See above: whatever the chain is now, a stack that comes to this frame goes on so, if all of these words are the same.
#[repr(C)]
pub(super) struct Known {
    /// The chain's; 0: nothing is known.
    stamp: u64,
    /// Pc and stack pointer of the first frame.
    first: (u64, u64),
    /// Its rbp; 0: nothing depends on it.
    fp: u64,
    /// From where the chain's steps held last.
    met: (u64, u64),
    /// So many steps.
    steps: usize,
    /// Behind the last step the stack ends.
    ends: bool,
    /// The steps' callers, as they are told.
    words: [u64; STEPS],
    /// So many blocks hold the words of the steps up to this one.
    upto: [u16; STEPS],
    /// In the order of the steps.
    blocks: [Words; BLOCKS],
}

impl Known {
    pub(super) const fn new() -> Known {
        Known {
            stamp: 0,
            first: (0, 0),
            fp: 0,
            met: (0, 0),
            steps: 0,
            ends: false,
            words: [0; STEPS],
            upto: [0; STEPS],
            blocks: [Words { behind: [0; Words::COUNT], was: [0; Words::COUNT] }; BLOCKS],
        }
    }

    /// Pc and stack pointer of the first frame, if something is known.
    #[inline(always)]
    pub(super) fn first(&self, stamp: u64) -> Option<(u64, u64)> {
        (self.stamp == stamp).then_some(self.first)
    }

    /// It does not hold any more.
    pub(super) fn forget(&mut self) {
        self.stamp = 0;
    }

    /// The callers of its first frame, whose rbp is `fp()`, if all of them still are, up to the stack's end or that of `words`: how many words
    /// there are, and why it ends.
    #[inline(always)]
    pub(super) fn tell(
        &self,
        fp: impl FnOnce() -> Option<u64>,
        bare: Bare,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        // Where there is no room for all, there must be one more frame.
        let (told, last, stop) = if self.ends && words.len() >= self.steps {
            (self.steps, self.steps.checked_sub(1)?, StopReason::Complete)
        } else {
            (words.len(), words.len(), StopReason::BufferFull)
        };
        if last >= self.steps || self.fp != 0 && fp() != Some(self.fp) {
            return None;
        }
        let blocks = usize::from(*self.upto.get(last)?);
        let (room, known) = (words.get_mut(..told)?, self.words.get(..told)?);
        for block in self.blocks.get(..blocks)? {
            if bare.any_changed(block) {
                return None;
            }
        }
        room.copy_from_slice(known);
        Some((told, stop))
    }

    /// These steps hold from the frame at `at` on, whose rbp is `fp()`; the stack `ends` behind them, or there is no room. What holds twice in a
    /// row is known from now on.
    #[inline(never)]
    pub(super) fn met(
        &mut self,
        stamp: u64,
        at: (u64, u64),
        steps: &[Step],
        fp: impl FnOnce() -> Option<u64>,
        ends: bool,
    ) {
        let again = self.met == at;
        self.met = at;
        if !again || steps.is_empty() {
            return;
        }
        self.forget();
        compiler_fence(Ordering::SeqCst);
        if self.learn(steps, fp()).is_some() {
            (self.first, self.steps, self.ends) = (at, steps.len(), ends);
            compiler_fence(Ordering::SeqCst);
            self.stamp = stamp;
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
                let block = self.blocks.get_mut(count / Words::COUNT)?;
                // What is left of the last block says the same again.
                block.behind.get_mut(count % Words::COUNT..)?.fill(behind);
                block.was.get_mut(count % Words::COUNT..)?.fill(word);
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
            *upto = count.div_ceil(Words::COUNT) as u16;
            *word = user_word(step.caller);
            rbp = match step.rule.field(RBP_FIELD) {
                0 => rbp,
                LOST => Rbp::Lost,
                field => Rbp::Below(step.cfa.wrapping_sub(8 * field)),
            };
        }
        Some(())
    }
}
