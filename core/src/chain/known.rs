//! The part of a chain that was met twice, as what it depends on: words of memory and what they were.
//!
//! Whether all of them still are is asked in one pass, in which no load waits for another and next to nothing branches; and then the
//! words to be told are copied. Rules, and where rbp comes from, were looked at when the list was made. What stands for the rules are words,
//! too, so that a stack whose innermost frames are known ([`Head`]) is told with nothing looked up at all.

use super::asked::Surroundings;
use super::depends::Depends;
use super::head::{Head, NEAR};
use super::{Step, STEPS};
use crate::frame::user_word;
use crate::memory::guarded::Words;
use crate::memory::Bare;
use crate::stop_reason::StopReason;
use core::sync::atomic::{compiler_fence, Ordering};

/// Most blocks of words: a step depends on its return address, and on another word if it counts from a saved rbp; and all of them depend on the
/// surroundings.
const BLOCKS: usize = 2 * STEPS / Words::COUNT + 2;
/// Ways to the known part that are kept.
const HEADS: usize = 4;

/// See above: whatever the chain is now, a stack that comes to this frame goes on so, if all of these words are the same.
#[repr(C, align(64))]
pub(super) struct Known {
    /// Pc, marked if it is exact, and stack pointer of the innermost frames of `heads`, beside each other as they are all compared; (0, 0): there
    /// is none. Whatever they lead to holds as it is written: nothing of it is changed while they stand.
    tops: [(u64, u64); HEADS],
    heads: [Head; HEADS],
    /// Tops that led to the known part without a head, and how often they did.
    seen: [((u64, u64), u32); HEADS],
    /// Of these, the one to be replaced next.
    next: usize,
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
    /// The first frame and the steps' callers, as they are told.
    words: [u64; STEPS + 1],
    /// So many blocks hold the words of the steps up to this one.
    upto: [u16; STEPS],
    /// In the order of the steps.
    blocks: [Words; BLOCKS],
}

impl Known {
    pub(super) const fn new() -> Known {
        Known {
            tops: [(0, 0); HEADS],
            heads: [Head::NONE; HEADS],
            seen: [((0, 0), 0); HEADS],
            next: 0,
            stamp: 0,
            first: (0, 0),
            fp: 0,
            met: (0, 0),
            steps: 0,
            ends: false,
            words: [0; STEPS + 1],
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
        self.tops = [(0, 0); HEADS];
        self.seen = [((0, 0), 0); HEADS];
    }

    /// The whole stack from `top` on, a pc, marked if it is exact, and a stack pointer, whose rbp is `fp`, if all of it is known, and was told for as
    /// much room before: how many words there are, and why it ends.
    #[inline(always)]
    pub(super) fn whole(&self, top: (u64, u64), fp: u64, bare: Bare, words: &mut [u64]) -> Option<(usize, StopReason)> {
        let head = self.heads.get(self.tops.iter().position(|known| *known == top)?)?;
        if head.room != words.len() || !head.holds(fp, bare) || bare.any_changed(self.blocks.get(..head.blocks)?) {
            return None;
        }
        let told = head.own + head.further;
        // More than are there; what is known comes behind them.
        words.first_chunk_mut::<NEAR>()?.copy_from_slice(&head.words);
        words.get_mut(head.own..told)?.copy_from_slice(self.words.get(..head.further)?);
        Some((told, if head.ends { StopReason::Complete } else { StopReason::BufferFull }))
    }

    /// Callers of the first frame for which there is room, the blocks that they depend on, and why it ends there.
    #[inline(always)]
    fn within(&self, room: usize) -> Option<(usize, usize, StopReason)> {
        // Where there is no room for all, there must be one more frame.
        let (told, last, stop) = if self.ends && room >= self.steps {
            (self.steps, self.steps.checked_sub(1)?, StopReason::Complete)
        } else {
            (room, room, StopReason::BufferFull)
        };
        let upto = self.upto.get(..self.steps)?.get(last)?;
        Some((told, usize::from(*upto), stop))
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
        let (told, blocks, stop) = self.within(words.len())?;
        if self.fp != 0 && fp() != Some(self.fp) {
            return None;
        }
        let (room, known) = (words.get_mut(..told)?, self.words.get(1..=told)?);
        if bare.any_changed(self.blocks.get(..blocks)?) {
            return None;
        }
        room.copy_from_slice(known);
        Some((told, stop))
    }

    /// The stack was known but for the frames from `top` on. Whether to learn these: the place for it. What leads here twice does so again.
    #[inline(always)]
    pub(super) fn led_from(&mut self, top: (u64, u64)) -> Option<usize> {
        let Some(at) = self.seen.iter().position(|(seen, _)| *seen == top) else {
            let at = self.next % HEADS;
            self.next = at + 1;
            *self.seen.get_mut(at)? = (top, 1);
            return None;
        };
        let (_, times) = self.seen.get_mut(at)?;
        *times = times.saturating_add(1);
        // If it was too much to be learned, more and more seldom.
        times.is_power_of_two().then_some(at)
    }

    /// From `top` on, these steps lead to the first frame; `words` are told of them.
    pub(super) fn learn_head(&mut self, at: usize, top: (u64, u64), fp: u64, words: &[u64], steps: &[Step]) {
        // Nor elsewhere from the same top, which would be found first.
        self.tops.iter_mut().filter(|known| **known == top).for_each(|known| *known = (0, 0));
        let (Some(place), Some(head)) = (self.tops.get_mut(at), self.heads.get_mut(at)) else { return };
        *place = (0, 0);
        compiler_fence(Ordering::SeqCst);
        if head.learn(fp, words, steps, self.fp).is_some() {
            compiler_fence(Ordering::SeqCst);
            *place = top;
        }
    }

    /// Works out the answer from `top` on for so much room, if its head is known, and there is room enough.
    #[inline(always)]
    pub(super) fn make_room(&mut self, top: (u64, u64), room: usize) -> Option<()> {
        let at = self.tops.iter().position(|known| *known == top)?;
        let own = self.heads.get(at).filter(|head| head.room != room)?.own;
        let (told, blocks, stop) = self.within(room.checked_sub(own + 1)?)?;
        let head = self.heads.get_mut(at)?;
        if room >= NEAR && told + 1 >= NEAR {
            // For none, in case that this is left in the middle.
            head.room = 0;
            compiler_fence(Ordering::SeqCst);
            (head.further, head.blocks, head.ends) = (told + 1, blocks, stop == StopReason::Complete);
            compiler_fence(Ordering::SeqCst);
            head.room = room;
        }
        Some(())
    }

    /// These steps hold from the frame at `at` on, whose rbp is `fp()`; the stack `ends` behind them, or there is no room. What holds twice in a
    /// row is known from now on.
    #[inline(never)]
    pub(super) fn met(
        &mut self,
        (stamp, surroundings): (u64, &dyn Surroundings),
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
        if self.learn(surroundings, steps, fp()) == Some(stamp) {
            (self.first, self.steps, self.ends) = (at, steps.len(), ends);
            self.words[0] = user_word(at.0);
            compiler_fence(Ordering::SeqCst);
            self.stamp = stamp;
        }
    }

    /// The stamp of the surroundings that were written down.
    fn learn(&mut self, surroundings: &dyn Surroundings, steps: &[Step], fp: Option<u64>) -> Option<u64> {
        let mut depends = Depends::new(&mut self.blocks, fp);
        let mut fits = true;
        let stamp = surroundings.words(&mut |address, is| fits &= depends.on(address.wrapping_add(8), is).is_some())?;
        for ((step, word), upto) in steps.iter().zip(self.words.iter_mut().skip(1)).zip(&mut self.upto) {
            depends.on_step(step)?;
            *upto = depends.blocks() as u16;
            *word = user_word(step.caller);
        }
        self.fp = depends.fp();
        fits.then_some(stamp)
    }
}
