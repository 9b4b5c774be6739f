//! The stacks of all threads of a process, now, or as a core file has them.

use crate::core_file::notes::Signal;
use crate::core_file::{objects as core_objects, search::Search, CoreError, CoreFile};
use crate::holders::{Look, WaitsFor};
use crate::language_names::LanguageNames;
use crate::memory::{Backing, Memory};
use crate::names::Names;
use crate::objects::Objects;
use crate::plugins::Plugins;
use crate::refusal::{check, refused, DumpError};
use crate::take;
use crate::waits::{doing, Doing, Registers};
use crate::walks::{Walked, Walks};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
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
/// Longest time for the walks of a core file's threads: a crafted one may have very many, each as deep as can be.
const WALKS: Duration = Duration::from_secs(60);

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
        let run = || std::thread::scope(|scope| scope.spawn(|| take::take(pid, objects, plugins, last)).join());
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

/// The stacks of all threads of a core file's process. `search` finds the files that it had mapped; the rest as for
/// [`dump`]; without a namer, no function has a name.
pub fn dump_core(
    core: &Arc<CoreFile>,
    search: &Search,
    plugins: &mut Plugins,
    cache: &Cache,
    namer: Option<&[OsString]>,
) -> Result<Dump, DumpError> {
    let (objects, backings) = core_objects::prepare(core, search, cache, plugins);
    let notes = &core.notes;
    let signal = notes.signal;
    let mut looked: Vec<ThreadState> = notes
        .threads
        .iter()
        .enumerate()
        .map(|(index, thread)| ThreadState {
            tid: thread.tid,
            name: if thread.tid == notes.pid {
                String::from_utf8_lossy(&notes.name).into_owned()
            } else {
                String::new()
            },
            doing: Some(match signal {
                // The kernel writes the same signal into all threads' notes: the first is the one that it has killed.
                Some(signal) if index == 0 => Doing::Signal(signal.number),
                _ => doing(&thread.registers),
            }),
            registers: Some(thread.registers),
            waits_for: None,
        })
        .collect();
    let mut jit = Jit::default();
    jit.dead(0, core.as_ref(), objects.places().filter_map(|(places, bias)| places.gdb_at(bias)));
    let (mapped, open) = (&objects, &*plugins);
    let walks = || walk_core(core, &looked, mapped, open, backings);
    // A panic over a crafted file ends its walks only.
    let WalkedCore { walked, names, called, look, notes: more } = std::thread::scope(|scope| scope.spawn(walks).join())
        .map_err(|_| CoreError::Unreadable(core.path().into(), io::Error::other("the walk has panicked")))?;
    let word_at = |address, word: &mut [u8]| core.memory(address, word) == word.len();
    let blocks = notes.threads.iter().map(|thread| (thread.tid, thread.registers.fs_base));
    let is_needed = !called.is_empty() || look.needs_ids();
    let place = is_needed.then(|| place_of_ids(blocks, word_at)).flatten();
    let is_own = |tid: u32, thread_pointer: u64| {
        let mut word = [0; 4];
        let is_read = place.is_some_and(|place| word_at(thread_pointer.wrapping_add(place), &mut word));
        is_read && u32::from_le_bytes(word) == tid
    };
    let mut foreign = 0;
    for (thread, registers) in looked.iter_mut().zip(notes.threads.iter().map(|thread| &thread.registers)) {
        if called.is_empty() {
            break;
        }
        if is_own(thread.tid, registers.fs_base) {
            thread.name = called.get(&thread.tid).unwrap_or(&thread.name).clone();
        } else {
            foreign += 1;
        }
    }
    let own = notes.threads.iter().filter(|thread| is_own(thread.tid, thread.registers.fs_base));
    let own = own.map(|thread| (thread.tid, thread.tid)).collect();
    let mut taken = record(looked, walked, names, 0);
    (taken.look, taken.own) = (look, own);
    if foreign > 0 {
        taken.notes.push(format!(
            "{foreign} threads have no names of their language: the core file has other ids for them than the program \
             itself, which ran in another pid namespace than the one who wrote it"
        ));
    }
    taken.signal = signal;
    taken.notes.extend(more);
    taken.notes.extend(core.troubles.iter().map(|trouble| format!("{}: {trouble}", core.path().display())));
    let program = notes.files.iter().find(|file| (file.start..file.end).contains(&notes.entry));
    let exe = program.map(|file| file.name.clone()).unwrap_or_default();
    let process = Process { pid: notes.pid, plugins: plugins.names.clone(), exe, ..Process::default() };
    let command = notes.command.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect();
    Ok(finish(taken, process, command, objects, plugins, (namer, Some(&jit)), &search.folders))
}

/// Where libc keeps a thread's id, from the thread pointer on: the word that is the id of most of these threads (their
/// ids and thread pointers). The kernel writes there the id that a thread has in its own pid namespace; gdb writes
/// those of its own namespace into core files. `None`: no thread has its id there, so the ids are other ones.
fn place_of_ids(threads: impl Iterator<Item = (u32, u64)>, read: impl Fn(u64, &mut [u8]) -> bool) -> Option<u64> {
    /// After the words that each thread pointer begins with, and as far as libc's structure reaches.
    const PLACES: std::ops::Range<usize> = 0x10..0x800;
    /// That is as sure as if there were more of them.
    const THREADS: usize = 256;
    let mut found = vec![0u32; PLACES.end / 4];
    for (tid, thread_pointer) in threads.take(THREADS) {
        let mut block = vec![0; PLACES.end];
        // One that is cut begins on a page that is there.
        let len = [PLACES.end, 0x400]
            .into_iter()
            .find(|len| block.get_mut(..*len).is_some_and(|part| read(thread_pointer, part)));
        let words = block.chunks_exact(4).take(len.unwrap_or(0) / 4).enumerate().skip(PLACES.start / 4);
        let own = words.filter(|(_, word)| **word == tid.to_le_bytes());
        for (index, _) in own.collect::<Vec<_>>() {
            found.iter_mut().skip(index).take(1).for_each(|count| *count += 1);
        }
    }
    let most = found.iter().copied().max().filter(|most| *most > 0)?;
    found.iter().position(|count| *count == most).map(|index| index as u64 * 4)
}

/// What the walks of a core file's threads found.
struct WalkedCore {
    /// Each thread's stack, but for those that there was no time for.
    walked: Vec<Option<Walked>>,
    /// The names of code objects that they met.
    names: Vec<Name>,
    /// What languages call the threads, by their ids.
    called: HashMap<u32, String>,
    /// What they wait for.
    look: Look,
    /// What is missing, for people.
    notes: Vec<String>,
}

fn walk_core(
    core: &Arc<CoreFile>,
    threads: &[ThreadState],
    objects: &Objects,
    plugins: &Plugins,
    backings: Vec<Backing>,
) -> WalkedCore {
    let memory = Memory::of_core(core, backings);
    let mut walks = Walks::new(objects, plugins, &memory, Names::default());
    let registers = threads.iter().map(|thread| thread.registers.as_ref());
    let (walked, late) = within(WALKS, registers, |registers| walks.walk(registers));
    let mut looks = LanguageNames::default();
    memory.forget();
    let look = Look::at(threads.iter().map(|thread| thread.registers.as_ref()), (objects, plugins), &memory);
    let called = walks.thread_names(&mut looks);
    let notes = walks.notes().into_iter().chain(looks.note()).chain(late).collect();
    WalkedCore { walked, names: walks.into_names().names, called, look, notes }
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
fn finish(
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
    recording: Recording,
    /// What they were doing.
    pub threads: Vec<ThreadState>,
    /// How long it stood.
    pub stopped: Option<Duration>,
    signal: Option<Signal>,
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

    #[test]
    fn threads_own_ids_are_where_libc_keeps_them() {
        // glibc's place, musl's, and one of neither; the first thread's id also stands elsewhere.
        for place in [0x2d0, 0x30, 0x48] {
            let read = |address: u64, block: &mut [u8]| {
                for (at, word) in (address & 0xfff..).step_by(4).zip(block.chunks_exact_mut(4)) {
                    let is_id = at == place || address < 0x2000 && at == 0x20;
                    let id = 70 + (address >> 12) as u32;
                    word.copy_from_slice(&if is_id { id } else { 5 }.to_le_bytes());
                }
                address < 0x5000
            };
            let ids = |first: u32| (1..4).map(move |number| (first + number, u64::from(number) << 12));
            assert_eq!((place_of_ids(ids(70), read), place_of_ids(ids(700), read)), (Some(place), None));
        }
        assert_eq!(place_of_ids([(5, 0x6000)].into_iter(), |_, _| false), None);
    }

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
