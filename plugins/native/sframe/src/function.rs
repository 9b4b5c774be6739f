//! The index of a table: function descriptors, and the search for one.

use crate::bytes::Input;
use crate::check::{require, Check, Fault};
use crate::table::{Machine, Table, START_FROM_FIELD};
use uunwind_core::span::Span;

/// Limit of the functions of size 0 at the address of the wanted one that a search steps over.
pub const MAX_EQUAL: u32 = 16;
/// Bytes of version 3's attributes, which precede the function's rows.
const ATTRIBUTES: u64 = 5;

/// How a row's start is compared with the pc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Rows count from the function's start.
    Whole,
    /// The code is a series of equal blocks of this size in bytes (PLT), and rows count from the block's start.
    Blocks(u8),
    /// Blocks of unknown size (version 1): the rows cannot be used.
    UnknownBlocks,
}

/// A function descriptor (checks 8 to 10, 12, 13, 15).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// Offset in the section of its entry in the index.
    pub at: u64,
    /// First process address of the code (a file address, where the section was read from a file).
    pub start: u64,
    /// Size of the code, in bytes.
    pub size: u32,
    /// Offset in the section of the first row.
    pub rows_at: u64,
    /// Number of rows, for all of the code or for each block of it.
    pub rows: u32,
    /// Bytes of a row's start: 1, 2 or 4.
    pub start_size: u8,
    /// How the rows' starts are compared with a pc.
    pub extent: Extent,
    /// Entered by a signal: the caller's pc is exact (version 3).
    pub signal: bool,
    /// Rows hold (control, offset) pairs (version 3).
    pub flexible: bool,
    /// Return addresses are signed with key B (AArch64).
    pub key_b: bool,
}

impl Function {
    /// The code that it describes (process addresses).
    pub const fn range(&self) -> Span {
        Span::new(self.start, self.start.wrapping_add(self.size as u64))
    }

    /// Whether it covers an address.
    pub const fn covers(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.size as u64
    }
}

impl Table {
    fn entry(&self, n: u32) -> u64 {
        self.index + u64::from(n) * self.entry_size()
    }

    /// First address of function `n`.
    pub fn start(&self, n: u32, input: &mut Input<'_, '_>) -> Result<u64, Fault> {
        let at = self.entry(n);
        let value = input.signed(at, if self.version == 3 { 8 } else { 4 })?;
        let base = if self.flags & START_FROM_FIELD != 0 { at } else { self.at };
        Ok(input.section.origin.wrapping_add(base).wrapping_add_signed(value))
    }

    /// Descriptor of function `n`, which must be one of the table's.
    pub fn function(&self, n: u32, input: &mut Input<'_, '_>) -> Result<Function, Fault> {
        let at = self.entry(n);
        require(n < self.functions, Check::SubSections, at, u64::from(n))?;
        let start = self.start(n, input)?;
        let v3 = self.version == 3;
        let size_at = if v3 { at + 8 } else { at + 4 };
        let size = input.number(size_at, 4)?;
        let text = input.section.text;
        let inside = start >= text.start && start.checked_add(size).is_some_and(|end| end <= text.end);
        require(inside, Check::Range, at, start)?;

        let offset = input.number(size_at + 4, 4)?;
        let Span { start: from, end: to } = self.rows_span;
        // Version 3 keeps most of the descriptor with the rows.
        let attributes = if v3 { from + offset } else { at + 12 };
        let rows_at = if v3 { attributes + ATTRIBUTES } else { from + offset };
        let (count, info, more, block) = if v3 {
            require(rows_at <= to, Check::FirstRow, size_at + 4, offset)?;
            let a = attributes;
            (input.number(a, 2)?, input.number(a + 2, 1)?, input.number(a + 3, 1)?, input.number(a + 4, 1)?)
        } else {
            let block = if self.version == 2 { input.number(at + 17, 1)? } else { 0 };
            (input.number(attributes, 4)?, input.number(attributes + 4, 1)?, 0, block)
        };
        require(rows_at <= to && (count == 0 || rows_at < to), Check::FirstRow, size_at + 4, offset)?;
        let start_size = match info & 15 {
            0 => 1,
            1 => 2,
            2 => 4,
            _ => return Err(Fault { check: Check::Encoding, at: attributes, found: info }),
        };
        let unused = if v3 { 0x40 } else { 0xc0 };
        require(info & unused == 0, Check::FunctionType, attributes, info)?;
        require(more <= 1, Check::FunctionType, attributes, more)?;
        let extent = match (info & 16 != 0, self.version) {
            (false, _) => Extent::Whole,
            (true, 1) => Extent::UnknownBlocks,
            (true, _) => {
                require(block != 0, Check::Block, attributes, block)?;
                Extent::Blocks(block as u8)
            }
        };
        // A row takes at least two bytes; starts ascend from 0 to the size, both included.
        require(count <= size + 1 && count * 2 <= to - rows_at, Check::RowCount, attributes, count)?;
        Ok(Function {
            at,
            start,
            size: size as u32,
            rows_at,
            rows: count as u32,
            start_size,
            extent,
            signal: v3 && info & 0x80 != 0,
            flexible: more == 1,
            key_b: self.machine == Machine::AArch64 && info & 0x20 != 0,
        })
    }

    /// The function that covers `lookup`, by binary search. The table must be sorted.
    pub fn search(&self, lookup: u64, input: &mut Input<'_, '_>) -> Result<Option<Function>, Fault> {
        let (mut low, mut high) = (0u32, self.functions);
        // Starts read on either side of the wanted address: a probe outside of them shows that the order is broken.
        let (mut least, mut most) = (0u64, u64::MAX);
        // 32 halvings make any range of 32-bit numbers empty.
        for _ in 0..33 {
            if low >= high {
                break;
            }
            let middle = low + (high - low) / 2;
            let start = self.start(middle, input)?;
            require(least <= start && start <= most, Check::Sorted, self.entry(middle), start)?;
            if start <= lookup {
                (low, least) = (middle + 1, start);
            } else {
                (high, most) = (middle, start);
            }
        }
        for _ in 0..MAX_EQUAL {
            let Some(n) = low.checked_sub(1) else { return Ok(None) };
            let function = self.function(n, input)?;
            if function.covers(lookup) {
                return Ok(Some(function));
            }
            if function.size != 0 {
                return Ok(None);
            }
            low = n;
        }
        Ok(None)
    }

    /// The function that covers `lookup`, searched one by one, for tables that are not sorted.
    pub fn scan(&self, lookup: u64, input: &mut Input<'_, '_>) -> Result<Option<Function>, Fault> {
        for n in 0..self.functions {
            let function = self.function(n, input)?;
            if function.covers(lookup) {
                return Ok(Some(function));
            }
        }
        Ok(None)
    }
}
