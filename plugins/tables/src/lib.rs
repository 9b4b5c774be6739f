//! Rule tables: all that an object's unwind information says, as rules by pc, built once per build-id outside the target.
//!
//! [`format`] tells every byte. [`Table::new`] checks a table's frame once; [`Table::find`] then costs one load of the index,
//! a search among the rows of one block without a branch that depends on the data, and one load of the rule. Every position
//! that is read from the table is checked, so that a damaged one gives a wrong rule or none, never a read outside of it.
//!
//! Bounded: at most 25 rows are looked at for a rule, at most [`FUNCTION_ROWS`] for a function's range.
#![cfg_attr(not(test), no_std)]

pub mod format;
pub mod rules;

use format::{Head, FIRST_RULE, HEAD_BYTES, MAGIC, ROW_BYTES, SHIFTS};
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
    Magic(u32),
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
        let (row_bytes, index_bytes) = (u64::from(head.row_bytes), u64::from(head.index_bytes));
        let entries = u64::from(head.blocks) + 1;
        let end =
            HEAD_BYTES as u64 + u64::from(head.rules) * 4 + entries * index_bytes + u64::from(head.rows) * row_bytes;
        let sizes = ROW_BYTES.contains(&u32::from(head.row_bytes)) && matches!(head.index_bytes, 2 | 4);
        let bits = SHIFTS.contains(&u32::from(head.shift)) && head.number_bits() > 0;
        if end != bytes.len() as u64 || !sizes || !bits || head.rows < 2 {
            return Err(Refused::Parts);
        }
        // SAFETY: long enough and aligned, as was just seen; any bytes are a valid head, which is laid out as C does.
        Ok(Table { head: unsafe { &*bytes.as_ptr().cast() } })
    }

    /// The words of the rules, which come first.
    #[inline(always)]
    fn rules(&self) -> &'a [u32] {
        // SAFETY: `new` saw to it that the parts follow the head, one behind the other inside the bytes, which are 8-aligned.
        // Any bytes are valid integers.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self.head).add(1).cast(), self.head.rules as usize) }
    }

    /// Where the index begins.
    #[inline(always)]
    fn index(&self) -> *const u8 {
        self.rules().as_ptr_range().end.cast()
    }

    /// Where the rows begin.
    #[inline(always)]
    fn row_data(&self) -> *const u8 {
        let bytes = (self.head.blocks as usize).wrapping_add(1).wrapping_mul(usize::from(self.head.index_bytes));
        self.index().wrapping_add(bytes)
    }

    /// The numbers of a block's first row and of the first one behind its last.
    #[inline(always)]
    fn block(&self, block: u64) -> Option<(u32, u32)> {
        if block >= u64::from(self.head.blocks) {
            return None;
        }
        let bytes = self.head.index_bytes;
        // SAFETY: two entries, of 2 or of 4 bytes. In the first case 4 bytes more are read, and behind the index there are: two rows.
        let both = unsafe { self.index().add(block as usize * usize::from(bytes)).cast::<u64>().read_unaligned() };
        let bits = u32::from(bytes) * 8;
        let mask = u32::MAX >> (32 - bits);
        let (from, to) = (both as u32 & mask, (both >> bits) as u32 & mask);
        (from <= to && to <= self.head.rows).then_some((from, to))
    }

    /// The row that begins so many bytes behind the first one, in the highest bits of a word; below it stands what is before it.
    ///
    /// # Safety
    /// A row begins there.
    #[inline(always)]
    unsafe fn row_at(&self, rows: *const u8, at: usize) -> u32 {
        // SAFETY: the word ends where the row does. It begins 2 bytes before the rows at most, where the index has 4.
        unsafe { rows.add(at + self.row_bytes()).cast::<u32>().sub(1).read_unaligned() }
    }

    /// A row by its number.
    fn row_word(&self, row: usize) -> Option<u32> {
        // SAFETY: it is there.
        (row < self.row_count()).then(|| unsafe { self.row_at(self.row_data(), row * self.row_bytes()) })
    }

    /// The rule for an address of the object, without its load bias. Async-signal-safe.
    #[inline(always)]
    pub fn find(&self, address: u64) -> Found {
        // SAFETY: a row begins there.
        self.row(address).map_or(Found::Nothing, |at| self.rule(unsafe { self.row_at(self.row_data(), at) }))
    }

    /// The function that covers an address: `[start, end)`, without the load bias. Async-signal-safe.
    pub fn function(&self, address: u64) -> Option<(u64, u64)> {
        let row = self.row(address)?.checked_div(self.row_bytes())?;
        if self.row_word(row).is_none_or(|row| self.number(row) == 0) {
            return None;
        }
        let begins = |row: &usize| self.row_word(*row).is_some_and(|row| self.begins(row));
        let ends = |row: &usize| self.row_word(*row).is_some_and(|row| self.begins(row) || self.number(row) == 0);
        let first = (0..=row).rev().take(FUNCTION_ROWS).find(begins)?;
        let end = (row + 1..self.row_count()).take(FUNCTION_ROWS).find(ends)?;
        Some((self.address_of(first)?, self.address_of(end)?))
    }

    #[inline(always)]
    fn shift(&self) -> u32 {
        u32::from(self.head.shift)
    }

    #[inline(always)]
    fn row_bytes(&self) -> usize {
        usize::from(self.head.row_bytes)
    }

    /// Where the row that an address belongs to begins, in bytes behind the first one.
    #[inline(always)]
    fn row(&self, address: u64) -> Option<usize> {
        let (offset, shift, size) = (address.wrapping_sub(self.head.base), self.shift(), self.row_bytes());
        let (from, to) = self.block(offset >> shift)?;
        let last = (offset as u32) << (32 - shift) | u32::MAX >> shift;
        let rows = self.row_data();
        // Rows of a block ascend: the last one at or before the address, halving, without a branch on what is found.
        let (mut at, mut len) = (from as usize * size, (to - from).min(1 << shift) as usize);
        while len > 1 {
            let half = len / 2;
            let middle = at + half * size;
            // SAFETY: it is one of the block's rows, all of which the table has.
            at = if unsafe { self.row_at(rows, middle) } <= last { middle } else { at };
            len -= half;
        }
        // SAFETY: the block has a row, and this is one of its rows.
        if len > 0 && unsafe { self.row_at(rows, at) } <= last {
            return Some(at);
        }
        // None of this block: the last one before it.
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
    fn rule(&self, row: u32) -> Found {
        match self.number(row).checked_sub(FIRST_RULE) {
            Some(at) => rules::read(self.rules(), at as usize),
            None if self.number(row) == 0 => Found::Nothing,
            None => Found::Ask,
        }
    }

    /// Address at which a row begins.
    fn address_of(&self, row: usize) -> Option<u64> {
        let word = self.row_word(row)?;
        // The block whose rows it is among: the last one that begins at it or before.
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

    /// All rows in order: where each begins, whether a function begins there, and what it says. For set-up rooms and tests.
    pub fn rows(&self) -> impl Iterator<Item = (u64, bool, Found)> + '_ {
        let row = |row: usize| {
            let word = self.row_word(row)?;
            Some((self.address_of(row)?, self.begins(word), self.rule(word)))
        };
        (0..self.head.rows as usize).filter_map(row)
    }

    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.head.rows as usize
    }
}
