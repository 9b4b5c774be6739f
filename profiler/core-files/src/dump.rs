//! The stacks of all threads as a core file has them, as a recording.

use crate::memory::{of_core, Backing};
use crate::objects;
use crate::search::Search;
use crate::{CoreError, CoreFile};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use uunwind_recorder::jit::Jit;
use uunwind_recording::{Name, Process};
use uunwind_remote::doing::{doing, Doing};
use uunwind_remote::dump::{finish, record, within, Dump, ThreadState};
use uunwind_remote::holders::Look;
use uunwind_remote::language_names::LanguageNames;
use uunwind_remote::names::Names;
use uunwind_remote::objects::Objects;
use uunwind_remote::plugins::Plugins;
use uunwind_remote::registers::thread_pointer;
use uunwind_remote::walks::{Walked, Walks};
use uunwind_tables_build::Cache;

/// Longest time for the walks of a core file's threads: a crafted one may have very many, each as deep as can be.
const WALKS: Duration = Duration::from_secs(60);

/// The stacks of all threads of a core file's process. `search` finds the files that it had mapped; the rest as for
/// [`uunwind_remote::dump()`]; without a namer, no function has a name.
pub fn dump_core(
    core: &Arc<CoreFile>,
    search: &Search,
    plugins: &mut Plugins,
    cache: &Cache,
    namer: Option<&[OsString]>,
) -> Result<Dump, CoreError> {
    let (objects, backings) = objects::prepare(core, search, cache, plugins);
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
    let blocks = notes.threads.iter().map(|thread| (thread.tid, thread_pointer(&thread.registers)));
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
        if is_own(thread.tid, thread_pointer(registers)) {
            thread.name = called.get(&thread.tid).unwrap_or(&thread.name).clone();
        } else {
            foreign += 1;
        }
    }
    let own = notes.threads.iter().filter(|thread| is_own(thread.tid, thread_pointer(&thread.registers)));
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
    let memory = of_core(core, backings);
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
}
