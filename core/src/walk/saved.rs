//! The places of the current frame's callee-saved registers while a walk steps through plain frames.
//!
//! Most are never read. So the effect of a frame on them is only logged ([`Notes`]); their places are determined for
//! many frames at once, backwards, and loads are deferred until [`Saved::load`] or, for rbp, until a CFA counts from
//! it.

use crate::cache::short::{Short, LOST, RBP_FIELD, SLOT_BITS};
use crate::cache::steps::{At, Step, WalkSteps};
use crate::memory::{Reader, StackWords};
use crate::regs::{Regs, CALLEE_SAVED, RBP};
use core::mem::MaybeUninit;

/// Steps through plain frames whose effect on registers was not evaluated so far: those of the run in the thread's step
/// cache, or a batch of them.
pub(super) struct Notes<'n, 'c, const BATCH: usize> {
    cache: Option<&'n mut WalkSteps<'c>>,
    batch: [MaybeUninit<Step>; BATCH],
    count: usize,
    /// The words of their rules, or-ed.
    any: u64,
}

impl<'n, 'c, const BATCH: usize> Notes<'n, 'c, BATCH> {
    /// Of a run that begins at this frame, or of one that the step cache's log has led there.
    #[inline(always)]
    pub(super) fn new(mut cache: Option<&'n mut WalkSteps<'c>>, at: At) -> Self {
        let cache = cache.take_if(|cache| cache.begin_run(at));
        // Which registers the steps of a log that is continued have saved was not looked at.
        let any = if cache.as_ref().is_some_and(|cache| !cache.run().is_empty()) { u64::MAX } else { 0 };
        Notes { cache, batch: [const { MaybeUninit::uninit() }; BATCH], count: 0, any }
    }

    /// The step cache, for the next run.
    pub(super) fn into_steps(self) -> Option<&'n mut WalkSteps<'c>> {
        self.cache
    }

    /// Whether [`Notes::follow`] may lead anywhere.
    #[inline(always)]
    pub(super) fn may_follow(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.may_follow())
    }

    /// Logs that the stack ends with the current frame, whose stack pointer is `sp`.
    pub(super) fn end(&mut self, sp: u64) {
        if let Some(cache) = &mut self.cache {
            cache.end(sp);
        }
    }

    /// The run's steps so far, in the step cache if there is one.
    #[inline(always)]
    pub(super) fn steps(&self) -> &[Step] {
        match &self.cache {
            Some(cache) => cache.run(),
            // SAFETY: `count` of them were written; never more than there are.
            None => unsafe { core::slice::from_raw_parts(self.batch.as_ptr().cast(), self.count.min(BATCH)) },
        }
    }

    /// Space for further steps, and its size in steps. If there is none, `saved` takes over the effect of the steps so
    /// far, which frees the space.
    #[inline(always)]
    pub(super) fn room(&mut self, saved: &mut Saved) -> (*mut Step, usize) {
        if let Some(cache) = &mut self.cache {
            let room = cache.room();
            if !room.is_empty() {
                return (room.as_mut_ptr(), room.len());
            }
        }
        saved.pass(self.steps(), self.any);
        (self.count, self.any) = (0, 0);
        self.cache = None;
        (self.batch.as_mut_ptr().cast(), BATCH)
    }

    /// Reports that `count` steps were written there; `any`: the words of their rules, or-ed.
    #[inline(always)]
    pub(super) fn add(&mut self, count: usize, any: u64) {
        match &mut self.cache {
            Some(cache) => cache.add(count),
            None => self.count = count,
        }
        self.any |= any;
    }

    /// Replays the cached steps as far as they are valid ([`WalkSteps::follow`]). Returns their number, and the frame
    /// after them.
    #[inline(never)]
    pub(super) fn follow(
        &mut self,
        at: At,
        fp: Option<u64>,
        bare: impl StackWords,
        words: &mut [u64],
    ) -> Option<(usize, At)> {
        let cache = self.cache.as_mut()?;
        let held = cache.follow(at, fp, bare, words);
        let at = cache.here().filter(|_| held > 0)?;
        // Which registers they saved was not looked at.
        self.any = u64::MAX;
        Some((held, at))
    }
}

/// Where the registers are.
pub struct Saved {
    /// 0: as in the registers that the walk began with; else as [`Step::place`] gives it. An address has 47 bits.
    places: [u64; 6],
}

const AS_BEFORE: u64 = 0;

/// What a place says.
enum RegisterAt {
    AsBefore,
    Lost,
    At(u64),
}

#[inline(always)]
fn register_at(place: u64) -> RegisterAt {
    match (place, place & LOST) {
        (AS_BEFORE, _) => RegisterAt::AsBefore,
        (_, LOST) => RegisterAt::Lost,
        (_, field) => RegisterAt::At((place >> SLOT_BITS).wrapping_sub(8 * (field + 1))),
    }
}

impl Saved {
    /// Nothing was saved so far.
    pub(crate) const fn new() -> Saved {
        Saved { places: [AS_BEFORE; 6] }
    }

    /// After these frames.
    #[cold]
    pub(crate) fn after(frames: &[Step]) -> Saved {
        let mut saved = Saved::new();
        saved.pass(frames, u64::MAX);
        saved
    }

    /// Takes over the effect of these frames. `any`: all words of their rules, or-ed.
    #[inline(never)]
    pub(crate) fn pass(&mut self, batch: &[Step], any: u64) {
        // From the last one backwards: the first that is found is the one that counts.
        let mut missing = Short::touched_by(any);
        for passed in batch.iter().rev() {
            let mut touched = Short::touched_by(passed.rule.word()) & missing;
            missing &= !touched;
            while touched != 0 {
                let index = touched.trailing_zeros() / SLOT_BITS;
                if let Some(to) = self.places.get_mut(index as usize) {
                    *to = passed.place(index);
                }
                touched &= touched - 1;
            }
            if missing == 0 {
                break;
            }
        }
    }

    /// rbp of the current frame, after the steps `before` and then `pending`.
    #[inline(never)]
    pub(super) fn rbp(&self, before: &[Step], pending: &[Step], regs: &Regs, reader: &mut Reader<'_>) -> Option<u64> {
        let saves = |step: &&Step| step.rule.field(RBP_FIELD) != 0;
        let last = pending.iter().rev().find(saves).or_else(|| before.iter().rev().find(saves));
        let [_, settled, ..] = self.places;
        match register_at(last.map_or(settled, |passed| passed.place(RBP_FIELD))) {
            RegisterAt::AsBefore => regs.get(RBP),
            RegisterAt::Lost => None,
            RegisterAt::At(address) => reader.word(address),
        }
    }

    /// Performs the deferred loads. A register whose slot cannot be read becomes unavailable.
    pub(crate) fn load(&self, regs: &mut Regs, reader: &mut Reader<'_>) {
        for (register, place) in CALLEE_SAVED.into_iter().zip(self.places) {
            let value = match register_at(place) {
                RegisterAt::AsBefore => continue,
                RegisterAt::Lost => None,
                RegisterAt::At(address) => reader.word(address),
            };
            match value {
                Some(value) => regs.set(register, value),
                None => regs.forget(register),
            }
        }
    }
}
