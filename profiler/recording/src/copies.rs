//! Samples with copies of stacks, which are walked when the recording is read (`uunwind_ring::copy` has their bytes).

use crate::model::Sample;
use crate::wire::{Malformed, Put, Reader};

/// The copy of a sample's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackCopy {
    /// Whose stack it is.
    pub of: Of,
    /// Its coded bytes, which may be any.
    pub bytes: Vec<u8>,
}

/// The sample of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The recording's sample with this index, which has no other stack.
    Sample(usize),
    /// The same of [`Recording::fatal`](crate::Recording::fatal).
    Fatal(usize),
    /// A sample that was walked, too: that of this thread (index in the recording) and time, in ns of CLOCK_MONOTONIC.
    Beside(u32, u64),
}

impl StackCopy {
    /// Fewest bytes of one in a section.
    pub(super) const BYTES: usize = Sample::BYTES + 4;

    pub(super) fn encode(sample: Sample, beside: bool, bytes: &[u8], out: &mut Vec<u8>) {
        Sample { stack: beside.into(), ..sample }.encode(out);
        out.put_bytes(bytes);
    }

    /// The sample, whether it stands beside another one, and the copy.
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<(Sample, bool, Vec<u8>), Malformed> {
        let sample = Sample::decode(r)?;
        let beside = match sample.stack {
            0 => false,
            1 => true,
            _ => return Err(r.malformed("place of a copy")),
        };
        Ok((Sample { stack: 0, ..sample }, beside, r.bytes("copy of a stack")?.to_vec()))
    }
}
