//! What a capture believes of stacks in a program that has called nothing else: as long as it holds, no system call is
//! made; and what ends it neither ends the program nor shows in a stack.

use std::process::Command;
use uunwind_tests::{compile, paths, process, uu};

/// What the program prints in each of these cases.
fn run(name: &str, cases: &[&str], options: &[&str]) -> Vec<String> {
    let scratch = paths::scratch(name);
    let mut with = vec!["-pthread", "-Wno-missing-prototypes"];
    with.extend(options);
    let program = compile::with_library(&scratch, "own_stack", &with);
    let out = |case: &&str| process::run(Command::new(&program).arg(case), &scratch, uu::LIMIT).expect_code(0).stdout;
    cases.iter().map(out).collect()
}

#[test]
fn what_is_taken_away_or_replaced_is_not_believed() {
    let cases = ["holes", "below", "switched", "threads", "tasks", "alternate", "children"];
    for (name, frame_pointers) in
        [("own-stack", "-fomit-frame-pointer"), ("own-framed-stack", "-fno-omit-frame-pointer")]
    {
        for (case, out) in cases.iter().zip(run(name, &cases, &[frame_pointers])) {
            assert_eq!(out, "fine\n", "{case}, {frame_pointers}");
        }
    }
}

/// On the main thread and on another one, by calls, in handlers and from their ucontexts, of stacks in turns.
#[test]
fn captures_of_known_stacks_make_no_system_call() {
    for out in run("own-stack-calls", &["calls", "calls-in-a-thread"], &[]) {
        let numbers: Vec<u64> = out.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        assert!(numbers[0] > 0 && numbers[1] == 0 && out.ends_with("fine\n"), "{out}");
    }
}
