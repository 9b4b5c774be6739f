//! Beside a program that does nothing the recorder sleeps, and it misses nothing of what comes then.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use uunwind_tests::{compile, paths, uu};

/// How often a process has gone to sleep so far.
fn sleeps(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).expect("a count");
    line.trim().parse().expect("a number")
}

/// Waits until the recorder of a program that does nothing wakes up at most a few times in two seconds: it passes over
/// its rings a hundred times a second otherwise. Only a recorder that does not rest reaches the end.
#[track_caller]
fn until_it_rests(recorder: u32) {
    let begun = Instant::now();
    loop {
        let before = sleeps(recorder);
        std::thread::sleep(Duration::from_secs(2));
        let woken = sleeps(recorder) - before;
        if woken <= 12 {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "it wakes {woken} times in two seconds");
    }
}

#[test]
fn a_recorder_that_rests_sees_what_begins_then() {
    let scratch = paths::scratch("rests");
    let burn = compile::gcc(&scratch, "burn", &["native/burn.c"], &["-lm"]);
    // The shell itself works, then a process that is new.
    let script = "read a; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; read a; \"$0\" 0.3";
    let file = scratch.join("recording.uu");
    let mut command = uu::command(&scratch, &["record", "-q", "-r", "499", "-o"]);
    command.arg(&file).args(["--", "/bin/sh", "-c", script]).arg(&burn);
    let mut recorder = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("uu");
    let mut input = recorder.stdin.take().expect("piped");
    for _ in 0..2 {
        until_it_rests(recorder.id());
        input.write_all(b"\n").expect("the shell reads");
    }
    drop(input);
    assert!(recorder.wait().expect("it ends").success());
    let summary = report(&scratch, &file, "summary");
    assert!(summary.contains(", 0 lost"), "{summary}");
    let folded = report(&scratch, &file, "folded");
    assert!(folded.contains("burn"), "{folded}");
    // The shell's own work, of a second at least, is no process's that began.
    let of_shell = folded.lines().filter(|line| !line.contains("burn")).filter_map(|line| line.rsplit(' ').next());
    let of_shell: u64 = of_shell.filter_map(|weight| weight.parse::<u64>().ok()).sum();
    assert!(of_shell > 0, "{folded}");
}

fn report(scratch: &Path, file: &Path, format: &str) -> String {
    let out = uu::command(scratch, &["report", "-f", format]).arg(file).output().expect("uu");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}
