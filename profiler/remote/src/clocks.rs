//! The CPU time of another process's threads, and how often they have run, read without stopping them.

use crate::refusal::is_gone;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use uunwind_recorder::machine::Stat;

/// The CPU clock of a thread.
pub struct Clock {
    path: PathBuf,
    /// Kept open, it stays that of this very thread.
    file: Option<File>,
}

/// How long and how often a thread has run. If it waits, and waits again with an equal value, it has not run in
/// between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// CPU time, in ns.
    pub cpu: u64,
    /// Time in which it was ready and did not get a CPU, in ns; 0 if the kernel does not say.
    pub queued: u64,
    /// How often it was given a CPU, or taken off one.
    pub times: u64,
}

/// Whether the kernel has threads' times in ns ([schedstat](https://docs.kernel.org/scheduler/sched-stats.html));
/// else they are known to a clock tick.
static IN_NANOSECONDS: LazyLock<bool> = LazyLock::new(|| {
    let own = fs::read_to_string("/proc/thread-self/schedstat");
    own.ok().and_then(|text| first_number(&text)).is_some_and(|used| used > 0)
});

impl Clock {
    /// The clock of a thread. `keep`: with its file kept open, which makes reading cheaper.
    pub fn of(pid: u32, tid: u32, keep: bool) -> io::Result<Clock> {
        let name = if *IN_NANOSECONDS { "schedstat" } else { "stat" };
        let path = PathBuf::from(format!("/proc/{pid}/task/{tid}/{name}"));
        let file = File::open(&path)?;
        Ok(Clock { path, file: keep.then_some(file) })
    }

    /// CPU time that the thread has used, in ns; `None`: it is gone.
    pub fn used(&self) -> Option<u64> {
        self.ran().map(|ran| ran.cpu)
    }

    /// How long and how often the thread has run; `None`: it is gone.
    pub fn ran(&self) -> Option<Ran> {
        let mut bytes = [0; 1024];
        let len = match &self.file {
            Some(file) => file.read_at(&mut bytes, 0).ok()?,
            None => File::open(&self.path).ok()?.read_at(&mut bytes, 0).ok()?,
        };
        let text = bytes.get(..len)?;
        if *IN_NANOSECONDS {
            let text = String::from_utf8_lossy(text);
            let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
            let (cpu, queued, times) = (numbers.next()??, numbers.next().flatten(), numbers.next().flatten());
            return Some(Ran { cpu, queued: queued.unwrap_or(0), times: times.unwrap_or(0) });
        }
        let stat = Stat::from_bytes(text);
        let (user, system) = stat.number(14).zip(stat.number(15))?;
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let cpu = user.saturating_add(system).saturating_mul(tick);
        Some(Ran { cpu, queued: 0, times: switches(&self.path.with_file_name("status"))? })
    }
}

/// Threads that live, and whose clocks cannot be read.
#[derive(Default)]
pub struct Clockless {
    tids: HashSet<u32>,
    /// Why, of the first one.
    why: String,
}

impl Clockless {
    /// A thread has no clock, for this reason; it may have ended.
    pub fn add(&mut self, tid: u32, error: &io::Error) {
        if is_gone(error) {
            return;
        }
        if self.tids.is_empty() {
            self.why = error.to_string();
        }
        // They are met at each look.
        self.tids.insert(tid);
    }

    /// A note for people, if any thread had no clock.
    pub fn note(&self) -> Option<String> {
        let is_any = !self.tids.is_empty();
        is_any.then(|| format!("{} threads had no clock for some time, or never: {}", self.tids.len(), self.why))
    }
}

/// How often a thread has gone to sleep, a stop included; `None`: it is gone.
pub fn sleeps(pid: u32, tid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    count(&text, "voluntary_ctxt_switches:")
}

/// How often a thread was switched away from.
fn switches(status: &Path) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    Some(count(&text, "voluntary_ctxt_switches:")?.wrapping_add(count(&text, "nonvoluntary_ctxt_switches:")?))
}

/// A number of a thread's status
/// ([proc_pid_status(5)](https://man7.org/linux/man-pages/man5/proc_pid_status.5.html)).
fn count(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

fn first_number(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Whether a thread runs, or is ready to.
pub fn is_running(pid: u32, tid: u32) -> bool {
    Stat::of_thread(pid, tid).is_some_and(|stat| stat.field(3) == Some("R"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_this_thread_goes_on_while_it_works() {
        let (pid, tid) = (std::process::id(), rustix::thread::gettid().as_raw_pid() as u32);
        for keep in [true, false] {
            let clock = Clock::of(pid, tid, keep).expect("this thread");
            let before = clock.used().expect("it lives");
            while clock.used().expect("it lives") < before + 20_000_000 {
                assert!(is_running(pid, tid));
            }
        }
        assert!(Clock::of(pid, u32::MAX, true).is_err() && !is_running(pid, u32::MAX));
    }
}
