//! `uu_report_crashes()`: what a report says of many kinds of crash, beside the functions that a program was in; how
//! the program ends; and whose handlers are called.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use uunwind_tests::crash_report::{Report, Symbols};
use uunwind_tests::process::Outcome;
use uunwind_tests::{compile, faces, paths, process, skips, uu};

const SIGILL: i32 = 4;
const SIGTRAP: i32 = 5;
const SIGABRT: i32 = 6;
const SIGBUS: i32 = 7;
const SIGFPE: i32 = 8;
const SIGSEGV: i32 = 11;
const SIGSYS: i32 = 31;

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let scratch = paths::scratch("crashes-program");
        let options = [
            "-pthread",
            "-fno-stack-protector",
            "-Wno-stringop-overflow",
            "-Wno-use-after-free",
            "-Wno-array-bounds",
            "-Wno-infinite-recursion",
            "-Wno-aggressive-loop-optimizations",
        ];
        compile::with_library(&scratch, "crashes", &options)
    })
}

fn crash(kind: &str, more: &[&str]) -> Outcome {
    let scratch = paths::scratch(&format!("crash-{kind}"));
    let mut command = Command::new(program());
    process::run(command.arg(kind).args(more).current_dir(&scratch), &scratch, uu::LIMIT)
}

/// The functions of the thread that crashed, without those that the C library adds to a program (`_start`).
fn functions(report: &Report) -> Vec<String> {
    let mut found = report.crashed().functions(&Symbols::of(program()));
    found.retain(|name| !name.starts_with('_'));
    found
}

#[test]
fn each_kind_of_crash_is_reported_and_ends_the_program_by_its_signal() {
    for (kind, signal, code, stack) in [
        ("read", SIGSEGV, 1, &["crash_read", "middle", "main"][..]),
        ("wild-read", SIGSEGV, 128, &["crash_wild_read", "middle", "main"]),
        ("call", SIGSEGV, 1, &["crash_call", "middle", "main"]),
        ("wild-call", SIGSEGV, 1, &["crash_call", "middle", "main"]),
        ("divide", SIGFPE, 1, &["crash_divide", "middle", "main"]),
        ("illegal", SIGILL, 2, &["crash_illegal", "middle", "main"]),
        ("trap", SIGTRAP, 128, &["crash_trap", "middle", "main"]),
        ("abort", SIGABRT, -6, &["crash_abort", "middle", "main"]),
        ("assert", SIGABRT, -6, &["crash_assert", "middle", "main"]),
        ("raise", SIGSEGV, -6, &["crash_raise", "middle", "main"]),
        ("sys", SIGSYS, 1, &["crash_sys", "middle", "main"]),
        ("handled", SIGSEGV, -6, &["crash_raise", "middle", "main"]),
        ("bus", SIGBUS, 2, &["crash_bus", "middle", "main"]),
        ("handler", SIGSEGV, 1, &["crash_read", "handler_crash", "crash_handler", "middle", "main"]),
        ("thread", SIGSEGV, 1, &["crash_read", "middle", "worker"]),
        ("small-thread", SIGSEGV, 1, &["crash_read", "middle", "worker"]),
        ("small-prepared-thread", SIGSEGV, 1, &["crash_read", "middle", "worker"]),
        ("guarded", SIGSEGV, 1, &["crash_read", "middle", "main"]),
    ] {
        let out = crash(kind, &[]);
        assert_eq!(out.code(), 128 + signal, "{kind}: {}", out.text());
        let report = Report::one(&out.stderr);
        assert_eq!(report.crash["signal"], signal, "{kind}: {}", out.text());
        assert_eq!(report.crash["code"], code, "{kind}: {}", out.text());
        assert_eq!(functions(&report), stack, "{kind}: {}", out.text());
        assert_eq!(report.crashed().head["stop"], 1, "{kind}: {}", out.text());
        let build_id = report.crashed().frames.iter().find_map(|frame| frame["build_id"].as_str());
        assert!(build_id.is_some_and(|id| id.len() == 40), "{kind}: {}", out.text());
    }
}

/// The damaged heap makes malloc() fault, or abort, while it holds its lock.
#[test]
fn a_crash_inside_malloc_is_reported() {
    let out = crash("heap", &[]);
    assert!([128 + SIGSEGV, 128 + SIGABRT].contains(&out.code()), "{}", out.text());
    let report = Report::one(&out.stderr);
    assert_eq!(functions(&report), ["crash_heap", "middle", "main"], "{}", out.text());
    let leaf = report.crashed().frames[0]["object"].as_str();
    assert!(leaf.is_some_and(|object| object.contains("libc")), "{}", out.text());
    assert_eq!(report.threads.len(), 2, "{}", out.text());
}

#[test]
fn a_stack_overflow_is_reported_with_both_ends() {
    for (kind, outermost) in [("overflow", "main"), ("overflow-thread", "worker")] {
        let out = crash(kind, &[]);
        assert_eq!(out.code(), 128 + SIGSEGV, "{kind}: {}", out.text());
        let report = Report::one(&out.stderr);
        assert_eq!(report.crash["overflow"], true, "{kind}");
        let found = functions(&report);
        assert_eq!(found.first().map(|name| &**name), Some("crash_overflow"), "{kind}: {}", out.text());
        let ends: Vec<&str> = found.iter().map(|name| &**name).filter(|name| *name != "crash_overflow").collect();
        assert_eq!(&ends[..2], ["middle", outermost], "{kind}: {}", out.text());
    }
}

/// The thread cannot be walked once more: its native stack is captured.
#[test]
fn crashes_in_functions_that_a_walk_calls_have_their_stack() {
    for (kind, stop, stack) in [
        ("in-request", 1, &["crash_read", "of_request", "crash_in_request", "middle", "main"][..]),
        ("in-client", 1, &["crash_read", "of_client", "crash_in_client", "middle", "main"]),
        // The capture asks the window's function, too.
        ("in-window", 60, &["crash_read", "of_window", "walks"]),
    ] {
        let out = crash(kind, &[]).expect_code(128 + SIGSEGV);
        let report = Report::one(&out.stderr);
        assert_eq!(functions(&report), stack, "{kind}: {}", out.text());
        assert_eq!(report.crashed().head["stop"], stop, "{kind}: {}", out.text());
    }
}

/// More frames than a walk keeps.
#[test]
fn deep_stacks_have_their_true_numbers() {
    let middle = 1 + 10_001;
    let out = crash("deep", &[]).expect_code(128 + SIGSEGV);
    let report = Report::one(&out.stderr);
    let thread = report.crashed();
    let symbols = Symbols::of(program());
    let found = thread.frames.iter().find(|frame| symbols.names(frame).iter().any(|name| name == "middle"));
    assert_eq!(found.expect("middle")["index"], middle);
    let count = thread.head["frames"].as_u64().expect("a number");
    assert!(count > middle + 1, "{}", thread.head);
    assert_eq!(thread.frames.last().expect("frames")["index"], count - 1);
    let omitted: Vec<_> = thread.frames.iter().filter(|frame| frame["kind"] == "omitted").collect();
    assert_eq!((omitted.len(), thread.frames.len()), (1, 192 + 1 + 64));
    assert_eq!((&omitted[0]["frames"], &omitted[0]["index"]), (&(count - 256).into(), &192.into()));
    assert_eq!(omitted[0]["tid"], thread.head["tid"]);
    let doubt = "an object was not seen by uu_setup(): frames of a language may be missing";
    assert_eq!(thread.head["doubt"], doubt);
    let text = crash("deep", &["2", "0"]).expect_code(128 + SIGSEGV).stderr;
    for part in
        [format!("crashed: {count} frames, complete; {doubt}\n"), format!("\n  ... {} frames left out\n", count - 256)]
    {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert!(text.contains(&format!("\n  #{} 0x", count - 64)), "{text}");
}

#[test]
fn damaged_stacks_are_reported_as_far_as_they_go() {
    for (kind, signal, first) in
        [("smash", SIGSEGV, Some("crash_smash")), ("unreadable", SIGILL, Some("crash_unreadable"))]
    {
        let out = crash(kind, &[]);
        assert_eq!(out.code(), 128 + signal, "{kind}: {}", out.text());
        let report = Report::one(&out.stderr);
        assert_eq!(functions(&report).first().map(|name| &**name), first, "{kind}: {}", out.text());
        assert_eq!(report.crashed().head["complete"], false, "{kind}: {}", out.text());
    }
}

#[test]
fn a_crash_in_a_constructor_during_dlopen_is_reported() {
    let scratch = paths::scratch("crash-constructor");
    let source = scratch.join("constructor.c");
    let text = "__attribute__((constructor)) void in_constructor(void) { *(volatile int *)0 = 1; }\n";
    std::fs::write(&source, text).expect("scratch");
    let object = compile::gcc_files(&scratch, "constructor.so", &[source], &["-shared", "-fPIC", "-Wno-array-bounds"]);
    let mut command = Command::new(program());
    command.arg("load").env("CONSTRUCTOR", &object);
    let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(128 + SIGSEGV);
    let report = Report::one(&out.stderr);
    assert_eq!(report.crashed().functions(&Symbols::of(&object)), ["in_constructor"], "{}", out.text());
    assert_eq!(functions(&report)[..3], ["crash_load", "middle", "main"], "{}", out.text());
}

#[test]
fn other_threads_are_in_the_report() {
    let out = crash("others", &[]).expect_code(128 + SIGSEGV);
    let report = Report::one(&out.stderr);
    assert_eq!(report.threads.len(), 4, "{}", out.text());
    let symbols = Symbols::of(program());
    for thread in &report.threads[1..] {
        assert_eq!(thread.functions(&symbols), ["waiting", "waits"], "{}", out.text());
        assert_eq!(thread.head["stop"], 1, "{}", out.text());
    }
    let out = crash("others", &["2", "5"]).expect_code(128 + SIGSEGV);
    assert_eq!(Report::one(&out.stderr).threads.len(), 1, "UU_CRASH_ONE_THREAD");
}

/// How often a race is tried; `UU_CRASHES` for more.
fn rounds() -> u32 {
    std::env::var("UU_CRASHES").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20)
}

/// Two threads walk all others, in handlers of the third, when that one crashes.
#[test]
fn a_crash_in_the_middle_of_walks_is_reported() {
    for _ in 0..rounds() {
        let out = crash("walked", &[]).expect_code(128 + SIGSEGV);
        let report = Report::one(&out.stderr);
        assert_eq!(functions(&report), ["crash_read", "middle", "main"], "{}", out.text());
        assert_eq!(report.threads.len(), 3, "{}", out.text());
    }
}

/// The first thread is reported, with the stacks of the others, which wait in their handlers.
#[test]
fn several_threads_that_crash_at_once_make_one_report() {
    for _ in 0..rounds() {
        let out = crash("at-once", &[]).expect_code(128 + SIGSEGV);
        let report = Report::one(&out.stderr);
        assert_eq!(functions(&report), ["crash_read", "middle", "worker"], "{}", out.text());
        assert_eq!(report.threads.len(), 9, "{}", out.text());
    }
}

#[test]
fn the_child_of_a_fork_reports_as_itself() {
    let out = crash("fork", &[]).expect_code(0);
    let report = Report::one(&out.stderr);
    assert_eq!(report.crash["pid"].to_string(), out.stdout, "{}", out.text());
    assert_eq!(functions(&report), ["crash_read", "middle", "main"], "{}", out.text());
}

#[test]
fn handlers_that_mend_the_fault_leave_no_report() {
    for kind in ["no-jump", "no-skip", "no-mend", "no-unblocked", "no-nested", "no-ignored"] {
        let out = crash(kind, &[]);
        assert_eq!((out.code(), &*out.stderr), (0, ""), "{kind}: {}", out.text());
    }
}

#[test]
fn handlers_that_give_up_are_followed_by_a_report() {
    for kind in ["gives-up", "repeats", "once", "chains", "restores"] {
        let out = crash(kind, &[]);
        assert_eq!(out.code(), 128 + SIGSEGV, "{kind}: {}", out.text());
        let mut found = functions(&Report::one(&out.stderr));
        // `restore` raises the signal again, from its handler.
        found.retain(|name| name != "restore");
        assert_eq!(found, ["crash_read", "middle", "main"], "{kind}: {}", out.text());
    }
    // With SA_NODEFER, the signal ends the process at once when it is sent again.
    let out = crash("repeats-nodefer", &[]);
    assert_eq!((out.code(), &*out.stderr), (128 + SIGSEGV, ""), "{}", out.text());
    let out = crash("repeats-nodefer", &["2", "3"]).expect_code(128 + SIGSEGV);
    assert_eq!(functions(&Report::one(&out.stderr)), ["crash_read", "middle", "main"], "{}", out.text());
    // One that ends the process is followed by nothing; the flag asks for a report before it.
    let out = crash("leaves", &[]);
    assert_eq!((out.code(), &*out.stderr), (9, ""), "{}", out.text());
    let out = crash("leaves-reported", &["2", "3"]).expect_code(9);
    assert_eq!(functions(&Report::one(&out.stderr)), ["crash_read", "middle", "main"], "{}", out.text());
}

/// `uu_report_crashes()` once more, after the program has put a handler of its own in front of the library's.
#[test]
fn signals_are_taken_again() {
    for kind in [
        "again-gives-up",
        "again-chains",
        "again-chains-twice",
        "again-circle",
        "again-restores",
        "again-default",
        "again-off",
    ] {
        for flags in ["1", "3"] {
            // A handler that repeats the signal after the report asks for another one.
            if kind == "again-restores" && flags == "3" {
                continue;
            }
            let out = crash(kind, &["2", flags]);
            assert_eq!(out.code(), 128 + SIGSEGV, "{kind} {flags}: {}", out.text());
            let mut found = functions(&Report::one(&out.stderr));
            found.retain(|name| name != "restore");
            assert_eq!(found, ["crash_read", "middle", "main"], "{kind} {flags}: {}", out.text());
        }
    }
    for kind in ["no-again-mend", "no-again-mend-chained"] {
        let out = crash(kind, &[]);
        assert_eq!((out.code(), &*out.stderr), (0, ""), "{kind}: {}", out.text());
    }
    let out = crash("again-chains-often", &[]).expect_code(3);
    assert_eq!((&*out.stdout, &*out.stderr), ("install: -16\n", ""), "{}", out.text());
}

#[test]
fn destinations_that_cannot_be_written_change_nothing() {
    for kind in ["closed", "broken-pipe", "off"] {
        let out = crash(kind, &[]);
        assert_eq!((out.code(), &*out.stderr), (128 + SIGSEGV, ""), "{kind}: {}", out.text());
    }
    let scratch = paths::scratch("crash-reused");
    let other = scratch.join("other.txt");
    let out = crash("reused", &["2", "1", other.to_str().expect("UTF-8")]);
    assert_eq!(out.code(), 128 + SIGSEGV, "{}", out.text());
    assert_eq!(std::fs::read_to_string(&other).expect("it was made"), "", "another file has the number by now");
    assert_eq!(crash("refused", &[]).stdout, "-9 -9 -9 -22 -22 -22 0\n");
}

/// Who reads the report may have stopped: the process ends all the same, by its signal.
#[test]
fn destinations_without_room_do_not_hold_a_program_up() {
    let ended: Vec<_> = std::thread::scope(|scope| {
        let kinds = ["full-pipe", "full-socket", "full-terminal", "file-limit"];
        let started = kinds.map(|kind| {
            scope.spawn(move || {
                let begin = Instant::now();
                let file = paths::scratch("crash-file-limit").join("report");
                let more: &[&str] = if kind == "file-limit" { &[file.to_str().expect("UTF-8")] } else { &[] };
                (kind, crash(kind, more), begin.elapsed())
            })
        });
        started.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for (kind, out, took) in ended {
        assert_eq!(out.code(), 128 + SIGSEGV, "{kind}: {}", out.text());
        // Two seconds, on a busy machine.
        assert!(took < Duration::from_secs(15), "{kind}: {took:?}");
    }
    let out = crash("read", &["/dev/full"]).expect_code(128 + SIGSEGV);
    assert_eq!(out.stderr, "");
}

/// A handler that was installed later stays installed while a report is written: other threads rely on it.
#[test]
fn a_report_leaves_later_handlers_to_other_threads() {
    let out = crash("reads-while-faulting", &[]).expect_code(128 + SIGSEGV);
    assert_eq!(out.stderr.lines().next().map(|line| line.contains("SIGSEGV")), Some(true), "{}", out.text());
    // What is in the pipe when the process ends is lost.
    assert!(out.stderr.contains("\"type\":\"frame\""), "{}", out.text());
}

/// A handler that jumps out of a report's handler does not lose the thread's alternate stack.
#[test]
fn overflows_that_are_left_by_a_jump_are_reported_each_time() {
    let out = crash("no-first-jump", &["2", "3"]).expect_code(0);
    let reports = Report::all(&out.stderr);
    assert_eq!(reports.len(), 3, "{}", out.text());
    assert!(reports.iter().all(|report| report.complete && report.crash["overflow"] == true), "{}", out.text());
}

/// The child of a vfork shares its parent's memory, and is another process.
#[test]
fn the_child_of_a_vfork_reports_as_itself() {
    let out = crash("vfork", &[]).expect_code(128 + SIGSEGV);
    let reports = Report::all(&out.stderr);
    assert_eq!(reports.len(), 2, "{}", out.text());
    assert_eq!(reports[0].crash["pid"].to_string(), out.stdout, "{}", out.text());
    assert_ne!(reports[1].crash["pid"].to_string(), out.stdout, "{}", out.text());
    for report in reports {
        assert!(report.complete && functions(&report) == ["crash_read", "middle", "main"], "{}", out.text());
    }
}

/// The first process of a pid namespace ignores signals that are sent, as without reports, and ends by the others.
#[test]
fn the_first_process_of_a_pid_namespace_ends_as_without_reports() {
    let run = |kind: &str, to: &str| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork"]).arg(program()).args([kind, to]);
        process::run(&mut command, &paths::scratch("crash-init"), uu::LIMIT)
    };
    if Command::new("unshare").args(["--pid", "--fork", "true"]).status().map_or(true, |status| !status.success()) {
        skips::skipped("crash reports in a pid namespace", "unshare --pid is not allowed");
        return;
    }
    for (kind, signals) in [
        ("read", &[SIGSEGV][..]),
        ("divide", &[SIGFPE]),
        ("illegal", &[SIGILL]),
        ("trap", &[SIGTRAP]),
        ("sys", &[SIGSYS]),
        ("raise", &[]),
        ("abort", &[SIGABRT, SIGSEGV]),
    ] {
        let (out, without) = (run(kind, "2"), run(kind, "-"));
        assert_eq!(out.code(), without.code(), "{kind}: {}", out.text());
        let reported: Vec<_> = Report::all(&out.stderr).iter().filter_map(|r| r.crash["signal"].as_i64()).collect();
        assert_eq!(reported, signals.iter().map(|signal| i64::from(*signal)).collect::<Vec<_>>(), "{}", out.text());
    }
}

/// A plugin that fails in the walk of the thread that crashed: its failure is contained, and the report complete.
#[test]
fn faults_of_plugins_in_a_report_are_contained() {
    let scratch = paths::scratch("crash-plugins");
    let options = ["-pthread", "-fno-stack-protector", "-w", faces::CLAIMED];
    let program = compile::with_library(&scratch, "crashes", &options);
    let bad = faces::bad(&scratch);
    for face in ["null-read", "divide", "trap", "wild-jump"] {
        for kind in ["read", "divide", "illegal"] {
            let mut command = Command::new(&program);
            command.arg(kind).env("UU_PLUGINS", &bad).env("UU_FACE", face).env("XDG_CACHE_HOME", scratch.join("cache"));
            let out = process::run(&mut command, &scratch, uu::LIMIT);
            let report = Report::one(&out.stderr);
            assert_ne!(report.crashed().head["doubt"], "", "{face} {kind}: {}", out.text());
            let mut found = report.crashed().functions(&Symbols::of(&program));
            found.retain(|name| !name.starts_with('_'));
            assert_eq!(found, [&format!("crash_{kind}"), "middle", "main"], "{face}: {}", out.text());
        }
    }
}

#[test]
fn paths_are_opened_when_a_crash_comes() {
    let scratch = paths::scratch("crash-path");
    let pattern = scratch.join("report-%p.json");
    let out = crash("no-mend", &[pattern.to_str().expect("UTF-8")]).expect_code(0);
    assert_eq!(out.stderr, "");
    assert!(!scratch.read_dir().expect("a folder").any(|entry| entry.is_ok_and(|e| e.path().extension().is_some())));
    crash("read", &[pattern.to_str().expect("UTF-8")]).expect_code(128 + SIGSEGV);
    let files: Vec<_> = scratch.read_dir().expect("a folder").flatten().map(|entry| entry.path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let report = Report::one(&std::fs::read_to_string(file).expect("readable"));
    assert_eq!(file.file_name(), Some(format!("report-{}.json", report.crash["pid"]).as_ref()));
}

/// Exported functions have names: those that the objects' files have, and no others.
#[test]
fn exported_functions_are_named() {
    let scratch = paths::scratch("crashes-exported");
    let program = compile::with_library(&scratch, "crashes", &["-pthread", "-rdynamic", "-fno-stack-protector", "-w"]);
    for (kind, first) in [("abort", None), ("read", Some("crash_read")), ("handler", Some("crash_read"))] {
        let out = process::run(Command::new(&program).arg(kind), &scratch, uu::LIMIT);
        let report = Report::one(&out.stderr);
        let mut named = 0;
        for frame in &report.crashed().frames {
            let Some(name) = frame["function"].as_str() else { continue };
            let symbols = Symbols::exported(Path::new(frame["object"].as_str().expect("a path")));
            assert!(symbols.names(frame).contains(&name.to_owned()), "{kind}: {frame}");
            named += 1;
        }
        let functions: Vec<_> = report.crashed().frames.iter().filter_map(|frame| frame["function"].as_str()).collect();
        assert!(named >= 3 && functions.contains(&"main"), "{kind}: {functions:?}");
        assert!(first.is_none_or(|first| functions[0] == first), "{kind}: {functions:?}");
        assert!(kind != "abort" || functions.contains(&"abort"), "{functions:?}");
    }
}

/// A debugger destroys the report's own execution: what was written stays, and the program ends by its signal.
#[test]
fn a_fault_in_the_report_ends_it() {
    if Command::new("gdb").arg("--version").output().is_err() {
        skips::skipped("a fault in a crash report", "there is no gdb on this machine");
        return;
    }
    let scratch = paths::scratch("crash-in-report");
    // Each write is preceded by a ppoll, which nothing else calls here: the second one is that of the stack.
    let script = scratch.join("commands.gdb");
    let text = "handle SIGSEGV nostop noprint pass\ncatch syscall ppoll\nrun\ncontinue\ncontinue\ncontinue\nset $rip=0x123\ndelete\ncontinue\n";
    std::fs::write(&script, text).expect("scratch");
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-x"]).arg(&script).arg("--args").arg(program()).args(["read", "2", "0"]);
    let out = process::run(&mut command, &scratch, uu::LIMIT);
    assert!(out.stderr.starts_with("uu crash report: SIGSEGV"), "{}", out.text());
    assert!(out.stderr.contains("\nthe crash report ends here: a fault in it\n"), "{}", out.text());
    assert!(out.stderr.contains("\nregisters rip "), "what was not written by then is there: {}", out.text());
    assert!(out.stdout.contains("Program terminated with signal SIGSEGV"), "{}", out.text());
}

/// The text says the same as the lines of JSON.
#[test]
fn the_text_is_for_people() {
    let out = crash("read", &["2", "0"]).expect_code(128 + SIGSEGV);
    let first = "uu crash report: SIGSEGV (11), address not mapped (code 1), address 0x0\n";
    assert!(out.stderr.starts_with(first), "{}", out.text());
    assert!(out.stderr.ends_with("end of the crash report\n"), "{}", out.text());
    let program = program().canonicalize().expect("it exists");
    let line = out.stderr.lines().find(|line| line.starts_with("  #0 0x")).expect("a first frame");
    assert!(line.contains(&format!(" {}+0x", program.display())), "{}", out.text());
    assert!(out.stderr.contains(&format!("object {} at 0x", program.display())), "{}", out.text());
    // The stack comes first, then what fewer people need.
    let place = |text: &str| out.stderr.find(text).unwrap_or_else(|| panic!("{text}: {}", out.text()));
    assert!(place("  #0 0x") < place("\nregisters rip ") && place("\nregisters rip ") < place("\nobject "));
    assert_eq!(out.stderr.matches("registers rip ").count(), 1, "{}", out.text());
}
