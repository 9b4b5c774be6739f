//! Faults: those of the program reach its handlers as the kernel would have delivered them, and those of a walk only
//! end the walk.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use uunwind_tests::pair::{both, Pair};
use uunwind_tests::samples::Sample;
use uunwind_tests::{compile, java, paths};

fn program(scratch: &Path, options: &[&str]) -> PathBuf {
    compile::gcc(scratch, "faults", &["native/faults.c"], &[&["-pthread"], options].concat())
}

/// Runs one mode of the program with and without `uu`: output and exit code must be the same.
#[track_caller]
fn same(mode: &str, options: &[&str]) -> (Pair, Vec<Sample>) {
    let program = program(&paths::scratch(mode), &[]);
    let pair = both(mode, options, |_| {}, &[program.as_os_str(), OsStr::new(mode)]).same();
    assert_eq!(pair.plain.code, 0, "{:?}", pair.plain);
    let samples = pair.recording.samples();
    (pair, samples)
}

/// The samples with this function on the stack. All must be complete, and their weight at least half of the
/// milliseconds that the program spends there.
#[track_caller]
fn whole<'s>(samples: &'s [Sample], function: &str, milliseconds: u64) -> Vec<&'s Sample> {
    let inside: Vec<&Sample> = samples.iter().filter(|s| s.native_names().contains(&function)).collect();
    let weight: u64 = inside.iter().map(|s| s.weight).sum();
    assert!(weight * 2 >= milliseconds, "{weight} ms of {milliseconds}, {} samples, lie in {function}", inside.len());
    for sample in &inside {
        assert!(sample.complete(), "{}", sample.text());
    }
    inside
}

#[test]
fn handlers_installed_after_us_are_entered_as_by_the_kernel() {
    let (pair, _) = same("after", &["-r", "999"]);
    println!("{}", pair.plain.stdout);
}

#[test]
fn handlers_installed_before_us_are_kept() {
    let scratch = paths::scratch("before");
    let early = compile::shared(&scratch, "libearly.so", &["native/faults_early.c"]);
    let program = program(&scratch, &["-Wl,--no-as-needed", early.to_str().expect("UTF-8")]);
    let pair = both("before", &["-r", "999"], |_| {}, &[program.as_os_str(), OsStr::new("before")]).same();
    assert_eq!(pair.plain.code, 0, "{:?}", pair.plain);
}

/// The handler's own frame, the kernel's, the function that faulted.
#[track_caller]
fn sampled_inside_the_handler(mode: &str) {
    let (_, samples) = same(mode, &["-r", "999"]);
    // If the machine stalls, ticks arrive in one burst. If the signal were masked, there would be nothing but such
    // bursts.
    let mut in_time = 0;
    for sample in whole(&samples, "jumps", 300) {
        let names = sample.native_names();
        let at = |name| names.iter().position(|n| *n == name);
        assert!(at("burn") < at("jumps") && at("jumps") < at("touch") && at("touch") < at("main"), "{}", sample.text());
        assert!(!sample.flags.contains("no-plugins"), "{}", sample.text());
        in_time += if sample.flags.contains("blocked") || sample.flags.contains("late") { 0 } else { sample.weight };
    }
    assert!(in_time >= 60, "{in_time} of 300 ms were sampled when their time had come");
}

#[test]
fn handlers_of_faults_are_sampled() {
    sampled_inside_the_handler("inside");
}

#[test]
fn handlers_of_faults_on_alternate_stacks_are_sampled() {
    sampled_inside_the_handler("inside-alternate");
}

#[test]
fn threads_that_block_every_signal_are_sampled() {
    let (_, samples) = same("blocked", &["-r", "999"]);
    for sample in whole(&samples, "burner", 800) {
        assert!(!sample.flags.contains("no-plugins"), "{}", sample.text());
    }
}

#[test]
fn threads_with_small_alternate_stacks_are_sampled() {
    let (_, samples) = same("small", &["-r", "999"]);
    whole(&samples, "with_small_stack", 900);
}

#[test]
fn an_overflow_of_the_programs_stack_is_its_own() {
    let (_, samples) = same("overflow", &["-r", "999"]);
    assert!(samples.iter().any(|s| s.native_names().contains(&"overflowed")));
}

#[test]
fn children_that_share_our_memory_or_our_handlers_are_left_alone() {
    let (pair, _) = same("children", &["-r", "999"]);
    println!("{}", pair.plain.stdout);
}

#[test]
fn a_walk_left_by_siglongjmp_does_not_take_later_faults() {
    let (_, samples) = same("left", &["--explicit", "-r", "999"]);
    assert!(samples.len() > 1000, "{} samples: not a storm, or a stale mark swallowed them", samples.len());
}

/// A program that forbids itself nearly all system calls is sampled without any.
#[test]
fn strict_seccomp_is_no_death() {
    let (_, samples) = same("strict", &["-r", "999"]);
    whole(&samples, "burn_quietly", 50);
}

/// A handler on an alternate stack that is just large enough for it: our code that runs before it uses hardly more of
/// the stack.
#[test]
fn faults_on_alternate_stacks_need_little_more_room() {
    const MORE: i64 = 512;
    let program = program(&paths::scratch("depth"), &[]);
    let pair = both("depth", &["-r", "999"], |_| {}, &[program.as_os_str(), OsStr::new("depth")]);
    let depth = |said: &str| -> i64 {
        let number = said.trim().strip_prefix("depth ").and_then(|n| n.parse().ok());
        number.unwrap_or_else(|| panic!("no depth: {said}"))
    };
    let (plain, recorded) = (depth(&pair.plain.stdout), depth(&pair.recorded.stdout));
    println!("a fault reaches {plain} bytes down, recorded {recorded}");
    assert!(recorded - plain <= MORE, "{plain} bytes without us, {recorded} with");
}

/// Compiled Java code finds null by SIGSEGV: 200,000 times, in two threads.
#[test]
fn a_jvm_keeps_its_faults() {
    let Some(words) = java::null_checks(&paths::scratch("jvm")) else { return };
    let words: Vec<&OsStr> = words.iter().map(|w| &**w).collect();
    let pair = both("jvm", &["-r", "999"], |_| {}, &words).same();
    assert_eq!((pair.plain.code, &*pair.plain.stdout), (0, java::NULL_CHECKS_SAY));
    let samples = pair.recording.samples();
    let weight: u64 = samples.iter().map(|s| s.weight).sum();
    println!("jvm: {} samples, {weight} ms", samples.len());
    assert!(weight >= 100, "{weight} ms of CPU time were sampled");
}
