//! The files that a process has mapped, by the kernel's links in
//! [`/proc/PID/map_files`](https://man7.org/linux/man-pages/man5/proc_pid_map_files.5.html), which also lead to files
//! without a name. Opening them requires CAP_CHECKPOINT_RESTORE.

use std::path::PathBuf;
use uunwind_elf::maps;
use uunwind_elf::process;

/// The mappings of the process that was looked up last. Reading `/proc/PID/maps` takes time proportional to the number
/// of mappings, so reading it for each object would be quadratic: it is read at most once a turn.
#[derive(Default)]
pub struct MapFiles {
    pid: u32,
    /// Start and end of each mapping, ascending.
    ranges: Vec<(u64, u64)>,
    /// The mappings were read in this turn.
    read: bool,
    /// How often mappings were read.
    reads: u64,
}

impl MapFiles {
    /// Ends a turn: the mappings may be out of date.
    pub fn turn(&mut self) {
        self.read = false;
    }

    /// The link to the first file mapped inside a range of process addresses. The caller must verify the file, because
    /// mappings change at any time.
    pub fn find(&mut self, pid: u32, start: u64, end: u64) -> Option<PathBuf> {
        let other = pid != self.pid;
        let mut found = if other { None } else { self.inside(start, end) };
        if found.is_none() && (other || !self.read) {
            self.load(pid);
            found = self.inside(start, end);
        }
        found.map(|(from, to)| process::mapped_file(pid, from, to))
    }

    fn inside(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let first = self.ranges.partition_point(|range| range.0 < start);
        self.ranges.get(first).copied().filter(|range| range.1 <= end)
    }

    fn load(&mut self, pid: u32) {
        (self.pid, self.read, self.reads) = (pid, true, self.reads + 1);
        self.ranges.clear();
        let Ok(mappings) = maps::of(pid) else { return };
        self.ranges.extend(mappings.map(|mapping| (mapping.start, mapping.end)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_objects_of_a_turn_take_one_read() {
        let own = std::process::id();
        let is_libc = |mapping: &maps::Mapping| String::from_utf8_lossy(&mapping.name).contains("libc.so");
        let maps::Mapping { start, end, .. } = maps::own().expect("maps").find(is_libc).expect("libc");
        let mut files = MapFiles::default();
        for turn in 1..=2 {
            for _ in 0..1500 {
                assert_eq!(files.find(own, 1, 2), None);
                let link = files.find(own, start - 1, end + 1).expect("libc is mapped");
                assert_eq!(link, PathBuf::from(format!("/proc/{own}/map_files/{start:x}-{end:x}")));
            }
            assert_eq!(files.reads, turn);
            files.turn();
        }
    }
}
