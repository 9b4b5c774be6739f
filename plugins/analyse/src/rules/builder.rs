//! From sections of call frame information to a table.

use super::rule_set::{Number, RuleSet};
use std::fmt;
use uunwind_core::memory::{Reader, Region};
use uunwind_eh_frame::bytes::Input;
use uunwind_eh_frame::entry::{Entry, Section};
use uunwind_eh_frame::program::{rows, Row};
use uunwind_eh_frame::row::to_rule;
use uunwind_tables::format::{checksum, Head, FROM_DEBUG_FRAME, FROM_EH_FRAME, HEAD_BYTES, MAGIC, SHIFTS};

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

/// A row: where it begins, and its rule.
type Start = (u64, Number);

/// One FDE's part of the table.
struct Function {
    start: u64,
    end: u64,
    /// Its rows, in `Builder::rows`.
    rows: std::ops::Range<usize>,
}

#[derive(Default)]
struct Builder {
    rules: RuleSet,
    rows: Vec<Start>,
    functions: Vec<Function>,
}

/// Instructions that may be run for each byte of a section. Real ones need less than one.
const STEPS_PER_BYTE: u64 = 16;

/// Builds the table of an object with these sections and executable segments (`[start, end)`, without load bias), which is
/// to be found under `key`.
pub fn build(sources: &[Source<'_>], text: &[(u64, u64)], key: u64) -> Result<Vec<u8>, NoTable> {
    let mut builder = Builder::default();
    let (mut used, mut size) = (0, 0);
    let mut known = Vec::new();
    for source in sources {
        let before = builder.functions.len();
        builder.add(source, text, &known)?;
        if builder.functions.len() > before {
            used |= if source.debug { FROM_DEBUG_FRAME } else { FROM_EH_FRAME };
            size += source.bytes.len() as u64;
        }
        known = builder.functions.iter().map(|f| (f.start, f.end)).collect();
        known.sort_unstable();
    }
    builder.finish(key, used, u32::try_from(size).unwrap_or(u32::MAX))
}

impl Builder {
    /// Adds the functions of a section that do not overlap a known one.
    fn add(&mut self, source: &Source<'_>, text: &[(u64, u64)], known: &[(u64, u64)]) -> Result<(), NoTable> {
        // Read by aligned words: some more bytes on either side.
        let front = (source.address & 7) as usize;
        let mut bytes = vec![0; front];
        bytes.extend_from_slice(source.bytes);
        bytes.extend([0; 16]);
        let regions = [Region { address: source.address & !7, bytes: &bytes }];
        let mut reader = Reader::recorded(&regions);
        let bounds = (source.address, source.address.saturating_add(source.bytes.len() as u64));
        let section = if source.debug { Section::DebugFrame(source.address) } else { Section::EhFrame };
        let mut input = Input::new(&mut reader, bounds);
        let mut steps = 0u64;
        let mut at = source.address;
        while at < bounds.1 {
            let Some((next, is_fde)) = section.next(at, &mut input) else { break };
            if let Some(entry) = is_fde.then(|| Entry::read(at, section, &mut input).ok()).flatten() {
                let inside = text.iter().any(|(from, to)| *from <= entry.start && entry.end <= *to);
                let later = known.partition_point(|(_, end)| *end <= entry.start);
                let overlaps = known.get(later).is_some_and(|(start, _)| *start < entry.end);
                if inside && !overlaps && entry.start < entry.end {
                    steps += u64::from(self.function(&entry, &mut input));
                    if steps > STEPS_PER_BYTE * (source.bytes.len() as u64 + 4096) {
                        return Err(NoTable::Endless);
                    }
                }
            }
            at = next;
        }
        Ok(())
    }

    /// Adds a function. Returns the number of instructions that were run.
    fn function(&mut self, entry: &Entry, input: &mut Input<'_, '_>) -> u32 {
        let first = self.rows.len();
        let mut previous: Option<(Row, Number)> = None;
        let (rules, out) = (&mut self.rules, &mut self.rows);
        let mut push = |from: u64, number: Number| {
            if out.len() == first || out.last().is_some_and(|(_, last)| *last != number) {
                out.push((from, number));
            }
        };
        let (steps, run) = rows(entry, input, |from, _, row, input| {
            if from >= entry.end {
                return;
            }
            let number = match previous.filter(|(before, _)| before == row) {
                Some((_, number)) => number,
                None => {
                    input.depends_on_pc = false;
                    let rule = to_rule(row, entry, from, input);
                    match rule {
                        _ if input.depends_on_pc => Number::Ask,
                        Ok(rule) => rules.number(&rule),
                        Err(reason) => rules.failed(reason),
                    }
                }
            };
            previous = Some((*row, number));
            push(from, number);
        });
        if let Err((from, reason)) = run {
            if from < entry.end {
                push(from, rules.failed(reason));
            }
        }
        self.functions.push(Function { start: entry.start, end: entry.end, rows: first..self.rows.len() });
        steps
    }

    /// The table's bytes.
    fn finish(mut self, key: u64, sources: u32, size: u32) -> Result<Vec<u8>, NoTable> {
        self.functions.sort_by_key(|f| f.start);
        let all = self.in_order();
        let (Some(first), Some(last)) = (all.first(), all.last()) else { return Err(NoTable::Nothing) };
        let (base, end) = (first.0, last.0);
        let (shorts, longs) = self.rules.into_rules();
        // About eight rows a block: one cache line holds the rows of most.
        let blocks_at = |shift: u32| ((end - base) >> shift) + 1;
        let shift = SHIFTS.into_iter().find(|shift| blocks_at(*shift) <= all.len() as u64 / 8);
        let shift = shift.unwrap_or(*SHIFTS.end());
        let blocks = blocks_at(shift);
        if blocks > 4 * all.len() as u64 + 1024 {
            return Err(NoTable::Sparse(base, end));
        }
        let mut head = Head {
            magic: MAGIC,
            key,
            checksum: 0,
            base,
            blocks: blocks as u32,
            rows: all.len() as u32,
            shorts: shorts.len() as u32,
            longs: longs.len() as u32,
            shift,
            sources,
            size,
        };
        let mut bytes =
            Vec::with_capacity(HEAD_BYTES + shorts.len() * 8 + longs.len() * 24 + (blocks as usize + 1 + all.len()) * 4);
        bytes.extend(head.to_bytes());
        shorts.iter().chain(longs.iter().flatten()).for_each(|word| bytes.extend(word.to_le_bytes()));
        let mut row = 0u32;
        for block in 0..=blocks {
            while all.get(row as usize).is_some_and(|(from, ..)| (from - base) >> shift < block) {
                row += 1;
            }
            bytes.extend(row.to_le_bytes());
        }
        let most = u32::MAX >> shift >> 1;
        for (from, number, begins) in all {
            let number = match number {
                Number::Ask => 0,
                Number::Short(n) => n + 1,
                Number::Long(n) => n + 1 + head.shorts,
            };
            let within = (from - base) as u32 & ((1 << shift) - 1);
            // A rule that cannot be numbered is left to the interpreter.
            let number = if number > most { 0 } else { number };
            bytes.extend((within << (32 - shift) | u32::from(begins) << (31 - shift) | number).to_le_bytes());
        }
        head.checksum = checksum(&bytes);
        if let Some(place) = bytes.get_mut(..HEAD_BYTES) {
            place.copy_from_slice(&head.to_bytes());
        }
        Ok(bytes)
    }

    /// All rows by address: where each begins, its rule, and whether a function begins there. Where functions overlap, the
    /// one that begins last counts, as in a search by start. Ends with a row that says nothing.
    fn in_order(&self) -> Vec<(u64, Number, bool)> {
        let mut all: Vec<(u64, Number, bool)> = Vec::with_capacity(self.rows.len() + self.functions.len() * 2);
        let mut end = None;
        for function in &self.functions {
            match end {
                Some(end) if end < function.start => all.push((end, Number::Ask, false)),
                Some(_) => {
                    while all.last().is_some_and(|(from, ..)| *from >= function.start) {
                        all.pop();
                    }
                }
                None => {}
            }
            let rows = self.rows.get(function.rows.clone()).unwrap_or(&[]);
            all.extend(rows.iter().zip(0..).map(|((from, number), i)| (*from, *number, i == 0)));
            end = Some(function.end);
        }
        all.extend(end.map(|end| (end, Number::Ask, false)));
        all
    }
}

