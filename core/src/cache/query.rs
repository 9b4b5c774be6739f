//! The arguments of a capture by short rules: the frame that it begins with, and the rules.

use crate::cache::short::{Salt, ShortRules};
use crate::regs::{UCONTEXT_FP, UCONTEXT_PC, UCONTEXT_SP};

/// Set in the key of a rule for an exact pc: such a rule may differ from that of a return address with the same lookup
/// address.
pub const EXACT_KEY: u64 = 1 << 63;

/// A frame of a stack, as caches look it up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// Its pc (process address).
    pub pc: u64,
    /// Its stack pointer (process address).
    pub sp: u64,
}

impl At {
    /// No frame.
    pub const NOWHERE: At = At { pc: 0, sp: 0 };
}

/// The frame that a stack begins with.
#[derive(Clone, Copy, Debug)]
pub struct Top {
    /// Its pc (process address).
    pub pc: u64,
    /// Whether the pc is an interrupted instruction; otherwise it is a return address.
    pub exact: bool,
    /// Its stack pointer (process address).
    pub sp: u64,
    /// The value of its rbp. If it is no frame pointer, a rule that counts from it fails its checks.
    pub fp: u64,
}

impl Top {
    /// Its pc, marked with [`EXACT_KEY`] if it is exact.
    #[inline(always)]
    pub fn key(&self) -> u64 {
        self.pc | if self.exact { EXACT_KEY } else { 0 }
    }

    /// The frame, with [`Top::key`] in place of its pc.
    #[inline(always)]
    pub fn keyed(&self) -> At {
        At { pc: self.key(), sp: self.sp }
    }

    /// The frame that a signal has interrupted.
    ///
    /// # Safety
    /// `ucontext` must point to a ucontext_t as the kernel passes it to a signal handler.
    #[inline(always)]
    pub unsafe fn interrupted(ucontext: *const u8) -> Top {
        // SAFETY: the caller guarantees the whole structure; the offsets lie in its registers.
        let read = |offset: u64| unsafe { ucontext.add(offset as usize).cast::<u64>().read_unaligned() };
        Top { pc: read(UCONTEXT_PC), exact: true, sp: read(UCONTEXT_SP), fp: read(UCONTEXT_FP) }
    }
}

/// The source of a validity epoch.
pub trait Validity {
    /// Calls `each` with the process address and the value of each word that the epoch follows from, and returns the
    /// epoch that follows from these values. `None`: there is no epoch.
    fn words(&self, each: &mut dyn FnMut(u64, u64)) -> Option<u64>;
}

/// Short rules with their key and validity.
#[derive(Clone, Copy)]
pub struct Rules<'t, const WORDS: usize> {
    /// The table of short rules.
    pub table: &'t ShortRules<WORDS>,
    /// Mixed into the keys of their entries.
    pub salt: Salt,
    /// The validity epoch, never 0: while it is the same, the same pc has the same rule.
    pub stamp: u64,
    /// The words of memory that `stamp` follows from, for memories that compare them themselves.
    pub validity: &'t dyn Validity,
}
