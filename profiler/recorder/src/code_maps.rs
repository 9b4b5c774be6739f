//! Publishes to processes where their executable memory is, for copies of stacks (`uunwind_ring::code_map`).

use crate::machine;
use crate::session::Session;
use std::collections::HashMap;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::maps;
use uunwind_elf::process;
use uunwind_recording::CompleteMap;
use uunwind_ring::code_map::{in_use, of_word, offset_of, IN_USE, RANGES};

/// A process whose sizes have not changed is looked at again after this time: memory can become executable without a
/// change of them.
const AT_LAST: Duration = Duration::from_millis(250);
/// The looks take at most one part in this number of a CPU's time.
const SHARE: u32 = 50;

/// What was published of the processes, and when that was all of their executable memory.
#[derive(Default)]
pub struct CodeMaps {
    /// By block.
    published: HashMap<usize, Published>,
    /// No look before this time.
    not_before: Option<Instant>,
    /// Time that the looks of this pass have taken.
    spent: Duration,
    /// What is to be written.
    complete: Vec<CompleteMap>,
}

/// The times are in ns of CLOCK_MONOTONIC.
struct Published {
    pid: u32,
    /// The process's index in the recording.
    process: u32,
    /// Its sizes when its map was read.
    sizes: String,
    when: Instant,
    /// All of them, in order; the first [`RANGES`] are published.
    ranges: Vec<(u64, u64)>,
    /// When copies had this list, or how far the recording has that they did.
    since: u64,
    /// When the process's map was found to have nothing else, and when its sizes were found to be the same.
    read: u64,
    looked: u64,
}

impl Published {
    /// The list was complete up to this time.
    fn until(&mut self, time: u64) -> Option<CompleteMap> {
        let is_new = self.ranges.len() <= RANGES && self.since < time;
        is_new.then(|| CompleteMap {
            process: self.process,
            from: std::mem::replace(&mut self.since, time),
            until: time,
        })
    }
}

impl CodeMaps {
    /// Whether it is time for a pass over the processes.
    pub fn is_due(&self) -> bool {
        self.not_before.is_none_or(|time| Instant::now() >= time)
    }

    /// Publishes the map of the process with this block, if it may have changed. `process`: its index in the recording.
    pub fn look(&mut self, session: &Session, block: usize, pid: u32, process: u32) {
        let begun = Instant::now();
        let time = machine::monotonic();
        // Before the map, so that a later change is seen.
        let sizes = sizes(pid);
        if self.published.get(&block).is_some_and(|last| (last.pid, last.process) != (pid, process)) {
            self.ended(block);
        }
        let last = self.published.remove(&block);
        let is_current = |last: &Published| last.sizes == sizes && last.when.elapsed() < AT_LAST;
        let now = match last {
            Some(last) if is_current(&last) => Some(Published { looked: time, ..last }),
            last => match executable(pid) {
                Some(ranges) => {
                    let (when, read, looked) = (Instant::now(), time, time);
                    let since = self.renew(session, block, last, (&ranges, &sizes, time));
                    Some(Published { pid, process, sizes, when, ranges, since, read, looked })
                }
                None => last,
            },
        };
        self.published.extend(now.map(|now| (block, now)));
        self.spent += begun.elapsed();
    }

    /// Ends the time of the last list, and publishes the new one if it is another. Returns since when copies have it.
    fn renew(
        &mut self,
        session: &Session,
        block: usize,
        last: Option<Published>,
        (ranges, sizes, time): (&[(u64, u64)], &str, u64),
    ) -> u64 {
        if let Some(mut last) = last {
            let until = last.known_until(ranges, sizes, time);
            self.complete.extend(last.until(until));
            if last.ranges == ranges {
                return last.since;
            }
        }
        publish(session, block, ranges);
        machine::monotonic()
    }

    /// The process with this block has ended.
    pub fn ended(&mut self, block: usize) {
        let ended = self.published.remove(&block);
        self.complete.extend(ended.and_then(|mut last| last.until(last.looked)));
    }

    /// What has been found out since the last call.
    pub fn take_complete(&mut self) -> Vec<CompleteMap> {
        std::mem::take(&mut self.complete)
    }

    /// Ends a pass.
    pub fn end(&mut self) {
        self.not_before = Some(Instant::now() + std::mem::take(&mut self.spent) * SHARE);
    }
}

impl Published {
    /// Up to when this list was complete, by what is executable now.
    fn known_until(&self, ranges: &[(u64, u64)], sizes: &str, time: u64) -> u64 {
        let is_covered = |range: &(u64, u64)| {
            let after = self.ranges.partition_point(|(start, _)| *start <= range.0);
            after.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|(_, end)| range.1 <= *end)
        };
        match ranges.iter().all(is_covered) {
            true => time,
            // Something has come since the last look; or before it, without a change of sizes.
            false if sizes != self.sizes => self.looked,
            false => self.read,
        }
    }
}

/// Sizes in which every usual way shows that leads to more executable memory: all mappings, those that can be written
/// to, and those that can be executed and not written to (`VmLib` counts these, but for the program's text).
fn sizes(pid: u32) -> String {
    let text = std::fs::read_to_string(process::file(pid, "status")).unwrap_or_default();
    let wanted = |line: &&str| ["VmSize:", "VmData:", "VmLib:"].iter().any(|name| line.starts_with(name));
    text.lines().filter(wanted).collect()
}

/// The executable ranges of a process; `None`: it has none any more.
fn executable(pid: u32) -> Option<Vec<(u64, u64)>> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for mapping in maps::of(pid).ok()?.filter(maps::Mapping::is_executable) {
        match ranges.last_mut() {
            Some(last) if last.1 == mapping.start => last.1 = mapping.end,
            _ => ranges.push((mapping.start, mapping.end)),
        }
    }
    (!ranges.is_empty()).then_some(ranges)
}

fn publish(session: &Session, block: usize, ranges: &[(u64, u64)]) {
    let Some(word) = session.process_word(block, IN_USE) else { return };
    let list = 1 - of_word(word.load(Relaxed)).0;
    let ranges = ranges.get(..RANGES).unwrap_or(ranges);
    for (range, (start, end)) in ranges.iter().enumerate() {
        let offset = offset_of(list, range);
        for (offset, value) in [(offset, start), (offset + 8, end)] {
            if let Some(word) = session.process_word(block, offset) {
                word.store(*value, Relaxed);
            }
        }
    }
    word.store(in_use(list, ranges.len()), Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_recording::CompleteMap;
    use uunwind_ring::code_map::CodeMap;

    #[test]
    fn the_code_of_this_process_is_published() {
        let session = Session::create(16).expect("memfd");
        let mut maps = CodeMaps::default();
        assert!(maps.is_due());
        maps.look(&session, 3, std::process::id(), 0);
        maps.end();
        let block = session.memory().at(uunwind_ring::layout::DATA_OFFSET + 3 * uunwind_ring::layout::BLOCK_BYTES, 8);
        // SAFETY: a block of a session that is mapped.
        let map = unsafe { CodeMap::new(block.expect("a block")) };
        let here = the_code_of_this_process_is_published as *const () as u64;
        assert!(map.covers(here) && !map.covers(&raw const here as u64));
    }

    /// A map of ranges that was read at 100, and in use since 110; its sizes were the same at 150.
    fn published(ranges: &[(u64, u64)]) -> Published {
        Published {
            pid: 1,
            process: 7,
            sizes: "same".into(),
            when: Instant::now(),
            ranges: ranges.to_vec(),
            since: 110,
            read: 100,
            looked: 150,
        }
    }

    #[test]
    fn a_list_is_complete_until_something_may_have_come() {
        let list = [(0x1000, 0x3000), (0x8000, 0x9000)];
        let until = |ranges: &[(u64, u64)], sizes| published(&list).known_until(ranges, sizes, 200);
        assert_eq!(until(&list, "same"), 200);
        assert_eq!(until(&[(0x2000, 0x3000)], "other"), 200, "nothing new");
        assert_eq!(until(&[(0x1000, 0x3000), (0x8000, 0xa000)], "other"), 150);
        assert_eq!(until(&[(0x0000, 0x1000)], "same"), 100, "nobody knows when");
    }

    #[test]
    fn a_time_is_written_once_and_never_for_part_of_a_list() {
        let mut last = published(&[(0x1000, 0x3000)]);
        assert_eq!(last.until(100), None, "before it was in use");
        assert_eq!(last.until(150), Some(CompleteMap { process: 7, from: 110, until: 150 }));
        assert_eq!(last.until(150), None);
        assert_eq!(last.until(200), Some(CompleteMap { process: 7, from: 150, until: 200 }));
        let many: Vec<_> = (0..=RANGES as u64).map(|range| (range << 13, range << 13 | 1)).collect();
        assert_eq!(published(&many).until(150), None);
    }

    /// What a process does that makes memory executable shows in its sizes.
    #[test]
    fn new_code_changes_the_sizes() {
        let pid = std::process::id();
        let page = 4096;
        let map = |protection| {
            // SAFETY: new memory, which nothing uses.
            unsafe {
                libc::mmap(std::ptr::null_mut(), page, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
            }
        };
        let memory = map(libc::PROT_NONE);
        // SAFETY: the memory is this test's.
        let protect = |to| assert_eq!(unsafe { libc::mprotect(memory, page, to) }, 0);
        let mut last = sizes(pid);
        for protection in [libc::PROT_READ | libc::PROT_EXEC, libc::PROT_READ | libc::PROT_WRITE] {
            protect(protection);
            let now = sizes(pid);
            assert_ne!(std::mem::replace(&mut last, now.clone()), now);
        }
        protect(libc::PROT_READ | libc::PROT_EXEC);
        assert_ne!(last, sizes(pid));
        // SAFETY: as above.
        unsafe { libc::munmap(memory, page) };
    }
}
