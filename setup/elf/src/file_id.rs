//! Which file it is, and which contents it has, by what the kernel says of it.

use rustix::time::{clock_gettime, ClockId};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// A file that was changed during this time, in seconds, may change again without another time of change: the clock
/// that the kernel takes these times from has ticks of up to 10 ms, and some file systems keep whole seconds.
const RECENT: i64 = 3;

/// A file, and what it holds: whatever changes a file's contents changes one of its times.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId([u64; 7]);

impl FileId {
    /// Device, inode, size, and the times of its last change of contents and of state.
    pub fn of(file: &Metadata) -> FileId {
        let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
        let [mtime, mtime_ns, ctime, ctime_ns] = times.map(|time| time as u64);
        FileId([file.dev(), file.ino(), file.size(), mtime, mtime_ns, ctime, ctime_ns])
    }

    /// The same, if a change of the file from now on would change it: to be asked before the file is read by whoever
    /// keeps what it held.
    pub fn settled(file: &Metadata) -> Option<FileId> {
        // Rounded up. By the kernel's clock, which these times are of, whatever is preloaded.
        let changed = file.mtime().max(file.ctime()).checked_add(1)?;
        let since = clock_gettime(ClockId::Realtime).tv_sec.checked_sub(changed)?;
        (since > RECENT).then(|| FileId::of(file))
    }

    /// The same as bytes.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.iter().flat_map(|word| word.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_is_settled_when_it_was_not_changed_lately() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let id = |file: &tempfile::NamedTempFile| FileId::settled(&file.as_file().metadata().expect("metadata"));
        assert_eq!(id(&file), None);
        // Its time of change cannot be set; /bin/sh is older.
        let old = std::fs::metadata("/bin/sh").expect("metadata");
        assert_eq!(FileId::settled(&old), Some(FileId::of(&old)));
        let before = FileId::of(&file.as_file().metadata().expect("metadata"));
        file.write_all(b"x").expect("room");
        assert_ne!(before, FileId::of(&file.as_file().metadata().expect("metadata")));
        assert_eq!(id(&file), None);
    }
}
