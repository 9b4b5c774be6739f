//! [perf maps](https://github.com/torvalds/linux/blob/v6.12/tools/perf/Documentation/jit-interface.txt):
//! `/tmp/perf-<pid>.map`, with a line for each function: start and size in hexadecimal, name. JITs only append to them,
//! without times and without removals, so a line is valid until another one covers its range.

use super::table::{name, Code, Table, When};
use crate::machine;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use uunwind_recording::JitSource;

/// At most this number of bytes are read in one look, so that a large map does not delay the draining of rings.
const AT_ONCE: usize = 1 << 20;
/// Longest line that is read, in bytes.
const LONGEST_LINE: usize = 64 << 10;

/// Parses a line without its newline, which may be any bytes.
pub fn line(line: &[u8]) -> Option<Code> {
    let mut words = line.trim_ascii().splitn(3, |b| *b == b' ');
    let (start, size) = (hexadecimal(words.next()?)?, hexadecimal(words.next()?)?);
    let bytes = words.next()?.trim_ascii();
    let end = start.checked_add(size).filter(|end| *end > start)?;
    (!bytes.is_empty()).then(|| Code { source: JitSource::PerfMap, start, end, name: name(bytes), lines: Rc::from([]) })
}

fn hexadecimal(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    // from_str_radix would accept a sign.
    let digits = text.strip_prefix("0x").unwrap_or(text);
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// Passes the functions of all complete lines in `bytes` to `report`. Returns the number of bytes that these lines
/// have.
pub fn lines(bytes: &[u8], mut report: impl FnMut(Code)) -> usize {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(len) = rest.iter().position(|b| *b == b'\n') else {
            // A line that is too long is skipped.
            return if rest.len() > LONGEST_LINE { bytes.len() } else { at };
        };
        rest.get(..len).and_then(line).into_iter().for_each(&mut report);
        at += len + 1;
    }
    at
}

/// A map that is read while it grows.
pub struct PerfMap {
    file: File,
    at: u64,
}

/// Opens the map of a process: a regular file that belongs to its user or ours, and was written since the process began
/// (`begun`, seconds since 1970). An older file was left by another process with the same pid.
pub fn open(path: &Path, user: u32, begun: i64) -> Option<PerfMap> {
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    let meta = file.metadata().ok()?;
    let ours = rustix::process::geteuid().as_raw();
    (meta.is_file() && (meta.uid() == user || meta.uid() == ours) && meta.mtime() >= begun)
        .then_some(PerfMap { file, at: 0 })
}

/// Paths where the map of a process may be: under the pid of its own pid namespace in its own root, and under the pid
/// of ours.
pub fn places(pid: u32) -> Vec<PathBuf> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let inner = inner.and_then(|pids| pids.split_whitespace().next_back()?.parse().ok()).unwrap_or(pid);
    let root = uunwind_elf::process::file(pid, "root");
    let mut places = vec![root.join(format!("tmp/perf-{inner}.map")), format!("/tmp/perf-{pid}.map").into()];
    places.dedup();
    places
}

impl PerfMap {
    /// Reads what was appended since the last look, which began at `after`; at most 1 MiB. False: there is no more now.
    pub fn look(&mut self, table: &mut Table, after: u64) -> bool {
        let mut buffer = vec![0; AT_ONCE];
        let read = loop {
            match self.file.read_at(&mut buffer, self.at) {
                Ok(read) => break read,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        };
        // The time after the read, since the JIT writes meanwhile.
        let when = When { after, by: machine::monotonic() };
        let taken = lines(buffer.get(..read).unwrap_or(&[]), |code| {
            table.come(code, when);
        });
        self.at += taken as u64;
        taken > 0 && read == AT_ONCE
    }

    /// Number of bytes of the map that were not read.
    pub fn unread(&self) -> u64 {
        let len = self.file.metadata().map_or(0, |meta| meta.len()).saturating_sub(self.at);
        // A last line without a newline does not count.
        if len > LONGEST_LINE as u64 {
            len
        } else {
            0
        }
    }

    /// Whether the map's length has changed, by one system call. A map that became shorter was rewritten, and is read
    /// from its start.
    pub fn grew(&mut self) -> bool {
        let len = self.file.metadata().map_or(self.at, |meta| meta.len());
        if len < self.at {
            self.at = 0;
        }
        len != self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_what_is_none() {
        let code = line(b"7f0010 2a JS:*f /a b.js:1:2").expect("a line");
        assert_eq!((code.start, code.end, &*code.name), (0x7f0010, 0x7f003a, "JS:*f /a b.js:1:2"));
        assert!(line(b"0x10 0x20 f").is_some_and(|c| c.start == 16 && c.end == 48));
        for none in ["", "10", "10 20", "10 20 ", "10 0 f", "-1 20 f", "x 1 f", "ffffffffffffffff 1 f", "10 20\tf"] {
            assert_eq!(line(none.as_bytes()), None, "{none:?}");
        }
        let mut names = Vec::new();
        let text = b"10 1 a\nrubbish\n20 1 b\n30 1 c";
        assert_eq!(lines(text, |code| names.push(code.name.to_string())), text.len() - 6);
        assert_eq!(names, ["a", "b"], "the last line is not complete yet");
        assert_eq!(lines(&vec![b'x'; LONGEST_LINE + 1], |_| unreachable!("no line")), LONGEST_LINE + 1);
    }
}
