//! A table's header: preamble, machine, and the places of index and rows.

use crate::bytes::Input;
use crate::check::{require, Check, Fault};
use uunwind_core::span::Span;

/// Flag: the table's function descriptors are sorted by address.
pub const SORTED: u8 = 1;
/// Flag: every function keeps a frame pointer (versions 1 and 2). No rule depends on it.
pub const FRAME_POINTER: u8 = 2;
/// Flag: start addresses count from the field that holds them (version 2 errata 1, version 3); else from the table.
pub const START_FROM_FIELD: u8 = 4;

const MAGIC: u64 = 0xdee2;
/// Size of preamble and header in bytes.
pub const HEADER: u64 = 28;

/// The machine whose registers and conventions the rows use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    /// AArch64, either byte order.
    AArch64,
    /// x86-64.
    Amd64,
    /// s390x.
    S390x,
}

/// One table, whose header passed checks 1 to 6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    /// Offset of the table in the section. All offsets in this structure count from the section's start.
    pub at: u64,
    /// Version of the format: 1, 2 or 3.
    pub version: u8,
    /// [`SORTED`], [`FRAME_POINTER`], [`START_FROM_FIELD`].
    pub flags: u8,
    /// The machine that its rows are for.
    pub machine: Machine,
    /// Whether numbers are big-endian.
    pub big_endian: bool,
    /// Offset in bytes from the CFA to the return address; 0: each row has it.
    pub fixed_ra: i8,
    /// Number of function descriptors.
    pub functions: u32,
    /// Number of rows, as the header has it.
    pub rows: u32,
    /// Offset of the index (the function descriptors).
    pub index: u64,
    /// The rows (offsets).
    pub rows_span: Span,
    /// Offset at which a further table may begin.
    pub next: u64,
}

impl Table {
    /// The table at an offset; `None` at the section's end, or at zeroes, which some linkers leave there.
    pub fn read(at: u64, input: &mut Input<'_, '_>) -> Result<Option<Table>, Fault> {
        let len = input.section.len;
        if at >= len {
            return Ok(None);
        }
        require(len - at >= HEADER, Check::Mapping, at, len - at)?;
        input.big_endian = false;
        let magic = input.number(at, 2)?;
        if magic == 0 {
            return Ok(None);
        }
        let big_endian = magic == MAGIC.swap_bytes() >> 48;
        require(big_endian || magic == MAGIC, Check::Preamble, at, magic)?;
        input.big_endian = big_endian;
        let (version, flags) = (input.number(at + 2, 1)? as u8, input.number(at + 3, 1)? as u8);
        let defined_flags = match version {
            1 => SORTED | FRAME_POINTER,
            2 => SORTED | FRAME_POINTER | START_FROM_FIELD,
            3 => SORTED | START_FROM_FIELD,
            _ => return Err(Fault { check: Check::Preamble, at: at + 2, found: u64::from(version) }),
        };
        require(flags & !defined_flags == 0, Check::Preamble, at + 3, u64::from(flags))?;
        let machine = match (input.number(at + 4, 1)?, big_endian) {
            (1, true) | (2, false) => Machine::AArch64,
            (3, false) => Machine::Amd64,
            (4, true) => Machine::S390x,
            (found, _) => return Err(Fault { check: Check::Machine, at: at + 4, found }),
        };
        let fixed_fp = input.number(at + 5, 1)?;
        require(fixed_fp == 0, Check::FixedOffsets, at + 5, fixed_fp)?;
        let fixed_ra = input.signed(at + 6, 1)? as i8;
        let expected = if machine == Machine::Amd64 { -8 } else { 0 };
        require(fixed_ra == expected, Check::FixedOffsets, at + 6, fixed_ra as u64)?;
        let auxiliary = input.number(at + 7, 1)?;
        let base = at + HEADER + auxiliary;
        require(base <= len, Check::HeaderLength, at + 7, auxiliary)?;
        let mut field = |n: u64| input.number(at + 8 + 4 * n, 4);
        let (functions, rows, rows_len) = (field(0)?, field(1)?, field(2)?);
        let (index, rows_at) = (base + field(3)?, base + field(4)?);
        let mut table = Table {
            at,
            version,
            flags,
            machine,
            big_endian,
            fixed_ra,
            functions: functions as u32,
            rows: rows as u32,
            index,
            rows_span: Span::new(rows_at, rows_at + rows_len),
            next: 0,
        };
        // All of these are sums of 32-bit numbers, so they do not wrap.
        let index_end = index + functions * table.entry_size();
        require(index_end <= rows_at, Check::SubSections, at + 20, index_end)?;
        require(table.rows_span.end <= len, Check::SubSections, at + 16, table.rows_span.end)?;
        // Concatenated tables are padded to a multiple of 8.
        table.next = (table.rows_span.end + 7) & !7;
        Ok(Some(table))
    }

    /// Size of an entry of the index in bytes.
    pub const fn entry_size(&self) -> u64 {
        match self.version {
            1 => 17,
            2 => 20,
            _ => 16,
        }
    }

    /// Whether binary search in the index is possible.
    pub const fn is_sorted(&self) -> bool {
        self.flags & SORTED != 0
    }
}
