//! After the end of a recording, a program that continues to run is as if it had never been recorded: no timer, no
//! signal, no disposition and no shared memory of ours is left.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use uunwind_tests::{compile, paths, uu};

fn program(scratch: &Path) -> PathBuf {
    compile::gcc(scratch, "afterwards", &["native/afterwards.c"], &["-pthread"])
}

/// The output of a program and its children, until the last of them has ended.
#[track_caller]
fn said(mut command: Command, scratch: &Path) -> String {
    let errors = File::create(scratch.join("stderr.txt")).expect("a file in the scratch folder");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn().expect("started");
    let mut text = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("the pipe is read");
    child.wait().expect("waited for");
    text
}

/// The program leaves the same as alone, when the recording with these options ends before it does.
#[track_caller]
fn nothing_is_left(mode: &str, options: &[&str]) {
    let scratch = paths::scratch(&format!("afterwards-{mode}"));
    let program = program(&scratch);
    let mut alone = Command::new(&program);
    alone.arg(mode);
    let alone = said(alone, &scratch);
    let mut recorded = uu::command(&scratch, &["record", "-r", "999"]);
    recorded.args(options).arg("-o").arg(scratch.join("recording.uu")).arg("--").arg(&program).arg(mode);
    let recorded = said(recorded, &scratch);
    let errors = std::fs::read_to_string(scratch.join("stderr.txt")).unwrap_or_default();
    assert!(alone.contains("recorded: 1") && alone.contains("timers: 1\nin time: 1"), "{alone}");
    assert_eq!(alone, recorded, "uu said: {errors}");
}

#[test]
fn nothing_is_left_when_the_duration_is_over() {
    nothing_is_left("ended", &["-d", "4"]);
}

#[test]
fn nothing_is_left_when_the_recorder_is_killed() {
    nothing_is_left("killed", &[]);
}

#[test]
fn nothing_is_left_in_a_child_that_outlives_the_program() {
    nothing_is_left("outlives", &[]);
}

#[test]
fn nothing_is_left_in_a_child_that_is_not_recorded() {
    nothing_is_left("unrecorded", &["--no-children"]);
}
