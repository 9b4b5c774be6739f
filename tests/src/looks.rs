//! What can be seen of a process from outside, for comparisons.

use std::collections::BTreeSet;

/// What a process has: names and protections of its mappings, its open files, timers, and what it does about signals.
/// Mappings without a name are left out: the program itself changes them.
#[derive(Debug, PartialEq, Eq)]
pub struct Looks {
    /// Lines of `/proc/PID/maps`.
    pub mappings: Vec<String>,
    /// Targets of `/proc/PID/fd`.
    pub files: BTreeSet<String>,
    /// `/proc/PID/timers`.
    pub timers: String,
    /// Signals that are blocked, ignored and caught.
    pub signals: Vec<String>,
    /// Whether it has a tracer.
    pub traced: bool,
}

impl Looks {
    /// As it looks now.
    pub fn of(pid: u32) -> Looks {
        let read = |what: &str| std::fs::read_to_string(format!("/proc/{pid}/{what}")).expect("a process");
        let maps = read("maps");
        let is_named = |line: &&str| line.split_whitespace().count() >= 6 && !line.ends_with("[heap]");
        let mappings = maps.lines().filter(is_named).map(str::to_owned).collect();
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("files");
        // One that was open when the folder was read may be closed by now.
        let files = files.filter_map(|file| Some(format!("{:?}", std::fs::read_link(file.ok()?.path()).ok()?)));
        let status = read("status");
        let is_signals = |line: &&str| ["SigBlk", "SigIgn", "SigCgt"].iter().any(|name| line.starts_with(name));
        Looks {
            mappings,
            files: files.collect(),
            timers: read("timers"),
            signals: status.lines().filter(is_signals).map(str::to_owned).collect(),
            traced: !status.contains("TracerPid:\t0"),
        }
    }

    /// Whether anything of a sampler is in it.
    pub fn has_sampler(&self) -> bool {
        let named = |text: &String| text.contains("/memfd:uu-");
        self.mappings.iter().any(named) || self.files.iter().any(named) || !self.timers.is_empty() || self.traced
    }
}
