//! A section's bytes, read through the walk's reader, in either byte order.

use crate::check::{Check, Fault};
use uunwind_core::memory::Reader;
use uunwind_core::span::Span;

/// The place of a section, and the code that it may describe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    /// Process address of its first byte (a file address, where the bytes were read from a file).
    pub at: u64,
    /// Its length in bytes; at most 2^47 of them are read.
    pub len: u64,
    /// The address at which start addresses take the first byte to be; they count from it or from a field of the
    /// section. It equals [`Section::at`] unless the bytes were moved after they were made.
    pub origin: u64,
    /// The code that it may describe: `[from, to)`. Functions outside of it are refused.
    pub text: Span,
}

impl Section {
    /// A section that lies at the address for which it was made.
    pub const fn new(bytes: Span, text: Span) -> Section {
        Section { at: bytes.start, len: bytes.len(), origin: bytes.start, text }
    }
}

/// Reads bytes within one section.
pub struct Input<'r, 'm> {
    reader: &'r mut Reader<'m>,
    /// The section.
    pub section: Section,
    /// Whether numbers are big-endian. Set after a table's header was read.
    pub big_endian: bool,
}

impl<'r, 'm> Input<'r, 'm> {
    /// An input over this section's bytes.
    pub fn new(section: &Section, reader: &'r mut Reader<'m>) -> Input<'r, 'm> {
        // The limit keeps sums of offsets from wrapping; no mapping is longer.
        let section = Section { len: section.len.min(1 << 47), ..*section };
        Input { reader, section, big_endian: false }
    }

    /// The unsigned number of `size` bytes (1, 2, 4 or 8) at an offset in the section.
    #[inline]
    pub fn number(&mut self, offset: u64, size: u64) -> Result<u64, Fault> {
        let outside = Fault { check: Check::Mapping, at: offset, found: size };
        let room = self.section.len.checked_sub(offset).ok_or(outside)?;
        if room < size {
            return Err(outside);
        }
        let at = self.section.at.checked_add(offset).ok_or(outside)?;
        let value = match size {
            1 => self.reader.u8(at).map(u64::from),
            2 => self.reader.u16(at).map(|n| u64::from(if self.big_endian { n.swap_bytes() } else { n })),
            4 => self.reader.u32(at).map(|n| u64::from(if self.big_endian { n.swap_bytes() } else { n })),
            _ => self.reader.word(at).map(|n| if self.big_endian { n.swap_bytes() } else { n }),
        };
        value.ok_or(outside)
    }

    /// The signed number of `size` bytes.
    #[inline]
    pub fn signed(&mut self, offset: u64, size: u64) -> Result<i64, Fault> {
        Ok(sign_extend(self.number(offset, size)?, size))
    }
}

/// Sign-extends a number of `size` bytes.
#[inline]
pub fn sign_extend(value: u64, size: u64) -> i64 {
    match size {
        1 => i64::from(value as u8 as i8),
        2 => i64::from(value as u16 as i16),
        4 => i64::from(value as u32 as i32),
        _ => value as i64,
    }
}
