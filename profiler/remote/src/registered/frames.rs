//! Unwind data that was registered without a window: FDEs by the address of their code.

use std::collections::HashSet;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::rule::Packed;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_eh_frame::scan::{Next, Scan, Shape};
use uunwind_live::at_return;

/// The generation of frames in code without a window. Those of windows begin at 1, and never come so far.
pub const GENERATION: u64 = u32::MAX as u64;
/// At most this number of FDEs is kept, and of lists read.
const FDES: usize = 1 << 18;
const LISTS: usize = 1 << 16;
/// Longest time for all lists of a process.
const TIME: Duration = Duration::from_millis(200);
/// The clock is asked once for this number of entries, whatever they are.
const BATCH: usize = 256;

/// The unwind data of a piece of code.
#[derive(Clone, Copy)]
pub struct Fde {
    code: Span,
    fde: u64,
    /// All unwind data of its list.
    list: Span,
    defines_cfa: bool,
}

/// The FDEs of a process, in order of their code once they are sorted.
pub struct Frames {
    fdes: Vec<Fde>,
    lists: HashSet<u64>,
    until: Instant,
    cut: bool,
}

impl Frames {
    pub fn new() -> Frames {
        Frames { fdes: Vec::new(), lists: HashSet::new(), until: Instant::now() + TIME, cut: false }
    }

    /// Whether a limit was reached.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Counts one step along a list that may be without an end. False: a limit is reached.
    pub fn goes_on(&mut self, steps: usize) -> bool {
        if steps >= LISTS || self.fdes.len() >= FDES || Instant::now() >= self.until {
            self.cut = true;
        }
        !self.cut
    }

    /// Adds what is registered at a process address. `end`: where it ends without an end of its own.
    pub fn add(&mut self, begin: u64, shape: Shape, end: Option<u64>, reader: &mut Reader<'_>) {
        if begin == 0 || !self.lists.insert(begin) || !self.goes_on(self.lists.len()) {
            return;
        }
        let scan = match end {
            Some(end) => Scan::of_section(Span::new(begin, end)),
            None => Scan::new(begin, shape),
        };
        self.entries(scan, reader);
    }

    /// Adds the FDEs of a scan. Returns how many entries were looked at.
    fn entries(&mut self, mut scan: Scan, reader: &mut Reader<'_>) -> usize {
        let first = self.fdes.len();
        let mut entries = 0usize;
        // What stands before damage is good.
        while let Ok(next @ (Next::Fde(_) | Next::Other)) = scan.entry(reader) {
            if let Next::Fde(fde) = next {
                let code = Span::new(fde.start, fde.end);
                self.fdes.push(Fde { code, fde: fde.fde, list: Span::EMPTY, defines_cfa: fde.defines_cfa });
            }
            entries += 1;
            if entries.is_multiple_of(BATCH) && !self.goes_on(0) {
                break;
            }
        }
        let list = scan.span;
        self.fdes.iter_mut().skip(first).for_each(|fde| fde.list = list);
        entries
    }

    pub fn sort(&mut self) {
        self.fdes.sort_by_key(|fde| fde.code.start);
    }

    /// The one that covers a process address.
    pub fn fde(&self, lookup: u64) -> Option<&Fde> {
        let after = self.fdes.partition_point(|fde| fde.code.start <= lookup);
        self.fdes.get(after.checked_sub(1)?).filter(|fde| fde.code.contains(lookup))
    }
}

impl Fde {
    /// Whether its rule must be looked for in memory.
    pub fn needs_search(&self) -> bool {
        self.defines_cfa
    }

    /// The rule of a frame in its code. `None`: it is another one by now.
    pub fn rule(&self, cursor: &Cursor, reader: &mut Reader<'_>) -> Option<Packed> {
        if !self.defines_cfa {
            return Some(Packed::failed(StopReason::OpaqueWindow));
        }
        if let Some(rule) = at_return::rule(cursor, reader) {
            return Some(rule.pack());
        }
        match uunwind_eh_frame::find_at(self.fde, self.list, cursor.lookup_pc(), cursor.regs.pc, reader) {
            Ok(answer) => Some(Packed::from_result(answer.rule)),
            Err(StopReason::NoRule) => None,
            Err(reason) => Some(Packed::failed(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;

    /// A list without FDEs that have code takes no longer than others: the clock is asked all the same.
    #[test]
    fn entries_without_code_are_cut_when_the_time_is_over() {
        const AT: u64 = 0x10_0000;
        // CIEs of a length and their mark.
        let bytes = [4u32, 0].map(u32::to_le_bytes).as_flattened().repeat(16 * BATCH);
        let regions = [Region { address: AT, bytes: &bytes }];
        for (time, entries, is_cut) in [(TIME * 1000, 16 * BATCH, false), (Duration::ZERO, BATCH, true)] {
            let mut frames = Frames { until: Instant::now() + time, ..Frames::new() };
            let looked_at = frames.entries(Scan::new(AT, Shape::List), &mut Reader::recorded(&regions));
            assert_eq!((looked_at, frames.is_cut()), (entries, is_cut));
        }
    }
}
