//! Ten thousand signals a second over dlopen, malloc and locks: no call from the handler, no crash, no hang.

use std::ffi::OsStr;
use std::process::Command;
use uunwind_tests::own_walks::{self, Reads};
use uunwind_tests::process::run;
use uunwind_tests::{compile, paths, uu};

/// Of CPU time, of all threads.
const SECONDS: &str = "10";
const RATE: &str = "10000";

fn results(stdout: &str) -> String {
    stdout.lines().filter(|l| l.starts_with("results ")).collect()
}

#[test]
fn the_watcher_notices_each_kind_of_call() {
    let scratch = paths::scratch("watcher");
    let watch = compile::shared(&scratch, "watch.so", &["native/watch_calls.c"]);
    let bad = compile::gcc(&scratch, "bad", &["native/bad_handler.c"], &["-pthread"]);
    for (what, code) in [("nothing", 0), ("malloc", 99), ("pthread_mutex_lock", 99), ("dl_iterate_phdr", 99)] {
        let mut command = Command::new(&bad);
        let outcome = run(command.arg(what).env("LD_PRELOAD", &watch), &scratch, uu::LIMIT).expect_code(code);
        assert_eq!(outcome.stderr.contains(what), code == 99, "{}", outcome.text());
    }
}

/// Storms of walks without a recorder are watched, too: here the handler itself calls malloc().
#[test]
fn the_watcher_notices_calls_in_a_programs_own_handler() {
    let scratch = paths::scratch("watched-walks");
    let program = compile::gcc(&scratch, "burn", &["native/burn.c"], &["-pthread"]);
    let bad = |command: &mut Command| {
        command.env("UU_TEST_MALLOC", "1");
    };
    let said = own_walks::storm(&scratch, Reads::Probed, bad, &[program.as_os_str()]).err().expect("noticed");
    assert!(said.contains("exit 99") && said.contains("called from the sampling handler: malloc"), "{said}");
}

#[test]
fn a_storm_of_signals_meets_no_lock_and_no_allocation() {
    let scratch = paths::scratch("storm");
    let watch = compile::shared(&scratch, "watch.so", &["native/watch_calls.c"]);
    let object = compile::shared(&scratch, "libfar.so", &["native/far.c"]);
    let program = compile::gcc(&scratch, "storm", &["native/storm.c"], &["-pthread", "-ldl"]);
    let quiet = run(Command::new(&program).args(["1", "0"]).arg(&object), &scratch, uu::LIMIT).expect_code(0);
    let words = [program.as_os_str(), OsStr::new(SECONDS), OsStr::new(RATE), object.as_os_str()];
    let preload = |command: &mut Command| {
        command.env("LD_PRELOAD", &watch);
    };
    let recording = uu::record(&scratch, &["--explicit", "-r", "99"], preload, &words).expect_code(0);
    let outcome = &recording.outcome;
    assert_eq!(results(&outcome.stdout), results(&quiet.stdout), "{}", outcome.text());
    let sent: u64 =
        outcome.stderr.split("storm: ").nth(1).and_then(|t| t.split(' ').next()?.parse().ok()).expect("count");
    let folded = recording.report("folded");
    let count =
        |l: &str| l.rsplit_once(' ').and_then(|(_, n)| n.parse::<u64>().ok()).expect("a folded line has a count");
    let delivered: u64 = folded.lines().map(count).sum();
    println!("storm: {sent} signals sent, {delivered} samples recorded");
    // A signal is lost while another one is pending, which depends on the number of CPUs for the five threads.
    assert!(delivered >= 10_000, "{delivered} of {sent}: not a storm: {}", outcome.text());
}
