//! Rule tables: all that an object's unwind information says, as rules by pc, built once per build-id outside the target.
//!
//! [`format`] tells every byte. [`Table::new`] checks a table's frame once; [`Table::find`] then costs one load of the index,
//! a search among the rows of one block without a branch that depends on the data, and one load of the rule. Every position
//! that is read from the table is checked, so that a damaged one gives a wrong rule or none, never a read outside of it.
//!
//! Bounded: at most 17 rows are looked at for a rule, at most [`FUNCTION_ROWS`] for a function's range.
#![cfg_attr(not(test), no_std)]

pub mod format;

use format::{Head, FIRST_RULE, HEAD_BYTES, LONG_BYTES, MAGIC, SHIFTS, SHORT_BYTES};
use uunwind_core::rule::Packed;
use uunwind_core::short_rule::Short;

/// At most so many rows are looked at, in each direction, to find where a function begins and ends.
pub const FUNCTION_ROWS: usize = 1 << 16;

/// A table whose frame was checked. One word, since walks keep it on the stack; its head is read each time, and must not
/// change.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    head: &'a Head,
}

/// What a table says of a pc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// A rule in one word.
    Short(Short),
    /// A rule that needs more, or why there is none.
    Long(Packed),
    /// A function covers it, but its rule depends on more than the place where it is looked up: the unwind information itself
    /// must be asked.
    Ask,
    /// No function covers it.
    Nothing,
}

/// Why bytes are no table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Not at a multiple of 8.
    Misaligned,
    /// Shorter than its head.
    Short,
    /// It begins otherwise: no table, or one of another version.
    Magic(u64),
    /// The parts do not fill the table exactly, or the index is of a form that no builder makes.
    Parts,
}

impl<'a> Table<'a> {
    /// A table in these bytes. Checks its frame, in constant time; not its checksum ([`format::checksum`]), which whoever
    /// reads it from a file checks once.
    ///
    /// Async-signal-safe.
    pub fn new(bytes: &'a [u8]) -> Result<Table<'a>, Refused> {
        if !(bytes.as_ptr() as usize).is_multiple_of(8) {
            return Err(Refused::Misaligned);
        }
        let head = Head::read(bytes).ok_or(Refused::Short)?;
        if head.magic != MAGIC {
            return Err(Refused::Magic(head.magic));
        }
        let entries = u64::from(head.blocks) + 1;
        let bytes_of = |count: u32, size: usize| u64::from(count) * size as u64;
        let shorts_at = HEAD_BYTES as u64;
        let longs_at = shorts_at + bytes_of(head.shorts, SHORT_BYTES);
        let index_at = longs_at + bytes_of(head.longs, LONG_BYTES);
        let rows_at = index_at + entries * 4;
        let end = rows_at + bytes_of(head.rows, 4);
        if end != bytes.len() as u64 || !SHIFTS.contains(&head.shift) {
            return Err(Refused::Parts);
        }
        // SAFETY: long enough and aligned, as was just seen; any bytes are a valid head, which is laid out as C does.
        Ok(Table { head: unsafe { &*bytes.as_ptr().cast() } })
    }

    /// The short rules, which come first.
    #[inline(always)]
    fn shorts(&self) -> &'a [u64] {
        // SAFETY: `new` saw to it that the parts follow the head, one behind the other inside the bytes, which are 8-aligned, as the sizes of
        // the first two parts are. Any bytes are valid integers.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self.head).add(1).cast(), self.head.shorts as usize) }
    }

    #[inline(always)]
    fn longs(&self) -> &'a [[u64; 3]] {
        // SAFETY: as for `shorts`.
        unsafe { core::slice::from_raw_parts(self.shorts().as_ptr_range().end.cast(), self.head.longs as usize) }
    }

    #[inline(always)]
    fn index(&self) -> &'a [u32] {
        // SAFETY: as for `shorts`.
        unsafe { core::slice::from_raw_parts(self.longs().as_ptr_range().end.cast(), self.head.blocks as usize + 1) }
    }

    #[inline(always)]
    fn all_rows(&self) -> &'a [u32] {
        // SAFETY: as for `shorts`.
        unsafe { core::slice::from_raw_parts(self.index().as_ptr_range().end, self.head.rows as usize) }
    }

    /// The rule for an address of the object, without its load bias. Async-signal-safe.
    #[inline(always)]
    pub fn find(&self, address: u64) -> Found {
        self.row(address).and_then(|row| self.all_rows().get(row)).map_or(Found::Nothing, |row| self.rule(*row))
    }

    /// The function that covers an address: `[start, end)`, without the load bias. Async-signal-safe.
    pub fn function(&self, address: u64) -> Option<(u64, u64)> {
        let row = self.row(address)?;
        if self.all_rows().get(row).is_none_or(|row| self.number(*row) == 0) {
            return None;
        }
        let first = self.all_rows().get(..=row)?.iter().rev().take(FUNCTION_ROWS).position(|row| self.begins(*row))?;
        let behind = self.all_rows().get(row + 1..)?;
        let last = behind.iter().take(FUNCTION_ROWS).position(|row| self.begins(*row) || self.number(*row) == 0)?;
        Some((self.address_of(row.checked_sub(first)?)?, self.address_of(row + 1 + last)?))
    }

    /// Index of the row that an address belongs to.
    #[inline(always)]
    fn row(&self, address: u64) -> Option<usize> {
        let offset = address.wrapping_sub(self.head.base);
        let block = (offset >> self.head.shift) as usize;
        let (from, to) = (*self.index().get(block)? as usize, *self.index().get(block.checked_add(1)?)? as usize);
        let within = offset as u32 & ((1 << self.head.shift) - 1);
        let last = within << (32 - self.head.shift) | (u32::MAX >> self.head.shift);
        // Rows of a block ascend: count those at or before the address, halving, without a branch on what is found.
        let rows = self.all_rows().get(from..to)?;
        let (mut low, mut len) = (0usize, rows.len().min(1 << self.head.shift));
        while len > 0 {
            let half = len.div_ceil(2);
            let here = rows.get(low + half - 1).is_some_and(|row| *row <= last);
            low += if here { half } else { 0 };
            len -= half;
        }
        // None in this block: the last one before it.
        (from + low).checked_sub(1)
    }

    #[inline(always)]
    fn number(&self, row: u32) -> usize {
        (row & (u32::MAX >> self.head.shift >> 1)) as usize
    }

    #[inline(always)]
    fn begins(&self, row: u32) -> bool {
        row & (1 << (31 - self.head.shift)) != 0
    }

    #[inline(always)]
    fn rule(&self, row: u32) -> Found {
        let Some(number) = self.number(row).checked_sub(FIRST_RULE as usize) else {
            return if self.number(row) == 0 { Found::Nothing } else { Found::Ask };
        };
        // Words that no builder writes: whoever interprets the unwind information finds out.
        if let Some(word) = self.shorts().get(number) {
            return Short::from_word(*word).map_or(Found::Ask, Found::Short);
        }
        let long = self.longs().get(number - self.shorts().len()).copied().and_then(Packed::from_words);
        long.map_or(Found::Ask, Found::Long)
    }

    /// Address at which a row begins.
    fn address_of(&self, row: usize) -> Option<u64> {
        let word = *self.all_rows().get(row)?;
        let block = self.index().partition_point(|first| *first as usize <= row).checked_sub(1)?;
        let start = (block as u64).checked_shl(self.head.shift)?;
        Some(self.head.base.wrapping_add(start).wrapping_add(u64::from(word >> (32 - self.head.shift))))
    }

    /// All rows in order: where each begins, whether a function begins there, and what it says. For set-up rooms and tests.
    pub fn rows(&self) -> impl Iterator<Item = (u64, bool, Found)> + '_ {
        let word = |row: usize| self.all_rows().get(row).copied().unwrap_or(0);
        (0..self.head.rows as usize)
            .filter_map(move |row| Some((self.address_of(row)?, self.begins(word(row)), self.rule(word(row)))))
    }

    /// Number of rows, of rules in one word, and of longer rules.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.head.rows as usize, self.head.shorts as usize, self.head.longs as usize)
    }
}
