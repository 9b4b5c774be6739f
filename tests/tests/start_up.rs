//! The cost of recording before and for a program's first sample, in pages, which are counted, so that a bound holds on
//! any machine. Each page costs the program a fault and the kernel a page to clear, which is most of what recording
//! adds to a short program's start.

use std::process::Command;
use uunwind_tests::{compile, paths, process, uu};

/// Minor page faults that recording may add to a program's whole life: those of two more objects (each some eight, as
/// of any library), of a process's and a thread's block, and of libuunwind's tables.
const START: i64 = 40;
/// Those that it may add to the child of a fork: of what is written anew there, of both objects' code, and of the
/// blocks.
const FORK: i64 = 28;
/// Those of the first sample: the walk's buffers, the rules of the functions that it meets, and the ring.
const SAMPLE: i64 = 80;

fn median(text: &str, what: &str) -> i64 {
    let mut found: Vec<i64> =
        text.lines().filter_map(|line| line.strip_prefix(what)?.trim().parse().ok()).collect::<Vec<_>>();
    found.sort_unstable();
    assert_eq!(found.len(), 9, "{what} in:\n{text}");
    found[found.len() / 2]
}

#[test]
fn a_short_program_touches_few_pages_for_being_recorded() {
    let scratch = paths::scratch("starts");
    let program = compile::gcc(&scratch, "starts", &["native/starts.c"], &[]);
    let recording = uu::record(&scratch, &["--explicit", "-r", "1"], |_| {}, &[program.as_ref()]).expect_code(0);
    let text = &recording.outcome.stdout;
    let (alone, recorded, sample) = (median(text, "alone "), median(text, "recorded "), median(text, "first sample "));
    println!("page faults: {alone} alone, {recorded} recorded, {sample} of the first sample");
    assert!(recorded > alone, "nothing was recorded:\n{text}");
    assert!(recorded - alone <= START, "a start touches {} pages more:\n{text}", recorded - alone);
    assert!((1..=SAMPLE).contains(&sample), "the first sample touches {sample} pages:\n{text}");
    // Each of the nine samples is there.
    assert_eq!(recording.samples().len(), 9, "{text}");
}

#[test]
fn a_forked_child_touches_few_pages_for_being_recorded() {
    let scratch = paths::scratch("forks");
    let program = compile::gcc(&scratch, "forks", &["native/forks.c"], &[]);
    let alone = process::run(&mut Command::new(&program), &scratch, uu::LIMIT).expect_code(0).stdout;
    let recording = uu::record(&scratch, &[], |_| {}, &[program.as_ref()]).expect_code(0);
    let (alone, recorded) = (median(&alone, "child "), median(&recording.outcome.stdout, "child "));
    println!("page faults of a child: {alone} alone, {recorded} recorded");
    assert!(recorded > alone, "nothing was recorded: {recorded} page faults, {alone} alone");
    assert!(recorded - alone <= FORK, "a child touches {} pages more", recorded - alone);
}

/// Tools that run something before main define `__libc_start_main`, which is libc's, too.
#[test]
fn a_library_that_wraps_main_is_not_taken_for_libc() {
    let scratch = paths::scratch("wraps-main");
    let program = compile::gcc(&scratch, "starts", &["native/starts.c"], &[]);
    let wrapper = compile::shared(&scratch, "wrapper.so", &["native/wraps_main.c"]);
    let preload = |command: &mut Command| {
        command.env("LD_PRELOAD", &wrapper);
    };
    let recording = uu::record(&scratch, &["--explicit", "-r", "1"], preload, &[program.as_ref()]).expect_code(0);
    assert_eq!(recording.samples().len(), 9, "{}", recording.outcome.stdout);
}
