//! Processes that are killed (SIGKILL) at random moments: every sample that was taken is in the recording, each one as
//! it was taken.

use std::collections::HashMap;
use std::ffi::OsStr;
use uunwind_tests::samples::Sample;
use uunwind_tests::{compile, paths, uu};

/// Kills of an ordinary run, and of a campaign (`UU_CAMPAIGNS`).
const FEW: u32 = 40;
const MANY: u32 = 1000;

#[test]
fn what_was_sampled_before_a_kill_is_recorded() {
    let scratch = paths::scratch("killed");
    let program = compile::gcc(&scratch, "killed", &["native/killed.c"], &["-pthread"]);
    let is_campaign = std::env::var_os("UU_CAMPAIGNS").is_some();
    let (kills, seed) = (if is_campaign { MANY } else { FEW }, std::process::id());
    println!("{kills} kills, seed {seed}");
    let words =
        [program.as_os_str(), OsStr::new(&kills.to_string()), OsStr::new(&seed.to_string())].map(OsStr::to_owned);
    let words: Vec<&OsStr> = words.iter().map(|word| &**word).collect();
    let recording = uu::record(&scratch, &["--explicit", "-r", "1"], |_| {}, &words).expect_code(0);
    let mut recorded: HashMap<(u32, u32), Vec<Sample>> = HashMap::new();
    for sample in recording.samples().into_iter().filter(|sample| sample.kind == "explicit") {
        recorded.entry((sample.pid, sample.tid)).or_default().push(sample);
    }
    let (mut threads, mut total) = (0, 0);
    for line in recording.outcome.stdout.lines() {
        let numbers: Vec<u32> = line.split(' ').map(|word| word.parse().expect("numbers")).collect();
        let [pid, tid, taken] = numbers[..] else { panic!("{line}") };
        let samples = recorded.remove(&(pid, tid)).unwrap_or_default();
        // The last one may have been taken, and not counted by the program any more.
        let count = samples.len();
        assert!(count == taken as usize || count == taken as usize + 1, "{line}: {count} are recorded");
        for (index, sample) in samples.iter().enumerate() {
            let levels = sample.frames.iter().filter(|frame| frame.name() == "in_level").count();
            assert_eq!((levels, sample.complete()), (index % 16 + 1, true), "{line}: sample {index}: {sample:?}");
        }
        threads += 1;
        total += count;
    }
    assert!(recorded.is_empty(), "samples of threads that took none: {:?}", recorded.keys());
    assert_eq!(threads, kills * 3);
    println!("{total} samples of {threads} threads, none lost, none torn");
}
