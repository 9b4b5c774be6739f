//! `uu record --no-replay`: every walk steps all of its frames, the recording says so, and the stacks are the same.

use std::ffi::OsStr;
use std::path::Path;
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, interpreters, paths, uu};

const EXPLICIT: [&str; 3] = ["--explicit", "-r", "1"];

/// The summary's line on replayed frames.
fn reuse(recording: &uu::Recording) -> String {
    let summary = recording.report_with("summary", &["-v"]);
    let line = summary.lines().find_map(|line| line.trim().strip_prefix("reuse"));
    line.unwrap_or_else(|| panic!("{summary}")).trim().to_owned()
}

/// The share of replayed frames in percent; `None` if the line has none.
fn share(recording: &uu::Recording) -> Option<f64> {
    reuse(recording).split_once(" %")?.0.parse().ok()
}

/// The explicit samples' frames by name and position, without what differs between runs of a program.
fn stacks(samples: &[Sample]) -> Vec<Vec<String>> {
    let frame = |frame: &Frame| match frame {
        Frame::Native { symbol, offset, .. } => format!("{symbol}+{offset:#x}"),
        Frame::Python { name, line, position, .. } => format!("py {name}:{line} at {position}"),
        other => other.name().to_owned(),
    };
    let explicit = samples.iter().filter(|sample| sample.kind == "explicit");
    explicit.map(|sample| sample.frames.iter().map(frame).collect()).collect()
}

/// Records a program with and without replay, and compares.
#[track_caller]
fn compare(scratch: &Path, program: &[&OsStr]) {
    let with = uu::record(&scratch.join("with"), &EXPLICIT, |_| {}, program).expect_code(0);
    let (replayed, samples) = (share(&with), with.samples());
    // Otherwise the comparison below means nothing.
    assert!(replayed > Some(1.0), "nothing was replayed: {}", reuse(&with));
    assert!(samples.iter().all(|sample| !sample.flags.contains("no-replay")), "{}", samples[0].text());

    let options = [&EXPLICIT[..], &["--no-replay"]].concat();
    let without = uu::record(&scratch.join("without"), &options, |_| {}, program).expect_code(0);
    assert_eq!(reuse(&without), "none: every frame of every sample was walked anew (--no-replay)");
    let stepped = without.samples();
    assert!(stepped.iter().all(|sample| sample.flags.contains("no-replay")), "{}", stepped[0].text());
    let (replayed, stepped) = (stacks(&samples), stacks(&stepped));
    assert!(replayed.len() >= 20, "{} samples", replayed.len());
    assert_eq!(replayed, stepped);
}

fn scratch(name: &str) -> std::path::PathBuf {
    let scratch = paths::scratch(name);
    for part in ["with", "without"] {
        std::fs::create_dir_all(scratch.join(part)).expect("a folder");
    }
    scratch
}

#[test]
fn native_stacks_are_the_same_without_replay() {
    let scratch = scratch("no-replay-native");
    let sources = ["native/chain_main.c", "native/chain_library.c"];
    let program = compile::gcc(&scratch, "chain", &sources, &["-fno-inline", "-fno-optimize-sibling-calls"]);
    compare(&scratch, &[program.as_ref()]);
}

#[test]
fn python_stacks_are_the_same_without_replay() {
    let scratch = scratch("no-replay-python");
    let script = scratch.join("deep.py");
    let text = "import signal\n\
                def leaf():\n    for _ in range(30):\n        signal.raise_signal(signal.SIGPROF)\n\
                def down(n):\n    leaf() if n == 0 else down(n - 1)\n\
                down(20)\n";
    std::fs::write(&script, text).expect("written");
    let found = interpreters::modern();
    let Some(python) = found.first() else {
        return uunwind_tests::skips::skipped("no_replay::python", "this machine has no supported CPython");
    };
    compare(&scratch, &[python.path.as_ref(), script.as_ref()]);
}

/// The summary only repeats the recording's flag; the counters come from the walks themselves.
#[test]
fn no_walk_of_the_target_replays_a_frame() {
    let scratch = scratch("no-replay-counters");
    let sources = ["native/chain_main.c", "native/chain_library.c"];
    let program = compile::gcc(&scratch, "chain", &sources, &["-fno-inline"]);
    for (options, replays) in [(&EXPLICIT[..], true), (&[&EXPLICIT[..], &["--no-replay"]].concat(), false)] {
        let recording = uu::record(&scratch.join("with"), options, |_| {}, &[program.as_ref()]).expect_code(0);
        let read = uunwind_recording::Recording::read(&recording.file).expect("a recording");
        let emitted: u64 = read.counters.iter().map(|(_, counters)| counters.frames_emitted).sum();
        let reused: u64 = read.counters.iter().map(|(_, counters)| counters.frames_reused).sum();
        assert!(emitted > 100, "{emitted} frames");
        assert_eq!(reused > 0, replays, "{reused} of {emitted} frames were replayed, {options:?}");
    }
}
