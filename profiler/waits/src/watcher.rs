//! The threads of a recording that wait. Those that run take samples of themselves (`uu record`); these are looked at
//! from outside, on a thread of its own, which never holds up the recorder.
//!
//! What is due of a thread is the time in which it neither ran nor was ready to. It is taken to have passed where the
//! thread is found waiting next.

use crate::wait_intervals::{Single, Singles};
use crate::waiting::{is_blocked, Found, Tally, Waiting};
use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use uunwind_clock::channel::{channel, Receiver, Sender};
use uunwind_clock::Instant;
use uunwind_recorder::machine;
use uunwind_recorder::watch::{Seen, Watched};
use uunwind_recording::Object;
use uunwind_remote::clocks::{Clock, Ran};
use uunwind_remote::doing;
use uunwind_remote::memory::Memory;
use uunwind_remote::names::Names;
use uunwind_remote::objects::{code_of, Code, Objects};
use uunwind_remote::plugins::Plugins;
use uunwind_remote::registered::Losses;
use uunwind_remote::threads;
use uunwind_remote::walks::{Walked, Walks};
use uunwind_tables_build::Cache;

/// Looks take at most one of this many parts of a CPU.
const SHARE: u32 = 10;
/// A process that lives shorter is not examined: its waits are in no sample.
const YOUNG: Duration = Duration::from_millis(30);
/// The files of at most this number of threads' clocks are kept open.
const KEPT_OPEN: usize = 256;
/// Ids of names begin after this one: processes give those below it to names that their own walks describe.
const IDS: u32 = 1 << 31;

/// Watches the waiting threads of a recording.
pub struct Watcher {
    lists: Option<Sender<Vec<Watched>>>,
    seen: Receiver<Seen>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Begins with no thread. `rate`: samples a second. `open`: opens the plugins. `awaiting`: frames that await those
    /// of the stack are wanted.
    pub fn begin(
        rate: u32,
        awaiting: bool,
        open: impl FnOnce() -> Plugins + Send + 'static,
    ) -> std::io::Result<Watcher> {
        let ((lists, of_threads), (sender, seen)) = (channel(), channel());
        let period = 1_000_000_000 / u64::from(rate.max(1));
        let run = move || {
            let mut watch = Watch {
                period,
                awaiting,
                lists: of_threads,
                seen: sender,
                cache: Cache::of_user(),
                processes: BTreeMap::new(),
                tally: Tally::default(),
                left_out: 0,
                losses: Losses::default(),
                singles: Singles::default(),
            };
            watch.run(&mut open());
        };
        let thread = std::thread::Builder::new().name("uu-watch".to_owned()).spawn(run)?;
        Ok(Watcher { lists: Some(lists), seen, thread: Some(thread) })
    }
}

impl uunwind_recorder::watch::Watcher for Watcher {
    fn pass(&mut self, threads: Option<Vec<Watched>>) -> Vec<Seen> {
        if let (Some(lists), Some(threads)) = (&self.lists, threads) {
            // If the thread has panicked, nothing more is seen.
            let _ = lists.send(threads);
        }
        self.seen.try_iter().collect()
    }

    fn end(&mut self) -> Vec<Seen> {
        self.lists = None;
        let has_panicked = self.thread.take().is_some_and(|thread| thread.join().is_err());
        let note = "the thread that watches waiting threads has panicked: later waits are missing";
        let panicked = has_panicked.then(|| Seen::Note(note.to_owned()));
        self.seen.try_iter().chain(panicked).collect()
    }
}

/// A thread that is watched.
struct Thread {
    index: u32,
    clock: Clock,
    ran: Ran,
    /// When it was looked at (CLOCK_MONOTONIC, ns).
    looked: u64,
    /// Time of waiting that no sample stands for, in ns. Below zero: the kernel has reported another time late.
    due: i64,
    name: String,
    waiting: Waiting,
    /// Its single waits, where the kernel reports them.
    single: Option<Single>,
}

impl Thread {
    /// `None`: it is gone.
    fn of(Watched { thread: index, pid, tid, began, cpu, .. }: &Watched, keep: bool) -> Option<Thread> {
        let clock = Clock::of(*pid, *tid, keep).ok()?;
        let (now, looked) = (clock.ran()?, machine::monotonic());
        // What it has waited since it began is due, too. How long a thread that went through exec was ready before that
        // is not known.
        let is_new = tid != pid;
        let ran = match (*cpu, *began) {
            (0, _) | (_, 0) => now,
            (cpu, _) => Ran { cpu: cpu.min(now.cpu), queued: if is_new { 0 } else { now.queued }, ..now },
        };
        let looked = if ran == now { looked } else { looked.min(*began) };
        // As many files are kept open for them.
        let single = keep.then(|| Single::of(*tid)).flatten();
        let (name, waiting) = (String::new(), Waiting::default());
        Some(Thread { index: *index, clock, ran, looked, due: 0, name, waiting, single })
    }

    /// Takes a sample for what is due.
    fn take_due(&mut self, period: u64) -> u32 {
        let due = u64::try_from(self.due).unwrap_or(0);
        self.due = (due % period) as i64;
        u32::try_from(due / period).unwrap_or(u32::MAX)
    }
}

/// A process image with threads that are watched.
struct Process {
    pid: u32,
    since: Instant,
    /// What it has mapped, once it was examined, and its code by then.
    objects: Option<Objects>,
    code: Code,
    /// It could not be examined.
    refused: bool,
    names: Names,
    names_written: usize,
    threads: BTreeMap<u32, Thread>,
}

/// Why looking has paused or ended.
enum Pause {
    /// This process is to be examined.
    Examine(u32),
    /// A thread did not stop in time.
    LetGo,
    /// The recording is over.
    Over,
}

struct Watch {
    period: u64,
    awaiting: bool,
    lists: Receiver<Vec<Watched>>,
    seen: Sender<Seen>,
    cache: Cache,
    /// By their indices in the recording.
    processes: BTreeMap<u32, Process>,
    tally: Tally,
    left_out: u64,
    losses: Losses,
    singles: Singles,
}

impl Watch {
    fn run(&mut self, plugins: &mut Plugins) {
        loop {
            // A thread of its own: the kernel lets go what it could not stop in time when that thread ends.
            let (looks, with) = (&mut *self, &*plugins);
            let pause = std::thread::scope(|scope| scope.spawn(|| looks.looks(with)).join());
            match pause {
                Ok(Pause::Examine(process)) => self.examine(process, plugins),
                Ok(Pause::LetGo) => {}
                Ok(Pause::Over) => break,
                Err(_) => {
                    self.send(Seen::Note(
                        "the walk of a waiting thread has panicked: later waits are missing".to_owned(),
                    ));
                    break;
                }
            }
        }
        let threads: Vec<Thread> =
            self.processes.values_mut().flat_map(|p| std::mem::take(&mut p.threads).into_values()).collect();
        threads.into_iter().for_each(|thread| self.end_of(thread));
        self.send(Seen::Note(self.tally.note()));
        if self.left_out > 0 {
            let text = format!("{} waits were left out, because the process unloaded code meanwhile", self.left_out);
            self.send(Seen::Note(text));
        }
        self.losses.notes().into_iter().for_each(|note| self.send(Seen::Note(note)));
        self.singles.note().into_iter().for_each(|note| self.send(Seen::Note(note)));
        let troubles = plugins.take_troubles();
        troubles.into_iter().for_each(|trouble| self.send(Seen::Note(trouble)));
    }

    fn send(&self, seen: Seen) {
        // The recorder goes away after this thread.
        let _ = self.seen.send(seen);
    }

    /// The thread is watched no longer.
    fn end_of(&mut self, thread: Thread) {
        self.singles.end(thread.single, thread.index);
        self.send_waits();
    }

    fn send_waits(&mut self) {
        let waits = self.singles.taken();
        if !waits.is_empty() {
            self.send(Seen::Waits(waits));
        }
    }

    fn looks(&mut self, plugins: &Plugins) -> Pause {
        threads::prefer_this_thread();
        // The thread that has asked others to stop has ended, and the kernel has let them go.
        let (now, threads) = (machine::monotonic(), self.processes.values_mut().flat_map(|of| of.threads.values_mut()));
        threads.filter_map(|thread| thread.single.as_mut()).for_each(|single| single.seen_from(now));
        let period = Duration::from_nanos(self.period);
        let mut next = Instant::now();
        loop {
            match self.lists.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(list) => {
                    self.take(&list);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.look(plugins);
                    return Pause::Over;
                }
            }
            // Of this thread's own time: what is stopped may have to wait for a CPU.
            let (begun, cpu) = (Instant::now(), machine::own_thread_cpu());
            let pause = self.look(plugins);
            let threads = self.processes.values_mut().flat_map(|process| process.threads.values_mut());
            threads.for_each(|thread| self.singles.take(thread.single.as_mut(), thread.index));
            self.send_waits();
            let used = Duration::from_nanos(machine::own_thread_cpu().saturating_sub(cpu));
            next = begun + period.max(used * SHARE);
            if let Some(pause) = pause {
                return pause;
            }
        }
    }

    /// From now on, these threads are watched.
    fn take(&mut self, list: &[Watched]) {
        let mut before = std::mem::take(&mut self.processes);
        let threads = before.values_mut().flat_map(|process| std::mem::take(&mut process.threads).into_values());
        let mut threads: HashMap<u32, Thread> = threads.map(|thread| (thread.index, thread)).collect();
        for (count, watched) in list.iter().enumerate() {
            let Watched { thread: index, process, pid, tid, .. } = watched;
            let known = || before.remove(process).unwrap_or_else(|| Process::of(*pid));
            let process = self.processes.entry(*process).or_insert_with(known);
            let thread = threads.remove(index).or_else(|| Thread::of(watched, count < KEPT_OPEN));
            process.threads.extend(thread.map(|thread| (*tid, thread)));
        }
        threads.into_values().for_each(|thread| self.end_of(thread));
    }

    /// Looks at every thread.
    fn look(&mut self, plugins: &Plugins) -> Option<Pause> {
        let mut pause = None;
        for (index, process) in &mut self.processes {
            let mut found = Vec::new();
            let new = process.count(self.period, &mut found);
            let known = found.len();
            if !new.is_empty() && !process.refused {
                match process.walk(&new, plugins, self.awaiting, (&mut self.tally, &mut self.losses), &mut found) {
                    Looked::Whole => {}
                    Looked::Unprepared if process.since.elapsed() < YOUNG => {}
                    Looked::Unprepared => pause = Some(Pause::Examine(*index)),
                    Looked::NotInTime => pause = Some(Pause::LetGo),
                }
            }
            // What was walked now is right only if its code is still mapped.
            if found.len() > known && !process.code.is_subset(&code_of(process.pid)) {
                self.left_out += (found.len() - known) as u64;
                found.truncate(known);
                process.threads.values_mut().for_each(|thread| thread.waiting.forget());
                process.objects = None;
            }
            for mut name in process.names.names.iter().skip(process.names_written).cloned() {
                name.process = *index;
                let _ = self.seen.send(Seen::Name(name));
            }
            process.names_written = process.names.names.len();
            for (tid, ..) in found.iter().skip(known) {
                let name = doing::name(process.pid, *tid);
                let Some(thread) = process.threads.get_mut(tid).filter(|thread| thread.name != name) else { continue };
                let _ = self.seen.send(Seen::ThreadName(thread.index, name.clone()));
                thread.name = name;
            }
            for (tid, walked, time) in found {
                let Some(thread) = process.threads.get_mut(&tid) else { continue };
                let weight = thread.take_due(self.period);
                let (words, stop, flags) = (walked.words.clone().into(), walked.stop.number(), walked.flags());
                let thread = thread.index;
                let _ = self.seen.send(Seen::Sample { thread, time, weight, words, stop, flags });
            }
            if pause.is_some() {
                return pause;
            }
        }
        None
    }

    /// Opens the files of a process, and builds their rule tables.
    fn examine(&mut self, index: u32, plugins: &mut Plugins) {
        let Some(process) = self.processes.get_mut(&index) else { return };
        // Before: what is mapped meanwhile is seen by the next check.
        process.code = code_of(process.pid);
        match Objects::prepare(process.pid, &Memory::of(process.pid), &self.cache, plugins) {
            Ok(objects) => {
                let time = machine::monotonic();
                for object in objects.recorded() {
                    let _ = self.seen.send(Seen::Object(Object { process: index, time, ..object }));
                }
                process.objects = Some(objects);
            }
            Err(_) if process.code.is_empty() => process.refused = true,
            Err(error) => {
                process.refused = true;
                let note = format!("the waits of process {} could not be looked at: {error}", process.pid);
                self.send(Seen::Note(note));
            }
        }
    }
}

/// A thread that was found waiting, its stack, and a time in that wait (CLOCK_MONOTONIC, ns).
type InWait = (u32, Arc<Walked>, u64);

/// How the walks of a process's threads ended.
enum Looked {
    Whole,
    /// It must be examined before.
    Unprepared,
    /// A thread did not stop in time.
    NotInTime,
}

impl Process {
    fn of(pid: u32) -> Process {
        Process {
            pid,
            since: Instant::now(),
            objects: None,
            code: Code::default(),
            refused: false,
            names: Names::after(IDS),
            names_written: 0,
            threads: BTreeMap::new(),
        }
    }

    /// Reads the clocks of all threads. Those for which a sample is due: in `found` if they are in the same wait as
    /// before, else returned, if they wait.
    fn count(&mut self, period: u64, found: &mut Vec<InWait>) -> Vec<u32> {
        let mut new = Vec::new();
        for (tid, thread) in &mut self.threads {
            // Before its clock is read: if that shows that it has not run, it waits now.
            let now = machine::monotonic();
            let Some(ran) = thread.clock.ran() else { continue };
            let used = ran.cpu.saturating_sub(thread.ran.cpu) + ran.queued.saturating_sub(thread.ran.queued);
            thread.due += now.saturating_sub(thread.looked) as i64 - used as i64;
            (thread.ran, thread.looked) = (ran, now);
            if thread.due < period as i64 {
                continue;
            }
            match thread.waiting.still(ran) {
                Some(walked) => found.push((*tid, walked.clone(), now)),
                None if is_blocked(self.pid, *tid) => new.push(*tid),
                None => {}
            }
        }
        new
    }

    fn walk(
        &mut self,
        tids: &[u32],
        plugins: &Plugins,
        awaiting: bool,
        (tally, losses): (&mut Tally, &mut Losses),
        found: &mut Vec<InWait>,
    ) -> Looked {
        let Some(objects) = &self.objects else { return Looked::Unprepared };
        let (pid, code) = (self.pid, &self.code);
        let memory = Memory::of(pid);
        let mut walks = Walks::new(objects, plugins, &memory, std::mem::take(&mut self.names));
        walks.want_awaiting(awaiting);
        walks.keep_reads();
        let mut looked = Looked::Whole;
        let mut is_current = || code_of(pid) == *code;
        for tid in tids {
            let Some(thread) = self.threads.get_mut(tid) else { continue };
            let walks = (&mut walks, &memory);
            let found_now = thread.waiting.look((pid, *tid), &thread.clock, walks, &mut is_current, tally);
            if let (Some(single), Some(stop)) = (&mut thread.single, thread.waiting.last_stop.take()) {
                single.stopped(stop);
            }
            match found_now {
                Found::Waits(walked, time) => found.push((*tid, walked, time)),
                Found::Runs | Found::Missed | Found::Gone => {}
                Found::OtherCode => {
                    looked = Looked::Unprepared;
                    break;
                }
                Found::NotInTime => {
                    thread.single.iter_mut().for_each(Single::not_stopped);
                    looked = Looked::NotInTime;
                    break;
                }
            }
        }
        losses.add(walks.losses());
        self.names = walks.into_names();
        looked
    }
}
