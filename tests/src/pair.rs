//! Runs a program twice, with and without `uu`: its output and exit code must be the same.

use crate::process::{run, Outcome};
use crate::{paths, uu};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// A program's own output and exit code, apart from what `uu` says.
#[derive(Debug, PartialEq, Eq)]
pub struct Left {
    /// Exit code, 128 + n for a signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// The results of both runs.
pub struct Pair {
    /// The run without `uu`.
    pub plain: Left,
    /// The run with `uu`.
    pub recorded: Left,
    /// What `uu` itself printed, and its recording.
    pub recording: uu::Recording,
}

/// A shell command that redirects the program's output to files, then executes the program.
fn redirected(dir: &Path, program: &[&OsStr]) -> Vec<OsString> {
    let script = "exec >\"$1\" 2>\"$2\"; shift 2; exec \"$@\"";
    let mut words: Vec<OsString> = ["/bin/sh", "-c", script, "sh"].map(OsString::from).to_vec();
    words.extend([dir.join("program.out").into(), dir.join("program.err").into()]);
    words.extend(program.iter().map(|w| w.to_os_string()));
    words
}

fn left(dir: &Path, outcome: &Outcome) -> Left {
    let text = |name| String::from_utf8_lossy(&std::fs::read(dir.join(name)).unwrap_or_default()).into_owned();
    Left { code: outcome.code(), stdout: text("program.out"), stderr: text("program.err") }
}

/// Runs `program` plainly, then under `uu record` with these options.
#[track_caller]
pub fn both(name: &str, options: &[&str], configure: impl Fn(&mut Command), program: &[&OsStr]) -> Pair {
    let (first, second) = (paths::scratch(&format!("{name}-plain")), paths::scratch(&format!("{name}-recorded")));
    let words = redirected(&first, program);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    configure(&mut command);
    let plain = left(&first, &run(&mut command, &first, uu::LIMIT));
    let words = redirected(&second, program);
    let words: Vec<&OsStr> = words.iter().map(|w| &**w).collect();
    // A campaign in another mode.
    let mode = std::env::var("UU_MODE").ok();
    let mode = match mode.as_deref() {
        Some("kernel") => vec!["--kernel", "-r", "4999"],
        Some("alloc") => vec!["--mode", "alloc", "--every-bytes", "1K"],
        Some(mode) => vec!["--mode", mode],
        None => Vec::new(),
    };
    let mut options: Vec<&str> = options.iter().copied().chain(mode).collect();
    // Events have no rate in Hz.
    if options.contains(&"alloc") || options.contains(&"lock") {
        if let Some(rate) = options.iter().position(|option| *option == "-r") {
            options.drain(rate..options.len().min(rate + 2));
        }
    }
    let recording = uu::record(&second, &options, configure, &words);
    let recorded = left(&second, &recording.outcome);
    Pair { plain, recorded, recording }
}

impl Pair {
    /// Fails unless both runs gave the same, after `clean` has removed what may differ.
    #[track_caller]
    pub fn same_after(self, clean: impl Fn(&str) -> String) -> Pair {
        let cleaned = |l: &Left| Left { code: l.code, stdout: clean(&l.stdout), stderr: clean(&l.stderr) };
        let (plain, recorded) = (cleaned(&self.plain), cleaned(&self.recorded));
        let said = || self.recording.outcome.text();
        assert!(plain == recorded, "without uu: {plain:#?}\nwith uu: {recorded:#?}\nuu said: {}", said());
        self
    }

    /// Fails unless both runs gave the same.
    #[track_caller]
    pub fn same(self) -> Pair {
        self.same_after(str::to_owned)
    }
}

/// Replaces every number in base 16 by `0x`: addresses and thread ids differ from run to run.
pub fn without_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out += "0x";
        out += part.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_out() {
        assert_eq!(without_addresses("Thread 0x00007f12ab (most recent) 0x1f."), "Thread 0x (most recent) 0x.");
    }
}
