//! The head of the summary: CPU time, stacks, losses; and its end: rate, locks, threads, notes.

use super::samples::render as stacks;
use super::{counted, lock_waits, locks, memory, percent, waits, Style};
use crate::formats::{is_wall, threads};
use crate::stacks::Profile;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use uunwind_core::frame::{frames, Frame};
use uunwind_recording::{Counters, EndCause, Recording, Thread, FROM_OUTSIDE, NOT_RECORDED};
use uunwind_ring::layout::BLOCKS;
use uunwind_ring::record::SampleKind;
use uunwind_ring::{FLAG_AWAITING, FLAG_EVENTS, FLAG_KERNEL, FLAG_NO_REPLAY, FLAG_USER_MODE};

// Writing to a String cannot fail, so the results of `writeln!` below are dropped.

/// Share of the CPU time used above which the part that is in no sample is not explained.
const COVERED: f64 = 0.8;
/// Number of periods below which the part that is in no sample is not explained.
const PERIODS_MISSED: f64 = 10.0;

/// The head of the summary: what was recorded, and how far the rest can be trusted.
pub fn head(recording: &Recording, profile: &Profile, style: Style) -> String {
    let kind = recording.value().profile;
    let title = crate::formats::title(recording, style.width.saturating_sub(kind.len() + 12));
    let mut out = format!("{}\n", style.heading(&format!("{kind} profile of {title}")));
    for warning in &recording.warnings {
        let _ = writeln!(out, "  {}", style.alert(&format!("warning: {}", crate::formats::printable(warning))));
    }
    if profile.selected {
        let (samples, weight) = profile.stacks.iter().fold((0u64, 0u64), |(samples, weight), stack| {
            (samples.saturating_add(stack.samples), weight.saturating_add(stack.weight))
        });
        let amount = recording.value().unit.amount(weight, recording.settings.rate);
        let what = recording.value().text;
        let shown = format!("  shown      {amount} of {what} in {samples} samples, which meet the conditions; the rest of this part is of all");
        let _ = writeln!(out, "{}", style.alert(&shown));
    }
    if recording.is_alloc() {
        memory::head(recording, profile, &mut out);
    } else if recording.is_lock() {
        lock_waits::head(recording, profile, &mut out);
    } else {
        time(recording, &mut out);
    }
    if is_wall(recording) {
        out.push_str(&waits::split(recording, profile, style));
    }
    stacks(recording, profile, style, &mut out);
    losses(recording, style, &mut out);
    out
}

/// The end of the summary: how it was recorded, and what is known besides.
pub fn rest(recording: &Recording, profile: &Profile, unusable: &[(u32, String)], style: Style) -> String {
    let mut out = String::new();
    rate(recording, &mut out);
    if !recording.is_alloc() && !recording.is_lock() {
        locks::render(recording, profile, &mut out);
    }
    awaiting(recording, &mut out);
    processes(recording, style, &mut out);
    for note in &recording.notes {
        let _ = writeln!(out, "  note       {}", crate::formats::printable(note));
    }
    names(recording, profile, unusable, &mut out);
    out
}

/// Four standard deviations, in seconds, of the CPU time that is sampled of many threads or processes that are shorter
/// than a period: each of them is sampled by chance.
fn chance(used: f64, period: f64) -> f64 {
    4.0 * (used * period).sqrt()
}

/// CPU time that the program used, in seconds; `None`: not available.
fn used(recording: &Recording) -> Option<f64> {
    recording.end.as_ref().map(|end| end.cpu_used as f64 / 1e9).filter(|used| *used > 0.0)
}

/// Samples that stand for time, and their weight in periods.
fn timed(recording: &Recording) -> (u64, u64) {
    // A sample that a thread requested stands for no CPU time.
    let timed = recording.samples.iter().filter(|s| s.kind == SampleKind::Timer.number());
    let (samples, weight) = timed.fold((0u64, 0u64), |(n, w), s| (n + 1, w.saturating_add(u64::from(s.weight.max(1)))));
    (samples + recording.left_out.timed.0, weight.saturating_add(recording.left_out.timed.1))
}

fn rate(recording: &Recording, out: &mut String) {
    let settings = &recording.settings;
    if recording.is_alloc() {
        memory::rate(recording, out);
        return duration(recording, out);
    }
    if recording.is_lock() {
        lock_waits::rate(recording, out);
        return duration(recording, out);
    }
    if is_wall(recording) {
        let _ = writeln!(out, "  rate       {} Hz asked, of each thread's time", settings.rate);
        return duration(recording, out);
    }
    let (samples, _) = timed(recording);
    let obtained = used(recording)
        .map_or_else(String::new, |used| format!(", {:.1} samples per CPU second obtained", samples as f64 / used));
    let above_tick = settings.kernel_hz != 0 && settings.rate > settings.kernel_hz;
    let tick = if settings.flags & FLAG_EVENTS != 0 {
        let stacks = match settings.flags & (FLAG_KERNEL | FLAG_USER_MODE) {
            0 => "",
            FLAG_KERNEL => ", with stacks in the kernel",
            _ => " of the user mode",
        };
        format!(" (by perf events{stacks})")
    } else if above_tick {
        format!(" (the kernel's timer ticks at {} Hz; each sample stands for several periods)", settings.kernel_hz)
    } else {
        String::new()
    };
    let _ = writeln!(out, "  rate       {} Hz asked{obtained}{tick}", settings.rate);
    duration(recording, out);
}

fn time(recording: &Recording, out: &mut String) {
    let used = used(recording);
    if is_wall(recording) {
        let used = used.map_or_else(|| "not available".to_owned(), |used| format!("{used:.2} s used"));
        let _ = writeln!(out, "  CPU time   {used}");
        return;
    }
    let (_, weight) = timed(recording);
    let rate = f64::from(recording.settings.rate.max(1));
    let (sampled, period) = (weight.saturating_add(recording.periods_of_starts()) as f64 / rate, 1.0 / rate);
    let of_used = match used {
        None => ", CPU time used is not available".to_owned(),
        // The kernel adds a child's time to its parent's when it is waited for. Without a wait the share would mean
        // nothing.
        Some(used) if sampled > used * 1.1 + period + chance(used, period) => format!(
            "; {used:.2} s used, without processes that had ended and that none of the program's had waited for"
        ),
        // A sample stands for a whole period, part of which may have passed before the recording, or not at all.
        Some(used) => format!(" of {used:.2} s used ({:.0} %)", (sampled * 100.0 / used).min(100.0)),
    };
    let _ = writeln!(out, "  CPU time   {sampled:.2} s sampled{of_used}");
    if used.is_some_and(|used| sampled < used * COVERED && used - sampled > PERIODS_MISSED * period) {
        let _ = writeln!(out, "             the rest: {}", missing(recording).join("; "));
    }
}

fn duration(recording: &Recording, out: &mut String) {
    if let Some(end) = &recording.end {
        let wall = end.time.saturating_sub(recording.settings.start_monotonic) as f64 / 1e9;
        let why = match end.cause {
            EndCause::ProgramEnded => "until the program ended",
            EndCause::Duration => "until the time asked for was over",
            EndCause::Snapshot => "until this snapshot; the recording went on",
            EndCause::Asked => "until it was asked to end",
        };
        let _ = writeln!(out, "  duration   {wall:.2} s, {why}; uu used {:.2} s of CPU", end.recorder_cpu as f64 / 1e9);
    }
}

/// Explanations of the CPU time that is in no sample, as far as the recording has them.
fn missing(recording: &Recording) -> Vec<String> {
    let mut reasons = Vec::new();
    if recording.notes.iter().any(|note| note.starts_with(NOT_RECORDED)) {
        reasons.push("processes that were not recorded, see the notes".to_owned());
    }
    let paused = recording.counters.iter().fold(0u64, |sum, (_, c)| sum.saturating_add(c.paused));
    if paused > 0 {
        let seconds = paused as f64 / f64::from(recording.settings.rate.max(1));
        reasons.push(format!("{seconds:.2} s while the recording was paused"));
    }
    let weight = recording.lost.iter().fold(0u64, |sum, lost| sum.saturating_add(lost.weight));
    if weight > 0 {
        reasons.push(format!(
            "{:.2} s in samples that were lost",
            weight as f64 / f64::from(recording.settings.rate.max(1))
        ));
    }
    // The numbers are the file's, of any size.
    let refused = recording.counters.iter().fold(0u64, |sum, (_, c)| sum.saturating_add(c.timers_failed));
    let roomless =
        recording.end.as_ref().map_or(0, |end| end.threads_without_block.saturating_add(end.processes_without_block));
    let unsampled = refused.saturating_add(roomless);
    if unsampled > 0 {
        reasons.push(format!("{} that could not be sampled, see below", counted_threads(unsampled)));
    }
    let before = recording.counters.iter().fold(0u64, |sum, (_, c)| sum.saturating_add(c.cpu_before));
    if before >= 1_000_000_000 / u64::from(recording.settings.rate.max(1)) {
        reasons.push(format!("{:.2} s before the sampling of threads began", before as f64 / 1e9));
    }
    // Threads without a timer are counted above, as are those all of whose samples were lost.
    let lost = recording.lost.iter().map(|lost| lost.thread);
    let met: BTreeSet<u32> = recording.samples.iter().map(|s| s.thread).chain(lost).collect();
    let unmet = (recording.threads.len().saturating_sub(met.len()) as u64).saturating_sub(refused);
    if unmet > 0 {
        reasons.push(format!(
            "{} that met no tick of the kernel's timer, most of them because they lived shorter than one",
            counted_threads(unmet)
        ));
    }
    if recording.notes.iter().any(|note| note.starts_with(FROM_OUTSIDE)) {
        reasons.push("threads that ended between two looks at them, or that no look found running".to_owned());
    }
    if reasons.is_empty() {
        reasons.push(
            "time before the sampling of a process began, or of threads and processes that were started by raw system calls or \
             that share their parent's memory (vfork)"
                .to_owned(),
        );
    }
    reasons
}

fn counted_threads(count: u64) -> String {
    format!("{count} {}", if count == 1 { "thread" } else { "threads" })
}

/// What awaits the tasks that ran, if it was recorded.
fn awaiting(recording: &Recording, out: &mut String) {
    if recording.settings.flags & FLAG_AWAITING == 0 {
        return;
    }
    let found = recording.nodes.iter().any(|node| {
        let frame = frames(&[node.word, node.position]).next();
        matches!(frame, Some(Frame::Semantic { awaiting: true, .. }))
    });
    let _ = match (found, recording.awaiting) {
        (true, true) => {
            writeln!(out, "  async      frames with [awaiting] are on no stack: they await the task that ran")
        }
        (true, false) => {
            writeln!(out, "  async      what awaits the tasks that ran was recorded, too: shown with --async")
        }
        (false, _) => writeln!(
            out,
            "  async      nothing was found that awaits the tasks that ran (`uu record --help` says \
             where it is looked for)"
        ),
    };
}

fn losses(recording: &Recording, style: Style, out: &mut String) {
    let lost: u64 = recording.lost.iter().fold(0, |sum, l| sum.saturating_add(l.samples));
    let weight: u64 = recording.lost.iter().fold(0, |sum, l| sum.saturating_add(l.weight));
    if lost > 0 && !recording.is_alloc() && !recording.is_lock() {
        let seconds = weight as f64 / f64::from(recording.settings.rate.max(1));
        let line = format!(
            "  lost       {lost} samples of {seconds:.2} s: uu did not come to read them in time. A lower rate (-r) helps"
        );
        let _ = writeln!(out, "{}", style.alert(&line));
    }
    let mut sum = Counters::default();
    for (_, counters) in &recording.counters {
        sum.add(counters);
    }
    if !style.verbose {
        // These are no losses: all these frames are in the stacks.
        (sum.interpreted, sum.objects_full) = (0, 0);
    } else if recording.settings.flags & FLAG_NO_REPLAY != 0 {
        let _ = writeln!(out, "  reuse      none: every frame of every sample was walked anew (--no-replay)");
    } else if sum.frames_emitted > 0 {
        let share = percent(sum.frames_reused, sum.frames_emitted);
        let _ = writeln!(
            out,
            "  reuse      {share:.1} % of all frames were those of the thread's sample before, proved word by word"
        );
    }
    for (text, count) in sum.losses() {
        let _ = writeln!(out, "             {count:>8} {text}");
    }
    if let Some(end) = &recording.end {
        for (count, what) in [(end.threads_without_block, "threads"), (end.processes_without_block, "processes")] {
            if count > 0 {
                let _ = writeln!(
                    out,
                    "             {count:>8} {what} not sampled: at most {BLOCKS} processes and threads are sampled at the same time (fewer where \
                     address space is limited: ulimit -v). Have the program run fewer threads at once, or leave child processes out (--no-children)"
                );
            }
        }
    }
    for (process, counters) in &recording.counters {
        let Some(p) = recording.processes.get(*process as usize).filter(|_| counters.disabled != 0) else { continue };
        let why = std::io::Error::from_raw_os_error(counters.disabled as i32);
        let _ = writeln!(out, "{}", style.alert(&format!("  process {} stopped recording: {why}", p.pid)));
    }
}

fn processes(recording: &Recording, style: Style, out: &mut String) {
    // By their ids: a process that becomes another program is seen anew, and so is its thread.
    let id = |thread: &Thread| (threads::pid(recording, thread.process), thread.tid);
    let by_index = |index: u32| recording.threads.get(index as usize).map(id);
    let seen: BTreeSet<(u32, u32)> = recording.threads.iter().map(id).collect();
    let sampled: BTreeSet<(u32, u32)> = recording.samples.iter().filter_map(|s| by_index(s.thread)).collect();
    let pids: BTreeSet<u32> = recording.processes.iter().map(|p| p.pid).collect();
    let of_processes: BTreeSet<u32> = seen.iter().map(|(pid, _)| *pid).collect();
    let (count, sampled) = (pids.len(), sampled.len());
    let _ = match (seen.len(), count) {
        (1, 1) if sampled == 1 && !style.verbose => Ok(()),
        (threads, processes @ 2..) if threads == of_processes.len() => {
            writeln!(out, "  processes  {processes}, of one thread each; {sampled} of them sampled")
        }
        (threads, _) => {
            let processes = counted(count, "process", "processes");
            writeln!(out, "  threads    {sampled} sampled of {threads} seen, in {processes}")
        }
    };
    if !style.verbose {
        return;
    }
    let mut plugins: BTreeMap<&str, u64> = BTreeMap::new();
    for process in &recording.processes {
        for plugin in process.plugins.iter().filter(|p| !p.is_empty()) {
            *plugins.entry(plugin).or_default() += 1;
        }
    }
    let list: Vec<String> = plugins.keys().map(|name| crate::formats::printable(name)).collect();
    let list = if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    let _ = writeln!(out, "  plugins    {list}");
}

/// Objects whose functions could not be named, or not with all of their lines, if a frame of theirs is in a stack.
fn names(recording: &Recording, profile: &Profile, unusable: &[(u32, String)], out: &mut String) {
    let used: BTreeSet<u32> = profile.lines.iter().filter_map(|l| l.object).collect();
    for (object, why) in unusable.iter().filter(|(o, _)| used.contains(o)) {
        let Some(o) = recording.objects.get(*object as usize) else { continue };
        let path = String::from_utf8_lossy(&o.path);
        let path = if path.is_empty() { "an object without a path".into() } else { path };
        let _ = writeln!(out, "  names      {}: {}", crate::formats::printable(&path), crate::formats::printable(why));
    }
}
