//! `uu record --mode lock`: what is recorded of a program that measures its own waits is what it measures, and the
//! program behaves as it does alone, also where threads are cancelled while they wait.

use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use uunwind_tests::pair::both;
use uunwind_tests::process::run;
use uunwind_tests::uu::Recording;
use uunwind_tests::waits::{self, within, Wait};
use uunwind_tests::{compile, executable, go, interpreters, paths, uu};

fn program(name: &str) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(name);
    let program = compile::gcc(&scratch, "contends", &["native/contends.c"], &["-O1", "-g", "-pthread"]);
    (scratch, program)
}

fn recorded(name: &str, options: &[&str], what: &str) -> Recording {
    let (scratch, program) = program(name);
    let options: Vec<&str> = ["--mode", "lock"].iter().chain(options).copied().collect();
    uu::record(&scratch, &options, |_| {}, &[program.as_os_str(), OsStr::new(what)]).expect_code(0)
}

fn said(recording: &Recording) -> BTreeMap<String, Vec<u64>> {
    waits::said(recording.outcome.stdout.lines())
}

fn waits(recording: &Recording) -> Vec<Wait> {
    waits::read(&recording.report("json"))
}

#[track_caller]
fn expect_no_loss(recording: &Recording) {
    assert!(!recording.outcome.stderr.contains("were lost"), "{}", recording.outcome.stderr);
}

/// Each wait is there once, as long as the program has measured, with its stack, its kind and the holder.
#[test]
fn waits_are_those_that_the_program_measures() {
    let recording = recorded("locks-each", &["--all"], "each");
    expect_no_loss(&recording);
    waits::expect_measured(&waits(&recording), &said(&recording));
    let summary = recording.report("summary");
    for text in ["Lock profile of", "What was waited for most", "held by ", "for a condition variable"] {
        assert!(summary.contains(text), "{text}: {summary}");
    }
    for sample in recording.samples().iter().filter(|sample| sample.native_names().contains(&"waits")) {
        assert!(sample.complete() && sample.kind == "lock", "{}", sample.text());
    }
}

/// Samples stand for the time of all.
#[test]
fn samples_stand_for_all_waits() {
    let recording = recorded("locks-sampled", &[], "each");
    expect_no_loss(&recording);
    let said = said(&recording);
    let folded = recording.report_with("folded", &["--focus", "^for_(mutex|write)$"]);
    let total: u64 = folded.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum();
    let sum = |index: usize| ["for_mutex", "for_write"].iter().map(|name| said[*name][index]).sum::<u64>() as f64;
    // Waits of 2 ms and more are sampled with a probability of more than 1 - exp(-20).
    let (least, most) = (sum(1) * (1.0 - 1e-6), sum(2) * (1.0 + 1e-6));
    assert!((least..=most).contains(&(total as f64)), "{total}, not from {least} to {most}");
}

/// Values, errors, errno, cleanup handlers, the child of a fork: all is as without uu.
#[test]
fn the_program_does_not_notice() {
    let (_, program) = program("locks-same");
    for options in [&["--mode", "lock"][..], &["--mode", "lock", "--all"]] {
        let pair = both("locks-same", options, |_| {}, &[program.as_os_str(), OsStr::new("all")]).same();
        let out = &pair.plain.stdout;
        assert!(out.contains("condition: cancelled 1, cleaned condition, mutex free 1"), "{out}");
        assert!(out.contains("pending: cancelled 1, cleaned pending") && out.contains("owner died: 1"), "{out}");
    }
}

/// What is no wait for a futex passes the sampler by: results, errno, six arguments; also before its constructor.
#[test]
fn system_calls_by_their_numbers_are_what_they_are() {
    let scratch = paths::scratch("locks-numbers");
    let source = ["native/numbers.c"];
    let early = compile::gcc(&scratch, "libearly.so", &source, &["-shared", "-fPIC", "-DEARLY"]);
    let (early, path) = (early.display().to_string(), format!("-Wl,-rpath,{}", scratch.display()));
    let program = compile::gcc(&scratch, "numbers", &source, &[&early, &path]);
    let options = ["--mode", "lock", "--all"];
    let pair = both("locks-numbers", &options, |_| {}, &[program.as_os_str()]).same();
    assert_eq!(pair.plain.stdout.matches("mapped second\n").count(), 2, "{}", pair.plain.stdout);
    let waits = waits(&pair.recording);
    // In the constructor none is sampled. In the program one is over in 2 ms, and one was before it began, which takes
    // a time that may count.
    assert!((1..=2).contains(&waits.len()) && waits.iter().all(|wait| wait.what == "futex"), "{}", waits.len());
    assert!(waits[0].duration >= 2_000_000, "{}", waits[0].duration);
}

/// The locks of Rust's standard library and of parking_lot, which wait by futex(2).
#[test]
fn locks_of_rust_are_waited_for() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // Of the whole workspace: other features would replace libraries that tests beside this one link.
    build.args(["build", "--locked", "--workspace", "--example", "waits_in_rust"]);
    let done = build.current_dir(paths::root()).output().expect("cargo runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let scratch = paths::scratch("locks-rust");
    let program = scratch.join("waits_in_rust");
    executable::copy(&paths::target().join("debug/examples/waits_in_rust"), &program);
    let words = [program.as_os_str()];
    let recording = uu::record(&scratch, &["--mode", "lock", "--all"], |_| {}, &words).expect_code(0);
    expect_no_loss(&recording);
    let (said, waits) = (said(&recording), waits(&recording));
    assert_eq!(said.len(), 5, "{said:?}");
    for (function, numbers) in said {
        let [rounds, least, most, address, size] = numbers[..] else { panic!("{numbers:?}") };
        let name = format!("waits_in_rust::{function}");
        let of_lock: Vec<&Wait> = within(&waits, &name).collect();
        let total: u64 = of_lock.iter().map(|wait| wait.duration).sum();
        // A thread that has been woken may have to wait again.
        assert!(of_lock.len() as u64 >= rounds, "{function}: {} of {rounds}", of_lock.len());
        assert!((least..=most).contains(&total), "{function}: {total}, not from {least} to {most}");
        for wait in of_lock {
            assert!(wait.what == "futex" && wait.holder.is_none(), "{function}: {}", wait.what);
            let is_in_lock = (address..address + size).contains(&wait.lock);
            assert!(is_in_lock || function.starts_with("for_parked"), "{function}: {:#x}", wait.lock);
            assert!(wait.functions.iter().any(|name| name == "waits_in_rust::waits"), "{:?}", wait.functions);
        }
    }
}

/// A forked child's waits are its own.
#[test]
fn children_are_recorded() {
    let recording = recorded("locks-fork", &["--all"], "fork");
    let waits = waits(&recording);
    assert_eq!(within(&waits, "for_mutex").count(), 1);
    // The program itself waits for no lock.
    let json: Value = serde_json::from_str(&recording.report("json")).expect("JSON");
    assert_eq!(json["processes"].as_array().map(Vec::len), Some(2));
}

/// Go's tool reads the two values.
#[test]
fn go_reads_the_mutex_profile() {
    let recording = recorded("locks-pprof", &["--all"], "each");
    if !go::installed("waits as Go's mutex profiles") {
        return;
    }
    let scratch = paths::scratch("locks-pprof-read");
    let file = scratch.join("x.pb.gz");
    let mut report = uu::command(&scratch, &["report", "--focus", "^for_mutex$"]);
    run(report.arg(&recording.file).arg("-o").arg(&file), &scratch, uu::LIMIT).expect_code(0);
    let mut pprof = Command::new("go");
    pprof.args(["tool", "pprof", "-raw"]).arg(&file).env("HOME", &scratch);
    let raw = run(&mut pprof, &scratch, uu::LIMIT).expect_code(0).stdout;
    let (_, samples) = raw.split_once("contentions/count delay/nanoseconds[dflt]\n").unwrap_or_else(|| panic!("{raw}"));
    let mut sums = [0u64; 2];
    for line in samples.lines().take_while(|line| *line != "Locations") {
        let Some((values, _)) = line.split_once(": ") else { continue };
        let values: Vec<u64> = values.split_whitespace().filter_map(|value| value.parse().ok()).collect();
        if values.len() == sums.len() {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    let [rounds, least, most] = said(&recording)["for_mutex"][..] else { panic!("numbers") };
    assert!(sums[0] == rounds && (least..=most).contains(&sums[1]), "{sums:?}");
}

/// A `threading.Lock` that a thread waits for, in the line of Python that does.
#[test]
fn locks_of_python_are_waited_for() {
    for python in interpreters::modern() {
        let scratch = paths::scratch("locks-python");
        let script = paths::source("python/contends.py");
        let words = [python.path.as_os_str(), script.as_os_str()];
        let recording = uu::record(&scratch, &["--mode", "lock", "--all"], |_| {}, &words).expect_code(0);
        let numbers: Vec<u64> =
            recording.outcome.stdout.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let [_, _, most] = numbers[..] else { panic!("{numbers:?}") };
        let all = waits(&recording);
        let of_lock: Vec<&Wait> = within(&all, "waits").collect();
        let total: u64 = of_lock.iter().map(|wait| wait.duration).sum();
        // It waits for the GIL there, too, before and after.
        assert!(!of_lock.is_empty() && total > 0, "{}", python.label);
        let in_lock = of_lock.iter().filter(|wait| wait.what == "semaphore" || wait.what == "condition variable");
        let longest = in_lock.map(|wait| wait.duration).max().unwrap_or(0);
        assert!(longest > 0 && longest <= most, "{}: {longest} of {most}", python.label);
    }
}

#[test]
fn options_that_do_not_go_with_it_are_refused() {
    let scratch = paths::scratch("locks-refused");
    for (options, text) in [
        (&["-p", "1", "--remote"][..], "--remote and --mode lock do not go together"),
        (&["-r", "7", "true"], "-r (--rate) and --mode lock do not go together"),
        (&["--every-bytes", "1K", "true"], "--every-bytes is for --mode alloc"),
        (&["--unwind", "offline", "true"], "--unwind and --mode lock do not go together"),
        (&["--kernel", "true"], "--kernel and --mode lock do not go together"),
    ] {
        let mut command = uu::command(&scratch, &["record", "--mode", "lock"]);
        let refused = run(command.args(options), &scratch, uu::LIMIT).expect_code(125);
        assert!(refused.stderr.contains(text), "{}", refused.stderr);
    }
}
