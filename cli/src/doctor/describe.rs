//! A diagnosis as text.

use std::collections::BTreeSet;
use std::fmt::{Display, Write};
use uunwind_core::stop_reason::StopReason;
use uunwind_doctor::chosen::{Choice, Range};
use uunwind_doctor::doctor::{Conflict, Diagnosis, Dwarf, Sframe};
use uunwind_doctor::unwind_row::words;
use uunwind_sframe::table::Machine;
use uunwind_sources::By;

/// A text of indented lines.
struct Lines(String);

impl Lines {
    fn add(&mut self, text: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "  {text}");
    }
}

fn share(part: u64, code: u64) -> String {
    format!("{:6.2} %", part as f64 * 100.0 / code.max(1) as f64)
}

/// The whole diagnosis; `most`: limit of lines that are listed of one kind.
pub fn describe(name: &impl Display, d: &Diagnosis, most: usize) -> String {
    let mut lines = Lines(format!("{name}\n"));
    let filled =
        if d.padding > 0 { format!(", {} of them padding between functions", d.padding) } else { String::new() };
    lines.add(format_args!("text           {} bytes{filled}", d.text));
    match &d.table {
        Ok(table) => {
            lines.add(format_args!("rule table     from {}: {} rows, {} bytes", table.from, table.rows, table.bytes));
            if table.code_left_out {
                let why = "some code that nothing describes was not analysed: it takes more work than a table may";
                lines.add(format_args!("               {why}"));
            }
        }
        Err(why) => lines.add(format_args!("rule table     none: {why}")),
    }
    let code = d.text - d.padding;
    dwarf(&mut lines, ".eh_frame", d.eh_frame.as_ref(), code);
    if let Some(why) = d.unsearchable {
        lines.add(format_args!("               not searched in place: {why}"));
    }
    if let Some(why) = d.debug_frame_unread {
        lines.add(format_args!(".debug_frame   cannot be read: {why}"));
    } else {
        dwarf(&mut lines, ".debug_frame", d.debug_frame.as_ref(), code);
    }
    if d.debug_frame.is_some() {
        let table = if d.table.is_ok() { "; the rule table has it" } else { ", and there is no rule table to hold it" };
        lines.add(format_args!("               not searched in place: it is not loaded{table}"));
    }
    if d.untrue > 0 {
        let why = "it is not what their code does (Go's, where it takes another stack)";
        lines.add(format_args!("               {} functions are left to the frame pointer: {why}", d.untrue));
    }
    sframe(&mut lines, d.sframe.as_ref(), code, most);
    lines.add(format_args!("disagreements  {}", d.disagreements.len()));
    listed(&mut lines, &d.disagreements, most, disagreement);
    chosen(&mut lines, d, most);
    lines.0
}

fn listed<T>(lines: &mut Lines, all: &[T], most: usize, one: impl Fn(&mut Lines, &T)) {
    all.iter().take(most).for_each(|item| one(lines, item));
    if all.len() > most {
        lines.add(format_args!("and {} more (--list shows all)", all.len() - most));
    }
}

fn dwarf(lines: &mut Lines, name: &str, found: Option<&Dwarf>, code: u64) {
    let Some(found) = found else { return lines.add(format_args!("{name:<14} none")) };
    lines.add(format_args!("{name:<14} {} of code, {} functions", share(found.covered, code), found.functions));
    if found.damaged > 0 {
        lines.add(format_args!("               {} entries cannot be read", found.damaged));
    }
    let (ranges, bytes) = found.beyond;
    if ranges > 0 {
        lines.add(format_args!(
            "               {ranges} ranges, {bytes} bytes, by expressions that are not examined here"
        ));
    }
}

fn sframe(lines: &mut Lines, found: Option<&Sframe>, code: u64, most: usize) {
    let Some(s) = found else { return lines.add("SFrame         none") };
    let versions: Vec<_> = s.versions.iter().collect::<BTreeSet<_>>().iter().map(|v| v.to_string()).collect();
    let what = format!("{} functions, {} rows; version {}", s.functions, s.rows, versions.join(" and "));
    lines.add(format_args!("SFrame         {} of code, {what}; {}", share(s.covered, code), s.whence));
    if !s.mapped {
        lines.add("               not searched in place: no segment holds it, so a process does not find it");
    }
    if s.beyond > 0 {
        lines.add(format_args!("               {} ranges of blocks are too many to be examined", s.beyond));
    }
    for fault in s.faults.iter().take(most) {
        let (number, at, text) = (fault.check as u8, fault.at, fault.check.text());
        lines.add(format_args!("               check {number} fails at offset {at:#x}: {text}"));
    }
    if s.faults.len() > most {
        lines.add(format_args!("               and {} more (`uu sframe dump` shows all)", s.faults.len() - most));
    }
}

fn disagreement(lines: &mut Lines, found: &Conflict) {
    lines.add(format_args!("{:#x}..{:#x} in {}", found.said.start, found.said.end, found.section));
    for (source, rule) in found.sources.iter().zip([&found.said.first, &found.said.second]) {
        lines.add(format_args!("  {source:<12} {}", words(rule, Machine::Amd64)));
    }
}

/// The sources that walks choose, by bytes of code, with the reason; and the ranges where it is not the rule table.
fn chosen(lines: &mut Lines, d: &Diagnosis, most: usize) {
    let code = d.text - d.padding;
    let mut kinds: Vec<Choice> = Vec::new();
    let with = || d.chosen.iter().map(|(range, _)| range);
    for range in with().chain(&d.without_table) {
        if range.choice != Choice::Padding && !kinds.contains(&range.choice) {
            kinds.push(range.choice);
        }
    }
    kinds.sort_by_key(|kind| rank(*kind));
    let bytes = |ranges: &mut dyn Iterator<Item = &Range>, kind| {
        ranges.filter(|range| range.choice == kind).map(|range| range.end - range.start).sum::<u64>()
    };
    let columns = if d.table.is_ok() { "with table  before it" } else { "     share" };
    lines.add(format_args!("chosen          {columns}"));
    for kind in kinds {
        let (with, without) = (bytes(&mut with(), kind), bytes(&mut d.without_table.iter(), kind));
        let without = if d.table.is_ok() { format!("{:>11}", share(without, code)) } else { String::new() };
        let (name, why) = (name(kind), reason(kind));
        lines.add(format_args!("  {name:<14}{:>10}{without}   {why}", share(with, code)));
    }
    let listed_one = |choice| !matches!(choice, Choice::Table | Choice::Padding);
    let mut other: Vec<_> = d.chosen.iter().filter(|(range, _)| listed_one(range.choice)).collect();
    if other.len() > most {
        // The longest ranges come first.
        other.sort_by_key(|(range, _)| std::cmp::Reverse(range.end - range.start));
    }
    listed(lines, &other, most, |lines, (range, section)| {
        lines.add(format_args!("{:#x}..{:#x} in {section}: {}", range.start, range.end, name(range.choice)));
    });
}

/// The order in which walks try the sources.
fn rank(choice: Choice) -> u16 {
    match choice {
        Choice::Table => 0,
        Choice::Code => 7,
        Choice::InPlace(by) => 1 + by as u16,
        Choice::FramePointer => 8,
        Choice::Padding => 9,
        Choice::Ends(reason) => 10 + reason.number(),
        Choice::NotExamined => u16::MAX,
    }
}

fn name(choice: Choice) -> &'static str {
    match choice {
        Choice::Table => "rule table",
        Choice::Code => "machine code",
        Choice::InPlace(By::EhFrame) => ".eh_frame",
        Choice::InPlace(By::Sframe) => "SFrame",
        Choice::InPlace(By::KnownCode) => "known code",
        Choice::FramePointer => "frame pointer",
        Choice::Padding => "padding",
        Choice::Ends(_) => "none",
        Choice::NotExamined => "not examined",
    }
}

fn reason(choice: Choice) -> &'static str {
    match choice {
        Choice::Code => "nothing describes this code: the rule table has rules that were made from its instructions",
        Choice::Table => "asked first: complete, checked when it was built, and the quickest",
        Choice::InPlace(By::EhFrame) => {
            "interpreted: where no table is there yet, or a rule depends on the very pc (PLT)"
        }
        Choice::InPlace(By::Sframe) => "where .eh_frame has nothing: of the saved registers it describes only rbp",
        Choice::InPlace(By::KnownCode) => {
            "the C library's _init and _fini, or the end of its swapcontext, by their bytes: nothing else describes them"
        }
        Choice::FramePointer => "nothing describes this code: rbp is followed if it can be one, and the caller marked",
        Choice::Padding => "no code: it fills the gaps between functions",
        Choice::Ends(StopReason::BadUnwindInfo) => "the walk ends: the unwind information is damaged",
        Choice::Ends(reason) => reason.text(),
        Choice::NotExamined => "too much to examine",
    }
}
