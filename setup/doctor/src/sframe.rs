//! SFrame as pieces, by the reader that walks use.

use super::binary::{Part, View};
use super::unwind_row::{normal, untangle, Piece};
use uunwind_core::memory::{Reader, Region};
use uunwind_core::span::Span;
use uunwind_sframe::function::{Extent, Function};
use uunwind_sframe::row::{Row, Unwind};
use uunwind_sframe::table::Table;
use uunwind_sframe::{visit, Fault, Section, Visitor};

/// Blocks (PLT entries) are listed one by one: at most this number of pieces in one file.
const MOST_PIECES: u64 = 1 << 19;

/// The content of an SFrame section.
#[derive(Default, Debug)]
pub struct Source {
    /// By address, without overlaps.
    pub pieces: Vec<Piece>,
    /// Versions of its tables.
    pub versions: Vec<u8>,
    /// Number of function descriptors.
    pub functions: usize,
    /// Number of rows.
    pub rows: usize,
    /// Checks that failed.
    pub faults: Vec<Fault>,
    /// Ranges described twice; the first descriptor holds.
    pub overlaps: Vec<Span>,
    /// Ranges of blocks beyond the limit of pieces.
    pub beyond: Vec<Span>,
}

/// Reads all of it. Empty if the file has none.
pub fn read(view: &View<'_>) -> Source {
    match view.sframe() {
        Some((part, _)) => read_part(part, view.text_span()),
        None => Source::default(),
    }
}

/// Reads a section's bytes, which may describe `text`.
pub fn read_part(part: Part<'_>, text: Span) -> Source {
    let mut collector = Collector::default();
    show(part, text, &mut collector);
    collector.finish();
    let mut source = collector.source;
    source.overlaps = untangle(&mut source.pieces);
    source
}

/// Shows a section's bytes to a visitor.
pub fn show(part: Part<'_>, text: Span, visitor: &mut impl Visitor) {
    let regions = [Region { address: part.address, bytes: part.bytes }];
    let section = Section::new(Span::new(part.address, part.end()), text);
    visit(&section, &mut Reader::recorded(&regions), visitor);
}

#[derive(Default)]
struct Collector {
    source: Source,
    /// The current function, its rows until now.
    function: Option<(Function, Vec<(u32, Unwind)>)>,
    /// Pieces of blocks so far.
    blocks: u64,
}

impl Visitor for Collector {
    fn table(&mut self, table: &Table) {
        self.source.versions.push(table.version);
    }

    fn function(&mut self, table: &Table, function: &Function) {
        self.finish();
        self.source.functions += 1;
        let mut rows = Vec::new();
        if function.rows == 0 && table.version == 3 && !function.signal {
            rows.push((0, Unwind::Outermost));
        }
        self.function = Some((*function, rows));
    }

    fn row(&mut self, _: &Table, _: &Function, row: &Row) {
        self.source.rows += 1;
        if let Some((_, rows)) = &mut self.function {
            rows.push((row.start, normal(row.unwind)));
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.source.faults.push(fault);
    }
}

impl Collector {
    fn finish(&mut self) {
        let Some((function, rows)) = self.function.take() else { return };
        let range = function.range();
        let Span { start, end } = range;
        let block = match function.extent {
            Extent::Whole => u64::from(function.size).max(1),
            Extent::Blocks(size) => u64::from(size),
            Extent::UnknownBlocks => return,
        };
        let blocks = u64::from(function.size).div_ceil(block);
        if blocks > 1 {
            let needed = blocks.saturating_mul(rows.len() as u64);
            let Some(left) = MOST_PIECES.checked_sub(self.blocks.saturating_add(needed)) else {
                self.source.beyond.push(range);
                return;
            };
            self.blocks = MOST_PIECES - left;
        }
        for n in 0..blocks {
            let base = start + n * block;
            let limit = (base + block).min(end);
            for (index, (from, rule)) in rows.iter().enumerate() {
                let next = rows.get(index + 1).map_or(limit, |(next, _)| limit.min(base + u64::from(*next)));
                let from = base + u64::from(*from);
                if from < next {
                    let (function, signal) = (start, function.signal);
                    self.source.pieces.push(Piece { start: from, end: next, function, signal, rule: Ok(*rule) });
                }
            }
        }
    }
}
