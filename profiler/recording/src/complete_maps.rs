//! The section of complete maps: when it was known where all executable memory of a process is. Elsewhere, a copy of a
//! stack may lack return addresses of code that a JIT has just mapped.

use crate::wire::{Malformed, Put, Reader};
use std::collections::HashMap;

/// A time during which copies of a process's stacks have all return addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompleteMap {
    /// Index of the process in the recording.
    pub process: u32,
    /// First and last time, in ns of CLOCK_MONOTONIC.
    pub from: u64,
    /// See [`CompleteMap::from`].
    pub until: u64,
}

impl CompleteMap {
    pub(super) const BYTES: usize = 4 + 2 * 8;

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.process);
        out.put_u64(self.from);
        out.put_u64(self.until);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<CompleteMap, Malformed> {
        Ok(CompleteMap { process: r.u32("process")?, from: r.u64("time")?, until: r.u64("time")? })
    }
}

/// The times of all processes, to be asked.
#[derive(Default)]
pub struct CompleteTimes {
    /// By process: disjoint, in order.
    of: HashMap<u32, Vec<(u64, u64)>>,
}

impl CompleteTimes {
    /// Of a recording's entries.
    pub fn new(maps: &[CompleteMap]) -> CompleteTimes {
        let mut of: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
        for map in maps.iter().filter(|map| map.from <= map.until) {
            of.entry(map.process).or_default().push((map.from, map.until));
        }
        for times in of.values_mut() {
            times.sort_unstable();
            times.dedup_by(|next, last| {
                let touches = next.0 <= last.1;
                last.1 = if touches { last.1.max(next.1) } else { last.1 };
                touches
            });
        }
        CompleteTimes { of }
    }

    /// Whether a process's map was complete at a time.
    pub fn has(&self, process: u32, time: u64) -> bool {
        let times = self.of.get(&process).map_or(&[][..], |times| times);
        let after = times.partition_point(|(from, _)| *from <= time);
        after.checked_sub(1).and_then(|at| times.get(at)).is_some_and(|(_, until)| time <= *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_touch_are_one() {
        let map = |process, from, until| CompleteMap { process, from, until };
        let maps = [map(1, 50, 60), map(0, 10, 20), map(0, 20, 30), map(0, 12, 15), map(0, 40, 50), map(0, 90, 80)];
        let times = CompleteTimes::new(&maps);
        let inside = [(0, 10), (0, 18), (0, 30), (0, 40), (0, 50), (1, 55)];
        assert!(inside.iter().all(|(process, time)| times.has(*process, *time)));
        let outside = [(0, 9), (0, 31), (0, 39), (0, 51), (0, 85), (1, 45), (2, 15)];
        assert!(!outside.iter().any(|(process, time)| times.has(*process, *time)));
    }
}
