//! Programs in sandboxes that start under `uu record`: pid namespaces, with and without a user, mount or network
//! namespace of their own, and with a `/proc` of the outer one, of their own, or none.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::samples::Sample;
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, paths, skips, uu};

/// Exit code of the program.
const CODE: i32 = 73;
/// What it does, each in a function of this name.
const WORK: [&str; 4] = ["main_work", "thread_work", "forked_work", "executed_work"];
/// Seconds of CPU time that each of them uses.
const SECONDS: &str = "0.4";

fn program(name: &str) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(name);
    let program = compile::gcc(&scratch, "sandboxed", &["native/sandboxed.c"], &["-O1", "-g", "-pthread"]);
    (scratch, program)
}

/// Whether a sandbox can be made here, by a trial; else it is skipped by its name.
fn may(sandbox: &[&str]) -> bool {
    let (program, rest) = sandbox.split_first().expect("a program");
    let may = Command::new(program).args(rest).arg("true").output().is_ok_and(|done| done.status.success());
    if !may {
        skips::skipped(&format!("a sandbox by `{}`", sandbox.join(" ")), "it cannot be made here");
    }
    may
}

/// Records the program in a sandbox, with the outer `/proc` in this folder there.
#[track_caller]
fn record(scratch: &Path, program: &Path, options: &[&str], sandbox: &[&str], proc: &str) -> Recording {
    let words: Vec<&OsStr> = sandbox.iter().map(OsStr::new).collect();
    let words = [&words[..], &[program.as_os_str(), OsStr::new(proc), OsStr::new(SECONDS)]].concat();
    uu::record(scratch, options, |_| {}, &words)
}

fn has(sample: &Sample, function: &str) -> bool {
    sample.frames.iter().any(|frame| frame.name() == function)
}

/// The ids of the process and the thread that did each work, as it has printed them.
fn printed(recording: &Recording) -> HashMap<&str, (u32, u32)> {
    let ids = recording.outcome.stdout.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (work, process, thread) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        Some((work, (process, thread.rsplit('/').next()?.parse().ok()?)))
    });
    ids.collect()
}

/// Each work has samples, whole ones, of one process and thread: of these, where they are known.
#[track_caller]
fn all_is_seen(recording: &Recording, has_outer_proc: bool) {
    let said = recording.outcome.text();
    assert_eq!(recording.outcome.code(), CODE, "{said}");
    assert!(!said.contains("nothing was sampled"), "{said}");
    // What bwrap makes by clone(2) itself may use as much as a sample.
    let mut unrecorded = said.lines().filter(|line| line.contains("not recorded"));
    assert!(unrecorded.all(|line| line.contains("made by clone(2) itself")), "{said}");
    let (samples, printed) = (recording.samples(), printed(recording));
    let mut processes = Vec::new();
    for work in WORK {
        let of_work: Vec<_> = samples.iter().filter(|sample| has(sample, work)).collect();
        assert!(!of_work.is_empty(), "no sample in {work}: {said}");
        let ids: Vec<_> = of_work.iter().map(|sample| (sample.pid, sample.tid)).collect();
        assert!(ids.iter().all(|other| *other == ids[0]), "{work}: {ids:?}");
        let whole = of_work.iter().filter(|sample| sample.stop == 1).count();
        assert!(whole * 10 >= of_work.len() * 9, "{work}: {whole} of {} whole: {:?}", of_work.len(), of_work[0]);
        if has_outer_proc {
            assert_eq!(Some(&ids[0]), printed.get(work), "{work}: {said}");
        }
        processes.push(ids[0]);
    }
    let [main, thread, forked, executed] = processes[..] else { panic!("{processes:?}") };
    assert!(main.0 == main.1 && thread.0 == main.0 && thread.1 != main.1, "{processes:?}");
    assert!(forked == executed && forked.0 == forked.1 && forked.0 != main.0, "{processes:?}");
}

/// Ways to make a pid namespace, and where the outer `/proc` is in it, if anywhere.
const SANDBOXES: [(&[&str], Option<&str>); 6] = [
    (&["unshare", "--pid", "--fork"], Some("/proc")),
    (&["unshare", "--pid", "--fork", "--mount-proc"], None),
    (&["unshare", "-r", "-p", "-f", "--mount-proc"], None),
    (
        &["bwrap", "--unshare-pid", "--dev-bind", "/", "/", "--ro-bind", "/proc", "/mnt", "--proc", "/proc"],
        Some("/mnt"),
    ),
    // Nothing is left of /tmp, and another user owns the namespace's processes there.
    (
        &[
            "bwrap",
            "--unshare-user",
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
            "--uid",
            "1234",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--ro-bind",
            "/proc",
            "/mnt",
            "--proc",
            "/proc",
        ],
        Some("/mnt"),
    ),
    // One in another.
    (&["unshare", "-r", "-p", "-f", "--mount-proc", "unshare", "-r", "-p", "-f", "--mount-proc"], None),
];

/// The one in which the most is other than outside.
const STRICT: usize = 4;

#[test]
fn programs_in_pid_namespaces_are_recorded_with_their_ids_here() {
    let (scratch, program) = program("sandboxes");
    for (sandbox, proc) in SANDBOXES {
        if may(sandbox) {
            let recording = record(&scratch, &program, &["-r", "199"], sandbox, proc.unwrap_or("/nonexistent"));
            all_is_seen(&recording, proc.is_some());
        }
    }
}

#[test]
fn each_mode_works_there() {
    let (scratch, program) = program("sandbox-modes");
    let (sandbox, proc) = SANDBOXES[STRICT];
    if !may(sandbox) {
        return;
    }
    for mode in [&["--mode", "wall", "-r", "99"][..], &["--mode", "alloc"], &["--kernel", "-r", "199"], &["-r", "1999"]]
    {
        let recording = record(&scratch, &program, mode, sandbox, proc.expect("it has one"));
        all_is_seen(&recording, true);
    }
    let recording = record(&scratch, &program, &["--mode", "lock"], sandbox, proc.expect("it has one"));
    let said = recording.outcome.text();
    assert_eq!(recording.outcome.code(), CODE, "{said}");
    let (waits, printed) =
        (uunwind_recording::Recording::read(&recording.file).expect("it is whole").lock_waits, printed(&recording));
    let holder = printed["thread_work"].1;
    assert!(waits.iter().any(|wait| wait.holder == holder), "{waits:?} {said}");
    assert!(waits.iter().all(|wait| [0, holder].contains(&wait.holder)), "{waits:?} {said}");
}

/// What cannot be recorded is named with its reason, and runs as it does alone.
#[test]
fn what_cannot_ask_for_its_session_is_named() {
    let (scratch, program) = program("sandbox-refusals");
    // Allows all. Other filters end a program that makes a socket.
    let filter = scratch.join("filter");
    std::fs::write(&filter, [6, 0, 0, 0, 0, 0, 0xff, 0x7f]).expect("room");
    let filtered =
        format!("exec bwrap --unshare-pid --dev-bind / / --proc /proc --seccomp 9 \"$@\" 9<{}", filter.display());
    let without_proc = ["bwrap", "--unshare-pid", "--dev-bind", "/", "/", "--tmpfs", "/proc"];
    for (sandbox, reason) in [
        (
            &["bwrap", "--unshare-all", "--dev-bind", "/", "/", "--proc", "/proc"][..],
            "another pid namespace and another network",
        ),
        (&["sh", "-c", &filtered, "sh"], "another pid namespace, under a filter of system calls"),
        (&without_proc, "another pid namespace without a /proc"),
        (
            &["bwrap", "--clearenv", "--unshare-pid", "--dev-bind", "/", "/", "--proc", "/proc"],
            "no LD_PRELOAD and no UU_SESSION",
        ),
    ] {
        if !may(sandbox) {
            continue;
        }
        let recording = record(&scratch, &program, &[], sandbox, "/nonexistent");
        let said = recording.outcome.text();
        assert_eq!(recording.outcome.code(), CODE, "{said}");
        assert!(said.contains("not recorded: ") || said.contains("nothing was sampled: "), "{said}");
        assert!(said.contains(reason), "{reason}: {said}");
        // Where nothing was sampled, there is no recording.
        let samples = if recording.file.exists() { recording.samples() } else { Vec::new() };
        assert!(!samples.iter().any(|sample| WORK.iter().any(|work| has(sample, work))), "{said}");
        let _ = std::fs::remove_file(&recording.file);
    }
}

/// When the first process of a namespace ends, the kernel kills all others.
#[test]
fn a_namespace_ends_with_its_first_process() {
    let (scratch, program) = program("sandbox-end");
    let sandbox = ["unshare", "--pid", "--fork", "--mount-proc"];
    if !may(&sandbox) {
        return;
    }
    let script = "\"$@\" & while ! grep -q main_work \"$0\"; do :; done; \
        i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; exit 73";
    let out = scratch.join("out");
    let whole = format!("exec >\"$0\"; {script}");
    let words = ["sh", "-c", &whole, out.to_str().expect("text")];
    let recording = record(&scratch, &program, &["-r", "199"], &[&sandbox[..], &words].concat(), "/nonexistent");
    assert_eq!(recording.outcome.code(), CODE, "{}", recording.outcome.text());
    assert!(recording.outcome.stderr.contains("sandboxed (pid "), "{}", recording.outcome.text());
    assert!(!recording.samples().is_empty());
}

/// A program does not notice more than outside of a sandbox: it has the same files and signals.
#[test]
fn a_program_behaves_the_same_there() {
    let scratch = paths::scratch("sandbox-same");
    let (sandbox, _) = SANDBOXES[STRICT];
    if !may(sandbox) {
        return;
    }
    let script = "ls -l /proc/self/fd | sed 's/.* \\([0-9]* ->\\)/\\1/;s/[0-9]*\\/fd//' | grep -v 'std\\|pipe' ; \
        grep '^SigBlk\\|^SigIgn\\|^S[a-z]*Pnd' /proc/self/status; ulimit -a; for i in 1 2 3 4 5 6 7 8; do (sh -c 'echo $$'; exit $i); echo $?; done";
    let (first, rest) = sandbox.split_first().expect("a program");
    let alone = Command::new(first).args(rest).args(["sh", "-c", script]).output().expect("it runs");
    let words = [sandbox, &["sh", "-c", script]].concat();
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    let recording = uu::record(&scratch, &["-q"], |_| {}, &words);
    assert!(alone.status.success(), "{alone:?}");
    assert_eq!(recording.outcome.stdout, String::from_utf8_lossy(&alone.stdout));
}

/// Python's names of threads come by their ids in the namespace.
#[test]
fn threads_have_the_names_of_python_there() {
    let scratch = paths::scratch("sandbox-names");
    let (sandbox, _) = SANDBOXES[STRICT];
    if !may(sandbox) {
        return;
    }
    let script = "import threading, time\n\
        def work():\n    end = time.thread_time() + 2\n    while time.thread_time() < end: pass\n\
        thread = threading.Thread(target=work, name='sandboxed')\nthread.start()\nthread.join()";
    let words = [sandbox, &["/usr/bin/python3", "-c", script]].concat();
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    let recording = uu::record(&scratch, &["-r", "199"], |_| {}, &words).expect_code(0);
    let samples = recording.samples();
    let working: Vec<_> = samples.iter().filter(|sample| has(sample, "work")).collect();
    assert!(!working.is_empty(), "{}", recording.outcome.text());
    assert!(working.iter().all(|sample| sample.comm == "sandboxed"), "{}", recording.outcome.text());
}
