//! What a recording adds up to while it runs: the functions, threads and languages of its samples so far.
//!
//! Each part of the samples is merged once, with the names that are known by then, and added to sums. So the cost of a
//! new table depends on what is new and on how many functions there are, not on how long the recording runs.

use crate::charge::charged;
use crate::formats::threads;
use crate::stacks::{Kind, Line, Profile};
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use uunwind_recording::Recording;

/// Weight in periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Of samples that were taken in it.
    pub own: u64,
    /// Of samples with it anywhere in the stack.
    pub total: u64,
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.own += other.own;
        self.total += other.total;
    }
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is about, as it may stand on a terminal.
    pub name: String,
    /// Its language; empty where it has none.
    pub language: String,
    /// What the last parts add up to.
    pub recent: Cost,
    /// What all parts add up to.
    pub all: Cost,
}

/// The tables of a recording at one moment.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Functions; a recursive one counts once in a stack.
    pub functions: Vec<Row>,
    /// The same, with native code charged to the function of a language that called it.
    pub charged: Vec<Row>,
    /// Threads, by name and id.
    pub threads: Vec<Row>,
    /// Languages; one counts once in a stack.
    pub languages: Vec<Row>,
    /// Weight of all samples, and of those in the last parts.
    pub weight: u64,
    /// See `weight`.
    pub recent: u64,
}

/// A function: its name and its language.
type Function = (String, String);

/// What some samples add up to.
#[derive(Default)]
struct Sums {
    functions: HashMap<Function, Cost>,
    /// See [`Tables::charged`].
    charged: HashMap<Function, Cost>,
    /// By index in the recording.
    threads: HashMap<u32, Cost>,
    languages: HashMap<String, Cost>,
    weight: u64,
}

/// The sums of a recording, and of its last parts.
pub struct Live {
    all: Sums,
    recent: VecDeque<Sums>,
    parts: usize,
}

impl Live {
    /// `parts`: how many of the last parts count as recent.
    pub fn new(parts: usize) -> Live {
        Live { all: Sums::default(), recent: VecDeque::new(), parts }
    }

    /// Adds the next part: the profile of samples that were not added before.
    pub fn add(&mut self, profile: &Profile) {
        let part = Sums::of(profile);
        self.all.add(&part);
        self.recent.push_back(part);
        while self.recent.len() > self.parts {
            self.recent.pop_front();
        }
    }

    /// Forgets what was added.
    pub fn clear(&mut self) {
        (self.all, self.recent) = (Sums::default(), VecDeque::new());
    }

    /// The tables as they are now, in no particular order.
    pub fn tables(&self, recording: &Recording) -> Tables {
        let mut recent = Sums::default();
        self.recent.iter().for_each(|part| recent.add(part));
        let thread = |index: &u32| {
            let thread = recording.threads.get(*index as usize)?;
            let name = if thread.name.is_empty() { "?" } else { &thread.name };
            let pid = threads::pid(recording, thread.process);
            let of = if recording.processes.len() > 1 { format!(", pid {pid}") } else { String::new() };
            Some((format!("{name} (thread {}{of})", thread.tid), String::new()))
        };
        Tables {
            functions: rows(&self.all.functions, &recent.functions, |function| Some(function.clone())),
            charged: rows(&self.all.charged, &recent.charged, |function| Some(function.clone())),
            threads: rows(&self.all.threads, &recent.threads, thread),
            languages: rows(&self.all.languages, &recent.languages, |name| Some((name.clone(), String::new()))),
            weight: self.all.weight,
            recent: recent.weight,
        }
    }
}

fn rows<K: Hash + Eq>(
    all: &HashMap<K, Cost>,
    recent: &HashMap<K, Cost>,
    name: impl Fn(&K) -> Option<(String, String)>,
) -> Vec<Row> {
    let row = |(key, cost): (&K, &Cost)| {
        let (name, language) = name(key)?;
        let name = crate::formats::printable(&name);
        Some(Row { name, language, recent: recent.get(key).copied().unwrap_or_default(), all: *cost })
    };
    all.iter().filter_map(row).collect()
}

impl Sums {
    fn of(profile: &Profile) -> Sums {
        let mut sums = Sums::default();
        let functions: Vec<Function> = profile.lines.iter().map(|line| (line.merged(), language(line))).collect();
        let (mut met, mut spoken) = (HashSet::new(), HashSet::new());
        for stack in &profile.stacks {
            let weight = stack.weight;
            let whole = Cost { own: weight, total: weight };
            sums.weight += weight;
            sums.threads.entry(stack.thread).or_default().add(whole);
            met.clear();
            for (depth, line) in charged(&profile.lines, &stack.lines).enumerate() {
                let Some(function) = functions.get(line as usize) else { continue };
                let own = if depth == 0 { weight } else { 0 };
                let total = if met.insert(function) { weight } else { 0 };
                sums.charged.entry(function.clone()).or_default().add(Cost { own, total });
            }
            met.clear();
            spoken.clear();
            for (depth, line) in stack.lines.iter().enumerate() {
                let Some(function) = functions.get(*line as usize) else { continue };
                let own = if depth == 0 { weight } else { 0 };
                let first = |is_first: bool| Cost { own, total: if is_first { weight } else { 0 } };
                sums.functions.entry(function.clone()).or_default().add(first(met.insert(function)));
                if !function.1.is_empty() {
                    let cost = first(spoken.insert(&function.1));
                    sums.languages.entry(function.1.clone()).or_default().add(cost);
                }
            }
        }
        sums
    }

    fn add(&mut self, other: &Sums) {
        fn add<K: Hash + Eq + Clone>(to: &mut HashMap<K, Cost>, from: &HashMap<K, Cost>) {
            from.iter().for_each(|(key, cost)| match to.get_mut(key) {
                Some(sum) => sum.add(*cost),
                None => drop(to.insert(key.clone(), *cost)),
            });
        }
        add(&mut self.functions, &other.functions);
        add(&mut self.charged, &other.charged);
        add(&mut self.threads, &other.threads);
        add(&mut self.languages, &other.languages);
        self.weight += other.weight;
    }
}

/// A frame's language, by the name of its plugin; empty for a remark.
fn language(line: &Line) -> String {
    match line.kind {
        Kind::Marker | Kind::Waiting => String::new(),
        Kind::Semantic | Kind::Awaiting => line.plugin.clone(),
        Kind::Native | Kind::Inlined => "native".to_owned(),
        Kind::Jit => "jit".to_owned(),
        Kind::Kernel => "kernel".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::Stack;
    use uunwind_recording::Thread;

    fn profile(stacks: &[(u32, &[u32], u64)]) -> Profile {
        let line = |name: &str, kind| Line { kind, ..Line::marker(name.to_owned()) };
        let lines = vec![line("leaf", Kind::Native), line("twice", Kind::Semantic), line("[cut]", Kind::Marker)];
        let stack = |(thread, lines, weight): &(u32, &[u32], u64)| Stack {
            thread: *thread,
            lines: Box::from(*lines),
            labels: 0,
            samples: 1,
            weight: *weight,
        };
        Profile { lines, stacks: stacks.iter().map(stack).collect(), ..Profile::default() }
    }

    fn find<'r>(rows: &'r [Row], name: &str) -> &'r Row {
        rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("{name} in {rows:?}"))
    }

    #[test]
    fn parts_add_up_and_old_ones_are_no_longer_recent() {
        let thread = |tid, name: &str| Thread { process: 0, tid, name: name.to_owned() };
        let recording = Recording { threads: vec![thread(7, "main"), thread(8, "")], ..Recording::default() };
        let mut live = Live::new(2);
        live.add(&profile(&[(0, &[0, 1, 1, 2], 5), (1, &[1], 1)]));
        live.add(&profile(&[(0, &[0], 3)]));
        let tables = live.tables(&recording);
        assert_eq!((tables.weight, tables.recent), (9, 9));
        assert_eq!(find(&tables.functions, "leaf").all, Cost { own: 8, total: 8 });
        assert_eq!(find(&tables.functions, "twice").all, Cost { own: 1, total: 6 }, "a recursive function counts once");
        assert_eq!(find(&tables.languages, "native").all, Cost { own: 8, total: 8 });
        // `leaf` called by `twice` is its time; where nothing of a language is in the stack, it has its own.
        assert_eq!(find(&tables.charged, "leaf").all, Cost { own: 3, total: 3 });
        assert_eq!(find(&tables.charged, "twice").all, Cost { own: 6, total: 6 });
        assert_eq!(find(&tables.threads, "main (thread 7)").all.own, 8);
        assert_eq!(find(&tables.threads, "? (thread 8)").all.own, 1);
        live.add(&profile(&[]));
        let tables = live.tables(&recording);
        assert_eq!((tables.weight, tables.recent), (9, 3), "the first of three parts is not recent");
        assert_eq!(find(&tables.functions, "twice").recent, Cost::default());
        live.clear();
        assert_eq!(live.tables(&recording).functions, []);
    }
}
