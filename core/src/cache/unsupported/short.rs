//! AArch64 has no rules in one word so far. No value of [`Short`] exists, so the compiler removes what handles them.
//! Rules are found in the object's rule table or in the larger table ([`crate::cache::rules`]).

use crate::rule::{Packed, Rule};

/// A rule in one word. No value of it exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Short {}

impl Short {
    /// The outermost frame's, on CPUs that have it.
    pub const fn of_end() -> Option<Short> {
        None
    }

    /// The rule in one word: it never fits.
    pub fn new(_: &Rule) -> Option<Short> {
        None
    }

    /// The rule in one word, the outermost frame's, too: it never fits.
    pub fn of_any(_: &Rule) -> Option<Short> {
        None
    }

    /// The rule in one word, from a packed rule: it never fits.
    pub fn of(_: Packed) -> Option<Short> {
        None
    }

    /// The word, as tables keep it.
    pub const fn word(self) -> u64 {
        match self {}
    }

    /// The rule with this word: no word is one.
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

/// The key of an entry besides the pc: nothing, since the table is empty.
#[derive(Clone, Copy)]
pub struct Salt;

impl Salt {
    /// As on x86-64.
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

    /// Always `None`.
    #[inline(always)]
    pub fn get_first(&self, _: u64, _: Salt) -> Option<Short> {
        None
    }

    /// Always `None`.
    #[inline(always)]
    pub fn get(&self, _: u64, _: Salt) -> Option<Short> {
        None
    }

    /// Never called, since no rule exists that could be stored.
    pub fn put(&self, _: u64, _: Salt, rule: Short) {
        match rule {}
    }
}
