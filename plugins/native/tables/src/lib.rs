//! Rule tables: everything in an object's unwind information, as rules by pc, built once per build-id outside the
//! target.
//!
//! [`format`] describes every byte. [`Table::new`] checks a table's structure once; [`Table::find`] then costs one load
//! of the index, a search among the rows of one block without a branch that depends on the data, and one load of the
//! rule. Every offset that is read from the table is checked, so a damaged table gives a wrong rule or none, but never
//! a read outside of it.
//!
//! Bounded: at most 25 rows are read for a rule, and at most [`FUNCTION_ROWS`] for a function's range.
#![cfg_attr(not(test), no_std)]

pub mod format;
pub mod rules;

use format::{TableHead, FIRST_RULE, HEAD_BYTES, MAGIC, ROW_BYTES, SHIFTS};
use uunwind_core::cache::short::Short;
use uunwind_core::rule::Packed;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;

/// Limit of rows that are read, in each direction, to find the beginning and the end of a function.
pub const FUNCTION_ROWS: usize = 1 << 16;

/// A table whose structure was checked. It is one word, since walks keep it on the stack; its head is read each time,
/// and must not change.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    head: &'a TableHead,
}

/// What a table has for a pc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableAnswer {
    /// This rule.
    Short(Short),
    /// A rule that has no short form, or the reason why there is none.
    Long(Packed),
    /// A function covers the pc, but its rule depends on more than the address: the unwind information itself
    /// must be interpreted.
    Ask,
    /// No function covers the pc.
    Nothing,
}

/// The reason why bytes are not accepted as a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// They do not begin at a multiple of 8.
    Misaligned,
    /// They are fewer than the head has.
    Short,
    /// They have another first word: no table, or a table of another version.
    Magic(u32),
    /// The parts do not fill the bytes exactly, or the index has a form that no builder makes.
    Parts,
}

impl<'a> Table<'a> {
    /// The table in these bytes. Checks its structure in constant time, but not its checksum ([`format::checksum`]),
    /// which is checked once when the table is read from a file.
    ///
    /// Async-signal-safe.
    pub fn new(bytes: &'a [u8]) -> Result<Table<'a>, Refused> {
        if !(bytes.as_ptr() as usize).is_multiple_of(8) {
            return Err(Refused::Misaligned);
        }
        let head = TableHead::read(bytes).ok_or(Refused::Short)?;
        if head.magic != MAGIC {
            return Err(Refused::Magic(head.magic));
        }
        let (row_bytes, index_bytes) = (u64::from(head.row_bytes), u64::from(head.index_bytes));
        let entries = u64::from(head.blocks) + 1;
        let end =
            HEAD_BYTES as u64 + u64::from(head.rules) * 4 + entries * index_bytes + u64::from(head.rows) * row_bytes;
        let sizes = ROW_BYTES.contains(&u32::from(head.row_bytes)) && matches!(head.index_bytes, 2 | 4);
        let bits = SHIFTS.contains(&u32::from(head.shift)) && head.number_bits() > 0;
        if end != bytes.len() as u64 || !sizes || !bits || head.rows < 2 {
            return Err(Refused::Parts);
        }
        // SAFETY: long enough and aligned, as was just checked; any bytes are a valid head, whose layout is C's.
        Ok(Table { head: unsafe { &*bytes.as_ptr().cast() } })
    }

    /// The key that binds the table to its object ([`uunwind_core::headers::unwind_key`]).
    pub fn key(&self) -> u64 {
        self.head.key
    }

    /// The words of the rules, which follow the head.
    #[inline(always)]
    fn rules(&self) -> &'a [u32] {
        // SAFETY: `new` checked that the parts follow the head without gaps inside the bytes, which are 8-aligned.
        // Any bytes are valid integers.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self.head).add(1).cast(), self.head.rules as usize) }
    }

    /// Address of the index.
    #[inline(always)]
    fn index(&self) -> *const u8 {
        self.rules().as_ptr_range().end.cast()
    }

    /// Address of the rows.
    #[inline(always)]
    fn row_data(&self) -> *const u8 {
        let bytes = (self.head.blocks as usize).wrapping_add(1).wrapping_mul(usize::from(self.head.index_bytes));
        self.index().wrapping_add(bytes)
    }

    /// The number of a block's first row, and of the first row after its last one.
    #[inline(always)]
    fn block(&self, block: u64) -> Option<(u32, u32)> {
        if block >= u64::from(self.head.blocks) {
            return None;
        }
        let bytes = self.head.index_bytes;
        // SAFETY: two entries of 2 or 4 bytes. With 2 bytes each, 4 more bytes are read; the index is followed by at
        // least two rows.
        let both = unsafe { self.index().add(block as usize * usize::from(bytes)).cast::<u64>().read_unaligned() };
        let bits = u32::from(bytes) * 8;
        let mask = u32::MAX >> (32 - bits);
        let (from, to) = (both as u32 & mask, (both >> bits) as u32 & mask);
        (from <= to && to <= self.head.rows).then_some((from, to))
    }

    /// The row that begins `at` bytes after the first one, in the highest bits of a word; the lower bits hold what
    /// precedes it.
    ///
    /// # Safety
    /// A row must begin there.
    #[inline(always)]
    unsafe fn row_at(&self, rows: *const u8, at: usize) -> u32 {
        // SAFETY: the word ends where the row does. It begins at most 2 bytes before the rows, and the index has at
        // least 4.
        unsafe { rows.add(at + self.row_bytes()).cast::<u32>().sub(1).read_unaligned() }
    }

    /// A row by its number; `None` beyond the last one.
    fn row_word(&self, row: usize) -> Option<u32> {
        // SAFETY: the row exists.
        (row < self.row_count()).then(|| unsafe { self.row_at(self.row_data(), row * self.row_bytes()) })
    }

    /// The rule for a file address. Async-signal-safe.
    #[inline(always)]
    pub fn find(&self, address: u64) -> TableAnswer {
        // SAFETY: `row` returns the offset of a row.
        self.row(address).map_or(TableAnswer::Nothing, |at| self.rule(unsafe { self.row_at(self.row_data(), at) }))
    }

    /// Why an address that unwind information describes has no rule in the table, as a failed rule. If no other source
    /// has one either, the stack ends with this reason: whoever followed the frame pointer of described code would
    /// guess. Async-signal-safe.
    pub fn described_without_rule(&self, address: u64) -> Option<Packed> {
        match self.find(address) {
            TableAnswer::Ask => Some(Packed::failed(StopReason::UnsupportedRule)),
            TableAnswer::Long(rule) => Some(rule).filter(|rule| rule.is_failed()),
            TableAnswer::Short(_) | TableAnswer::Nothing => None,
        }
    }

    /// Has the row that [`Table::find`] will read for a file address loaded: it waits for no memory here, whereas the
    /// look-up waits for the index first, and then for the row. Async-signal-safe.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn prefetch(&self, address: u64) {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        if let Some((from, _)) = self.block(address.wrapping_sub(self.head.base) >> self.shift()) {
            let row = self.row_data().wrapping_add(from as usize * self.row_bytes());
            // SAFETY: a prefetch reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(row.cast()) };
        }
    }

    /// Whether the rule for a file address was made from machine code, since nothing describes the function.
    /// Async-signal-safe.
    pub fn is_by_code(&self, address: u64) -> bool {
        let number = self.row(address).map(|at| {
            // SAFETY: `row` returns the offset of a row.
            self.number(unsafe { self.row_at(self.row_data(), at) })
        });
        let at = number.and_then(|number| number.checked_sub(FIRST_RULE));
        at.is_some_and(|at| rules::is_by_code(self.rules(), at as usize))
    }

    /// The function that covers a file address, as file addresses, if unwind information describes it: where functions
    /// of bare machine code begin and end is known less well. Async-signal-safe.
    pub fn function(&self, address: u64) -> Option<Span> {
        let row = self.row(address)?.checked_div(self.row_bytes())?;
        if self.row_word(row).is_none_or(|row| self.number(row) == 0) || self.is_by_code(address) {
            return None;
        }
        let begins = |row: &usize| self.row_word(*row).is_some_and(|row| self.begins(row));
        let ends = |row: &usize| self.row_word(*row).is_some_and(|row| self.begins(row) || self.number(row) == 0);
        let first = (0..=row).rev().take(FUNCTION_ROWS).find(begins)?;
        let end = (row + 1..self.row_count()).take(FUNCTION_ROWS).find(ends)?;
        Some(Span::new(self.address_of(first)?, self.address_of(end)?))
    }

    #[inline(always)]
    fn shift(&self) -> u32 {
        u32::from(self.head.shift)
    }

    #[inline(always)]
    fn row_bytes(&self) -> usize {
        usize::from(self.head.row_bytes)
    }

    /// The row that covers a file address, as an offset in bytes from the first row.
    #[inline(always)]
    fn row(&self, address: u64) -> Option<usize> {
        let (offset, shift, size) = (address.wrapping_sub(self.head.base), self.shift(), self.row_bytes());
        let (from, to) = self.block(offset >> shift)?;
        let last = (offset as u32) << (32 - shift) | u32::MAX >> shift;
        let rows = self.row_data();
        // The rows of a block ascend: a binary search for the last one at or before the address, without a branch on
        // what it reads.
        let (mut at, mut len) = (from as usize * size, (to - from).min(1 << shift) as usize);
        while len > 1 {
            let half = len / 2;
            let middle = at + half * size;
            // SAFETY: it is one of the block's rows, all of which lie in the table.
            at = if unsafe { self.row_at(rows, middle) } <= last { middle } else { at };
            len -= half;
        }
        // SAFETY: the block is not empty, and this is one of its rows.
        if len > 0 && unsafe { self.row_at(rows, at) } <= last {
            return Some(at);
        }
        // No row of this block: the last one before it.
        at.checked_sub(size)
    }

    #[inline(always)]
    fn number(&self, row: u32) -> u32 {
        row << (self.shift() + 1) >> (32 - self.head.number_bits())
    }

    #[inline(always)]
    fn begins(&self, row: u32) -> bool {
        row << self.shift() >> 31 != 0
    }

    #[inline(always)]
    fn rule(&self, row: u32) -> TableAnswer {
        match self.number(row).checked_sub(FIRST_RULE) {
            Some(at) => rules::read(self.rules(), at as usize),
            None if self.number(row) == 0 => TableAnswer::Nothing,
            None => TableAnswer::Ask,
        }
    }

    /// File address at which a row begins.
    fn address_of(&self, row: usize) -> Option<u64> {
        let word = self.row_word(row)?;
        // The row's block is the last one that begins with this row or an earlier one.
        let (mut block, mut len) = (0u64, u64::from(self.head.blocks));
        while len > 0 {
            let half = len.div_ceil(2);
            if self.block(block + half - 1).is_some_and(|(from, _)| from as usize <= row) {
                block += half;
            }
            len -= half;
        }
        let start = block.checked_sub(1)?.checked_shl(self.shift())?;
        Some(self.head.base.wrapping_add(start).wrapping_add(u64::from(word >> (32 - self.shift()))))
    }

    /// All rows in order: the file address, whether a function begins there, and the rule. For set-up rooms and tests.
    pub fn rows(&self) -> impl Iterator<Item = (u64, bool, TableAnswer)> + '_ {
        let row = |row: usize| {
            let word = self.row_word(row)?;
            Some((self.address_of(row)?, self.begins(word), self.rule(word)))
        };
        (0..self.head.rows as usize).filter_map(row)
    }

    /// Number of rows, those of gaps included.
    pub fn row_count(&self) -> usize {
        self.head.rows as usize
    }
}
