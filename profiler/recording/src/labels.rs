//! Labels: what threads say that they work on, as keys and values, from a time on.

use std::collections::{BTreeMap, HashMap};

/// The labels of all threads. Equal sets of them are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Each distinct set, sorted by key; the first one is empty, once there is any.
    sets: Vec<Vec<(String, String)>>,
    known: HashMap<Vec<(String, String)>, u32>,
    /// For each thread: from this time on, this set.
    threads: HashMap<u32, BTreeMap<u64, u32>>,
}

impl Labels {
    /// The set without a label.
    pub const NONE: u32 = 0;

    /// From this time on (ns of CLOCK_MONOTONIC), a thread has these.
    pub(super) fn add(&mut self, thread: u32, time: u64, mut labels: Vec<(String, String)>) {
        labels.sort_unstable();
        if self.sets.is_empty() {
            self.sets.push(Vec::new());
            self.known.insert(Vec::new(), Labels::NONE);
        }
        let next = self.sets.len() as u32;
        let set = *self.known.entry(labels).or_insert_with_key(|labels| {
            self.sets.push(labels.clone());
            next
        });
        self.threads.entry(thread).or_default().insert(time, set);
    }

    /// Whether no thread has set one.
    pub fn is_empty(&self) -> bool {
        self.sets.len() < 2
    }

    /// The number of the set that a thread had at this time.
    pub fn at(&self, thread: u32, time: u64) -> u32 {
        let set = self.threads.get(&thread).and_then(|sets| sets.range(..=time).next_back());
        set.map_or(Labels::NONE, |(_, set)| *set)
    }

    /// The labels of a set, sorted by key.
    pub fn of(&self, set: u32) -> &[(String, String)] {
        self.sets.get(set as usize).map_or(&[], Vec::as_slice)
    }

    /// Adds those of another recording.
    pub(super) fn merge(&mut self, other: &Labels, thread: impl Fn(u32) -> u32, at: impl Fn(u64) -> u64) {
        for (of, sets) in &other.threads {
            for (time, set) in sets {
                self.add(thread(*of), at(*time), other.of(*set).to_vec());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Labels, Process, Recording, Settings, Thread, Writer};

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    fn written() -> Recording {
        let mut file = Vec::new();
        let mut writer = Writer::begin(&mut file, &Settings { rate: 99, ..Settings::default() });
        writer.process(&Process { pid: 7, ..Process::default() });
        for tid in [7, 8] {
            writer.thread(&Thread { process: 0, tid, ..Thread::default() });
        }
        // Not in the order of time.
        writer.labels(0, 30, &[]);
        writer.labels(0, 10, &pairs(&[("user", "7"), ("page", "/")]));
        writer.labels(0, 20, &pairs(&[("page", "/"), ("user", "8")]));
        writer.labels(1, 15, &pairs(&[("page", "/"), ("user", "7")]));
        writer.flush();
        drop(writer);
        Recording::parse(&file, "x".as_ref()).expect("a recording")
    }

    #[test]
    fn they_hold_from_a_time_on() {
        let Recording { labels, .. } = written();
        let at = |thread, time| labels.of(labels.at(thread, time)).to_vec();
        let first = pairs(&[("page", "/"), ("user", "7")]);
        assert_eq!([at(0, 9), at(0, 30), at(0, u64::MAX), at(1, 14), at(5, 20)], [const { Vec::new() }; 5]);
        assert_eq!([at(0, 10), at(0, 19), at(1, 15)], [first.clone(), first.clone(), first]);
        assert_eq!(at(0, 29), pairs(&[("page", "/"), ("user", "8")]));
        assert_eq!((labels.at(0, 10), labels.at(0, 30)), (labels.at(1, 99), Labels::NONE));
        assert!(!labels.is_empty() && Labels::default().is_empty());
    }

    #[test]
    fn those_of_all_samples_are_also_of_threads_that_set_none() {
        let mut file = Vec::new();
        let mut writer = Writer::begin(&mut file, &Settings { rate: 99, ..Settings::default() });
        writer.label_all(pairs(&[("zone", "b"), ("user", "all")]));
        writer.process(&Process { pid: 7, ..Process::default() });
        for tid in [7, 8] {
            writer.thread(&Thread { process: 0, tid, ..Thread::default() });
        }
        writer.labels(1, 10, &pairs(&[("user", "7")]));
        writer.labels(1, 20, &[]);
        writer.flush();
        drop(writer);
        let Recording { labels, .. } = Recording::parse(&file, "x".as_ref()).expect("a recording");
        let at = |thread, time| labels.of(labels.at(thread, time)).to_vec();
        let all = pairs(&[("user", "all"), ("zone", "b")]);
        assert_eq!([at(0, 0), at(0, 99), at(1, 9), at(1, 20)], [all.clone(), all.clone(), all.clone(), all]);
        assert_eq!(at(1, 10), pairs(&[("user", "7"), ("zone", "b")]));
    }

    #[test]
    fn merged_recordings_keep_theirs() {
        let (mut one, mut other) = (written(), written());
        (one.settings.start_monotonic, other.settings.start_monotonic) = (0, 5);
        one.merge(other).expect("of one kind");
        let at = |thread, time| one.labels.of(one.labels.at(thread, time)).len();
        assert_eq!([at(2, 4), at(2, 5), at(2, 25), at(3, 10)], [0, 2, 0, 2]);
        assert_eq!([at(0, 9), at(0, 10)], [0, 2]);
    }
}
