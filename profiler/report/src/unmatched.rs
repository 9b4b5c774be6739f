//! What is said of conditions that no sample meets: which one it is, and what there is instead.

use crate::formats::{printable, threads};
use crate::resolve::stop_text;
use crate::selection::Condition;
use crate::stacks::{Profile, Stack};
use std::collections::{BTreeMap, HashMap};
use uunwind_recording::{Recording, Sample};

/// Names that are offered instead.
const OFFERED: usize = 5;

/// Why no sample of a profile that has some meets all conditions.
pub fn why(recording: &Recording, profile: &Profile, conditions: &[Condition]) -> String {
    let alone =
        conditions.iter().find(|condition| !profile.stacks.iter().any(|s| condition.of_stack(recording, profile, s)));
    let reason = match alone {
        Some(condition) => of(condition, recording, profile),
        None if conditions.iter().any(|c| matches!(c, Condition::Stop(_))) => stopped(recording),
        None => timed(recording, profile, conditions),
    };
    format!("no sample is left by --filter, --focus and --ignore together: {reason}")
}

/// Why no sample meets this condition.
fn of(condition: &Condition, recording: &Recording, profile: &Profile) -> String {
    let program = |stack: &Stack| {
        let process = recording.threads.get(stack.thread as usize).map(|thread| thread.process);
        process.map(|process| threads::program(recording, process)).into_iter().collect()
    };
    let (what, pattern, names) = match condition {
        Condition::Focus(pattern) => ("function or source file", pattern, ranked(profile, leaf(profile))),
        Condition::Module(pattern) => ("object", pattern, ranked(profile, objects(recording, profile))),
        Condition::Thread(pattern) => (
            "thread",
            pattern,
            ranked(profile, |stack| {
                recording.threads.get(stack.thread as usize).map(|thread| thread.name.clone()).into_iter().collect()
            }),
        ),
        Condition::Process(pattern) => ("process", pattern, ranked(profile, program)),
        Condition::Label(key, pattern) => {
            let labels = |stack: &Stack| recording.labels.of(stack.labels).to_vec();
            let pairs = |stack: &Stack| labels(stack).iter().map(|(key, value)| format!("{key}:{value}")).collect();
            let wanted = pattern.as_ref().map_or(String::new(), |pattern| format!(":{}", pattern.as_str()));
            let there = match recording.labels.is_empty() {
                true => "none has a label at all (uu_label_set() of uu.h sets them)".to_owned(),
                false => format!("there are {}", ranked(profile, pairs)),
            };
            return format!("no sample has the label {key}{wanted}; {there}");
        }
        Condition::Ignore(pattern) => {
            return format!("every sample has a function or source file that matches {:?}", pattern.as_str())
        }
        Condition::Waits(true) => {
            return "no sample is of a thread that waits (`uu record --mode wall` has them)".to_owned()
        }
        Condition::Waits(false) => return "every sample is of a thread that waits".to_owned(),
        Condition::Time(..) => return timed(recording, profile, &[]),
        Condition::Stop(_) => return stopped(recording),
    };
    format!("no {what} matches {:?}; there are {names}", pattern.as_str())
}

/// The stop reasons that there are.
fn stopped(recording: &Recording) -> String {
    let reasons: BTreeMap<u16, &Sample> = recording.samples.iter().map(|sample| (sample.stop, sample)).collect();
    let there: Vec<String> = reasons.iter().map(|(number, of)| format!("{number} ({})", stop_text(of))).collect();
    format!("no sample that meets the other conditions, if any, ended so; the samples ended with {}", there.join(", "))
}

/// Where each condition alone leaves some: the times of the recording, or that it is their combination.
fn timed(recording: &Recording, profile: &Profile, conditions: &[Condition]) -> String {
    if !conditions.is_empty() && !conditions.iter().any(|condition| matches!(condition, Condition::Time(..))) {
        return "each of them alone leaves some".to_owned();
    }
    let second = |time: u64| time.saturating_sub(recording.settings.start_monotonic) as f64 / 1e9;
    let of = |entry: Option<&crate::stacks::Entry>| entry.map_or(0.0, |entry| second(entry.time));
    let (first, last) = (of(profile.entries.first()), of(profile.entries.last()));
    format!(
        "in that time no sample meets the other conditions, if any; the samples are from {first:.2} s to {last:.2} s"
    )
}

/// The names that stacks have, with their shares of the weight, the greatest first.
fn ranked(profile: &Profile, names: impl Fn(&Stack) -> Vec<String>) -> String {
    let mut weights: HashMap<String, u64> = HashMap::new();
    let mut all = 0u64;
    for stack in &profile.stacks {
        all = all.saturating_add(stack.weight);
        for name in names(stack) {
            let weight = weights.entry(name).or_default();
            *weight = weight.saturating_add(stack.weight);
        }
    }
    let mut ranked: Vec<(String, u64)> = weights.into_iter().collect();
    ranked.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
    let more = ranked.len().saturating_sub(OFFERED);
    let share = |weight: u64| weight as f64 * 100.0 / all.max(1) as f64;
    let shown =
        ranked.iter().take(OFFERED).map(|(name, weight)| format!("{} ({:.0} %)", printable(name), share(*weight)));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// The innermost function: those by themselves are what people look for.
fn leaf(profile: &Profile) -> impl Fn(&Stack) -> Vec<String> + '_ {
    |stack| {
        let line = stack
            .lines
            .iter()
            .filter_map(|line| profile.lines.get(*line as usize))
            .find(|line| line.object.is_some() || line.kind.is_semantic());
        line.map(|line| line.function.clone()).into_iter().collect()
    }
}

/// The objects of a stack, each once.
fn objects<'p>(recording: &'p Recording, profile: &'p Profile) -> impl Fn(&Stack) -> Vec<String> + 'p {
    |stack| {
        let lines = stack.lines.iter().filter_map(|line| profile.lines.get(*line as usize));
        let mut paths: Vec<String> = lines
            .filter_map(|line| recording.objects.get(line.object? as usize))
            .map(|object| String::from_utf8_lossy(&object.path).into_owned())
            .collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }
}
