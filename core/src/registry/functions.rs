//! The functions of a window: a table that the registrar fills, possibly while it is read.

use super::window::{Function, Window, DESCENDING};
use crate::memory::Reader;

/// The `index`-th function of the table.
fn entry(window: &Window, index: u64, reader: &mut Reader<'_>) -> Option<Function> {
    let at = window.functions.wrapping_add(index.wrapping_mul(size_of::<Function>() as u64));
    let (range, unwind) = (reader.word(at)?, reader.word(at.wrapping_add(8))?);
    Some(Function {
        start: range as u32,
        len: (range >> 32) as u32,
        unwind: unwind as u32,
        name_len: (unwind >> 32) as u32,
        name: reader.word(at.wrapping_add(16))?,
    })
}

/// The function that covers `lookup`, by the window's table. The counter is loaded once, and entries beyond it are not
/// read. Tombstones cover nothing. At most 33 probes. Async-signal-safe.
pub fn find(window: &Window, lookup: u64, reader: &mut Reader<'_>) -> Option<Function> {
    if window.functions == 0 {
        return None;
    }
    let count = match window.published {
        0 => window.capacity,
        // The counter is stored with release order after the entries; loads on x86-64 are not reordered.
        published => reader.word(published)?.min(window.capacity),
    };
    let offset = lookup.wrapping_sub(window.start);
    let descending = window.flags & DESCENDING != 0;
    // Ascending: the index after the last start at or below; descending: the first such start.
    let (mut low, mut high) = (0, count);
    for _ in 0..33 {
        if low >= high {
            break;
        }
        let middle = low + (high - low) / 2;
        let at_or_below = u64::from(entry(window, middle, reader)?.start) <= offset;
        if at_or_below != descending {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let index = if descending { Some(low).filter(|low| *low < count) } else { low.checked_sub(1) };
    let function = entry(window, index?, reader)?;
    (offset.wrapping_sub(u64::from(function.start)) < u64::from(function.len)).then_some(function)
}
