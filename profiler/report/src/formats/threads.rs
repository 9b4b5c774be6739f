//! The samples of each thread in order of time, for formats that show threads one by one.

use crate::stacks::{Entry, Profile, Stack};
use std::collections::BTreeMap;
use uunwind_recording::Recording;

/// Characters of a command line that are shown.
const LONGEST: usize = 80;

/// A thread that was sampled.
pub struct Thread<'a> {
    /// Index of the process in the recording.
    pub process: u32,
    /// Its thread id.
    pub tid: u32,
    /// Its name; empty if it was never sent.
    pub name: &'a str,
    /// Its samples, in order of time.
    pub entries: Vec<(Entry, &'a Stack)>,
}

/// All threads that were sampled, by their index in the recording. Times are in ns since the recording began.
pub fn sampled<'a>(recording: &'a Recording, profile: &'a Profile) -> Vec<(u32, Thread<'a>)> {
    let of = |index: u32| {
        let thread = recording.threads.get(index as usize);
        let (process, tid) = thread.map_or((0, 0), |thread| (thread.process, thread.tid));
        Thread { process, tid, name: thread.map_or("", |thread| &thread.name), entries: Vec::new() }
    };
    let mut threads = BTreeMap::new();
    for entry in &profile.entries {
        let Some(stack) = profile.stacks.get(entry.stack as usize) else { continue };
        let time = entry.time.saturating_sub(recording.settings.start_monotonic);
        let thread = threads.entry(stack.thread).or_insert_with(|| of(stack.thread));
        thread.entries.push((Entry { time, ..*entry }, stack));
    }
    threads.into_iter().collect()
}

impl<'a> Thread<'a> {
    /// Its samples by their labels, those without any first.
    pub fn by_labels(&self) -> BTreeMap<u32, Vec<(Entry, &'a Stack)>> {
        let mut sets: BTreeMap<u32, Vec<(Entry, &Stack)>> = BTreeMap::new();
        for (entry, stack) in &self.entries {
            sets.entry(stack.labels).or_default().push((*entry, stack));
        }
        sets
    }

    /// Its name and thread id for people.
    pub fn label(&self) -> String {
        format!("{} (thread {})", if self.name.is_empty() { "?" } else { self.name }, self.tid)
    }
}

/// The pid of a process of the recording.
pub fn pid(recording: &Recording, process: u32) -> u32 {
    recording.processes.get(process as usize).map_or(0, |process| process.pid)
}

/// What distinguishes a process for people: the title that its program has given it, or its command line, without the
/// path of its program; cut where it is long. The file name of its executable if there is neither.
pub fn program(recording: &Recording, process: u32) -> String {
    let Some(process) = recording.processes.get(process as usize) else { return "?".to_owned() };
    let base = |path: &[u8]| String::from_utf8_lossy(path).rsplit('/').next().unwrap_or_default().to_owned();
    // A program that writes a title clears what its arguments had.
    let cleared = process.command.iter().rev().take_while(|word| word.is_empty()).count();
    let words = process.command.iter().take(process.command.len() - cleared).skip(1);
    let words = words.map(|word| super::said(&String::from_utf8_lossy(word)));
    let first = process.command.first().map(|word| base(word)).filter(|name| !name.is_empty());
    let first = first.map(|name| super::said(&name));
    let name = match (process.title(), first) {
        (Some(title), _) => super::printable(&String::from_utf8_lossy(title)),
        (None, Some(first)) => [first].into_iter().chain(words).collect::<Vec<_>>().join(" "),
        (None, None) => super::printable(&base(&process.exe)),
    };
    match name.char_indices().nth(LONGEST) {
        _ if name.is_empty() => "?".to_owned(),
        Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()),
        None => name,
    }
}
