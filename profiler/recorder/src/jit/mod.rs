//! Names for code that is generated at run time, from three public interfaces of JITs: perf maps ([`perf_map`]),
//! jitdump files ([`jitdump`]) and the objects of GDB's JIT interface ([`gdb`]). All are read while the program runs,
//! since they may vanish with it, and kept in memory ([`table`]). At the end, the names of the functions that occur in
//! samples are written to the recording (`resolve`).
//!
//! Code of an object that is mapped a second time ([`second_mappings`]) is found here, too. It has its object's names.
//!
//! All of it is done outside the target. For a program without a JIT it costs a look at `/proc` now and then.

mod code_windows;
mod dumps;
pub mod gdb;
pub mod jitdump;
pub mod perf_map;
mod ranges;
mod reported;
mod resolve;
pub mod second_mappings;
pub mod table;
pub mod windows;

use crate::code_rules::CodeRules;
use crate::machine;
use code_windows::CodeWindows;
pub use dumps::Mapped;
use reported::{Process, LATE};
use second_mappings::SecondMappings;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use table::{Room, Table};
use uunwind_core::registry::outside::SYMBOL;
use uunwind_elf::Image;
use uunwind_recording::objects::ObjectMap;
use uunwind_recording::{JitNames, Object, Recording, SecondMapping};
use uunwind_ring::code_rules::LARGEST_PIECE;

/// At most this number of bytes of one file are read in one look.
const AT_ONCE: usize = 1 << 20;
/// At most this number of bytes of a process's files are read at its end, and at the ends of all processes together.
const AT_END: usize = 256 << 20;
const AT_ALL_ENDS: usize = 1 << 30;
/// Time between the first two searches for new files, ns.
const SOON: u64 = 20_000_000;
/// At most this number of jitdump files, and of lists, of one process are read.
const MOST_SOURCES: usize = 64;

/// The functions that the JITs of all processes reported.
#[derive(Default)]
pub struct Jit {
    processes: BTreeMap<u32, Process>,
    /// Facts key -> file addresses of the head of GDB's list, and of the description of libuunwind's windows, if the
    /// object has them.
    places: HashMap<u64, [Option<u64>; 2]>,
    notes: Vec<String>,
    /// Makes rules for what is reported.
    rules: CodeRules,
    /// Memory for all that is reported.
    room: Room,
    /// Bytes read at the ends of processes.
    read_at_ends: usize,
}

impl Jit {
    /// Creates it with no process; these rules are made.
    pub fn with_rules(rules: CodeRules) -> Jit {
        Jit { rules, ..Jit::default() }
    }

    /// Adds a process. `parent`: index of the process that it was forked from.
    pub fn process(&mut self, index: u32, pid: u32, start: u64, parent: Option<u32>) {
        let age = machine::monotonic().saturating_sub(start);
        let begun = machine::wall().saturating_sub(age).div_euclid(1_000_000_000) as i64;
        let user = std::fs::metadata(format!("/proc/{pid}")).map_or(u32::MAX, |meta| meta.uid());
        let process = Process {
            pid,
            start,
            begun,
            user,
            parent,
            table: Table { room: self.room.clone(), ..Table::default() },
            ruled: 0,
            map: None,
            dumps: Vec::new(),
            next_dump: 0,
            lists: Vec::new(),
            windows: Vec::new(),
            second: SecondMappings::new(start),
            looked: start,
            search_at: start.saturating_add(SOON),
            interval: SOON,
            whole_at: start,
            live: true,
        };
        self.processes.insert(index, process);
    }

    /// Adds a process that is dead: of what its JITs have reported, only the lists in its memory are left. `heads`:
    /// where they begin.
    pub fn dead(&mut self, index: u32, memory: &impl gdb::Memory, heads: impl Iterator<Item = u64>) {
        let mut table = Table { room: self.room.clone(), ..Table::default() };
        let mut lists: Vec<_> = heads.take(MOST_SOURCES).map(|at| gdb::Descriptor::new(at, 0)).collect();
        // Whenever it was reported: it holds for all stacks.
        lists.iter_mut().for_each(|list| list.look(memory, &mut table, || 0, true));
        let process = Process {
            pid: 0,
            start: 0,
            begun: 0,
            user: u32::MAX,
            parent: None,
            table,
            ruled: 0,
            map: None,
            dumps: Vec::new(),
            next_dump: 0,
            lists,
            windows: Vec::new(),
            second: SecondMappings::default(),
            looked: 0,
            search_at: u64::MAX,
            interval: LATE,
            whole_at: u64::MAX,
            live: false,
        };
        self.processes.insert(index, process);
    }

    /// Looks for the head of GDB's list, and for libuunwind's windows, in an object that a process has loaded.
    /// `places`: paths where its file may be.
    pub fn object(&mut self, index: u32, object: &Object, places: impl FnOnce() -> Vec<PathBuf>) {
        if let Some(process) = self.processes.get_mut(&index) {
            process.second.object(object.start, object.end);
        }
        let [head, windows] = *self.places.entry(object.facts_key).or_insert_with(|| {
            let open = |path: &PathBuf| Image::open(path).ok();
            places()
                .iter()
                .filter(|path| !path.as_os_str().is_empty())
                .find_map(open)
                .map(|image| [gdb::find(&image), image.any_symbol(SYMBOL).map(|symbol| symbol.address)])
                .unwrap_or_default()
        });
        if let (Some(head), Some(process)) = (head, self.processes.get_mut(&index)) {
            let at = object.bias.wrapping_add(head);
            if process.lists.len() < MOST_SOURCES && !process.lists.iter().any(|list| list.is_at(at)) {
                process.lists.push(gdb::Descriptor::new(at, process.start));
            }
        }
        if let (Some(windows), Some(process)) = (windows, self.processes.get_mut(&index)) {
            let at = object.bias.wrapping_add(windows);
            if process.windows.len() < MOST_SOURCES && !process.windows.iter().any(|windows| windows.is_at(at)) {
                process.windows.push(CodeWindows::new(at));
            }
        }
    }

    /// Reads what the JITs of all live processes have reported since the last call.
    pub fn look(&mut self) {
        let now = machine::monotonic();
        for (index, process) in self.processes.iter_mut().filter(|(_, p)| p.live) {
            process.look(now);
            process.make_rules(*index, &mut self.rules);
        }
    }

    /// The caller, who does not look all the time, has seen that a process's code was mapped as at the last search
    /// up to `time` (CLOCK_MONOTONIC, ns).
    pub fn unchanged_until(&mut self, index: u32, time: u64) {
        if let Some(process) = self.processes.get_mut(&index) {
            process.second.unchanged_until(time);
        }
    }

    /// Searches a process's files and mappings now, though it may not be time for it.
    pub fn search(&mut self, index: u32) {
        if let Some(process) = self.processes.get_mut(&index).filter(|p| p.live) {
            process.search_at = 0;
            process.look(machine::monotonic());
        }
    }

    /// Second mappings that were found, or are gone, since the last call.
    pub fn take_second_mappings(&mut self) -> Vec<SecondMapping> {
        let of = |(index, process): (&u32, &mut Process)| {
            let index = *index;
            process.second.take().into_iter().map(move |mapping| SecondMapping { process: index, ..mapping })
        };
        self.processes.iter_mut().flat_map(of).collect()
    }

    /// Reads the last reports of a process that has ended, or has called exec.
    pub fn finish(&mut self, index: u32) {
        let Some(process) = self.processes.get_mut(&index).filter(|p| p.live) else { return };
        let most = AT_END.min(AT_ALL_ENDS.saturating_sub(self.read_at_ends));
        let (read, unread) = process.finish(most);
        self.read_at_ends += read;
        self.rules.ended(index);
        let pid = process.pid;
        let mut note = |text: String| self.notes.push(format!("process {pid}: {text}"));
        if unread > 0 {
            note(format!(
                "{unread} bytes of its perf map and jitdump files were not read; at most {} MiB are: the functions \
                 in them have no names",
                most >> 20
            ));
        }
        if process.table.left_out > 0 {
            note(format!(
                "{} functions that its JIT reported could not be understood, or found no room ({} MiB for all processes); they \
                 have no names",
                process.table.left_out,
                table::ROOM >> 20
            ));
        }
        if process.second.left_out() > 0 {
            note("it maps its files again in too many places: code in some of them has no names".to_owned());
        }
        let left_out = self.rules.take_left_out();
        if left_out > 0 {
            note(format!(
                "{left_out} functions without unwind data, of lists for GDB and windows of uu.h, found no room, or were larger \
                 than {} KiB: stacks end in them",
                LARGEST_PIECE >> 10
            ));
        }
        let spent: u64 = process.lists.iter().map(gdb::Descriptor::spent).sum();
        if spent > 0 {
            note(format!(
                "objects in its list for GDB were left out, {spent} at least: more than {} of them, or one of more than {} MiB, or \
                 more than {} MiB in all; their functions have no names",
                gdb::MOST,
                gdb::LARGEST >> 20,
                gdb::A_LIST >> 20
            ));
        }
        for dump in &process.dumps {
            if let Some(why) = dump.parser.ended().filter(|why| !why.is_empty()) {
                self.notes.push(format!("{} was not read to its end: {why}", dump.path.display()));
            }
        }
    }

    /// Notes for the user since the last call, a line each.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Names for the unowned addresses in the stacks of the recording.
    pub fn names(&self, recording: &Recording, map: &mut ObjectMap) -> JitNames {
        let mut resolver = resolve::Resolver::new(recording);
        for index in self.processes.keys() {
            let reports = self.reports(*index);
            if !reports.is_empty() {
                resolver.process(*index, reports, map);
            }
        }
        resolver.finish()
    }

    /// The functions reported for a process: those of its ancestors up to each fork, and its own.
    fn reports(&self, index: u32) -> resolve::Reports<'_> {
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
        let mut reports = Vec::new();
        for (process, until) in line.into_iter().rev() {
            let table = &process.table;
            let events = table.events.iter().filter(|event| event.when.after <= until);
            reports.extend(events.filter_map(|event| Some((*event, table.codes.get(event.code as usize)?))));
        }
        reports
    }
}

#[cfg(test)]
mod tests {
    use super::dumps::Dump;
    use super::reported::A_LOOK;
    use super::table::When;
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    /// A jitdump file with a function in each of its records, most of which is a hole.
    fn sparse(records: u64, bytes: u32) -> File {
        let mut file = tempfile::tempfile().expect("a temporary file");
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        file.write_all(&words(&[0x4a69_5444, 1, 40, 62, 0, 77, 0, 0, 0, 0])).expect("room");
        for n in 0..records {
            // LOAD: pid, tid, then address, address of the code, size, number; the name.
            let record = words(&[0, bytes, 1, 0, 77, 77, 0x1000, 0, 0x1000, 0, 16, 0, n as u32, 0, u32::from(b'f')]);
            file.write_all_at(&record, 40 + n * u64::from(bytes)).expect("room");
        }
        file.set_len(40 + records * u64::from(bytes)).expect("a longer file");
        file
    }

    fn process(jit: &mut Jit, files: Vec<File>) {
        let pid = std::process::id();
        jit.process(0, pid, machine::monotonic(), None);
        let process = jit.processes.get_mut(&0).expect("the process");
        let dump = |file| Dump { file, path: "jit-77.dump".into(), at: 0, parser: jitdump::JitDump::default() };
        process.dumps = files.into_iter().map(dump).collect();
        (process.search_at, process.whole_at) = (u64::MAX, u64::MAX);
    }

    #[test]
    fn a_look_at_many_jitdump_files_reads_a_part_of_each() {
        let mut jit = Jit::default();
        process(&mut jit, (0..8).map(|_| sparse(4, 1 << 20)).collect());
        let read = |jit: &Jit| jit.processes[&0].dumps.iter().map(|dump| dump.at).collect::<Vec<_>>();
        jit.look();
        assert_eq!(read(&jit).iter().sum::<u64>(), A_LOOK as u64);
        (0..20).for_each(|_| jit.look());
        assert!(read(&jit).iter().all(|at| *at == 40 + (4 << 20)), "{:?}", read(&jit));
        assert_eq!(jit.processes[&0].table.codes.len(), 32);
    }

    #[test]
    fn a_record_that_is_written_during_a_look_has_its_own_time() {
        let mut jit = Jit::default();
        let file = sparse(1, 64);
        let begun = machine::monotonic();
        process(&mut jit, vec![file.try_clone().expect("a descriptor")]);
        let process = jit.processes.get_mut(&0).expect("the process");
        process.start = begun;
        let (look, time) = (machine::monotonic(), machine::monotonic() + 1);
        file.write_all_at(&time.to_ne_bytes(), 48).expect("room");
        while machine::monotonic() <= time {}
        process.look(look);
        assert_eq!(process.table.events.first().map(|event| event.when), Some(When::at(time)));
    }

    #[test]
    fn what_is_not_read_at_the_end_is_noted() {
        let mut jit = Jit::default();
        let (records, bytes) = (50, 8 << 20);
        process(&mut jit, vec![sparse(records, bytes)]);
        jit.finish(0);
        let unread = 40 + records * u64::from(bytes) - AT_END as u64;
        let notes = jit.take_notes();
        assert!(matches!(&notes[..], [note] if note.contains(&format!("{unread} bytes"))), "{notes:?}");
        assert_eq!(jit.processes[&0].table.codes.len(), AT_END / bytes as usize - 1, "those that are whole");
    }

    #[test]
    fn an_over_large_record_is_passed_without_being_read() {
        let mut jit = Jit::default();
        // Four records of 2 GiB, more than are read at the end.
        process(&mut jit, vec![sparse(4, 2 << 30)]);
        jit.finish(0);
        assert_eq!(jit.processes[&0].dumps[0].at, 40 + (8 << 30));
        assert!(jit.read_at_ends <= 8 * AT_ONCE, "{}", jit.read_at_ends);
    }
}
