//! The format of callgrind (<https://valgrind.org/docs/manual/cl-format.html>), for kcachegrind and callgrind_annotate:
//! CPU time in ns by function and line, and calls with the time that was spent in them.
//!
//! `calls=` is the number of samples that met the call, because the number of calls is not known. A call of a function
//! by itself, and the second of two equal calls in a stack, are left out: readers add up the times of a function's
//! calls.

use super::functions::Functions;
use crate::stacks::Profile;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;
use uunwind_recording::{Recording, Unit};

/// Samples and time of a call.
#[derive(Default)]
struct Call {
    samples: u64,
    time: u64,
}

/// What a function did: time by line; calls by line and called function.
#[derive(Default)]
struct Function {
    own: BTreeMap<u32, u64>,
    calls: BTreeMap<(u32, u32), Call>,
}

/// The profile as text.
pub fn render(recording: &Recording, profile: &Profile) -> String {
    let functions = Functions::new(profile);
    let value = recording.value();
    let period = value.unit.least(recording.settings.rate);
    // The events' short name.
    let event = if matches!(value.unit, Unit::Time | Unit::Nanoseconds) { "ns" } else { value.unit.name() };
    let costs = costs(profile, &functions, period);
    let total = profile.stacks.iter().fold(0u64, |sum, stack| sum.saturating_add(stack.weight.saturating_mul(period)));
    let mut out = format!(
        "# callgrind format\nversion: 1\ncreator: uu {}\npid: {}\ncmd: {}\npositions: line\nevent: {event} : {} in {event}\n\
         events: {event}\nsummary: {total}\n",
        env!("CARGO_PKG_VERSION"),
        recording.settings.pid,
        super::command(recording),
        value.text
    );
    let mut named = BTreeSet::new();
    for (index, function) in &costs {
        // Writing to a String cannot fail.
        let _ = write!(out, "\n{}", positions(&functions, *index, "fl", "fn", &mut named));
        for (line, time) in &function.own {
            let _ = writeln!(out, "{line} {time}");
        }
        for ((line, called), call) in &function.calls {
            out.push_str(&positions(&functions, *called, "cfi", "cfn", &mut named));
            let first = functions.list.get(*called as usize).map_or(0, |line| line.first_line);
            let _ = writeln!(out, "calls={} {first}\n{line} {}", call.samples.max(1), call.time);
        }
    }
    out
}

fn costs(profile: &Profile, functions: &Functions<'_>, period: u64) -> BTreeMap<u32, Function> {
    let mut costs: BTreeMap<u32, Function> = BTreeMap::new();
    let mut met = HashSet::new();
    for stack in &profile.stacks {
        let time = stack.weight.saturating_mul(period);
        met.clear();
        let mut called = None;
        for line in &stack.lines {
            let index = functions.of(*line);
            let executing = profile.lines.get(*line as usize).map_or(0, |line| line.line);
            let function = costs.entry(index).or_default();
            match called {
                None => {
                    let own = function.own.entry(executing).or_default();
                    *own = own.saturating_add(time);
                }
                Some(called) if called != index && met.insert((index, called)) => {
                    let call = function.calls.entry((executing, called)).or_default();
                    call.samples = call.samples.saturating_add(stack.samples);
                    call.time = call.time.saturating_add(time);
                }
                Some(_) => {}
            }
            called = Some(index);
        }
    }
    costs
}

/// The lines that name a function and its file: in full when they come first, by number afterwards.
fn positions(functions: &Functions<'_>, index: u32, file: &str, name: &str, named: &mut BTreeSet<u32>) -> String {
    let Some(line) = functions.list.get(index as usize) else { return String::new() };
    // A file is named by the number of its function: a name that comes twice is no fault.
    let number = index + 1;
    if !named.insert(index) {
        return format!("{file}=({number})\n{name}=({number})\n");
    }
    let path = if line.file.is_empty() { "???" } else { &line.file };
    format!("{file}=({number}) {}\n{name}=({number}) {}\n", super::printable(path), super::printable(&line.function))
}
