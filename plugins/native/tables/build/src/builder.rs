//! From sections of call frame information to a table.

use super::each_pc::{self, Budget, Of};
use super::go::{Checked, Depth, Go, Saves};
use super::layout::Layout;
use super::rule_set::{RuleSet, ASK, NOTHING};
use super::special::{self, Special};
use super::undescribed;
use uunwind_core::memory::Reader;
use uunwind_core::regs::SP;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_eh_frame::bytes::Input;
use uunwind_eh_frame::cpu::{Cpu, Native};
use uunwind_eh_frame::entry::{Entry, Section};
use uunwind_eh_frame::program::{initial, rows};
use uunwind_eh_frame::row::{Cfa, Kind, Row};
use uunwind_elf::Image;
use uunwind_tables::format::{CODE_LEFT_OUT, FROM_CODE, FROM_DEBUG_FRAME, FROM_EH_FRAME};

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

/// The reason why an object gets no table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoTable {
    /// There is no unwind information for any code of the object.
    #[error("no unwind information")]
    Nothing,
    /// Functions lie so far apart that the index would be larger than what it points to: first and last address.
    #[error("its functions are spread over {0:#x}..{1:#x}, which is too sparse for a rule table")]
    Sparse(u64, u64),
    /// Running its programs takes far more instructions than their bytes call for: made to keep us busy.
    #[error("its unwind programs run for ever")]
    Endless,
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
    special: Vec<Special>,
    memo: Vec<Option<(Row, u32)>>,
    budget: Budget,
    /// Some rows are Go's.
    has_go: bool,
}

/// The `.debug_frame` that describes a function, if one does, and its object.
type Debug<'a> = Option<(&'a [u8], Option<&'a Image>)>;

/// Rows are remembered with their rules' numbers: most are like others.
const MEMO: usize = 1024;

/// Where a row is remembered.
#[inline(always)]
fn place(row: &Row) -> usize {
    let cfa = match row.cfa {
        Cfa::Undefined => 0,
        Cfa::Offset(register, n) => u64::from(n as u32) << 8 | u64::from(register),
        Cfa::Expression(at, _) => !at,
    };
    let sum = row.key().wrapping_add(cfa.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (sum >> 40) as usize % MEMO
}

/// Whether two rows are the same. Without a branch for each place: most are.
#[inline(always)]
fn same(one: &Row, other: &Row) -> bool {
    let places = one.locations().iter().zip(other.locations());
    one.cfa == other.cfa && places.fold(0, |different, (a, b)| different | (a.word() ^ b.word())) == 0
}

/// A CIE is read, and its instructions are run, when an FDE has another one than the FDE before it. Real sections, of
/// many linked files, change once in a few hundred bytes at most; so often is too often.
const CIE_CHANGES: usize = 4096;
const BYTES_PER_CHANGE: usize = 64;

/// Whether a row's meaning lies in bytes elsewhere.
fn has_expression(row: &Row) -> bool {
    matches!(row.cfa, Cfa::Expression(..)) || row.locations().iter().any(|place| place.kind() == Kind::Expression)
}

/// Builds the table of an object with these sections and executable segments (`[start, end)`, without load bias), which
/// is to be found under `key`. `image`: the object's code, against which Go's unwind information is held, and of which
/// the rows of functions are made that no section describes.
///
/// ```
/// use uunwind_core::cache::short::Short;
/// use uunwind_core::regs::RSP;
/// use uunwind_core::rule::Rule;
/// use uunwind_core::span::Span;
/// use uunwind_tables::{Table, TableAnswer};
/// use uunwind_tables_build::{build, Source};
///
/// // A CIE: return address in column 16 at CFA - 8, and CFA = rsp + 8 where a function begins; an FDE of 8 bytes of
/// // code at 0x1000: after one byte (`push %rbx`), CFA = rsp + 16, and rbx at CFA - 16.
/// let mut bytes = vec![16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0];
/// bytes.extend([28, 0, 0, 0, 24, 0, 0, 0]);
/// bytes.extend(0x1000u64.to_le_bytes());
/// bytes.extend(8u64.to_le_bytes());
/// bytes.extend([0x41, 0x0e, 16, 0x83, 2, 0, 0, 0]);
/// // The end of the list.
/// bytes.extend([0, 0, 0, 0]);
///
/// let section = Source { debug: false, address: 0x8000, bytes: &bytes };
/// let table = build(&[section], &[(0x1000, 0x2000)], None, 7).expect("a table");
///
/// // A table lies at a multiple of 8.
/// let mut words = vec![0u64; table.len().div_ceil(8)];
/// // SAFETY: integers, as bytes.
/// let place = unsafe { &mut words.align_to_mut::<u8>().1[..table.len()] };
/// place.copy_from_slice(&table);
/// let table = Table::new(place).expect("whole");
///
/// assert_eq!(table.key(), 7);
/// assert_eq!(table.find(0x1000), TableAnswer::Short(Short::new(&Rule::simple(RSP, 8)).expect("short")));
/// assert_eq!(table.function(0x1003), Some(Span::new(0x1000, 0x1008)));
/// assert_eq!(table.find(0x1008), TableAnswer::Nothing);
/// ```
pub fn build(sources: &[Source<'_>], text: &[(u64, u64)], image: Option<&Image>, key: u64) -> Result<Vec<u8>, NoTable> {
    let mut builder = Builder { memo: vec![None; MEMO], ..Builder::default() };
    builder.special = image.map(|image| special::of(image, &mut builder.rules)).unwrap_or_default();
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
    if let Some(image) = image {
        used |= builder.add_undescribed(image);
    }
    builder.finish(key, used)
}

/// Distance in bytes from the stack pointer to the CFA, row by row. Nothing is returned after a row that cannot be run.
fn depths(entry: &Entry, start: Result<Row, StopReason>, input: &mut Input<'_, '_>) -> Vec<Depth> {
    let mut depths = Vec::new();
    let Ok(start) = start else { return depths };
    let run = rows(entry, start, input, |from, _, row, _| {
        let depth = match row.cfa {
            Cfa::Offset(SP, n) => Some(i64::from(n)),
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
        let address = if source.debug { each_pc::ADDRESS } else { source.address };
        let section = if source.debug { Section::DebugFrame(address) } else { Section::EhFrame };
        let mut input = Input::of_section(source.bytes, address, &mut nothing);
        let end = address.saturating_add(source.bytes.len() as u64);
        // The same row may have a rule in one section, and be left to the interpreter in another.
        self.memo.fill(None);
        let debug = source.debug.then_some((source.bytes, image));
        // The CIE last met, with the row that its functions begin with: most have the same one.
        let mut last: Option<(u64, Entry, Result<Row, StopReason>)> = None;
        let mut changes = 0;
        let mut at = address;
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
            self.has_go |= by_go;
            let go = by_go.then_some(image).flatten().map(|image| &*go.get_or_insert_with(|| Go::new(image)));
            let Some(go) = go else {
                self.function(&entry, *start, None, debug, &mut input);
                continue;
            };
            if let Some(checked) = go.agrees(&entry, &depths(&entry, *start, &mut input)) {
                self.function(&entry, *start, Some((go, checked)), debug, &mut input);
            }
        }
        Ok(())
    }

    /// Adds a function, given the row that it begins with. `go`: it is Go's.
    fn function(
        &mut self,
        entry: &Entry,
        start: Result<Row, StopReason>,
        go: Option<(&Go<'_>, Checked)>,
        debug: Debug<'_>,
        input: &mut Input<'_, '_>,
    ) {
        let first = self.rows.len();
        let plain = !entry.signal && go.is_none();
        let Ok(len) = u32::try_from(entry.end - entry.start) else { return };
        let (rules, out, memo, budget) = (&mut self.rules, &mut self.rows, &mut self.memo, &mut self.budget);
        let mut push = |from: u64, number: u32| {
            if out.len() == first || out.last().is_some_and(|(_, last)| *last != number) {
                out.push(((from - entry.start) as u32, number));
            }
        };
        let run = start.map_err(|reason| (entry.start, reason)).and_then(|start| {
            let initial = start;
            rows(entry, start, input, |from, to, row, input| {
                if from >= entry.end {
                    return;
                }
                // Within a row of Go's, rbp may be saved.
                let saved_from = go.and_then(|(_, checked)| checked.saved_from);
                let saves = |pc: u64| saved_from.map(|saved| if pc < saved { Saves::Later } else { Saves::Done });
                let Some(known) = memo.get_mut(place(row)) else { return };
                let number = match known {
                    // A signal frame's rows mean something else, and Go's.
                    Some((before, number)) if same(before, row) && plain => *number,
                    _ => {
                        input.depends_on_pc = false;
                        let rule = Native::rule(row, entry, from, input);
                        let of_go = |rule, pc| go.map_or(rule, |(go, _)| go.rule(entry, rule, saves(pc)));
                        if let (Some(saved), Ok(rule)) = (saved_from.filter(|saved| from < *saved && *saved < to), rule)
                        {
                            push(from, rules.number(&of_go(rule, from)));
                            push(saved, rules.number(&of_go(rule, saved)));
                            return;
                        }
                        let rule = rule.map(|rule| of_go(rule, from));
                        if let Some((section, image)) = debug.filter(|_| input.depends_on_pc && go.is_none()) {
                            let span = Span::new(from, to.min(entry.end));
                            let of = Of { row, initial: &initial, entry, section };
                            of.rules(span, image, budget, |pc, rule| {
                                let number = match rule {
                                    Ok(rule) => rules.number(&rule),
                                    Err(reason) => rules.failed(reason),
                                };
                                push(pc, number);
                            });
                            return;
                        }
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
        if let Some(kept) = go.and_then(|(_, checked)| checked.kept) {
            let number = rules.number(&kept.rule());
            let places = [(kept.from, kept.until), (kept.again, entry.end)];
            let special = places.map(|(from, to)| Special { from, to, number });
            let mut own = self.rows.split_off(first);
            special::put_in(&special, entry.start, len, &mut own);
            self.rows.extend(own);
        }
        let covers = |one: &Special| one.from < entry.end && entry.start < one.to;
        if self.special.iter().any(covers) {
            let mut own = self.rows.split_off(first);
            special::put_in(&self.special, entry.start, len, &mut own);
            self.rows.extend(own);
        }
        // Rows are fewer than the bytes of sections, which are below 4 GiB.
        self.functions.push(Function { start: entry.start, len, rows: (first as u32, self.rows.len() as u32) });
    }

    /// Adds the functions that no section describes, but in Go's programs, whose functions do not preserve the
    /// registers that C's do. Returns what the table is made of then.
    fn add_undescribed(&mut self, image: &Image) -> u8 {
        if self.has_go {
            return 0;
        }
        let described: Vec<Span> = self.functions.iter().map(|f| Span::new(f.start, f.end())).collect();
        let (found, is_cut) = undescribed::of(image, &described, &mut self.rules);
        let used = if found.is_empty() { 0 } else { FROM_CODE } | if is_cut { CODE_LEFT_OUT } else { 0 };
        for undescribed::Undescribed { span, rows } in found {
            let first = self.rows.len() as u32;
            self.rows.extend(rows);
            let Ok(len) = u32::try_from(span.end - span.start) else { continue };
            self.functions.push(Function { start: span.start, len, rows: (first, self.rows.len() as u32) });
        }
        used
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
