//! A recording that is paused: by the program itself, or by `uu pause` and `uu resume`, whether uu has started the
//! program or not. What the program does in the function `paused` is in no sample, and the rest is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use uunwind_recording::Recording;
use uunwind_tests::attached::Attached;
use uunwind_tests::process::{run, Outcome};
use uunwind_tests::running::Running;
use uunwind_tests::samples::Sample;
use uunwind_tests::{compile, paths, uu};

const FUNCTIONS: [&str; 4] = ["recorded", "paused", "recorded_again", "paused_again"];

fn program(name: &str) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(name);
    let include = format!("-I{}", paths::root().join("ffi/include").display());
    let options = ["-O1", "-g", "-pthread", "-ldl", &include];
    let program = compile::gcc(&scratch, "switched", &["native/switched.c"], &options);
    (scratch, program)
}

/// The functions of the program that samples are in.
fn met(samples: &[Sample]) -> BTreeSet<&str> {
    samples.iter().flat_map(Sample::native_names).filter(|name| FUNCTIONS.contains(name)).collect()
}

/// Periods that passed in pauses, as the processes have counted them, in seconds.
fn paused_seconds(recording: &Recording) -> f64 {
    let periods: u64 = recording.counters.iter().map(|(_, counters)| counters.paused).sum();
    periods as f64 / f64::from(recording.settings.rate)
}

fn ask(scratch: &Path, command: &str, pid: u32) -> Outcome {
    run(&mut uu::command(scratch, &[command, &pid.to_string()]), scratch, uu::LIMIT)
}

#[track_caller]
fn asked(scratch: &Path, command: &str, pid: u32) {
    let said = ask(scratch, command, pid).expect_code(0).stdout;
    let now = if command == "pause" { "is paused" } else { "is going on" };
    assert!(said.contains(now) && said.contains(&pid.to_string()), "{said}");
}

/// Has the program burn in this function.
fn burn(program: &mut Running, function: &str) {
    program.say(function);
    assert_eq!(program.line(), "done");
}

#[test]
fn a_program_pauses_its_recording_itself() {
    let (scratch, program) = program("pauses-itself");
    let words = [program.as_os_str(), "itself".as_ref()];
    for (options, expected) in [
        (&["-r", "499"][..], &["recorded", "recorded_again"][..]),
        // It is the program that begins.
        (&["-r", "499", "--start-paused"], &["recorded_again"]),
    ] {
        let recording = uu::record(&scratch, options, |_| {}, &words).expect_code(0);
        assert_eq!(recording.outcome.stdout, "stop 0\nstart 0\nstop 0\n");
        assert_eq!(met(&recording.samples()), expected.iter().copied().collect(), "{options:?}");
        let file = Recording::read(&recording.file).expect("a recording");
        // Each function has used 0.4 s, by the program's own clock, and counts are those of whole periods.
        let (paused, least) = (paused_seconds(&file), 0.4 * (4 - expected.len()) as f64);
        assert!(paused > least * 0.8, "{paused} of {least}");
        let summary = recording.report("summary");
        assert!(summary.contains(" s while the recording was paused"), "{summary}");
    }
}

#[test]
fn without_a_recording_the_calls_say_so() {
    let (scratch, program) = program("pauses-none");
    let enosys = -libc::ENOSYS;
    let mut alone = std::process::Command::new(&program);
    let said = run(alone.arg("itself"), &scratch, uu::LIMIT).expect_code(0).stdout;
    assert_eq!(said, format!("stop {enosys}\nstart {enosys}\nstop {enosys}\n"));
    // The library is there, and nothing records.
    let enotconn = -libc::ENOTCONN;
    let mut preloaded = std::process::Command::new(&program);
    preloaded.arg("itself").env("LD_PRELOAD", paths::tree().join("lib/libuunwind.so.0"));
    let said = run(&mut preloaded, &scratch, uu::LIMIT).expect_code(0).stdout;
    assert_eq!(said, format!("stop {enotconn}\nstart {enotconn}\nstop {enotconn}\n"));
}

#[test]
fn a_recording_of_a_program_is_paused_and_resumed() {
    for by_program in [true, false] {
        let (scratch, program) = program(&format!("pauses-asked-{by_program}"));
        let file = scratch.join("recording.uu");
        let mut command = uu::command(&scratch, &["record", "-r", "499", "--start-paused", "-o"]);
        command.arg(&file).arg("--").arg(&program).arg("asked").stderr(Stdio::null());
        let mut running = Running::start(&mut command);
        let program: u32 = running.line().parse().expect("a process id");
        // By the program's process, or by uu's.
        let pid = if by_program { program } else { running.pid() };
        burn(&mut running, "paused");
        asked(&scratch, "resume", pid);
        burn(&mut running, "recorded");
        asked(&scratch, "pause", pid);
        asked(&scratch, "pause", pid);
        burn(&mut running, "paused_again");
        asked(&scratch, "resume", pid);
        burn(&mut running, "recorded_again");
        assert_eq!(running.close(), Some(0));
        let out = run(&mut uu::command(&scratch, &["version"]), &scratch, uu::LIMIT);
        let recording = uu::Recording::made(file, out, scratch);
        assert_eq!(met(&recording.samples()), BTreeSet::from(["recorded", "recorded_again"]));
        let file = Recording::read(&recording.file).expect("a recording");
        assert!(paused_seconds(&file) > 0.6, "{}", paused_seconds(&file));
        let note = "the recording was paused 2 times, for ";
        assert!(file.notes.iter().any(|line| line.starts_with(note)), "{:?}", file.notes);
    }
}

#[test]
fn a_recording_of_a_running_process_is_paused_and_resumed() {
    for remote in [false, true] {
        let (scratch, program) = program(&format!("pauses-attached-{remote}"));
        let mut running = Running::start(std::process::Command::new(&program).arg("asked"));
        let pid: u32 = running.line().parse().expect("a process id");
        let options = ["-r", "499", "--start-paused"];
        let attached = match remote {
            true => Attached::begin(&scratch, pid, &options),
            false => Attached::begin_inside(&scratch, pid, &options),
        };
        burn(&mut running, "paused");
        asked(&scratch, "resume", pid);
        burn(&mut running, "recorded");
        asked(&scratch, "pause", pid);
        burn(&mut running, "paused_again");
        asked(&scratch, "resume", attached.child.id());
        burn(&mut running, "recorded_again");
        attached.signal(libc::SIGINT);
        let (recording, samples, _) = attached.end();
        assert_eq!(met(&samples), BTreeSet::from(["recorded", "recorded_again"]), "remote: {remote}");
        let note = "the recording was paused 2 times, for ";
        assert!(recording.notes.iter().any(|line| line.starts_with(note)), "{:?}", recording.notes);
        // Nothing records it any more.
        let refused = ask(&scratch, "pause", pid).expect_code(125).stderr;
        assert!(refused.contains(&format!("process {pid} is not being recorded")), "{refused}");
        assert_eq!(running.close(), Some(0));
    }
}

/// Threads that wait are sampled from outside, and not in a pause either.
#[test]
fn waits_of_a_pause_are_left_out() {
    let (scratch, program) = program("pauses-waits");
    let file = scratch.join("recording.uu");
    let mut command = uu::command(&scratch, &["record", "-r", "499", "--mode", "wall", "--start-paused", "-o"]);
    command.arg(&file).arg("--").arg(&program).arg("asked").stderr(Stdio::null());
    let mut running = Running::start(&mut command);
    let pid: u32 = running.line().parse().expect("a process id");
    // It waits for this in read(2).
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(running.close(), Some(0));
    let outcome = ask(&scratch, "resume", pid).expect_code(125);
    assert!(outcome.stderr.contains(&format!("there is no process {pid}")), "{}", outcome.stderr);
    let waits = Recording::read(&file).map_or(0, |recording| recording.samples.len());
    assert_eq!(waits, 0);
}

#[test]
fn what_cannot_be_paused_is_refused() {
    let scratch = paths::scratch("pauses-refused");
    let own = std::process::id();
    for (command, pid, code, text) in [
        ("pause", own.to_string(), 125, format!("process {own} is not being recorded")),
        ("resume", "4194304".to_owned(), 125, "there is no process 4194304".to_owned()),
        ("pause", "x".to_owned(), 125, "PID x: a process id is a whole number above 0".to_owned()),
    ] {
        let refused = run(&mut uu::command(&scratch, &[command, &pid]), &scratch, uu::LIMIT).expect_code(code);
        assert!(refused.stderr.contains(&text), "{}", refused.stderr);
    }
    let mut missing = uu::command(&scratch, &["pause"]);
    let refused = run(&mut missing, &scratch, uu::LIMIT).expect_code(125);
    assert!(refused.stderr.contains("it takes one that is being recorded"), "{}", refused.stderr);
}
