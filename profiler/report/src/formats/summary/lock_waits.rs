//! The summary of a recording of waits for locks: how many there were, for how long, for which locks, and who had them.

use super::own_code::{frames, own_code};
use super::{counted, percent, Style};
use crate::lock_frames::holder;
use crate::stacks::{Kind, Line, Profile};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use uunwind_recording::{LockWait, Recording, Unit};

// Writing to a String cannot fail, so the results of `writeln!` below are dropped.

/// Locks in the table; with `-v` [`MORE`].
const ROWS: usize = 5;
const MORE: usize = 20;
/// Holders of a lock that are named.
const HOLDERS: usize = 3;

/// What some waits add up to.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: f64,
    /// In ns.
    time: f64,
    longest: u64,
}

impl Sum {
    fn add(&mut self, recording: &Recording, wait: &LockWait) {
        let amount = recording.waited(wait);
        (self.count, self.time) = (self.count + amount.count, self.time + amount.bytes);
        self.longest = self.longest.max(wait.duration);
    }

    fn waits(&self) -> String {
        counted(self.count.round() as usize, "wait", "waits")
    }
}

fn time(ns: f64) -> String {
    Unit::Nanoseconds.amount(ns.round() as u64, 1)
}

/// The waits whose samples are shown, each with its stack.
fn shown<'r>(recording: &'r Recording, profile: &'r Profile) -> impl Iterator<Item = (&'r LockWait, u32)> {
    let stacks: HashMap<usize, u32> =
        profile.entries.iter().map(|entry| (entry.sample as usize, entry.stack)).collect();
    recording.lock_waits.iter().filter_map(move |wait| Some((wait, *stacks.get(&wait.sample)?)))
}

/// All waits together.
pub fn head(recording: &Recording, profile: &Profile, out: &mut String) {
    let mut kinds: BTreeMap<&str, Sum> = BTreeMap::new();
    let mut all = Sum::default();
    for (wait, _) in shown(recording, profile) {
        all.add(recording, wait);
        kinds.entry(wait.what()).or_default().add(recording, wait);
    }
    let _ =
        writeln!(out, "  waited     {} in {}; the longest {}", time(all.time), all.waits(), time(all.longest as f64));
    let mut kinds: Vec<(&str, Sum)> = kinds.into_iter().collect();
    kinds.sort_by(|(_, a), (_, b)| b.time.total_cmp(&a.time));
    for (what, sum) in kinds {
        let _ = writeln!(out, "             {:>10} in {} for {}", time(sum.time), sum.waits(), article(what));
    }
}

/// With the article that people would write.
fn article(what: &str) -> String {
    match what {
        "end of a thread" => format!("the {what}"),
        _ => format!("a {what}"),
    }
}

/// What was sampled.
pub fn rate(recording: &Recording, out: &mut String) {
    let rate = recording.settings.rate;
    let _ = match rate {
        0 | 1 => writeln!(out, "  rate       every wait"),
        _ => writeln!(
            out,
            "  rate       one wait in {} of waiting on average; times and numbers are estimates, from {} samples",
            time(rate.into()),
            recording.lock_waits.len()
        ),
    };
    let lost = recording.counters.iter().fold(0u64, |sum, (_, c)| sum.saturating_add(c.allocated_lost));
    if lost > 0 {
        let _ = writeln!(out, "  lost       {} of sampled waits are in none of these", time(lost as f64));
    }
}

/// The locks that were waited for most, each with the place that waited most for it, and who had it.
pub fn render(recording: &Recording, profile: &Profile, lines: &[Line], style: Style) -> Option<String> {
    if !recording.is_lock() {
        return None;
    }
    let mut locks: HashMap<(u32, u64, u32), Lock> = HashMap::new();
    for (wait, stack) in shown(recording, profile) {
        let thread = profile.stacks.get(stack as usize).map_or(0, |stack| stack.thread);
        let process = recording.threads.get(thread as usize).map_or(0, |thread| thread.process);
        // The ends of threads are no locks of their own.
        let address = if wait.is_end_of_thread() { 0 } else { wait.lock };
        let lock = locks.entry((process, address, wait.kind)).or_insert_with(|| Lock::of(wait));
        let weight = recording.waited(wait).bytes;
        lock.sum.add(recording, wait);
        *lock.places.entry(place(recording, profile, lines, stack)).or_default() += weight;
        if wait.holder != 0 {
            *lock.holders.entry(holder(recording, process, wait.holder)).or_default() += weight;
        }
    }
    let all: f64 = locks.values().map(|lock| lock.sum.time).sum();
    let mut locks: Vec<Lock> = locks.into_values().collect();
    locks.sort_by(|a, b| b.sum.time.total_cmp(&a.sum.time).then(a.address.cmp(&b.address)));
    let rows = if style.verbose { MORE } else { ROWS };
    let mut out = format!("{}\n", style.heading("What was waited for most"));
    let _ = writeln!(out, "      share     waited      waits    longest  what, and where");
    for lock in locks.iter().take(rows) {
        let Sum { count, time: waited, longest } = lock.sum;
        let share = percent(waited as u64, all as u64);
        let at = if lock.address == 0 { String::new() } else { format!(" {:#x}", lock.address) };
        let _ = writeln!(
            out,
            "    {share:>5.1} % {:>10} {:>10.0} {:>10}  {}{at} in {}",
            time(waited),
            count,
            time(longest as f64),
            lock.what,
            most(&lock.places)
        );
        if !lock.holders.is_empty() {
            let _ = writeln!(out, "{:48}held by {}", "", shares(&lock.holders, waited));
        }
    }
    let more = locks.len().saturating_sub(rows);
    if more > 0 {
        let _ = writeln!(out, "    and {more} more");
    }
    Some(out)
}

/// What is known of a lock.
struct Lock {
    what: &'static str,
    address: u64,
    sum: Sum,
    /// Functions, and holders, by the time waited in them or for them.
    places: HashMap<String, f64>,
    holders: HashMap<String, f64>,
}

impl Lock {
    fn of(wait: &LockWait) -> Lock {
        let address = if wait.is_end_of_thread() { 0 } else { wait.lock };
        Lock { what: wait.what(), address, sum: Sum::default(), places: HashMap::new(), holders: HashMap::new() }
    }
}

/// The name with the largest weight.
fn most(names: &HashMap<String, f64>) -> String {
    let most = names.iter().max_by(|(a, x), (b, y)| x.total_cmp(y).then(b.cmp(a)));
    most.map_or_else(|| "?".to_owned(), |(name, _)| name.clone())
}

/// The names with the largest weights, with their shares of all if there are several.
fn shares(names: &HashMap<String, f64>, all: f64) -> String {
    let mut names: Vec<(&String, &f64)> = names.iter().collect();
    names.sort_by(|(a, x), (b, y)| y.total_cmp(x).then(a.cmp(b)));
    match &names[..] {
        [(name, _)] => (*name).clone(),
        _ => {
            let share = |(name, time): &(&String, &f64)| format!("{name} {:.0} %", percent(**time as u64, all as u64));
            let more = names.len().saturating_sub(HOLDERS);
            let more = if more == 0 { String::new() } else { format!(", and {more} more") };
            names.iter().take(HOLDERS).map(share).collect::<Vec<_>>().join(", ") + &more
        }
    }
}

/// The innermost function of the program's own code, with its line: what it calls to lock is mostly a library's.
fn place(recording: &Recording, profile: &Profile, lines: &[Line], stack: u32) -> String {
    let Some(stack) = profile.stacks.get(stack as usize) else { return "?".to_owned() };
    let frames: Vec<_> = frames(profile, stack).collect();
    let own = own_code(recording, &frames);
    let Some((line, at)) = own.first() else { return "?".to_owned() };
    let said = lines.get(*at).unwrap_or(line);
    let text = match line.kind {
        Kind::Semantic | Kind::Awaiting => said.folded(),
        _ if said.file.is_empty() || said.line == 0 => said.function.clone(),
        _ => format!("{} ({}:{})", said.function, said.file, said.position()),
    };
    crate::formats::printable(&text)
}

#[cfg(test)]
mod tests {
    use super::super::PLAIN;
    use super::*;
    use crate::stacks::{Entry, Stack};
    use uunwind_recording::{Settings, Thread};

    /// A lock is named by the program's own line, not by the library's function that locks; and all who had it are.
    #[test]
    fn a_lock_has_its_place_in_the_program_and_its_holders() {
        let line = |function: &str, file: &str, line| Line {
            kind: Kind::Native,
            file: file.to_owned(),
            line,
            ..Line::marker(function.to_owned())
        };
        let lines = vec![
            line("__gthread_mutex_lock", "/usr/include/c++/12/bits/gthr-default.h", 749),
            line("std::mutex::lock", "/usr/include/c++/12/bits/std_mutex.h", 100),
            line("use_cache", "/srv/cache.cpp", 6),
            line("main", "/srv/main.cpp", 20),
        ];
        let stack = Stack { thread: 0, lines: [0, 1, 2, 3].into(), labels: 0, samples: 3, weight: 1000 };
        let entry = |sample| Entry { time: 0, stack: 0, weight: 1, sample };
        let profile =
            Profile { lines, stacks: vec![stack], entries: (0..3).map(entry).collect(), ..Profile::default() };
        let thread = |tid, name: &str| Thread { tid, name: name.to_owned(), ..Thread::default() };
        let wait = |sample, holder, duration| LockWait { sample, lock: 0x1000, duration, kind: 1, holder };
        let mut recording = Recording {
            threads: vec![thread(7, "waits"), thread(8, "first")],
            lock_waits: vec![wait(0, 8, 600), wait(1, 9, 300), wait(2, 0, 100)],
            ..Recording::default()
        };
        (recording.settings.flags, recording.settings.rate) = (Settings::LOCK, 1);
        let said = render(&recording, &profile, &profile.lines, PLAIN).expect("a table");
        assert!(said.contains("mutex 0x1000 in use_cache (/srv/cache.cpp:6)\n"), "{said}");
        assert!(said.contains("held by first (thread 8) 60 %, thread 9 30 %\n"), "{said}");
        recording.lock_waits.truncate(1);
        let said = render(&recording, &profile, &profile.lines, PLAIN).expect("a table");
        assert!(said.contains("held by first (thread 8)\n"), "{said}");
    }
}
