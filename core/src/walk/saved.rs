//! Where the callee-saved registers of the frame in hand are to be found, while a walk passes plain frames.
//!
//! Most are never looked at. So what a frame did to them is only noted ([`Notes`]); where they lie is worked out for many frames at
//! once, backwards, and loads are put off until [`Saved::load`], or, for rbp, until a CFA counts from it.

use crate::chain::{Step, Steps};
use crate::memory::{Bare, Reader};
use crate::regs::{Regs, CALLEE_SAVED, RBP};
use crate::short_rule::{Short, LOST, RBP_FIELD, SLOT_BITS};
use core::mem::MaybeUninit;

/// Steps past plain frames whose effect on registers was not worked out so far: those of the run in the thread's chain, or a
/// batch of them.
pub(super) struct Notes<'n, 'c, const BATCH: usize> {
    chain: Option<&'n mut Steps<'c>>,
    batch: [MaybeUninit<Step>; BATCH],
    count: usize,
    /// The words of their rules, or-ed.
    any: u64,
}

impl<'n, 'c, const BATCH: usize> Notes<'n, 'c, BATCH> {
    /// Of a run that begins at `pc`, `sp`.
    #[inline(always)]
    pub(super) fn new(mut chain: Option<&'n mut Steps<'c>>, pc: u64, sp: u64) -> Self {
        let chain = chain.take_if(|chain| chain.mark(pc, sp));
        Notes { chain, batch: [const { MaybeUninit::uninit() }; BATCH], count: 0, any: 0 }
    }

    /// The chain, for the next run.
    pub(super) fn into_chain(self) -> Option<&'n mut Steps<'c>> {
        self.chain
    }

    /// Whether [`Notes::follow`] may lead anywhere.
    #[inline(always)]
    pub(super) fn may_follow(&self) -> bool {
        self.chain.as_ref().is_some_and(|chain| chain.may_follow())
    }

    /// The stack ends with the frame in hand, whose stack pointer is `sp`.
    pub(super) fn end(&mut self, sp: u64) {
        if let Some(chain) = &mut self.chain {
            chain.end(sp);
        }
    }

    /// The steps.
    #[inline(always)]
    pub(super) fn steps(&self) -> &[Step] {
        match &self.chain {
            Some(chain) => chain.run(),
            // SAFETY: `count` of them were written; never more than there are.
            None => unsafe { core::slice::from_raw_parts(self.batch.as_ptr().cast(), self.count.min(BATCH)) },
        }
    }

    /// Room for further ones, where there is some; else what the steps so far did is told to `saved`, and then there is.
    #[inline(always)]
    pub(super) fn room(&mut self, saved: &mut Saved) -> (*mut Step, usize) {
        if let Some(chain) = &mut self.chain {
            let room = chain.room();
            if !room.is_empty() {
                return (room.as_mut_ptr(), room.len());
            }
        }
        saved.pass(self.steps(), self.any);
        (self.count, self.any) = (0, 0);
        self.chain = None;
        (self.batch.as_mut_ptr().cast(), BATCH)
    }

    /// So many were written there; `any`: the words of their rules, or-ed.
    #[inline(always)]
    pub(super) fn add(&mut self, count: usize, any: u64) {
        match &mut self.chain {
            Some(chain) => chain.add(count),
            None => self.count = count,
        }
        self.any |= any;
    }

    /// Makes the last walk's steps as far as they still hold ([`Steps::follow`]). Gives their number, and the pc and sp behind them.
    #[inline(never)]
    pub(super) fn follow(
        &mut self,
        at: (u64, u64),
        fp: Option<u64>,
        bare: Bare,
        words: &mut [u64],
    ) -> Option<(usize, u64, u64)> {
        let chain = self.chain.as_mut()?;
        let held = chain.follow(at.0, at.1, fp, bare, words);
        let (pc, sp) = chain.here().filter(|_| held > 0)?;
        // Which registers they saved was not looked at.
        self.any = u64::MAX;
        Some((held, pc, sp))
    }
}

/// Where the registers are.
pub(super) struct Saved {
    /// 0: as in the registers that the walk began with; else the CFA, and below it the rule's field.
    places: [u64; 6],
}

const AS_BEFORE: u64 = 0;

/// What a place says.
enum Slot {
    AsBefore,
    Lost,
    At(u64),
}

#[inline(always)]
fn slot(place: u64) -> Slot {
    match (place, place & LOST) {
        (AS_BEFORE, _) => Slot::AsBefore,
        (_, LOST) => Slot::Lost,
        (_, field) => Slot::At((place >> SLOT_BITS).wrapping_sub(8 * (field + 1))),
    }
}

/// The place of a register that the frame did not leave alone. An address has 47 bits.
#[inline(always)]
fn place(passed: &Step, index: u32) -> u64 {
    (passed.cfa << SLOT_BITS) | passed.rule.field(index)
}

impl Saved {
    /// Nothing was saved so far.
    pub(super) const fn new() -> Saved {
        Saved { places: [AS_BEFORE; 6] }
    }

    /// The walk goes on behind these frames. `any`: all words of their rules, or-ed.
    #[inline(never)]
    pub(super) fn pass(&mut self, batch: &[Step], any: u64) {
        // From the last one backwards: the first that is found is the one that counts.
        let mut missing = Short::touched_by(any);
        for passed in batch.iter().rev() {
            let mut touched = Short::touched_by(passed.rule.word()) & missing;
            missing &= !touched;
            while touched != 0 {
                let index = touched.trailing_zeros() / SLOT_BITS;
                if let Some(to) = self.places.get_mut(index as usize) {
                    *to = place(passed, index);
                }
                touched &= touched - 1;
            }
            if missing == 0 {
                break;
            }
        }
    }

    /// rbp of the frame in hand, which stands behind the steps `before` and then `pending`.
    #[inline(never)]
    pub(super) fn rbp(&self, before: &[Step], pending: &[Step], regs: &Regs, reader: &mut Reader<'_>) -> Option<u64> {
        let saves = |step: &&Step| step.rule.field(RBP_FIELD) != 0;
        let last = pending.iter().rev().find(saves).or_else(|| before.iter().rev().find(saves));
        let [_, settled, ..] = self.places;
        match slot(last.map_or(settled, |passed| place(passed, RBP_FIELD))) {
            Slot::AsBefore => regs.get(RBP),
            Slot::Lost => None,
            Slot::At(address) => reader.word(address),
        }
    }

    /// Loads what was put off. A register whose slot cannot be read is unknown.
    pub(super) fn load(&self, regs: &mut Regs, reader: &mut Reader<'_>) {
        for (register, place) in CALLEE_SAVED.into_iter().zip(self.places) {
            let value = match slot(place) {
                Slot::AsBefore => continue,
                Slot::Lost => None,
                Slot::At(address) => reader.word(address),
            };
            match value {
                Some(value) => regs.set(register, value),
                None => regs.forget(register),
            }
        }
    }
}
