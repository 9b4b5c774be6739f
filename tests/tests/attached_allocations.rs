//! `uu record --mode alloc -p`: what is recorded of a running process is what it counts itself, whoever its allocator
//! is; before and after, its tables of functions' addresses are the same, and it lives on, whatever becomes of uu.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::attached::{child_of, go_in_and_out, in_other_namespace, Attached, Entries};
use uunwind_tests::gate::{self, redirected};
use uunwind_tests::process::run;
use uunwind_tests::running::{wait_for, Running};
use uunwind_tests::{compile, interpreters, paths, uu};

const ALL: [&str; 3] = ["--mode", "alloc", "--all"];
/// Functions in which the program allocates what it counts.
const COUNTED: [&str; 2] = ["--focus", "^phase_"];

/// The program, linked so, and the library that it loads.
fn program(scratch: &Path, options: &[&str]) -> Command {
    let options = [&["-std=c++17", "-pthread", "-lstdc++", "-ldl"], options].concat();
    let program = compile::gcc(scratch, "heap_phases", &["native/heap_phases.cpp"], &options);
    let library = compile::shared(scratch, "heap_library.so", &["native/heap_library.c"]);
    let mut command = Command::new(program);
    command.arg(library);
    command
}

/// The numbers in the program's next line, which begins so.
#[track_caller]
fn said(running: &mut Running, name: &str) -> [u64; 2] {
    let line = running.line();
    let numbers: Vec<u64> = line.split(' ').skip(1).filter_map(|number| number.parse().ok()).collect();
    assert!(line.starts_with(name), "{line}");
    numbers.try_into().expect("two numbers")
}

/// Its totals, and what it holds, after a phase.
#[track_caller]
fn phase(running: &mut Running) -> [[u64; 2]; 2] {
    running.say("phase");
    [said(running, "total"), said(running, "live")]
}

/// Number and bytes of what was recorded of the counted functions: all of it, and what was not freed.
#[track_caller]
fn recorded(scratch: &Path) -> [[u64; 2]; 2] {
    recorded_of(scratch, COUNTED[1])
}

/// The sizes of what functions with such names have allocated.
#[track_caller]
fn recorded_sizes(scratch: &Path, functions: &str) -> Vec<u64> {
    let json = json_of(scratch, functions);
    let all = json["allocations"].as_array().expect("allocations");
    all.iter().map(|one| one["size"].as_u64().expect("a size")).collect()
}

#[track_caller]
fn json_of(scratch: &Path, functions: &str) -> Value {
    let mut command = uu::command(scratch, &["report", "-f", "json", "-o", "-", "--focus", functions]);
    let said = run(command.arg(scratch.join("recording.uu")), scratch, uu::LIMIT).expect_code(0).stdout;
    serde_json::from_str(&said).expect("JSON")
}

/// As [`recorded`], of functions with such names.
#[track_caller]
fn recorded_of(scratch: &Path, functions: &str) -> [[u64; 2]; 2] {
    let json = json_of(scratch, functions);
    let all = json["allocations"].as_array().expect("allocations");
    let sum = |sum: [u64; 2], one: &Value| [sum[0] + 1, sum[1] + one["size"].as_u64().expect("a size")];
    let live = all.iter().filter(|one| one["freed"].is_null());
    [all.iter().fold([0; 2], sum), live.fold([0; 2], sum)]
}

#[track_caller]
fn begin(scratch: &Path, running: &Running, options: &[&str]) -> Attached {
    Attached::begin_inside(scratch, running.pid(), options)
}

/// Two recordings of each program: lazily bound, and bound when it begins, with read-only tables; with libc's
/// allocator, and with another one before it.
#[test]
fn totals_are_those_that_the_program_counts() {
    let scratch = paths::scratch("attached-alloc");
    let front = compile::shared(&scratch, "heap_in_front.so", &["native/heap_in_front.c"]);
    let bindings: [&[&str]; 4] = [
        &["-Wl,-z,lazy"],
        &["-Wl,-z,now", "-Wl,-z,relro"],
        &["-fno-plt", "-Wl,-z,now", "-Wl,-z,relro"],
        &["-no-pie", "-Wl,-z,lazy"],
    ];
    for options in bindings {
        for preload in [None, Some(&front)] {
            let mut command = program(&scratch, options);
            command.envs(preload.map(|path| ("LD_PRELOAD", path)));
            let mut running = Running::ready(&mut command);
            for round in 0..2 {
                let context = format!("{options:?} {preload:?}, recording {round}");
                running.say("leave");
                assert_eq!(running.line(), "done");
                let mut entries = Entries::before(running.pid());
                let attached = begin(&scratch, &running, &ALL);
                entries.must_be_redirected(7, &context);
                let counted = phase(&mut running);
                let stderr = attached.end_whole();
                assert_eq!(recorded(&scratch), counted, "{context}: {stderr}");
                // What was not bound before the phase was bound by it, or is as it was.
                entries.must_be_back(options.contains(&"-Wl,-z,lazy"), &context);
                // It goes on alone.
                phase(&mut running);
            }
            running.say("end");
            assert_eq!(running.end(), Some(0), "{options:?} {preload:?}");
        }
    }
}

/// Allocators with operators new and delete of their own, and reallocarray in one, which call no malloc.
#[test]
fn operators_of_other_allocators_are_counted() {
    for name in ["libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let scratch = paths::scratch("attached-alloc-other");
        for options in [&["-Wl,-z,lazy"][..], &["-fno-plt", "-Wl,-z,now"]] {
            let mut command = program(&scratch, options);
            let mut running = Running::ready(command.env("LD_PRELOAD", name));
            let attached = begin(&scratch, &running, &ALL);
            let counted = phase(&mut running);
            let stderr = attached.end_whole();
            assert_eq!(recorded(&scratch), counted, "{name} {options:?}: {stderr}");
            assert_eq!(redirected(running.pid()), [0u64; 0], "{name} {options:?}");
            if name == "libmimalloc.so.2" {
                // Where there is no memory, its operators end the program, which is C's way.
                running.say("end");
                assert_eq!(running.end(), Some(0));
                continue;
            }
            // What there is no memory for is thrown, while it is recorded and alone.
            let attached = begin(&scratch, &running, &ALL);
            running.say("too much");
            assert_eq!(running.line(), "thrown 2", "{name} {options:?}");
            phase(&mut running);
            attached.end_whole();
            running.say("too much");
            assert_eq!(running.line(), "thrown 2", "{name} {options:?}");
            running.say("end");
            assert_eq!(running.end(), Some(0));
        }
    }
}

/// The gate stays from recording to recording; what is said of one is of that one.
#[test]
fn entries_that_an_earlier_recording_left_are_not_its_own() {
    let scratch = paths::scratch("attached-alloc-left");
    let mut running = Running::ready(&mut program(&scratch, &[]));
    for _ in 0..2 {
        let attached = begin(&scratch, &running, &ALL);
        phase(&mut running);
        attached.end_whole();
        gate::say_left(running.pid(), 7);
    }
    // While one is made, it is said.
    let attached = begin(&scratch, &running, &ALL);
    gate::say_left(running.pid(), 7);
    attached.signal(libc::SIGINT);
    let stderr = attached.end_alone();
    assert!(stderr.contains("7 entries of loaded objects were left as they are"), "{stderr}");
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// What nobody has called meanwhile is as the loader left it.
#[test]
fn entries_that_were_not_bound_are_not_bound_afterwards() {
    let scratch = paths::scratch("attached-alloc-lazy");
    let mut running = Running::ready(&mut program(&scratch, &["-Wl,-z,lazy"]));
    let mut entries = Entries::before(running.pid());
    let attached = begin(&scratch, &running, &ALL);
    entries.must_be_redirected(7, "not bound");
    attached.signal(libc::SIGINT);
    attached.end_alone();
    entries.must_be_back(false, "not bound");
    phase(&mut running);
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// The bytes that samples stand for, within the error of the sampling.
#[test]
fn samples_stand_for_all() {
    const INTERVAL: f64 = 4096.0;
    let scratch = paths::scratch("attached-alloc-sampled");
    let mut running = Running::ready(&mut program(&scratch, &[]));
    let attached = begin(&scratch, &running, &["--mode", "alloc", "--every-bytes", "4K"]);
    let [total, _] = phase(&mut running);
    attached.end_whole();
    running.say("end");
    assert_eq!(running.end(), Some(0));
    let arguments = ["report", "-f", "folded", "-o", "-", "--memory", "total"].iter().chain(&COUNTED);
    let mut command = uu::command(&scratch, &arguments.copied().collect::<Vec<_>>());
    let folded = run(command.arg(scratch.join("recording.uu")), &scratch, uu::LIMIT).expect_code(0).stdout;
    let found: f64 = folded.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum();
    let wanted = total[1] as f64;
    // The variance is at most the sum times the distance of samples.
    let bound = 8.0 * (wanted * INTERVAL).sqrt() + INTERVAL;
    assert!((found - wanted).abs() < bound, "{found} of {wanted}, within {bound}");
}

/// A free by an address that the program has kept is not seen; the next allocation there ends the other one.
#[test]
fn what_is_freed_unseen_ends_where_its_address_comes_again() {
    let scratch = paths::scratch("attached-alloc-hidden");
    let mut running = Running::ready(&mut program(&scratch, &[]));
    let attached = begin(&scratch, &running, &ALL);
    running.say("hidden");
    assert_eq!(running.line(), "done");
    let stderr = attached.end_whole();
    assert!(stderr.contains("1000 sampled allocations were freed in a way that uu does not see"), "{stderr}");
    let [total, live] = recorded(&scratch);
    assert_eq!((total, live), ([2000, 2000 * 777], [0, 0]));
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// Where uu is killed, the program goes on, and the next uu puts its tables back.
#[test]
fn a_killed_uu_leaves_a_program_that_goes_on() {
    let scratch = paths::scratch("attached-alloc-killed");
    let mut running = Running::ready(&mut program(&scratch, &["-Wl,-z,now"]));
    let mut entries = Entries::before(running.pid());
    let attached = begin(&scratch, &running, &ALL);
    entries.must_be_redirected(7, "before uu is killed");
    attached.kill();
    for _ in 0..3 {
        phase(&mut running);
    }
    running.say("leave");
    assert_eq!(running.line(), "done");
    let attached = begin(&scratch, &running, &ALL);
    let counted = phase(&mut running);
    attached.end_whole();
    assert_eq!(recorded(&scratch), counted);
    entries.must_be_back(false, "after the next uu");
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// Under threads that allocate, threads that come and go, and forks.
#[test]
fn it_goes_in_and_out_under_load() {
    let scratch = paths::scratch("attached-alloc-load");
    let program: PathBuf = compile::gcc(&scratch, "heap_load", &["native/heap_load.c"], &["-pthread"]);
    let running = Running::ready(&mut Command::new(program));
    let options = [&["--mode", "alloc", "--every-bytes", "64K"][..], &["--mode", "alloc", "--all", "--mmap"]];
    go_in_and_out(&scratch, running, options);
}

/// A process that ends while it is recorded: the recording has what came before.
#[test]
fn the_end_of_the_process_ends_the_recording() {
    let scratch = paths::scratch("attached-alloc-end");
    let mut running = Running::ready(&mut program(&scratch, &[]));
    let attached = begin(&scratch, &running, &ALL);
    let counted = phase(&mut running);
    running.say("end");
    assert_eq!(running.end(), Some(0));
    let (_, _, stderr) = attached.end();
    assert_eq!(recorded(&scratch)[0], counted[0], "{stderr}");
}

/// A child that is there has a sampler of its own with `-s`.
#[test]
fn children_are_recorded_with_an_option() {
    let scratch = paths::scratch("attached-alloc-child");
    let program = program(&scratch, &[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" \"$1\"; exit $?"]).arg(program.get_program()).args(program.get_args());
    let mut running = Running::ready(&mut shell);
    let child = child_of(&running);
    let attached = begin(&scratch, &running, &[&ALL[..], &["-s"]].concat());
    let counted = phase(&mut running);
    let stderr = attached.end_whole();
    assert_eq!(recorded(&scratch), counted, "{stderr}");
    assert_eq!(redirected(child), [0u64; 0]);
    phase(&mut running);
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// A program that is executed meanwhile gets a sampler, too.
#[test]
fn a_program_that_is_executed_is_recorded() {
    let scratch = paths::scratch("attached-alloc-exec");
    let program = program(&scratch, &[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo ready; read line; exec \"$0\" \"$1\""]).arg(program.get_program()).args(program.get_args());
    let mut running = Running::ready(&mut shell);
    let attached = begin(&scratch, &running, &ALL);
    running.say("go");
    assert_eq!(running.line(), "ready");
    wait_for("a sampler in the new program", || gate::is_in_use(running.pid()));
    let counted = phase(&mut running);
    let stderr = attached.end_whole();
    assert_eq!(recorded(&scratch), counted, "{stderr}");
    assert!(stderr.contains("called exec"), "{stderr}");
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// Where `uu` lives in another pid namespace, the threads that it has seen are recorded; what others lose is counted.
#[test]
fn another_pid_namespace_is_none_of_its_concern() {
    /// What the four threads of a phase allocate: 10,000 times each, from 8 to 1,007 bytes.
    const THREADS: [u64; 2] = [4 * 10_000, 4 * (10_000 * 8 + 10 * 499_500)];
    let scratch = paths::scratch("attached-alloc-namespace");
    let Some(mut unshared) = in_other_namespace(&program(&scratch, &[]), "allocations") else { return };
    let mut running = Running::ready(&mut unshared);
    let child = child_of(&running);
    let attached = Attached::begin_inside(&scratch, child, &ALL);
    let [total, live] = phase(&mut running);
    attached.signal(libc::SIGINT);
    attached.end_alone();
    // Those of threads that begin meanwhile may all be lost.
    let recorded = recorded_of(&scratch, "^phase_(c|cpp|old|library)$");
    assert_eq!(recorded, [[0, 1].map(|index| total[index] - THREADS[index]), live]);
    assert_eq!(redirected(child), [0u64; 0]);
    running.say("end");
    assert_eq!(running.end(), Some(0));
}

/// Large objects of Python come from malloc, and those of numpy, where there is an interpreter that has it.
#[test]
fn lines_of_python_allocate() {
    let script = paths::source("python/allocates.py");
    // Free-threaded builds have an allocator of their own.
    for python in interpreters::modern().into_iter().filter(|python| !python.flags.contains('t')) {
        let scratch = paths::scratch("attached-alloc-python");
        let mut command = Command::new(&python.path);
        let mut running = Running::ready(command.arg(&script));
        let attached = begin(&scratch, &running, &ALL);
        running.say("go");
        let wanted: Vec<String> = running.line().split(' ').map(str::to_owned).collect();
        attached.end_whole();
        let all = recorded_sizes(&scratch, "^(makes_bytes|makes_arrays)$");
        // Each is a block of its own, of at least the bytes of the object.
        for size in &wanted {
            let size: u64 = size.parse().expect("a size");
            let of_size = all.iter().filter(|all| (size..size + 128).contains(*all)).count();
            assert_eq!(of_size, 20, "{}: {size} in {all:?}", python.label);
        }
        running.say("end");
        assert_eq!(running.end(), Some(0));
    }
}

/// What cannot be recorded so is refused, with the reason.
#[test]
fn what_cannot_be_recorded_says_why() {
    let scratch = paths::scratch("attached-alloc-refused");
    let fixed = compile::gcc(&scratch, "static", &["native/heap_load.c"], &["-static", "-pthread"]);
    let mut running = Running::ready(&mut Command::new(fixed));
    let mut command = uu::command(&scratch, &["record", "--mode", "alloc", "-d", "1", "-p"]);
    let said = run(command.arg(running.pid().to_string()), &scratch, uu::LIMIT).expect_code(125);
    for part in ["--mode alloc needs a sampler in it", "static programs", "-- PROGRAM; a static one cannot"] {
        assert!(said.stderr.contains(part), "{}", said.stderr);
    }
    running.say("over");
    wait_for("its end", || running.line().starts_with("wrong"));
    assert_eq!(running.end(), Some(0));
}
