//! The samples of a thread's ring, as the recorder decodes them.
//!
//! For each sample: 1 byte length, the bytes after its header. Its header's mark is repaired.

use crate::input::Input;
use uunwind_recorder::samples::Samples;

/// Frames that may be decoded.
const FRAMES: u64 = 100_000;

pub fn run(data: &[u8]) -> bool {
    let (mut input, mut samples, mut budget) = (Input::new(data), Samples::default(), FRAMES);
    let (mut taken, mut nodes) = (false, 0);
    while !input.is_empty() {
        let len = usize::from(input.u8());
        let node = |parent: u32, _| {
            assert!(parent <= nodes);
            nodes += 1;
            nodes
        };
        taken |= samples.read_unmarked(input.bytes(len), &mut budget, node).is_ok();
    }
    assert!(u64::from(nodes) <= FRAMES - budget);
    taken
}
