//! Copies of stacks: decoded, and walked where one object's file is missing and other code is unowned. Input: a copy.

use std::path::Path;
use uunwind_core_files::Search;
use uunwind_offline as offline;
use uunwind_recording::{Object, Of, Process, Recording, Sample, StackCopy, Thread};
use uunwind_ring::copy::{decode, Sink};
use uunwind_tables_build::Cache;

/// Counts words, which must come in order within each stack.
#[derive(Default)]
struct Words {
    count: usize,
    last: u64,
}

impl Sink for Words {
    fn stack(&mut self, start: u64) {
        assert_eq!(start % 8, 0);
        self.last = start;
    }
    fn word(&mut self, address: u64, _: u64) {
        assert!(address >= self.last, "{address:#x} after {:#x}", self.last);
        (self.count, self.last) = (self.count + 1, address.saturating_add(8));
    }
    fn end(&mut self, end: u64, _: Option<u64>) {
        assert!(end >= self.last);
    }
}

pub fn run(data: &[u8]) -> bool {
    let mut words = Words::default();
    let decoded = decode(data, &mut words).is_ok();
    assert!(words.count <= data.len());
    let mut recording = Recording {
        processes: vec![Process::default()],
        threads: vec![Thread::default()],
        objects: vec![Object { start: 0x7f00_0000_0000, end: 0x7f00_0010_0000, ..Object::default() }],
        samples: vec![Sample { thread: 0, stack: 0, time: 1, weight: 1, stop: 0, kind: 0, flags: 0 }],
        copies: vec![StackCopy { of: Of::Sample(0), bytes: data.to_vec() }],
        ..Recording::default()
    };
    let outcome = offline::walk(&mut recording, &Search::default(), &|_| Vec::new(), &Cache::at(Path::new("/").into()));
    assert_eq!((outcome.walked, outcome.damaged), if decoded { (1, 0) } else { (0, 1) });
    assert_eq!(recording.samples.iter().all(|sample| sample.stack != 0), decoded);
    assert!(recording.nodes.len() <= words.count + 2, "no frame without its word");
    decoded
}
