//! The samples of each thread in order of time, for formats that show threads one by one.

use crate::stacks::{Entry, Profile, Stack};
use uunwind_recording::Recording;

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
    let mut threads = std::collections::BTreeMap::new();
    for entry in &profile.entries {
        let Some(stack) = profile.stacks.get(entry.stack as usize) else { continue };
        let time = entry.time.saturating_sub(recording.settings.start_monotonic);
        let thread = threads.entry(stack.thread).or_insert_with(|| of(stack.thread));
        thread.entries.push((Entry { time, ..*entry }, stack));
    }
    threads.into_iter().collect()
}

impl Thread<'_> {
    /// Its name and thread id for people.
    pub fn label(&self) -> String {
        format!("{} (thread {})", if self.name.is_empty() { "?" } else { self.name }, self.tid)
    }
}

/// The pid of a process of the recording.
pub fn pid(recording: &Recording, process: u32) -> u32 {
    recording.processes.get(process as usize).map_or(0, |process| process.pid)
}

/// The file name of a process's executable.
pub fn program(recording: &Recording, process: u32) -> String {
    let exe = recording.processes.get(process as usize).map_or(&b""[..], |process| &process.exe);
    let exe = String::from_utf8_lossy(exe);
    let name = exe.rsplit('/').next().unwrap_or_default();
    if name.is_empty() { "?" } else { name }.to_owned()
}
