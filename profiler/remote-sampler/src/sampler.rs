//! Samples of the threads of a running process, by short stops of one thread at a time.
//!
//! A thread is due for a sample when it has used another period of CPU time, and is stopped only if it is found running
//! then: threads that wait are not touched, and no system call is interrupted. What it used while it was not found
//! running counts for the next sample of it.
//!
//! Where waits are wanted, a thread is due when another period of time has passed, and its sample shows what it is
//! found doing then: it waits (`waiting`), or runs, and is stopped as above.

mod accounts;
mod look;
mod names;

use crate::followed::Known;
use crate::target::{is_ready, Target};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_recorder::child::interrupted;
use uunwind_recorder::machine::{self, Stat};
use uunwind_recorder::snapshot::Snapshots;
use uunwind_recorder::stacks::Stacks;
use uunwind_recorder::switch::Switch;
use uunwind_recording::{EndCause, Writer};
use uunwind_remote::clocks::Clockless;
use uunwind_remote::memory::Memory;
use uunwind_remote::names::Names;
use uunwind_remote::objects::Objects;
use uunwind_remote::plugins::Plugins;
use uunwind_remote::threads::{self, children};
use uunwind_remote::walks::Walks;
use uunwind_waits::stops::Stops;
use uunwind_waits::wait_intervals::Singles;
use uunwind_waits::waiting;

/// Longest wait before it is seen that uu is to end.
const SLICE: Duration = Duration::from_millis(100);
/// Looks take at most one of this many parts of the time; so do checks of what is mapped.
const SHARE: u32 = 10;
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
    /// Stops of running threads.
    pub stops: Stops,
    /// Samples that were written.
    pub samples: u64,
    /// Samples that were left out, because the code they lie in may have been replaced.
    pub left_out: u64,
    /// Threads that could not be stopped in time, or at all.
    pub unstopped: u64,
    /// CPU time that threads used while the files of other code were examined, in ns.
    pub meanwhile: u64,
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
    /// Pauses that others ask for.
    pub switch: Option<Switch>,
    /// When the recording ends by itself.
    pub until: Option<Instant>,
    /// Ends it, where signals do not.
    pub ends: Option<Arc<AtomicBool>>,
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
            switch: None,
            until: None,
            ends: None,
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

    /// Does something with a process. An empty one has its place among the others meanwhile.
    fn with_target<T>(&mut self, index: usize, run: impl FnOnce(&mut Sampler, &mut Target) -> T) -> Option<T> {
        let mut target = std::mem::take(self.targets.get_mut(index)?);
        let done = run(self, &mut target);
        *self.targets.get_mut(index)? = target;
        Some(done)
    }

    /// Samples until something else is to be done. Runs on a thread of its own.
    pub fn run(&mut self, plugins: &Plugins) -> Pause {
        threads::prefer_this_thread();
        // Of this thread, as `cost` reads its clock.
        self.naming = 0;
        // The thread that has asked others to stop has ended, and the kernel has let them go.
        let (now, threads) = (machine::monotonic(), self.targets.iter_mut().flat_map(|of| of.threads.values_mut()));
        threads.filter_map(|thread| thread.single.as_mut()).for_each(|single| single.seen_from(now));
        let with = |target: &Target| (target.objects.clone(), Memory::of(target.pid));
        let with: Vec<(Arc<Objects>, Memory)> = self.targets.iter().map(with).collect();
        let mut walks = Vec::new();
        for (target, (objects, memory)) in self.targets.iter_mut().zip(&with) {
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
                if self.is_paused() {
                    (0..self.targets.len()).for_each(|index| self.pass_over(index));
                }
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
            let was_paused = self.is_paused();
            let asked = self.switch.as_mut().and_then(Switch::look);
            if was_paused {
                // What was used until now, also if it is resumed now.
                (0..self.targets.len()).for_each(|index| self.pass_over(index));
            }
            if let Some(switch) = self.switch.as_ref().filter(|_| asked.is_some()) {
                switch.done();
            }
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

    fn is_paused(&self) -> bool {
        self.switch.as_ref().is_some_and(Switch::is_paused)
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

    /// Leaves the processes that have ended, and returns them.
    pub fn drop_ended(&mut self) -> Vec<Target> {
        let ended = |target: &mut Target| target.is_over();
        let mut ended: Vec<Target> = self.targets.extract_if(.., ended).collect();
        ended.iter_mut().for_each(|target| self.left(target));
        ended
    }

    /// Leaves a process, and returns it.
    pub fn leave(&mut self, index: usize) -> Option<Target> {
        let mut target = (index < self.targets.len()).then(|| self.targets.remove(index))?;
        self.left(&mut target);
        Some(target)
    }

    fn left(&mut self, target: &mut Target) {
        self.tally.left_out += target.pending.len() as u64;
        self.forget(target);
    }

    /// The recording is over: nothing more is seen of any thread.
    pub fn end(&mut self) {
        let mut targets = std::mem::take(&mut self.targets);
        targets.iter_mut().for_each(|target| self.forget(target));
        self.targets = targets;
    }

    /// Waits for the time of the next look. Returns why the recording is over, if it is, or that a process has ended.
    fn wait_until(&self, next: Instant) -> Option<EndCause> {
        loop {
            let now = Instant::now();
            if interrupted().is_some() || self.ends.as_ref().is_some_and(|ends| ends.load(Ordering::Relaxed)) {
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
}
