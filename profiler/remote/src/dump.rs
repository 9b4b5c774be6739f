//! The stacks of all threads of a process, now.

use crate::memory::Memory;
use crate::names::Names;
use crate::objects::Objects;
use crate::plugins::Plugins;
use crate::refusal::{check, refused, DumpError};
use crate::threads::{self, Stopped};
use crate::waits::{self, doing, Doing, Registers};
use crate::walks::Walks;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use uunwind_recorder::stacks::Stacks;
use uunwind_recorder::{lines, naming};
use uunwind_recording::objects::ObjectMap;
use uunwind_recording::{Process, Recording, Sample, Settings, Thread};
use uunwind_ring::record::SAMPLE_DESYNC;
use uunwind_symbolize::calls::keep_those_in_stacks;
use uunwind_symbolize::questions;
use uunwind_tables_build::Cache;

/// At most this number of times the files are looked at again, because the process has mapped others meanwhile.
const ROUNDS: usize = 3;

/// What a thread was doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// Its id, in this process's namespace.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// What it was doing; `None`: it could not be stopped, so it has no stack here.
    pub doing: Option<Doing>,
}

/// The stacks of all threads, and how they were taken.
pub struct Dump {
    /// One sample for each thread with a stack, in the order of `threads`, as a recording that reports can show.
    pub recording: Recording,
    /// All threads, the first one first.
    pub threads: Vec<ThreadState>,
    /// How long the process stood still.
    pub stopped: Duration,
    /// What is missing, and why, for people.
    pub notes: Vec<String>,
}

/// Takes the stacks of all threads of a process, which stands still for as short a time as its walks take. `namer`: the
/// command that names functions in a process of its own. `cache`: where rule tables are kept.
pub fn dump(pid: u32, plugins: &mut Plugins, cache: &Cache, namer: &[OsString]) -> Result<Dump, DumpError> {
    check(pid)?;
    let unreadable = |error| DumpError::Unreadable(pid, error);
    let (mut taken, mut objects, mut round) = (None, Objects::default(), 0);
    while taken.is_none() {
        objects = Objects::prepare(pid, &Memory::of(pid), cache, plugins).map_err(|error| refused(pid, error))?;
        round += 1;
        // A thread of its own: the kernel lets go what it could not stop in time when that thread ends.
        let (objects, plugins) = (&objects, &*plugins);
        let last = round == ROUNDS;
        let run = || std::thread::scope(|scope| scope.spawn(|| take(pid, objects, plugins, last)).join());
        taken = run()
            .map_err(|_| unreadable(io::Error::other("the walk has panicked")))?
            .map_err(|error| refused(pid, error))?;
    }
    let Some(Taken { mut recording, threads, stopped, mut notes }) = taken else {
        return Err(DumpError::NoProcess(pid));
    };
    recording.processes = vec![Process { pid, plugins: plugins.names.clone(), exe: exe(pid), ..Process::default() }];
    recording.settings = Settings { pid, command: command(pid), ..Settings::default() };
    recording.languages = plugins.languages();
    recording.objects = objects.recorded();
    let mut map = ObjectMap::new(&recording);
    let asked = questions(&recording, &mut map, &|object| objects.files_of(object.start));
    let (mut symbols, more) = naming::name(namer, &asked, |_| {});
    keep_those_in_stacks(&recording, &mut map, &mut symbols);
    recording.symbols = Some(symbols);
    notes.extend(more);
    let (lines, more) = lines::decode(&recording, plugins.analysers());
    recording.lines = lines;
    notes.extend(more);
    notes.extend(std::mem::take(&mut plugins.troubles));
    notes.extend(objects.troubles);
    Ok(Dump { recording, threads, stopped, notes })
}

/// What was read while the process stood still.
struct Taken {
    recording: Recording,
    threads: Vec<ThreadState>,
    stopped: Duration,
    notes: Vec<String>,
}

/// Stops the process and walks all of its threads. `None`: it has mapped other files meanwhile; with `last`, they are
/// left out.
fn take(pid: u32, objects: &Objects, plugins: &Plugins, last: bool) -> io::Result<Option<Taken>> {
    let memory = Memory::of(pid);
    threads::prefer_this_thread();
    let stopped = Stopped::all_of(pid)?;
    let mut notes = Vec::new();
    if !objects.are_current(pid) {
        if !last {
            return Ok(None);
        }
        notes.push("the process loads or unloads libraries all the time: some frames may have no owner".to_owned());
    }
    let all: Vec<(u32, Option<bool>, Option<Registers>)> =
        stopped.threads().map(|(tid, still)| (tid, still, still.and_then(|_| stopped.registers(tid)))).collect();
    let mut walks = Walks::new(objects, plugins, &memory, Names::default());
    let walked: Vec<_> = all.iter().map(|(_, _, registers)| registers.as_ref().map(|r| walks.walk(r))).collect();
    let stopped = stopped.let_go();

    let mut recording = Recording::default();
    let mut stacks = Stacks::default();
    let mut threads = Vec::new();
    for ((tid, before, registers), walked) in all.into_iter().zip(walked) {
        let name = waits::name(pid, tid);
        let doing = registers.as_ref().map(|registers| match before {
            Some(true) => Doing::Stopped,
            _ => doing(registers),
        });
        threads.push(ThreadState { tid, name: name.clone(), doing });
        let Some(walked) = walked else { continue };
        let (stack, _) = stacks.intern(&walked.words, |node| recording.nodes.push(node));
        let flags = if walked.desync { SAMPLE_DESYNC } else { 0 };
        let thread = recording.threads.len() as u32;
        recording.threads.push(Thread { process: 0, tid, name });
        let stop = walked.stop.number();
        recording.samples.push(Sample { thread, stack, time: 0, weight: 1, stop, kind: 1, flags });
    }
    recording.names = walks.into_names().names;
    let missed = threads.iter().filter(|thread| thread.doing.is_none()).count();
    if missed > 0 {
        notes.push(format!("{missed} threads could not be stopped in time, and have no stack here"));
    }
    Ok(Some(Taken { recording, threads, stopped, notes }))
}

/// Path of the program's file.
pub(crate) fn exe(pid: u32) -> Vec<u8> {
    fs::read_link(format!("/proc/{pid}/exe")).map(|path| path.as_os_str().as_bytes().to_vec()).unwrap_or_default()
}

/// The program and its arguments.
pub(crate) fn command(pid: u32) -> Vec<Vec<u8>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.strip_suffix(b"\0").unwrap_or(&line).split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}
