//! SFrame, read in place: bounded, allocation-free, usable inside a signal handler.
//!
//! [`find`] goes from a section and a pc to a [`Rule`]: the table's header ([`table`]), binary search in its index and
//! the function's descriptor ([`function`]), the rows up to the pc ([`row`]), and the row turned into a rule ([`rule`]).
//! [`visit`] goes over everything in a section, for dumps and for checks. Versions 1, 2 (with and without its errata) and 3,
//! the encodings of AMD64, AArch64 and s390x, both byte orders, one table or several back to back.
//!
//! # What is checked, and when
//! Tables are hostile: nothing depends on a check made earlier. The numbers are those of [`Check`]; 18 and 20 to 24 are
//! about the frame in hand, not about the table, so no table can fail them.
//!
//! | when | checks |
//! |---|---|
//! | each table that a lookup meets | 1-6: it lies in its section, is of a known kind and for a known machine, its parts fit |
//! | each probe of the index | 7: starts ascend among the probes made |
//! | the one function | 8-10, 12, 13, 15: in the text, rows inside, encodings known, counts credible |
//! | each row up to the wanted one | 10, 11, 13, 14, 16, 19: inside, ascending, word count, sums in 64 bits |
//! | the wanted row | 17: registers exist, reserved bits are clear |
//! | every read of a table | 24: at any alignment, through the fallible reader ([`bytes::Input::number`]) |
//!
//! [`visit`] makes checks 1 to 17 and 19 on everything, and goes on behind a damaged function.
//!
//! The walk ([`uunwind_core::walk`]) executes the rules of all sources alike, and makes the rest at every step; each has a
//! test in `tests/steps.rs`, by a table that passes all of the above:
//!
//! | | check | where | the walk ends with |
//! |---|---|---|---|
//! | 18 | a register that a rule names is known in this frame: any at the topmost, rsp and rbp further out | `Packed::cfa`, `Packed::advance` | [`StopReason::UnknownRegister`] |
//! | 20 | a CFA counts from a frame pointer at or above the stack pointer | `walk::advance` | [`StopReason::BadCfa`] |
//! | 21 | the CFA lies above the stack pointer (or at it, at the topmost frame, with the return address in a register), at a multiple of 8 | `walk::advance` | [`StopReason::BadCfa`] |
//! | 22 | the return address can be read; a register whose slot cannot be is unknown from there on | `Reader::word` | [`StopReason::UnreadableStack`] |
//! | 23 | the return address is not zero, something covers it, and frames are at most 4,096 | `walk::advance`, `Env::rule`, `Walk::push` | [`StopReason::NullReturnAddress`], [`StopReason::NoOwner`], [`StopReason::TooManyFrames`] |
//!
//! Where a stack ends is not known in every process (coroutines bring their own), so "inside the stack" of checks 21 and 22
//! is: outwards and readable.
//!
//! # Bounds of one lookup
//! [`MAX_TABLES`] headers, 33 probes a table, in unsorted tables together [`MAX_UNSORTED`] descriptors,
//! [`function::MAX_EQUAL`] steps back over empty functions, and the rows of one function, at most [`row::MAX_ROWS`].
//!
//! Sources: the SFrame specification, versions 1 to 3, with errata (GNU binutils, libsframe/doc).
#![cfg_attr(not(test), no_std)]

pub mod bytes;
pub mod check;
pub mod function;
pub mod row;
pub mod rule;
pub mod table;
mod visit;

pub use bytes::Section;
pub use check::{Check, Fault};
pub use visit::{visit, Visitor};

use bytes::Input;
use rule::{Cpu, Native};
use table::Table;
use uunwind_core::memory::Reader;
use uunwind_core::rule::Rule;
use uunwind_core::stop_reason::StopReason;

/// At most so many tables of one section are looked at.
pub const MAX_TABLES: u32 = 64;
/// At most so many descriptors of unsorted tables are looked at in one lookup.
pub const MAX_UNSORTED: u32 = 4096;

/// What was found for a pc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<R = Rule> {
    /// How to get to the caller, or why that cannot be told. SFrame knows where the caller is and its frame pointer; of the
    /// other callee-saved registers it knows nothing, so a rule leaves them unknown.
    pub rule: Result<R, StopReason>,
    /// The descriptor's range: the function, or one part of it.
    pub function: (u64, u64),
}

/// This machine's rule for the code at `lookup`: the pc itself in an interrupted frame, `pc - 1` for a return address.
///
/// Async-signal-safe; for bounds and checks see the crate's page.
///
/// Errors: [`StopReason::NoRule`] (no descriptor covers the address), [`StopReason::BadUnwindInfo`] (a check failed, or
/// the tables are for another machine), [`StopReason::UnreadableUnwindInfo`], [`StopReason::UnsupportedRule`] (more
/// tables, or more unsorted descriptors, than a lookup may look at).
pub fn find(section: &Section, lookup: u64, reader: &mut Reader<'_>) -> Result<Answer, StopReason> {
    find_for::<Native>(section, lookup, reader)
}

/// As [`find`], for code of any CPU.
pub fn find_for<C: Cpu>(
    section: &Section,
    lookup: u64,
    reader: &mut Reader<'_>,
) -> Result<Answer<C::Rule>, StopReason> {
    let mut input = Input::new(section, reader);
    let mut at = 0;
    let mut unsorted = MAX_UNSORTED;
    for _ in 0..MAX_TABLES {
        let Some(table) = Table::read(at, &mut input).map_err(Fault::reason)? else { return Err(StopReason::NoRule) };
        if table.machine != C::MACHINE {
            return Err(StopReason::BadUnwindInfo);
        }
        let found = if table.is_sorted() {
            table.search(lookup, &mut input).map_err(Fault::reason)?
        } else {
            unsorted = unsorted.checked_sub(table.functions).ok_or(StopReason::UnsupportedRule)?;
            table.scan(lookup, &mut input).map_err(Fault::reason)?
        };
        if let Some(function) = found {
            let row = function.row_at(&table, lookup, &mut input).map_err(Fault::reason)?;
            return Ok(Answer {
                rule: rule::to_rule::<C>(row.as_ref(), &table, &function),
                function: function.range(),
            });
        }
        at = table.next;
    }
    Err(StopReason::UnsupportedRule)
}
