//! `co_linetable` of CPython 3.10 (<https://github.com/python/cpython/blob/v3.10.13/Objects/lnotab_notes.txt>): pairs
//! of bytes, each a range: its length in bytes, unsigned, and the difference of its line to that of the range before,
//! signed; -128: the range has no line.

use super::Lines;

const NO_LINE: i8 = -128;

/// Ranges of a table, in order, without empty ones. Any bytes may be passed.
pub fn entries(table: &[u8], first_line: u32) -> impl Iterator<Item = Lines> + '_ {
    let (mut line, mut start) = (i64::from(first_line), 0u64);
    table.chunks_exact(2).filter_map(move |pair| {
        let [length, delta] = *pair else { return None };
        let delta = delta as i8;
        if delta != NO_LINE {
            line = line.saturating_add(i64::from(delta));
        }
        if length == 0 {
            return None;
        }
        let own_line = if delta == NO_LINE { None } else { u32::try_from(line).ok() };
        let entry = Lines { start, end: start + u64::from(length), line: own_line };
        start = entry.end;
        Some(entry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_without_a_line_and_empty_ones() {
        let table = [6, 1, 2, 0x80, 0, 100, 4, 2, 9];
        let all: Vec<_> = entries(&table, 10).map(|e| (e.start, e.end, e.line)).collect();
        assert_eq!(all, [(0, 6, Some(11)), (6, 8, None), (8, 12, Some(113))]);
    }
}
