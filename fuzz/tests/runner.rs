//! The runner catches what it claims to catch: each kind of failure is produced, and the input must be reported.

use std::process::Command;
use std::time::Duration;
use uunwind_fuzz::runner::Runner;
use uunwind_fuzz::targets::Target;

/// Selects the failure that the copy of this program produces.
const FAILURE: &str = "UU_FUZZ_FAILURE";
const INPUT: &[u8] = b"an input of 24 bytes\0\0\0\0";

fn fail(data: &[u8]) -> bool {
    match std::env::var(FAILURE).as_deref() {
        Ok("hang") => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        Ok("memory") => std::hint::black_box(vec![1u8; 1 << 30]).len() > 5,
        Ok("read") => {
            // SAFETY: none: this is the mistake that the test must catch.
            let byte = unsafe { std::hint::black_box(data.as_ptr()).add(data.len()).read_volatile() };
            byte > 5
        }
        Ok("stack") => deeper(&[0; 1 << 12]) > 5,
        _ => panic!("found {data:?}"),
    }
}

#[allow(unconditional_recursion, reason = "this is the mistake that must be caught")]
fn deeper(below: &[u8; 1 << 12]) -> u8 {
    let here = std::hint::black_box([below[7]; 1 << 12]);
    deeper(&here) + here[5]
}

static TARGET: Target = Target { name: "made-to-fail", about: "", run: fail, rounds: 0 };

#[test]
fn a_panic_is_reported_with_its_place_and_the_input_made_small() {
    let mut runner = Runner::new(&TARGET, Duration::from_secs(30));
    let report = runner.run(INPUT).expect_err("a panic");
    assert!(report.contains("runner.rs") && report.contains("found [97, 110"), "{report}");
    assert_eq!(runner.shrink(INPUT), b"", "nothing of this input matters");
}

fn fatal(failure: &str, expected: &str) {
    let own = std::env::current_exe().expect("own path");
    let mut copy = Command::new(own);
    copy.args(["--exact", "fatal_child", "--nocapture"]).env(FAILURE, failure);
    let done = copy.output().expect("a copy of this program");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && said.contains(expected), "{failure}: {said}");
    let path = said.lines().find_map(|line| line.strip_prefix("input: ")).unwrap_or_else(|| panic!("{said}"));
    let written = std::fs::read(path).expect("the input");
    std::fs::remove_file(path).expect("own file");
    assert_eq!(written, INPUT, "{failure}");
}

#[test]
fn fatal_child() {
    // Acts only in the copies of this program that the tests below start, and ends those.
    if std::env::var_os(FAILURE).is_some() {
        let limit = Duration::from_secs(1);
        let done = Runner::new(&TARGET, limit).run(INPUT);
        panic!("still alive: {done:?}");
    }
}

#[test]
fn a_hang_is_ended() {
    fatal("hang", "one input took more than 1s");
}

#[test]
fn memory_beyond_the_limit_is_refused() {
    fatal("memory", "memory allocation of 1073741824 bytes failed");
}

#[test]
fn a_read_beyond_the_end_faults() {
    fatal("read", "");
}

#[test]
fn a_stack_overflow_is_caught() {
    fatal("stack", "");
}
