//! The section of second mappings: where a process has an object's code at another address than its loader's. A program
//! maps its own file again to have code near that of its JIT, or in larger pages.

use crate::wire::{Malformed, Put, Reader};

/// What a range of process addresses holds from a time on, until the next one that covers the same address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondMapping {
    /// Index of the process in the recording.
    pub process: u32,
    /// Beginning, in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// First process address.
    pub start: u64,
    /// End, exclusive (process address).
    pub end: u64,
    /// The process address in an object whose bytes those at `start` are; 0: the range holds no object's code any more.
    pub original: u64,
}

impl SecondMapping {
    pub(super) const BYTES: usize = 4 + 4 * 8;

    /// The address in an object for one in this range, while it holds an object's code.
    pub fn original_of(&self, address: u64) -> Option<u64> {
        let is_inside = (self.start..self.end).contains(&address) && self.original != 0;
        is_inside.then(|| address.wrapping_sub(self.start).wrapping_add(self.original))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.process);
        for word in [self.time, self.start, self.end, self.original] {
            out.put_u64(word);
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<SecondMapping, Malformed> {
        let process = r.u32("process")?;
        let (time, start) = (r.u64("time")?, r.u64("start")?);
        Ok(SecondMapping { process, time, start, end: r.u64("end")?, original: r.u64("original address")? })
    }
}
