//! SFrame, read in place: bounded, allocation-free, usable inside a signal handler.
//!
//! [`find`] goes from a section and a pc to a [`Rule`]: the table's header ([`table`]), binary search in its index and
//! the function's descriptor ([`function`]), the rows up to the pc ([`row`]), and the row turned into a rule
//! ([`rule`]). [`visit`] goes over everything in a section, for dumps and for checks. Versions 1, 2 (with and without
//! its errata) and 3, the encodings of AMD64, AArch64 and s390x, both byte orders, one table or several back to back.
//!
//! # What is checked, and when
//! Tables are hostile: nothing relies on a check that was made earlier. The numbers are those of [`Check`]; 18 and 20
//! to 24 are about the current frame, not about the table, so no table can fail them.
//!
//! | when | checks |
//! |---|---|
//! | each table that a lookup meets | 1-6: it lies in its section, its kind and machine are defined, its parts fit |
//! | each probe of the index | 7: starts ascend among the probes made |
//! | the one function | 8-10, 12, 13, 15: in the text, rows inside, encodings defined, counts credible |
//! | each row up to the wanted one | 10, 11, 13, 14, 16, 19: inside, ascending, word count, sums in 64 bits |
//! | the wanted row | 17: registers exist, reserved bits are clear |
//! | every read of a table | 24: at any alignment, through the fallible reader ([`bytes::Input::number`]) |
//!
//! [`visit`] makes checks 1 to 17 and 19 on everything, and continues after a damaged function.
//!
//! The walk ([`uunwind_core::walk`]) executes the rules of all sources alike, and makes the other checks at every step.
//! `tests/steps.rs` tests each of them with a table that passes all of the above:
//!
//! - 18: a register that a rule names has a value in this frame: any at the leaf, rsp and rbp in outer frames
//!   (`Packed::cfa`, `Packed::advance`; [`StopReason::UnknownRegister`]).
//! - 20: a CFA counts from a frame pointer at or above the stack pointer (`walk::advance`; [`StopReason::BadCfa`]).
//! - 21: the CFA lies above the stack pointer, at a multiple of 8; in the leaf frame, with the return address in a
//!   register, it may equal the stack pointer (`walk::advance`; [`StopReason::BadCfa`]).
//! - 22: the return address is readable; a register whose slot is not is unknown in the outer frames (`Reader::word`;
//!   [`StopReason::UnreadableStack`]).
//! - 23: the return address is not zero, something covers it, and there are at most 4,096 frames (`walk::advance`,
//!   `Env::look`, `Walk::push`; [`StopReason::NullReturnAddress`], [`StopReason::NoOwner`],
//!   [`StopReason::TooManyFrames`]).
//!
//! The end of a stack is not available in every process (coroutines bring their own stacks), so "inside the stack" in
//! checks 21 and 22 means: above the previous frame, and readable.
//!
//! # Bounds of one lookup
//! [`MAX_TABLES`] headers, 33 probes a table, in unsorted tables together [`MAX_UNSORTED`] descriptors,
//! [`function::MAX_EQUAL`] steps back over empty functions, and the rows of one function, at most [`row::MAX_ROWS`].
//!
//! Sources: the SFrame specification, versions 1 to 3, with errata
//! (<https://sourceware.org/binutils/docs/sframe-spec.html>; `libsframe/doc` in GNU binutils,
//! <https://sourceware.org/git/?p=binutils-gdb.git;a=tree;f=libsframe/doc>).
#![forbid(unsafe_code)]
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
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;

/// Limit of the tables of one section that a lookup reads.
pub const MAX_TABLES: u32 = 64;
/// Limit of the descriptors of unsorted tables that a lookup reads.
pub const MAX_UNSORTED: u32 = 4096;

/// The descriptor that covers a pc, and the rule at the pc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<R = Rule> {
    /// The rule that leads to the caller, or the reason why there is none. SFrame describes the caller's place and its
    /// frame pointer, and none of the other callee-saved registers, so a rule leaves those unknown.
    pub rule: Result<R, StopReason>,
    /// The descriptor's range: the function, or one part of it.
    pub function: Span,
}

/// This machine's rule for the code at `lookup`: the pc itself in an interrupted frame, `pc - 1` for a return address.
///
/// ```
/// # #[cfg(target_arch = "x86_64")] {
/// use uunwind_core::memory::{Reader, Region};
/// use uunwind_core::span::Span;
/// use uunwind_sframe::{find, Section};
///
/// // Version 2, sorted, starts relative to their fields, AMD64, return address at CFA - 8; 1 function, 2 rows.
/// let mut bytes = vec![0xe2, 0xde, 2, 5, 3, 0, 0xf8, 0];
/// bytes.extend([1u32, 2, 6, 0, 20].iter().flat_map(|number| number.to_le_bytes()));
/// // The function: 8 bytes of code, 0x1000 bytes before this field; rows from 0 on, 2 of them.
/// bytes.extend((-0x1000i32).to_le_bytes());
/// bytes.extend([8u32, 0, 2].iter().flat_map(|number| number.to_le_bytes()));
/// bytes.extend([0, 0, 0, 0]);
/// // Rows: start, kind (CFA from rsp, one offset of a byte), the offset.
/// bytes.extend([0, 1 | 1 << 1, 8, 1, 1 | 1 << 1, 16]);
///
/// let section = Section::new(Span::sized(0x8000, bytes.len() as u64), Span::new(0x7000, 0x8000));
/// // Memory is read by words.
/// bytes.extend([0, 0]);
/// let regions = [Region { address: 0x8000, bytes: &bytes }];
/// let start = 0x8000 + 28 - 0x1000;
/// let mut offset_at = |pc| find(&section, pc, &mut Reader::recorded(&regions))?.rule.map(|rule| rule.cfa_offset);
/// assert_eq!([offset_at(start), offset_at(start + 1)], [Ok(8), Ok(16)]);
/// assert!(offset_at(start + 8).is_err());
/// # }
/// ```
/// Async-signal-safe; for bounds and checks see the crate's page.
///
/// Errors: [`StopReason::NoRule`] (no descriptor covers the address), [`StopReason::BadUnwindInfo`] (a check failed, or
/// the tables are for another machine), [`StopReason::UnreadableUnwindInfo`], [`StopReason::UnsupportedRule`] (more
/// tables, or more unsorted descriptors, than the limits allow).
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
