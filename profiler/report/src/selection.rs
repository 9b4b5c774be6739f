//! Parts of a profile: samples that were chosen by function, file, object, process, thread, time or stop reason.

use crate::formats::{line_of, threads};
use crate::resolve::is_cut;
use crate::stacks::{Entry, Idle, Profile, Stack};
use crate::unmatched;
use regex_lite::Regex;
use std::collections::HashMap;
use uunwind_core::stop_reason::StopReason;
use uunwind_recording::{Held, Process, Recording};

/// A condition for a sample.
#[derive(Clone, Debug)]
pub enum Condition {
    /// A frame of its stack has a function or a source file that matches.
    Focus(Regex),
    /// No frame of it has.
    Ignore(Regex),
    /// A frame of it lies in an object whose path matches.
    Module(Regex),
    /// Its thread has this id, or a name that matches.
    Thread(Regex),
    /// Its process has this pid, or an executable whose path matches, or a command line.
    Process(Regex),
    /// Its thread waited, or ran.
    Waits(bool),
    /// Its thread had a label with this key, and a value that matches, if there is to be one.
    Label(String, Option<Regex>),
    /// It was taken in this time: ns since the recording began.
    Time(u64, u64),
    /// Its walk ended for this reason; `None`: for any that leaves the stack cut.
    Stop(Option<StopReason>),
}

impl Condition {
    /// A condition as people write it: `function=`, `module=`, `thread=` or `process=` and a regular expression,
    /// `label=KEY` or `label=KEY:` and one for the value, `state=running` or `state=waiting`, `time=FROM-TO` in
    /// seconds, of which either may be left out, or `stop=` and a stop reason's number or `failed`.
    pub fn parse(text: &str) -> Result<Condition, String> {
        let kinds = "function=, module=, thread=, process= and a regular expression, label=KEY or label=KEY:REGEX, \
                     state=running, state=waiting, time=FROM-TO in seconds, or stop=NUMBER or stop=failed";
        let (kind, value) = text.split_once('=').ok_or_else(|| format!("it takes {kinds}"))?;
        if value.is_empty() && ["function", "module", "thread", "process", "label"].contains(&kind) {
            // The empty expression matches everything, and is mostly a variable without a value.
            return Err(format!("{kind}= has no value, and would leave out nothing"));
        }
        match kind {
            "function" => Ok(Condition::Focus(pattern(value)?)),
            "module" => Ok(Condition::Module(pattern(value)?)),
            "thread" => Ok(Condition::Thread(pattern(value)?)),
            "process" => Ok(Condition::Process(pattern(value)?)),
            "label" => {
                let (key, value) = value.split_once(':').map_or((value, None), |(key, value)| (key, Some(value)));
                Ok(Condition::Label(key.to_owned(), value.map(pattern).transpose()?))
            }
            "state" => match value {
                "running" => Ok(Condition::Waits(false)),
                "waiting" => Ok(Condition::Waits(true)),
                _ => Err(format!("{value:?} is no state: it is running or waiting")),
            },
            "time" => {
                time(value).ok_or_else(|| format!("{value:?} is no time: write FROM-TO in seconds, such as 1.5-3"))
            }
            "stop" if value == "failed" => Ok(Condition::Stop(None)),
            "stop" => match value.parse().ok().and_then(StopReason::from_number) {
                Some(reason) => Ok(Condition::Stop(Some(reason))),
                None => Err(format!("{value:?} is no stop reason: it is failed, or a number of docs/stop-reasons.md")),
            },
            _ => Err(format!("there is no {kind:?}; it takes {kinds}")),
        }
    }

    /// Whether a sample meets it, of a stack that does.
    fn of_sample(&self, recording: &Recording, entry: &Entry) -> bool {
        match self {
            Condition::Time(from, to) => {
                (*from..*to).contains(&entry.time.saturating_sub(recording.settings.start_monotonic))
            }
            Condition::Stop(wanted) => {
                let sample = recording.samples.get(entry.sample as usize);
                sample.is_some_and(|sample| match wanted {
                    Some(reason) => sample.reason() == Some(*reason),
                    None => is_cut(sample),
                })
            }
            _ => true,
        }
    }

    /// Whether a stack meets it; those of a time and of a stop reason are for its samples.
    pub(crate) fn of_stack(&self, recording: &Recording, profile: &Profile, stack: &Stack) -> bool {
        let lines = || stack.lines.iter().filter_map(|line| profile.lines.get(*line as usize));
        let named = |pattern: &Regex| lines().any(|l| pattern.is_match(&l.function) || pattern.is_match(&l.file));
        let thread = recording.threads.get(stack.thread as usize);
        let is_number = |pattern: &Regex| pattern.as_str().parse::<u64>().is_ok();
        let is = |pattern: &Regex, number: u32, name: &str| {
            // A number is an id, not a part of one.
            pattern.as_str() == number.to_string() || !is_number(pattern) && pattern.is_match(name)
        };
        match self {
            Condition::Focus(pattern) => named(pattern),
            Condition::Ignore(pattern) => !named(pattern),
            Condition::Module(pattern) => {
                let objects = lines().filter_map(|line| recording.objects.get(line.object? as usize));
                objects.map(|object| String::from_utf8_lossy(&object.path)).any(|path| pattern.is_match(&path))
            }
            Condition::Thread(pattern) => thread.is_some_and(|thread| is(pattern, thread.tid, &thread.name)),
            Condition::Process(pattern) => {
                let process = thread.and_then(|thread| recording.processes.get(thread.process as usize));
                let command =
                    |p: &Process| p.command.iter().map(|w| String::from_utf8_lossy(w)).collect::<Vec<_>>().join(" ");
                process.is_some_and(|p| {
                    is(pattern, p.pid, &String::from_utf8_lossy(&p.exe)) || is(pattern, p.pid, &command(p))
                })
            }
            Condition::Label(key, pattern) => {
                let found = recording.labels.of(stack.labels).iter().find(|(own, _)| own == key);
                found.is_some_and(|(_, value)| match pattern {
                    None => true,
                    Some(pattern) if is_number(pattern) => pattern.as_str() == value,
                    Some(pattern) => pattern.is_match(value),
                })
            }
            Condition::Waits(waits) => profile.waits(stack) == *waits,
            Condition::Time(..) | Condition::Stop(_) => true,
        }
    }
}

/// A regular expression that people wrote.
pub fn pattern(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|e| format!("{text:?} is no regular expression: {e}"))
}

fn time(text: &str) -> Option<Condition> {
    times(text).map(|(from, to)| Condition::Time(from, to))
}

/// Two times as people write them, FROM-TO in seconds, of which either may be left out, in ns: 0 and the largest
/// number.
pub fn times(text: &str) -> Option<(u64, u64)> {
    let (from, to) = text.split_once('-')?;
    let seconds = |text: &str, default: u64| match text {
        "" => Some(default),
        text => text.parse::<f64>().ok().filter(|s| *s >= 0.0).map(|s| (s * 1e9) as u64),
    };
    let (from, to) = (seconds(from, 0)?, seconds(to, u64::MAX)?);
    (from < to).then_some((from, to))
}

/// The part of a profile that meets all conditions. An error, for people, if nothing of a profile with samples does.
pub fn select(recording: &Recording, profile: Profile, conditions: &[Condition]) -> Result<Profile, String> {
    if conditions.is_empty() {
        return Ok(profile);
    }
    let meets = |stack: &Stack| conditions.iter().all(|condition| condition.of_stack(recording, &profile, stack));
    let kept: Vec<bool> = profile.stacks.iter().map(meets).collect();
    let is_wanted = |entry: &Entry| conditions.iter().all(|condition| condition.of_sample(recording, entry));
    let is_kept = |entry: &Entry| kept.get(entry.stack as usize) == Some(&true) && is_wanted(entry);
    if !profile.entries.is_empty() && !profile.entries.iter().any(is_kept) {
        return Err(unmatched::why(recording, &profile, conditions));
    }
    let selected = profile.selected || !conditions.is_empty();
    Ok(Profile { selected, ..keep(profile, &kept, is_wanted) })
}

/// The allocations of a recording that are held at a time, or what is left of them then.
pub fn held(recording: &Recording, mut profile: Profile, held: Held) -> Profile {
    if held == Held::Total {
        return Profile { held: Some(held), ..profile };
    }
    let chosen = recording.held(held);
    let of = |entry: &Entry| chosen.get(entry.sample as usize).copied().unwrap_or_default();
    for entry in &mut profile.entries {
        entry.weight = of(entry).weight();
    }
    let all = vec![true; profile.stacks.len()];
    Profile { held: Some(held), ..keep(profile, &all, |entry| of(entry).count > 0.0) }
}

/// The allocations of a recording after the first of this number of samples, and those that are still held of all.
pub fn since(recording: &Recording, profile: Profile, since: usize) -> Profile {
    let held = recording.held(Held::Now);
    let is_held = |entry: &Entry| held.get(entry.sample as usize).is_some_and(|amount| amount.count > 0.0);
    let all = vec![true; profile.stacks.len()];
    let profile = Profile { since: Some(since), ..profile };
    keep(profile, &all, |entry| entry.sample as usize >= since || is_held(entry))
}

/// The stacks that are `kept`, with the samples that are wanted.
fn keep(profile: Profile, kept: &[bool], is_wanted: impl Fn(&Entry) -> bool) -> Profile {
    let mut place: Vec<Option<u32>> = vec![None; profile.stacks.len()];
    let mut stacks: Vec<Stack> = Vec::new();
    let mut entries = Vec::new();
    for entry in profile.entries.iter().filter(|entry| is_wanted(entry)) {
        let old = entry.stack as usize;
        let (Some(true), Some(stack), Some(place)) = (kept.get(old), profile.stacks.get(old), place.get_mut(old))
        else {
            continue;
        };
        let new = *place.get_or_insert_with(|| {
            stacks.push(Stack { samples: 0, weight: 0, ..stack.clone() });
            stacks.len() as u32 - 1
        });
        if let Some(stack) = stacks.get_mut(new as usize) {
            stack.samples += entry.samples();
            stack.weight += entry.weight;
        }
        entries.push(Entry { stack: new, ..*entry });
    }
    Profile { stacks, entries, ..profile }
}

/// Leaves out idle threads: all of whose samples show them waiting, with the same stack. If there are no others, none
/// is left out.
pub fn without_idle(profile: Profile) -> Profile {
    let mut stacks_of = HashMap::<u32, u32>::new();
    for stack in &profile.stacks {
        *stacks_of.entry(stack.thread).or_default() += 1;
    }
    let is_idle = |stack: &Stack| stacks_of.get(&stack.thread) == Some(&1) && profile.waits(stack);
    let idle: Vec<&Stack> = profile.stacks.iter().filter(|stack| is_idle(stack)).collect();
    if idle.is_empty() || idle.len() == profile.stacks.len() {
        return profile;
    }
    let weight = idle.iter().fold(0u64, |sum, stack| sum.saturating_add(stack.weight));
    let stacks = idle.iter().map(|stack| (*stack).clone()).collect();
    let idle = Idle { threads: idle.iter().map(|stack| stack.thread).collect(), weight, stacks };
    let kept: Vec<bool> = profile.stacks.iter().map(|stack| !is_idle(stack)).collect();
    Profile { idle, ..keep(profile, &kept, |_| true) }
}

/// What stands above the stacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Groups {
    /// Each process.
    pub process: bool,
    /// Each thread.
    pub thread: bool,
    /// The labels of each thread.
    pub label: bool,
}

/// Puts processes, threads and labels above their stacks, as outermost frames.
pub fn group(recording: &Recording, mut profile: Profile, groups: Groups) -> Profile {
    use crate::stacks::Line;
    let mut known = std::collections::HashMap::new();
    let mut lines = std::mem::take(&mut profile.lines);
    let mut line = |text: String| {
        *known.entry(text).or_insert_with_key(|text| {
            lines.push(Line::marker(text.clone()));
            lines.len() as u32 - 1
        })
    };
    for stack in &mut profile.stacks {
        let Some(thread) = recording.threads.get(stack.thread as usize) else { continue };
        let mut with = stack.lines.to_vec();
        if with.is_empty() {
            with.push(line("[no frames]".to_owned()));
        }
        let labels = recording.labels.of(stack.labels);
        if groups.label && !labels.is_empty() {
            with.push(line(format!("[{}]", line_of(labels))));
        }
        if groups.thread {
            let name = if thread.name.is_empty() { "?" } else { &thread.name };
            with.push(line(format!("{name} (thread {})", thread.tid)));
        }
        if groups.process {
            let (program, pid) = (threads::program(recording, thread.process), threads::pid(recording, thread.process));
            with.push(line(format!("{program} (pid {pid})")));
        }
        stack.lines = with.into();
    }
    profile.lines = lines;
    profile
}
