//! Programs whose code runs on stacks that have no space for a signal's frame, and which have alternate stacks for
//! handlers: they compute what they compute alone.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use uunwind_recording::FROM_OUTSIDE;
use uunwind_tests::attached::record;
use uunwind_tests::running::{wait_for, Running};
use uunwind_tests::{compile, paths, process, skips, uu};

#[test]
fn nothing_is_written_onto_a_small_stack() {
    let scratch = paths::scratch("fibers");
    for (runtime, says) in [("OCAML", "it is a program of OCaml 5"), ("ERLANG", "it defines sigaction itself")] {
        let define = format!("-D{runtime}");
        let program = compile::gcc(&scratch, "fibers", &["native/fibers.c"], &["-rdynamic", &define]);
        let recording = uu::record(&scratch, &["-r", "997"], |_| {}, &[program.as_os_str()]).expect_code(0);
        let on_it = recording.samples().into_iter().filter(|sample| sample.native_names().first() == Some(&"in_fiber"));
        assert!(on_it.count() > 100, "{runtime}: {}", recording.outcome.stderr);
        let running = Running::ready(Command::new(&program).arg("waits"));
        let (recording, _, stderr) = record(&scratch, running.pid(), &["-d", "0.3"]);
        let why = recording.notes.iter().find_map(|note| note.strip_prefix(FROM_OUTSIDE)).expect("a note");
        assert!(why.contains(says), "{runtime}: {stderr}");
        assert_eq!(running.end(), Some(0), "{runtime}");
    }
}

/// Erlang's runtime defines sigaction itself, and runs its processes' code on stacks of theirs.
#[test]
fn erlang_computes_the_same() {
    const NAME: &str = "small_stacks::erlang_computes_the_same";
    let scratch = paths::scratch("erlang");
    let mut compiler = Command::new("erlc");
    compiler.arg("-o").arg(&scratch).arg(paths::source("erlang/work.erl"));
    if !compiler.output().is_ok_and(|done| done.status.success()) {
        return skips::skipped(NAME, "there is no erlc on this machine (package erlang-base)");
    }
    let words = ["erl", "-noshell", "-pa", scratch.to_str().expect("a path"), "-s", "work"];
    let alone = process::run(Command::new(words[0]).args(&words[1..]), &scratch, uu::LIMIT).expect_code(0);
    for _ in 0..3 {
        let recording = uu::record(&scratch, &["-r", "997"], |_| {}, &words.map(OsStr::new)).expect_code(0);
        assert_eq!(recording.outcome.stdout, alone.stdout, "{}", recording.outcome.stderr);
        assert!(recording.samples().len() > 100, "{}", recording.outcome.stderr);
    }
    // `erl` calls the runtime itself by exec.
    let mut running = Command::new("erl").arg("-noshell").stdin(Stdio::null()).spawn().expect("erl");
    let is_there = || {
        let exe = std::fs::read_link(format!("/proc/{}/exe", running.id())).unwrap_or_default();
        exe.file_name().is_some_and(|name| name.to_string_lossy().starts_with("beam"))
    };
    wait_for("the runtime", is_there);
    let mut command = uu::command(&scratch, &["record", "-d", "0.3", "-p"]);
    let out = process::run(command.arg(running.id().to_string()), &scratch, uu::LIMIT).expect_code(0);
    assert!(out.stderr.contains("it defines sigaction itself"), "{}", out.stderr);
    assert!(running.try_wait().expect("its state").is_none());
    running.kill().expect("a kill");
    running.wait().expect("its end");
}
