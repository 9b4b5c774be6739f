//! What the sampled allocations of a recording stand for: what was allocated in all, and what was held when.

use crate::allocations::Allocation;
use crate::{Recording, Sample, Settings};

/// Which of the allocations of a recording are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Held {
    /// Those that lived when the most memory was held.
    #[default]
    Peak,
    /// Those that were not freed before the end.
    End,
    /// The same without those of processes that have ended before.
    Now,
    /// All that were made, whether freed or not.
    Total,
    /// Those that their thread freed before it made another one.
    Temporary,
    /// Those that were made after a time and lived at a later one: ns since the recording began; [`u64::MAX`]: those
    /// that were not freed before the end.
    Grown(u64, u64),
}

/// What allocations of a size stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    /// Number of allocations.
    pub count: f64,
    /// Their bytes, as estimated from the samples.
    pub bytes: f64,
}

impl Amount {
    /// What one sampled allocation of this size stands for, where the bytes from a sample to the next are `interval` on
    /// average: it was sampled with the probability `1 - exp(-size / interval)`.
    pub fn of(size: u64, interval: u32) -> Amount {
        if interval <= 1 {
            return Amount { count: 1.0, bytes: size as f64 };
        }
        let size = size.max(1) as f64;
        let probability = -(-size / f64::from(interval)).exp_m1();
        Amount { count: 1.0 / probability, bytes: size / probability }
    }

    /// The same of what is left of an allocation of `size` bytes. It is one allocation until nothing is left.
    fn part(self, left: Option<u64>, size: u64) -> Amount {
        match left {
            None => Amount::default(),
            Some(left) if left == size => self,
            Some(left) => Amount { bytes: self.bytes * (left as f64 / size.max(1) as f64), ..self },
        }
    }

    /// Whole bytes.
    pub fn weight(self) -> u64 {
        self.bytes.round() as u64
    }

    fn add(&mut self, other: Amount) {
        self.count += other.count;
        self.bytes += other.bytes;
    }

    fn less(self, other: Amount) -> Amount {
        Amount { count: self.count - other.count, bytes: self.bytes - other.bytes }
    }
}

/// The allocations of a recording in numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// Allocated in all.
    pub total: Amount,
    /// Of the total, what are mappings.
    pub mapped: Amount,
    /// Of the total, what its thread freed before it made another allocation.
    pub temporary: Amount,
    /// What was held when it was most.
    pub peak: Amount,
    /// When that was, in ns of CLOCK_MONOTONIC.
    pub peak_time: u64,
    /// What was not freed before the end of its process or of the recording.
    pub end: Amount,
    /// Sampled allocations whose free is not in the recording: they are counted in the total only.
    pub untracked: u64,
}

impl Recording {
    /// What a sampled allocation stands for.
    pub fn amount(&self, allocation: &Allocation) -> Amount {
        Amount::of(allocation.size, self.settings.rate)
    }

    /// The weight of each sample: bytes of an allocation, ns of a wait.
    pub fn weights(&self) -> impl Iterator<Item = u64> + '_ {
        let all = if self.is_alloc() { &self.allocations[..] } else { &[] };
        let mut allocations = all.iter().peekable();
        let all = if self.is_lock() { &self.lock_waits[..] } else { &[] };
        let mut waits = all.iter().peekable();
        self.samples.iter().enumerate().map(move |(index, sample)| {
            if let Some(allocation) = allocations.next_if(|allocation| allocation.sample == index) {
                return self.amount(allocation).weight();
            }
            match waits.next_if(|wait| wait.sample == index) {
                Some(wait) => self.waited(wait).weight(),
                None => u64::from(sample.weight.max(1)),
            }
        })
    }

    /// Whether anonymous mappings are among the allocations.
    pub fn has_mappings(&self) -> bool {
        self.settings.flags & Settings::MAPPINGS != 0
    }

    /// Whether an allocation is an anonymous mapping.
    pub fn is_mapping(&self, allocation: &Allocation) -> bool {
        self.samples.get(allocation.sample).is_some_and(|sample| sample.kind == Sample::MAPPING)
    }

    /// The sums over all allocations.
    pub fn memory(&self) -> Memory {
        let mut memory = Memory::default();
        let mut changes = Vec::with_capacity(self.allocations.len() * 2);
        for allocation in &self.allocations {
            let (amount, sample) = (self.amount(allocation), self.samples.get(allocation.sample));
            memory.total.add(amount);
            if self.is_mapping(allocation) {
                memory.mapped.add(amount);
            }
            if allocation.is_temporary {
                memory.temporary.add(amount);
            }
            if allocation.id == 0 {
                memory.untracked += 1;
                continue;
            }
            let begin = sample.map_or(0, |sample| sample.time);
            changes.push((begin, amount));
            memory.end.add(amount.part(allocation.left_at_end(), allocation.size));
            let mut before = amount;
            for (time, left) in allocation.changes() {
                let now = amount.part(left, allocation.size);
                // Both clocks are one; where two cores' differ a little, it did not live.
                changes.push((time.max(begin), now.less(before)));
                before = now;
            }
        }
        // At one time, frees first: an address may be given again at once.
        changes.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.bytes.total_cmp(&b.1.bytes)));
        let mut now = Amount::default();
        for (time, change) in changes {
            now.add(change);
            if now.bytes > memory.peak.bytes {
                (memory.peak, memory.peak_time) = (now, time);
            }
        }
        memory
    }

    /// What was held at a time, as those of [`Held::Grown`].
    pub fn held_at(&self, time: u64) -> Amount {
        if time == u64::MAX {
            return self.memory().end;
        }
        let time = self.settings.start_monotonic.saturating_add(time);
        let mut sum = Amount::default();
        for allocation in self.allocations.iter().filter(|allocation| allocation.id != 0) {
            if self.samples.get(allocation.sample).is_some_and(|sample| sample.time <= time) {
                sum.add(self.amount(allocation).part(allocation.left_after(time), allocation.size));
            }
        }
        sum
    }

    /// By sample: what of its allocation is one of these; nothing of samples of something else.
    pub fn held(&self, held: Held) -> Vec<Amount> {
        let mut chosen = vec![Amount::default(); self.samples.len()];
        let since = |time: u64| self.settings.start_monotonic.saturating_add(time);
        // After what time it was made, and when something of it was left.
        let (after, at) = match held {
            Held::Peak => (None, self.memory().peak_time),
            Held::Grown(from, to) => (Some(since(from)), since(to)),
            Held::End | Held::Now | Held::Total | Held::Temporary => (None, 0),
        };
        for allocation in &self.allocations {
            let (Some(sample), Some(chosen)) = (self.samples.get(allocation.sample), chosen.get_mut(allocation.sample))
            else {
                continue;
            };
            let left = match held {
                Held::Total => Some(allocation.size),
                Held::Temporary => Some(allocation.size).filter(|_| allocation.is_temporary),
                _ if allocation.id == 0 => None,
                Held::End => allocation.left_at_end(),
                Held::Now => allocation.left_after(u64::MAX),
                Held::Grown(..) if after.is_some_and(|after| sample.time <= after) => None,
                Held::Grown(_, u64::MAX) => allocation.left_at_end(),
                Held::Peak | Held::Grown(..) if sample.time > at => None,
                Held::Peak | Held::Grown(..) => allocation.left_after(at),
            };
            *chosen = self.amount(allocation).part(left, allocation.size);
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocations::tests::written;
    use crate::{Free, Process, Thread, Unmap, Writer};

    #[test]
    fn what_is_held_is_what_was_not_freed() {
        // 100 bytes from 1 to 5, 200 from 2 to 3, 50 from 4 on, 7 from 6 to no known time.
        let recording = written(&[(1, 1, 100), (2, 2, 200), (3, 4, 50), (0, 6, 7)], &[(2, 3), (1, 5)], 1);
        let memory = recording.memory();
        let whole = |amount: Amount| (amount.count as u64, amount.weight());
        assert_eq!((whole(memory.total), whole(memory.peak), memory.peak_time), ((4, 357), (2, 300), 2));
        assert_eq!((whole(memory.end), memory.untracked), ((1, 50), 1));
        let held = |held: Held| -> Vec<u64> {
            let chosen = recording.held(held);
            recording.allocations.iter().filter(|a| chosen[a.sample].count > 0.0).map(|a| a.size).collect()
        };
        assert_eq!((held(Held::Peak), held(Held::End)), (vec![100, 200], vec![50]));
        assert_eq!(held(Held::Total), [100, 200, 50, 7]);
        // The first time is before what is meant, the second one is the last moment of it.
        for (from, to, wanted) in [(0, 2, &[100u64, 200][..]), (1, 2, &[200]), (1, 3, &[]), (2, 4, &[50]), (4, 9, &[])]
        {
            assert_eq!(held(Held::Grown(from, to)), wanted, "{from} to {to}");
        }
        assert_eq!((held(Held::Grown(3, u64::MAX)), held(Held::Grown(4, u64::MAX))), (vec![50], vec![]));
        assert_eq!(recording.held_at(u64::MAX).weight(), 50);
        assert_eq!([0, 1, 2, 3, 9].map(|time| recording.held_at(time).weight()), [0, 100, 300, 100, 50]);
        let weights: Vec<u64> = recording.weights().collect();
        assert_eq!(recording.allocations.iter().map(|a| weights[a.sample]).collect::<Vec<_>>(), [100, 200, 50, 7]);
    }

    #[test]
    fn what_is_temporary_is_a_part_of_the_total() {
        let mut file = Vec::new();
        let settings = Settings { rate: 1, flags: Settings::ALLOC, ..Settings::default() };
        let mut writer = Writer::begin(&mut file, &settings);
        writer.process(&Process { pid: 7, ..Process::default() });
        writer.process(&Process { pid: 8, ..Process::default() });
        writer.thread(&Thread { process: 1, tid: 8, ..Thread::default() });
        let sample = Sample { thread: 0, stack: 0, time: 1, weight: 1, stop: 1, kind: Sample::ALLOCATION, flags: 0 };
        // The number of another process's is none of it; one comes before its allocation.
        for (process, id) in [(0, 1), (1, 2)] {
            writer.free(Free { process, id, time: 9 });
            writer.temporary(process, id);
        }
        for (id, size) in [(1, 100), (2, 50)] {
            writer.allocation(Sample { time: id, ..sample }, id, size);
        }
        writer.flush();
        drop(writer);
        let recording = Recording::parse(&file, "x".as_ref()).expect("a recording");
        let memory = recording.memory();
        assert_eq!((memory.total.weight(), memory.temporary.weight(), memory.temporary.count), (150, 50, 1.0));
        let weights: Vec<u64> = recording.held(Held::Temporary).into_iter().map(Amount::weight).collect();
        assert_eq!(weights, [0, 50]);
    }

    #[test]
    fn parts_of_a_mapping_go_one_by_one() {
        let whole = |amount: Amount| (amount.count as u64, amount.weight());
        let mut file = Vec::new();
        let settings = Settings { rate: 1, flags: Settings::ALLOC | Settings::MAPPINGS, ..Settings::default() };
        let mut writer = Writer::begin(&mut file, &settings);
        writer.process(&Process { pid: 7, ..Process::default() });
        writer.thread(&Thread { process: 0, tid: 7, ..Thread::default() });
        let sample = Sample { thread: 0, stack: 0, time: 1, weight: 1, stop: 1, kind: Sample::MAPPING, flags: 0 };
        let unmap = |id, time, bytes| Unmap { process: 0, id, time, bytes };
        // The first one loses 30 of 100, gets them back, as that failed, and loses 40; the second one all, in two
        // parts; the third one is none; the fourth one is an allocation of no bytes that stays.
        for (id, size) in [(1, 100), (2, 50), (3, 1000)] {
            writer.allocation(Sample { time: id, ..sample }, id, size);
        }
        writer.allocation(Sample { kind: Sample::ALLOCATION, time: 4, ..sample }, 4, 0);
        for one in [unmap(1, 5, -30), unmap(3, 6, Unmap::NEVER), unmap(1, 6, 30), unmap(2, 7, -20), unmap(1, 8, -40)] {
            writer.unmap(one);
        }
        writer.unmap(unmap(2, 9, -30));
        writer.flush();
        drop(writer);
        let recording = Recording::parse(&file, "x".as_ref()).expect("a recording");
        let memory = recording.memory();
        assert_eq!(recording.samples.len(), 3);
        assert_eq!((whole(memory.total), whole(memory.mapped)), ((3, 150), (2, 150)));
        assert_eq!((whole(memory.peak), memory.peak_time, whole(memory.end)), ((2, 150), 2, (2, 60)));
        let end: Vec<_> = recording.held(Held::End).into_iter().map(whole).collect();
        assert_eq!(end, [(1, 60), (0, 0), (1, 0)]);
        assert_eq!(recording.allocations[1].freed, Some(9));
        let left: Vec<_> = (4..10).map(|time| recording.allocations[0].left_after(time)).collect();
        assert_eq!(left, [Some(100), Some(70), Some(100), Some(100), Some(60), Some(60)]);
        // As estimated from samples, what is left keeps its share.
        let Amount { count, bytes } = Amount::of(100, 1000);
        assert_eq!(Amount { count, bytes }.part(Some(25), 100), Amount { count, bytes: bytes / 4.0 });
    }

    #[test]
    fn a_sample_stands_for_all_of_its_size() {
        // Of many allocations of a size, those that are sampled stand for all of them.
        for size in [1u64, 100, 4096, 512 << 10, 10 << 20] {
            let interval = 512 << 10;
            let probability = 1.0 - (-(size as f64) / f64::from(interval)).exp();
            let Amount { count, bytes } = Amount::of(size, interval);
            assert!((count * probability - 1.0).abs() < 1e-6 && (bytes / count - size as f64).abs() < 1e-3, "{size}");
        }
        assert_eq!(Amount::of(7, 1), Amount { count: 1.0, bytes: 7.0 });
        // Above what a sample's own weight holds.
        let recording = written(&[(1, 1, 5 << 40)], &[], 1);
        assert_eq!(recording.weights().collect::<Vec<_>>(), [1, 5 << 40]);
    }
}
