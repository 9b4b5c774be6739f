//! Whether a recording is empty, and why.

use std::time::Duration;
use uunwind_recorder::Outcome;
use uunwind_recording::{signal_name, Recording, NOT_RECORDED, PAUSED};
use uunwind_ring::{FLAG_NO_CHILDREN, FLAG_WALL};

/// A program that ran at least this many times as long as it computed is reported as waiting.
const WAITED: u32 = 20;

/// Whether nothing was sampled. Many short programs have no sample at all, but CPU time of their starts, which is a
/// result; that of one or two is none.
pub fn is_empty(samples: u64, recording: Option<&Recording>) -> bool {
    /// Periods of starts that are a result.
    const STARTS: u64 = 10;
    samples == 0 && recording.map_or(0, Recording::periods_of_starts) < STARTS
}

/// The reason for an empty recording, as text for people. Processes that were not recorded are one; of a process that
/// ran before, they are its children, and no reason.
pub fn reason(outcome: &Outcome, recording: Option<&Recording>, rate: u32, is_attached: bool) -> String {
    let signal = outcome.wait_status.filter(|status| libc::WIFSIGNALED(*status));
    let signal = signal.map(|status| signal_name(libc::WTERMSIG(status)));
    match (signal, hindrance(outcome, recording, is_attached)) {
        (None, Some(why)) => why,
        (None, None) => unsampled(outcome, recording, rate),
        (Some(signal), Some(why)) => format!("{signal} ended the program. Besides, {why}"),
        (Some(signal), None) => {
            let used = milliseconds(Duration::from_nanos(outcome.cpu_used));
            let when = if recording.is_some_and(|r| r.processes.is_empty()) { ", before it was recorded" } else { "" };
            format!("{signal} ended the program{when}. It had used {used} of CPU")
        }
    }
}

/// What prevents samples, however long a program runs.
fn hindrance(outcome: &Outcome, recording: Option<&Recording>, is_attached: bool) -> Option<String> {
    let cpu = Duration::from_nanos(outcome.cpu_used);
    let disabled = recording.and_then(|r| {
        let (process, counters) = r.counters.iter().find(|(_, c)| c.disabled != 0)?;
        Some((r.processes.get(*process as usize)?.pid, counters.disabled))
    });
    if let Some((pid, errno)) = disabled {
        let why = std::io::Error::from_raw_os_error(errno as i32);
        return Some(format!("process {pid} stopped recording: {why}"));
    }
    let unrecorded = outcome.unrecorded.iter().map(|line| line.strip_prefix(NOT_RECORDED).unwrap_or(line));
    if !outcome.unrecorded.is_empty() && !is_attached {
        return Some(unrecorded.collect::<Vec<_>>().join("\n  "));
    }
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    if !is_attached && recording.is_none_or(|r| r.settings.flags & FLAG_WALL == 0) && blocks_samples(&status) {
        return Some(format!(
            "SIGSTKFLT, the signal that samples threads, was blocked when uu was started, and so it was in the program, \
             which used {} of CPU. Start uu with it unblocked",
            milliseconds(cpu)
        ));
    }
    None
}

/// Why a program that could be sampled was not.
fn unsampled(outcome: &Outcome, recording: Option<&Recording>, rate: u32) -> String {
    let cpu = Duration::from_nanos(outcome.cpu_used);
    if recording.is_some_and(|r| r.processes.is_empty()) {
        return format!(
            "no process took part, and the program ended before uu could see why. It used {} of CPU",
            milliseconds(cpu)
        );
    }
    let was_paused = recording.and_then(|r| r.notes.iter().find(|note| note.starts_with(PAUSED)));
    if let Some(note) = was_paused {
        let used = milliseconds(cpu);
        return format!(
            "{note}; the program used {used} of CPU. `uu resume PID` goes on, or uu_record_start() of uu.h"
        );
    }
    if recording.is_some_and(|r| r.counters.iter().any(|(_, counters)| counters.paused > 0)) {
        return "the program had paused its recording by uu_record_stop() of uu.h".to_owned();
    }
    let without_children = recording.is_some_and(|r| r.settings.flags & FLAG_NO_CHILDREN != 0);
    let children = if without_children { ". Children are not recorded with --no-children" } else { "" };
    if recording.is_some_and(Recording::is_alloc) {
        let own = recording.and_then(|r| r.notes.iter().find(|note| note.contains(super::OWN_MALLOC)));
        if let Some(note) = own {
            return note.clone();
        }
        return match rate {
            1 => "no call of malloc or its relatives was met while the program was recorded".to_owned(),
            _ => format!("no allocation was sampled, one in {rate} bytes on average. Give it more work, or use --all"),
        };
    }
    if recording.is_some_and(Recording::is_lock) {
        return match rate {
            1 => "no thread waited for a lock, in a function that uu stands before, while it was recorded".to_owned(),
            _ => {
                format!("no wait was sampled, one in {rate} ns of waiting on average. Give it more time, or use --all")
            }
        };
    }
    if recording.is_some_and(|r| r.settings.flags & FLAG_WALL != 0) {
        let seconds = outcome.wall.as_secs_f64();
        return format!("the program ran for {seconds:.3} s, and no thread was there for a whole period at {rate} Hz");
    }
    let text = computed(cpu, outcome.wall, rate, recording.map_or(0, |r| r.settings.kernel_hz));
    format!("{text}{children}")
}

/// The reason for a program that was recorded for `wall` and used `cpu`. `kernel_hz` is 0 if it is not available.
fn computed(cpu: Duration, wall: Duration, rate: u32, kernel_hz: u32) -> String {
    let used = format!("the program used {} of CPU", milliseconds(cpu));
    let period = Duration::from_secs(1) / rate.max(1);
    if cpu < period * 2 && wall > period * 2 && wall > cpu * WAITED {
        let seconds = wall.as_secs_f64();
        return format!(
            "{used} in {seconds:.1} s: it waited nearly all the time, and uu samples CPU time. `--mode wall` \
             shows where it waits"
        );
    }
    if kernel_hz != 0 && kernel_hz < rate {
        let tick = milliseconds(Duration::from_secs(1) / kernel_hz);
        return format!(
            "{used}, and the kernel looks at CPU timers only at its ticks, every {tick}: a thread that lives shorter may meet \
             none. Give it more work"
        );
    }
    let period_text = milliseconds(period);
    if cpu >= period {
        return format!(
            "{used}, but no thread of it was seen to use a whole period of the sampling timer ({period_text} at {rate} Hz) \
             while it was recorded: its threads ended sooner, or the machine ran something else at each tick of the kernel, which \
             looks at such timers only then. Give it more work, or a higher rate with -r"
        );
    }
    format!(
        "{used}, under one period of the sampling timer ({period_text} at {rate} Hz). Give it more work, or a higher rate with -r"
    )
}

/// Whether a thread with this status blocks SIGSTKFLT, as do the programs that it starts
/// ([proc_pid_status(5)](https://man7.org/linux/man-pages/man5/proc_pid_status.5.html)).
fn blocks_samples(status: &str) -> bool {
    const SIGSTKFLT: u32 = 16;
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigBlk:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (SIGSTKFLT - 1) & 1 != 0)
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_recording::Start;

    #[test]
    fn starts_of_short_programs_are_a_result() {
        let of = |starts: u32, weight: u32| {
            let starts = (0..starts).map(|_| Start { thread: 0, time: 0, weight }).collect();
            Recording { starts, ..Recording::default() }
        };
        for (samples, starts, empty) in
            [(0, of(0, 0), true), (0, of(3, 3), true), (0, of(5, 2), false), (1, of(0, 0), false)]
        {
            assert_eq!(is_empty(samples, Some(&starts)), empty, "{samples} {:?}", starts.starts);
        }
        assert!(is_empty(0, None) && !is_empty(1, None));
    }

    #[test]
    fn a_higher_rate_is_advised_only_where_the_kernels_tick_lets_it_help() {
        for (used, rate, kernel_hz, words, higher) in [
            (1.7, 99, 250, "under one period of the sampling timer (10.1 ms at 99 Hz)", true),
            (30.0, 99, 250, "no thread of it was seen to use a whole period of the sampling timer (10.1 ms", true),
            (2.3, 1000, 250, "at its ticks, every 4.0 ms", false),
            (16.1, 10_000, 100, "at its ticks, every 10.0 ms", false),
            (0.5, 1000, 0, "under one period of the sampling timer (1.0 ms at 1000 Hz)", true),
        ] {
            let cpu = Duration::from_secs_f64(used / 1e3);
            let text = computed(cpu, cpu * 2, rate, kernel_hz);
            assert!(text.contains(words) && text.contains(&format!("{used:.1} ms of CPU")), "{text}");
            assert_eq!(text.contains("higher rate"), higher, "{text}");
        }
    }

    #[test]
    fn a_mask_that_was_inherited_is_recognised() {
        assert!(blocks_samples("Name:\tuu\nSigBlk:\t0000000000008001\nSigIgn:\t0000000000000000\n"));
        for status in ["SigBlk:\t0000000000007fff\n", "SigIgn:\t0000000000008000\n", "SigBlk:\tx\n", ""] {
            assert!(!blocks_samples(status), "{status}");
        }
    }

    #[test]
    fn a_program_that_waited_is_not_advised_to_work_more() {
        let text = computed(Duration::from_millis(3), Duration::from_millis(4900), 99, 250);
        assert!(text.contains("3.0 ms of CPU in 4.9 s: it waited") && !text.contains("more work"), "{text}");
    }
}
