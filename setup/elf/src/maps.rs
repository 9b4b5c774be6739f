//! What a process has mapped, by
//! [`/proc/PID/maps`](https://man7.org/linux/man-pages/man5/proc_pid_maps.5.html). Names of files may hold any bytes.

use crate::mapped::Part;
use crate::{process, Span};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// One mapping: a line of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First process address.
    pub start: u64,
    /// End, exclusive (process address).
    pub end: u64,
    /// Four letters, such as `r-xp`.
    pub permissions: String,
    /// Where its first byte is in the file.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// Inode of the file; 0: none.
    pub inode: u64,
    /// Path of the file in the process's own root, with ` (deleted)` after it where the file has no name any more; or a
    /// name in brackets, such as `[vdso]`; or empty. The kernel writes a line break as `\\012`.
    pub name: Vec<u8>,
}

impl Mapping {
    /// Reads a line, without its end: `start-end permissions offset device inode name`. `None`: it is none.
    pub fn parse(line: &[u8]) -> Option<Mapping> {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let mut text = || std::str::from_utf8(fields.next()?).ok();
        let (start, end) = text()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let permissions = text()?.to_owned();
        let offset = number(text()?)?;
        let (major, minor) = text()?.split_once(':').unwrap_or_default();
        let device = (number_of(major), number_of(minor));
        let inode = text()?.parse().ok()?;
        let name = fields.next().unwrap_or_default().trim_ascii_start().to_vec();
        Some(Mapping { start, end, permissions, offset, device, inode, name })
    }

    /// Whether its name contains this text.
    pub fn has_in_name(&self, text: &str) -> bool {
        self.name.windows(text.len()).any(|part| part == text.as_bytes())
    }

    /// Whether its bytes may be written.
    pub fn is_writable(&self) -> bool {
        self.permissions.contains('w')
    }

    /// Whether it is a mapping of the same file.
    pub fn is_of_file(&self, other: &Mapping) -> bool {
        (self.inode, self.device, &self.name) == (other.inode, other.device, &other.name)
    }

    /// As a part of an object.
    pub fn part(&self) -> Part {
        Part { place: Span::new(self.start, self.end), offset: self.offset, is_code: Some(self.is_executable()) }
    }

    /// Whether its bytes may be executed.
    pub fn is_executable(&self) -> bool {
        self.permissions.contains('x')
    }
}

/// A device's number; 0 for what is none.
fn number_of(text: &str) -> u32 {
    u32::from_str_radix(text, 16).unwrap_or(0)
}

/// The mappings of a process, in order of addresses. A process that has ended has none.
pub fn of(pid: u32) -> io::Result<impl Iterator<Item = Mapping>> {
    /// At most this number of threads ends between being found and being asked.
    const TRIES: usize = 8;
    let mut tries = 0;
    loop {
        tries += 1;
        let folder = process::folder(pid);
        let mut mappings = in_folder(&folder).map(Iterator::peekable);
        let is_any = mappings.as_mut().is_ok_and(|mappings| mappings.peek().is_some());
        // If the thread has ended since, the process may live.
        if is_any || tries == TRIES || process::folder(pid) == folder {
            return mappings;
        }
    }
}

/// The mappings of the calling process.
pub fn own() -> io::Result<impl Iterator<Item = Mapping>> {
    // Its main thread may have ended.
    in_folder(Path::new("/proc/thread-self"))
}

fn in_folder(folder: &Path) -> io::Result<impl Iterator<Item = Mapping>> {
    let lines = BufReader::new(File::open(folder.join("maps"))?).split(b'\n');
    Ok(lines.map_while(Result::ok).filter_map(|line| Mapping::parse(&line)))
}

/// The mappings in the text of such a file, which may be any bytes.
pub fn in_text(text: &[u8]) -> impl Iterator<Item = Mapping> + '_ {
    text.split(|byte| *byte == b'\n').filter_map(Mapping::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_blanks_and_any_bytes() {
        let text = b"5600-5700 r--p 00000000 08:01 12 /bin/a b\n\
                     5700-5800 r-xp 0001f000 fd:1a 12                 /bin/a\xff b (deleted)\n\
                     7000-7100 rwxp 00000000 00:00 0 \n\
                     7100-7200 rw-p 00000000 00:00 0\n\
                     7fff0000-7fff1000 r-xp 00000000 00:00 0          [vdso]\n\
                     nonsense\n1-2\n3-4 r--p 0 0\n5-g r--p 0 0 0 x\n";
        let mapping = |start, end, permissions: &str, inode, name: &[u8]| Mapping {
            start,
            end,
            permissions: permissions.to_owned(),
            offset: 0,
            device: if inode == 0 { (0, 0) } else { (8, 1) },
            inode,
            name: name.to_vec(),
        };
        let code = mapping(0x5700, 0x5800, "r-xp", 12, b"/bin/a\xff b (deleted)");
        let expected = [
            mapping(0x5600, 0x5700, "r--p", 12, b"/bin/a b"),
            Mapping { offset: 0x1f000, device: (0xfd, 0x1a), ..code },
            mapping(0x7000, 0x7100, "rwxp", 0, b""),
            mapping(0x7100, 0x7200, "rw-p", 0, b""),
            mapping(0x7fff_0000, 0x7fff_1000, "r-xp", 0, b"[vdso]"),
        ];
        let found: Vec<Mapping> = in_text(text).collect();
        assert_eq!(found, expected);
        assert_eq!(found.iter().filter(|mapping| mapping.is_executable()).count(), 3);
    }

    #[test]
    fn this_process_has_mapped_this_code() {
        let here = this_process_has_mapped_this_code as *const () as u64;
        let mapping = own().expect("maps").find(|m| (m.start..m.end).contains(&here)).expect("this code");
        assert!(mapping.is_executable() && mapping.inode != 0);
        assert_eq!(of(std::process::id()).expect("maps").find(|m| m.start == mapping.start), Some(mapping));
    }
}
