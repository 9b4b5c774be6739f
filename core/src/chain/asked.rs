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

/// Short rules, and under what they are stored. `stamp`, never 0, stands for all that they depend on.
#[derive(Clone, Copy)]
pub struct Rules<'t, const WORDS: usize> {
    /// The table.
    pub table: &'t ShortRules<WORDS>,
    /// Theirs.
    pub salt: Salt,
    /// See above.
    pub stamp: u64,
}
