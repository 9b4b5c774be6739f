//! What a stack is asked for by: the frame that it begins with, and the rules that lead on from it.

use crate::regs::{UCONTEXT_FP, UCONTEXT_PC, UCONTEXT_SP};
use crate::short_rule::{Salt, ShortRules};

/// Marks a key of the table of short rules as an exact pc's: a rule may depend on the pc itself, not only on where it was looked up.
pub const EXACT_KEY: u64 = 1 << 63;

/// The frame that a stack begins with.
#[derive(Clone, Copy, Debug)]
pub struct Top {
    /// Its pc.
    pub pc: u64,
    /// Whether that was interrupted; else it is a return address.
    pub exact: bool,
    /// Its stack pointer.
    pub sp: u64,
    /// Its rbp.
    pub fp: u64,
}

impl Top {
    /// Its pc, marked with [`EXACT_KEY`] if it is exact.
    #[inline(always)]
    pub fn key(&self) -> u64 {
        self.pc | if self.exact { EXACT_KEY } else { 0 }
    }

    /// What a signal has interrupted.
    ///
    /// # Safety
    /// `ucontext` must point to a ucontext_t as the kernel hands it to a signal handler.
    #[inline(always)]
    pub unsafe fn interrupted(ucontext: *const u8) -> Top {
        // SAFETY: the caller vouches for the whole structure; the offsets lie in its registers.
        let read = |offset: u64| unsafe { ucontext.add(offset as usize).cast::<u64>().read_unaligned() };
        Top { pc: read(UCONTEXT_PC), exact: true, sp: read(UCONTEXT_SP), fp: read(UCONTEXT_FP) }
    }
}

/// What short rules depend on besides the pc.
pub trait Surroundings {
    /// Shows the words that the stamp follows from: their addresses, and what they are. The stamp that follows from just that; `None`: there is none.
    fn words(&self, each: &mut dyn FnMut(u64, u64)) -> Option<u64>;
}

/// Short rules, and under what they are stored. `stamp`, never 0, stands for all that they depend on.
#[derive(Clone, Copy)]
pub struct Rules<'t, const WORDS: usize> {
    /// The table.
    pub table: &'t ShortRules<WORDS>,
    /// Theirs.
    pub salt: Salt,
    /// See above.
    pub stamp: u64,
    /// Where the stamp is from.
    pub surroundings: &'t dyn Surroundings,
}
