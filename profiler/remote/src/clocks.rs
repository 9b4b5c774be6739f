//! The CPU time of another process's threads, read without stopping them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::LazyLock;
use uunwind_recorder::machine::Stat;

/// The CPU clock of a thread.
pub struct Clock {
    path: PathBuf,
    /// Kept open, it stays that of this very thread.
    file: Option<File>,
}

/// Whether the kernel has threads' times in ns ([schedstat](https://docs.kernel.org/scheduler/sched-stats.html));
/// else they are known to a clock tick.
static IN_NANOSECONDS: LazyLock<bool> = LazyLock::new(|| {
    let own = fs::read_to_string("/proc/thread-self/schedstat");
    own.ok().and_then(|text| first_number(&text)).is_some_and(|used| used > 0)
});

impl Clock {
    /// The clock of a thread; `None`: it is gone. `keep`: with its file kept open, which makes reading cheaper.
    pub fn of(pid: u32, tid: u32, keep: bool) -> Option<Clock> {
        let name = if *IN_NANOSECONDS { "schedstat" } else { "stat" };
        let path = PathBuf::from(format!("/proc/{pid}/task/{tid}/{name}"));
        let file = File::open(&path).ok()?;
        Some(Clock { path, file: keep.then_some(file) })
    }

    /// CPU time that the thread has used, in ns; `None`: it is gone.
    pub fn used(&self) -> Option<u64> {
        let mut bytes = [0; 1024];
        let len = match &self.file {
            Some(file) => file.read_at(&mut bytes, 0).ok()?,
            None => File::open(&self.path).ok()?.read_at(&mut bytes, 0).ok()?,
        };
        let text = bytes.get(..len)?;
        if *IN_NANOSECONDS {
            return first_number(&String::from_utf8_lossy(text));
        }
        let stat = Stat::from_bytes(text);
        let (user, system) = stat.number(14).zip(stat.number(15))?;
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        Some(user.saturating_add(system).saturating_mul(tick))
    }
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
        assert!(Clock::of(pid, u32::MAX, true).is_none() && !is_running(pid, u32::MAX));
    }
}
