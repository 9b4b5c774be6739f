//! A process that is sampled from outside, with its threads.

use crate::followed::Usage;
use crate::prepared::Prepared;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_recorder::machine::{self, Stat};
use uunwind_remote::clocks::Clock;
use uunwind_remote::language_names::LanguageNames;
use uunwind_remote::names::Names;
use uunwind_remote::objects::{Code, Objects};
use uunwind_remote::refusal::is_gone;
use uunwind_remote::threads::tids;
use uunwind_remote::walks::Walked;
use uunwind_ring::record::SampleKind;
use uunwind_waits::wait_intervals::Single;
use uunwind_waits::waiting::Waiting;

/// A process that is sampled.
pub struct Target {
    /// Its id.
    pub pid: u32,
    /// Becomes readable when the process ends.
    pub pidfd: Option<OwnedFd>,
    /// Index of the process in the recording: its image since the last exec.
    pub process: u32,
    /// The names of code objects in that image; those before `names_written` are in the recording.
    pub names: Names,
    /// Number of names that are in the recording.
    pub names_written: usize,
    /// What it has mapped, as it was prepared, and the code for which that was done.
    pub objects: Arc<Objects>,
    /// See `objects`.
    pub code: Code,
    /// When that was last found to be so (CLOCK_MONOTONIC, ns).
    pub checked: u64,
    /// What it has used.
    pub usage: Usage,
    /// Its threads, by their ids.
    pub threads: BTreeMap<u32, Watched>,
    /// Samples that are not written yet.
    pub pending: Vec<Pending>,
    /// When what it has mapped is compared again.
    pub check: Instant,
    /// The looks for the names that languages have for its threads.
    pub language_names: LanguageNames,
}

impl Default for Target {
    /// In the place of one that is being looked at.
    fn default() -> Target {
        Target {
            pid: 0,
            pidfd: None,
            process: 0,
            names: Names::default(),
            names_written: 0,
            objects: Arc::default(),
            code: Code::default(),
            checked: 0,
            usage: Usage::default(),
            threads: BTreeMap::new(),
            pending: Vec::new(),
            check: Instant::now(),
            language_names: LanguageNames::default(),
        }
    }
}

impl Target {
    /// A process, whose image has this index. Its threads are not looked at yet. `whole`: what it has used so far
    /// counts, too.
    pub fn new(pid: u32, pidfd: Option<OwnedFd>, process: u32, prepared: Prepared, whole: bool) -> Target {
        let Prepared { code, image, objects } = prepared;
        let (objects, usage) = (Arc::new(objects), Usage::new(pid, image, whole));
        Target { pid, pidfd, process, objects, code, usage, checked: machine::monotonic(), ..Target::default() }
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        has_ended(self.pid, self.pidfd.as_ref())
    }
}

/// Whether a process has ended. `pidfd`: becomes readable when it does; `None`: there was no room for one.
pub fn has_ended(pid: u32, pidfd: Option<&OwnedFd>) -> bool {
    if pidfd.is_some() {
        return is_ready(pidfd.into_iter(), Duration::ZERO);
    }
    // Its first thread may have ended long before the others.
    let is_zombie = || Stat::of(pid).is_some_and(|stat| stat.field(3) == Some("Z"));
    tids(pid).map_or_else(|error| is_gone(&error), |tids| tids.is_empty() || tids == [pid] && is_zombie())
}

/// Waits until one of these is readable, but not longer than this.
pub fn is_ready<'f>(fds: impl Iterator<Item = &'f OwnedFd>, longest: Duration) -> bool {
    let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(longest.subsec_nanos()) };
    // After a failure, no descriptor is ready.
    let _ = poll(&mut fds, Some(&timeout));
    fds.iter().any(|fd| !fd.revents().is_empty())
}

/// A thread of the process.
pub struct Watched {
    /// Index in the recording.
    pub index: u32,
    /// Its CPU time.
    pub clock: Clock,
    /// CPU time at the last look, or if waits are wanted, its time; and the part of it that no sample stands for, in
    /// ns.
    pub used: u64,
    /// See `used`.
    pub due: u64,
    /// Its name, as it was last written.
    pub name: String,
    /// Its id in its own pid namespace, once it was asked for.
    pub inner: Option<u32>,
    /// Whether that is the name that its language has for it.
    pub is_languages: bool,
    /// Number of looks for such a name.
    pub looks: u8,
    /// What is known of its wait.
    pub waiting: Waiting,
    /// Its single waits, if they are wanted and the kernel reports them.
    pub single: Option<Single>,
    /// When it was last asked to stop in vain.
    pub asked: Option<Instant>,
}

impl Watched {
    /// It was asked to stop, and did not in time.
    pub fn is_late(&mut self) {
        self.asked = Some(Instant::now());
        self.single.iter_mut().for_each(Single::not_stopped);
    }

    /// Takes a sample for what is due.
    pub fn due(&mut self, period: u64) -> u32 {
        let weight = u32::try_from(self.due / period).unwrap_or(u32::MAX);
        self.due %= period;
        weight
    }
}

/// A sample of which it is not known yet whether its code was still the code that had been prepared.
pub struct Pending {
    /// The thread's id.
    pub tid: u32,
    /// Its index in the recording.
    pub thread: u32,
    /// When it was taken (CLOCK_MONOTONIC, ns).
    pub time: u64,
    /// Number of periods that it stands for.
    pub weight: u32,
    /// Whether the thread ran or waited.
    pub kind: SampleKind,
    /// Its stack.
    pub walked: Arc<Walked>,
}
