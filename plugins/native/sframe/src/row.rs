//! Rows: each is the rule from one offset to the next, for any machine.

use crate::bytes::{sign_extend, Input};
use crate::check::{require, Check, Fault};
use crate::function::{Extent, Function};
use crate::table::{Machine, Table};

/// Limit of the rows of a function that a lookup reads; code after that many rows has no rule.
pub const MAX_ROWS: u32 = 1 << 16;
/// Largest number of data words of a row.
const MAX_WORDS: usize = 6;
/// Bytes below the CFA that s390x reserves: CFA = base + word * 8 + this.
const S390X_BIAS: i64 = 160;

/// What a value counts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// The CFA.
    Cfa,
    /// The stack pointer.
    Sp,
    /// The frame pointer.
    Fp,
    /// The register with this DWARF number, as read: the machine may not have it.
    Register(u32),
}

/// An address, base + offset, or the word in memory there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// What the offset is added to.
    pub base: Base,
    /// Offset from the base, in bytes.
    pub offset: i64,
    /// Whether the value is the word at that address.
    pub deref: bool,
}

/// A row's rule, in SFrame's terms: what it says of the CFA, the return address and the frame pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unwind {
    /// The return address is undefined: the outermost frame.
    Outermost,
    /// The caller is described by these locations.
    Caller {
        /// The CFA. The caller's stack pointer is the CFA; on s390x the CFA - 160.
        cfa: Location,
        /// The return address; `None`: it is in the machine's return address register.
        ra: Option<Location>,
        /// The caller's frame pointer; `None`: it is unchanged.
        fp: Option<Location>,
    },
}

/// A row: a rule, and from where on it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Offset of the row in the section.
    pub at: u64,
    /// Beginning of its validity, in bytes from the function's or the block's start. It holds until the next row.
    pub start: u32,
    /// The rule that leads to the caller.
    pub unwind: Unwind,
    /// The return address carries an authentication code (AArch64), which must be stripped.
    pub signed_ra: bool,
}

/// Iterates over the rows of a function. Their sizes differ, so they can only be read in order.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    at: u64,
    left: u32,
    /// Smallest value that the next start may have.
    least: u64,
}

impl Function {
    /// The rows from the first one on.
    pub const fn rows(&self) -> Rows {
        Rows { at: self.rows_at, left: self.rows, least: 0 }
    }

    /// The row that holds for `lookup`, which the function covers; `None` if there is none.
    pub fn row_at(&self, table: &Table, lookup: u64, input: &mut Input<'_, '_>) -> Result<Option<Row>, Fault> {
        let offset = lookup.wrapping_sub(self.start);
        let offset = match self.extent {
            Extent::Whole => offset,
            Extent::Blocks(size) => offset.checked_rem(u64::from(size)).unwrap_or(0),
            Extent::UnknownBlocks => return Ok(None),
        };
        require(self.rows <= MAX_ROWS, Check::RowCount, self.at, u64::from(self.rows))?;
        let mut rows = self.rows();
        let mut found = None;
        while let Some(raw) = rows.next_raw(self, table, input)? {
            if u64::from(raw.start) > offset {
                break;
            }
            found = Some(raw);
        }
        let Some(raw) = found else { return Ok(None) };
        let row = raw.decode(self, table, input)?;
        row.check(table.machine)?;
        Ok(Some(row))
    }
}

/// A row whose words have not been decoded.
#[derive(Clone, Copy)]
struct Raw {
    at: u64,
    start: u32,
    info: u8,
    words_at: u64,
    word_size: u64,
    words: usize,
}

impl Rows {
    /// The next row, or `None` after the last. After a fault there is no next row.
    pub fn next(
        &mut self,
        function: &Function,
        table: &Table,
        input: &mut Input<'_, '_>,
    ) -> Result<Option<Row>, Fault> {
        match self.next_raw(function, table, input)? {
            Some(raw) => raw.decode(function, table, input).map(Some),
            None => Ok(None),
        }
    }

    fn next_raw(
        &mut self,
        function: &Function,
        table: &Table,
        input: &mut Input<'_, '_>,
    ) -> Result<Option<Raw>, Fault> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        // A row that is damaged does not lead to a next one.
        self.left = 0;
        let (at, end) = (self.at, table.rows_span.end);
        let start_size = u64::from(function.start_size);
        let words_at = at + start_size + 1;
        require(words_at <= end, Check::RowBounds, at, end)?;
        let start = input.number(at, start_size)?;
        let info = input.number(at + start_size, 1)? as u8;
        let word_size = match info >> 5 & 3 {
            0 => 1,
            1 => 2,
            2 => 4,
            _ => return Err(Fault { check: Check::Encoding, at, found: u64::from(info) }),
        };
        let words = info >> 1 & 15;
        let signed = info & 0x80 == 0 || table.machine == Machine::AArch64;
        require(signed, Check::Encoding, at, u64::from(info))?;
        require(usize::from(words) <= MAX_WORDS, Check::WordCount, at, u64::from(words))?;
        let next = words_at + u64::from(words) * word_size;
        require(next <= end, Check::RowBounds, at, next)?;
        match function.extent {
            Extent::Blocks(size) => require(start < u64::from(size), Check::Block, at, start)?,
            // Assemblers write a row that begins at the function's end for a directive after the last instruction.
            _ => require(start <= u64::from(function.size), Check::RowOrder, at, start)?,
        }
        require(start >= self.least, Check::RowOrder, at, start)?;
        *self = Rows { at: next, left, least: start + 1 };
        Ok(Some(Raw { at, start: start as u32, info, words_at, word_size, words: usize::from(words) }))
    }
}

impl Raw {
    fn decode(&self, function: &Function, table: &Table, input: &mut Input<'_, '_>) -> Result<Row, Fault> {
        let mut values = [0u64; MAX_WORDS];
        for (n, value) in (0..).zip(values.iter_mut().take(self.words)) {
            *value = input.number(self.words_at + n * self.word_size, self.word_size)?;
        }
        let wrong = Fault { check: Check::WordCount, at: self.at, found: self.words as u64 };
        let words = values.get(..self.words).ok_or(wrong)?;
        let mut words = Words { words, size: self.word_size };
        let unwind = if self.words == 0 {
            // Version 1 has no such row.
            require(table.version > 1, Check::WordCount, self.at, 0)?;
            Unwind::Outermost
        } else if function.flexible {
            words.flexible(table, self.at)?
        } else {
            words.plain(table, self.info & 1 == 0).ok_or(wrong)?
        };
        require(words.words.is_empty(), Check::WordCount, self.at, wrong.found)?;
        Ok(Row { at: self.at, start: self.start, unwind, signed_ra: self.info & 0x80 != 0 })
    }
}

/// The data words of a row that have not been decoded.
struct Words<'a> {
    words: &'a [u64],
    size: u64,
}

impl Words<'_> {
    fn take(&mut self) -> Option<u64> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(*first)
    }

    fn take_signed(&mut self) -> Option<i64> {
        self.take().map(|word| sign_extend(word, self.size))
    }

    /// Decodes the offsets of CFA, return address (unless it is fixed) and frame pointer.
    fn plain(&mut self, table: &Table, from_fp: bool) -> Option<Unwind> {
        let s390x = table.machine == Machine::S390x;
        let base = if from_fp { Base::Fp } else { Base::Sp };
        let cfa = Location { base, offset: cfa_offset(table.machine, self.take_signed()?), deref: false };
        let place = |word: i64| {
            if s390x && table.version < 3 && word & 1 != 0 {
                // In a register and not in memory: only valid for the leaf frame.
                return Location { base: Base::Register((word >> 1) as u32), offset: 0, deref: false };
            }
            Location { base: Base::Cfa, offset: word, deref: true }
        };
        let ra = if table.fixed_ra != 0 {
            Some(place(i64::from(table.fixed_ra)))
        } else {
            // On s390x a zero takes the return address's place in rows that describe only the frame pointer.
            self.take_signed().filter(|word| !(s390x && *word == 0)).map(place)
        };
        Some(Unwind::Caller { cfa, ra, fp: self.take_signed().map(place) })
    }

    /// Decodes (control, offset) pairs of CFA, return address and frame pointer.
    fn flexible(&mut self, table: &Table, at: u64) -> Result<Unwind, Fault> {
        let no_register = Fault { check: Check::Control, at, found: 0 };
        let mut cfa = self.pair(at)?.ok_or(no_register)?;
        require(cfa.base != Base::Cfa, Check::Control, at, 0)?;
        cfa.offset = cfa_offset(table.machine, cfa.offset);
        let fixed = Location { base: Base::Cfa, offset: i64::from(table.fixed_ra), deref: true };
        let ra = self.pair(at)?.or(if table.fixed_ra != 0 { Some(fixed) } else { None });
        Ok(Unwind::Caller { cfa, ra, fp: self.pair(at)? })
    }

    /// Decodes one pair; `None` for a control word of 0, which has no offset, and after the last.
    fn pair(&mut self, at: u64) -> Result<Option<Location>, Fault> {
        let Some(control) = self.take().filter(|control| *control != 0) else { return Ok(None) };
        require(control & 4 == 0, Check::Control, at, control)?;
        let short = Fault { check: Check::WordCount, at, found: control };
        let offset = self.take_signed().ok_or(short)?;
        let base = if control & 1 != 0 { Base::Register((control >> 3) as u32) } else { Base::Cfa };
        Ok(Some(Location { base, offset, deref: control & 2 != 0 }))
    }
}

fn cfa_offset(machine: Machine, word: i64) -> i64 {
    match machine {
        // A word has at most 32 bits.
        Machine::S390x => word * 8 + S390X_BIAS,
        _ => word,
    }
}

impl Row {
    /// Check 17: the registers that it names exist, and its return address is not itself a stack address.
    pub fn check(&self, machine: Machine) -> Result<(), Fault> {
        let Unwind::Caller { cfa, ra, fp } = self.unwind else { return Ok(()) };
        let registers = if machine == Machine::Amd64 { 16 } else { 32 };
        for location in [Some(cfa), ra, fp].into_iter().flatten() {
            if let Base::Register(n) = location.base {
                require(n < registers, Check::Control, self.at, u64::from(n))?;
            }
        }
        let senseless = ra.is_some_and(|ra| ra.base == Base::Cfa && !ra.deref);
        require(!senseless, Check::Control, self.at, 0)
    }
}
