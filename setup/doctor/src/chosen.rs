//! Which source a walk takes, range by range: what a process does, done to a file's bytes by the same code.

use super::binary::View;
use super::unwind_row::Piece;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::rule::is_final;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_sources::{By, Sources};
use uunwind_tables::{Table, TableAnswer};

/// Addresses that are looked up in place, in one file. Of hostile files each may take long.
pub const MOST_LOOKUPS: u32 = 1 << 19;

/// The source that has the rule for an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The object's rule table.
    Table,
    /// The object's rule table, which has the rule from the machine code: nothing describes the function.
    Code,
    /// The object's unwind data in place, or the bytes of `_init` and `_fini`.
    InPlace(By),
    /// Nothing does: the frame pointer, and the caller is marked.
    FramePointer,
    /// No code: what fills the room between functions.
    Padding,
    /// The source's answer cannot be used: the walk ends here, for this reason.
    Ends(StopReason),
    /// More addresses than are examined in one file.
    NotExamined,
}

/// Code for which one source is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// First file address.
    pub start: u64,
    /// Its end, exclusive, a file address.
    pub end: u64,
    /// The source that walks take in all of the range.
    pub choice: Choice,
}

/// The file's bytes as a process has them, for a walk's reader.
pub struct Memory {
    parts: Vec<(u64, Vec<u8>)>,
    sources: Sources,
}

impl Memory {
    /// Of a file without load bias.
    pub fn new(view: &View<'_>) -> Memory {
        // Read by aligned words: some more bytes on either side.
        let part = |part: &super::binary::Part<'_>| {
            let front = (part.address & 7) as usize;
            (part.address & !7, [&[0; 8][..front], part.bytes, &[0; 16]].concat())
        };
        let start = view.loads.iter().map(|load| load.address).min().unwrap_or(0);
        let image = Span::new(start, view.loads.iter().map(super::binary::Part::end).max().unwrap_or(0));
        let sources = Sources {
            eh_frame_hdr: view.eh_frame_hdr.map_or(0, |hdr| hdr.address),
            image,
            sframe: view.sframe_segment.map_or(Span::EMPTY, |part| Span::new(part.address, part.end())),
            text: image,
        };
        Memory { parts: view.loads.iter().map(part).collect(), sources }
    }

    /// The bytes, for a reader.
    pub(super) fn regions(&self) -> Vec<Region<'_>> {
        self.parts.iter().map(|(address, bytes)| Region { address: *address, bytes }).collect()
    }

    /// Where the unwind data lies.
    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// What a walk chooses in the file's text, with this rule table. `starts`: addresses at which another source may
    /// begin to answer, or the same one otherwise.
    pub fn choose(&self, view: &View<'_>, table: Option<&Table<'_>>, starts: &[u64]) -> Vec<Range> {
        let regions = self.regions();
        let mut reader = Reader::recorded(&regions);
        let mut left = MOST_LOOKUPS;
        let mut starts = starts.to_vec();
        starts.sort_unstable();
        starts.dedup();
        let mut ranges: Vec<Range> = Vec::new();
        for text in &view.text {
            let mut at = text.start;
            while at < text.end {
                let next = starts.get(starts.partition_point(|start| *start <= at)).copied().unwrap_or(u64::MAX);
                let (choice, within) = self.at(at, table, &mut left, &mut reader);
                let end = next.min(text.end).min(within);
                match ranges.last_mut().filter(|last| last.end == at && last.choice == choice && at != text.start) {
                    Some(last) => last.end = end,
                    None => ranges.push(Range { start: at, end, choice }),
                }
                at = end;
            }
        }
        ranges
    }

    /// What is chosen at an address, and the first address after it at which another choice may hold.
    fn at(&self, pc: u64, table: Option<&Table<'_>>, left: &mut u32, reader: &mut Reader<'_>) -> (Choice, u64) {
        if let Some(table) = table {
            let by_table = if table.is_by_code(pc) { Choice::Code } else { Choice::Table };
            match table.find(pc) {
                TableAnswer::Short(_) => return (by_table, u64::MAX),
                // Where the table knows why there is no rule, another source may have one.
                TableAnswer::Long(rule) if !rule.is_failed() || is_final(rule) => return (by_table, u64::MAX),
                _ => {}
            }
        }
        let Some(less) = left.checked_sub(1) else { return (Choice::NotExamined, u64::MAX) };
        *left = less;
        match uunwind_sources::find(&self.sources, pc, pc, reader) {
            (Ok(answer), by) => match answer.rule {
                Ok(_) if by == By::KnownCode => (Choice::InPlace(by), answer.function.end.max(pc + 1)),
                Ok(_) => (Choice::InPlace(by), u64::MAX),
                Err(reason) => (Choice::Ends(reason), u64::MAX),
            },
            (Err(StopReason::NoRule), _) => {
                match table.and_then(|table| table.described_without_rule(pc)?.unpack().err()) {
                    Some(reason) => (Choice::Ends(reason), u64::MAX),
                    None => (Choice::FramePointer, u64::MAX),
                }
            }
            (Err(reason), _) => (Choice::Ends(reason), u64::MAX),
        }
    }
}

/// Where rows begin and end.
pub fn rows(pieces: &[Piece]) -> impl Iterator<Item = u64> + '_ {
    pieces.iter().flat_map(|piece| [piece.start, piece.end])
}

/// Where functions begin and end, or gaps in them.
pub fn functions(pieces: &[Piece]) -> Vec<u64> {
    let mut starts = Vec::new();
    let mut last: Option<&Piece> = None;
    for piece in pieces {
        if last.is_none_or(|last| last.function != piece.function || last.end != piece.start) {
            starts.extend(last.map(|last| last.end));
            starts.push(piece.start);
        }
        last = Some(piece);
    }
    starts.extend(last.map(|last| last.end));
    starts
}
