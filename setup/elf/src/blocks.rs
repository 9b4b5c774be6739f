//! A file as [`object`] reads it, a block at a time: names of symbols are read one by one, and a system call for each
//! would take longer than all else.

use object::ReadRef;
use std::cell::OnceCell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes that are read at once, at least.
const BLOCK: u64 = 64 * 1024;
/// Blocks of a part of the file.
const PART: u64 = 1024;
/// Larger files are not read, in bytes.
const LARGEST: u64 = 1 << 44;
/// Bytes that are read of a text that ends in no block that it begins in, at first.
const LONG: u64 = 4096;
/// Longest text that ends in no block that it begins in, in bytes.
const LONGEST: u64 = 1 << 20;

/// A file that does not change, or whose reader survives that: what was read once stays as it was then. It is not
/// mapped: a mapped file that is cut ends its reader.
pub struct Blocks {
    file: File,
    len: u64,
    parts: Vec<OnceCell<Part>>,
    others: Others,
}

type Part = Vec<OnceCell<Box<[u8]>>>;

/// What was read besides whole blocks, as a list.
#[derive(Default)]
struct Others(OnceCell<Box<Other>>);

struct Other {
    range: Range<u64>,
    bytes: Box<[u8]>,
    next: Others,
}

impl Blocks {
    /// Reads this file. One whose length cannot be determined, or that is too large, has no bytes.
    pub fn new(file: File) -> Blocks {
        let len = file.metadata().map_or(0, |meta| meta.len());
        let len = if len > LARGEST { 0 } else { len };
        let parts = (0..len.div_ceil(BLOCK * PART)).map(|_| OnceCell::new()).collect();
        Blocks { file, len, parts, others: Others::default() }
    }

    fn read(&self, range: &Range<u64>) -> Option<Box<[u8]>> {
        let mut bytes = Vec::new();
        let len = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        bytes.try_reserve_exact(len).ok()?;
        bytes.resize(len, 0);
        self.file.read_exact_at(&mut bytes, range.start).ok()?;
        Some(bytes.into_boxed_slice())
    }

    /// The block with this number.
    fn block(&self, number: u64) -> Option<&[u8]> {
        let part = self.parts.get((number / PART) as usize)?;
        let part = part.get_or_init(|| (0..PART).map(|_| OnceCell::new()).collect());
        let block = part.get((number % PART) as usize)?;
        if block.get().is_none() {
            let start = number * BLOCK;
            // Only this thread has the value, so that nobody else has set it.
            let _ = block.set(self.read(&(start..(start + BLOCK).min(self.len)))?);
        }
        block.get().map(|bytes| &**bytes)
    }

    /// The bytes from `start` to the end of its block.
    fn rest(&self, start: u64) -> Option<&[u8]> {
        self.block(start / BLOCK)?.get((start % BLOCK) as usize..)
    }

    fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        if range.end > self.len || range.start > range.end {
            return None;
        }
        if range.is_empty() {
            return Some(&[]);
        }
        if range.start / BLOCK == (range.end - 1) / BLOCK {
            return self.rest(range.start)?.get(..(range.end - range.start) as usize);
        }
        let mut others = &self.others;
        while let Some(other) = others.0.get() {
            if other.range == range {
                return Some(&other.bytes);
            }
            others = &other.next;
        }
        let bytes = self.read(&range)?;
        Some(&others.0.get_or_init(|| Box::new(Other { range, bytes, next: Others::default() })).bytes)
    }
}

impl<'b> ReadRef<'b> for &'b Blocks {
    fn len(self) -> Result<u64, ()> {
        Ok(self.len)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'b [u8], ()> {
        offset.checked_add(size).and_then(|end| self.bytes(offset..end)).ok_or(())
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'b [u8], ()> {
        let until = |bytes: &'b [u8]| {
            let most = usize::try_from(range.end.checked_sub(range.start)?).unwrap_or(usize::MAX);
            let bytes = bytes.get(..most).unwrap_or(bytes);
            bytes.get(..bytes.iter().position(|byte| *byte == delimiter)?)
        };
        if let Some(found) = self.rest(range.start).and_then(until) {
            return Ok(found);
        }
        let end = |most: u64| range.end.min(range.start.saturating_add(most)).min(self.len);
        let found = self.bytes(range.start..end(LONG)).and_then(until);
        found.or_else(|| self.bytes(range.start..end(LONGEST)).and_then(until)).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Texts of 1 to 300 bytes, each ended by a zero, over several blocks.
    fn texts() -> Vec<u8> {
        let text = |n: usize| std::iter::repeat_n(b'a' + (n % 26) as u8, n % 300 + 1).chain([0]);
        (0..3000).flat_map(text).collect()
    }

    fn of(bytes: &[u8]) -> Blocks {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("room");
        Blocks::new(file)
    }

    #[test]
    fn every_range_is_as_in_memory() {
        let memory = texts();
        let file = of(&memory);
        let (len, memory) = (memory.len() as u64, &memory[..]);
        assert!(len > 4 * BLOCK && (&file).len() == Ok(len));
        let edges = (0..=len).step_by(BLOCK as usize).flat_map(|at| at.saturating_sub(2)..at + 3).chain([len - 1, len]);
        let edges: Vec<u64> = edges.collect();
        for start in &edges {
            for end in edges.iter().chain([&u64::MAX]) {
                let size = end.wrapping_sub(*start);
                assert_eq!((&file).read_bytes_at(*start, size), memory.read_bytes_at(*start, size), "{start} {size}");
                // A text before the end of a file that was cut is read.
                let found = (&file).read_bytes_at_until(*start..*end, 0);
                assert_eq!(found, memory.read_bytes_at_until(*start..*end.min(&len), 0), "{start} {end}");
            }
        }
        for start in (0..len).step_by(97) {
            let found = (&file).read_bytes_at_until(start..len, 0);
            assert_eq!(found, memory.read_bytes_at_until(start..len, 0), "{start}");
        }
    }

    #[test]
    fn a_file_that_was_cut_and_one_that_is_empty_have_errors() {
        let bytes = texts();
        let file = of(&bytes);
        assert!((&file).read_bytes_at(0, 10).is_ok());
        file.file.set_len(BLOCK + 1).expect("a file");
        assert!((&file).read_bytes_at(0, 10).is_ok() && (&file).read_bytes_at(BLOCK, 10).is_err());
        assert!((&file).read_bytes_at(BLOCK - 1, 10).is_err());
        assert!((&of(b"")).read_bytes_at_until(0..1, 0).is_err());
    }
}
