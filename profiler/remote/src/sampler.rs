//! Samples of the threads of a running process, by short stops of one thread at a time.
//!
//! A thread is due for a sample when it has used another period of CPU time, and is stopped only if it is found running
//! then: threads that wait are not touched, and no system call is interrupted. What it used while it was not found
//! running counts for the next sample of it.
//!
//! Where waits are wanted, a thread is due when another period of time has passed, and its sample shows what it is
//! found doing then: it waits (`waiting`), or runs, and is stopped as above.

use crate::clocks::{is_running, Clock, Clockless};
use crate::followed::Known;
use crate::language_names::LanguageNames;
use crate::memory::Memory;
use crate::names::Names;
use crate::objects::{code_of, Code, Objects};
use crate::plugins::Plugins;
use crate::single::{Single, Singles};
use crate::target::{is_ready, Pending, Target, Watched};
use crate::threads::{self, children, tids, Stopped};
use crate::waiting::{self, Found, Stop, Waiting, PATIENCE};
use crate::waits::{self, doing, Doing};
use crate::walks::Walks;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uunwind_recorder::child::interrupted;
use uunwind_recorder::machine::{self, Stat};
use uunwind_recorder::snapshot::Snapshots;
use uunwind_recorder::stacks::Stacks;
use uunwind_recorder::thread_names::LOOKS;
use uunwind_recording::{EndCause, Sample, Thread, Writer};
use uunwind_ring::record::SampleKind;

/// A thread that did not stop in time is not asked again for so long: the others would wait for it.
const AGAIN: Duration = Duration::from_secs(20);
/// Longest wait before it is seen that uu is to end.
const SLICE: Duration = Duration::from_millis(100);
/// Looks take at most one of this many parts of the time; so do checks of what is mapped.
const SHARE: u32 = 10;
/// The files of at most this number of threads' clocks are kept open.
const KEPT_OPEN: usize = 256;
/// The same in this number of processes at most.
const KEPT_OPEN_OF: usize = 8;
/// Time between two looks for children.
const SEARCH: Duration = Duration::from_millis(4);
/// At most this number of processes is sampled at a time.
pub const CHILDREN: usize = 64 * 1024;
/// At most this number of notes on code that is registered at run time is kept.
const NOTES: usize = 4;

/// Why sampling has paused or ended.
pub enum Pause {
    /// The recording is over.
    Over(EndCause),
    /// A snapshot is due, or one was made.
    Snapshot,
    /// The process with this place among the others has mapped other code than it had when it was prepared.
    OtherCode(usize),
    /// Children were found.
    Children(Vec<u32>),
    /// A thread did not stop in time: it is let go when the calling thread ends.
    LetGo,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Looks at the process's threads.
    pub looks: u64,
    /// Stops of a thread.
    pub stops: u64,
    /// How long threads stood still, in all.
    pub stopped: Duration,
    /// The longest stop.
    pub longest: Duration,
    /// Samples that were written.
    pub samples: u64,
    /// Samples that were left out, because the code they lie in may have been replaced.
    pub left_out: u64,
    /// Threads that could not be stopped in time, or at all.
    pub unstopped: u64,
    /// CPU time that threads used while the files of other code were examined, in ns.
    pub meanwhile: u64,
}

/// How a look ended.
enum Looked {
    Whole,
    /// The process has mapped other code.
    OtherCode,
    /// A thread did not stop in time.
    LetGo,
}

/// The sampling of some processes.
pub struct Sampler {
    /// Those that live, in the order in which they were found.
    pub targets: Vec<Target>,
    /// Children of the processes are wanted, too.
    pub with_children: bool,
    /// CPU time for which a sample stands, in ns; if waits are wanted, time.
    pub period: u64,
    /// Threads that wait are sampled, too.
    pub wall: bool,
    /// What was counted of waits.
    pub waits: waiting::Tally,
    /// Their lengths.
    pub singles: Singles,
    /// Time of threads that no sample stands for, because they were not seen again, in ns.
    pub unseen: u64,
    /// What the recording has so far, as files of their own.
    pub snapshots: Snapshots,
    /// When the recording ends by itself.
    pub until: Option<Instant>,
    /// Frames that await those of the stack are wanted.
    pub awaiting: bool,
    /// The recording.
    pub writer: Writer<File>,
    /// What was counted.
    pub tally: Tally,
    /// What could not be read of code that is registered at run time, for people.
    pub notes: Vec<String>,
    /// When children are looked for again.
    search: Instant,
    /// Children that were found.
    known: Known,
    /// Children for which there was no room.
    pub beyond: u64,
    /// The clocks of at most this number of threads are kept open.
    pub open_files: usize,
    /// Threads that cannot be sampled.
    pub clockless: Clockless,
    /// CPU time of the looking thread for threads' names, in ns.
    naming: u64,
    thread_count: u32,
    stacks: Stacks,
}

impl Sampler {
    /// A sampler without processes.
    pub fn new(period: u64, wall: bool, writer: Writer<File>) -> Sampler {
        Sampler {
            targets: Vec::new(),
            with_children: false,
            period,
            wall,
            waits: waiting::Tally::default(),
            singles: Singles::default(),
            unseen: 0,
            snapshots: Snapshots::default(),
            until: None,
            awaiting: false,
            writer,
            tally: Tally::default(),
            notes: Vec::new(),
            search: Instant::now(),
            known: Known::new(CHILDREN),
            beyond: 0,
            open_files: 0,
            clockless: Clockless::default(),
            naming: 0,
            thread_count: 0,
            stacks: Stacks::default(),
        }
    }

    /// Samples a process, too: with the threads that it has now, and what they use from now on; `whole`: also what they
    /// have used before.
    pub fn add(&mut self, target: Target, whole: bool) {
        let index = self.targets.len();
        self.targets.push(target);
        self.with_target(index, |sampler, target| sampler.watch(target, !whole));
    }

    /// A process has another image, with this index: its threads and names are others.
    pub fn new_image(&mut self, index: usize, process: u32) {
        self.with_target(index, |sampler, target| {
            target.process = process;
            (target.names, target.names_written) = (Names::default(), 0);
            sampler.forget(target);
            sampler.watch(target, true);
        });
    }

    /// Counts what threads of a process have used since the last look, in which nobody looked.
    pub fn skip(&mut self, index: usize) {
        self.with_target(index, |sampler, target| {
            sampler.watch(target, false);
            for thread in target.threads.values_mut() {
                sampler.tally.meanwhile += thread.due;
                thread.due = 0;
            }
        });
    }

    /// Does something with a process. An empty one has its place among the others meanwhile.
    fn with_target<T>(&mut self, index: usize, run: impl FnOnce(&mut Sampler, &mut Target) -> T) -> Option<T> {
        let empty = Target::new(0, None, 0, Code::default());
        let mut target = std::mem::replace(self.targets.get_mut(index)?, empty);
        let done = run(self, &mut target);
        *self.targets.get_mut(index)? = target;
        Some(done)
    }

    /// Samples until something else is to be done. `objects`: those of each process. Runs on a thread of its own.
    pub fn run(&mut self, objects: &[Objects], plugins: &Plugins) -> Pause {
        threads::prefer_this_thread();
        // Of this thread, as `cost` reads its clock.
        self.naming = 0;
        let memories: Vec<Memory> = self.targets.iter().map(|target| Memory::of(target.pid)).collect();
        let mut walks = Vec::new();
        for ((target, objects), memory) in self.targets.iter_mut().zip(objects).zip(&memories) {
            let mut of = Walks::new(objects, plugins, memory, std::mem::take(&mut target.names));
            of.want_awaiting(self.awaiting);
            if self.wall {
                of.keep_reads();
            }
            walks.push((of, memory));
        }
        let pause = self.looks(&mut walks);
        for ((walks, _), target) in walks.into_iter().zip(&mut self.targets) {
            // The numbers in them differ.
            let room = NOTES.saturating_sub(self.notes.len());
            self.notes.extend(walks.notes().into_iter().take(room));
            target.names = walks.into_names();
        }
        pause
    }

    fn looks(&mut self, walks: &mut [(Walks<'_>, &Memory)]) -> Pause {
        let period = Duration::from_nanos(self.period);
        let mut next = Instant::now() + period;
        loop {
            if let Some(cause) = self.wait_until(next) {
                // What threads have used since the last look, which may be long ago.
                for (index, (walks, memory)) in walks.iter_mut().enumerate() {
                    self.with_target(index, |sampler, target| {
                        sampler.look(target, walks, memory);
                        sampler.settle(target, walks);
                    });
                }
                return Pause::Over(cause);
            }
            let (begun, cost) = (Instant::now(), self.cost());
            for (index, (walks, memory)) in walks.iter_mut().enumerate() {
                let pause = self.with_target(index, |sampler, target| sampler.look_once(target, index, walks, memory));
                if let Some(Some(pause)) = pause {
                    return pause;
                }
            }
            next = begun + period.max((self.cost() - cost) * SHARE);
            if self.with_children && begun >= self.search {
                let children = self.search();
                self.search = Instant::now() + SEARCH.max((self.cost() - cost) * SHARE);
                if !children.is_empty() {
                    return Pause::Children(children);
                }
            }
            if self.snapshots.is_due() || self.snapshots.is_made() {
                return Pause::Snapshot;
            }
        }
    }

    /// What looks have cost so far: CPU time of this thread, as what is stopped may have to wait for a CPU; without the
    /// looks for threads' names, which have intervals of their own.
    fn cost(&self) -> Duration {
        Duration::from_nanos(machine::own_thread_cpu().saturating_sub(self.naming))
    }

    /// Looks at a process, and from time to time at what it has mapped. Returns what else is to be done, if anything.
    fn look_once(
        &mut self,
        target: &mut Target,
        index: usize,
        walks: &mut Walks<'_>,
        memory: &Memory,
    ) -> Option<Pause> {
        let looked = self.look(target, walks, memory);
        if self.wall {
            target.threads.values_mut().for_each(|thread| self.singles.take(thread.single.as_mut(), thread.index));
        }
        let (begun, cost) = (Instant::now(), self.cost());
        if begun >= target.check || matches!(looked, Looked::OtherCode) {
            if !self.settle(target, walks) {
                return Some(Pause::OtherCode(index));
            }
            target.check = begun + (self.cost() - cost) * SHARE * 2;
        }
        matches!(looked, Looked::LetGo).then_some(Pause::LetGo)
    }

    /// Children of the processes that were not found before.
    fn search(&mut self) -> Vec<u32> {
        let mut found = Vec::new();
        for target in &self.targets {
            for child in children(target.pid) {
                let begun = |pid| Stat::of(pid).and_then(|stat| stat.number(22));
                if !self.known.is_new(child, begun) {
                    continue;
                }
                if self.targets.len() + found.len() < CHILDREN {
                    found.push(child);
                } else {
                    self.beyond += 1;
                }
            }
        }
        found
    }

    /// Leaves the processes that have ended. Returns their places among the others, from the last one on, and the
    /// indices of their images.
    pub fn drop_ended(&mut self) -> Vec<(usize, u32)> {
        let mut ended = Vec::new();
        for index in (0..self.targets.len()).rev() {
            if self.targets.get(index).is_some_and(Target::is_over) {
                ended.extend(self.leave(index).map(|process| (index, process)));
            }
        }
        ended
    }

    /// Leaves a process. Returns the index of its image.
    pub fn leave(&mut self, index: usize) -> Option<u32> {
        let mut target = (index < self.targets.len()).then(|| self.targets.remove(index))?;
        self.tally.left_out += target.pending.len() as u64;
        let process = target.process;
        self.forget(&mut target);
        Some(process)
    }

    /// The recording is over: nothing more is seen of any thread.
    pub fn end(&mut self) {
        let mut targets = std::mem::take(&mut self.targets);
        targets.iter_mut().for_each(|target| self.forget(target));
        self.targets = targets;
    }

    /// The threads of a process are watched no longer.
    fn forget(&mut self, target: &mut Target) {
        std::mem::take(&mut target.threads).into_values().for_each(|thread| self.end_of(thread));
        self.write_waits();
    }

    fn write_waits(&mut self) {
        let waits = self.singles.taken();
        if !waits.is_empty() {
            self.writer.waits(&waits);
        }
    }

    /// A thread is watched no longer.
    fn end_of(&mut self, thread: Watched) {
        if !self.wall {
            return;
        }
        // It may have ended just after the last look, or now.
        let due = thread.due + machine::monotonic().saturating_sub(thread.used);
        // But for the rest of a period, which every thread has.
        self.unseen += if due < self.period { 0 } else { due };
        self.singles.end(thread.single, thread.index);
    }

    /// Waits for the time of the next look. Returns why the recording is over, if it is, or that a process has ended.
    fn wait_until(&self, next: Instant) -> Option<EndCause> {
        loop {
            let now = Instant::now();
            if interrupted().is_some() {
                return Some(EndCause::Asked);
            }
            if self.until.is_some_and(|until| now >= until) {
                return Some(EndCause::Duration);
            }
            let end = self.until.map_or(next, |until| until.min(next));
            let left = end.saturating_duration_since(now).min(SLICE);
            let ready = is_ready(self.targets.iter().filter_map(|target| target.pidfd.as_ref()), left);
            let mut blind = self.targets.iter().filter(|target| target.pidfd.is_none());
            if ready || self.targets.is_empty() || blind.any(Target::is_over) {
                return Some(EndCause::ProgramEnded);
            }
            if Instant::now() >= next {
                return None;
            }
        }
    }

    /// Reads the clocks of all threads of a process. `first`: what they have used so far is left out; else only for
    /// those that are not new.
    fn watch(&mut self, target: &mut Target, first: bool) {
        let wall = self.wall;
        let used = |clock: &Clock| clock.used().map(|used| if wall { machine::monotonic() } else { used });
        let mut gone = Vec::new();
        for (tid, thread) in &mut target.threads {
            let Some(used) = used(&thread.clock) else {
                gone.push(*tid);
                continue;
            };
            thread.due = thread.due.saturating_add(used.saturating_sub(thread.used));
            thread.used = used;
        }
        gone.iter().filter_map(|tid| target.threads.remove(tid)).for_each(|thread| self.end_of(thread));
        let others: usize = self.targets.iter().take(KEPT_OPEN_OF).map(|other| other.threads.len()).sum();
        for tid in tids(target.pid).unwrap_or_default() {
            if target.threads.len() >= threads::THREADS || target.threads.contains_key(&tid) {
                continue;
            }
            let of = target.threads.len();
            // Of one whose waits are wanted there are two files.
            let files = (others + of).saturating_mul(1 + usize::from(self.wall));
            let kept = of < KEPT_OPEN && self.targets.len() <= KEPT_OPEN_OF && files < self.open_files;
            let clock = match Clock::of(target.pid, tid, kept) {
                Ok(clock) => clock,
                Err(error) => {
                    self.clockless.add(tid, &error);
                    continue;
                }
            };
            let Some(used) = used(&clock) else { continue };
            let (index, name) = (self.thread_count, waits::name(target.pid, tid));
            self.thread_count += 1;
            self.writer.thread(&Thread { process: target.process, tid, name: String::new() });
            self.writer.thread_name(index, &name);
            let due = if first || self.wall { 0 } else { used };
            let (single, waiting) = ((kept && self.wall).then(|| Single::of(tid)).flatten(), Waiting::default());
            target.threads.insert(
                tid,
                Watched {
                    index,
                    clock,
                    used,
                    due,
                    name,
                    inner: None,
                    is_languages: false,
                    looks: 0,
                    waiting,
                    single,
                    asked: None,
                },
            );
        }
    }

    /// Samples every thread that is due, and runs or waits.
    fn look(&mut self, target: &mut Target, walks: &mut Walks<'_>, memory: &Memory) -> Looked {
        self.watch(target, false);
        self.tally.looks += 1;
        let (pid, code, pending) = (target.pid, &target.code, &mut target.pending);
        for (tid, thread) in &mut target.threads {
            if thread.due < self.period || thread.asked.is_some_and(|asked| asked.elapsed() < AGAIN) {
                continue;
            }
            if self.wall {
                let (at, tally) = ((pid, *tid), &mut self.waits);
                let mut is_current = || code_of(at.0) == *code;
                let found = thread.waiting.look(at, &thread.clock, (walks, memory), &mut is_current, tally);
                if let (Some(single), Some(stop)) = (&mut thread.single, thread.waiting.last_stop.take()) {
                    single.stopped(stop);
                }
                match found {
                    Found::Waits(walked, time) => {
                        let (weight, kind) = (thread.due(self.period), SampleKind::Waiting);
                        pending.push(Pending { tid: *tid, thread: thread.index, time, weight, kind, walked });
                        continue;
                    }
                    Found::OtherCode => return Looked::OtherCode,
                    Found::NotInTime => {
                        thread.asked = Some(Instant::now());
                        return Looked::LetGo;
                    }
                    Found::Missed | Found::Gone => continue,
                    Found::Runs => {}
                }
            } else if !is_running(pid, *tid) {
                continue;
            }
            let from = machine::monotonic();
            let Ok(stopped) = Stopped::one(*tid, PATIENCE) else {
                self.tally.unstopped += u64::from(thread.clock.used().is_some());
                continue;
            };
            let time = machine::monotonic();
            let walked = match stopped.threads().next() {
                Some((_, Some(false))) => {
                    // The id may be another thread's by now; then this one's clock is gone.
                    let known = stopped.registers(*tid).zip(thread.clock.ran());
                    memory.forget();
                    known.and_then(|(registers, ran)| match doing(&registers) {
                        Doing::Running => Some((SampleKind::Timer, Arc::new(walks.walk(&registers)))),
                        // Meanwhile, it has begun to wait: it is not stopped again for that.
                        _ if self.wall => Some((SampleKind::Waiting, thread.waiting.stopped(&registers, ran, walks)?)),
                        _ => None,
                    })
                }
                Some((_, None)) => {
                    self.tally.unstopped += 1;
                    thread.asked = Some(Instant::now());
                    return Looked::LetGo;
                }
                // It was stopped by a signal, or has ended.
                _ => None,
            };
            // Before it is let go: from then on, it may wait for itself.
            let in_call = matches!(walked, Some((SampleKind::Waiting, _)));
            if let Some(single) = &mut thread.single {
                single.stopped(Stop { from, stood: time, in_call });
            }
            let took = stopped.let_go();
            if in_call {
                self.waits.waits += 1;
                self.waits.add_stop(took);
            } else {
                self.tally.stops += 1;
                self.tally.stopped += took;
                self.tally.longest = self.tally.longest.max(took);
            }
            let Some((kind, walked)) = walked else { continue };
            let weight = thread.due(self.period);
            pending.push(Pending { tid: *tid, thread: thread.index, time, weight, kind, walked });
        }
        Looked::Whole
    }

    /// Writes the samples whose code is still mapped as it was when the objects were prepared, and leaves the others
    /// out. False: something else is mapped by now.
    fn settle(&mut self, target: &mut Target, walks: &Walks<'_>) -> bool {
        let time = machine::monotonic();
        let now = code_of(target.pid);
        let pending = std::mem::take(&mut target.pending);
        if !target.code.is_subset(&now) {
            self.tally.left_out += pending.len() as u64;
            target.threads.values_mut().for_each(|thread| thread.waiting.forget());
            target.language_names = LanguageNames::default();
            return false;
        }
        let is_same = target.code.len() == now.len();
        if is_same {
            target.checked = time;
        }
        let names = walks.names();
        for name in names.names.iter().skip(target.names_written) {
            let mut name = name.clone();
            name.process = target.process;
            self.writer.name(&name);
        }
        target.names_written = names.names.len();
        for Pending { tid, thread, time, weight, kind, walked } in pending {
            let (stack, _) = self.stacks.intern(&walked.words, |node| self.writer.node(node));
            let flags = walked.flags();
            let (stop, kind) = (walked.stop.number(), kind.number());
            self.writer.sample(Sample { thread, stack, time, weight, stop, kind, flags });
            self.tally.samples += 1;
            self.rename(target, tid, thread);
        }
        self.write_waits();
        let before = machine::own_thread_cpu();
        self.take_language_names(target, walks);
        self.naming += machine::own_thread_cpu().saturating_sub(before);
        self.writer.flush();
        is_same
    }

    /// Looks for the names that languages have for the threads, where it is time for it.
    fn take_language_names(&mut self, target: &mut Target, walks: &Walks<'_>) {
        let waits = target.threads.values().any(|thread| !thread.is_languages && thread.looks < LOOKS);
        if !walks.needs_thread_pointer() || !target.language_names.rest.is_over(machine::monotonic(), waits) {
            return;
        }
        let mut names = walks.thread_names(&mut target.language_names);
        for (tid, thread) in &mut target.threads {
            thread.looks = thread.looks.saturating_add(1);
            if names.is_empty() {
                continue;
            }
            thread.inner = thread.inner.or_else(|| waits::inner_id(target.pid, *tid));
            let Some(name) = thread.inner.and_then(|inner| names.remove(&inner)) else { continue };
            thread.is_languages = true;
            if name != thread.name {
                self.writer.thread_name(thread.index, &name);
                thread.name = name;
            }
        }
        let note = target.language_names.note().filter(|note| !self.notes.contains(note));
        self.notes.extend(note);
    }

    /// Reads the name of a thread again, which it may have given itself.
    fn rename(&mut self, target: &mut Target, tid: u32, index: u32) {
        let Some(thread) = target.threads.get_mut(&tid).filter(|t| t.index == index && !t.is_languages) else { return };
        let name = waits::name(target.pid, tid);
        if !name.is_empty() && name != thread.name {
            self.writer.thread_name(index, &name);
            thread.name = name;
        }
    }
}
