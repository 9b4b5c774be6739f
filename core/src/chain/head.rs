//! Frames that lead to those that are known: a stack's innermost ones, as it was met twice.

use super::depends::Depends;
use super::Step;
use crate::memory::guarded::Words;
use crate::memory::Bare;

/// So many frames at most lead to where something is known.
pub(super) const NEAR: usize = 8;

/// Some of them, and the answer that was given last.
#[repr(C, align(64))]
pub(super) struct Head {
    /// rbp of the innermost frame; 0: nothing depends on it.
    pub(super) fp: u64,
    /// So many words the frames are.
    pub(super) own: usize,
    /// For so much room, so many words of what is known complete the answer, if so many blocks hold.
    pub(super) room: usize,
    pub(super) further: usize,
    pub(super) blocks: usize,
    /// It is complete then.
    pub(super) ends: bool,
    /// What they depend on: so many words.
    pub(super) on: u8,
    /// As they are told.
    pub(super) words: [u64; NEAR],
    /// What they depend on.
    pub(super) block: Words,
}

impl Head {
    pub(super) const NONE: Head = Head {
        fp: 0,
        own: 0,
        room: 0,
        further: 0,
        blocks: 0,
        ends: false,
        on: 0,
        words: [0; NEAR],
        block: Words { behind: [0; Words::COUNT], was: [0; Words::COUNT] },
    };

    /// Whether the frames lead where they did, if rbp of the innermost one is `fp`.
    #[inline(always)]
    pub(super) fn holds(&self, fp: u64, bare: Bare) -> bool {
        if self.fp != 0 && self.fp != fp {
            return false;
        }
        let words = self.block.behind.iter().zip(&self.block.was).take(usize::from(self.on));
        for (behind, was) in words {
            if bare.word_just_below(*behind) != *was {
                return false;
            }
        }
        true
    }

    /// That `words` are told of the frames from `top` on, whose steps are these; `fp` is rbp of the innermost one, and `fp_known` that of the one to
    /// which they lead, or 0 if nothing depends on it. `None`: that is too much to be written down.
    pub(super) fn learn(&mut self, fp: u64, words: &[u64], steps: &[Step], fp_known: u64) -> Option<()> {
        let mut depends = Depends::new(core::slice::from_mut(&mut self.block), Some(fp));
        for step in steps {
            depends.on_step(step)?;
        }
        if fp_known != 0 {
            depends.on_rbp(fp_known)?;
        }
        (self.fp, self.on, self.own, self.room) = (depends.fp(), depends.count() as u8, steps.len(), 0);
        self.words.get_mut(..steps.len())?.copy_from_slice(words.get(..steps.len())?);
        Some(())
    }
}
