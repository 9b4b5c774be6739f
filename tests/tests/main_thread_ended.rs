//! Processes whose main thread is not there: it has ended by pthread_exit while others go on, or another thread calls
//! exec and takes its place.

use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use uunwind_tests::attached;
use uunwind_tests::dumps::{functions, threads};
use uunwind_tests::running::Running;
use uunwind_tests::samples::Sample;
use uunwind_tests::{compile, paths, process, uu};

fn program(name: &str) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(name);
    let program = compile::gcc(&scratch, "main_ended", &["native/main_ended.c"], &["-pthread", "-g"]);
    (scratch, program)
}

fn ended(name: &str) -> (PathBuf, Running) {
    let (scratch, program) = program(name);
    let running = Running::ready(&mut Command::new(program));
    (scratch, running)
}

/// How many of the samples are in this function, called by that one; all of them are whole.
fn samples_in(samples: &[Sample], inner: &str, outer: &str) -> usize {
    let is_there = |sample: &&Sample| {
        let names: Vec<&str> = sample.frames.iter().map(|frame| frame.name()).collect();
        let at = names.iter().position(|name| *name == inner);
        at.is_some_and(|at| names.get(at + 1) == Some(&outer))
    };
    let found: Vec<&Sample> = samples.iter().filter(is_there).collect();
    assert!(found.iter().all(|sample| sample.complete()), "{}", found[0].text());
    found.len()
}

#[test]
fn the_other_threads_are_shown() {
    let (scratch, running) = ended("main-ended-dump");
    let mut command = uu::command(&scratch, &["dump", "--json", "-p"]);
    let out = process::run(command.arg(running.pid().to_string()), &scratch, uu::LIMIT).expect_code(0);
    let dump: Value = serde_json::from_str(&out.stdout).expect("JSON");
    for (inner, outer) in [("spins", "in_loop"), ("waits", "in_wait")] {
        let there = |thread: &&Value| functions(thread).windows(2).any(|pair| pair == [inner, outer]);
        let thread = threads(&dump).iter().find(there).unwrap_or_else(|| panic!("{inner}: {dump:#}"));
        assert_eq!(thread["complete"], true, "{thread:#}");
        assert_ne!(thread["tid"], running.pid(), "{thread:#}");
    }
    assert_eq!(threads(&dump).len(), 2, "the main thread has no stack: {dump:#}");
    assert!(dump["notes"].to_string().contains("the main thread has ended"), "{dump:#}");
    assert_eq!(running.end(), Some(0));
}

#[test]
fn the_other_threads_are_recorded_by_a_sampler_inside_and_from_outside() {
    let (scratch, running) = ended("main-ended-attach");
    let all: [&[&str]; 4] = [&[], &["--remote"], &["--mode", "wall"], &["--mode", "wall", "--remote"]];
    for options in all {
        let (recording, samples, said) =
            attached::record(&scratch, running.pid(), &[&["-d", "1", "-r", "199"], options].concat());
        assert!(samples_in(&samples, "spins", "in_loop") > 0, "{options:?}: {said}");
        let waits = samples_in(&samples, "waits", "in_wait");
        assert_eq!(waits > 0, options.contains(&"wall"), "{options:?}: {waits}: {said}");
        let exe = String::from_utf8_lossy(&recording.processes[0].exe).into_owned();
        assert!(exe.ends_with("/main_ended"), "{exe}");
        assert!(recording.threads.iter().any(|thread| thread.name == "spinner"), "{:?}", recording.threads);
        // Only where all is well: the other way is taken where a sampler does not go in.
        let is_inside = recording.notes.iter().any(|note| note.starts_with(uunwind_recording::FROM_INSIDE));
        assert_eq!(is_inside, options.is_empty(), "{:?}", recording.notes);
    }
    assert_eq!(running.end(), Some(0));
}

/// A main thread that ends while it is looked at.
#[test]
fn a_main_thread_may_end_during_the_recording() {
    let (scratch, program) = program("main-ends");
    for options in [&["-r", "999"][..], &["-r", "999", "--mode", "wall"]] {
        let words = [program.as_os_str(), "500".as_ref()];
        let recording = uu::record(&scratch, options, |_| {}, &words).expect_code(0);
        let samples = recording.samples();
        assert!(samples_in(&samples, "spins", "in_loop") > 50, "{options:?}: {}", recording.outcome.text());
        if options.contains(&"wall") {
            assert!(samples_in(&samples, "waits", "in_wait") > 0, "{}", recording.outcome.text());
        }
    }
}

/// What `uu doctor` says of all code of such a process.
#[test]
fn its_code_is_described() {
    let (scratch, running) = ended("main-ended-doctor");
    let mut command = uu::command(&scratch, &["doctor"]);
    let out = process::run(command.arg(running.pid().to_string()), &scratch, uu::LIMIT).expect_code(0);
    assert!(["/main_ended\n", "[vdso]"].iter().all(|name| out.stdout.contains(name)), "{}", out.text());
    assert!(!out.stdout.contains("not examined: the file"), "{}", out.text());
    assert_eq!(running.end(), Some(0));
}

/// Neither uu nor the program waits for ever: the kernel holds up who begins to trace a thread until an exec is over,
/// and the exec until the tracers of all other threads have taken notice of their ends.
#[test]
fn an_exec_by_another_thread_is_not_held_up() {
    let scratch = paths::scratch("execs-by-thread");
    let program = compile::gcc(&scratch, "execs_by_thread", &["native/execs_by_thread.c"], &["-pthread"]);
    for what in ["stays", "ends"] {
        for options in [&["-r", "999"][..], &["-r", "999", "--mode", "wall"]] {
            let mut child = Command::new(&program).args(["150", what]).spawn().expect("a program");
            // It may be looked at in the middle of an exec, too. All may end before it has a sample.
            let mut command = uu::command(&scratch, &["record", "--remote", "-p"]);
            command.arg(child.id().to_string()).args(options).arg("-o").arg(scratch.join("recording.uu"));
            let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
            let status = child.wait().expect("its end");
            assert_eq!(status.code(), Some(7), "{what} {options:?}: {}", out.text());
        }
    }
}
