//! `uu record --mode lock -p`: what is recorded of a running process is what it measures itself; waits that began
//! before are none of it; before and after, its tables of functions' addresses are the same, and it lives on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use uunwind_recording::Recording;
use uunwind_tests::attached::{child_of, go_in_and_out, in_other_namespace, Attached, Entries};
use uunwind_tests::gate::{looks, redirected};
use uunwind_tests::process::run;
use uunwind_tests::running::{wait_for, Running};
use uunwind_tests::waits::{self, within, Wait};
use uunwind_tests::{compile, interpreters, paths, uu};

const ALL: [&str; 3] = ["--mode", "lock", "--all"];

/// `native/contends.c`, which does what lines say; nothing in it cancels threads.
fn program(scratch: &Path, options: &[&str]) -> Command {
    let options = [&["-O1", "-g", "-pthread", "-DUNCANCELLED"], options].concat();
    let mut command = Command::new(compile::gcc(scratch, "contends", &["native/contends.c"], &options));
    command.arg("attached");
    command
}

/// What the program writes when it is told this.
fn answer(running: &mut Running, word: &str) -> Vec<String> {
    running.say(word);
    let lines = std::iter::from_fn(|| Some(running.line())).take_while(|line| line != "done" && !line.is_empty());
    lines.collect()
}

/// Its waits of each kind, as it has measured them.
fn each(running: &mut Running) -> BTreeMap<String, Vec<u64>> {
    let lines = answer(running, "each");
    waits::said(lines.iter().map(String::as_str))
}

#[track_caller]
fn begin(scratch: &Path, running: &Running, options: &[&str]) -> Attached {
    Attached::begin_inside(scratch, running.pid(), options)
}

/// What `uu report` makes of the recording.
#[track_caller]
fn report(scratch: &Path, options: &[&str]) -> String {
    let mut command = uu::command(scratch, &["report", "-o", "-"]);
    run(command.args(options).arg(scratch.join("recording.uu")), scratch, uu::LIMIT).expect_code(0).stdout
}

#[track_caller]
fn recorded(scratch: &Path) -> Vec<Wait> {
    waits::read(&report(scratch, &["-f", "json"]))
}

/// Two recordings of each program: lazily bound, and bound when it begins, with read-only tables.
#[test]
fn waits_are_those_that_the_program_measures() {
    let scratch = paths::scratch("attached-locks");
    let bindings: [&[&str]; 4] = [
        &["-Wl,-z,lazy"],
        &["-Wl,-z,now", "-Wl,-z,relro"],
        &["-fno-plt", "-Wl,-z,now", "-Wl,-z,relro"],
        &["-no-pie", "-Wl,-z,lazy"],
    ];
    for options in bindings {
        let mut running = Running::ready(&mut program(&scratch, options));
        for round in 0..2 {
            let context = format!("{options:?}, recording {round}");
            let mut entries = Entries::before(running.pid());
            let attached = begin(&scratch, &running, &ALL);
            entries.must_be_redirected(11, &context);
            let said = each(&mut running);
            attached.end_whole();
            waits::expect_measured(&recorded(&scratch), &said);
            // What was not bound before was bound by the calls, or is as it was.
            entries.must_be_back(options.contains(&"-Wl,-z,lazy"), &context);
            // It goes on alone.
            each(&mut running);
        }
        running.say("end");
        assert_eq!(running.end(), Some(0), "{options:?}");
    }
}

/// Samples stand for the time of all, and the summary says what was waited for.
#[test]
fn samples_stand_for_all_waits() {
    let scratch = paths::scratch("attached-locks-sampled");
    let mut running = Running::ready(&mut program(&scratch, &[]));
    let attached = begin(&scratch, &running, &["--mode", "lock"]);
    let said = each(&mut running);
    attached.end_whole();
    let folded = report(&scratch, &["-f", "folded", "--focus", "^for_(mutex|write)$"]);
    let total: u64 = folded.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum();
    let sum = |index: usize| ["for_mutex", "for_write"].iter().map(|name| said[*name][index]).sum::<u64>() as f64;
    // Waits of 2 ms and more are sampled with a probability of more than 1 - exp(-20).
    let (least, most) = (sum(1) * (1.0 - 1e-6), sum(2) * (1.0 + 1e-6));
    assert!((least..=most).contains(&(total as f64)), "{total}, not from {least} to {most}");
    let summary = report(&scratch, &["-f", "summary"]);
    for text in ["Lock profile of", "What was waited for most", "held by ", "for a condition variable"] {
        assert!(summary.contains(text), "{text}: {summary}");
    }
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// A wait that had begun before is not counted: neither one from before uu came, nor one from another recording.
#[test]
fn waits_from_before_are_not_counted() {
    let scratch = paths::scratch("attached-locks-before");
    let mut running = Running::ready(&mut program(&scratch, &[]));
    answer(&mut running, "hold");
    for round in 0..3 {
        let attached = begin(&scratch, &running, &ALL);
        answer(&mut running, "give");
        let said = each(&mut running);
        // It goes on when the recording is over.
        answer(&mut running, "hold");
        attached.end_whole();
        assert!(!looks(running.pid()).has_sampler(), "recording {round}");
        waits::expect_measured(&recorded(&scratch), &said);
    }
    answer(&mut running, "give");
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// Values, errors, errno, the seventh argument of syscall(), the child of a fork: all is as without uu.
#[test]
fn the_program_does_not_notice() {
    let scratch = paths::scratch("attached-locks-same");
    let mut running = Running::ready(&mut program(&scratch, &[]));
    let alone = answer(&mut running, "all");
    let one = |part: &str| alone.iter().any(|line| line.contains(part));
    assert!(one("owner died: 1") && one("futex -1 1 -1 1 -1 1 -1 1 pid 1 mapped 1") && one("forked 1"), "{alone:?}");
    let attached = begin(&scratch, &running, &ALL);
    let during = answer(&mut running, "all");
    attached.end_whole();
    let waits = recorded(&scratch);
    let afterwards = answer(&mut running, "all");
    assert_eq!((&during, &afterwards), (&alone, &alone));
    // Two of the calls of futex(2) wait, each 2 ms.
    let of_futex: Vec<&Wait> = waits.iter().filter(|wait| wait.what == "futex" && wait.duration > 1_000_000).collect();
    assert_eq!(of_futex.len(), 2, "{:?}", of_futex.iter().map(|wait| wait.duration).collect::<Vec<_>>());
    // The children's waits are theirs.
    assert_eq!(within(&waits, "for_mutex").count(), 0);
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// A cancelled thread's destructors run, and uu says what it does not see for that.
#[test]
fn cancelled_threads_unwind_their_stacks() {
    let scratch = paths::scratch("attached-locks-cancelled");
    let program = compile::gcc(&scratch, "cancels", &["native/lock_cancels.cpp"], &["-pthread", "-lstdc++"]);
    let mut running = Running::ready(&mut Command::new(program));
    let cancel = |running: &mut Running| {
        running.say("cancel");
        running.line()
    };
    assert_eq!(cancel(&mut running), "destroyed 1");
    let attached = begin(&scratch, &running, &ALL);
    assert_eq!([(); 3].map(|()| cancel(&mut running)), ["destroyed 2", "destroyed 3", "destroyed 4"]);
    attached.signal(libc::SIGINT);
    let said = attached.end_alone();
    assert!(said.contains("the program calls pthread_cancel"), "{said}");
    assert_eq!(cancel(&mut running), "destroyed 5");
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// A `threading.Lock` that a thread waits for, in the line of Python that does, and the GIL.
#[test]
fn locks_of_python_are_waited_for() {
    for python in interpreters::modern() {
        let scratch = paths::scratch("attached-locks-python");
        let mut command = Command::new(&python.path);
        let mut running = Running::ready(command.arg(paths::source("python/contends.py")).arg("attached"));
        for _ in 0..2 {
            let attached = begin(&scratch, &running, &ALL);
            let said = answer(&mut running, "go");
            attached.end_whole();
            let numbers: Vec<u64> = said[0].split(' ').map(|word| word.parse().expect("a number")).collect();
            let [_, _, most] = numbers[..] else { panic!("{numbers:?}") };
            let all = recorded(&scratch);
            let is_lock = |wait: &&Wait| wait.what == "semaphore" || wait.what == "condition variable";
            let longest = within(&all, "waits").filter(is_lock).map(|wait| wait.duration).max().unwrap_or(0);
            assert!(longest > 0 && longest <= most, "{}: {longest} of {most}", python.label);
            // They take turns at least each few ms, by the condition of the GIL.
            let of_gil = within(&all, "spins").filter(|wait| wait.what == "condition variable").count();
            assert!(of_gil > 0, "{}", python.label);
        }
        running.say("end");
        assert_eq!(running.end(), Some(0));
    }
}

/// Where uu is killed, the program goes on, and the next uu puts its tables back.
#[test]
fn a_killed_uu_leaves_a_program_that_goes_on() {
    let scratch = paths::scratch("attached-locks-killed");
    let mut running = Running::ready(&mut program(&scratch, &["-Wl,-z,now"]));
    let mut entries = Entries::before(running.pid());
    let attached = begin(&scratch, &running, &ALL);
    entries.must_be_redirected(11, "before uu is killed");
    attached.kill();
    each(&mut running);
    let attached = begin(&scratch, &running, &ALL);
    let said = each(&mut running);
    attached.end_whole();
    waits::expect_measured(&recorded(&scratch), &said);
    entries.must_be_back(false, "after the next uu");
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// Under threads that contend, threads that come and go, and forks.
#[test]
fn it_goes_in_and_out_under_load() {
    let scratch = paths::scratch("attached-locks-load");
    let program: PathBuf = compile::gcc(&scratch, "lock_load", &["native/lock_load.c"], &["-pthread"]);
    let running = Running::ready(&mut Command::new(program));
    go_in_and_out(&scratch, running, [&["--mode", "lock"], &ALL]);
}

/// Where `uu` lives in another pid namespace, it finds the threads by their ids there, waiters as holders; what threads
/// lose that it has not seen yet is counted.
#[test]
fn another_pid_namespace_is_none_of_its_concern() {
    let scratch = paths::scratch("attached-locks-namespace");
    let Some(mut unshared) = in_other_namespace(&program(&scratch, &[]), "waits") else { return };
    let mut running = Running::ready(&mut unshared);
    let child = child_of(&running);
    let attached = Attached::begin_inside(&scratch, child, &ALL);
    let (mut rounds, mut pause) = (0, Duration::from_millis(100));
    let file = scratch.join("recording.uu");
    let is_there = || Recording::read(&file).is_ok_and(|recording| recording.lock_waits.iter().any(|w| w.holder != 0));
    while !is_there() {
        // The thread that waits is a new one, which uu sees some time after it has begun.
        assert!(rounds < 8, "no wait with a holder was recorded");
        (rounds, pause) = (rounds + 1, pause * 2);
        answer(&mut running, "hold");
        std::thread::sleep(pause);
        answer(&mut running, "give");
        // And reads what it has written.
        std::thread::sleep(pause);
    }
    each(&mut running);
    attached.signal(libc::SIGINT);
    let stderr = attached.end_alone();
    let waits = recorded(&scratch);
    let of_mutex: Vec<&Wait> = within(&waits, "for_mutex").filter(|wait| wait.what == "mutex").collect();
    assert!(!of_mutex.is_empty() && of_mutex.iter().all(|wait| wait.holder == Some(u64::from(child))), "{stderr}");
    // The first thread is known from the start: it has waited for the ends of all others.
    let ends = within(&waits, "attached").filter(|wait| wait.what == "end of a thread").count();
    assert!(ends > 0, "{stderr}");
    // What threads have lost that ended at once.
    let of_each =
        waits::WAITS.iter().map(|(function, what)| within(&waits, function).filter(|w| w.what == *what).count());
    let measured = waits::WAITS.len() * 20 + rounds;
    assert!(of_each.sum::<usize>() == measured || stderr.contains("samples were lost"), "{stderr}");
    assert_eq!(redirected(child), [0u64; 0]);
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// What cannot be recorded so is refused, with the reason.
#[test]
fn what_cannot_be_recorded_says_why() {
    let scratch = paths::scratch("attached-locks-refused");
    let fixed = compile::gcc(&scratch, "static", &["native/lock_load.c"], &["-static", "-pthread"]);
    let mut running = Running::ready(&mut Command::new(fixed));
    let mut command = uu::command(&scratch, &["record", "--mode", "lock", "-d", "1", "-p"]);
    let said = run(command.arg(running.pid().to_string()), &scratch, uu::LIMIT).expect_code(125);
    for part in ["--mode lock needs a sampler in it", "static programs", "-- PROGRAM; a static one cannot"] {
        assert!(said.stderr.contains(part), "{}", said.stderr);
    }
    running.say("over");
    wait_for("its end", || running.line().starts_with("wrong"));
    assert_eq!(running.end(), Some(0));
}
