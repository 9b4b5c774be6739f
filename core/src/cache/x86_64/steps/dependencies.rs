//! The inputs of a run of steps: words of memory, and rbp of the first frame.

use super::Step;
use crate::cache::short::{Short, LOST, RBP_FIELD};
use crate::memory::guarded::Words;
use crate::regs::{UCONTEXT_FP, UCONTEXT_SP};

/// Stores the word just below an address and its value after the first `count` ones. `None`: there is no room.
pub(super) fn put(blocks: &mut [Words], count: usize, (above, was): (u64, u64)) -> Option<()> {
    let (block, place) = (blocks.get_mut(count / Words::COUNT)?, count % Words::COUNT);
    // The rest of the block repeats this word, so that a whole block can be compared.
    block.above.get_mut(place..)?.fill(above);
    block.was.get_mut(place..)?.fill(was);
    Some(())
}

/// Where rbp of the current frame is.
enum Rbp {
    /// In the register: no frame so far has saved it.
    AtFirst,
    /// In the word just below this process address.
    Below(u64),
    Lost,
}

/// The lowest and the highest of some process addresses just below which words lie.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Reach {
    pub(super) lowest: u64,
    pub(super) highest: u64,
}

impl Reach {
    /// Of no address.
    pub(super) const NONE: Reach = Reach { lowest: u64::MAX, highest: 0 };

    pub(super) fn add(&mut self, above: u64) {
        *self = self.and(Reach { lowest: above, highest: above });
    }

    pub(super) fn and(self, other: Reach) -> Reach {
        Reach { lowest: self.lowest.min(other.lowest), highest: self.highest.max(other.highest) }
    }
}

/// A list of inputs under construction.
pub(super) struct Dependencies<'b> {
    /// Of the words since this was last set.
    pub(super) reach: Reach,
    blocks: &'b mut [Words],
    count: usize,
    rbp: Rbp,
    /// rbp of the first frame, if it is available.
    fp: Option<u64>,
    /// Some step depends on `fp`.
    on_fp: bool,
}

impl Dependencies<'_> {
    /// An empty list.
    pub(super) fn new(blocks: &mut [Words], fp: Option<u64>) -> Dependencies<'_> {
        Dependencies { reach: Reach::NONE, blocks, count: 0, rbp: Rbp::AtFirst, fp, on_fp: false }
    }

    /// Adds the word just below the process address `above`, whose value is `was`. `None`: there is no room.
    pub(super) fn on(&mut self, above: u64, was: u64) -> Option<()> {
        put(self.blocks, self.count, (above, was))?;
        self.count += 1;
        self.reach.add(above);
        Some(())
    }

    /// Adds rbp of the current frame, whose value is `fp`. `None`: it is lost, so there is no input to compare.
    pub(super) fn on_rbp(&mut self, fp: u64) -> Option<()> {
        match self.rbp {
            Rbp::AtFirst => self.on_fp = self.fp == Some(fp) && fp != 0,
            Rbp::Below(address) => return self.on(address, fp),
            Rbp::Lost => return None,
        }
        self.on_fp.then_some(())
    }

    /// Adds the inputs of this step and moves to the next frame. `None`: the step is an end or the start of a run, or
    /// there is no room.
    pub(super) fn on_step(&mut self, step: &Step) -> Option<()> {
        let (above, was) = step.input();
        self.on_step_but_caller(step)?;
        self.on(above, was)
    }

    /// As [`Dependencies::on_step`], but for the word with the caller's pc ([`Step::input`]).
    pub(super) fn on_step_but_caller(&mut self, step: &Step) -> Option<()> {
        if step.rule.is_signal() {
            let at = |offset: u64| step.ucontext().wrapping_add(offset + 8);
            self.on(at(UCONTEXT_SP), step.cfa)?;
            self.rbp = Rbp::Below(at(UCONTEXT_FP));
            return Some(());
        }
        if step.rule.from_rbp() {
            if step.rule == Short::END || step.rule == Short::NONE {
                return None;
            }
            let fp = step.cfa.wrapping_sub(step.rule.cfa(0));
            self.on_rbp(fp)?;
            if step.rule.is_realigned() {
                self.on(fp, step.cfa)?;
            }
        }
        match step.rule.field(RBP_FIELD) {
            0 => {}
            LOST => self.rbp = Rbp::Lost,
            field => self.rbp = Rbp::Below(step.cfa.wrapping_sub(8 * field)),
        }
        Some(())
    }

    /// Number of words.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// rbp of the first frame if a step depends on it, else 0.
    pub(super) fn fp(&self) -> u64 {
        self.fp.filter(|_| self.on_fp).unwrap_or(0)
    }
}
