//! Names for code that is made at run time, from what JITs tell anybody: perf maps ([`perf_map`]), jitdump files ([`jitdump`])
//! and the objects of GDB's JIT interface ([`gdb`]). All are read while the program runs, since they vanish with it, and kept in
//! memory ([`table`]); what samples met is written to the recording at its end ([`resolve`]).
//!
//! Nothing of it is done in the target, and a program without a JIT costs a look at `/proc` now and then.

pub mod gdb;
pub mod jitdump;
pub mod perf_map;
mod ranges;
mod resolve;
pub mod table;

use crate::host;
use object::ReadCache;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use table::{Table, When};
use uunwind_report::objects::ObjectMap;
use uunwind_report::recording::{JitNames, Object, Recording};

/// Bytes read of one file in one look.
const AT_ONCE: usize = 1 << 20;
/// The same, at a process's end.
const AT_END: usize = 256 << 20;
/// Time between looks for new files, ns: at first, and at most.
const SOON: u64 = 20_000_000;
const LATE: u64 = 1_000_000_000;
/// Time between looks at whole lists of objects, ns.
const WHOLE: u64 = 100_000_000;
/// Most jitdump files and lists of one process.
const MOST_SOURCES: usize = 64;

/// What the JITs of all processes told.
#[derive(Default)]
pub struct Jit {
    processes: BTreeMap<u32, Process>,
    /// By facts key: where a file has the head of GDB's list.
    heads: HashMap<u64, Option<u64>>,
    notes: Vec<String>,
}

/// A jitdump file that is being read.
struct Dump {
    file: File,
    path: PathBuf,
    at: u64,
    parser: jitdump::JitDump,
}

struct Process {
    pid: u32,
    /// Time of its beginning: CLOCK_MONOTONIC in ns, and seconds since 1970.
    start: u64,
    begun: i64,
    user: u32,
    /// The process that it was forked from, whose code it has.
    parent: Option<u32>,
    table: Table,
    map: Option<perf_map::PerfMap>,
    dumps: Vec<Dump>,
    lists: Vec<gdb::Descriptor>,
    /// When it was looked at last, for new files, and at whole lists.
    looked: u64,
    search_at: u64,
    interval: u64,
    whole_at: u64,
    live: bool,
}

impl Jit {
    /// A process began. `parent`: index of the process that it was forked from.
    pub fn process(&mut self, index: u32, pid: u32, start: u64, parent: Option<u32>) {
        let age = host::monotonic().saturating_sub(start);
        let begun = host::wall().saturating_sub(age).div_euclid(1_000_000_000) as i64;
        let user = std::fs::metadata(format!("/proc/{pid}")).map_or(u32::MAX, |meta| meta.uid());
        let process = Process {
            pid,
            start,
            begun,
            user,
            parent,
            table: Table::default(),
            map: None,
            dumps: Vec::new(),
            lists: Vec::new(),
            looked: start,
            search_at: start + SOON,
            interval: SOON,
            whole_at: start,
            live: true,
        };
        self.processes.insert(index, process);
    }

    /// A process has an object, whose file is one of these. Finds the head of GDB's list in it.
    pub fn object(&mut self, index: u32, object: &Object, files: impl FnOnce() -> Vec<PathBuf>) {
        let head = *self.heads.entry(object.facts_key).or_insert_with(|| {
            let open = |path: &PathBuf| File::open(path).ok().map(ReadCache::new);
            files().iter().filter(|path| !path.as_os_str().is_empty()).find_map(open).and_then(|file| gdb::find(&file))
        });
        if let (Some(head), Some(process)) = (head, self.processes.get_mut(&index)) {
            let at = object.bias.wrapping_add(head);
            if process.lists.len() < MOST_SOURCES && !process.lists.iter().any(|list| list.is_at(at)) {
                process.lists.push(gdb::Descriptor::new(at, process.start));
            }
        }
    }

    /// Looks at what is new.
    pub fn look(&mut self) {
        let now = host::monotonic();
        for process in self.processes.values_mut().filter(|p| p.live) {
            process.look(now);
        }
    }

    /// A process ended, or became another: takes the last that it told.
    pub fn finish(&mut self, index: u32) {
        let Some(process) = self.processes.get_mut(&index).filter(|p| p.live) else { return };
        process.finish(host::monotonic());
        if process.table.left_out > 0 {
            self.notes.push(format!(
                "process {}: {} functions that its JIT told of could not be understood, or found no room; they have no names",
                process.pid, process.table.left_out
            ));
        }
        for dump in &process.dumps {
            if let Some(why) = dump.parser.ended().filter(|why| !why.is_empty()) {
                self.notes.push(format!("{} was not read to its end: {why}", dump.path.display()));
            }
        }
    }

    /// Lines for people that came up since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Names for what no object covers in the stacks of the recording.
    pub fn names(&self, recording: &Recording, map: &mut ObjectMap) -> JitNames {
        let mut resolver = resolve::Resolver::new(recording);
        for index in self.processes.keys() {
            let told = self.told(*index);
            if !told.is_empty() {
                resolver.process(*index, told, map);
            }
        }
        resolver.finish()
    }

    /// What was told to a process: its ancestors' code up to each fork, and its own.
    fn told(&self, index: u32) -> resolve::Told<'_> {
        let (mut line, mut at, mut until) = (Vec::new(), index, u64::MAX);
        while let Some(process) = self.processes.get(&at) {
            line.push((process, until));
            until = until.min(process.start);
            // Indices of parents are smaller: this ends.
            match process.parent.filter(|parent| *parent < at) {
                Some(parent) => at = parent,
                None => break,
            }
        }
        let mut told = Vec::new();
        for (process, until) in line.into_iter().rev() {
            let table = &process.table;
            let events = table.events.iter().filter(|event| event.when.after <= until);
            told.extend(events.filter_map(|event| Some((*event, table.codes.get(event.code as usize)?))));
        }
        told
    }
}

impl Process {
    fn look(&mut self, now: u64) {
        if now >= self.search_at {
            self.search();
            self.interval = (self.interval * 2).min(LATE);
            self.search_at = now + self.interval;
        }
        if let Some(map) = &mut self.map {
            if map.grew() {
                map.look(&mut self.table, When { after: self.looked, by: now });
            }
        }
        self.read_dumps(now, AT_ONCE);
        let whole = now >= self.whole_at;
        for list in &mut self.lists {
            list.look(&gdb::Live(self.pid), &mut self.table, host::monotonic, whole);
        }
        if whole {
            self.whole_at = now + WHOLE;
        }
        self.looked = now;
    }

    fn finish(&mut self, now: u64) {
        if !Path::new(&format!("/proc/{}", self.pid)).exists() {
            self.search_map();
        }
        let when = When { after: self.looked, by: now };
        for _ in 0..AT_END / AT_ONCE {
            if !self.map.as_mut().is_some_and(|map| map.look(&mut self.table, when)) {
                break;
            }
        }
        self.read_dumps(now, AT_END);
        self.live = false;
    }

    /// Looks for files that were not there before.
    fn search(&mut self) {
        self.search_map();
        if self.dumps.len() < MOST_SOURCES {
            self.search_dumps();
        }
    }

    fn search_map(&mut self) {
        if self.map.is_none() {
            let places = perf_map::places(self.pid);
            self.map = places.iter().find_map(|path| perf_map::open(path, self.user, self.begun));
        }
    }

    /// A jitdump file is found by the page of it that its writer has mapped executable.
    fn search_dumps(&mut self) {
        let Ok(maps) = std::fs::read(format!("/proc/{}/maps", self.pid)) else { return };
        for line in maps.split(|b| *b == b'\n') {
            let Some(mapped) = std::str::from_utf8(line).ok().and_then(Mapped::parse) else { continue };
            if self.dumps.iter().any(|d| d.path == mapped.path) || self.dumps.len() >= MOST_SOURCES {
                continue;
            }
            if let Some(file) = mapped.open(self.pid) {
                self.dumps.push(Dump { file, path: mapped.path, at: 0, parser: jitdump::JitDump::default() });
            }
        }
    }

    fn read_dumps(&mut self, now: u64, most: usize) {
        let clock = jitdump::Clock { before: self.looked, earliest: self.start, latest: now };
        for dump in &mut self.dumps {
            let mut left = most;
            let mut buffer = vec![0; AT_ONCE];
            while left > 0 && dump.parser.ended().is_none() {
                let read = dump.file.read_at(&mut buffer, dump.at).unwrap_or(0);
                dump.parser.feed(buffer.get(..read).unwrap_or(&[]), &mut self.table, clock);
                dump.at += read as u64;
                left = left.saturating_sub(read);
                if read < AT_ONCE {
                    break;
                }
            }
        }
    }
}

/// A line of `/proc/<pid>/maps` that may be a jitdump file's.
struct Mapped {
    range: String,
    inode: u64,
    path: PathBuf,
}

impl Mapped {
    fn parse(line: &str) -> Option<Mapped> {
        let mut words = line.splitn(6, ' ');
        let (range, access) = (words.next()?, words.next()?);
        let (_offset, _device, inode) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
        let path = words.next()?.trim_start();
        let file = path.strip_suffix(" (deleted)").unwrap_or(path).rsplit('/').next()?;
        let number = file.strip_prefix("jit-")?.strip_suffix(".dump")?;
        let named = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        (named && access.contains('x')).then(|| Mapped { range: range.to_owned(), inode, path: path.into() })
    }

    /// The very file that is mapped.
    fn open(&self, pid: u32) -> Option<File> {
        let in_root = Path::new(&format!("/proc/{pid}/root")).join(self.path.strip_prefix("/").unwrap_or(&self.path));
        let mapped = format!("/proc/{pid}/map_files/{}", self.range).into();
        [in_root, mapped].iter().find_map(|path: &PathBuf| {
            let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
            let meta = file.metadata().ok()?;
            (meta.is_file() && meta.ino() == self.inode).then_some(file)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Mapped;

    #[test]
    fn lines_of_maps() {
        let line = "7f12-7f13 r-xp 00000000 08:01 1234                       /home/a b/jit-77.dump";
        let mapped = Mapped::parse(line).expect("a jitdump file");
        assert_eq!((mapped.inode, mapped.path.to_str()), (1234, Some("/home/a b/jit-77.dump")));
        for other in [
            "7f12-7f13 r--p 00000000 08:01 1234 /tmp/jit-77.dump",
            "7f12-7f13 r-xp 00000000 08:01 1234 /tmp/jit-x.dump",
            "7f12-7f13 r-xp 00000000 00:00 0",
            "",
        ] {
            assert!(Mapped::parse(other).is_none(), "{other}");
        }
    }
}
