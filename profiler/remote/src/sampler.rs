//! Samples of the threads of a running process, by short stops of one thread at a time.
//!
//! A thread is due for a sample when it has used another period of CPU time, and is stopped only if it is found running
//! then: threads that wait are not touched, and no system call is interrupted. What it used while it was not found
//! running counts for the next sample of it.
//!
//! Where waits are wanted, a thread is due when another period of time has passed, and its sample shows what it is
//! found doing then: it waits (`waiting`), or runs, and is stopped as above.

use crate::clocks::{is_running, Clock};
use crate::memory::Memory;
use crate::names::Names;
use crate::objects::{code_of, Code, Objects};
use crate::plugins::Plugins;
use crate::threads::{self, tids, Stopped};
use crate::waiting::{self, Found, Waiting};
use crate::waits::{self, doing, Doing};
use crate::walks::{Walked, Walks};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uunwind_recorder::child::interrupted;
use uunwind_recorder::machine;
use uunwind_recorder::snapshot::Snapshots;
use uunwind_recorder::stacks::Stacks;
use uunwind_recording::{EndCause, Sample, Thread, Writer};
use uunwind_ring::record::SampleKind;

/// Longest wait for a thread to stop.
const PATIENCE: Duration = Duration::from_millis(100);
/// Longest wait before it is seen that uu is to end.
const SLICE: Duration = Duration::from_millis(100);
/// Looks take at most one of this many parts of the time; so do checks of what is mapped.
const SHARE: u32 = 10;
/// The files of at most this number of threads' clocks are kept open.
const KEPT_OPEN: usize = 256;

/// At most this number of notes on code that is registered at run time is kept.
const NOTES: usize = 4;

/// Why sampling has paused or ended.
pub enum Pause {
    /// The recording is over.
    Over(EndCause),
    /// A snapshot is due, or one was made.
    Snapshot,
    /// The process has mapped other code than it had when it was prepared.
    OtherCode,
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

/// A thread of the process.
struct Watched {
    /// Index in the recording.
    index: u32,
    clock: Clock,
    /// CPU time at the last look, or if waits are wanted, its time; and the part of it that no sample stands for, in
    /// ns.
    used: u64,
    due: u64,
    name: String,
    waiting: Waiting,
}

impl Watched {
    /// Takes a sample for what is due.
    fn due(&mut self, period: u64) -> u32 {
        let weight = u32::try_from(self.due / period).unwrap_or(u32::MAX);
        self.due %= period;
        weight
    }
}

/// How a look ended.
enum Looked {
    Whole,
    /// The process has mapped other code.
    OtherCode,
    /// A thread did not stop in time.
    LetGo,
}

/// A sample of which it is not known yet whether its code was still the code that had been prepared.
struct Pending {
    tid: u32,
    thread: u32,
    time: u64,
    weight: u32,
    kind: SampleKind,
    walked: Arc<Walked>,
}

/// The sampling of a process.
pub struct Sampler {
    /// The id of the process.
    pub pid: u32,
    /// Becomes readable when the process ends.
    pub pidfd: Option<OwnedFd>,
    /// CPU time for which a sample stands, in ns; if waits are wanted, time.
    pub period: u64,
    /// Threads that wait are sampled, too.
    pub wall: bool,
    /// What was counted of waits.
    pub waits: waiting::Tally,
    /// What the recording has so far, as files of their own.
    pub snapshots: Snapshots,
    /// When the recording ends by itself.
    pub until: Option<Instant>,
    /// Frames that await those of the stack are wanted.
    pub awaiting: bool,
    /// Index of the process in the recording: its image since the last exec.
    pub process: u32,
    /// The names of code objects in that image; those before `names_written` are in the recording.
    pub names: Names,
    pub names_written: usize,
    /// The code for which the objects were prepared.
    pub code: Code,
    /// When that was last found to be so (CLOCK_MONOTONIC, ns).
    pub checked: u64,
    /// The recording.
    pub writer: Writer<File>,
    /// What was counted.
    pub tally: Tally,
    /// What could not be read of code that is registered at run time, for people.
    pub notes: Vec<String>,
    threads: BTreeMap<u32, Watched>,
    thread_count: u32,
    stacks: Stacks,
    pending: Vec<Pending>,
}

impl Sampler {
    /// Begins with the threads that the process has now, and what they use from now on.
    pub fn new(pid: u32, pidfd: Option<OwnedFd>, period: u64, wall: bool, writer: Writer<File>) -> Sampler {
        let mut sampler = Sampler {
            pid,
            pidfd,
            period,
            wall,
            waits: waiting::Tally::default(),
            snapshots: Snapshots::default(),
            until: None,
            awaiting: false,
            process: 0,
            names: Names::default(),
            names_written: 0,
            code: Code::default(),
            checked: 0,
            writer,
            tally: Tally::default(),
            notes: Vec::new(),
            threads: BTreeMap::new(),
            thread_count: 0,
            stacks: Stacks::default(),
            pending: Vec::new(),
        };
        sampler.watch(true);
        sampler
    }

    /// The process has another image: its threads and names are others.
    pub fn new_image(&mut self) {
        self.process += 1;
        (self.names, self.names_written) = (Names::default(), 0);
        self.threads.clear();
        self.watch(true);
    }

    /// Counts what threads have used since the last look, in which nobody looked.
    pub fn skip(&mut self) {
        self.watch(false);
        for thread in self.threads.values_mut() {
            self.tally.meanwhile += thread.due;
            thread.due = 0;
        }
    }

    /// Samples until something else is to be done. Runs on a thread of its own.
    pub fn run(&mut self, objects: &Objects, plugins: &Plugins) -> Pause {
        threads::prefer_this_thread();
        let memory = Memory::of(self.pid);
        let mut walks = Walks::new(objects, plugins, &memory, std::mem::take(&mut self.names));
        walks.want_awaiting(self.awaiting);
        if self.wall {
            walks.keep_reads();
        }
        let pause = self.looks(&mut walks, &memory);
        for note in walks.notes() {
            // The numbers in them differ.
            if self.notes.len() < NOTES {
                self.notes.push(note);
            }
        }
        self.names = walks.into_names();
        pause
    }

    fn looks(&mut self, walks: &mut Walks<'_>, memory: &Memory) -> Pause {
        let period = Duration::from_nanos(self.period);
        let (mut next, mut check) = (Instant::now() + period, Instant::now());
        loop {
            if let Some(cause) = self.wait_until(next) {
                // What threads have used since the last look, which may be long ago.
                self.look(walks, memory);
                self.settle(walks);
                return Pause::Over(cause);
            }
            let begun = Instant::now();
            let looked = self.look(walks, memory);
            next = begun + period.max(begun.elapsed() * SHARE);
            let begun = Instant::now();
            if begun >= check || matches!(looked, Looked::OtherCode) {
                if !self.settle(walks) {
                    return Pause::OtherCode;
                }
                check = begun + begun.elapsed() * SHARE * 2;
            }
            if matches!(looked, Looked::LetGo) {
                return Pause::LetGo;
            }
            if self.snapshots.is_due() || self.snapshots.is_made() {
                return Pause::Snapshot;
            }
        }
    }

    /// Waits for the time of the next look. Returns why the recording is over, if it is.
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
            let mut fds: Vec<_> = self.pidfd.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
            // After a failure, no descriptor is ready.
            let _ = poll(&mut fds, Some(&timeout));
            let is_ready = fds.iter().any(|fd| !fd.revents().is_empty());
            if is_ready || fds.is_empty() && tids(self.pid).is_err() {
                return Some(EndCause::ProgramEnded);
            }
            if Instant::now() >= next {
                return None;
            }
        }
    }

    /// Reads the clocks of all threads. `first`: what they have used so far is left out; else only for those that are
    /// not new.
    fn watch(&mut self, first: bool) {
        let used = |clock: &Clock| clock.used().map(|used| if self.wall { machine::monotonic() } else { used });
        self.threads.retain(|_, thread| {
            let Some(used) = used(&thread.clock) else { return false };
            thread.due = thread.due.saturating_add(used.saturating_sub(thread.used));
            thread.used = used;
            true
        });
        for tid in tids(self.pid).unwrap_or_default() {
            if self.threads.len() >= threads::THREADS || self.threads.contains_key(&tid) {
                continue;
            }
            let Some(clock) = Clock::of(self.pid, tid, self.threads.len() < KEPT_OPEN) else { continue };
            let Some(used) = used(&clock) else { continue };
            let (index, name) = (self.thread_count, waits::name(self.pid, tid));
            self.thread_count += 1;
            self.writer.thread(&Thread { process: self.process, tid, name: String::new() });
            self.writer.thread_name(index, &name);
            let due = if first || self.wall { 0 } else { used };
            self.threads.insert(tid, Watched { index, clock, used, due, name, waiting: Waiting::default() });
        }
    }

    /// Samples every thread that is due, and runs or waits.
    fn look(&mut self, walks: &mut Walks<'_>, memory: &Memory) -> Looked {
        self.watch(false);
        self.tally.looks += 1;
        for (tid, thread) in &mut self.threads {
            if thread.due < self.period {
                continue;
            }
            if self.wall {
                let (at, tally) = ((self.pid, *tid), &mut self.waits);
                let mut is_current = || code_of(at.0) == self.code;
                match thread.waiting.look(at, &thread.clock, (walks, memory), &mut is_current, tally) {
                    Found::Waits(walked) => {
                        let (weight, time, kind) = (thread.due(self.period), machine::monotonic(), SampleKind::Waiting);
                        self.pending.push(Pending { tid: *tid, thread: thread.index, time, weight, kind, walked });
                        continue;
                    }
                    Found::OtherCode => return Looked::OtherCode,
                    Found::NotInTime => return Looked::LetGo,
                    Found::Missed | Found::Gone => continue,
                    Found::Runs => {}
                }
            } else if !is_running(self.pid, *tid) {
                continue;
            }
            let Ok(stopped) = Stopped::one(*tid, PATIENCE) else {
                self.tally.unstopped += u64::from(thread.clock.used().is_some());
                continue;
            };
            let walked = match stopped.threads().next() {
                Some((_, Some(false))) => {
                    // The id may be another thread's by now; then this one's clock is gone.
                    let registers = stopped.registers(*tid).filter(|r| doing(r) == Doing::Running);
                    let registers = registers.filter(|_| thread.clock.used().is_some());
                    memory.forget();
                    registers.map(|registers| walks.walk(&registers))
                }
                Some((_, None)) => {
                    self.tally.unstopped += 1;
                    return Looked::LetGo;
                }
                // It was stopped by a signal, or has ended.
                _ => None,
            };
            let took = stopped.let_go();
            self.tally.stops += 1;
            self.tally.stopped += took;
            self.tally.longest = self.tally.longest.max(took);
            let Some(walked) = walked else { continue };
            let (weight, time, kind) = (thread.due(self.period), machine::monotonic(), SampleKind::Timer);
            let walked = Arc::new(walked);
            self.pending.push(Pending { tid: *tid, thread: thread.index, time, weight, kind, walked });
        }
        Looked::Whole
    }

    /// Writes the samples whose code is still mapped as it was when the objects were prepared, and leaves the others
    /// out. False: something else is mapped by now.
    fn settle(&mut self, walks: &Walks<'_>) -> bool {
        let time = machine::monotonic();
        let now = code_of(self.pid);
        let pending = std::mem::take(&mut self.pending);
        if !self.code.is_subset(&now) {
            self.tally.left_out += pending.len() as u64;
            self.threads.values_mut().for_each(|thread| thread.waiting.forget());
            return false;
        }
        let is_same = self.code.len() == now.len();
        if is_same {
            self.checked = time;
        }
        let names = walks.names();
        for name in names.names.iter().skip(self.names_written) {
            let mut name = name.clone();
            name.process = self.process;
            self.writer.name(&name);
        }
        self.names_written = names.names.len();
        for Pending { tid, thread, time, weight, kind, walked } in pending {
            let (stack, _) = self.stacks.intern(&walked.words, |node| self.writer.node(node));
            let flags = walked.flags();
            let (stop, kind) = (walked.stop.number(), kind.number());
            self.writer.sample(Sample { thread, stack, time, weight, stop, kind, flags });
            self.tally.samples += 1;
            self.rename(tid, thread);
        }
        self.writer.flush();
        is_same
    }

    /// Reads the name of a thread again, which it may have given itself.
    fn rename(&mut self, tid: u32, index: u32) {
        let Some(thread) = self.threads.get_mut(&tid).filter(|thread| thread.index == index) else { return };
        let name = waits::name(self.pid, tid);
        if !name.is_empty() && name != thread.name {
            self.writer.thread_name(index, &name);
            thread.name = name;
        }
    }
}
