//! The lines and functions with most time: lines of interpreted languages first, where the program is made of them,
//! then functions by themselves and with what they call.

use super::{percent, Style};
use crate::formats::threads;
use crate::stacks::{Kind, Profile};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use uunwind_recording::Recording;
use uunwind_ring::record::SampleKind;

/// Rows of each table.
const ROWS: usize = 15;
/// Columns used beside the name.
const USED: usize = 32;
/// Lines of a function that are shown below it, at most; and the share of all time, in percent, from which on one is.
const LINES: usize = 3;
const LINE: f64 = 5.0;
/// Share of the time from which on a language has a table of its own, in percent.
const LANGUAGE: f64 = 20.0;

/// Weight and number of samples; compared by weight first.
type Amount = (u64, u64);

fn add(amount: &mut Amount, (weight, samples): Amount) {
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
struct Row {
    name: String,
    amount: Amount,
    lines: Vec<(String, Amount)>,
}

pub fn render(recording: &Recording, profile: &Profile, style: Style) -> String {
    let printer = Printer {
        profile,
        style,
        all: profile.stacks.iter().map(|stack| stack.weight).sum(),
        rate: f64::from(recording.settings.rate.max(1)),
        has_times: !recording.samples.iter().any(|sample| sample.kind == SampleKind::Explicit.number()),
    };
    let mut tables = languages(profile, &printer);
    tables.extend(functions(profile, &printer));
    tables.extend(parts(recording, profile, &printer));
    tables.join("\n")
}

/// Prints rows of these.
struct Printer<'a> {
    profile: &'a Profile,
    style: Style,
    all: u64,
    rate: f64,
    /// False: the program has asked for samples, which stand for no time.
    has_times: bool,
}

impl Printer<'_> {
    fn table(&self, title: &str, mut rows: Vec<Row>) -> String {
        rows.retain(|row| row.amount != (0, 0));
        rows.sort_by(|a, b| b.amount.cmp(&a.amount).then_with(|| a.name.cmp(&b.name)));
        let column = if self.has_times { "     time" } else { "" };
        let mut out = format!("{}\n    share{column}  samples\n", self.style.heading(title));
        for row in rows.iter().take(ROWS) {
            let below = row.lines.iter().map(|(name, amount)| (format!("  {name}"), *amount));
            for (name, (weight, samples)) in std::iter::once((row.name.clone(), row.amount)).chain(below) {
                let share = percent(weight, self.all);
                let time = if self.has_times { format!(" {:>7.2}s", weight as f64 / self.rate) } else { String::new() };
                // Writing to a String cannot fail.
                let _ = writeln!(out, "  {share:>5.1} %{time} {samples:>8}  {}", self.style.name(&name, USED));
            }
        }
        out
    }

    /// A line of code with its function.
    fn place(&self, line: u32) -> String {
        let line = self.profile.lines.get(line as usize);
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
        let name =
            self.profile.lines.get(*first as usize).map_or_else(String::new, |line| match line.file.is_empty() {
                true => line.function.clone(),
                false => format!("{} ({})", line.function, line.file),
            });
        let is_large = |part: &Amount| percent(part.0, self.all) >= LINE;
        let lines = parts.iter().filter(|((_, line), (_, part))| line != "0" && is_large(part)).take(LINES);
        Row { name, amount, lines: lines.map(|((_, line), (_, part))| (format!("line {line}"), *part)).collect() }
    }
}

/// A part of the whole, of one name: indices of threads or processes in the recording, and their cost.
type Part = (HashSet<u32>, Amount);
type Parts = HashMap<String, Part>;

/// Merges those whose names differ only in numbers, such as a server's threads of a request each.
fn without_numbers(parts: Parts) -> Parts {
    let mut alike: HashMap<String, Vec<(String, Part)>> = HashMap::new();
    for (name, part) in parts {
        let mut pattern = String::with_capacity(name.len());
        for c in name.chars() {
            match c.is_ascii_digit() {
                true if pattern.ends_with('*') => {}
                true => pattern.push('*'),
                false => pattern.push(c),
            }
        }
        alike.entry(pattern).or_default().push((name, part));
    }
    let merged = |(pattern, mut parts): (String, Vec<(String, Part)>)| match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            let mut sum = Part::default();
            for (_, (indices, amount)) in parts.into_iter().chain(last) {
                sum.0.extend(indices);
                add(&mut sum.1, amount);
            }
            (pattern, sum)
        }
    };
    alike.into_iter().map(merged).collect()
}

/// Processes by their command lines, and threads by their names, where there are several.
fn parts(recording: &Recording, profile: &Profile, printer: &Printer<'_>) -> Vec<String> {
    let mut of_thread: HashMap<u32, Amount> = HashMap::new();
    for stack in &profile.stacks {
        add(of_thread.entry(stack.thread).or_default(), (stack.weight, stack.samples));
    }
    let (mut processes, mut threads) = (Parts::new(), Parts::new());
    for (index, amount) in of_thread {
        let Some(thread) = recording.threads.get(index as usize) else { continue };
        let program = threads::program(recording, thread.process);
        let name = if thread.name.is_empty() { "?" } else { &thread.name };
        for (parts, name, index) in [(&mut processes, program, thread.process), (&mut threads, name.to_owned(), index)]
        {
            let part = parts.entry(name).or_default();
            part.0.insert(index);
            add(&mut part.1, amount);
        }
    }
    if threads.len() > ROWS {
        threads = without_numbers(threads);
    }
    let tables = [("process", "processes", processes), ("thread", "threads", threads)];
    let several = tables.into_iter().filter(|(.., parts)| parts.len() > 1);
    let table = several.map(|(one, many, parts)| {
        let row = |(name, (indices, amount)): (String, Part)| {
            let name = if indices.len() == 1 { name } else { format!("{name} ({} {many})", indices.len()) };
            Row { name, amount, ..Row::default() }
        };
        printer.table(&format!("Time by {one}"), parts.into_iter().map(row).collect())
    });
    table.collect()
}

/// For each language that much of the program is written in: its lines, with the native code that they call.
fn languages(profile: &Profile, printer: &Printer<'_>) -> Vec<String> {
    let mut languages: HashMap<&str, (u64, HashMap<u32, Amount>)> = HashMap::new();
    let mut met = HashSet::new();
    for stack in &profile.stacks {
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
        let mut name = super::super::printable(plugin);
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        printer.table(&format!("Hottest lines of {name}, with the native code that they call"), rows)
    };
    shown.into_iter().map(table).collect()
}

/// Functions of all languages by themselves, and with what they call. Functions that do nothing but call one other are
/// left out of the second table.
fn functions(profile: &Profile, printer: &Printer<'_>) -> Vec<String> {
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
    let own_rows = costs.iter().filter(|cost| cost.own.0 > 0);
    let own_rows = own_rows.map(|cost| printer.function(cost, cost.own, &own)).collect();
    let total_rows = costs.iter().filter(is_wanted);
    let total_rows = total_rows.map(|cost| printer.function(cost, cost.total, &total)).collect();
    vec![
        printer.table("Hottest functions by themselves", own_rows),
        printer.table("Hottest functions with what they call", total_rows),
    ]
}

/// Whether a function is of an interpreted language.
fn is_scripted(profile: &Profile, cost: &Cost) -> bool {
    let first = cost.lines.first().and_then(|line| profile.lines.get(*line as usize));
    first.is_some_and(|line| line.kind.is_semantic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::{Line, Stack};
    use uunwind_recording::{Process, Sample, Thread};

    fn line(function: &str, file: &str, line: u32) -> Line {
        Line { kind: Kind::Native, file: file.to_owned(), line, ..Line::marker(function.to_owned()) }
    }

    fn scripted(function: &str, number: u32) -> Line {
        Line { kind: Kind::Semantic, plugin: "toy".to_owned(), ..line(function, "/app.toy", number) }
    }

    fn stack(lines: &[u32], weight: u64) -> Stack {
        Stack { thread: 0, lines: lines.into(), samples: 1, weight }
    }

    fn rendered(lines: Vec<Line>, stacks: Vec<Stack>) -> String {
        let mut recording = Recording::default();
        recording.settings.rate = 100;
        let profile = Profile { lines, stacks, ..Profile::default() };
        render(&recording, &profile, Style { colour: false, width: 100, verbose: false })
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
        let text = render(&recording, &profile, super::super::PLAIN);
        let totals = text.rsplit("\n\n").next().expect("a table");
        assert!(totals.contains("   48.2 %    0.40s        1  <module>:36 (/app.toy:36)\n"), "{totals}");
    }

    #[test]
    fn processes_have_their_command_lines() {
        let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let process = |text| Process { exe: b"/usr/lib/cc1".to_vec(), command: words(text), ..Process::default() };
        let thread = |process| Thread { process, tid: 7 + process, name: "cc1".to_owned() };
        let recording = Recording {
            processes: vec![process("/usr/lib/cc1 a.c"), process("/usr/lib/cc1 b.c"), process("/usr/lib/cc1 b.c")],
            threads: (0..3).map(thread).collect(),
            ..Recording::default()
        };
        let stack = |thread, weight| Stack { thread, ..stack(&[0], weight) };
        let stacks = vec![stack(0, 50), stack(1, 25), stack(2, 25)];
        let profile = Profile { lines: vec![line("work", "", 0)], stacks, ..Profile::default() };
        let text = render(&recording, &profile, super::super::PLAIN);
        let table = text.split_once("Time by process\n").expect("a table").1;
        assert!(table.contains("50.0 %") && table.contains("2  cc1 b.c (2 processes)"), "{text}");
        assert!(table.contains("1  cc1 a.c\n") && !text.contains("Time by thread"), "{text}");
    }

    #[test]
    fn many_threads_whose_names_differ_in_numbers_are_one_row() {
        let table = |count: u32| {
            let thread = |n| Thread { process: 0, tid: 7 + n, name: format!("Thread-{n} (answer)") };
            let mut threads: Vec<Thread> = (0..count).map(thread).collect();
            threads.push(Thread { process: 0, tid: 6, name: "main2".to_owned() });
            let stacks = (0..=count).map(|thread| Stack { thread, ..stack(&[0], 1) }).collect();
            let mut recording = Recording { processes: vec![Process::default()], threads, ..Recording::default() };
            recording.settings.rate = 100;
            let profile = Profile { lines: vec![line("work", "", 0)], stacks, ..Profile::default() };
            let text = render(&recording, &profile, super::super::PLAIN);
            text.split_once("Time by thread\n").expect("a table").1.to_owned()
        };
        let many = table(99);
        assert!(many.contains("  99.0 %    0.99s       99  Thread-* (answer) (99 threads)\n"), "{many}");
        assert!(many.contains("        1  main2\n"), "{many}");
        // A few workers are of interest each by itself.
        let few = table(4);
        assert!(few.contains("  Thread-0 (answer)\n") && few.contains("  Thread-3 (answer)\n"), "{few}");
    }

    #[test]
    fn samples_that_the_program_asked_for_have_no_time() {
        let profile = Profile { lines: vec![line("work", "", 0)], stacks: vec![stack(&[0], 1)], ..Profile::default() };
        for (kind, has_times) in [(SampleKind::Timer, true), (SampleKind::Explicit, false)] {
            let sample = Sample { thread: 0, stack: 0, time: 0, weight: 1, stop: 1, kind: kind.number(), flags: 0 };
            let recording = Recording { samples: vec![sample], ..Recording::default() };
            let text = render(&recording, &profile, super::super::PLAIN);
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
}
