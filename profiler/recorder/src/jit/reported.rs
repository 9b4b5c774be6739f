//! What the JITs of one process have reported, and the looks that find more.

use super::code_windows::{Change, CodeWindows};
use super::dumps::{Dump, Mapped};
use super::second_mappings::SecondMappings;
use super::table::Table;
use super::{gdb, jitdump, perf_map, second_mappings, AT_ONCE, MOST_SOURCES};
use crate::child::interrupted;
use crate::code_rules::{CodeRules, Number};
use crate::machine;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use uunwind_core::span::Span;
use uunwind_elf::maps::{self, Mapping};
use uunwind_recording::JitSource;

/// At most this number of bytes of all jitdump files of a process are read in one look.
pub(super) const A_LOOK: usize = 4 << 20;
/// Longest time between two searches for new files, ns.
pub(super) const LATE: u64 = 1_000_000_000;
/// Time between two looks at whole lists of objects, ns.
const WHOLE: u64 = 100_000_000;

pub(super) struct Process {
    pub(super) pid: u32,
    /// Start time: CLOCK_MONOTONIC in ns, and seconds since 1970.
    pub(super) start: u64,
    pub(super) begun: i64,
    pub(super) user: u32,
    /// Index of the process that it was forked from, whose code it has.
    pub(super) parent: Option<u32>,
    pub(super) table: Table,
    /// Number of the table's events that rules were made for.
    pub(super) ruled: usize,
    pub(super) map: Option<perf_map::PerfMap>,
    pub(super) dumps: Vec<Dump>,
    /// The file that the next look begins with.
    pub(super) next_dump: usize,
    pub(super) lists: Vec<gdb::Descriptor>,
    /// Windows whose code has no unwind data.
    pub(super) windows: Vec<CodeWindows>,
    pub(super) second: SecondMappings,
    /// Time of the last look, and when new files and whole lists are due next (CLOCK_MONOTONIC, ns).
    pub(super) looked: u64,
    pub(super) search_at: u64,
    pub(super) interval: u64,
    pub(super) whole_at: u64,
    pub(super) live: bool,
}

impl Process {
    pub(super) fn look(&mut self, now: u64) {
        self.second.look(&second_mappings::Live(self.pid), now);
        if now >= self.search_at {
            self.search(now);
            self.interval = (self.interval * 2).min(LATE);
            self.search_at = now + self.interval;
        }
        if let Some(map) = &mut self.map {
            if map.grew() {
                map.look(&mut self.table, self.looked);
            }
        }
        self.read_dumps(A_LOOK, AT_ONCE);
        let whole = now >= self.whole_at;
        for list in &mut self.lists {
            list.look(&gdb::Live(self.pid), &mut self.table, machine::monotonic, whole);
        }
        if whole {
            self.whole_at = now + WHOLE;
        }
        self.looked = now;
    }

    /// Asks for rules for the functions that were reported since the last call, and drops those of what was removed.
    /// Only code that compilers put into objects for GDB, and that of windows which say so, follows the ABI's calling
    /// convention, on which rules depend.
    pub(super) fn make_rules(&mut self, index: u32, rules: &mut CodeRules) {
        for event in self.table.events.get(self.ruled..).unwrap_or_default() {
            let Some(code) = self.table.codes.get(event.code as usize).filter(|c| c.source == JitSource::Gdb) else {
                continue;
            };
            let id = (index, Number::Reported(event.code));
            if !event.comes {
                rules.go(id);
            } else if let Some(constants) = self.table.constants.get(&event.code) {
                rules.come(id, self.pid, Span::new(code.start, code.end), constants);
            }
        }
        self.ruled = self.table.events.len();
        for (library, windows) in (0..).zip(&mut self.windows) {
            for change in windows.look(&gdb::Live(self.pid), machine::monotonic) {
                let id = |number| (index, Number::InWindow(library, number));
                match change {
                    Change::Comes(number, span, tables) => {
                        let constants: Arc<[Span]> = tables.into_iter().collect();
                        rules.come(id(number), self.pid, span, &constants);
                    }
                    Change::Goes(number) => rules.go(id(number)),
                }
            }
            rules.leave_out(windows.take_left_out());
        }
    }

    /// Reads the rest of the process's files, at most `most` bytes. Returns the number of bytes read, and the number
    /// left.
    pub(super) fn finish(&mut self, most: usize) -> (usize, u64) {
        if !Path::new(&format!("/proc/{}", self.pid)).exists() {
            self.search_map();
        }
        let mut left = most;
        while let Some(map) = self.map.as_mut().filter(|_| left >= AT_ONCE && interrupted().is_none()) {
            left -= AT_ONCE;
            if !map.look(&mut self.table, self.looked) {
                break;
            }
        }
        left = self.read_dumps(left, usize::MAX);
        self.live = false;
        let unread = self.map.as_ref().map_or(0, perf_map::PerfMap::unread);
        (most - left, self.dumps.iter().map(Dump::unread).sum::<u64>() + unread)
    }

    /// Searches for files that were not found before.
    pub(super) fn search(&mut self, now: u64) {
        self.search_map();
        let Ok(mappings) = maps::of(self.pid) else { return };
        let mappings: Vec<Mapping> = mappings.filter(Mapping::is_executable).collect();
        // A process that has ended has none.
        if !mappings.is_empty() {
            self.second.search(&mappings, &second_mappings::Live(self.pid), now);
        }
        if self.dumps.len() < MOST_SOURCES {
            self.search_dumps(mappings);
        }
    }

    fn search_map(&mut self) {
        if self.map.is_none() {
            let places = perf_map::places(self.pid);
            self.map = places.iter().find_map(|path| perf_map::open(path, self.user, self.begun));
        }
    }

    /// Finds jitdump files by the page that their writer has mapped executable.
    fn search_dumps(&mut self, mappings: Vec<Mapping>) {
        for mapped in mappings.into_iter().filter_map(Mapped::of) {
            if self.dumps.iter().any(|d| d.path == mapped.path) || self.dumps.len() >= MOST_SOURCES {
                continue;
            }
            if let Some(file) = mapped.open(self.pid) {
                self.dumps.push(Dump { file, path: mapped.path, at: 0, parser: jitdump::JitDump::default() });
            }
        }
    }

    /// Reads more of the jitdump files: at most `most` bytes of all of them together, `each` of one. Returns how much
    /// of `most` is left.
    fn read_dumps(&mut self, most: usize, each: usize) -> usize {
        let mut left = most;
        if self.dumps.is_empty() {
            return left;
        }
        let mut buffer = vec![0; AT_ONCE];
        self.next_dump = (self.next_dump + 1) % self.dumps.len();
        let (earlier, later) = self.dumps.split_at_mut(self.next_dump);
        for dump in later.iter_mut().chain(earlier) {
            let mut own = each.min(left);
            while own > 0 && dump.parser.ended().is_none() && interrupted().is_none() {
                let part = buffer.get_mut(..own.min(AT_ONCE)).unwrap_or_default();
                let read = dump.file.read_at(part, dump.at).unwrap_or(0);
                // After the read, since the JIT writes meanwhile.
                let latest = machine::monotonic();
                let clock = jitdump::Clock { before: self.looked, earliest: self.start, latest };
                dump.parser.feed(part.get(..read).unwrap_or(&[]), &mut self.table, clock);
                dump.at = dump.at.saturating_add(read as u64).saturating_add(dump.parser.skip());
                (own, left) = (own - read, left - read);
                if read < part.len() {
                    break;
                }
            }
        }
        left
    }
}
