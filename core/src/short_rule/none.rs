//! AArch64 has no rules in one word so far: what stands here is never made, and costs the walk nothing. Its rules are found in the
//! object's rule table or in the larger table ([`crate::pc_cache`]).

use crate::rule::{Packed, Rule};

/// A rule in one word: there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Short {}

impl Short {
    /// The rule in one word, if it fits: it does not.
    pub fn new(_: &Rule) -> Option<Short> {
        None
    }

    /// The word, as tables keep it.
    pub const fn word(self) -> u64 {
        match self {}
    }

    /// The rule that [`Short::word`] gave.
    #[inline(always)]
    pub const fn from_word(_: u64) -> Option<Short> {
        None
    }

    /// Whether the CFA counts from the frame pointer.
    #[inline(always)]
    pub fn from_rbp(self) -> bool {
        match self {}
    }

    /// The frame's CFA.
    #[inline(always)]
    pub fn cfa(self, _: u64) -> u64 {
        match self {}
    }

    /// Which callee-saved registers it does not simply leave alone.
    pub fn touched(self) -> u8 {
        match self {}
    }

    /// The rule that this one stands for.
    pub fn pack(self) -> Packed {
        match self {}
    }
}
