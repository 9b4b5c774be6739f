//! Threads have the names that Python's `threading` gives them, which the kernel does not know before 3.14, and of
//! which it later knows 15 bytes. Other programs' threads have the kernel's names.

use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use uunwind_tests::attached::Attached;
use uunwind_tests::interpreters::{modern, supported, Interpreter};
use uunwind_tests::process::run;
use uunwind_tests::running::{wait_for, Running};
use uunwind_tests::{compile, paths, skips, uu};

/// Steps of the test program.
const STEPS: u32 = 3;
/// Interpreters that are tested at a time: their recordings mostly wait for the file to be written.
const AT_ONCE: usize = 8;

/// Thread id -> name, in a report of a recording that may still go on.
fn names(scratch: &Path) -> BTreeMap<u64, String> {
    let out = scratch.join("names.json");
    let mut report = uu::command(scratch, &["report"]);
    report.arg(scratch.join("recording.uu")).args(["-f", "trace", "-o"]).arg(&out);
    if run(&mut report, scratch, uu::LIMIT).code() != 0 {
        return BTreeMap::new();
    }
    let text = std::fs::read_to_string(out).expect("a report");
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events").iter().filter(|event| event["name"] == "thread_name");
    let name = |event: &Value| Some((event["tid"].as_u64()?, event["args"]["name"].as_str()?.to_owned()));
    events.filter_map(name).collect()
}

/// What the program said of a step.
fn said(scratch: &Path, step: u32) -> Option<BTreeMap<u64, String>> {
    let text = std::fs::read_to_string(scratch.join(format!("said-{step}"))).ok()?;
    let line = |line: &str| line.split_once(' ').map(|(tid, name)| (tid.parse().expect("an id"), name.to_owned()));
    Some(text.lines().filter_map(line).collect())
}

/// Thread id -> name, in a recording that may still go on.
fn recorded(scratch: &Path) -> BTreeMap<u64, String> {
    let recording = uunwind_recording::Recording::read(&scratch.join("recording.uu"));
    let threads = recording.map(|recording| recording.threads).unwrap_or_default();
    threads.into_iter().map(|thread| (thread.tid.into(), thread.name)).collect()
}

/// Lets the program go on as soon as the recording has all the names that it said, and `names` has them then. What is
/// wrong.
fn follow(scratch: &Path, over: &AtomicBool, names: fn(&Path) -> BTreeMap<u64, String>) -> Vec<String> {
    let mut troubles = Vec::new();
    for step in 1..=STEPS {
        let (mut shown, mut wanted) = (BTreeMap::new(), None);
        let begun = Instant::now();
        let has = |shown: &BTreeMap<u64, String>, wanted: &BTreeMap<u64, String>| {
            wanted.iter().all(|(tid, name)| shown.get(tid) == Some(name))
        };
        loop {
            wanted = wanted.or_else(|| said(scratch, step));
            if let Some(wanted) = &wanted {
                // A report costs a hundred times more than this look.
                shown = recorded(scratch);
                if has(&shown, wanted) {
                    shown = names(scratch);
                }
                if has(&shown, wanted) {
                    break;
                }
            }
            if over.load(Ordering::Relaxed) || begun.elapsed() > uu::LIMIT / 2 {
                troubles.push(format!("step {step}: wanted {wanted:?}, shown {shown:?}"));
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        std::fs::write(scratch.join(format!("go-{step}")), "").expect("a file");
    }
    troubles
}

/// What is wrong with the names in recordings of this interpreter.
fn troubles(python: &Interpreter) -> Vec<String> {
    let scratch = paths::scratch(&format!("thread-names-{}", python.label));
    let script = paths::source("python/named_threads.py");
    let program = [python.path.as_os_str(), script.as_os_str(), scratch.as_os_str()];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| follow(&scratch, &over, names));
        let recording = uu::record(&scratch, &["-r", "499"], |_| {}, &program);
        over.store(true, Ordering::Relaxed);
        let mut troubles = follower.join().expect("the follower ends");
        if recording.outcome.code() != 0 {
            troubles.push(format!("the program failed: {}", recording.outcome.text()));
        }
        // The main threads have the kernel's names.
        let comm = python.path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let all = names(&scratch);
        if !all.values().any(|name| *name == comm) || all.values().any(|name| name == "MainThread") {
            troubles.push(format!("main threads are not {comm}: {all:?}"));
        }
        troubles
    })
}

#[test]
fn threads_of_python_have_pythons_names() {
    let all = supported();
    let (free_threaded, all): (Vec<_>, Vec<_>) = all.into_iter().partition(|python| python.flags.contains('t'));
    for python in free_threaded {
        skips::skipped(&format!("thread names of {}", python.label), "free-threaded builds are not read");
    }
    let queue = Mutex::new(VecDeque::from(all));
    let found = Mutex::new(Vec::new());
    let next = || queue.lock().expect("no panic").pop_front();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(python) = next() {
                    let troubles = troubles(&python);
                    found.lock().expect("no panic").extend(troubles.iter().map(|t| format!("{}: {t}", python.label)));
                }
            });
        }
    });
    let found = found.into_inner().expect("no panic");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// As seen from outside: those that were there before the recording, and its children's.
#[test]
fn threads_of_a_python_that_runs_have_pythons_names() {
    let all = modern();
    std::thread::scope(|scope| all.iter().for_each(|python| drop(scope.spawn(|| expect_from_outside(python)))));
}

fn expect_from_outside(python: &Interpreter) {
    let scratch = paths::scratch(&format!("thread-names-attached-{}", python.label));
    let script = paths::source("python/named_threads.py");
    let mut running = Running::start(Command::new(&python.path).arg(script).arg(&scratch));
    wait_for("the first step", || said(&scratch, 1).is_some());
    let attached = Attached::begin(&scratch, running.pid(), &["-s", "-r", "499"]);
    let troubles = follow(&scratch, &AtomicBool::new(false), recorded);
    assert_eq!(running.line(), "", "it ends");
    attached.end();
    assert!(troubles.is_empty(), "{}: {}", python.label, troubles.join("\n"));
    let all = recorded(&scratch);
    let comm = python.path.file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(all.values().any(|name| name == comm) && all.values().all(|name| name != "MainThread"), "{all:?}");
}

#[test]
fn threads_of_others_have_the_kernels_names() {
    let scratch = paths::scratch("thread-names-native");
    let program = compile::gcc(&scratch, "family", &["native/family.c"], &[]);
    uu::record(&scratch, &["-r", "499"], |_| {}, &[program.as_ref()]).expect_code(0);
    let names = names(&scratch);
    assert!(!names.is_empty() && names.values().all(|name| name == "family"), "{names:?}");
}
