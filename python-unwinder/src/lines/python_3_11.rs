//! The location table of CPython 3.11 and later.
//!
//! It is a sequence of entries (<https://github.com/python/cpython/blob/v3.13.0/Objects/locations.md>). The
//! first byte of an entry has bit 7 set, a code in bits 3-6 and the number of code units, less one, in bits 0-2; a code
//! unit is two bytes. What follows depends on the code:
//!
//! | code | line | end line | columns | bytes that follow |
//! |---|---|---|---|---|
//! | 0-9 | unchanged | the same | start: code * 8 plus the upper half of the byte; end: plus its lower half | one |
//! | 10-12 | plus code - 10 | the same | a byte each | two |
//! | 13 | plus a signed varint | the same | none | the varint |
//! | 14 | plus a signed varint | plus a varint | a varint each, plus 1; 0: none | it and three more varints |
//! | 15 | none | none | none | none |
//!
//! Columns count bytes of the line in UTF-8, from 0.
//!
//! Varints have six bits a byte, lowest first; bit 6 says that another byte follows. A signed one keeps its sign in bit
//! 0.

use super::Lines;

/// Bytes of a code unit.
const UNIT: u64 = 2;
/// Longest varint in bytes: enough for 36 bits.
const VARINT_BYTES: usize = 6;

/// A range of byte positions, and where in the source its code stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// First byte position of the range.
    pub start: u64,
    /// End of the range, exclusive.
    pub end: u64,
    /// Line number, from 1 on; `None`: the compiler gave none.
    pub line: Option<u32>,
    /// Line in which the code ends.
    pub end_line: Option<u32>,
    /// Column at which it begins, in bytes of UTF-8 from 0.
    pub column: Option<u32>,
    /// Column after its last byte, in the line in which it ends.
    pub end_column: Option<u32>,
}

/// The location of a byte position; `None`: the table has none.
pub fn location(table: &[u8], first_line: u32, position: u64) -> Option<Location> {
    locations(table, first_line).find(|location| position < location.end)
}

/// Entries of a location table with their lines, as [`locations`].
pub fn entries(table: &[u8], first_line: u32) -> impl Iterator<Item = Lines> + '_ {
    locations(table, first_line).map(|Location { start, end, line, .. }| Lines { start, end, line })
}

/// Entries of a location table, in order, up to the first malformed byte. Any bytes may be passed.
pub fn locations(table: &[u8], first_line: u32) -> impl Iterator<Item = Location> + '_ {
    let mut rest = table;
    let mut line = i64::from(first_line);
    let mut start = 0u64;
    core::iter::from_fn(move || {
        let (head, tail) = rest.split_first()?;
        if head & 0x80 == 0 {
            return None;
        }
        let code = (head >> 3) & 15;
        let (mut down, mut columns) = (0, [None; 2]);
        let (delta, tail) = match code {
            0..=9 => {
                let (byte, tail) = tail.split_first()?;
                let column = u32::from(code) * 8 + u32::from(byte >> 4);
                columns = [Some(column), Some(column + u32::from(byte & 15))];
                (0, tail)
            }
            10..=12 => {
                let ([column, end], tail) = tail.split_first_chunk::<2>()?;
                columns = [Some(u32::from(*column)), Some(u32::from(*end))];
                (i64::from(code) - 10, tail)
            }
            13 => signed(tail)?,
            14 => {
                let (delta, tail) = signed(tail)?;
                let (lines, tail) = unsigned(tail)?;
                let (column, tail) = unsigned(tail)?;
                let (end, tail) = unsigned(tail)?;
                down = lines as i64;
                columns = [column, end].map(|one_more| u32::try_from(one_more.checked_sub(1)?).ok());
                (delta, tail)
            }
            _ => (0, tail),
        };
        rest = tail;
        line = line.saturating_add(delta);
        let end = start + (u64::from(head & 7) + 1) * UNIT;
        let has_line = |line: i64| u32::try_from(line).ok().filter(|_| code != 15);
        let (own_line, end_line) = (has_line(line), has_line(line.saturating_add(down)));
        let [column, end_column] = columns;
        let entry = Location { start, end, line: own_line, end_line, column, end_column };
        start = end;
        Some(entry)
    })
}

fn unsigned(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (i, byte) in bytes.iter().enumerate().take(VARINT_BYTES) {
        value |= u64::from(byte & 63) << (6 * i as u32);
        if byte & 64 == 0 {
            return Some((value, bytes.get(i + 1..)?));
        }
    }
    None
}

fn signed(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (value, rest) = unsigned(bytes)?;
    let magnitude = (value >> 1) as i64;
    Some((if value & 1 == 1 { -magnitude } else { magnitude }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::TABLE_PYTHON_311;

    #[test]
    fn varints_and_signs() {
        assert_eq!(unsigned(&[0x3f]), Some((63, &[][..])));
        assert_eq!(unsigned(&[0x40, 0x01, 9]), Some((64, &[9][..])));
        assert_eq!(signed(&[0x03]), Some((-1, &[][..])));
        assert_eq!(unsigned(&[0x7f; 100]), None, "endless varint");
        assert_eq!(unsigned(&[]), None);
    }

    #[test]
    fn columns_of_all_codes() {
        // Column 8 * 3 + 2 to 7 further; one line down from 4 to 200; a line without columns; from line 11 to 13.
        let table =
            [0x80 | 3 << 3, 0x27, 0x80 | 11 << 3 | 2, 4, 200, 0x80 | 13 << 3, 2, 0x80 | 14 << 3, 0, 2, 0, 9, 0xf8];
        let all = locations(&table, 9).map(|l| (l.start, l.line, l.end_line, l.column, l.end_column));
        let lines = |from, to| (Some(from), Some(to));
        let wanted = [
            (0, lines(9, 9), Some(26), Some(33)),
            (2, lines(10, 10), Some(4), Some(200)),
            (8, lines(11, 11), None, None),
            (10, lines(11, 13), None, Some(8)),
            (12, (None, None), None, None),
        ];
        assert!(all.eq(wanted.map(|(start, (line, end), column, end_column)| (start, line, end, column, end_column))));
        assert_eq!(location(&table, 9, 9).and_then(|l| l.line), Some(11));
        assert_eq!(location(&table, 9, 14), None);
    }

    #[test]
    fn a_cut_table_gives_the_lines_before_the_cut() {
        // Two units of line 10, then a long entry that is cut.
        let table = [0x80 | (10 << 3) | 1, 0, 0, 0x80 | (14 << 3), 0x44];
        assert_eq!(entries(&table, 10).collect::<Vec<_>>(), [Lines { start: 0, end: 4, line: Some(10) }]);
        assert_eq!(crate::lines::line(TABLE_PYTHON_311, &table, 10, 1000), Some(10));
        assert_eq!(crate::lines::line(TABLE_PYTHON_311, &[], 7, 0), Some(7));
    }
}
