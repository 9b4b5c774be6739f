//! The lines and functions with most time: lines of interpreted languages first, where the program is made of them,
//! then functions by themselves and, in a verbose summary, with what they call.

use super::{percent, Style};
use crate::stacks::{Kind, Line, Profile, Stack};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use uunwind_language::Language;
use uunwind_recording::{Held, Recording, Unit, Value};
use uunwind_ring::record::SampleKind;

/// Rows of each table, and of a verbose summary's.
const FEW: usize = 5;
pub(super) const ROWS: usize = 15;
/// Share of a row that is shown beside the time of waits, in percent: what has less is not why the program took long.
const BESIDE_WAITS: f64 = 0.5;
/// Columns used beside the name.
const USED: usize = 32;
/// Lines of a function that are shown below it, at most, and in a verbose summary; and the share of all time, in
/// percent, from which on one is.
const LINES: usize = 2;
const MORE_LINES: usize = 3;
const LINE: f64 = 5.0;
/// Share of the time from which on a language has a table of its own, in percent.
const LANGUAGE: f64 = 20.0;
/// Share of the time from which on a function of a language's native code is worth a table, in percent.
const NATIVE: f64 = 10.0;

/// Weight and number of samples; compared by weight first.
pub(super) type Amount = (u64, u64);

pub(super) fn add(amount: &mut Amount, (weight, samples): Amount) {
    *amount = (amount.0 + weight, amount.1 + samples);
}

/// Whom a function calls.
#[derive(Clone, Copy, Default, PartialEq)]
enum Callee {
    #[default]
    None,
    One(u32),
    Several,
}

/// A function's costs, and its lines.
#[derive(Clone, Default)]
struct Cost {
    own: Amount,
    total: Amount,
    callee: Callee,
    /// Indices of [`Profile::lines`].
    lines: Vec<u32>,
}

/// A row of a table, and the rows below it.
#[derive(Default)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) amount: Amount,
    pub(super) lines: Vec<(String, Amount)>,
}

/// The tables of languages and of functions, in this order.
pub fn render(profile: &Profile, printer: &Printer<'_>) -> Vec<String> {
    let mut tables = languages(profile, printer);
    let has_language = !tables.is_empty();
    tables.extend(functions(profile, printer, has_language));
    tables
}

/// Prints rows of these.
pub(super) struct Printer<'a> {
    profile: &'a Profile,
    /// The profile's, with paths as people say them.
    lines: &'a [Line],
    languages: &'a [Language],
    style: Style,
    all: u64,
    rate: u32,
    value: &'static Value,
    /// Least share of a row, in percent.
    least: f64,
    /// False: the program has asked for samples, which stand for no time.
    has_times: bool,
}

impl<'a> Printer<'a> {
    /// The name of a plugin's language, for people.
    fn title(&self, plugin: &str) -> String {
        let known = self.languages.iter().find(|language| language.plugin == plugin && !language.title.is_empty());
        let mut title = super::super::printable(known.map_or(plugin, |language| &language.title));
        if let Some(first) = title.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        title
    }

    pub(super) fn new(recording: &'a Recording, profile: &'a Profile, lines: &'a [Line], style: Style) -> Printer<'a> {
        Printer {
            profile,
            lines,
            languages: &recording.languages,
            style,
            all: profile.stacks.iter().fold(0u64, |sum, stack| sum.saturating_add(stack.weight)),
            rate: recording.settings.rate,
            value: recording.value(),
            least: match !style.verbose && profile.stacks.iter().any(|stack| profile.waits(stack)) {
                true => BESIDE_WAITS,
                false => 0.0,
            },
            has_times: !recording.samples.iter().any(|sample| sample.kind == SampleKind::Explicit.number()),
        }
    }

    /// What functions do with memory, if that is what samples stand for.
    fn verb(&self) -> Option<&'static str> {
        match (self.value.unit, self.profile.held) {
            (Unit::Bytes, Some(Held::Peak | Held::Grown(..))) => Some("held"),
            (Unit::Bytes, Some(Held::End)) => Some("hold"),
            (Unit::Bytes, Some(Held::Temporary)) => Some("allocate and free at once"),
            (Unit::Bytes, _) => Some("allocate"),
            (Unit::Nanoseconds, _) => Some("wait"),
            _ => None,
        }
    }

    /// Empty: there is no row.
    pub(super) fn table(&self, title: &str, mut rows: Vec<Row>) -> String {
        rows.retain(|row| row.amount != (0, 0) && percent(row.amount.0, self.all) >= self.least);
        if rows.is_empty() {
            return String::new();
        }
        rows.sort_by(|a, b| b.amount.cmp(&a.amount).then_with(|| a.name.cmp(&b.name)));
        rows.truncate(if self.style.verbose { ROWS } else { FEW });
        let is_time = self.value.unit == Unit::Time;
        let column = match (self.has_times, is_time) {
            (true, true) => "     time",
            (true, false) if self.value.unit == Unit::Nanoseconds => "      waited",
            (true, false) => "        size",
            (false, _) => "",
        };
        let mut out = format!("{}\n    share{column}  samples\n", self.style.heading(title));
        let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
        let (shown, legend) = self.style.names_with_legend(&names, USED);
        for (row, name) in rows.iter().zip(shown) {
            let below = row.lines.iter().map(|(name, amount)| (format!("  {name}"), *amount));
            for (name, (weight, samples)) in std::iter::once((name, row.amount)).chain(below) {
                let share = percent(weight, self.all);
                let time = match (self.has_times, is_time) {
                    (true, true) => format!(" {:>7.2}s", weight as f64 / f64::from(self.rate.max(1))),
                    (true, false) => format!(" {:>11}", self.value.unit.amount(weight, self.rate)),
                    (false, _) => String::new(),
                };
                // Writing to a String cannot fail.
                let _ = writeln!(out, "  {share:>5.1} %{time} {samples:>8}  {name}");
            }
        }
        out + &legend
    }

    /// A line of code with its function.
    fn place(&self, line: u32) -> String {
        let line = self.lines.get(line as usize);
        line.map_or_else(String::new, |line| match (line.file.is_empty(), line.line) {
            (true, _) => line.function.clone(),
            (false, 0) => format!("{} ({})", line.function, line.file),
            (false, _) => format!("{} ({}:{})", line.function, line.file, line.position()),
        })
    }

    /// A function: with its line if it has one, else with those that have most of its time below it. `of_line`: what
    /// each line has.
    fn function(&self, cost: &Cost, amount: Amount, of_line: &[Amount]) -> Row {
        // Several frames may stand for one line: those of its instructions.
        let mut parts: HashMap<(&str, String), (u32, Amount)> = HashMap::new();
        for index in &cost.lines {
            let part = of_line.get(*index as usize).copied().filter(|part| *part != (0, 0));
            let (Some(line), Some(part)) = (self.profile.lines.get(*index as usize), part) else { continue };
            let sum = parts.entry((&line.file, line.position())).or_insert((*index, (0, 0)));
            add(&mut sum.1, part);
        }
        let mut parts: Vec<_> = parts.into_iter().collect();
        parts.sort_by(|a, b| b.1 .1.cmp(&a.1 .1).then_with(|| a.0.cmp(&b.0)));
        let Some((_, (first, _))) = parts.first() else { return Row::default() };
        if parts.len() == 1 {
            return Row { name: self.place(*first), amount, lines: Vec::new() };
        }
        let name = self.lines.get(*first as usize).map_or_else(String::new, |line| match line.file.is_empty() {
            true => line.function.clone(),
            false => format!("{} ({})", line.function, line.file),
        });
        let is_large = |part: &Amount| percent(part.0, self.all) >= LINE;
        let lines = parts.iter().filter(|((_, line), (_, part))| line != "0" && is_large(part));
        let lines = lines.take(if self.style.verbose { MORE_LINES } else { LINES });
        Row { name, amount, lines: lines.map(|((_, line), (_, part))| (format!("line {line}"), *part)).collect() }
    }
}

/// For each language that much of the program is written in: its lines, with the native code that they call.
fn languages(profile: &Profile, printer: &Printer<'_>) -> Vec<String> {
    let mut languages: HashMap<&str, (u64, HashMap<u32, Amount>)> = HashMap::new();
    let mut met = HashSet::new();
    // What threads wait in has a table of its own.
    let is_shown = |stack: &&Stack| printer.style.verbose || !profile.waits(stack);
    for stack in profile.stacks.iter().filter(is_shown) {
        met.clear();
        for index in &stack.lines {
            let Some(line) = profile.lines.get(*index as usize).filter(|line| line.kind == Kind::Semantic) else {
                continue;
            };
            // The innermost frame of the language has the time.
            if met.insert(&line.plugin) {
                let (all, lines) = languages.entry(&line.plugin).or_default();
                *all += stack.weight;
                add(lines.entry(*index).or_default(), (stack.weight, stack.samples));
            }
        }
    }
    let shown = languages.into_iter().filter(|(_, (weight, _))| percent(*weight, printer.all) >= LANGUAGE);
    let mut shown: Vec<_> = shown.collect();
    shown.sort_by(|a, b| b.1 .0.cmp(&a.1 .0).then(a.0.cmp(b.0)));
    let table = |(plugin, (_, lines)): (&str, (u64, HashMap<u32, Amount>))| {
        let row = |(line, amount)| Row { name: printer.place(line), amount, ..Row::default() };
        let rows = lines.into_iter().map(row).collect();
        let name = printer.title(plugin);
        let title = match printer.verb() {
            Some(verb) => format!("Lines of {name} that {verb} most, with the native code that they call"),
            None => format!("Hottest lines of {name}, with the native code that they call"),
        };
        printer.table(&title, rows)
    };
    shown.into_iter().map(table).collect()
}

/// Functions of all languages by themselves and, in a verbose summary, with what they call. Functions that do nothing
/// but call one other are left out of the second table. Of a program in a language with a table of its own, the first
/// is there if a native function has much of the time.
fn functions(profile: &Profile, printer: &Printer<'_>, has_language: bool) -> Vec<String> {
    let mut known: HashMap<String, u32> = HashMap::new();
    let of_line = profile.lines.iter().map(|line| {
        let next = known.len() as u32;
        *known.entry(line.merged()).or_insert(next)
    });
    let of_line: Vec<u32> = of_line.collect();
    let mut costs = vec![Cost::default(); known.len()];
    drop(known);
    for (index, function) in (0..).zip(&of_line) {
        if let Some(cost) = costs.get_mut(*function as usize) {
            cost.lines.push(index);
        }
    }
    // By line: own time, and time with what it calls.
    let mut own = vec![Amount::default(); profile.lines.len()];
    let mut total = own.clone();
    let (mut counted, mut counted_lines) = (HashSet::new(), HashSet::new());
    for stack in &profile.stacks {
        counted.clear();
        counted_lines.clear();
        let mut inner = None;
        let amount = (stack.weight, stack.samples);
        for (depth, index) in stack.lines.iter().enumerate() {
            let at = *index as usize;
            let Some(function) = of_line.get(at).copied() else { continue };
            let Some(cost) = costs.get_mut(function as usize) else { continue };
            let (Some(own), Some(total)) = (own.get_mut(at), total.get_mut(at)) else { continue };
            if depth == 0 {
                add(own, amount);
                add(&mut cost.own, amount);
            }
            match (cost.callee, inner) {
                // A call of itself leads nowhere else.
                (_, Some(inner)) if inner == function => {}
                (Callee::None, Some(inner)) => cost.callee = Callee::One(inner),
                (Callee::One(one), Some(inner)) if one != inner => cost.callee = Callee::Several,
                _ => {}
            }
            // A recursive function counts once in a stack, and a line of it.
            if counted.insert(function) {
                add(&mut cost.total, amount);
            }
            if counted_lines.insert(index) {
                add(total, amount);
            }
            inner = Some(function);
        }
    }
    let passes_on = |cost: &Cost| {
        let Callee::One(callee) = cost.callee else { return false };
        cost.own == (0, 0) && costs.get(callee as usize).is_some_and(|callee| callee.total == cost.total)
    };
    // Of code that calls only, a line is what people look for.
    let is_wanted = |cost: &&Cost| profile.by_line && is_scripted(profile, cost) || !passes_on(cost);
    let is_code = |kind: Kind| !matches!(kind, Kind::Waiting | Kind::Marker);
    let is_native = |kind: Kind| is_code(kind) && !kind.is_semantic();
    let is_of = |cost: &Cost, is_so: &dyn Fn(Kind) -> bool| {
        let first = cost.lines.first().and_then(|line| profile.lines.get(*line as usize));
        first.is_some_and(|line| is_so(line.kind))
    };
    // What calls malloc for a language is nobody's question.
    let is_much =
        |cost: &Cost| percent(cost.own.0, printer.all) >= NATIVE && is_of(cost, &is_native) && printer.verb().is_none();
    let verbose = printer.style.verbose;
    let mut tables = Vec::new();
    if verbose || !has_language || costs.iter().any(is_much) {
        let rows = costs.iter().filter(|cost| cost.own.0 > 0 && (verbose || is_of(cost, &is_code)));
        let rows = rows.map(|cost| printer.function(cost, cost.own, &own));
        let title = match printer.verb() {
            Some(verb) => format!("Functions that {verb} most by themselves"),
            None => "Hottest functions by themselves".to_owned(),
        };
        tables.push(printer.table(&title, rows.collect()));
    }
    if verbose {
        let rows = costs.iter().filter(is_wanted).map(|cost| printer.function(cost, cost.total, &total));
        let title = match printer.verb() {
            Some(verb) => format!("Functions that {verb} most with what they call"),
            None => "Hottest functions with what they call".to_owned(),
        };
        tables.push(printer.table(&title, rows.collect()));
    }
    tables
}

/// Whether a function is of an interpreted language.
fn is_scripted(profile: &Profile, cost: &Cost) -> bool {
    let first = cost.lines.first().and_then(|line| profile.lines.get(*line as usize));
    first.is_some_and(|line| line.kind.is_semantic())
}

#[cfg(test)]
mod tests {
    use super::super::PLAIN;
    use super::*;
    use uunwind_recording::Sample;

    const VERBOSE: Style = Style { verbose: true, ..PLAIN };

    fn render(recording: &Recording, profile: &Profile, style: Style) -> String {
        super::render(profile, &Printer::new(recording, profile, &profile.lines, style)).join("\n")
    }

    fn line(function: &str, file: &str, line: u32) -> Line {
        Line { kind: Kind::Native, file: file.to_owned(), line, ..Line::marker(function.to_owned()) }
    }

    fn scripted(function: &str, number: u32) -> Line {
        Line { kind: Kind::Semantic, plugin: "toy".to_owned(), ..line(function, "/app.toy", number) }
    }

    fn stack(lines: &[u32], weight: u64) -> Stack {
        Stack { thread: 0, lines: lines.into(), labels: 0, samples: 1, weight }
    }

    /// As people write it, where the plugin says so; else the plugin's name with a capital.
    #[test]
    fn a_language_has_the_title_that_its_plugin_gives() {
        let recording = Recording {
            languages: vec![Language { title: "TOY".to_owned(), ..Language::unknown("toy") }],
            ..Recording::default()
        };
        let (profile, lines) = (Profile::default(), Vec::new());
        let printer = Printer::new(&recording, &profile, &lines, PLAIN);
        assert_eq!(["toy", "other"].map(|plugin| printer.title(plugin)), ["TOY", "Other"]);
    }

    fn rendered(lines: Vec<Line>, stacks: Vec<Stack>) -> String {
        let mut recording = Recording::default();
        recording.settings.rate = 100;
        let profile = Profile { lines, stacks, ..Profile::default() };
        render(&recording, &profile, VERBOSE)
    }

    #[test]
    fn lines_of_a_language_come_first_with_what_they_call() {
        let lines = vec![scripted("work", 3), scripted("work", 5), scripted("<module>", 9), line("memcpy", "", 0)];
        let text = rendered(lines, vec![stack(&[3, 0, 2], 30), stack(&[0, 2], 30), stack(&[1, 2], 40)]);
        let first = text.split("\n\n").next().expect("a table");
        let rows: Vec<&str> = first.lines().collect();
        assert_eq!(
            rows,
            [
                "Hottest lines of Toy, with the native code that they call",
                "    share     time  samples",
                "   60.0 %    0.60s        2  work (/app.toy:3)",
                "   40.0 %    0.40s        1  work (/app.toy:5)",
            ]
        );
        // By itself: the function, and its lines below it.
        let own = text.split_once("Hottest functions by themselves\n").expect("a table").1;
        let rows: Vec<&str> = own.lines().skip(1).take(4).collect();
        let expected = [
            "   70.0 %    0.70s        2  work (/app.toy)",
            "   40.0 %    0.40s        1    line 5",
            "   30.0 %    0.30s        1    line 3",
            "   30.0 %    0.30s        1  memcpy",
        ];
        assert_eq!(rows, expected, "{text}");
    }

    /// Line 36 of a program calls one function, and line 2 another; line 7 has little.
    #[test]
    fn a_function_of_several_lines_has_none_of_them_as_its_own() {
        let mut lines: Vec<Line> = [36, 2, 7].map(|line| scripted("<module>", line)).to_vec();
        lines.extend([scripted("slow", 3), scripted("fast", 5)]);
        let stacks = vec![stack(&[3, 0], 40), stack(&[4, 1], 35), stack(&[4, 2], 8), stack(&[3], 17)];
        let text = rendered(lines.clone(), stacks.clone());
        let totals = text.rsplit("\n\n").next().expect("a table");
        let rows: Vec<&str> = totals.lines().skip(2).take(3).collect();
        let expected = [
            "   83.0 %    0.83s        3  <module> (/app.toy)",
            "   40.0 %    0.40s        1    line 36",
            "   35.0 %    0.35s        1    line 2",
        ];
        assert_eq!(rows, expected, "{text}");
        // A recursive function counts once, and so do its lines.
        let text = rendered(lines.clone(), vec![stack(&[3, 0, 0, 1], 10), stack(&[4, 1], 10)]);
        assert!(
            text.contains("  100.0 %    0.20s        2    line 2\n   50.0 %    0.10s        1    line 36\n"),
            "{text}"
        );
        // Line by line, each has a row of its own, also one that only calls.
        for line in &mut lines {
            line.function = format!("{}:{}", line.function, line.line);
        }
        let mut recording = Recording::default();
        recording.settings.rate = 100;
        let stacks = vec![stack(&[3, 0], 40), stack(&[4, 1], 35), stack(&[4, 2], 8)];
        let profile = Profile { lines, stacks, by_line: true, ..Profile::default() };
        let text = render(&recording, &profile, VERBOSE);
        let totals = text.rsplit("\n\n").next().expect("a table");
        assert!(totals.contains("   48.2 %    0.40s        1  <module>:36 (/app.toy:36)\n"), "{totals}");
    }

    #[test]
    fn samples_that_the_program_asked_for_have_no_time() {
        let profile = Profile { lines: vec![line("work", "", 0)], stacks: vec![stack(&[0], 1)], ..Profile::default() };
        for (kind, has_times) in [(SampleKind::Timer, true), (SampleKind::Explicit, false)] {
            let sample = Sample { thread: 0, stack: 0, time: 0, weight: 1, stop: 1, kind: kind.number(), flags: 0 };
            let recording = Recording { samples: vec![sample], ..Recording::default() };
            let text = render(&recording, &profile, PLAIN);
            assert_eq!(text.contains("   time"), has_times, "{text}");
            assert_eq!(text.contains("s        1  work"), has_times, "{text}");
            assert!(text.contains("  100.0 %") && text.contains("   1  work"), "{text}");
        }
    }

    #[test]
    fn functions_that_only_call_another_are_left_out_of_the_totals() {
        let lines = ["_start", "main", "work", "rest"].map(|name| line(name, "", 0)).to_vec();
        let text = rendered(lines, vec![stack(&[2, 1, 0], 3), stack(&[3, 1, 0], 1)]);
        let totals = text.rsplit("\n\n").next().expect("a table");
        assert!(!totals.contains("_start") && totals.contains("100.0 %    0.04s        2  main"), "{totals}");
        assert!(totals.contains("work") && totals.contains("rest"), "{totals}");
    }

    /// A short summary has what its reader looks for first: of a script its lines, of a program its functions.
    #[test]
    fn few_rows_are_shown_unless_more_are_asked_for() {
        let mut lines: Vec<Line> = (0..20).map(|n| line(&format!("f{n}"), "", 0)).collect();
        lines.extend((0..20).map(|n| scripted("work", n + 1)));
        let mut recording = Recording::default();
        recording.settings.rate = 100;
        let native = (0..20).map(|n| stack(&[n], 1)).collect();
        let native = Profile { lines: lines.clone(), stacks: native, ..Profile::default() };
        let by_themselves = "Hottest functions by themselves";
        let text = render(&recording, &native, PLAIN);
        assert!(text.starts_with(by_themselves) && text.lines().count() == 2 + 5, "{text}");
        let text = render(&recording, &native, VERBOSE);
        assert!(text.contains("Hottest functions with what they call") && text.lines().count() == 2 * 17 + 1, "{text}");
        // Of a script, native functions are shown that have much of the time.
        for (heaviest, is_shown) in [(1, false), (30, true)] {
            let stacks = (0..20).map(|n| stack(&[n, 20 + n], if n == 0 { heaviest } else { 1 })).collect();
            let scripted = Profile { lines: lines.clone(), stacks, ..Profile::default() };
            let text = render(&recording, &scripted, PLAIN);
            assert!(text.starts_with("Hottest lines of Toy"), "{text}");
            assert_eq!(text.contains(by_themselves), is_shown, "{text}");
            assert!(render(&recording, &scripted, VERBOSE).contains(by_themselves));
        }
    }
}
