//! From sections of call frame information to a table.

use super::go::{Depth, Go};
use super::layout::Layout;
use super::rule_set::{RuleSet, ASK, NOTHING};
use crate::elf::Image;
use std::fmt;
use uunwind_core::memory::Reader;
use uunwind_core::regs::RSP;
use uunwind_core::stop_reason::StopReason;
use uunwind_eh_frame::bytes::Input;
use uunwind_eh_frame::cpu::{Cpu, Native};
use uunwind_eh_frame::entry::{Entry, Section};
use uunwind_eh_frame::program::{initial, rows, Cfa, Kind, Row};
use uunwind_tables::format::{FROM_DEBUG_FRAME, FROM_EH_FRAME};

/// A section of call frame information. Where two cover an address, the first that is given counts.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// `.debug_frame` instead of `.eh_frame`.
    pub debug: bool,
    /// Its address, without load bias.
    pub address: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Why there is no table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoTable {
    /// There is no unwind information for any code of the object.
    Nothing,
    /// Functions lie so far apart that the index would be larger than what it points to: first and last address.
    Sparse(u64, u64),
    /// Running its programs takes far more instructions than their bytes call for: made to keep us busy.
    Endless,
}

impl fmt::Display for NoTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoTable::Nothing => write!(f, "no unwind information"),
            NoTable::Sparse(from, to) => {
                write!(f, "its functions are spread over {from:#x}..{to:#x}, which is too sparse for a rule table")
            }
            NoTable::Endless => write!(f, "its unwind programs run for ever"),
        }
    }
}

/// A row: where it begins, in bytes from its function, and its rule's number.
type Start = (u32, u32);

/// One FDE's part of the table.
struct Function {
    start: u64,
    len: u32,
    /// Its rows, in `Builder::rows`.
    rows: (u32, u32),
}

impl Function {
    fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }
}

#[derive(Default)]
struct Builder {
    rules: RuleSet,
    rows: Vec<Start>,
    functions: Vec<Function>,
    memo: Vec<Option<(Row, u32)>>,
}

/// Rows are remembered with their rules' numbers: most are like others.
const MEMO: usize = 1024;

/// Where a row is remembered.
#[inline(always)]
fn place(row: &Row) -> usize {
    let cfa = match row.cfa {
        Cfa::Undefined => 0,
        Cfa::Offset(register, n) => u64::from(n as u32) << 8 | u64::from(register),
        Cfa::Expression(at) => !at,
    };
    let sum = row.key().wrapping_add(cfa.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (sum >> 40) as usize % MEMO
}

/// Whether two rows are the same. Without a branch for each place: most are.
#[inline(always)]
fn same(one: &Row, other: &Row) -> bool {
    let places = one.places().iter().zip(other.places());
    one.cfa == other.cfa && places.fold(0, |different, (a, b)| different | (a.word() ^ b.word())) == 0
}

/// A CIE is read, and its instructions are run, when an FDE has another one than the FDE before it. Real sections, of many
/// linked files, change once in a few hundred bytes at most; so often is too often.
const CIE_CHANGES: usize = 4096;
const BYTES_PER_CHANGE: usize = 64;

/// Whether a row's meaning lies in bytes elsewhere.
fn has_expression(row: &Row) -> bool {
    matches!(row.cfa, Cfa::Expression(_)) || row.places().iter().any(|place| place.kind() == Kind::Expression)
}

/// Builds the table of an object with these sections and executable segments (`[start, end)`, without load bias), which is
/// to be found under `key`. `image`: the object's code, against which Go's unwind information is held.
pub fn build(sources: &[Source<'_>], text: &[(u64, u64)], image: Option<&Image>, key: u64) -> Result<Vec<u8>, NoTable> {
    let mut builder = Builder { memo: vec![None; MEMO], ..Builder::default() };
    let mut used = 0;
    let mut known = Vec::new();
    for source in sources {
        let before = builder.functions.len();
        // An FDE takes some 40 bytes, a row 6.
        builder.functions.reserve(source.bytes.len() / 40);
        builder.rows.reserve(source.bytes.len() / 6);
        builder.add(source, text, image, &known)?;
        if builder.functions.len() > before {
            used |= if source.debug { FROM_DEBUG_FRAME } else { FROM_EH_FRAME };
        }
        if sources.len() > 1 {
            known = builder.functions.iter().map(|f| (f.start, f.end())).collect();
            known.sort_unstable();
        }
    }
    builder.finish(key, used)
}

/// How far the CFA lies from the stack pointer, row by row. What follows a row that cannot be run is not told.
fn depths(entry: &Entry, start: Result<Row, StopReason>, input: &mut Input<'_, '_>) -> Vec<Depth> {
    let mut depths = Vec::new();
    let Ok(start) = start else { return depths };
    let run = rows(entry, start, input, |from, _, row, _| {
        let depth = match row.cfa {
            Cfa::Offset(RSP, n) => Some(i64::from(n)),
            _ => None,
        };
        depths.push((from, depth));
    });
    if let Err((from, _)) = run {
        depths.push((from, None));
    }
    depths
}

impl Builder {
    /// Adds the functions of a section that do not overlap a known one.
    fn add(
        &mut self,
        source: &Source<'_>,
        text: &[(u64, u64)],
        image: Option<&Image>,
        known: &[(u64, u64)],
    ) -> Result<(), NoTable> {
        let mut go: Option<Go<'_>> = None;
        // No pointer that leads out of the section is followed.
        let mut nothing = Reader::recorded(&[]);
        let section = if source.debug { Section::DebugFrame(source.address) } else { Section::EhFrame };
        let mut input = Input::of_section(source.bytes, source.address, &mut nothing);
        let end = source.address.saturating_add(source.bytes.len() as u64);
        // The CIE last met, with the row that its functions begin with: most have the same one.
        let mut last: Option<(u64, Entry, Result<Row, StopReason>)> = None;
        let mut changes = 0;
        let mut at = source.address;
        while at < end {
            let Some((next, head)) = section.next(at, &mut input) else { break };
            at = next;
            let Some((head, cie_at)) = head.and_then(|head| Some((head, head.cie?))) else { continue };
            if last.is_none_or(|(known, ..)| known != cie_at) {
                changes += 1;
                if changes > CIE_CHANGES && changes > source.bytes.len() / BYTES_PER_CHANGE {
                    return Err(NoTable::Endless);
                }
                let Ok(cie) = Entry::read_cie::<Native>(cie_at, section, &mut input) else { continue };
                last = Some((cie_at, cie, initial(&cie, &mut input)));
            }
            let Some((_, cie, start)) = &last else { continue };
            let Ok(entry) = Entry::read_fde(&head, cie, &mut input) else { continue };
            let inside = text.iter().any(|(from, to)| *from <= entry.start && entry.end <= *to);
            let later = known.partition_point(|(_, end)| *end <= entry.start);
            let overlaps = known.get(later).is_some_and(|(start, _)| *start < entry.end);
            if !inside || overlaps || entry.start >= entry.end {
                continue;
            }
            let by_go = source.debug && Go::wrote(cie);
            let go = by_go.then_some(image).flatten().map(|image| &*go.get_or_insert_with(|| Go::new(image)));
            if go.is_none_or(|go| go.agrees(&entry, &depths(&entry, *start, &mut input))) {
                self.function(&entry, *start, go, &mut input);
            }
        }
        Ok(())
    }

    /// Adds a function, given the row that it begins with. `go`: it is Go's.
    fn function(
        &mut self,
        entry: &Entry,
        start: Result<Row, StopReason>,
        go: Option<&Go<'_>>,
        input: &mut Input<'_, '_>,
    ) {
        let first = self.rows.len();
        let plain = !entry.signal && go.is_none();
        let Ok(len) = u32::try_from(entry.end - entry.start) else { return };
        let (rules, out, memo) = (&mut self.rules, &mut self.rows, &mut self.memo);
        let mut push = |from: u64, number: u32| {
            if out.len() == first || out.last().is_some_and(|(_, last)| *last != number) {
                out.push(((from - entry.start) as u32, number));
            }
        };
        let run = start.map_err(|reason| (entry.start, reason)).and_then(|start| {
            rows(entry, start, input, |from, _, row, input| {
                if from >= entry.end {
                    return;
                }
                let Some(known) = memo.get_mut(place(row)) else { return };
                let number = match known {
                    // A signal frame's rows mean something else, and Go's.
                    Some((before, number)) if same(before, row) && plain => *number,
                    _ => {
                        input.depends_on_pc = false;
                        let rule = Native::rule(row, entry, from, input);
                        let rule = rule.map(|rule| go.map_or(rule, |go| go.rule(entry, rule)));
                        let number = match rule {
                            _ if input.depends_on_pc => ASK,
                            Ok(rule) => rules.number(&rule),
                            Err(reason) => rules.failed(reason),
                        };
                        if plain && !has_expression(row) {
                            *known = Some((*row, number));
                        }
                        number
                    }
                };
                push(from, number);
            })
        });
        if let Err((from, reason)) = run {
            if from < entry.end {
                push(from, rules.failed(reason));
            }
        }
        // Rows are fewer than the bytes of sections, which are below 4 GiB.
        self.functions.push(Function { start: entry.start, len, rows: (first as u32, self.rows.len() as u32) });
    }

    /// The table's bytes.
    fn finish(mut self, key: u64, sources: u8) -> Result<Vec<u8>, NoTable> {
        self.functions.sort_by_key(|f| f.start);
        let (Some(first), Some(end)) = (self.functions.first(), self.functions.iter().map(Function::end).max()) else {
            return Err(NoTable::Nothing);
        };
        let base = first.start;
        let words = self.rules.into_words();
        let most_rows = self.rows.len() + self.functions.len();
        let layout = Layout::choose(base, end, words.len(), most_rows).ok_or(NoTable::Sparse(base, end))?;
        let mut table = layout.begin(&words);
        let mut functions = self.functions.iter().peekable();
        while let Some(function) = functions.next() {
            // Where functions overlap, the one that begins last counts, as in a search by start.
            let next = functions.peek().map(|next| next.start);
            let limit = next.map_or(function.end(), |next| next.min(function.end()));
            let own = function.rows.0 as usize..function.rows.1 as usize;
            for (from, number) in self.rows.get(own).unwrap_or(&[]) {
                let at = function.start + u64::from(*from);
                if at < limit {
                    table.push(at, *number, *from == 0);
                }
            }
            if next.is_none_or(|next| limit < next) {
                table.push(limit, NOTHING, false);
            }
        }
        Ok(table.finish(key, sources))
    }
}
