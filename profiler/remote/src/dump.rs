//! The stacks of all threads of a process as it is now, as a recording.

use crate::doing::{Doing, Signal};
use crate::holders::{Look, WaitsFor};
use crate::memory::Memory;
use crate::objects::Objects;
use crate::plugins::Plugins;
use crate::refusal::{check, refused, DumpError};
use crate::registers::Registers;
use crate::stop_and_walk;
use crate::walks::Walked;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::process;
use uunwind_recorder::found_names::Unnamed;
use uunwind_recorder::jit::Jit;
use uunwind_recorder::stacks::Stacks;
use uunwind_recorder::{lines, machine};
use uunwind_recording::{Name, Process, Recording, Sample, Settings, Thread};
use uunwind_tables_build::Cache;

/// At most this number of times the files are looked at again, because the process has mapped others meanwhile.
const ROUNDS: usize = 3;

/// What a thread was doing.
#[derive(Clone, Debug)]
pub struct ThreadState {
    /// Its id, in this process's namespace; in a core file, in its own.
    pub tid: u32,
    /// Its name; empty: not known.
    pub name: String,
    /// What it was doing; `None`: it could not be stopped, so it has no stack here.
    pub doing: Option<Doing>,
    /// Its registers, where it has a stack.
    pub registers: Option<Registers>,
    /// What it waits for and which thread has that, where both are proved.
    pub waits_for: Option<WaitsFor>,
}

/// The stacks of all threads, and how they were taken.
pub struct Dump {
    /// One sample for each thread with a stack, in the order of `threads`, as a recording that reports can show.
    pub recording: Recording,
    /// All threads, the first one first.
    pub threads: Vec<ThreadState>,
    /// How long the process stood still; `None`: it is a core file's.
    pub stopped: Option<Duration>,
    /// The signal for which the core file was written.
    pub signal: Option<Signal>,
    /// Paths of the objects that are runtimes of languages.
    pub runtimes: HashSet<Vec<u8>>,
    /// What is missing, and why, for people.
    pub notes: Vec<String>,
}

/// Takes the stacks of all threads of a process, which stands still for as short a time as its walks take. `namer`: the
/// command that names functions in a process of its own. `cache`: where rule tables are kept.
pub fn dump(pid: u32, plugins: &mut Plugins, cache: &Cache, namer: &[OsString]) -> Result<Dump, DumpError> {
    check(pid)?;
    let unreadable = |error| DumpError::Unreadable(pid, error);
    let (mut taken, mut objects, mut jit, mut round) = (None, Objects::default(), Jit::default(), 0);
    while taken.is_none() {
        objects = Objects::prepare(pid, &Memory::of(pid), cache, plugins).map_err(|error| refused(pid, error))?;
        // Before the process stands still: what is reported by then holds for its stacks.
        jit = reported(pid, &objects);
        round += 1;
        // A thread of its own: the kernel lets go what it could not stop in time when that thread ends.
        let (objects, plugins) = (&objects, &*plugins);
        let last = round == ROUNDS;
        let run =
            || std::thread::scope(|scope| scope.spawn(|| stop_and_walk::take(pid, objects, plugins, last)).join());
        taken = run()
            .map_err(|_| unreadable(io::Error::other("the walk has panicked")))?
            .map_err(|error| refused(pid, error))?;
    }
    let Some(mut taken) = taken else { return Err(DumpError::NoProcess(pid)) };
    taken.recording.second_mappings = jit.take_second_mappings();
    let process = Process { pid, plugins: plugins.names.clone(), exe: exe(pid), ..Process::default() };
    let mut dump = finish(taken, process, command(pid), objects, plugins, (Some(namer), Some(&jit)), &[]);
    dump.notes.extend(jit.take_notes());
    Ok(dump)
}

/// What JITs of a process have reported by now of the code that they have made.
fn reported(pid: u32, objects: &Objects) -> Jit {
    let mut jit = Jit::default();
    jit.process(0, pid, machine::start_of(pid), None);
    for object in objects.recorded() {
        jit.object(0, &object, || objects.files_of(object.start));
    }
    jit.search(0);
    // The rest of the files, for which there is no second look.
    jit.finish(0);
    jit
}

/// Walks one thread after the other, as long as there is time to begin. `threads`: those that can be walked have
/// something. Also says how many there was no time for.
pub fn within<T, W>(
    limit: Duration,
    threads: impl Iterator<Item = Option<T>>,
    mut walk: impl FnMut(T) -> W,
) -> (Vec<Option<W>>, Option<String>) {
    let (begun, mut late) = (Instant::now(), 0);
    let mut one = |thread| {
        let is_over = begun.elapsed() >= limit;
        late += usize::from(is_over);
        (!is_over).then(|| walk(thread))
    };
    let walked = threads.map(|thread| thread.and_then(&mut one)).collect();
    let note = format!("{late} threads have no stack: the walks of the others took {limit:?}");
    (walked, (late > 0).then_some(note))
}

/// Names the functions and lines. `folders`: where separate debug information may lie, besides the system's folder.
pub fn finish(
    taken: Taken,
    process: Process,
    command: Vec<Vec<u8>>,
    objects: Objects,
    plugins: &mut Plugins,
    (namer, jit): (Option<&[OsString]>, Option<&Jit>),
    folders: &[PathBuf],
) -> Dump {
    let Taken { mut recording, mut threads, stopped, signal, look, own, mut notes } = taken;
    recording.settings = Settings { pid: process.pid, command, ..Settings::default() };
    recording.processes = vec![process];
    recording.languages = plugins.languages();
    recording.objects = objects.recorded();
    if let Some(namer) = namer {
        let unnamed = Unnamed::of(&recording, &|object| objects.files_of(object.start), jit);
        let names = unnamed.in_folders(folders).name(&recording, namer, |_| {});
        notes.extend(names.symbols.unusable.iter().filter_map(|(object, why)| {
            let path = &recording.objects.get(*object as usize)?.path;
            Some(format!("{}: {why}", String::from_utf8_lossy(path)))
        }));
        (recording.symbols, recording.jit) = (Some(names.symbols), names.jit);
        notes.extend(names.notes);
    }
    // By the functions' names.
    let waits = look.find(&recording, &threads, &own);
    threads.iter_mut().zip(waits).for_each(|(thread, waits)| thread.waits_for = waits);
    let (lines, more) = lines::decode(&recording, plugins.analysers());
    recording.lines = lines;
    notes.extend(more);
    notes.extend(plugins.take_troubles());
    let runtimes = objects.objects.iter().filter(|object| object.facts().is_some());
    let runtimes = runtimes.map(|object| object.path.clone()).collect();
    notes.extend(objects.troubles);
    Dump { recording, threads, stopped, signal, runtimes, notes }
}

/// What was read while the process stood still.
pub struct Taken {
    /// The stacks, without names.
    pub recording: Recording,
    /// What they were doing.
    pub threads: Vec<ThreadState>,
    /// How long it stood.
    pub stopped: Option<Duration>,
    /// The signal for which it was written, if it is a core file.
    pub signal: Option<Signal>,
    /// What they wait for.
    pub look: Look,
    /// A thread's id in its own pid namespace -> its id here; only those that were found out.
    pub own: HashMap<u32, u32>,
    /// What is missing, for people.
    pub notes: Vec<String>,
}

/// Puts the walks of threads into a recording; they were made at this `time`, in ns of CLOCK_MONOTONIC.
pub fn record(looked: Vec<ThreadState>, walked: Vec<Option<Walked>>, names: Vec<Name>, time: u64) -> Taken {
    let mut recording = Recording { names, ..Recording::default() };
    let mut stacks = Stacks::default();
    for (thread, walked) in looked.iter().zip(walked) {
        let Some(walked) = walked else { continue };
        let (stack, _) = stacks.intern(&walked.words, |node| recording.nodes.push(node));
        let flags = walked.flags();
        let index = recording.threads.len() as u32;
        recording.threads.push(Thread { process: 0, tid: thread.tid, name: thread.name.clone() });
        let stop = walked.stop.number();
        recording.samples.push(Sample { thread: index, stack, time, weight: 1, stop, kind: 1, flags });
    }
    let (look, own) = (Look::default(), HashMap::new());
    Taken { recording, threads: looked, stopped: None, signal: None, look, own, notes: Vec::new() }
}

/// Path of the program's file.
pub fn exe(pid: u32) -> Vec<u8> {
    fs::read_link(process::file(pid, "exe")).map(|path| path.as_os_str().as_bytes().to_vec()).unwrap_or_default()
}

/// The program and its arguments.
pub fn command(pid: u32) -> Vec<Vec<u8>> {
    let line = fs::read(process::file(pid, "cmdline")).unwrap_or_default();
    Process::words(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once the time is over, no more threads are walked, and those that could have been are counted.
    #[test]
    fn walks_of_all_threads_together_have_a_limit() {
        let threads = [Some(1), None, Some(3)];
        let (walked, note) = within(Duration::from_secs(3600), threads.into_iter(), |thread| 2 * thread);
        assert_eq!((walked, note), (vec![Some(2), None, Some(6)], None));
        let (walked, note) = within(Duration::ZERO, threads.into_iter(), |thread| thread);
        assert_eq!(walked, [None; 3]);
        assert!(note.is_some_and(|note| note.starts_with("2 threads have no stack")));
    }
}
