//! Binary search in a sorted table of foreign memory.

use super::probed::{is_noted, PAGE};
use super::{guarded, Direct, Reader, USER_END};
use crate::span::Span;
use core::hint::select_unpredictable;

/// Bytes of an entry.
const ENTRY: u64 = 8;

/// The number of entries in front for which `is_before` is true, of `count` in a sorted table, at least one. `load`
/// loads their words by their distance in bytes. Of a table that is not sorted, any number up to `count`.
#[inline(always)]
fn partition_point(count: u64, mut load: impl FnMut(u64) -> u64, is_before: impl Fn(u64) -> bool) -> u64 {
    // The point is one of the `left` entries from `at` on, or just after them.
    let (mut at, mut left) = (0, count);
    while left > 1 {
        let half = left / 2 * ENTRY;
        // No processor predicts this well, so that it is no branch.
        at = select_unpredictable(is_before(load(at + half - ENTRY)), at + half, at);
        left -= left / 2;
    }
    (at + if is_before(load(at)) { ENTRY } else { 0 }) / ENTRY
}

impl Direct<'_> {
    /// Of the `count` entries of eight bytes from the process address `first` on, the number of those in front for
    /// which `is_before` is true. `None`: not all of them lie in this memory, or one that was looked at is unreadable
    /// now. At most 64 loads. Async-signal-safe.
    #[inline(always)]
    pub fn partition_point(&self, first: u64, count: u64, is_before: impl Fn(u64) -> bool) -> Option<u64> {
        let Some(last) = count.checked_sub(1) else { return Some(0) };
        // All words from the first one to the last one can be loaded.
        let room = self.len.checked_sub(first.wrapping_sub(self.start)).filter(|room| *room > 0)?;
        if last > (room - 1) / ENTRY {
            return None;
        }
        let (from, mut failed) = (first.wrapping_add(self.shift), 0);
        let point = partition_point(count, |distance| guarded::load_at(from, distance, &mut failed), is_before);
        (failed == 0).then_some(point)
    }
}

/// A table in the image whose unwind data is being read ([`Reader::begin_image`]), as far as its pages are known to be
/// readable. It must lie in user space, aligned to four bytes.
#[derive(Clone, Copy, Debug)]
pub struct ImageTable {
    believed: u64,
    /// Its first address.
    start: u64,
    /// The number of its bytes; 0 also if nothing is known.
    len: u64,
}

impl ImageTable {
    /// Nothing is known.
    pub const NONE: ImageTable = ImageTable { believed: 0, start: 0, len: 0 };

    /// The four bytes at an address, at a distance from the table's first one that is a multiple of four. `None`: they
    /// are none of the table's, or it is not known whether they are readable.
    #[inline(always)]
    pub fn u32(&self, address: u64) -> Option<u32> {
        let distance = address.wrapping_sub(self.start);
        let is_known = distance < self.len && distance & 3 == 0 && is_noted(self.believed, address / PAGE);
        // SAFETY: four aligned bytes lie in one page, which was found readable, as for any probed read.
        is_known.then(|| unsafe { (address as *const u32).read_volatile() })
    }

    /// As [`Direct::partition_point`], of entries on one page. `None`: it is not known whether they are readable.
    #[inline(always)]
    pub fn partition_point(&self, first: u64, count: u64, is_before: impl Fn(u64) -> bool) -> Option<u64> {
        let (bytes, distance) = (count.wrapping_mul(ENTRY), first.wrapping_sub(self.start));
        let is_inside = distance < self.len && bytes <= self.len - distance && distance & 3 == 0;
        if count == 0 || count > PAGE / ENTRY || !is_inside || first % PAGE + bytes > PAGE {
            return None;
        }
        if !is_noted(self.believed, first / PAGE) {
            return None;
        }
        let load = |distance: u64| {
            // SAFETY: all entries lie on a page that was found readable, as for any probed read.
            unsafe { (first.wrapping_add(distance) as *const u64).read_unaligned() }
        };
        Some(partition_point(count, load, is_before))
    }
}

impl Reader<'_> {
    /// What is known of the pages of a table in the image: nothing, if reads are not probed, or are logged.
    #[inline(always)]
    pub fn image_table(&self, table: Span) -> ImageTable {
        if !self.is_probed() || self.log.is_open() || table.start & 3 != 0 || table.end > USER_END {
            return ImageTable::NONE;
        }
        let len = table.end.saturating_sub(table.start);
        ImageTable { believed: self.pages.believed(), start: table.start, len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_point_is_that_of_a_slice_at_any_length_and_place() {
        let mut random = uunwind_random::Random::new(3);
        for count in (0..70).chain([255, 256, 257, 1000]) {
            let mut entries: Vec<u64> = (0..count).map(|_| random.below(count / 2 + 1)).collect();
            entries.sort_unstable();
            for front in [0usize, 3, 8] {
                let mut bytes = vec![0xff; front];
                bytes.extend(entries.iter().flat_map(|entry| entry.to_le_bytes()));
                let direct = Direct::of_bytes(&bytes, 0x1000);
                for wanted in 0..count / 2 + 2 {
                    let point = direct.partition_point(0x1000 + front as u64, count, |entry| entry < wanted);
                    assert_eq!(point, Some(entries.partition_point(|entry| *entry < wanted) as u64));
                }
            }
        }
    }

    #[test]
    fn tables_that_leave_the_memory_are_refused() {
        let bytes = [0; 80];
        let direct = Direct::of_bytes(&bytes, 0x1000);
        let is_found = |first, count| direct.partition_point(first, count, |_| true).is_some();
        assert!(is_found(0x1000, 10) && is_found(0x1048, 1) && is_found(0x1001, 9));
        assert!(!is_found(0x1000, 11) && !is_found(0x1049, 1) && !is_found(0x1001, 10) && !is_found(0xfff, 1));
        assert!(!is_found(0x1000, u64::MAX) && !is_found(u64::MAX - 7, 2) && !is_found(0x1050, 1));
        assert!(Direct::NONE.partition_point(0x1000, 1, |_| true).is_none() && is_found(0, 0));
    }

    #[test]
    fn a_table_of_an_image_is_read_on_pages_that_are_known_and_nowhere_else() {
        let words: Vec<u64> = (0..3 * PAGE / ENTRY).collect();
        let start = words.as_ptr() as u64;
        let (page, end) = (start.next_multiple_of(PAGE), start + 3 * PAGE);
        let table = Span::new(start, end);
        let look = |generation: u64, last_page: u64| {
            let mut reader = Reader::probed();
            reader.begin_image(table, generation, last_page);
            assert!(reader.u8(page).is_some() && reader.u8(page + PAGE).is_some());
            reader
        };
        // What a walk before has noted is believed if the last page is there.
        let (generation, last) = (0x1234, (end - 1) / PAGE * PAGE);
        look(generation, last);
        let mut reader = look(generation, last);
        let known = reader.image_table(table);
        let first = (page - start) / ENTRY;
        assert_eq!(known.u32(page), Some(first as u32));
        assert_eq!([known.u32(page + 2), known.u32(end), known.u32(start - 4)], [None; 3]);
        let all = PAGE / ENTRY;
        assert_eq!(known.partition_point(page, all, |word| word < first + 9), Some(9));
        assert_eq!(known.partition_point(page, all + 1, |_| true), None);
        assert_eq!(known.partition_point(page + ENTRY, all, |_| true), None);
        // Of another load, of one whose file is shorter, after the image's end, and where reads are not probed.
        let nothing =
            |table: ImageTable| table.u32(page).is_none() && table.partition_point(page, 8, |_| true).is_none();
        assert!(
            nothing(look(generation + 1, last).image_table(table)) && nothing(look(generation, 0).image_table(table))
        );
        reader.end_image();
        assert!(nothing(reader.image_table(table)) && nothing(Reader::recorded(&[]).image_table(table)));
        assert!(nothing(look(generation, last).image_table(Span::new(page + 1, end))));
    }
}
