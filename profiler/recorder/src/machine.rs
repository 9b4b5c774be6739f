//! Properties of this machine, and its clocks.

use rustix::param::clock_ticks_per_second;
use rustix::time::{clock_getres, clock_gettime, ClockId, Timespec};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Host name, and kernel release with machine.
pub fn names() -> (String, String) {
    let names = rustix::system::uname();
    let [node, release, machine] = [names.nodename(), names.release(), names.machine()].map(|n| n.to_string_lossy());
    (node.clone().into_owned(), format!("{release} {machine}"))
}

/// The frequency of the kernel's timer tick in Hz, which limits the rate of CPU timers; 0 when it cannot be determined.
/// CLOCK_MONOTONIC_COARSE advances once a tick
/// ([clock_getres(2)](https://man7.org/linux/man-pages/man2/clock_getres.2.html)).
pub fn kernel_hz() -> u32 {
    match clock_getres(ClockId::MonotonicCoarse) {
        Timespec { tv_sec: 0, tv_nsec: ns } if ns > 0 => (1_000_000_000 + ns as u64 / 2).div_euclid(ns as u64) as u32,
        _ => 0,
    }
}

/// CLOCK_MONOTONIC, ns.
pub fn monotonic() -> u64 {
    clock(ClockId::Monotonic)
}

/// Wall-clock time, ns since 1970.
pub fn wall() -> u64 {
    clock(ClockId::Realtime)
}

/// CPU time of this process and of the helpers that it has waited for, ns. `program`: what the recorded program used,
/// if this process has waited for it, too.
pub fn own_cpu(program: u64) -> u64 {
    // SAFETY: all-zero is a valid rusage, and the call writes to this local.
    let children = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        let time = |time: libc::timeval| nanoseconds(time.tv_sec, time.tv_usec * 1000);
        time(usage.ru_utime).saturating_add(time(usage.ru_stime))
    };
    clock(ClockId::ProcessCPUTime).saturating_add(children.saturating_sub(program))
}

/// Has all threads of this process share two arenas of malloc, where each would have one of its own
/// ([mallopt(3)](https://man7.org/linux/man-pages/man3/mallopt.3.html)): for many threads that allocate seldom.
pub fn share_arenas() {
    const ARENAS: i32 = 2;
    #[cfg(target_env = "gnu")]
    // SAFETY: a plain call.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS) };
}

/// CPU time of this thread, ns.
pub fn own_thread_cpu() -> u64 {
    clock(ClockId::ThreadCPUTime)
}

fn clock(id: ClockId) -> u64 {
    let now = clock_gettime(id);
    nanoseconds(now.tv_sec, now.tv_nsec)
}

fn nanoseconds(seconds: i64, rest: i64) -> u64 {
    (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(rest as u64)
}

/// Converts a time (CLOCK_MONOTONIC, ns) to clock ticks since boot, the unit of the start time in
/// [`/proc/PID/stat`](https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html).
pub fn ticks_since_boot(time: u64) -> u64 {
    // Time since boot includes the time in which the machine was suspended.
    let suspended = clock(ClockId::Boottime).saturating_sub(monotonic());
    time.saturating_add(suspended) / tick()
}

/// Length of a clock tick, 1 / sysconf(_SC_CLK_TCK) s, in ns.
fn tick() -> u64 {
    1_000_000_000 / clock_ticks_per_second().max(1)
}

/// What is in a file of the kernel's that fits into a page, in one read: [`std::fs::read`] makes six.
fn read_once(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut text = vec![0; 4096];
    let length = File::open(path)?.read(&mut text)?;
    text.truncate(length);
    Ok(text)
}

/// The text of a `stat` file of a process or thread
/// ([proc_pid_stat(5)](https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html)).
pub struct Stat(Vec<u8>);

impl Stat {
    /// That of a live process; `None`: there is none, or it cannot be read.
    pub fn of(pid: u32) -> Option<Stat> {
        read_once(format!("/proc/{pid}/stat")).ok().map(Stat)
    }

    /// That of a thread of a process.
    pub fn of_thread(pid: u32, tid: u32) -> Option<Stat> {
        read_once(format!("/proc/{pid}/task/{tid}/stat")).ok().map(Stat)
    }

    /// That of the process or thread with this folder in `/proc`.
    pub fn in_folder(folder: &Path) -> Option<Stat> {
        read_once(folder.join("stat")).ok().map(Stat)
    }

    /// From what was read from such a file.
    pub fn from_bytes(text: &[u8]) -> Stat {
        Stat(text.to_vec())
    }

    /// A field by its number in the manual page, 3 (the state) or higher.
    pub fn field(&self, number: usize) -> Option<&str> {
        // Field 2 is the name in parentheses, which may contain any byte, parentheses and spaces too.
        let name_end = self.0.iter().rposition(|byte| *byte == b')')?;
        std::str::from_utf8(self.0.get(name_end + 1..)?).ok()?.split_ascii_whitespace().nth(number.checked_sub(3)?)
    }

    /// Such a field as a number.
    pub fn number(&self, field: usize) -> Option<u64> {
        self.field(field)?.parse().ok()
    }
}

/// CPU time of a live process, and that of the children that it waited for, in ns; 0 when it cannot be determined. The
/// children's part is a multiple of a clock tick.
pub fn cpu_with_children(pid: u32) -> (u64, u64) {
    let Some(stat) = Stat::of(pid) else { return (0, 0) };
    // utime, stime, cutime, cstime.
    let [Some(user), Some(system), Some(children_user), Some(children_system)] =
        [14, 15, 16, 17].map(|field| stat.number(field))
    else {
        return (0, 0);
    };
    let tick = tick();
    let time = |a: u64, b: u64| a.saturating_add(b).saturating_mul(tick);
    (exact_cpu_of(pid).unwrap_or(time(user, system)), time(children_user, children_system))
}

/// When a live process began (CLOCK_MONOTONIC, ns), to a clock tick; 0 when it cannot be determined.
pub fn start_of(pid: u32) -> u64 {
    let starttime = Stat::of(pid).and_then(|stat| stat.number(22));
    let suspended = clock(ClockId::Boottime).saturating_sub(monotonic());
    starttime.map_or(0, |ticks| ticks.saturating_mul(tick()).saturating_sub(suspended))
}

/// CPU time of a live process alone, in ns, from its CPU clock.
pub fn exact_cpu_of(pid: u32) -> Option<u64> {
    let used = uunwind_clock::cpu_of(pid)?;
    u64::try_from(used.as_nanos()).ok().filter(|time| *time != 0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tick_is_one_that_kernels_have() {
        assert!([0, 100, 250, 300, 1000].contains(&super::kernel_hz()), "{}", super::kernel_hz());
    }

    #[test]
    fn a_name_with_parentheses_spaces_and_other_bytes_hides_no_field() {
        let stat = super::Stat::from_bytes(b"42 (a) S 9 \xff) R 1 2 3");
        assert_eq!((stat.field(3), stat.number(4), stat.number(6)), (Some("R"), Some(1), Some(3)));
        assert_eq!((stat.field(2), stat.number(3), stat.field(7)), (None, None, None));
        assert_eq!(super::Stat::from_bytes(b"42 (a").field(3), None);
    }

    #[test]
    fn this_process_began_before_now_and_after_boot() {
        let start = super::start_of(std::process::id());
        assert!(start > 0 && start <= super::monotonic(), "{start}");
    }

    #[test]
    fn own_time_has_that_of_helpers_without_the_programs() {
        let spin = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done";
        let before = super::own_cpu(0);
        let status = std::process::Command::new("sh").args(["-c", spin]).status().expect("sh");
        assert!(status.success());
        let (with, without) = (super::own_cpu(0), super::own_cpu(u64::MAX));
        // The loop takes some 100 ms.
        assert!(with - before > 10_000_000, "{with} after {before}");
        assert!(without < with - 10_000_000, "{without} of {with}");
    }

    #[test]
    fn own_cpu_time_is_seen_in_proc() {
        let busy = uunwind_clock::Instant::now();
        while busy.elapsed().as_millis() < 60 {}
        assert!(super::cpu_with_children(std::process::id()).0 > 0);
    }
}
