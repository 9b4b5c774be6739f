//! More threads than can be sampled at the same time: the number of those that are not is shown, with the limit and
//! advice.

use std::ffi::OsStr;
use std::path::Path;
use uunwind_ring::layout::BLOCKS;
use uunwind_tests::{compile, paths, skips, uu};

/// Exit codes of the program.
const NO_THREAD: i32 = 3;
const NO_POLICY: i32 = 4;

/// The summary of a recording of a program with this number of threads besides its main thread; `None` where this
/// machine cannot create them.
fn summary(scratch: &Path, threads: usize, options: &[&str]) -> Option<String> {
    let program = compile::gcc(scratch, "many_threads", &["native/many_threads.c"], &["-pthread"]);
    let count = threads.to_string();
    let words: Vec<&OsStr> =
        [program.as_os_str(), OsStr::new(&count)].into_iter().chain(options.iter().map(OsStr::new)).collect();
    let recording = uu::record(scratch, &[], |_| {}, &words);
    match recording.outcome.code() {
        NO_THREAD => skips::skipped(&format!("{threads} threads"), "the limit of threads is lower here"),
        NO_POLICY => skips::skipped("threads that all wait to begin", "needs the right to a real-time policy"),
        0 => return Some(recording.report("summary")),
        code => panic!("exit code {code}: {}", recording.outcome.text()),
    }
    None
}

#[test]
fn threads_beyond_the_limit_are_counted_and_the_limit_is_named() {
    let scratch = paths::scratch("thread-limit");
    // The process and its main thread have a block each.
    let Some(summary) = summary(&scratch, BLOCKS - 2 + 54, &[]) else { return };
    let line = summary.lines().find(|line| line.contains("not sampled")).unwrap_or_else(|| panic!("{summary}"));
    assert!(line.trim_start().starts_with("54 threads not sampled: at most 2048 processes and threads"), "{line}");
    assert!(line.contains("fewer threads at once") && line.contains("--no-children"), "{line}");
    assert!(summary.contains(&format!(" of {} seen", BLOCKS - 1)), "{summary}");
    std::fs::remove_dir_all(scratch).expect("removed");
}

#[test]
fn threads_that_all_wait_for_a_processor_are_all_met() {
    let scratch = paths::scratch("threads-begin");
    let Some(summary) = summary(&scratch, BLOCKS - 2, &["at-once"]) else { return };
    assert!(!summary.contains("not sampled"), "{summary}");
    assert!(summary.contains(&format!(" of {} seen", BLOCKS - 1)), "{summary}");
    std::fs::remove_dir_all(scratch).expect("removed");
}
