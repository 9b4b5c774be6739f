//! Several uu's in one process at the same time: one of them records it from inside, and it lives on, however they
//! begin, end and are killed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use uunwind_tests::looks::Looks;
use uunwind_tests::running::Running;
use uunwind_tests::{compile, paths, uu, web};

/// Starts to record the process for a time. What it says goes into a file.
fn begin(scratch: &Path, pid: u32, seconds: &str) -> (Child, PathBuf) {
    let mut command = uu::command(scratch, &["record", "-d", seconds, "-r", "997", "--quiet", "-p"]);
    command.arg(pid.to_string()).arg("-o").arg(scratch.join(format!("{seconds}.uu")));
    let said = scratch.join(format!("{seconds}.txt"));
    let file = File::create(&said).expect("a file");
    (command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn().expect("uu"), said)
}

/// Records the process so often at once. Each uu ends well.
#[track_caller]
fn record(scratch: &Path, pid: u32, times: &[&str]) {
    let all: Vec<_> = times.iter().map(|seconds| begin(scratch, pid, seconds)).collect();
    for (mut uu, said) in all {
        let code = uu.wait().expect("its end").code();
        assert_eq!(code, Some(0), "{}", std::fs::read_to_string(said).expect("a file"));
    }
}

#[track_caller]
fn is_as_before(running: &Running, before: &Looks, round: u32) {
    assert!(Path::new(&format!("/proc/{}/root", running.pid())).exists(), "it has ended in round {round}");
    let after = Looks::of(running.pid());
    assert!(!after.has_sampler(), "round {round}: {after:?}");
    assert_eq!(after.signals, before.signals, "round {round}");
}

fn program(scratch: &Path) -> Running {
    let program = compile::gcc(scratch, "allocates", &["native/allocates.c"], &["-pthread", "-O1"]);
    Running::ready(&mut Command::new(program))
}

/// They begin at once, and end one after the other while others still begin.
#[test]
fn those_that_begin_at_once() {
    let scratch = paths::scratch("inject-together");
    let running = program(&scratch);
    let before = Looks::of(running.pid());
    for round in 0..web::cycles(300) {
        record(&scratch, running.pid(), &["0.02", "0.05", "0.08", "0.3"]);
        is_as_before(&running, &before, round);
    }
    assert_eq!(running.end(), Some(0));
}

/// Whoever comes after one that was killed takes out what it has left: they do so at once.
#[test]
fn those_that_come_after_one_that_was_killed() {
    let scratch = paths::scratch("inject-after");
    let running = program(&scratch);
    let before = Looks::of(running.pid());
    for round in 0..web::cycles(300) {
        let (mut first, _) = begin(&scratch, running.pid(), "600");
        let begun = Instant::now();
        while Looks::of(running.pid()).timers.is_empty() {
            assert!(
                begun.elapsed() < uu::LIMIT && first.try_wait().expect("a child").is_none(),
                "none in round {round}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        first.kill().expect("a kill");
        record(&scratch, running.pid(), &["0.05", "0.1", "0.3"]);
        first.wait().expect("its end");
        is_as_before(&running, &before, round);
    }
    assert_eq!(running.end(), Some(0));
}
