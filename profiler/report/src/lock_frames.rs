//! What was waited for, as frames: in a recording of waits for locks, the lock is the leaf of its waits, and who had it
//! the leaf below that. They stand where a picture of waiting threads has `[waiting in futex]`.

use crate::formats::printable;
use crate::stacks::{Entry, Kind, Line, Profile, Stack};
use std::collections::{HashMap, HashSet};
use uunwind_recording::{LockWait, Recording};

/// Locks that have their addresses, those with most waiting. A program may have had as many locks as it had threads,
/// and a box for each says nothing.
const LOCKS: usize = 30;

/// A lock of a process: the process, the address, and the kind of its waits.
type Lock = (u32, u64, u32);

/// The profile with what each wait was for. `told_apart`: also which lock of its kind, and who had it.
pub fn with_locks(recording: &Recording, profile: Profile, told_apart: bool) -> Profile {
    let waits: HashMap<u32, &LockWait> = recording.lock_waits.iter().map(|w| (w.sample as u32, w)).collect();
    let most = if told_apart { most_waited_for(recording, &profile, &waits) } else { HashSet::new() };
    let Profile { mut lines, stacks: before, mut entries, .. } = profile;
    let mut texts: HashMap<String, u32> = HashMap::new();
    let mut line = |text: String| {
        *texts.entry(text).or_insert_with_key(|text| {
            lines.push(Line { kind: Kind::Waiting, ..Line::marker(text.clone()) });
            lines.len() as u32 - 1
        })
    };
    let mut known: HashMap<(u32, [Option<u32>; 2]), u32> = HashMap::new();
    let mut stacks: Vec<Stack> = Vec::new();
    for entry in &mut entries {
        let Some(stack) = before.get(entry.stack as usize) else { continue };
        let process = process_of(recording, stack.thread);
        let frames = waits.get(&entry.sample).map_or([None; 2], |wait| {
            if !told_apart {
                let article = if wait.is_end_of_thread() { "the" } else { "a" };
                return [None, Some(line(format!("[waiting for {article} {}]", wait.what())))];
            }
            let has_address = most.contains(&(process, wait.lock, wait.kind));
            let holder =
                (wait.holder != 0).then(|| line(format!("[held by {}]", holder(recording, process, wait.holder))));
            [holder, Some(line(what(wait, has_address)))]
        });
        let next = stacks.len() as u32;
        let place = *known.entry((entry.stack, frames)).or_insert(next);
        if place == next {
            let with = frames.into_iter().flatten().chain(stack.lines.iter().copied()).collect();
            stacks.push(Stack { lines: with, samples: 0, weight: 0, ..stack.clone() });
        }
        *entry = Entry { stack: place, ..*entry };
        if let Some(stack) = stacks.get_mut(place as usize) {
            stack.samples += entry.samples();
            stack.weight = stack.weight.saturating_add(entry.weight);
        }
    }
    Profile { lines, stacks, entries, ..profile }
}

/// The locks with most waiting; ends of threads are none.
fn most_waited_for(recording: &Recording, profile: &Profile, waits: &HashMap<u32, &LockWait>) -> HashSet<Lock> {
    let mut locks: HashMap<Lock, u64> = HashMap::new();
    for entry in &profile.entries {
        let Some(wait) = waits.get(&entry.sample).filter(|wait| !wait.is_end_of_thread()) else { continue };
        let thread = profile.stacks.get(entry.stack as usize).map_or(0, |stack| stack.thread);
        let time = locks.entry((process_of(recording, thread), wait.lock, wait.kind)).or_default();
        *time = time.saturating_add(entry.weight);
    }
    let mut locks: Vec<(Lock, u64)> = locks.into_iter().collect();
    locks.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    locks.into_iter().take(LOCKS).map(|(lock, _)| lock).collect()
}

fn process_of(recording: &Recording, thread: u32) -> u32 {
    recording.threads.get(thread as usize).map_or(0, |thread| thread.process)
}

fn what(wait: &LockWait, has_address: bool) -> String {
    match (wait.is_end_of_thread(), has_address) {
        (true, _) => format!("[waiting for the {}]", wait.what()),
        (false, true) => format!("[waiting for {} {:#x}]", wait.what(), wait.lock),
        (false, false) => format!("[waiting for another {}]", wait.what()),
    }
}

/// A thread by its id in its process, as people know it.
pub fn holder(recording: &Recording, process: u32, tid: u32) -> String {
    let mut threads = recording.threads.iter().filter(|thread| thread.process == process && thread.tid == tid);
    let name = threads.find_map(|thread| Some(&thread.name).filter(|name| !name.is_empty()));
    match name {
        Some(name) => format!("{} (thread {tid})", printable(name)),
        None => format!("thread {tid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::folded;
    use uunwind_recording::Thread;

    /// A mutex with and without a holder, and the end of a thread.
    #[test]
    fn a_wait_ends_in_its_lock_and_who_has_it() {
        let line = |name: &str| Line { kind: Kind::Native, ..Line::marker(name.to_owned()) };
        let stack = Stack { thread: 0, lines: [0, 1].into(), labels: 0, samples: 4, weight: 11 };
        let entry = |(sample, weight)| Entry { time: 0, stack: 0, weight, sample };
        let entries = [(0, 5), (1, 3), (2, 2), (Entry::NONE, 1)].map(entry).to_vec();
        let lines = vec![line("work"), line("main")];
        let profile = Profile { lines, stacks: vec![stack], entries, ..Profile::default() };
        let thread = |tid, name: &str| Thread { tid, name: name.to_owned(), ..Thread::default() };
        let wait = |sample, kind, holder| LockWait { sample, lock: 0x1000, duration: 1, kind, holder };
        let recording = Recording {
            threads: vec![thread(7, "waits"), thread(8, "first")],
            lock_waits: vec![wait(0, 1, 8), wait(1, 1, 0), wait(2, 7, 0)],
            ..Recording::default()
        };
        let shown = with_locks(&recording, profile.clone(), true);
        assert_eq!(
            folded::render(&shown).lines().collect::<Vec<_>>(),
            [
                "main;work 1",
                "main;work;[waiting for mutex 0x1000] 3",
                "main;work;[waiting for mutex 0x1000];[held by first (thread 8)] 5",
                "main;work;[waiting for the end of a thread] 2",
            ]
        );
        assert!(shown.stacks.iter().filter(|stack| shown.waits(stack)).count() == 3);
        // Of many runs, what is the same in each.
        assert_eq!(
            folded::render(&with_locks(&recording, profile.clone(), false)).lines().collect::<Vec<_>>(),
            ["main;work 1", "main;work;[waiting for a mutex] 8", "main;work;[waiting for the end of a thread] 2",]
        );
        // Of very many locks, those with least waiting have no box of their own.
        let many = (0..40u32).map(|n| entry((n, 1 + u64::from(n)))).collect();
        let waits = (0..40).map(|n| LockWait { lock: 0x1000 + n as u64, ..wait(n, 5, 0) }).collect();
        let recording = Recording { lock_waits: waits, ..recording };
        let text = folded::render(&with_locks(&recording, Profile { entries: many, ..profile }, true));
        assert!(text.contains("main;work;[waiting for another semaphore] 55\n"), "{text}");
        assert_eq!(text.lines().count(), 31, "{text}");
    }
}
