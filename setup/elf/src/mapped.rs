//! Which mappings of a file are one object in memory.
//!
//! An object does not begin wherever its file's first page is mapped: linkers let segments share a page of the file
//! (lld always, GNU ld with `-z noseparate-code`), which is mapped once for each of them, so that a small object may
//! consist of several mappings of page 0. Nor has a file one object only: a library may be loaded several times
//! ([dlmopen(3)](https://man7.org/linux/man-pages/man3/dlmopen.3.html)), its copies side by side, and a program may map
//! a file to read it. What belongs together, the segments say.

use crate::{Image, Span};
use object::elf;

const PAGE: u64 = 4096;

/// A mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it lies (process addresses).
    pub place: Span,
    /// Where its first byte is in the file.
    pub offset: u64,
    /// Whether it may be executed; `None`: not known.
    pub is_code: Option<bool>,
}

/// Process address minus file address of an image whose first byte is mapped at `start`. `None`: none of its segments
/// begins there.
pub fn bias(image: &Image, start: u64) -> Option<u64> {
    let lowest = image.segments().iter().find(|load| load.kind == elf::PT_LOAD && load.offset == 0)?;
    Some(start.wrapping_sub(lowest.address & !(PAGE - 1)))
}

/// The mappings of the object whose first byte is mapped by the one with the index `first`, as indices: those of
/// `parts`, which are mappings of its file, that lie where a segment does. `None`: none of them is code, so that the
/// file was mapped to be read.
pub fn object_at(image: &Image, parts: &[Part], first: usize) -> Option<Vec<usize>> {
    let bias = bias(image, parts.get(first)?.place.start)?;
    let is_of = |part: &Part, load: &crate::Segment| {
        let start = bias.wrapping_add(load.address & !(PAGE - 1));
        let end = bias.wrapping_add(load.address).wrapping_add(load.memory_size);
        let there = Span::new(start, end).contains(part.place.start);
        there && part.offset == (load.offset & !(PAGE - 1)).wrapping_add(part.place.start - start)
    };
    let loads = || image.segments().iter().filter(|load| load.kind == elf::PT_LOAD);
    let code = |part: &Part| part.is_code != Some(false) && loads().any(|l| l.flags & elf::PF_X != 0 && is_of(part, l));
    if !parts.iter().any(code) {
        return None;
    }
    Some(
        (0..parts.len())
            .filter(|index| parts.get(*index).is_some_and(|part| loads().any(|l| is_of(part, l))))
            .collect(),
    )
}

/// As [`object_at`], where nothing is known of the file: that mapping, and those that adjoin each other from it on, or
/// lie above it and do not map the file's first page.
pub fn unknown_at(parts: &[Part], first: usize) -> Vec<usize> {
    let mut taken = vec![first];
    for (index, part) in parts.iter().enumerate().skip(first.saturating_add(1)) {
        let last = taken.last().and_then(|last| parts.get(*last));
        if part.offset == 0 && last.is_none_or(|last| last.place.end != part.place.start) {
            break;
        }
        taken.push(index);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// An ELF file with these PT_LOAD segments: offset, address, size, flags.
    fn image(loads: &[(u64, u64, u64, u32)]) -> Image {
        let mut bytes = vec![0u8; 64];
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        for (at, value) in [(16, 3u16), (18, 62), (52, 64), (54, 56), (56, loads.len() as u16)] {
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        bytes[20] = 1;
        bytes[32] = 64;
        for (offset, address, size, flags) in loads {
            bytes.extend(1u32.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            for word in [*offset, *address, *address, *size, *size, 0x1000] {
                bytes.extend(word.to_le_bytes());
            }
        }
        bytes.resize(0x4000, 0);
        Image::of_bytes(Path::new("made"), bytes).expect("an ELF file")
    }

    fn part(start: u64, end: u64, offset: u64, is_code: impl Into<Option<bool>>) -> Part {
        Part { place: Span::new(start, end), offset, is_code: is_code.into() }
    }

    /// Segments as lld lays them out: each begins in the page of the file in which the one before ends.
    #[test]
    fn segments_that_share_a_page_are_one_object() {
        let small =
            image(&[(0, 0, 0x6bc, 4), (0x6c0, 0x16c0, 0x180, 5), (0x840, 0x2840, 0x1b0, 6), (0x9f0, 0x39f0, 8, 6)]);
        let at = |base: u64, code: fn(bool) -> Option<bool>| {
            let page = |index: u64, is_code| part(base + index * PAGE, base + (index + 1) * PAGE, 0, code(is_code));
            [page(0, false), page(1, true), page(2, false), page(3, false)]
        };
        for code in [Some as fn(bool) -> Option<bool>, |_| None] {
            // Two copies side by side.
            let parts = [at(0x10000, code), at(0x14000, code)].concat();
            assert_eq!(object_at(&small, &parts, 0), Some(vec![0, 1, 2, 3]));
            assert_eq!(object_at(&small, &parts, 4), Some(vec![4, 5, 6, 7]));
            assert_eq!(unknown_at(&parts, 0).len(), 8, "without the file, nobody knows");
        }
    }

    #[test]
    fn a_file_that_is_read_is_no_object_and_hides_none() {
        let usual = image(&[(0, 0, 0x800, 4), (0x1000, 0x1000, 0x800, 5), (0x2000, 0x3000, 0x800, 6)]);
        let whole = part(0x10000, 0x14000, 0, false);
        let object = [
            part(0x14000, 0x15000, 0, false),
            part(0x15000, 0x16000, 0x1000, true),
            part(0x17000, 0x18000, 0x2000, false),
        ];
        // Its code was split by mprotect; a page of it was mapped once more elsewhere.
        let parts = [vec![whole], object.to_vec(), vec![part(0x30000, 0x31000, 0x1000, true)]].concat();
        assert_eq!(object_at(&usual, &parts, 0), None, "the code does not lie where it would be");
        assert_eq!(object_at(&usual, &parts, 1), Some(vec![1, 2, 3]));
        assert_eq!(object_at(&usual, &parts, 9), None);
        assert_eq!(unknown_at(&parts, 1), [1, 2, 3, 4]);
    }
}
