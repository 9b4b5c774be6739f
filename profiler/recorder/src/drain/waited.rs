//! For how long threads have waited, and how much of that is in samples. Threads that wait are looked at from outside,
//! and those that end before the first look, or between two, are missed: what is missing is counted by their lives.

use super::Drain;
use crate::block_owners::{ThreadUse, Use};
use crate::machine;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use uunwind_recording::Counters;
use uunwind_ring::layout::ThreadBlock;

/// The waiting of all threads, by the indices of their processes in the recording, in ns.
pub struct Waited {
    /// The sampling period, in ns.
    period: u64,
    /// Of threads that have ended: how long they waited, at most.
    lived: BTreeMap<u32, u64>,
    /// How long threads waited according to their samples.
    sampled: BTreeMap<u32, u64>,
    /// The processes of threads, by their indices.
    processes: Vec<u32>,
}

impl Waited {
    /// For this number of samples a second.
    pub fn new(rate: u32) -> Waited {
        let period = 1_000_000_000 / u64::from(rate.max(1));
        Waited { period, lived: BTreeMap::new(), sampled: BTreeMap::new(), processes: Vec::new() }
    }

    /// A thread begins: the next index is its.
    pub(super) fn begin(&mut self, process: u32) {
        self.processes.push(process);
    }

    /// A sample shows that a thread waited for this number of periods.
    pub(super) fn sample(&mut self, thread: u32, weight: u32) {
        let Some(process) = self.processes.get(thread as usize) else { return };
        let sampled = self.sampled.entry(*process).or_default();
        *sampled = sampled.saturating_add(self.period.saturating_mul(weight.into()));
    }

    /// A thread has ended, or its recording has.
    fn end(&mut self, thread: u32, waited: u64) {
        let Some(process) = self.processes.get(thread as usize) else { return };
        let lived = self.lived.entry(*process).or_default();
        *lived = lived.saturating_add(waited);
    }

    /// What is in no sample, at most, by process.
    fn unseen(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let sampled = |process: &u32| self.sampled.get(process).copied().unwrap_or(0);
        self.lived.iter().map(move |(process, lived)| (*process, lived.saturating_sub(sampled(process))))
    }
}

/// How long a thread has waited, at most, in ns. `now`: when it had ended (CLOCK_MONOTONIC, ns), unless it says so.
fn waited(header: &ThreadBlock, thread: &ThreadUse, now: u64) -> u64 {
    let (ended, cpu_at_end) = (header.ended.load(Ordering::Relaxed), header.cpu_at_end.load(Ordering::Relaxed));
    // A process writes these words: nothing that it lies about may lie in the future.
    let ended = if ended == 0 { now } else { ended.min(now) };
    let cpu = cpu_at_end.max(thread.cpu).saturating_sub(header.cpu_before.load(Ordering::Relaxed));
    ended.saturating_sub(header.began).saturating_sub(cpu).saturating_sub(thread.run_delay())
}

impl Drain {
    /// Counts the waiting of a thread that has ended. What passed while its process was paused is meant to be in no
    /// sample.
    pub(super) fn add_waited(&mut self, block: usize) {
        let Some(Some(Use::Thread(thread))) = self.uses.get(block) else { return };
        let (Some(of), Some(header)) = (&self.waited, self.session.thread(block)) else { return };
        if header.began == 0 || self.was_paused(thread.process_block) {
            return;
        }
        let process = of.processes.get(thread.index as usize).copied().unwrap_or(0);
        // A thread that has called exec lives on as one of the next program.
        let next = self.uses.iter().flatten().filter_map(|used| match used {
            Use::Process(p) if p.pid == thread.pid && p.index > process => Some(p.start),
            _ => None,
        });
        let now = next.min().unwrap_or_else(machine::monotonic);
        let (index, waited) = (thread.index, waited(&header, thread, now));
        if let Some(of) = &mut self.waited {
            of.end(index, waited);
        }
    }

    /// Writes how much waiting is in no sample. Call after all threads have ended.
    pub(super) fn write_unseen(&mut self) {
        let Some(waited) = self.waited.take() else { return };
        for (process, waits_unseen) in waited.unseen().filter(|(_, unseen)| *unseen > 0) {
            self.writer.counters(process, &Counters { waits_unseen, ..Counters::default() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_waited_and_no_sample_has_is_unseen() {
        let mut waited = Waited::new(100);
        [0, 0, 1].into_iter().for_each(|process| waited.begin(process));
        // The first thread was looked at until a moment before its end, the second one never.
        waited.sample(0, 9);
        waited.end(0, 95_000_000);
        waited.end(1, 4_000_000);
        waited.sample(2, 3);
        waited.end(2, 29_000_000);
        // An index of no thread.
        waited.end(3, 1);
        assert_eq!(waited.unseen().collect::<Vec<_>>(), [(0, 9_000_000), (1, 0)]);
    }
}
