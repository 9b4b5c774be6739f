//! A perf ring, as the recorder decodes it, and the merge of its deferred stacks.
//!
//! Its first bytes are read as what is asked of `uu kernel-events`, too. The bytes of the ring. Sizes are repaired:
//! each is that of the record, or leads to the end.

use uunwind_recorder::kernel::deferred::Merge;
use uunwind_recorder::kernel::grant::{Ask, ASKS};
use uunwind_recorder::kernel::records::{records, PerfRecord};

pub fn run(data: &[u8]) -> bool {
    if let Some(packet) = data.get(..ASKS) {
        assert!(Ask::read(packet).is_none_or(|ask| ask.packet() == packet));
    }
    let bytes = repaired(data);
    let (mut merge, mut taken, mut given) = (Merge::default(), 0, 0u64);
    let mut words = 0;
    let mut out = |sample: uunwind_recorder::kernel::records::KernelSample| {
        given += 1;
        assert!(sample.kernel.len() + sample.user.len() <= bytes.len() / 8);
    };
    for record in records(&bytes).flatten() {
        match record {
            PerfRecord::Sample(sample) => {
                (taken, words) = (taken + 1, words + sample.kernel.len() + sample.user.len());
                merge.sample(sample, &mut out);
            }
            PerfRecord::Deferred(stack) => {
                words += stack.user.len();
                merge.stack(&stack, &mut out);
            }
            PerfRecord::Lost(_) | PerfRecord::Switch(_) | PerfRecord::Other => {}
        }
    }
    merge.finish(&mut out);
    assert!(words <= bytes.len() / 8 && given == taken);
    taken > 0
}

/// The bytes, with the size of every record made one that can be right.
fn repaired(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    bytes.truncate(data.len() & !7);
    let mut at = 0;
    while let Some(size) = bytes.get(at + 6..at + 8).and_then(|size| size.first_chunk()).map(|s| u16::from_ne_bytes(*s))
    {
        let rest = bytes.len() - at;
        let whole = (usize::from(size) & !7).clamp(8, rest.min(0xfff8));
        bytes[at + 6..at + 8].copy_from_slice(&(whole as u16).to_ne_bytes());
        at += whole;
    }
    bytes
}
