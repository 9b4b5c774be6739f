//! The head of the summary: rate, CPU time, stacks, losses, notes.

use super::{counted, percent, Style};
use crate::recording::{Counters, EndCause, Recording};
use crate::resolve::stop_text;
use crate::stacks::Profile;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use uunwind_core::stop_reason::StopReason;
use uunwind_ring::record::{SampleKind, SAMPLE_BLOCKED, SAMPLE_DESYNC, SAMPLE_FACTS_PENDING, SAMPLE_NO_PLUGINS};

// Writing to a String cannot fail, so the results of `writeln!` below are dropped.

pub fn render(recording: &Recording, profile: &Profile, unusable: &[(u32, String)], style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", style.heading(&format!("CPU profile of {}", crate::formats::command(recording))));
    for warning in &recording.warnings {
        let _ = writeln!(out, "  {}", style.alert(&format!("warning: {}", crate::formats::printable(warning))));
    }
    rate_and_time(recording, &mut out);
    stacks(recording, &mut out);
    losses(recording, style, &mut out);
    processes(recording, &mut out);
    for note in &recording.notes {
        let _ = writeln!(out, "  note       {}", crate::formats::printable(note));
    }
    names(recording, profile, unusable, &mut out);
    out
}

fn rate_and_time(recording: &Recording, out: &mut String) {
    let settings = &recording.settings;
    // What a thread asked for by itself stands for no CPU time.
    let timed = recording.samples.iter().filter(|s| s.kind == SampleKind::Timer as u8);
    let (samples, weight) = timed.fold((0u64, 0u64), |(n, w), s| (n + 1, w.saturating_add(u64::from(s.weight.max(1)))));
    let sampled = weight as f64 / f64::from(settings.rate.max(1));
    let used = recording.end.as_ref().map(|e| e.cpu_used as f64 / 1e9).filter(|used| *used > 0.0);
    let obtained =
        used.map_or_else(String::new, |used| format!(", {:.1} samples per CPU second obtained", samples as f64 / used));
    let above_tick = settings.kernel_hz != 0 && settings.rate > settings.kernel_hz;
    let tick = if above_tick {
        format!(" (the kernel's timer ticks at {} Hz; each sample stands for several periods)", settings.kernel_hz)
    } else {
        String::new()
    };
    let _ = writeln!(out, "  rate       {} Hz asked{obtained}{tick}", settings.rate);
    let of_used = match used {
        None => ", CPU time used is not known".to_owned(),
        Some(used) => {
            // The kernel adds up children when they are waited for.
            let why =
                if sampled > used * 1.1 { "; children that nobody waited for are not in what was used" } else { "" };
            format!(" of {used:.2} s used ({:.0} %{why})", sampled * 100.0 / used)
        }
    };
    let _ = writeln!(out, "  CPU time   {sampled:.2} s sampled{of_used}");
    if let Some(end) = &recording.end {
        let wall = end.time.saturating_sub(settings.start_monotonic) as f64 / 1e9;
        let why = match end.cause {
            EndCause::ProgramEnded => "until the program ended",
            EndCause::Duration => "until the time asked for was over",
        };
        let _ = writeln!(out, "  duration   {wall:.2} s, {why}; uu used {:.2} s of CPU", end.recorder_cpu as f64 / 1e9);
    }
}

fn stacks(recording: &Recording, out: &mut String) {
    let total = recording.samples.len() as u64;
    let (mut complete, mut by_fp) = (0u64, 0u64);
    let mut failed: BTreeMap<String, u64> = BTreeMap::new();
    for sample in &recording.samples {
        match sample.reason() {
            Some(r) if r.is_complete() => complete += 1,
            Some(StopReason::FramePointerEnd) => by_fp += 1,
            _ => *failed.entry(stop_text(sample)).or_default() += 1,
        }
    }
    let fails: u64 = failed.values().sum();
    let _ = writeln!(
        out,
        "  samples    {total}: {complete} complete ({:.1} %), {by_fp} ended by frame pointers, {fails} failed",
        percent(complete, total)
    );
    for (reason, count) in failed {
        let _ = writeln!(out, "             {count:>8} failed: {reason}");
    }
    for (bit, text) in [
        (SAMPLE_BLOCKED, "weighed while signals were blocked (their excess is in [signals blocked])"),
        (
            SAMPLE_FACTS_PENDING,
            "taken before every object in them was analysed (frames of an interpreter may be missing)",
        ),
        (SAMPLE_DESYNC, "with interpreter frames missing or doubtful"),
        (SAMPLE_NO_PLUGINS, "walked without plugins (SEGV blocked, or a small signal stack)"),
    ] {
        let count = recording.samples.iter().filter(|s| s.flags & bit != 0).count();
        if count > 0 {
            let _ = writeln!(out, "             {count:>8} {text}");
        }
    }
}

fn losses(recording: &Recording, style: Style, out: &mut String) {
    let lost: u64 = recording.lost.iter().fold(0, |sum, l| sum.saturating_add(l.samples));
    let weight: u64 = recording.lost.iter().fold(0, |sum, l| sum.saturating_add(l.weight));
    let line = format!("  lost       {lost} samples (weight {weight}), the ring was full");
    let _ = match lost {
        0 => writeln!(out, "  lost       0 samples"),
        _ => writeln!(out, "{}", style.alert(&line)),
    };
    let mut sum = Counters::default();
    for (_, counters) in &recording.counters {
        sum.add(counters);
    }
    if sum.frames_told > 0 {
        let share = percent(sum.frames_reused, sum.frames_told);
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
                let _ = writeln!(out, "             {count:>8} {what} not sampled, the session had no room");
            }
        }
    }
    for (process, counters) in &recording.counters {
        let Some(p) = recording.processes.get(*process as usize).filter(|_| counters.disabled != 0) else { continue };
        let why = std::io::Error::from_raw_os_error(counters.disabled as i32);
        let _ = writeln!(out, "{}", style.alert(&format!("  process {} stopped recording: {why}", p.pid)));
    }
}

fn processes(recording: &Recording, out: &mut String) {
    let sampled: BTreeSet<u32> = recording.samples.iter().map(|s| s.thread).collect();
    let pids: BTreeSet<u32> = recording.processes.iter().map(|p| p.pid).collect();
    let _ = writeln!(
        out,
        "  threads    {} sampled of {} seen, in {}",
        sampled.len(),
        recording.threads.len(),
        counted(pids.len(), "process", "processes")
    );
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

/// Objects whose functions could not be named, if a frame of theirs is in a stack.
fn names(recording: &Recording, profile: &Profile, unusable: &[(u32, String)], out: &mut String) {
    let used: BTreeSet<u32> = profile.lines.iter().filter_map(|l| l.object).collect();
    for (object, why) in unusable.iter().filter(|(o, _)| used.contains(o)) {
        let Some(o) = recording.objects.get(*object as usize) else { continue };
        let path = String::from_utf8_lossy(&o.path);
        let path = if path.is_empty() { "an object without a path".into() } else { path };
        let _ =
            writeln!(out, "  no names   for {}: {}", crate::formats::printable(&path), crate::formats::printable(why));
    }
}
