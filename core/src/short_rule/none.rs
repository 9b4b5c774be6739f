//! AArch64 has no rules in one word so far: what stands here is never made, and costs the walk nothing. Its rules are found in the
//! object's rule table or in the larger table ([`crate::pc_cache`]).

use crate::rule::{Packed, Rule};

/// A rule in one word: there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Short {}

impl Short {
    /// The outermost frame's, on CPUs that have it.
    pub const fn of_end() -> Option<Short> {
        None
    }

    /// The rule in one word, if it fits: it does not.
    pub fn new(_: &Rule) -> Option<Short> {
        None
    }

    /// The same of a rule in its larger form.
    pub fn of(_: Packed) -> Option<Short> {
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

/// A generation.
#[derive(Clone, Copy)]
pub struct Salt;

impl Salt {
    /// Of this generation.
    pub fn new(_: u64) -> Salt {
        Salt
    }
}

/// The table, always empty.
pub struct ShortRules<const BUCKETS: usize>;

impl<const BUCKETS: usize> ShortRules<BUCKETS> {
    /// An empty table.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> ShortRules<BUCKETS> {
        ShortRules
    }

    /// There is none.
    #[inline(always)]
    pub fn get(&self, _: u64, _: Salt) -> Option<Short> {
        None
    }

    /// There is none.
    #[inline(always)]
    pub fn search(&self, _: u64, _: Salt) -> Option<Short> {
        None
    }

    /// There is none to be stored.
    pub fn put(&self, _: u64, _: Salt, rule: Short) {
        match rule {}
    }
}
