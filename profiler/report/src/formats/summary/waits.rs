//! What a summary says of waiting, where threads that wait were sampled, too.

use super::own_code::{frames, own_code};
use super::{percent, Style};
use crate::paths::shortened;
use crate::stacks::{Kind, Line, Profile, Stack};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use uunwind_recording::{Recording, Wait};

/// Waits that are shown, and in a verbose summary.
const ROWS: usize = 5;
const VERBOSE_ROWS: usize = 10;
/// Callers of a wait that are shown.
const CALLERS: usize = 4;
/// Idle threads that are named, and in a verbose summary.
const IDLE: usize = 3;
const VERBOSE_IDLE: usize = 20;
/// Shortest time without a CPU that is worth a line, in seconds.
const QUEUED: f64 = 0.1;
/// Shortest time of waiting in no sample that is worth a line, in seconds.
const UNSEEN: f64 = 0.02;
/// Single waits that are shown, and in a verbose summary.
const SINGLE: usize = 3;
const VERBOSE_SINGLE: usize = 10;
/// Columns used beside the names.
const USED: usize = 22;

// Writing to a String cannot fail, so the results of `writeln!` below are dropped.

/// How the time of all threads is divided, and what is not shown of it.
pub fn split(recording: &Recording, profile: &Profile, style: Style) -> String {
    let rate = f64::from(recording.settings.rate.max(1));
    let sum = |waits: bool| {
        let stacks = profile.stacks.iter().filter(|stack| profile.waits(stack) == waits);
        stacks.fold(0u64, |sum, stack| sum.saturating_add(stack.weight))
    };
    let (running, waiting) = (sum(false), sum(true));
    let all = running.saturating_add(waiting);
    let mut out = format!(
        "  threads'   {:.2} s of time: running {:.2} s ({:.1} %), waiting {:.2} s ({:.1} %)\n",
        all as f64 / rate,
        running as f64 / rate,
        percent(running, all),
        waiting as f64 / rate,
        percent(waiting, all)
    );
    // Ready threads neither run nor wait in a call.
    let queued = recording.counters.iter().fold(0u64, |sum, (_, counters)| sum.saturating_add(counters.run_delay));
    let queued = queued as f64 / 1e9;
    if queued >= QUEUED && queued * 100.0 >= all as f64 / rate {
        let _ = writeln!(
            out,
            "  queued     {queued:.2} s more, in which threads were ready and other programs had the CPUs: in no sample"
        );
    }
    let unseen = recording.counters.iter().fold(0u64, |sum, (_, counters)| sum.saturating_add(counters.waits_unseen));
    let unseen = unseen as f64 / 1e9;
    if unseen >= UNSEEN && unseen * 100.0 >= all as f64 / rate {
        let _ = writeln!(
            out,
            "  unseen     up to {unseen:.2} s of waiting were not seen, and are in no sample: threads that live shorter than \
             two looks, ends"
        );
    }
    let idle = &profile.idle;
    if !idle.threads.is_empty() {
        let (threads, one) = if idle.threads.len() == 1 { ("thread", "it") } else { ("threads", "each of them") };
        let _ = writeln!(
            out,
            "  idle       {} {threads}, {:.2} s: {one} was only seen waiting, in one place, and is not shown without -i",
            idle.threads.len(),
            idle.weight as f64 / rate
        );
        let lines = shortened(recording, &profile.lines);
        let shown = if style.verbose { VERBOSE_IDLE } else { IDLE };
        let mut stacks: Vec<&Stack> = idle.stacks.iter().collect();
        stacks.sort_by(|a, b| b.weight.cmp(&a.weight).then(a.thread.cmp(&b.thread)));
        for stack in stacks.iter().take(shown) {
            let thread = recording.threads.get(stack.thread as usize).map_or("", |thread| &thread.name);
            let place = format!("{} ({})", text(recording, profile, &lines, stack), super::super::printable(thread));
            let _ = writeln!(out, "             {:>7.2}s  {}", stack.weight as f64 / rate, style.name(&place, USED));
        }
        if stacks.len() > shown {
            let _ = writeln!(out, "             and {} more", stacks.len() - shown);
        }
    }
    out
}

/// The waits with most time, by what was called and who called it; and the longest single ones.
pub fn render(recording: &Recording, profile: &Profile, lines: &[Line], style: Style) -> Vec<String> {
    let rate = f64::from(recording.settings.rate.max(1));
    let all = profile.stacks.iter().fold(0u64, |sum, stack| sum.saturating_add(stack.weight));
    let mut waits: HashMap<String, u64> = HashMap::new();
    for stack in profile.stacks.iter().filter(|stack| profile.waits(stack)) {
        let weight = waits.entry(text(recording, profile, lines, stack)).or_default();
        *weight = weight.saturating_add(stack.weight);
    }
    let mut rows: Vec<(String, u64)> = waits.into_iter().collect();
    if rows.is_empty() {
        return Vec::new();
    }
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    rows.truncate(if style.verbose { VERBOSE_ROWS } else { ROWS });
    let names: Vec<String> = rows.iter().map(|(text, _)| text.clone()).collect();
    let mut out = format!("{}\n    share     time\n", style.heading("Longest waits, with who waits"));
    let (shown, legend) = style.names_with_legend(&names, USED);
    for ((_, weight), name) in rows.iter().zip(shown) {
        let (share, time) = (percent(*weight, all), *weight as f64 / rate);
        let _ = writeln!(out, "  {share:>5.1} % {time:>7.2}s  {name}");
    }
    out.push_str(&legend);
    [out].into_iter().chain(single(recording, profile, lines, style)).collect()
}

/// The longest of the single waits. Of a selection, those whose stacks are in it.
fn single(recording: &Recording, profile: &Profile, lines: &[Line], style: Style) -> Option<String> {
    // An idle thread has one stack, and waits in it all the time.
    let of_idle = |thread: u32| profile.idle.stacks.iter().find(|stack| stack.thread == thread);
    let of = |(wait, stack): (&'_ Wait, Option<u32>)| {
        let stack = stack.and_then(|stack| profile.stacks.get(stack as usize)).or_else(|| of_idle(wait.thread));
        (*wait, stack)
    };
    let is_meant = |(_, stack): &(Wait, Option<&Stack>)| stack.is_some() || !profile.selected;
    let mut waits: Vec<(Wait, Option<&Stack>)> = single_waits(recording, profile).map(of).filter(is_meant).collect();
    waits.sort_by_key(|(wait, _)| std::cmp::Reverse(wait.duration));
    if waits.is_empty() {
        return None;
    }
    let heading = format!("Longest of {} single waits", waits.len());
    let mut out = format!("{}\n     length  began at\n", style.heading(&heading));
    for (wait, stack) in waits.into_iter().take(if style.verbose { VERBOSE_SINGLE } else { SINGLE }) {
        let thread = recording.threads.get(wait.thread as usize).map_or("", |thread| &thread.name);
        let what = stack.map_or_else(|| "not looked at".to_owned(), |stack| text(recording, profile, lines, stack));
        let begin = wait.begin.saturating_sub(recording.settings.start_monotonic) as f64 / 1e9;
        let what = style.name(&format!("{what} ({})", super::super::printable(thread)), USED);
        let _ = writeln!(out, "  {:>7.1} ms  {begin:>7.3}s  {what}", wait.duration as f64 / 1e6);
    }
    Some(out)
}

/// The single waits, in the order in which they ended, each with its stack (an index), if it was looked at and is
/// shown.
pub fn single_waits<'r>(
    recording: &'r Recording,
    profile: &Profile,
) -> impl Iterator<Item = (&'r Wait, Option<u32>)> + 'r {
    let mut looks: HashMap<u32, BTreeMap<u64, u32>> = HashMap::new();
    for entry in &profile.entries {
        if let Some(stack) = profile.stacks.get(entry.stack as usize).filter(|stack| profile.waits(stack)) {
            looks.entry(stack.thread).or_default().insert(entry.time, entry.stack);
        }
    }
    recording.waits.iter().map(move |wait| {
        let within = wait.begin..=wait.begin.saturating_add(wait.duration);
        let look = looks.get(&wait.thread).and_then(|looks| looks.range(within).next());
        (wait, look.map(|(_, stack)| *stack))
    })
}

/// Who waits, and in what: the innermost functions of the program's [own code](own_code).
/// `lines`: those of the profile, with paths as people say them.
fn text(recording: &Recording, profile: &Profile, lines: &[Line], stack: &Stack) -> String {
    let call = stack.lines.first().and_then(|line| profile.lines.get(*line as usize));
    let call = call.map_or("", |line| &line.function);
    let callers: Vec<_> = frames(profile, stack).filter(|(line, _)| line.kind != Kind::Waiting).collect();
    let shown = own_code(recording, &callers);
    let shown = shown.iter().take(CALLERS);
    let name = |(line, at): &(&Line, usize)| match line.kind {
        Kind::Semantic | Kind::Awaiting => lines.get(*at).unwrap_or(line).folded(),
        _ => line.function.clone(),
    };
    let mut names = shown.map(name);
    let first = names.next().map_or_else(|| call.to_owned(), |first| format!("{first} {call}"));
    std::iter::once(first).chain(names).collect::<Vec<_>>().join(" < ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::without_idle;
    use uunwind_recording::{Counters, Thread};

    fn profile() -> Profile {
        let kinds = [("[waiting in read]", Kind::Waiting), ("work", Kind::Native), ("main", Kind::Native)];
        let lines = kinds.map(|(name, kind)| Line { kind, ..Line::marker(name.to_owned()) }).to_vec();
        let stack =
            |thread, lines: &[u32], weight| Stack { thread, lines: lines.into(), labels: 0, samples: weight, weight };
        let stacks = vec![stack(0, &[0, 1, 2], 30), stack(0, &[1, 2], 10), stack(1, &[0, 2], 60)];
        Profile { lines, stacks, ..Profile::default() }
    }

    #[test]
    fn time_is_divided_and_waits_have_their_callers() {
        let mut recording = Recording::default();
        recording.settings.rate = 10;
        let all = profile();
        assert!(split(&recording, &all, super::super::PLAIN)
            .contains("10.00 s of time: running 1.00 s (10.0 %), waiting 9.00 s (90.0 %)"));
        let text = render(&recording, &all, &all.lines, super::super::PLAIN).join("\n");
        let rows: Vec<&str> = text.lines().skip(2).filter(|line| !line.is_empty()).collect();
        assert_eq!(
            rows,
            ["   60.0 %    6.00s  main [waiting in read]", "   30.0 %    3.00s  work [waiting in read] < main"]
        );
    }

    /// On a busy machine much of the time passes while threads neither run nor wait in a call.
    #[test]
    fn time_without_a_cpu_is_said() {
        let profile = Profile {
            stacks: vec![Stack { thread: 0, lines: [1].into(), labels: 0, samples: 1, weight: 63 }],
            ..profile()
        };
        for (delay, is_said) in [(2_500_000_000, true), (50_000_000, false), (0, false)] {
            let counters = Counters { run_delay: delay, ..Counters::default() };
            let mut recording = Recording { counters: vec![(0, counters)], ..Recording::default() };
            recording.settings.rate = 100;
            let said = split(&recording, &profile, super::super::PLAIN);
            assert_eq!(said.contains("queued     2.50 s more"), is_said, "{said}");
            assert_eq!(said.contains("queued"), is_said, "{said}");
        }
    }

    /// A wait begins with the program's own code, not with the library that it waits in.
    #[test]
    fn the_programs_own_code_comes_first() {
        let scripted = |function: &str, file: &str| Line {
            kind: Kind::Semantic,
            file: file.to_owned(),
            line: 7,
            ..Line::marker(function.to_owned())
        };
        let lines = vec![
            Line { kind: Kind::Waiting, ..Line::marker("[waiting in futex]".to_owned()) },
            scripted("join", "/usr/lib/language/threading.x"),
            scripted("work", "/app/slow.x"),
            scripted("run", "<frozen runner>"),
            scripted("main", "/app/slow.x"),
        ];
        let stack = |lines: &[u32]| Stack { thread: 0, lines: lines.into(), labels: 0, samples: 1, weight: 1 };
        let profile = Profile { lines, ..Profile::default() };
        let text = |lines: &[u32]| text(&Recording::default(), &profile, &profile.lines, &stack(lines));
        assert_eq!(text(&[0, 1, 2, 3, 4]), "work (/app/slow.x:7) [waiting in futex] < main (/app/slow.x:7)");
        assert_eq!(text(&[0, 1]), "join (/usr/lib/language/threading.x:7) [waiting in futex]");
        assert_eq!(text(&[0]), "[waiting in futex]");
    }

    /// In native code, too: what a library's template or the C++ library does for the program is not its own.
    #[test]
    fn the_programs_own_native_code_comes_first() {
        let native = |function: &str, file: &str| Line {
            kind: Kind::Native,
            file: file.to_owned(),
            ..Line::marker(function.to_owned())
        };
        let lines = vec![
            Line { kind: Kind::Waiting, ..Line::marker("[waiting in futex]".to_owned()) },
            native("pthread_cond_wait", "./nptl/pthread_cond_wait.c"),
            native("std::condition_variable::wait", ""),
            native("std::condition_variable::wait<>", "/usr/include/c++/12/condition_variable"),
            native("Queue::take", "/srv/queue.cpp"),
            native("main", "/srv/main.cpp"),
        ];
        let profile = Profile { lines, ..Profile::default() };
        let text = |frames: &[u32]| {
            let stack = Stack { thread: 0, lines: frames.into(), labels: 0, samples: 1, weight: 1 };
            text(&Recording::default(), &profile, &profile.lines, &stack)
        };
        assert_eq!(text(&[0, 1, 2, 3, 4, 5]), "Queue::take [waiting in futex] < main");
        assert!(text(&[0, 1, 2]).starts_with("pthread_cond_wait [waiting in futex]"), "nothing is its own");
    }

    /// The look of a wait is its thread's, and lies in it.
    #[test]
    fn single_waits_have_the_stacks_that_were_seen_in_them() {
        let entry = |time, stack| crate::stacks::Entry { time, stack, weight: 1, sample: 0 };
        let all = Profile { entries: vec![entry(150, 0), entry(160, 1), entry(150, 2), entry(900, 0)], ..profile() };
        let wait = |thread, begin, duration| Wait { thread, begin, duration };
        let waits = vec![wait(0, 100, 50), wait(0, 151, 20), wait(1, 140, 20), wait(7, 0, u64::MAX)];
        let mut recording = Recording { waits, ..Recording::default() };
        recording.settings.rate = 10;
        let found: Vec<_> = single_waits(&recording, &all).map(|(_, stack)| stack).collect();
        assert_eq!(found, [Some(0), None, Some(2), None]);
        recording.waits.truncate(3);
        let text = render(&recording, &all, &all.lines, super::super::PLAIN).join("\n");
        assert!(text.contains("Longest of 3 single waits") && text.contains("not looked at"), "{text}");
        // Whether one was looked at whose stack is not selected, a part of the recording does not say.
        let part = Profile { selected: true, ..all };
        let text = render(&recording, &part, &part.lines, super::super::PLAIN).join("\n");
        assert!(text.contains("Longest of 2 single waits") && !text.contains("not looked at"), "{text}");
    }

    /// A thread that only waits in one place is left out, but not the last one.
    #[test]
    fn idle_threads_are_left_out_unless_there_are_no_others() {
        let entry = |stack, weight| crate::stacks::Entry { time: 0, stack, weight, sample: 0 };
        let all = Profile { entries: vec![entry(0, 30), entry(1, 10), entry(2, 60)], ..profile() };
        let shown = without_idle(all.clone());
        assert_eq!((shown.stacks.len(), shown.idle.threads.len(), shown.idle.weight), (2, 1, 60));
        assert!(shown.stacks.iter().all(|stack| stack.thread == 0));
        let mut recording = Recording::default();
        recording.settings.rate = 10;
        let thread = |tid, name: &str| Thread { process: 0, tid, name: name.to_owned() };
        recording.threads = vec![thread(1, "main"), thread(2, "worker")];
        let text = split(&recording, &shown, super::super::PLAIN);
        assert!(text.contains("idle       1 thread, 6.00 s"), "{text}");
        // It is named, with where it waits, and so are its single waits.
        assert!(text.contains("\n                6.00s  main [waiting in read] (worker)\n"), "{text}");
        recording.waits = vec![Wait { thread: 1, begin: 100, duration: 50 }];
        let text = render(&recording, &shown, &shown.lines, super::super::PLAIN).join("\n");
        assert!(text.contains("main [waiting in read] (worker)") && !text.contains("not looked at"), "{text}");
        let idle_only = Profile { stacks: all.stacks[2..].to_vec(), entries: vec![entry(0, 60)], ..all };
        assert_eq!(without_idle(idle_only).stacks.len(), 1);
    }
}
