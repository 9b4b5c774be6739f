//! How many bits a table's rows have, and its bytes as they are written.

use uunwind_tables::format::{checksum, TableHead, FIRST_RULE, HEAD_BYTES, MAGIC, ROW_BYTES, SHIFTS};

/// Rows of a block, on average, where the bits of a row allow so large a block: one cache line holds the rows of most
/// blocks.
const ROWS_A_BLOCK: u64 = 8;

/// The form of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    base: u64,
    /// Words of rules.
    words: u32,
    /// Rows at most.
    rows: usize,
    blocks: u32,
    shift: u32,
    row_bytes: u32,
    index_bytes: u32,
}

impl Layout {
    /// The smallest of what the format allows for functions in `[base, end)`, for at most this number of words of
    /// rules, and of rows. `None`: the index would be far larger than what it points to.
    pub fn choose(base: u64, end: u64, words: usize, rows: usize) -> Option<Layout> {
        let blocks_at = |shift: u32| ((end - base) >> shift) + 1;
        let mut shifts = SHIFTS;
        let wanted = shifts.find(|shift| blocks_at(*shift) <= rows as u64 / ROWS_A_BLOCK).unwrap_or(*SHIFTS.end());
        let words = u32::try_from(words).ok()?;
        // The highest number is that of the last word.
        let number_bits = u32::BITS - words.checked_add(FIRST_RULE - 1)?.leading_zeros();
        let index_bytes = if rows <= usize::from(u16::MAX) { 2 } else { 4 };
        let with = |row_bytes: u32| {
            let shift = (row_bytes * 8).checked_sub(number_bits + 1)?.min(wanted);
            let blocks = u32::try_from(blocks_at(shift)).ok().filter(|_| SHIFTS.contains(&shift))?;
            Some(Layout { base, words, rows, blocks, shift, row_bytes, index_bytes })
        };
        let smallest = ROW_BYTES.filter_map(with).min_by_key(Layout::most_bytes)?;
        (u64::from(smallest.blocks) <= 4 * rows as u64 + 1024).then_some(smallest)
    }

    fn index_at(&self) -> usize {
        HEAD_BYTES + self.words as usize * 4
    }

    fn rows_at(&self) -> usize {
        self.index_at() + (self.blocks as usize + 1) * self.index_bytes as usize
    }

    fn most_bytes(&self) -> usize {
        self.rows_at() + self.rows * self.row_bytes as usize
    }

    /// A table of this form, with its rules.
    pub fn begin(self, words: &[u32]) -> Writer {
        // A row is written as a word, of which the next one takes back what is too much.
        let mut bytes = vec![0; self.most_bytes() + 4];
        let (places, _) = bytes.get_mut(HEAD_BYTES..self.index_at()).unwrap_or_default().as_chunks_mut::<4>();
        places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
        Writer { at: self.rows_at(), bytes, index: Vec::with_capacity(self.blocks as usize + 1), rows: 0, layout: self }
    }
}

/// A table whose rows are being written.
pub struct Writer {
    layout: Layout,
    bytes: Vec<u8>,
    /// Where the next row goes.
    at: usize,
    rows: u32,
    index: Vec<u32>,
}

impl Writer {
    /// The next row, by address.
    #[inline(always)]
    pub fn push(&mut self, at: u64, number: u32, begins: bool) {
        let Layout { base, shift, row_bytes, .. } = self.layout;
        let offset = at - base;
        while self.index.len() as u64 <= offset >> shift {
            self.index.push(self.rows);
        }
        let bits = row_bytes * 8;
        let within = offset as u32 & ((1 << shift) - 1);
        let row = within << (bits - shift) | u32::from(begins) << (bits - shift - 1) | number;
        if let Some(place) = self.bytes.get_mut(self.at..self.at + 4) {
            place.copy_from_slice(&row.to_le_bytes());
        }
        self.at += row_bytes as usize;
        self.rows += 1;
    }

    /// The whole table.
    pub fn finish(mut self, key: u64, sources: u8) -> Vec<u8> {
        let layout = self.layout;
        self.bytes.truncate(self.at);
        self.index.resize(layout.blocks as usize + 1, self.rows);
        let width = layout.index_bytes as usize;
        let places = self.bytes.get_mut(layout.index_at()..layout.rows_at()).unwrap_or_default();
        for (place, first) in places.chunks_exact_mut(width).zip(&self.index) {
            place.iter_mut().zip(first.to_le_bytes()).for_each(|(to, from)| *to = from);
        }
        let mut head = TableHead {
            magic: MAGIC,
            key,
            checksum: 0,
            base: layout.base,
            rules: layout.words,
            blocks: layout.blocks,
            rows: self.rows,
            shift: layout.shift as u8,
            row_bytes: layout.row_bytes as u8,
            index_bytes: width as u8,
            sources,
        };
        self.put(head);
        head.checksum = checksum(&self.bytes);
        self.put(head);
        self.bytes
    }

    fn put(&mut self, head: TableHead) {
        if let Some(place) = self.bytes.get_mut(..HEAD_BYTES) {
            place.copy_from_slice(&head.to_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(span: u64, words: usize, rows: usize) -> (u32, u32, u32) {
        let chosen = Layout::choose(0x1000, 0x1000 + span, words, rows).expect("a layout");
        (chosen.row_bytes, chosen.shift, chosen.index_bytes)
    }

    #[test]
    fn few_rules_and_rows_take_few_bytes() {
        // 126 words, and the two numbers before them: 7 bits, with 8 for the place and one for functions.
        assert_eq!(layout(10_000, 126, 400), (2, 8, 2));
        assert_eq!(layout(10_000, 127, 400), (2, 7, 2));
        assert_eq!(layout(10_000, 20_000, 400), (3, 8, 2));
        assert_eq!(layout(10_000, 1 << 22, 400), (4, 8, 2));
        // Rows far apart: large blocks.
        assert_eq!(layout(1 << 30, 20, 100), (4, 24, 2));
        assert_eq!(layout(1 << 24, 300, 70_000).2, 4);
        assert_eq!(Layout::choose(0, 1 << 40, 20, 100), None, "an index of 65,536 blocks for 100 rows");
    }
}
