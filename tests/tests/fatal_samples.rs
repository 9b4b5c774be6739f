//! A recorded program that a signal ends: the summary shows the stack, and the program ends as alone.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::process::Outcome;
use uunwind_tests::{compile, interpreters, paths, process, uu};

const SIGILL: i32 = 4;
const SIGTRAP: i32 = 5;
const SIGABRT: i32 = 6;
const SIGBUS: i32 = 7;
const SIGFPE: i32 = 8;
const SIGSEGV: i32 = 11;

fn program(scratch: &Path) -> PathBuf {
    let options = ["-pthread", "-D_FORTIFY_SOURCE=2", "-fstack-protector-all", "-lm"];
    compile::gcc(scratch, "kinds", &["native/crash_kinds.c"], &options)
}

/// The block of the summary about a process that a signal ended: its first line, and its frames.
fn fatal(out: &Outcome) -> Option<(String, Vec<String>)> {
    let mut lines = out.stderr.lines().skip_while(|line| !line.contains(" ended by SIG"));
    let head = lines.next()?.to_owned();
    Some((head, lines.take_while(|line| line.starts_with("  ")).map(|line| line.trim().to_owned()).collect()))
}

/// The functions of the program in it.
fn functions(frames: &[String]) -> Vec<&str> {
    let ours = |frame: &&str| ["crash_", "middle", "main", "worker", "on_signal"].iter().any(|f| frame.starts_with(f));
    frames.iter().map(|frame| frame.split(' ').next().unwrap_or("")).filter(ours).collect()
}

/// A signal that leaves no stack is said, too: of the program, and of a child.
#[test]
fn signals_that_leave_no_stack_are_said() {
    let scratch = paths::scratch("fatal-silent");
    let program = compile::gcc(&scratch, "silent", &["native/own_allocator.c"], &["-pthread", "-rdynamic"]);
    let record = |words: &[&OsStr]| uu::record(&scratch, &["-r", "999"], |_| {}, words).outcome;
    let out = record(&[program.as_os_str(), "killed".as_ref()]);
    let said = "nothing was sampled: SIGKILL ended the program. It had used ";
    assert!(out.code() == 128 + libc::SIGKILL && out.stderr.contains(said), "{}", out.text());
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; kill -TERM $$";
    let out = record(&["sh".as_ref(), "-c".as_ref(), script.as_ref()]);
    let line = out.stderr.lines().find(|line| line.contains("ended by a signal: ")).unwrap_or_default();
    assert!(out.code() == 128 + libc::SIGTERM && line.ends_with(" by SIGTERM"), "{}", out.text());
    let out = record(&[program.as_os_str(), "killed-child".as_ref()]);
    let line = out.stderr.lines().find(|line| line.contains("ended by a signal: ")).unwrap_or_default();
    assert!(out.code() == 7 && line.ends_with(" by SIGKILL"), "{}", out.text());
}

/// The weight in a line of the samples' text.
fn weight(line: &str) -> u64 {
    line.split_once(" weight ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok()).expect("a weight")
}

/// The count at the end of a folded line.
fn count(line: &str) -> u64 {
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a count")
}

#[test]
fn the_stack_of_a_fault_is_in_the_summary() {
    let scratch = paths::scratch("fatal");
    let program = program(&scratch);
    for (kind, signal, name, wanted) in [
        ("read-only", SIGSEGV, "SIGSEGV", &["crash_read_only", "middle", "main"][..]),
        ("data-call", SIGSEGV, "SIGSEGV", &["crash_data_call", "middle", "main"]),
        ("misaligned", SIGBUS, "SIGBUS", &["crash_misaligned", "middle", "main"]),
        ("float", SIGFPE, "SIGFPE", &["crash_float", "middle", "main"]),
        ("made-code", SIGILL, "SIGILL", &["crash_made_code", "middle", "main"]),
        ("alternate", SIGSEGV, "SIGSEGV", &["crash_here", "on_signal", "crash_alternate", "middle", "main"]),
        ("detached", SIGSEGV, "SIGSEGV", &["crash_here", "middle", "worker"]),
        // By abort(3), called in libc.
        ("protector", SIGABRT, "SIGABRT", &["crash_protector", "middle", "main"]),
        ("double-free", SIGABRT, "SIGABRT", &["crash_double_free", "middle", "main"]),
        ("fortify", SIGABRT, "SIGABRT", &["crash_fortify", "middle", "main"]),
    ] {
        let recording = uu::record(&scratch, &[], |_| {}, &[program.as_ref(), kind.as_ref()]);
        let out = &recording.outcome;
        assert_eq!(out.code(), 128 + signal, "{kind}: {}", out.text());
        let (head, frames) = fatal(out).unwrap_or_else(|| panic!("{kind}: {}", out.text()));
        assert!(head.contains(&format!("ended by {name}, in")), "{head}");
        assert_eq!(head.starts_with("thread "), wanted.last() != Some(&"main"), "{head}");
        assert_eq!(functions(&frames), wanted, "{kind}: {}", out.text());
        // It is in the text for scripts, and stands for no time.
        let samples = recording.report("samples");
        let kinds: Vec<_> =
            samples.lines().filter(|line| line.contains(&format!("weight {signal} kind fatal"))).collect();
        assert_eq!(kinds.len(), 1, "{kind}: {samples}");
        // A tick may have come in the function that crashes, too.
        let timed: u64 = samples.lines().filter(|line| line.contains(" kind timer ")).map(weight).sum();
        if timed > 0 {
            assert_eq!(recording.report("folded").lines().map(count).sum::<u64>(), timed, "{kind}: {samples}");
        }
    }
}

#[test]
fn the_child_that_crashed_is_named() {
    let scratch = paths::scratch("fatal-child");
    let program = program(&scratch);
    let recording = uu::record(&scratch, &[], |_| {}, &[program.as_ref(), "child".as_ref()]);
    let out = &recording.outcome;
    assert_eq!(out.code(), 100 + SIGSEGV, "{}", out.text());
    let (head, frames) = fatal(out).unwrap_or_else(|| panic!("{}", out.text()));
    assert!(head.starts_with("process "), "{head}");
    assert_eq!(functions(&frames), ["crash_here", "crash_child", "middle", "main"], "{}", out.text());
}

#[test]
fn a_crash_of_python_shows_its_functions() {
    let script = paths::source("python/crash.py");
    for python in interpreters::modern() {
        let scratch = paths::scratch("fatal-python");
        let recording = uu::record(&scratch, &[], |_| {}, &[python.path.as_ref(), script.as_ref()]);
        let out = &recording.outcome;
        assert_eq!(out.code(), 128 + SIGSEGV, "{}: {}", python.label, out.text());
        let (_, frames) = fatal(out).unwrap_or_else(|| panic!("{}: {}", python.label, out.text()));
        let at = |name: &str| frames.iter().position(|frame| frame.starts_with(name) && frame.contains("crash.py:"));
        let (inner, outer) = (at("recursion"), at("Caller.method"));
        assert!(inner.is_some() && inner < outer && outer < at("<module>"), "{}: {}", python.label, out.text());
    }
}

/// A handler that mends the fault, or ends the process in its own way, is no end by a signal; nor is what is not taken
/// over, or what abort(3) does after the program has ignored its first signal.
#[test]
fn what_ends_in_another_way_leaves_no_such_stack() {
    let scratch = paths::scratch("fatal-none");
    let program = program(&scratch);
    let recording = uu::record(&scratch, &[], |_| {}, &[program.as_ref(), "at-once".as_ref()]);
    assert_eq!(recording.outcome.code(), 128 + SIGSEGV, "{}", recording.outcome.text());
    assert!(fatal(&recording.outcome).is_some(), "{}", recording.outcome.text());
    let python = &interpreters::modern()[0];
    for (script, code) in [
        ("signal.signal(signal.SIGSEGV, lambda *a: None)\nos.kill(os.getpid(), signal.SIGSEGV)\n", 0),
        ("signal.signal(signal.SIGABRT, lambda *a: None)\nos.kill(os.getpid(), signal.SIGABRT)\n", 0),
        ("signal.signal(signal.SIGABRT, signal.SIG_IGN)\nos.kill(os.getpid(), signal.SIGABRT)\n", 0),
        ("signal.signal(signal.SIGABRT, signal.SIG_IGN)\nos.abort()\n", 128 + SIGABRT),
        ("os.kill(os.getpid(), signal.SIGTRAP)\n", 128 + SIGTRAP),
    ] {
        let script = format!("import signal, os\n{script}");
        let recording = uu::record(&scratch, &[], |_| {}, &[python.path.as_ref(), "-c".as_ref(), script.as_ref()]);
        assert_eq!((recording.outcome.code(), fatal(&recording.outcome)), (code, None), "{}", recording.outcome.text());
    }
}

/// The core dump is made as without the recording.
#[test]
fn core_dumps_of_recorded_programs_are_kept() {
    let scratch = paths::scratch("fatal-core");
    let program = program(&scratch);
    let run = |words: &[&OsStr]| {
        let folder = paths::scratch("fatal-core-of");
        let mut command = Command::new("prlimit");
        command.args(["--core=unlimited:unlimited", "--"]).args(words).current_dir(&folder);
        let out = process::run(command.env("XDG_CACHE_HOME", scratch.join("cache")), &folder, uu::LIMIT);
        let cores = folder
            .read_dir()
            .expect("a folder")
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with("core"));
        (out.code(), out.status.core_dumped(), cores.count())
    };
    let alone = run(&[program.as_ref(), "read-only".as_ref()]);
    let uu = paths::uu();
    let recorded = run(&[uu.as_ref(), "record".as_ref(), "--".as_ref(), program.as_ref(), "read-only".as_ref()]);
    assert_eq!((recorded.0, recorded.2), (alone.0, alone.2), "{recorded:?}");
}
