//! perf maps: `/tmp/perf-<pid>.map`, one line a function: start and size in hexadecimal, name. Only ever appended to, never
//! with a time or an end, so that a line holds until another one covers its range (Linux, tools/perf/Documentation/jit-interface.txt).

use super::table::{name, Code, Table, When};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use uunwind_report::recording::JitSource;

/// Bytes read in one look, so that a large map does not keep the rings waiting.
const AT_ONCE: usize = 1 << 20;
/// Longest line.
const LONGEST_LINE: usize = 64 << 10;

/// The function of a line without its newline. Any bytes are safe to give.
pub fn line(line: &[u8]) -> Option<Code> {
    let mut words = line.trim_ascii().splitn(3, |b| *b == b' ');
    let (start, size) = (hexadecimal(words.next()?)?, hexadecimal(words.next()?)?);
    let told = words.next()?.trim_ascii();
    let end = start.checked_add(size).filter(|end| *end > start)?;
    (!told.is_empty()).then(|| Code { source: JitSource::PerfMap, start, end, name: name(told), lines: Rc::from([]) })
}

fn hexadecimal(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    // from_str_radix takes a sign.
    let digits = text.strip_prefix("0x").unwrap_or(text);
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// The lines in `bytes`, which may end inside one; the number of bytes taken.
pub fn lines(bytes: &[u8], mut told: impl FnMut(Code)) -> usize {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(len) = rest.iter().position(|b| *b == b'\n') else {
            // A line without end is none.
            return if rest.len() > LONGEST_LINE { bytes.len() } else { at };
        };
        rest.get(..len).and_then(line).into_iter().for_each(&mut told);
        at += len + 1;
    }
    at
}

/// A map that is read while it grows.
pub struct PerfMap {
    file: File,
    at: u64,
}

/// Opens the map of a process, if it has one of its own: a regular file of its user's or ours, written since the process
/// began (`begun`, seconds since 1970): pids come again, and maps stay.
pub fn open(path: &Path, user: u32, begun: i64) -> Option<PerfMap> {
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    let meta = file.metadata().ok()?;
    // SAFETY: geteuid has no preconditions.
    let ours = unsafe { libc::geteuid() };
    (meta.is_file() && (meta.uid() == user || meta.uid() == ours) && meta.mtime() >= begun)
        .then_some(PerfMap { file, at: 0 })
}

/// Where the map of a process may be: by its own pid in its own root, and by the pid that we know.
pub fn places(pid: u32) -> Vec<PathBuf> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let inner = inner.and_then(|pids| pids.split_whitespace().next_back()?.parse().ok()).unwrap_or(pid);
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let mut places = vec![root.join(format!("tmp/perf-{inner}.map")), format!("/tmp/perf-{pid}.map").into()];
    places.dedup();
    places
}

impl PerfMap {
    /// Takes what was appended since the last look, at most a part. False: there is nothing more now.
    pub fn look(&mut self, table: &mut Table, when: When) -> bool {
        let mut buffer = vec![0; AT_ONCE];
        let read = loop {
            match self.file.read_at(&mut buffer, self.at) {
                Ok(read) => break read,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        };
        let taken = lines(buffer.get(..read).unwrap_or(&[]), |code| {
            table.come(code, when);
        });
        self.at += taken as u64;
        taken > 0 && read == AT_ONCE
    }

    /// Whether there may be something new; cheap. A map that became shorter was begun anew.
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
        assert_eq!(names, ["a", "b"], "the last line is not whole yet");
        assert_eq!(lines(&vec![b'x'; LONGEST_LINE + 1], |_| unreachable!("no line")), LONGEST_LINE + 1);
    }
}
