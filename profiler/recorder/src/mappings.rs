//! Which mapping of a process lies where, by its log: so what a part of one is, that is unmapped, is known exactly, and
//! nothing of it is kept in the process.
//!
//! Mappings that were not sampled are followed, too: what is moved by mremap(2) is anonymous memory if it was before.

use std::collections::{BTreeMap, HashMap, VecDeque};
use uunwind_recording::Unmap;
use uunwind_ring::frees::{Entry, Span};

/// Most pieces that are followed of a process. The kernel allows 65,530 mappings by default, and makes one of those
/// that touch.
const PIECES: usize = 1 << 20;
/// What the last calls have unmapped is remembered, of this number of them: one that fails says so soon.
const CALLS: usize = 1 << 14;

/// A mapping, or what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// The address after its last byte.
    end: u64,
    /// Number of its sampled allocation; 0: it was not sampled.
    id: u64,
    /// Nothing of it has gone.
    is_whole: bool,
}

fn bytes_of((start, piece): &(u64, Piece)) -> i64 {
    i64::try_from(piece.end.saturating_sub(*start)).unwrap_or(i64::MAX)
}

/// The anonymous mappings of a process.
#[derive(Debug, Default)]
pub struct Mappings {
    /// By their first address; none overlaps another one.
    pieces: BTreeMap<u64, Piece>,
    /// What the last calls have unmapped, by their numbers.
    gone: HashMap<u64, Vec<(u64, Piece)>>,
    /// The numbers of these calls, the oldest first.
    calls: VecDeque<u64>,
    /// Sampled mappings for which there was no room.
    pub lost: u64,
}

impl Mappings {
    /// Takes an entry of the log over. `change` gets what changes for sampled allocations: number and bytes, and
    /// whether it goes as a whole, as the last thing that its thread has allocated.
    pub fn take(&mut self, entry: Entry, mut change: impl FnMut(u64, i64, bool)) {
        match entry {
            Entry::Free { .. } => {}
            Entry::Leaves { call, span, last } => {
                let gone = self.cut(span);
                for at in gone.iter().filter(|(_, piece)| piece.id != 0) {
                    change(at.1.id, -bytes_of(at), at.1.id == last && at.1.is_whole);
                }
                if !gone.is_empty() {
                    self.remember(call, gone);
                }
            }
            Entry::Stays { call } => {
                for at in self.gone.remove(&call).unwrap_or_default() {
                    if at.1.id != 0 {
                        change(at.1.id, bytes_of(&at), false);
                    }
                    self.pieces.insert(at.0, at.1);
                }
            }
            Entry::Comes { id, span, moved_by } => {
                if moved_by != 0 && self.gone.remove(&moved_by).is_none() {
                    if id != 0 {
                        change(id, Unmap::NEVER, false);
                    }
                    return;
                }
                // What lay there was unmapped in a way that was not seen.
                self.cut(span).iter().filter(|at| at.1.id != 0).for_each(|at| change(at.1.id, -bytes_of(at), false));
                let Some(end) = span.start.checked_add(span.bytes).filter(|end| *end > span.start) else { return };
                if self.pieces.len() < PIECES {
                    self.pieces.insert(span.start, Piece { end, id, is_whole: true });
                } else if id != 0 {
                    self.lost += 1;
                }
            }
        }
    }

    /// Takes out what lies in these addresses, and returns it.
    fn cut(&mut self, Span { start, bytes }: Span) -> Vec<(u64, Piece)> {
        let end = start.saturating_add(bytes);
        if end <= start {
            return Vec::new();
        }
        // The first one may begin before.
        let first = self.pieces.range(..start).next_back().filter(|(_, piece)| piece.end > start).map(|(at, _)| *at);
        let from = first.unwrap_or(start);
        let met: Vec<u64> = self.pieces.range(from..end).map(|(at, _)| *at).collect();
        let mut gone = Vec::with_capacity(met.len());
        for at in met {
            let Some(piece) = self.pieces.remove(&at) else { continue };
            let is_whole = piece.is_whole && at >= start && piece.end <= end;
            let piece = Piece { is_whole, ..piece };
            if at < start {
                self.pieces.insert(at, Piece { end: start, ..piece });
            }
            if piece.end > end {
                self.pieces.insert(end, piece);
            }
            gone.push((at.max(start), Piece { end: piece.end.min(end), ..piece }));
        }
        gone
    }

    /// Keeps what a call has unmapped, in case it says that it has failed.
    fn remember(&mut self, call: u64, gone: Vec<(u64, Piece)>) {
        if self.calls.len() >= CALLS {
            if let Some(oldest) = self.calls.pop_front() {
                self.gone.remove(&oldest);
            }
        }
        self.calls.push_back(call);
        self.gone.insert(call, gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn span(first: u64, pages: u64) -> Span {
        Span { start: first * PAGE, bytes: pages * PAGE }
    }

    fn comes(id: u64, first: u64, pages: u64) -> Entry {
        Entry::Comes { id, span: span(first, pages), moved_by: 0 }
    }

    fn leaves(call: u64, first: u64, pages: u64) -> Entry {
        Entry::Leaves { call, span: span(first, pages), last: 0 }
    }

    /// What changes, in pages.
    fn changes(mappings: &mut Mappings, entries: &[Entry]) -> Vec<(u64, i64)> {
        let mut all = Vec::new();
        for entry in entries {
            mappings.take(*entry, |id, bytes, is_temporary| {
                assert!(!is_temporary);
                all.push((id, if bytes == Unmap::NEVER { bytes } else { bytes / 4096 }));
            });
        }
        all
    }

    #[test]
    fn parts_are_cut_out_of_any_place() {
        let mut mappings = Mappings::default();
        let all = [comes(1, 100, 10), comes(2, 110, 10), comes(0, 120, 10), leaves(11, 102, 3), leaves(12, 108, 30)];
        assert_eq!(changes(&mut mappings, &all), [(1, -3), (1, -2), (2, -10)]);
        // What is left: 100 to 102, 105 to 108.
        assert_eq!(changes(&mut mappings, &[leaves(13, 0, 1000), leaves(14, 0, 1000)]), [(1, -2), (1, -3)]);
        // Over all addresses, and over none.
        let widest = Entry::Leaves { call: 15, span: Span { start: 4096, bytes: u64::MAX }, last: 0 };
        let none = Entry::Leaves { call: 16, span: Span { start: 4096, bytes: 0 }, last: 0 };
        assert_eq!(changes(&mut mappings, &[comes(3, 7, 1), none, widest]), [(3, -1)]);
    }

    #[test]
    fn what_could_not_be_unmapped_stays() {
        let mut mappings = Mappings::default();
        let all = [comes(1, 100, 10), leaves(11, 104, 2), Entry::Stays { call: 11 }, Entry::Stays { call: 11 }];
        assert_eq!(changes(&mut mappings, &all), [(1, -2), (1, 2)]);
        assert_eq!(changes(&mut mappings, &[leaves(12, 100, 10)]), [(1, -4), (1, -2), (1, -4)]);
    }

    #[test]
    fn what_is_moved_was_known_or_is_nothing() {
        let mut mappings = Mappings::default();
        let moved = |id, first, pages, call| Entry::Comes { id, span: span(first, pages), moved_by: call };
        // One that was not sampled becomes one that is, by its new size.
        let all = [comes(0, 100, 10), leaves(11, 100, 10), moved(5, 200, 20, 11), leaves(12, 210, 1)];
        assert_eq!(changes(&mut mappings, &all), [(5, -1)]);
        // A file's.
        assert_eq!(changes(&mut mappings, &[leaves(13, 700, 1), moved(6, 800, 2, 13)]), [(6, Unmap::NEVER)]);
        assert_eq!(changes(&mut mappings, &[leaves(14, 800, 2)]), []);
    }

    #[test]
    fn a_mapping_on_another_one_replaces_it() {
        let mut mappings = Mappings::default();
        assert_eq!(changes(&mut mappings, &[comes(1, 100, 10), comes(2, 105, 10)]), [(1, -5)]);
        assert_eq!(changes(&mut mappings, &[leaves(3, 100, 15)]), [(1, -5), (2, -10)]);
    }

    #[test]
    fn what_goes_at_once_and_whole_is_temporary() {
        let temporary = |entries: &[Entry]| {
            let (mut mappings, mut all) = (Mappings::default(), Vec::new());
            for entry in entries {
                mappings.take(*entry, |id, _, is_temporary| all.extend(is_temporary.then_some(id)));
            }
            all
        };
        let leaves = |first, pages, last| Entry::Leaves { call: 9, span: span(first, pages), last };
        assert_eq!(temporary(&[comes(1, 100, 10), comes(2, 110, 10), leaves(90, 50, 2)]), [2]);
        assert_eq!(temporary(&[comes(1, 100, 10), leaves(100, 4, 1), leaves(104, 6, 1)]), []);
        assert_eq!(temporary(&[comes(1, 100, 10), leaves(100, 10, 0)]), []);
    }

    /// Against an array with the owner of each page.
    #[test]
    fn it_is_what_a_map_of_pages_is() {
        let (mut mappings, mut pages, mut sums) = (Mappings::default(), [0u64; 64], HashMap::<u64, i64>::new());
        let mut random = 88_172_645_463_325_252u64;
        for id in 1..50_000u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (first, count) = (random % 60, random >> 20 & 7);
            let count = count.min(64 - first);
            let is_mapped = random >> 40 & 1 == 0;
            let fails = !is_mapped && random >> 41 & 3 == 0;
            let entry = if is_mapped { comes(id, first, count) } else { leaves(id, first, count) };
            let mut entries = vec![entry];
            entries.extend(fails.then_some(Entry::Stays { call: id }));
            for (of, change) in changes(&mut mappings, &entries) {
                *sums.entry(of).or_default() += change;
            }
            if !fails {
                pages[first as usize..(first + count) as usize].fill(if is_mapped { id } else { 0 });
            }
            if is_mapped {
                sums.insert(id, count as i64);
            }
        }
        for (id, left) in sums {
            assert_eq!(left, pages.iter().filter(|page| **page == id).count() as i64, "{id}");
        }
    }
}
