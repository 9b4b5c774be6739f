//! Samples of allocations: what was allocated or mapped, and when it was freed.

use crate::wire::{Malformed, Put, Reader};
use crate::{Recording, Sample, Settings};
use std::collections::{HashMap, HashSet};

/// What a sample of an allocation is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Index of its sample in [`Recording::samples`].
    pub sample: usize,
    /// Its number in its process; 0: its free is not in the recording.
    pub id: u64,
    /// Bytes that were asked for.
    pub size: u64,
    /// When it, or the last part of it, was freed, in ns of CLOCK_MONOTONIC; `None`: not before its process or the
    /// recording ended.
    pub freed: Option<u64>,
    /// Of a mapping, the parts of it that were unmapped one by one, in the order of time; the last one at `freed`.
    pub parts: Box<[Part]>,
    /// The thread that made it freed it, and had made no other one since.
    pub is_temporary: bool,
    /// When its process ended, in ns of CLOCK_MONOTONIC, if that was before the end of the recording.
    pub ended: Option<u64>,
}

/// A part of a mapping is unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// When, in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// Bytes that are left of the mapping.
    pub left: u64,
}

impl Allocation {
    /// When its size changed, and the bytes that were left of it; `None`: it was gone.
    pub(super) fn changes(&self) -> impl Iterator<Item = (u64, Option<u64>)> + '_ {
        let parts = self.parts.iter().map(|part| (part.time, Some(part.left).filter(|left| *left > 0)));
        let whole = self.freed.filter(|_| self.parts.is_empty()).map(|time| (time, None));
        let end = self.ended.filter(|_| self.freed.is_none()).map(|time| (time, None));
        parts.chain(whole).chain(end)
    }

    /// Bytes that were left of it after this time, not before it was made; `None`: it was gone.
    pub(super) fn left_after(&self, time: u64) -> Option<u64> {
        self.changes().take_while(|(at, _)| *at <= time).last().map_or(Some(self.size), |(_, left)| left)
    }

    /// Bytes of it that were never freed; `None`: it was.
    pub(super) fn left_at_end(&self) -> Option<u64> {
        match self.freed {
            Some(_) => None,
            None => Some(self.parts.last().map_or(self.size, |part| part.left)),
        }
    }
}

/// Bytes of a sampled mapping are unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmap {
    /// Index of the process in the recording.
    pub process: u32,
    /// Number of the mapping among the allocations of its process.
    pub id: u64,
    /// Time in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// Change of its size in bytes, below 0; above 0: the last change could not be made. [`Unmap::NEVER`]: it was no
    /// anonymous mapping, and its sample is of nothing.
    pub bytes: i64,
}

impl Unmap {
    /// The sample is of nothing.
    pub const NEVER: i64 = i64::MIN;
    pub(super) const BYTES: usize = 28;

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.process);
        out.put_u64(self.id);
        out.put_u64(self.time);
        out.put_u64(self.bytes as u64);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Unmap, Malformed> {
        let (process, id) = (r.u32("process")?, r.u64("number of an allocation")?);
        Ok(Unmap { process, id, time: r.u64("time")?, bytes: r.u64("bytes")? as i64 })
    }
}

/// One sampled allocation is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// Index of the process in the recording.
    pub process: u32,
    /// Number of the allocation in its process; [`Free::ALL`]: of all that it still holds.
    pub id: u64,
    /// Time in ns of CLOCK_MONOTONIC.
    pub time: u64,
}

impl Free {
    /// The process has ended.
    pub const ALL: u64 = u64::MAX;
    pub(super) const BYTES: usize = 20;

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.process);
        out.put_u64(self.id);
        out.put_u64(self.time);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Free, Malformed> {
        Ok(Free { process: r.u32("process")?, id: r.u64("number of an allocation")?, time: r.u64("time")? })
    }
}

impl Recording {
    /// Whether allocations were sampled.
    pub fn is_alloc(&self) -> bool {
        self.settings.flags & Settings::ALLOC != 0
    }

    /// Reads allocations: each belongs to the next sample of one.
    pub(super) fn read_allocations(&mut self, r: &mut Reader<'_>) -> Result<(), Malformed> {
        for _ in 0..r.count(8 + 8, "number of allocations")? {
            let (id, size) = (r.u64("number of an allocation")?, r.u64("size")?);
            let from = self.allocations.last().map_or(0, |last| last.sample + 1);
            let is_one = |sample: &Sample| sample.kind == Sample::ALLOCATION || sample.kind == Sample::MAPPING;
            let next = self.samples.get(from..).and_then(|rest| rest.iter().position(is_one));
            let sample = from + next.ok_or_else(|| r.malformed("sample of an allocation"))?;
            self.allocations.push(Allocation {
                sample,
                id,
                size,
                freed: None,
                parts: Box::default(),
                is_temporary: false,
                ended: None,
            });
        }
        Ok(())
    }

    /// Says of each allocation when it was freed.
    pub(super) fn join_frees(&mut self) {
        if self.frees.is_empty() {
            return;
        }
        let frees = std::mem::take(&mut self.frees);
        let frees: HashMap<(u32, u64), u64> = frees.iter().map(|free| ((free.process, free.id), free.time)).collect();
        for allocation in &mut self.allocations {
            let sample = self.samples.get(allocation.sample);
            let thread = sample.and_then(|sample| self.threads.get(sample.thread as usize));
            let Some(thread) = thread else { continue };
            allocation.freed = frees.get(&(thread.process, allocation.id)).copied();
            allocation.ended = frees.get(&(thread.process, Free::ALL)).copied();
        }
    }

    /// Says of each allocation whether it is temporary.
    pub(super) fn join_temporaries(&mut self) {
        if self.temporaries.is_empty() {
            return;
        }
        let temporaries: HashSet<(u32, u64)> = std::mem::take(&mut self.temporaries).into_iter().collect();
        for allocation in &mut self.allocations {
            let sample = self.samples.get(allocation.sample);
            let Some(thread) = sample.and_then(|sample| self.threads.get(sample.thread as usize)) else { continue };
            allocation.is_temporary = temporaries.contains(&(thread.process, allocation.id));
        }
    }

    /// Says of each mapping when which part of it was unmapped. Those that were none go, with their samples.
    pub(super) fn join_unmaps(&mut self) {
        if self.unmaps.is_empty() {
            return;
        }
        let mut unmaps: HashMap<(u32, u64), Vec<Unmap>> = HashMap::new();
        for unmap in std::mem::take(&mut self.unmaps) {
            unmaps.entry((unmap.process, unmap.id)).or_default().push(unmap);
        }
        let mut none = HashSet::new();
        for allocation in &mut self.allocations {
            let sample = self.samples.get(allocation.sample);
            let process = sample.and_then(|sample| self.threads.get(sample.thread as usize)).map(|of| of.process);
            // They stand in the order in which they happened.
            let Some(all) = process.and_then(|process| unmaps.remove(&(process, allocation.id))) else { continue };
            if all.iter().any(|unmap| unmap.bytes == Unmap::NEVER) {
                none.insert(allocation.sample);
                continue;
            }
            let mut left = allocation.size;
            let parts = all.iter().map(|unmap| {
                left = left.saturating_add_signed(unmap.bytes).min(allocation.size);
                Part { time: unmap.time, left }
            });
            let parts: Vec<Part> = parts.collect();
            // It could not be unmapped after all.
            allocation.is_temporary &= parts.len() == 1;
            allocation.freed = parts.last().filter(|part| part.left == 0).map(|part| part.time);
            if allocation.freed.is_none() || parts.len() > 1 {
                allocation.parts = parts.into();
            }
        }
        if !none.is_empty() {
            let mut index = 0;
            self.retain_samples(|_| {
                index += 1;
                !none.contains(&(index - 1))
            });
        }
    }

    /// Keeps only the samples for which this is true, and what they are of.
    pub(super) fn retain_samples(&mut self, mut keep: impl FnMut(&Sample) -> bool) {
        let has_events = !self.allocations.is_empty() || !self.lock_waits.is_empty();
        let mut places = Vec::with_capacity(if has_events { self.samples.len() } else { 0 });
        let mut kept = 0;
        self.samples.retain(|sample| {
            let keep = keep(sample);
            if has_events {
                places.push(keep.then_some(kept));
            }
            kept += usize::from(keep);
            keep
        });
        self.allocations.retain_mut(|allocation| match places.get(allocation.sample) {
            Some(Some(place)) => {
                allocation.sample = *place;
                true
            }
            _ => false,
        });
        self.lock_waits.retain_mut(|wait| match places.get(wait.sample) {
            Some(Some(place)) => {
                wait.sample = *place;
                true
            }
            _ => false,
        });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{Process, Thread, Writer};

    /// A recording of allocations with these numbers, times and sizes, and frees with numbers and times.
    pub fn written(all: &[(u64, u64, u64)], frees: &[(u64, u64)], rate: u32) -> Recording {
        let mut file = Vec::new();
        let settings = Settings { rate, flags: Settings::ALLOC, ..Settings::default() };
        let mut writer = Writer::begin(&mut file, &settings);
        writer.process(&Process { pid: 7, ..Process::default() });
        writer.thread(&Thread { process: 0, tid: 7, ..Thread::default() });
        for (id, time) in frees {
            writer.free(Free { process: 0, id: *id, time: *time });
        }
        for (id, time, size) in all {
            let sample =
                Sample { thread: 0, stack: 0, time: *time, weight: 1, stop: 1, kind: Sample::ALLOCATION, flags: 0 };
            writer.sample(Sample { kind: 0, ..sample });
            writer.allocation(sample, *id, *size);
        }
        writer.flush();
        drop(writer);
        Recording::parse(&file, "x".as_ref()).expect("a recording")
    }

    #[test]
    fn samples_that_go_take_their_allocations_along() {
        let mut recording = written(&[(1, 1, 10), (2, 2, 20), (3, 3, 30)], &[(3, 9)], 1);
        recording.retain_samples(|sample| sample.time != 2 && sample.kind == Sample::ALLOCATION);
        let left: Vec<_> = recording.allocations.iter().map(|a| (a.sample, a.size, a.freed)).collect();
        assert_eq!(left, [(0, 10, None), (1, 30, Some(9))]);
    }
}
