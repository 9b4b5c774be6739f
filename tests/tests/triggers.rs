//! `uu_trigger()`: stacks that are asked for now and taken at the next safe point.

use std::process::Command;
use uunwind_tests::{compile, paths, process, uu};

const OPTIONS: [&str; 3] = ["-pthread", "-rdynamic", "-Wno-unused-result"];

/// Where stacks are taken, who gets them, and what becomes of cookies when threads end, fork and execute other
/// programs.
#[test]
fn each_cookie_has_one_stack_or_is_void() {
    let scratch = paths::scratch("triggers");
    let program = compile::with_library(&scratch, "triggers", &OPTIONS);
    let out = process::run(&mut Command::new(&program), &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(out.stdout, "ok\n");
}

/// The same under the recorder, whose own samples interrupt all of it.
#[test]
fn a_recorded_program_triggers_as_one_that_is_not() {
    let scratch = paths::scratch("triggers-recorded");
    let program = compile::with_library(&scratch, "triggers", &OPTIONS);
    let recording = uu::record(&scratch, &["-r", "250"], |_| {}, &[program.as_os_str()]).expect_code(0);
    assert_eq!(recording.outcome.stdout, "ok\n", "{}", recording.outcome.text());
}

/// Handlers that ask while other requests are made and delivered, on several threads: each cookie has one stack, for
/// each client that asked; and nothing on the way allocates or locks.
#[test]
fn a_storm_of_requests_meets_no_lock_and_no_allocation() {
    let scratch = paths::scratch("triggers-storm");
    let program = compile::with_library(&scratch, "triggers", &OPTIONS);
    let watch = compile::shared(&scratch, "watch.so", &["native/watch_calls.c"]);
    let mut bad = Command::new(&program);
    let noticed = process::run(bad.arg("malloc").env("LD_PRELOAD", &watch), &scratch, uu::LIMIT).expect_code(99);
    assert!(noticed.stderr.contains("called from the sampling handler: malloc"), "{}", noticed.text());
    let mut storm = Command::new(&program);
    let out = process::run(storm.arg("storm").env("LD_PRELOAD", &watch), &scratch, uu::LIMIT).expect_code(0);
    let numbers: Vec<u64> = out.stdout.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(numbers.len() == 2 && numbers[0] > 10_000 && numbers[1] > 10_000, "{}", out.text());
}
