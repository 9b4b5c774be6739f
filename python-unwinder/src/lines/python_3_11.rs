//! The location table of CPython 3.11 and later.
//!
//! It is a sequence of entries (<https://github.com/python/cpython/blob/v3.13.0/Objects/locations.md>). The
//! first byte of an entry has bit 7 set, a code in bits 3-6 and the number of code units, less one, in bits 0-2; a code
//! unit is two bytes. What follows depends on the code:
//!
//! | code | line | bytes that follow |
//! |---|---|---|
//! | 0-9 | unchanged | one |
//! | 10-12 | plus code - 10 | two |
//! | 13 | plus a signed varint | the varint |
//! | 14 | plus a signed varint | it and three more varints |
//! | 15 | none | none |
//!
//! Varints have six bits a byte, lowest first; bit 6 says that another byte follows. A signed one keeps its sign in bit
//! 0.

use super::Lines;

/// Bytes of a code unit.
const UNIT: u64 = 2;
/// Longest varint in bytes: enough for 36 bits.
const VARINT_BYTES: usize = 6;

/// Entries of a location table, in order, up to the first malformed byte. Any bytes may be passed.
pub fn entries(table: &[u8], first_line: u32) -> impl Iterator<Item = Lines> + '_ {
    let mut rest = table;
    let mut line = i64::from(first_line);
    let mut start = 0u64;
    core::iter::from_fn(move || {
        let (head, tail) = rest.split_first()?;
        if head & 0x80 == 0 {
            return None;
        }
        let code = (head >> 3) & 15;
        let (delta, tail) = match code {
            0..=9 => (0, tail.get(1..)?),
            10..=12 => (i64::from(code) - 10, tail.get(2..)?),
            13 => signed(tail)?,
            14 => {
                let (delta, mut tail) = signed(tail)?;
                for _ in 0..3 {
                    tail = unsigned(tail)?.1;
                }
                (delta, tail)
            }
            _ => (0, tail),
        };
        rest = tail;
        line = line.saturating_add(delta);
        let end = start + (u64::from(head & 7) + 1) * UNIT;
        let own_line = if code == 15 { None } else { u32::try_from(line).ok() };
        let entry = Lines { start, end, line: own_line };
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
    fn a_cut_table_gives_the_lines_before_the_cut() {
        // Two units of line 10, then a long entry that is cut.
        let table = [0x80 | (10 << 3) | 1, 0, 0, 0x80 | (14 << 3), 0x44];
        assert_eq!(entries(&table, 10).collect::<Vec<_>>(), [Lines { start: 0, end: 4, line: Some(10) }]);
        assert_eq!(crate::lines::line(TABLE_PYTHON_311, &table, 10, 1000), Some(10));
        assert_eq!(crate::lines::line(TABLE_PYTHON_311, &[], 7, 0), Some(7));
    }
}
