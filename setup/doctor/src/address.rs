//! The rule of one address: what each source of a file has for it, in the order in which walks try them, and which one
//! a walk takes.
//!
//! Addresses are file addresses, as readelf, objdump and nm show them. An address counts as that of an interrupted
//! instruction; one that follows a call is looked up as a return address as well ([`AddressReport::returned`]).

use super::binary::{Binary, View};
use super::chosen::Memory;
use super::doctor::{examinable, table_of, Aligned};
use super::{eh_frame, padding, sframe, Refusal};
use object::{Object, ObjectSymbol};
use uunwind_core::call_site;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::regs::{Regs, COUNT};
use uunwind_core::rule::{is_final, Rule};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_elf::Image;
use uunwind_sframe::Section;
use uunwind_sources::{By, Sources};
use uunwind_tables::{Table, TableAnswer};
use uunwind_tables_build as rules;

/// A source of rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The object's rule table.
    Table,
    /// The end of `swapcontext`, by its bytes: `.eh_frame` describes it wrongly.
    SwitchingCode,
    /// `.eh_frame`, interpreted in place.
    EhFrame,
    /// `.debug_frame`: no segment holds it, so walks have it through the rule table only.
    DebugFrame,
    /// SFrame, read in place.
    Sframe,
    /// The machine code, of functions that nothing describes: walks have its rules through the rule table only.
    Code,
    /// Code without unwind information that is recognised by its bytes.
    KnownCode,
    /// The frame pointer.
    FramePointer,
}

/// What a source has for an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Where the caller's CFA and registers are.
    Rule(Rule),
    /// It covers the address, and has no rule for this reason.
    Fails(StopReason),
    /// It has nothing, with the reason in words.
    Nothing(String),
}

/// What a walk does at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It takes this source's rule.
    From(Source, Rule),
    /// It ends, for this reason.
    Ends(StopReason),
}

/// Everything about one address.
#[derive(Debug)]
pub struct AddressReport {
    /// The address (file address).
    pub address: u64,
    /// Name of its code section.
    pub section: String,
    /// The function, or the part of one, that unwind information has there: `[start, end)`.
    pub function: Option<Span>,
    /// It lies between functions, in bytes that fill the space.
    pub padding: bool,
    /// Each source's answer, in the order of walks.
    pub answers: Vec<(Source, Answer)>,
    /// What a walk does whose interrupted pc is the address.
    pub taken: Taken,
    /// What a walk does to which it is a return address; `None` if no call precedes it.
    pub returned: Option<Taken>,
}

/// The file's sources, ready to be searched.
struct Places<'a> {
    sources: &'a Sources,
    table: Option<Table<'a>>,
    image: &'a Image,
}

/// Looks up `address` in every source of a file. Errors: the file cannot be examined, or has no code there.
pub fn consult(binary: &Binary, address: u64) -> Result<AddressReport, Refusal> {
    let view = examinable(binary)?;
    if view.text_name(address) == NO_SECTION {
        return Err(binary.refuse(outside(&view, address)));
    }
    let image = Image::of_bytes(&binary.path, binary.bytes.clone()).map_err(|why| Refusal(why.to_string()))?;
    let built = table_of(&image);
    let table = built.as_ref().ok().and_then(|built| Table::new(built.bytes.get()).ok());
    let memory = Memory::new(&view);
    let regions = memory.regions();
    let mut reader = Reader::recorded(&regions);
    let places = Places { sources: memory.sources(), table, image: &image };
    let no_table = built.as_ref().err().cloned().unwrap_or_else(|| "it cannot be read".to_owned());
    let before = address.wrapping_sub(1);
    let call = call_site::precedes(address, &mut reader) && view.text_name(before) != NO_SECTION;
    let pieces = [eh_frame::read(&view).pieces, sframe::read(&view).pieces];
    let by_code = places.table.as_ref().map(padding::by_code).unwrap_or_default();
    let fills = padding::of(&view, &[&pieces[0], &pieces[1]], &by_code);
    let in_table = places.table.and_then(|table| table.function(address));
    Ok(AddressReport {
        address,
        section: view.text_name(address).to_owned(),
        function: in_table.or_else(|| uunwind_sources::function(places.sources, address, &mut reader)),
        padding: fills.iter().any(|filled| filled.contains(address)),
        taken: places.taken(address, address, &mut reader),
        returned: call.then(|| places.taken(before, address, &mut reader)),
        answers: places.answers(address, &no_table, &mut reader),
    })
}

/// File addresses of the functions whose symbol `is_it` accepts.
pub fn functions(binary: &Binary, is_it: impl Fn(&str) -> bool) -> Result<Vec<u64>, Refusal> {
    let view = binary.view()?;
    let symbols = view.elf.symbols().chain(view.elf.dynamic_symbols());
    let named = symbols.filter(|symbol| symbol.is_definition() && symbol.name().is_ok_and(&is_it));
    let mut all: Vec<u64> =
        named.map(|symbol| symbol.address()).filter(|at| view.text_name(*at) != NO_SECTION).collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// What [`View::text_name`] returns for an address outside of all code.
const NO_SECTION: &str = "no section";

/// Why an address is refused: where the code is, and which addresses are meant.
fn outside(view: &View<'_>, address: u64) -> String {
    let mut why = format!("no code at {address:#x}. Its code: ");
    let parts: Vec<String> =
        view.text.iter().map(|text| format!("{} {:#x}..{:#x}", text.name, text.start, text.end)).collect();
    why.push_str(&if parts.is_empty() { "none".to_owned() } else { parts.join(", ") });
    why + ". Give a file address, as readelf and objdump show it: an address of a process, less the load bias"
}

impl Places<'_> {
    /// What a walk does, by the code that walks run. `lookup`: the pc, or the one before it for a return address.
    fn taken(&self, lookup: u64, pc: u64, reader: &mut Reader<'_>) -> Taken {
        let by_code = self.table.is_some_and(|table| table.is_by_code(lookup));
        let by_table = if by_code { Source::Code } else { Source::Table };
        match self.table.map(|table| table.find(lookup)) {
            Some(TableAnswer::Short(short)) => return taken(by_table, short.pack().unpack()),
            // Where the table has the reason why there is no rule, another source may have one.
            Some(TableAnswer::Long(rule)) if !rule.is_failed() || is_final(rule) => {
                return taken(by_table, rule.unpack());
            }
            _ => {}
        }
        match uunwind_sources::find(self.sources, lookup, pc, reader) {
            (Ok(answer), By::EhFrame) => taken(Source::EhFrame, answer.rule),
            (Ok(answer), By::Sframe) => taken(Source::Sframe, answer.rule),
            (Ok(answer), By::KnownCode) => {
                let first = uunwind_sources::overrides_tables(pc, reader).is_some();
                taken(if first { Source::SwitchingCode } else { Source::KnownCode }, answer.rule)
            }
            (Err(StopReason::NoRule), _) => match by_registers_or_bytes(lookup, pc, reader) {
                Some(rule) => taken(Source::KnownCode, rule),
                None => match self.table.and_then(|table| table.described_without_rule(lookup)?.unpack().err()) {
                    Some(reason) => Taken::Ends(reason),
                    None => Taken::From(Source::FramePointer, Rule::frame_pointer()),
                },
            },
            (Err(reason), _) => Taken::Ends(reason),
        }
    }

    /// Each source by itself.
    fn answers(&self, address: u64, no_table: &str, reader: &mut Reader<'_>) -> Vec<(Source, Answer)> {
        let uncovered = || Answer::Nothing("does not cover it".to_owned());
        let by_code = self.table.filter(|table| table.is_by_code(address)).map(|table| of_table(table.find(address)));
        let table = match self.table.map(|table| table.find(address)) {
            Some(_) if by_code.is_some() => {
                Answer::Nothing("left to the machine code: nothing describes it".to_owned())
            }
            Some(TableAnswer::Ask) => Answer::Nothing("left to .eh_frame: the rule depends on the very pc".to_owned()),
            Some(found) => of_table(found),
            None => Answer::Nothing(format!("none: {no_table}")),
        };
        let recognised = |rule: Option<Result<Rule, StopReason>>| {
            rule.map_or_else(|| Answer::Nothing("not recognised".to_owned()), answer)
        };
        let Sources { eh_frame_hdr, image, sframe: section, text } = *self.sources;
        let eh_frame = match uunwind_eh_frame::find(eh_frame_hdr, image, address, address, reader) {
            _ if eh_frame_hdr == 0 => Answer::Nothing("none that a process finds (no .eh_frame_hdr)".to_owned()),
            Ok(found) => answer(found.rule),
            Err(StopReason::NoRule) => uncovered(),
            Err(reason) => Answer::Fails(reason),
        };
        let sframe = match uunwind_sframe::find(&Section::new(section, text), address, reader) {
            _ if section.is_empty() => Answer::Nothing("none that a process finds".to_owned()),
            Ok(found) => answer(found.rule),
            Err(StopReason::NoRule) => uncovered(),
            Err(reason) => Answer::Fails(reason),
        };
        let first = uunwind_sources::overrides_tables(address, reader);
        let no_data = Sources { eh_frame_hdr: 0, sframe: Span::EMPTY, ..*self.sources };
        let known_code = match (first, uunwind_sources::find(&no_data, address, address, reader)) {
            (None, (Ok(found), By::KnownCode)) => Some(found.rule),
            _ => by_registers_or_bytes(address, address, reader),
        };
        vec![
            (Source::Table, table),
            (Source::SwitchingCode, recognised(first.map(Ok))),
            (Source::EhFrame, eh_frame),
            (Source::DebugFrame, self.debug_frame(address)),
            (Source::Sframe, sframe),
            (Source::Code, by_code.unwrap_or_else(|| Answer::Nothing("no rule was made from it".to_owned()))),
            (Source::KnownCode, recognised(known_code)),
            (Source::FramePointer, Answer::Rule(Rule::frame_pointer())),
        ]
    }

    /// `.debug_frame` alone, through the builder of rule tables, and without its corrections.
    fn debug_frame(&self, address: u64) -> Answer {
        let (start, bytes) = match rules::debug_frame(self.image) {
            Some(Ok(section)) => section,
            Some(Err(why)) => return Answer::Nothing(format!("cannot be read: {why}")),
            None => return Answer::Nothing("none".to_owned()),
        };
        let source = rules::Source { debug: true, address: start, bytes: &bytes };
        match rules::build(&[source], &[(0, u64::MAX)], None, 0).map(|table| Aligned::new(&table)) {
            Ok(built) => {
                Table::new(built.get()).map_or(of_table(TableAnswer::Nothing), |table| of_table(table.find(address)))
            }
            Err(why) => Answer::Nothing(why.to_string()),
        }
    }
}

/// The rule of code without unwind data. Where the value of a register matters (the end of `clone`), as in a thread
/// for which it is not 0: the one that called.
fn by_registers_or_bytes(lookup: u64, pc: u64, reader: &mut Reader<'_>) -> Option<Result<Rule, StopReason>> {
    uunwind_sources::by_registers_or_bytes(&Cursor { regs: Regs::full(pc, [1; COUNT]), exact: lookup == pc }, reader)
}

fn answer(rule: Result<Rule, StopReason>) -> Answer {
    rule.map_or_else(Answer::Fails, Answer::Rule)
}

fn taken(source: Source, rule: Result<Rule, StopReason>) -> Taken {
    rule.map_or_else(Taken::Ends, |rule| Taken::From(source, rule))
}

fn of_table(found: TableAnswer) -> Answer {
    match found {
        TableAnswer::Short(short) => answer(short.pack().unpack()),
        TableAnswer::Long(rule) => answer(rule.unpack()),
        TableAnswer::Ask => Answer::Nothing("its rule depends on the very pc".to_owned()),
        TableAnswer::Nothing => Answer::Nothing("does not cover it".to_owned()),
    }
}
