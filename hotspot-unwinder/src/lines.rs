//! A method's line table: pairs of a bytecode's index and a line, compressed
//! (<https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/oops/method.cpp>,
//! `CompressedLineNumberReadStream::read_pair`, `Method::line_number_from_bci`).

use crate::numbers::Numbers;

/// Ends a table.
const END: u8 = 0;
/// A pair follows in full.
const FULL: u8 = 0xff;

/// The pairs of a table.
struct Pairs<'b> {
    numbers: Numbers<'b>,
    index: i32,
    line: i32,
}

impl<'b> Pairs<'b> {
    fn new(bytes: &'b [u8], form: u32) -> Option<Pairs<'b>> {
        Some(Pairs { numbers: Numbers::new(bytes, form)?, index: 0, line: 0 })
    }

    /// The next bytecode's index, and its line.
    fn next(&mut self) -> Option<(u32, u32)> {
        let (index, line) = match self.numbers.byte()? {
            END => return None,
            FULL => (self.numbers.signed()?, self.numbers.signed()?),
            both => (i32::from(both >> 3), i32::from(both & 7)),
        };
        self.index = self.index.wrapping_add(index);
        self.line = self.line.wrapping_add(line);
        Some((u32::try_from(self.index).ok()?, u32::try_from(self.line).ok()?))
    }
}

/// The line that the bytecode at an index belongs to. `bytes` may go on after the table; `form`: see
/// [`crate::facts::NUMBERS_OLD`].
pub fn at(bytes: &[u8], form: u32, index: u32) -> Option<u32> {
    let mut pairs = Pairs::new(bytes, form)?;
    let mut best: Option<(u32, u32)> = None;
    while let Some((start, line)) = pairs.next() {
        if start <= index && best.is_none_or(|(before, _)| start >= before) {
            best = Some((start, line));
        }
    }
    best.map(|(_, line)| line)
}

/// The line of the first pair.
pub fn first(bytes: &[u8], form: u32) -> Option<u32> {
    Pairs::new(bytes, form)?.next().map(|(_, line)| line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{NUMBERS_NEW, NUMBERS_OLD};

    #[test]
    fn lines_are_those_of_the_table() {
        // Index 0 is line 100 (in full), 3 is 101, 8 is 103, 9 is 99 (in full), then what is not the table's.
        let old: &[u8] = &[FULL, 0, 200, 8, 3 << 3 | 1, 5 << 3 | 2, FULL, 2, 7, END, 77];
        let mut lines = [0; 12];
        lines.iter_mut().enumerate().for_each(|(index, line)| *line = at(old, NUMBERS_OLD, index as u32).unwrap_or(0));
        let signed_200_8 = 200 + (8 << 6);
        let first_line = signed_200_8 / 2;
        assert_eq!(first(old, NUMBERS_OLD), Some(first_line));
        let expected = [0, 0, 0, 1, 1, 1, 1, 1, 3, -1, -1, -1].map(|more| first_line.wrapping_add_signed(more));
        assert_eq!(lines, expected);
        assert_eq!(at(&[END], NUMBERS_OLD, 3), None);
        assert_eq!(at(&[FULL], NUMBERS_NEW, 3), None, "a table that is cut");
        assert_eq!(first(&[2 << 3 | 5], NUMBERS_NEW), Some(5));
    }
}
