//! Programs and processes in which nothing can be sampled: `uu` says why, and its exit code is the program's.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::process::{self, Outcome};
use uunwind_tests::{compile, executable, paths, skips, uu};

/// Exit code of the programs below: none that `uu` gives by itself.
const CODE: &str = "73";

fn burn(name: &str, options: &[&str]) -> (String, PathBuf) {
    let scratch = paths::scratch(name);
    let program = compile::gcc(&scratch, "burn", &["native/burn.c"], options);
    (program.to_str().expect("text").to_owned(), scratch)
}

fn record(scratch: &Path, options: &[&str], program: &[&str]) -> Outcome {
    let words: Vec<&OsStr> = program.iter().map(OsStr::new).collect();
    uu::record(scratch, options, |_| {}, &words).outcome
}

/// Nothing of the program that burns is recorded, for this reason and no other. What starts it (a shell, env) may be
/// sampled: it computes for some milliseconds, too.
#[track_caller]
fn empty(scratch: &Path, options: &[&str], program: &[&str], reason: &str) {
    let words: Vec<&OsStr> = program.iter().map(OsStr::new).collect();
    let recording = uu::record(scratch, options, |_| {}, &words);
    left_out(&recording.outcome, reason, || recording.report("folded"));
}

/// What `empty` says, of a recording that is made. `folded`: its stacks.
#[track_caller]
fn left_out(outcome: &Outcome, reason: &str, folded: impl FnOnce() -> String) {
    let said = &outcome.stderr;
    assert_eq!(outcome.code().to_string(), CODE, "{}", outcome.text());
    assert!(outcome.stdout.contains("burnt 1"), "{}", outcome.text());
    let from = said.find("nothing was sampled: ").or_else(|| said.find("not recorded: "));
    let from = from.unwrap_or_else(|| panic!("no reason: {}", outcome.text()));
    assert!(said[from..].contains(reason) && !said[from..].contains("higher rate"), "{said}");
    if !said.contains("nothing was sampled: ") {
        let stacks = folded();
        assert!(!stacks.contains("burn"), "{stacks}\n{}", outcome.text());
    }
}

fn is_root(what: &str) -> bool {
    // SAFETY: a call without preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        skips::skipped(what, "needs root");
    }
    root
}

#[test]
fn a_cleared_environment() {
    let (burn, scratch) = burn("cleared", &[]);
    let reason = "its environment has no LD_PRELOAD and no UU_SESSION";
    empty(&scratch, &[], &["env", "-i", &burn, "1", CODE], reason);
    empty(&scratch, &[], &["env", "-u", "LD_PRELOAD", &burn, "1", CODE], "no longer names uu's object");
    empty(&scratch, &[], &["env", "LD_PRELOAD=libm.so.6", &burn, "1", CODE], "no longer names uu's object");
}

/// `uu` itself, where /proc is that of the namespace around it.
#[test]
fn a_proc_of_another_pid_namespace() {
    let scratch = paths::scratch("outer_proc");
    let mut inside = Command::new("unshare");
    inside.args(["--pid", "--fork", "true"]);
    if !is_root("uu in another pid namespace") || !inside.status().is_ok_and(|status| status.success()) {
        return;
    }
    let mut uu = Command::new("unshare");
    uu.args(["--pid", "--fork"]).arg(paths::uu()).args(["record", "--", "true"]);
    let outcome = uunwind_tests::process::run(&mut uu, &scratch, uu::LIMIT);
    assert_eq!(outcome.code(), 125, "{}", outcome.text());
    assert!(outcome.stderr.contains("/proc belongs to another pid namespace"), "{}", outcome.text());
}

/// A process that was not executed in a pid namespace, but forked, has the recorder's memory. It is recorded; its
/// parent there, which no fork has made, is not.
#[test]
fn a_fork_in_a_pid_namespace_with_its_own_proc() {
    let scratch = paths::scratch("nested");
    let program = compile::gcc(&scratch, "nested", &["native/nested.c"], &[]);
    let program = program.to_str().expect("text");
    let what = "a fork in another pid namespace";
    if !is_root(what) {
        return;
    }
    let alone = Command::new(program).args(["0", CODE]).output().expect("it runs");
    if alone.status.code().map(|code| code.to_string()).as_deref() != Some(CODE) {
        return skips::skipped(what, "no pid namespace with a /proc can be made here");
    }
    let recording = uu::record(&scratch, &[], |_| {}, &[OsStr::new(program), OsStr::new("1"), OsStr::new(CODE)]);
    let outcome = &recording.outcome;
    assert_eq!(outcome.code().to_string(), CODE, "{}", outcome.text());
    let said = &outcome.stderr;
    let samples = recording.samples();
    let burnt = samples.iter().filter(|sample| sample.frames.iter().any(|frame| frame.name() == "burn"));
    assert!(burnt.clone().count() > 0 && burnt.clone().all(|sample| sample.pid > 2), "{said}");
    // Its number there is another process's here, the kernel's own threads' parent, as a rule.
    assert!(!said.contains("kthreadd") && !said.contains("shares its parent's memory"), "{said}");
}

#[test]
fn another_user() {
    let (burn, _) = burn("user", &[]);
    if !is_root("a program that becomes another user") {
        return;
    }
    // Where that user can open the program and the preloaded object.
    let scratch = std::env::temp_dir().join(format!("uu-test-user-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("a folder");
    executable::copy(&paths::tree(), &scratch.join("uu"));
    let program = scratch.join("burn");
    executable::copy(Path::new(&burn), &program);
    let open = Command::new("chmod").args(["-R", "a+rX"]).arg(&scratch).status();
    assert!(open.is_ok_and(|status| status.success()));
    let mut uu = Command::new(scratch.join("uu/bin/uu"));
    uu.args(["record", "-o"]).arg(scratch.join("x.uu")).args(["--", "setpriv", "--reuid=65534", "--clear-groups"]);
    uu.arg(&program).args(["1", CODE]).env("XDG_CACHE_HOME", scratch.join("cache"));
    let outcome = uunwind_tests::process::run(&mut uu, &scratch, uu::LIMIT);
    left_out(&outcome, "it runs as user 65534 and group 0, and uu as 0 and 0", || {
        let mut report = Command::new(paths::uu());
        report.arg("report").arg(scratch.join("x.uu")).args(["-f", "folded", "-o", "-"]);
        uunwind_tests::process::run(&mut report, &scratch, uu::LIMIT).stdout
    });
    std::fs::remove_dir_all(scratch).expect("removed");
}

#[test]
fn another_root_directory() {
    let (burn, scratch) = burn("chroot", &[]);
    if !is_root("a program in another root directory") {
        return;
    }
    let root = scratch.join("root");
    let needed = Command::new("ldd").arg(&burn).output().expect("ldd runs");
    let needed = String::from_utf8_lossy(&needed.stdout).into_owned();
    for file in needed.split_whitespace().filter(|word| word.starts_with('/')) {
        let place = root.join(file.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().expect("a folder")).expect("scratch");
        std::fs::copy(file, place).expect("scratch");
    }
    executable::copy(Path::new(&burn), &root.join("burn"));
    let program = ["chroot", root.to_str().expect("text"), "/burn", "1", CODE];
    empty(&scratch, &[], &program, "does not exist in its root directory or mount namespace");
}

#[test]
fn children_in_which_nothing_can_be_preloaded() {
    let (burn, scratch) = burn("static", &["-static"]);
    let script = format!("{burn} 1 {CODE}; exit $?");
    empty(&scratch, &[], &["sh", "-c", &script], "it is statically linked");
    let (burn, scratch) = self::burn("no-children", &[]);
    let script = format!("{burn} 1 {CODE}; exit $?");
    empty(&scratch, &["--no-children"], &["sh", "-c", &script], "children are not recorded with --no-children");
}

#[test]
fn a_vfork_child_that_computes() {
    let scratch = paths::scratch("vfork");
    let program = compile::gcc(&scratch, "vfork", &["native/vfork_burn.c"], &[]);
    empty(&scratch, &[], &[program.to_str().expect("text"), "1", CODE], "it shares its parent's memory (vfork");
}

#[test]
fn a_program_that_waits() {
    let scratch = paths::scratch("waits");
    let outcome = record(&scratch, &[], &["sleep", "1"]).expect_code(0);
    // A sample may fall into the little time that it uses: then the summary says so by a hint.
    let says_so = ["it waited nearly all the time", "hint       the program waited 9"];
    assert!(says_so.iter().any(|text| outcome.stderr.contains(text)), "{}", outcome.text());
    assert!(outcome.stderr.contains("--mode wall` shows where it waits"), "{}", outcome.text());
    assert!(!outcome.stderr.contains("more work"), "{}", outcome.text());
}

#[test]
fn an_empty_recording_is_a_failure_where_that_was_asked_for() {
    let (burn, scratch) = burn("fail-empty", &[]);
    record(&scratch, &["--fail-empty"], &["true"]).expect_code(125);
    record(&scratch, &["--fail-empty", "-r", "999"], &[&burn, "0.5", CODE])
        .expect_code(CODE.parse().expect("a number"));
}

/// With --explicit, a program that sends itself no signal has no sample.
#[test]
fn a_run_without_a_sample_leaves_the_files_of_an_earlier_one() {
    let scratch = paths::scratch("left-as-before");
    let (recording, picture) = (scratch.join("x.uu"), scratch.join("x.svg"));
    let record = |program: &str| {
        let mut uu = uu::command(&scratch, &["record", "--explicit", "-o"]);
        process::run(uu.arg(&picture).args(["--", program]), &scratch, uu::LIMIT)
    };
    let files = || [&recording, &picture].map(|path| std::fs::read_to_string(path).ok());
    let first = record("true").expect_code(0);
    assert!(first.stderr.contains("nothing was sampled") && files() == [None, None], "{}", first.text());
    for path in [&recording, &picture] {
        std::fs::write(path, "older").expect("scratch");
    }
    let older = [Some("older".to_owned()), Some("older".to_owned())];
    let second = record("true").expect_code(0);
    let said = format!("left as before this run: {}, {}", recording.display(), picture.display());
    assert!(second.stderr.contains(&said) && files() == older, "{}", second.text());
    record("/nonexistent/program").expect_code(127);
    assert_eq!(files(), older);
    let others =
        std::fs::read_dir(&scratch).expect("the folder").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert_eq!(others.filter(|name| name.starts_with('.')).count(), 0, "a temporary file");
}

/// The line of the summary on CPU time; no share in it exceeds 100 %.
#[track_caller]
fn cpu_line(outcome: &Outcome) -> String {
    let line = outcome.stderr.lines().find(|line| line.starts_with("  CPU time")).expect("a summary").to_owned();
    let share =
        line.split_once(" s used (").map(|(_, rest)| rest.split(' ').next().and_then(|n| n.parse::<u32>().ok()));
    assert!(share.is_none_or(|share| share.is_some_and(|share| share <= 100)), "{line}");
    line
}

fn fifo(path: &Path) -> String {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.is_ok_and(|status| status.success()));
    path.to_str().expect("text").to_owned()
}

/// The process of which the script says that it is left running must be named.
#[track_caller]
fn expect_left_named(outcome: &Outcome) {
    let left = outcome.stdout.lines().find_map(|line| line.strip_prefix("left ")).expect("the script says so");
    let said = &outcome.stderr;
    assert!(said.contains("left processes running") && said.contains(&format!("(pid {left})")), "{said}");
}

#[test]
fn processes_that_are_left_running_are_named_and_their_time_is_counted() {
    let (burn, scratch) = burn("daemon", &[]);
    let (ready, end) = (fifo(&scratch.join("ready")), fifo(&scratch.join("end")));
    // The one in the background computes, says so, and waits until the test opens its other FIFO.
    let script = format!("({burn} 0.6; echo ready >{ready}; read word <{end}) & read word <{ready}; echo left $!");
    let outcome = record(&scratch, &["-r", "199"], &["sh", "-c", &script]).expect_code(0);
    drop(std::fs::OpenOptions::new().write(true).open(end).expect("its reader waits"));
    expect_left_named(&outcome);
    let line = cpu_line(&outcome);
    let share = line.split_once(" s used (").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u32>().ok());
    assert!(share.is_some_and(|share| share > 50), "what it waited for counts as used: {line}");
}

/// As daemon(3) does it: the program ends right after its fork, here after some work, and without any, so that there is
/// no sample.
#[test]
fn a_daemon_is_named_although_its_parent_ends_at_once() {
    let (burn, scratch) = burn("daemon-at-once", &[]);
    for (name, work) in [("worked", format!("{burn} 0.2; ")), ("idle", String::new())] {
        let end = fifo(&scratch.join(name));
        let script = format!("{work}(read word <{end}) & echo left $!; exit 0");
        let outcome = record(&scratch, &["-r", "199"], &["sh", "-c", &script]).expect_code(0);
        drop(std::fs::OpenOptions::new().write(true).open(end).expect("its reader waits"));
        expect_left_named(&outcome);
    }
}

#[test]
fn children_that_are_not_waited_for_make_no_share_above_all() {
    let (burn, scratch) = burn("orphan", &[]);
    let ready = fifo(&scratch.join("ready"));
    let script = format!("( ({burn} 0.6; echo ready >{ready}) & ); read word <{ready}");
    let outcome = record(&scratch, &["-r", "199"], &["sh", "-c", &script]).expect_code(0);
    cpu_line(&outcome);
}

#[test]
fn low_coverage_is_named_with_its_reason() {
    let (burn, scratch) = burn("coverage", &[]);
    let script = format!("{burn} 0.3; env -i {burn} 1.5; true");
    let outcome = record(&scratch, &["-r", "199"], &["sh", "-c", &script]).expect_code(0);
    let said = &outcome.stderr;
    assert!(said.contains("the rest: processes that were not recorded, see the notes"), "{said}");
    let note = said.lines().find(|line| line.contains("not recorded: ")).expect("a note");
    assert!(note.contains("its environment has no LD_PRELOAD") && note.contains("/burn ("), "{note}");
}

/// What a process has used before it became a program that is not recorded is in samples.
#[test]
fn time_before_an_exec_is_not_counted_as_unrecorded() {
    let (burn, scratch) = burn("burns-then-execs", &[]);
    let program = compile::gcc(&scratch, "first", &["native/burns_then_execs.c"], &[]);
    // The CPU clock goes on through exec: the second program uses 1.5 s.
    let words = [program.to_str().expect("text"), "2", &burn, "3.5"];
    let outcome = record(&scratch, &["-r", "199"], &words).expect_code(0);
    let note = outcome.stderr.lines().find(|line| line.contains("not recorded: ")).expect("a note");
    let seconds = note.split_once("at least ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
    assert!(note.contains("/burn (") && seconds.is_some_and(|seconds| seconds < 1.8), "{}", outcome.text());
}

/// After a walk of a deep stack, ticks take no sample for a while, and the next sample stands for them.
#[test]
fn ticks_that_wait_for_a_sample_are_lost_when_their_thread_ends() {
    let scratch = paths::scratch("deep-ends");
    let program = compile::gcc(&scratch, "program", &["native/deep_ends.c"], &["-pthread"]);
    let outcome = record(&scratch, &["-r", "999"], &[program.to_str().expect("text")]).expect_code(0);
    let line = outcome.stderr.lines().find(|line| line.starts_with("  samples")).expect("a summary");
    let lost = line.rsplit(", ").next().and_then(|lost| lost.strip_suffix(" lost")?.parse::<u64>().ok());
    assert!(lost.is_some_and(|lost| lost >= 5), "{}", outcome.text());
}

/// Constructors of the program's libraries run before ours.
#[test]
fn cpu_time_before_the_sampling_began_is_named() {
    let scratch = paths::scratch("before-main");
    let constructor = paths::source("native/burns_before_main.c");
    let library = compile::gcc_files(&scratch, "libbefore.so", &[constructor], &["-shared", "-fPIC"]);
    let found = format!("-Wl,--no-as-needed,-rpath,{}", scratch.display());
    let program = compile::gcc(&scratch, "burn", &["native/burn.c"], &[&found, library.to_str().expect("text")]);
    let outcome = record(&scratch, &["-r", "199"], &[program.to_str().expect("text"), "0.6"]).expect_code(0);
    let rest =
        outcome.stderr.lines().find_map(|line| line.trim().strip_prefix("the rest: ")).expect("a part of the summary");
    let seconds = rest.strip_suffix(" s before the sampling of threads began").and_then(|s| s.parse::<f64>().ok());
    assert!(seconds.is_some_and(|seconds| (0.3..0.6).contains(&seconds)), "{rest}");
}
