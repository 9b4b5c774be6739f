//! What steps depend on: words of memory, and rbp of the first frame.

use super::Step;
use crate::memory::guarded::Words;
use crate::short_rule::{Short, LOST, RBP_FIELD};

/// Where rbp of the frame in hand is.
enum Rbp {
    /// Where it was at the first one.
    AtFirst,
    /// Just below this address.
    Below(u64),
    Lost,
}

/// The words, as they are written down.
pub(super) struct Depends<'b> {
    blocks: &'b mut [Words],
    count: usize,
    rbp: Rbp,
    /// rbp of the first frame, if it is known.
    fp: Option<u64>,
    /// Something depends on it.
    on_fp: bool,
}

impl Depends<'_> {
    /// On nothing so far.
    pub(super) fn new(blocks: &mut [Words], fp: Option<u64>) -> Depends<'_> {
        Depends { blocks, count: 0, rbp: Rbp::AtFirst, fp, on_fp: false }
    }

    /// On the word just below `behind`, which is `was`. `None`: there is no room.
    pub(super) fn on(&mut self, behind: u64, was: u64) -> Option<()> {
        let (block, place) = (self.blocks.get_mut(self.count / Words::COUNT)?, self.count % Words::COUNT);
        // What is left of the last block says the same again.
        block.behind.get_mut(place..)?.fill(behind);
        block.was.get_mut(place..)?.fill(was);
        self.count += 1;
        Some(())
    }

    /// On rbp of the frame in hand, which is `fp`. `None`: that cannot be said.
    pub(super) fn on_rbp(&mut self, fp: u64) -> Option<()> {
        match self.rbp {
            Rbp::AtFirst => self.on_fp = self.fp == Some(fp) && fp != 0,
            Rbp::Below(address) => return self.on(address, fp),
            Rbp::Lost => return None,
        }
        self.on_fp.then_some(())
    }

    /// On what this step does, which leads to the next frame.
    pub(super) fn on_step(&mut self, step: &Step) -> Option<()> {
        if step.rule.from_rbp() {
            if step.rule == Short::END || step.rule == Short::NONE {
                return None;
            }
            self.on_rbp(step.cfa.wrapping_sub(step.rule.cfa(0)))?;
        }
        self.on(step.cfa, step.caller)?;
        match step.rule.field(RBP_FIELD) {
            0 => {}
            LOST => self.rbp = Rbp::Lost,
            field => self.rbp = Rbp::Below(step.cfa.wrapping_sub(8 * field)),
        }
        Some(())
    }

    /// So many words.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// So many blocks of words.
    pub(super) fn blocks(&self) -> usize {
        self.count.div_ceil(Words::COUNT)
    }

    /// rbp of the first frame, if something depends on it; else 0.
    pub(super) fn fp(&self) -> u64 {
        self.fp.filter(|_| self.on_fp).unwrap_or(0)
    }
}
