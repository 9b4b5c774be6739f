//! Records of a kernel that takes user stacks later, against what its perf says is in them. `tests/perf-records/` has
//! them, and the script that makes them.
//!
//! Stacks are given to samples by their cookies: an oracle for this is the rule alone. perf of Linux 7.2 goes by time,
//! and leaves those samples without one that the kernel took, or finished, after the stack.

use std::collections::HashMap;
use uunwind_recorder::kernel::deferred::Merge;
use uunwind_recorder::kernel::records::{records, KernelSample, PerfRecord};

const DATA: &[u8] = include_bytes!("../../../tests/perf-records/linux-7.2.data");
const SCRIPT: &str = include_str!("../../../tests/perf-records/linux-7.2.script");
/// Where the section of a perf.data with the records is said to be: `struct perf_file_header` in
/// <https://github.com/torvalds/linux/blob/v6.12/tools/perf/util/header.h>.
const SECTION: usize = 40;

fn word(at: usize) -> usize {
    usize::try_from(u64::from_le_bytes(DATA[at..at + 8].try_into().expect("a word"))).expect("small")
}

/// What is compared of a sample: thread, time, CPU time, chain, stack pointer and program counter.
type Compared = (u32, u64, u64, Vec<u64>, (u64, u64));

/// What perf says of the records.
#[derive(Default)]
struct Said {
    samples: Vec<Compared>,
    /// User stacks, by thread and cookie.
    stacks: HashMap<(u32, u64), Vec<u64>>,
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a number")
}

fn said() -> Said {
    let mut said = Said::default();
    let mut cookie = None;
    for line in SCRIPT.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some((thread, rest)) = line.split_once(' ').filter(|(thread, _)| thread.contains('/')) {
            let tid = thread.split_once('/').expect("process and thread").1.parse().expect("a thread");
            let (time, what) = rest.trim().split_once(':').expect("time and period");
            let (seconds, ns) = time.split_once('.').expect("nanoseconds");
            let time = seconds.parse::<u64>().expect("seconds") * 1_000_000_000 + ns.parse::<u64>().expect("ns");
            let deferred = what.trim().strip_prefix("DEFERRED CALLCHAIN [cookie: ");
            cookie = deferred.map(|cookie| (tid, hex(cookie.trim_end_matches(']'))));
            match cookie {
                Some(cookie) => drop(said.stacks.insert(cookie, Vec::new())),
                None => said.samples.push((tid, time, what.trim().parse().expect("a number"), Vec::new(), (0, 0))),
            }
        } else if let Some(registers) = line.strip_prefix("ABI:2") {
            let (sp, pc) = registers.trim().split_once(char::is_whitespace).expect("two registers");
            let value = |text: &str| hex(text.trim().split_once(':').expect("a register").1);
            said.samples.last_mut().expect("a sample").4 = (value(sp), value(pc));
        } else {
            match cookie {
                Some(cookie) => said.stacks.get_mut(&cookie).expect("a stack").push(hex(line)),
                None => said.samples.last_mut().expect("a sample").3.push(hex(line)),
            }
        }
    }
    said
}

/// What the decoder and the merge make of the records, likewise.
fn found() -> (Vec<Compared>, u64) {
    let (start, size) = (word(SECTION), word(SECTION + 8));
    let mut samples: Vec<KernelSample> = Vec::new();
    let mut merge = Merge::default();
    for record in records(&DATA[start..start + size]) {
        match record.expect("no damage") {
            PerfRecord::Sample(sample) => merge.sample(sample, |sample| samples.push(sample)),
            PerfRecord::Deferred(stack) => merge.stack(&stack, |sample| samples.push(sample)),
            PerfRecord::Lost(lost) => panic!("{lost} records are missing"),
            PerfRecord::Switch(_) | PerfRecord::Other => {}
        }
    }
    merge.finish(|sample| samples.push(sample));
    samples.sort_by_key(|sample| sample.time);
    let compared = samples.into_iter().map(|sample| {
        let chain = sample.kernel.iter().chain(&sample.user).copied().chain(sample.cookie).collect();
        let at = sample.at.expect("registers");
        (sample.tid, sample.time, sample.cpu, chain, (at.sp, at.pc))
    });
    (compared.collect(), merge.missing)
}

#[test]
fn samples_have_the_stacks_of_their_cookies() {
    let (Said { samples, stacks }, (found, missing)) = (said(), found());
    assert!(samples.len() > 20 && stacks.len() > 5, "{} samples, {} stacks", samples.len(), stacks.len());
    let mut without = 0;
    for ((tid, time, cpu, chain, at), found) in samples.iter().zip(&found) {
        let (cookie, kernel) = chain.split_last().expect("a cookie");
        let user = stacks.get(&(*tid, *cookie));
        without += u64::from(user.is_none());
        let whole = [kernel, user.map_or(&[*cookie][..], |user| user)].concat();
        assert_eq!(*found, (*tid, *time, *cpu, whole, *at));
    }
    assert_eq!((found.len(), missing), (samples.len(), without));
    assert!(without > 0, "every sample has its stack");
}
