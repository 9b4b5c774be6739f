//! Jitdump files of a process: where they are, and how far each has been read.

use super::jitdump;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use uunwind_elf::maps::Mapping;
use uunwind_elf::{files, process};

/// A jitdump file that is being read.
pub(super) struct Dump {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) at: u64,
    pub(super) parser: jitdump::JitDump,
}

impl Dump {
    /// Number of bytes of the file that are not read yet.
    pub(super) fn unread(&self) -> u64 {
        let len = self.file.metadata().map_or(0, |meta| meta.len());
        if self.parser.ended().is_some() {
            0
        } else {
            len.saturating_sub(self.at)
        }
    }
}

/// A mapping that may be a jitdump file's.
pub struct Mapped {
    start: u64,
    end: u64,
    inode: u64,
    /// Path of the file, in the process's own root.
    pub path: PathBuf,
}

impl Mapped {
    /// The mapping, if it is executable and of a file that is named `jit-NUMBER.dump`.
    pub fn of(mapping: Mapping) -> Option<Mapped> {
        let path = std::str::from_utf8(&mapping.name).ok()?;
        let file = path.strip_suffix(" (deleted)").unwrap_or(path).rsplit('/').next()?;
        let number = file.strip_prefix("jit-")?.strip_suffix(".dump")?;
        let named = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        let Mapping { start, end, inode, .. } = mapping;
        (named && mapping.is_executable()).then(|| Mapped { start, end, inode, path: path.into() })
    }

    /// Opens the file that is mapped, identified by its inode.
    pub(super) fn open(&self, pid: u32) -> Option<File> {
        let in_root = process::file(pid, "root").join(self.path.strip_prefix("/").unwrap_or(&self.path));
        let mapped = process::mapped_file(pid, self.start, self.end);
        [in_root, mapped].iter().find_map(|path: &PathBuf| {
            let file = files::open(path).ok()?;
            (file.metadata().ok()?.ino() == self.inode).then_some(file)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let of_line = |line: &str| Mapping::parse(line.as_bytes()).and_then(Mapped::of);
        let line = "7f12-7f13 r-xp 00000000 08:01 1234                       /home/a b/jit-77.dump";
        let mapped = of_line(line).expect("a jitdump file");
        assert_eq!((mapped.inode, mapped.path.to_str()), (1234, Some("/home/a b/jit-77.dump")));
        for other in [
            "7f12-7f13 r--p 00000000 08:01 1234 /tmp/jit-77.dump",
            "7f12-7f13 r-xp 00000000 08:01 1234 /tmp/jit-x.dump",
            "7f12-7f13 r-xp 00000000 00:00 0",
            "",
        ] {
            assert!(of_line(other).is_none(), "{other}");
        }
    }
}
