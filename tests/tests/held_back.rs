//! Time in which the sampling signal was blocked is shown as that, and nothing else is.

use std::ffi::OsStr;
use uunwind_tests::{compile, paths, uu};

/// Weight under `[signals blocked]`, and under the function that the program names, of a run at 1,000 Hz.
#[track_caller]
fn weights(mode: &str) -> (u64, u64) {
    let scratch = paths::scratch(&format!("held-back-{mode}"));
    let program = compile::gcc(&scratch, "held_back", &["native/held_back.c"], &["-O1"]);
    let words = [program.as_os_str(), OsStr::new(mode)];
    let folded = uu::record(&scratch, &["-r", "1000"], |_| {}, &words).expect_code(0).report("folded");
    let weight = |text: &str| {
        let lines = folded.lines().filter(|line| line.contains(text));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
    };
    (weight("[signals blocked]"), weight("held"))
}

/// The signal is blocked five times for 0.3 s. Each time ends with one tick of at least 290 periods, except where a
/// busy machine delays ticks by itself.
#[track_caller]
fn held_back(mode: &str) {
    let (blocked, named) = weights(mode);
    assert!(
        (1200..=1700).contains(&blocked) && named < 100,
        "{mode}: {blocked} ms blocked, {named} ms in the function"
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
    let (blocked, named) = weights("free");
    assert!(blocked == 0 && named > 0, "{blocked} ms blocked, {named} ms in the function");
}
