//! Time in which the sampling signal was blocked is shown as that, and nothing else is.

use std::ffi::OsStr;
use uunwind_tests::samples::Sample;
use uunwind_tests::{compile, paths, uu};

/// What a run at 1,000 Hz shows, in ms.
struct Shown {
    /// Under `[signals blocked]`.
    blocked: u64,
    /// Under the function that the program names.
    named: u64,
    /// The time that the program itself has measured there.
    measured: u64,
    /// All samples, a line each.
    samples: String,
}

#[track_caller]
fn run(mode: &str) -> Shown {
    let scratch = paths::scratch(&format!("held-back-{mode}"));
    let program = compile::gcc(&scratch, "held_back", &["native/held_back.c"], &["-O1"]);
    let words = [program.as_os_str(), OsStr::new(mode)];
    let recording = uu::record(&scratch, &["-r", "1000"], |_| {}, &words).expect_code(0);
    let folded = recording.report("folded");
    let weight = |text: &str| {
        let lines = folded.lines().filter(|line| line.contains(text));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
    };
    let measured = recording.outcome.stdout.trim().parse().expect("milliseconds");
    let line = |s: &Sample| format!("{} ms {:?} in {:?}\n", s.weight, s.flags, s.native_names().first());
    let samples = recording.samples().iter().filter(|sample| sample.weight > 10).map(line).collect();
    Shown { blocked: weight("[signals blocked]"), named: weight("held"), measured, samples }
}

/// The signal is blocked five times for 0.3 s. Each time ends with one tick of at least 290 periods, except where a
/// busy machine delays ticks by itself.
#[track_caller]
fn held_back(mode: &str) {
    let Shown { blocked, named, measured, samples } = run(mode);
    assert!(
        (measured - 300..=measured + 200).contains(&blocked) && named < 100,
        "{mode}: {blocked} ms blocked where the program has measured {measured}, {named} ms in the function\n{samples}"
    );
}

#[test]
fn a_handler_that_blocks_all_signals() {
    held_back("handler");
}

#[test]
fn a_handler_on_a_small_alternate_stack() {
    held_back("alternate");
}

#[test]
fn a_raw_mask_call() {
    held_back("mask");
}

/// The same program without a blocked signal: however late ticks are, none is reported as blocked.
#[test]
fn what_is_only_late_is_not_called_blocked() {
    let Shown { blocked, named, samples, .. } = run("free");
    assert!(blocked == 0 && named > 0, "{blocked} ms blocked, {named} ms in the function\n{samples}");
}
