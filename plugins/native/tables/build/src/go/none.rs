//! A CPU for which Go's rows are not checked so far: those of no function of Go's are used, and its frame pointers lead
//! on.

use std::marker::PhantomData;
use uunwind_core::rule::Rule;
use uunwind_eh_frame::entry::Entry;
use uunwind_elf::{Image, Symbol};

/// Go counts offsets in words of 4 bytes; other compilers count in words of 8.
const DATA_ALIGNMENT: i64 = -4;

/// As on x86-64.
pub type Outermost = [Option<Symbol>; 2];
/// As on x86-64.
pub type Depth = (u64, Option<i64>);

/// A program with code of Go.
pub struct Go<'a>(PhantomData<&'a Image>);

impl<'a> Go<'a> {
    /// For an object.
    pub fn new(_: &'a Image) -> Go<'a> {
        Go(PhantomData)
    }

    /// Whether a CIE of `.debug_frame` is Go's.
    pub fn wrote(cie: &Entry) -> bool {
        cie.data_align == DATA_ALIGNMENT
    }

    /// The rule of a row: as it is.
    pub fn rule(&self, _: &Entry, rule: Rule, _: Option<Saves>) -> Rule {
        rule
    }

    /// What a function's code says of its rows: nothing.
    pub fn agrees(&self, _: &Entry, _: &[Depth]) -> Option<Checked> {
        None
    }
}

/// As on x86-64; there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checked {
    /// As on x86-64.
    pub saved_from: Option<u64>,
    /// As on x86-64.
    pub kept: Option<Kept>,
}

/// As on x86-64; there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// As on x86-64.
    pub from: u64,
    /// As on x86-64.
    pub until: u64,
    /// As on x86-64.
    pub again: u64,
}

impl Kept {
    /// As on x86-64.
    pub fn rule(&self) -> Rule {
        Rule::end()
    }
}

/// As on x86-64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saves {
    /// As on x86-64.
    Later,
    /// As on x86-64.
    Done,
}

/// Where the functions are in which Go's stacks end: not looked for.
pub fn outermost(_: &Image) -> Outermost {
    [None, None]
}
