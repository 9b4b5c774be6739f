//! Whole recordings of a target that writes records without uu's signal code.

#[path = "support/target.rs"]
mod target;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use target::{mixed_stack, Target, ENV_ROLE};
use uunwind_built_in::HALVES;
use uunwind_core::frame::native_word;
use uunwind_core::stop_reason::StopReason;
use uunwind_loader::Analysers;
use uunwind_random::Random;
use uunwind_recorder::{record, Config, Outcome, RecordError};
use uunwind_recording::languages::complete;
use uunwind_recording::{EndCause, Recording, NOT_RECORDED};
use uunwind_report::formats::{render, Format};
use uunwind_report::hide::NativeFrames;
use uunwind_ring::layout::SESSION_VERSION;
use uunwind_ring::record::SAMPLE_BLOCKED;

/// Not a test by itself: the tests below run it as their program.
#[test]
fn program() {
    let Ok(role) = std::env::var(ENV_ROLE) else { return };
    let mut target = Target::join().expect("a session");
    let mut main = target.thread(std::process::id(), "main thread");
    match role.as_str() {
        "mixed" => mixed(&mut main),
        "threads" => threads(&target),
        "fork" => fork(&mut target, &mut main),
        "exec" => exec(&mut main),
        "damage" => damage(&target, &mut main),
        "full" => full(&mut main),
        "storm" => {
            let mut others: Vec<_> = (0..20).map(|n| target.thread(5000 + n, "other")).collect();
            for thread in &mut others {
                thread.sample(&mixed_stack(1, 0), 1, StopReason::Complete, 0);
            }
            std::thread::sleep(Duration::from_millis(100));
            for _ in 0..50 {
                target.storm(500);
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        "killed" => {
            main.sample(&mixed_stack(1, 0), 1, StopReason::Complete, 0);
            // SAFETY: a plain system call.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        "long" => {
            main.sample(&mixed_stack(1, 0), 1, StopReason::Complete, 0);
            let over = std::env::var("UU_FAKE_COUNTS").expect("which file to wait for");
            // At most a minute, in case the test has failed.
            for _ in 0..6000 {
                if Path::new(&over).exists() {
                    std::process::exit(3);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        "version" => target.is_of_version(SESSION_VERSION + 3),
        other => panic!("no role {other}"),
    }
}

fn mixed(main: &mut target::TargetThread) {
    main.own_object();
    main.python_name(1, "Work.run", "/src/work.py");
    for position in [0, 2, 4, 6] {
        main.sample(&mixed_stack(1, position), 2, StopReason::Complete, 0);
    }
    main.sample(&mixed_stack(1, 0), 10, StopReason::Complete, SAMPLE_BLOCKED);
    main.sample(&mixed_stack(9, 0), 1, StopReason::UnreadableStack, 0);
}

fn threads(target: &Target) {
    // Far more threads than blocks, one after the other: blocks must come back.
    for tid in 0..2500 {
        let mut thread = target.thread(1_000_000 + tid, "short");
        thread.sample(&[native_word(0x1000, 0)], 1, StopReason::Complete, 0);
        target.end(&thread);
        if tid % 500 == 499 {
            target.wait_free(thread.block);
        }
    }
}

fn fork(target: &mut Target, main: &mut target::TargetThread) {
    main.sample(&[native_word(0x1000, 0)], 1, StopReason::Complete, 0);
    for _ in 0..20 {
        // SAFETY: the child only touches shared memory and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            target.claim_process(1);
            let mut thread = target.thread(std::process::id(), "child");
            thread.sample(&[native_word(0x2000, 0)], 1, StopReason::Complete, 0);
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
}

fn exec(main: &mut target::TargetThread) {
    main.sample(&[native_word(0x1000, 0)], 1, StopReason::Complete, 0);
    let mut next = std::process::Command::new(std::env::current_exe().expect("own path"));
    next.args(["program", "--exact"]).env(ENV_ROLE, "mixed");
    panic!("exec: {}", next.exec());
}

fn damage(target: &Target, main: &mut target::TargetThread) {
    main.sample(&[native_word(0x1000, 0)], 1, StopReason::Complete, 0);
    target.settle();
    main.scribble(u64::MAX - 7);
    target.settle();
    main.scribble(12345);
    target.settle();
    let mut other = target.thread(77, "other");
    other.sample(&[native_word(0x2000, 0)], 1, StopReason::Complete, 0);
    other.sample(&[7 << 56], 1, StopReason::Complete, 0);
}

fn full(main: &mut target::TargetThread) {
    let mut numbers = Random::new(1);
    let (mut kept, mut lost) = (0u64, 0u64);
    for _ in 0..200 {
        // Stacks that share nothing, so that each takes its whole length.
        let words: Vec<_> = (0..4000).map(|_| native_word(numbers.number(), 0)).collect();
        match main.sample(&words, 3, StopReason::Complete, 0) {
            true => kept += 1,
            false => lost += 1,
        }
    }
    let counts = std::env::var("UU_FAKE_COUNTS").expect("where to write");
    std::fs::write(counts, format!("{kept} {lost}")).expect("written");
}

/// A fresh folder for one test.
fn folder(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("uu-recorder-{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("temporary folder");
    folder
}

/// An object that can be preloaded and does nothing.
fn harmless(folder: &Path) -> PathBuf {
    let (source, object) = (folder.join("harmless.c"), folder.join("harmless.so"));
    std::fs::write(&source, "int uu_test_harmless;").expect("source");
    let built = std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&object).arg(&source).status();
    assert!(built.expect("cc").success());
    object
}

fn config(folder: &Path, role: &str) -> Config {
    let exe = std::env::current_exe().expect("own path");
    let harmless = harmless(folder);
    // The role goes through `env`, since tests run in threads and share one environment.
    let command = ["/usr/bin/env".into(), format!("{ENV_ROLE}={role}").into(), exe.clone().into()];
    let mut command = command.to_vec();
    command.insert(1, format!("UU_FAKE_COUNTS={}", folder.join("counts").display()).into());
    command.extend(["program".into(), "--exact".into(), "--nocapture".into()]);
    Config {
        command,
        executable: exe,
        closure: vec![],
        rate: 100,
        flags: 0,
        duration: None,
        start_paused: false,
        every: None,
        every_into: None,
        output: Some(folder.join("out.uu")),
        preload: harmless,
        objects: vec![],
        asan_runtime: None,
        allocator: false,
        environment: Vec::new(),
        labels: Vec::new(),
        events_from: None,
        namer: Vec::new(),
        tap: Default::default(),
        named: true,
        names_later: false,
        walk: None,
        notes: vec!["a note".into()],
    }
}

fn run(config: &Config) -> (Recording, Outcome) {
    let mut running = record(config, Analysers::default(), |_| {}).expect("recorded");
    let outcome = running.outcome();
    if outcome.wait_status.is_none() {
        running.wait();
    }
    (Recording::read(&outcome.output).expect("readable"), outcome)
}

#[test]
fn a_mixed_stack_arrives_with_its_names() {
    let dir = folder("mixed");
    let (mut recording, outcome) = run(&config(&dir, "mixed"));
    assert_eq!((outcome.samples, outcome.wait_status), (6, Some(0)));
    assert!(recording.warnings.is_empty(), "{:?}", recording.warnings);
    assert_eq!(recording.threads[0].name, "main thread");
    let [note, undecoded] = &recording.notes[..] else { panic!("{:?}", recording.notes) };
    assert!(note == "a note" && undecoded.starts_with("plugin \"python\" could not decode all lines: "), "{undecoded}");
    assert_eq!(recording.counters[0].1.nested, 5);
    // No plugin ran here; `uu report` decodes them.
    assert!(recording.lines.is_empty() && recording.languages.is_empty());
    complete(&mut recording, HALVES);
    let folded =
        String::from_utf8(render(Format::Folded, &recording, NativeFrames::Hide).expect("folded")).expect("text");
    let (caller, leaf) = ("calling_function", "interrupted_function");
    let lines: Vec<&str> = folded.lines().collect();
    // Weight 2 at each of two positions of line 10, and 1 of the blocked sample's 10; the other 9 are attributed to no
    // line.
    let of_line = |line: u32| {
        lines.iter().find(|l| l.contains(&format!("Work.run (/src/work.py:{line})"))).copied().unwrap_or_default()
    };
    assert!(of_line(10).ends_with(" 5"), "{folded}");
    assert!(of_line(12).ends_with(" 4"), "{folded}");
    for line in [10, 12] {
        let parts: Vec<&str> = of_line(line).rsplit_once(' ').expect("weight").0.split(';').collect();
        assert!(parts[0].ends_with(caller) && parts[2].ends_with(leaf) && parts.len() == 3, "{parts:?}");
    }
    assert!(lines.contains(&"[signals blocked] 9"), "{folded}");
    let cut = lines.iter().find(|l| l.starts_with("[truncated: unreadable stack];")).expect("a mark at the root");
    assert!(cut.contains("[unnamed python function]"), "{cut}");
    std::fs::remove_dir_all(dir).expect("cleaned");
}

#[test]
fn blocks_of_ended_threads_are_used_again() {
    let dir = folder("threads");
    let (recording, outcome) = run(&config(&dir, "threads"));
    assert_eq!(outcome.samples, 2500);
    assert_eq!(recording.threads.len(), 2501);
    std::fs::remove_dir_all(dir).expect("cleaned");
}

#[test]
fn forked_children_and_an_exec_are_processes_of_their_own() {
    let dir = folder("fork");
    let (recording, _) = run(&config(&dir, "fork"));
    assert_eq!((recording.processes.len(), recording.samples.len()), (21, 21));
    assert_eq!(recording.processes.iter().filter(|p| p.origin == 1).count(), 20);
    let (recording, _) = run(&config(&dir, "exec"));
    assert_eq!((recording.processes.len(), recording.samples.len()), (2, 7));
    assert_eq!(recording.processes[0].pid, recording.processes[1].pid);
    std::fs::remove_dir_all(dir).expect("cleaned");
}

#[test]
fn damaged_rings_are_counted_and_others_go_on() {
    let dir = folder("damage");
    let (recording, outcome) = run(&config(&dir, "damage"));
    assert_eq!(outcome.wait_status, Some(0));
    let counters = &recording.counters[0].1;
    assert!(counters.damaged_rings >= 2, "{counters:?}");
    let other = |thread: u32| recording.threads[thread as usize].tid == 77;
    assert_eq!(recording.samples.iter().filter(|s| other(s.thread)).count(), 1);
    let lost: Vec<_> = recording.lost.iter().filter(|l| other(l.thread)).map(|l| (l.samples, l.weight)).collect();
    assert_eq!(lost, [(1, 1)], "the sample with a word that is no frame");
    std::fs::remove_dir_all(dir).expect("cleaned");
}

#[test]
fn a_target_that_writes_anything_anywhere_is_survived() {
    let dir = folder("storm");
    let (recording, outcome) = run(&config(&dir, "storm"));
    assert_eq!(outcome.wait_status, Some(0));
    assert!(recording.warnings.is_empty(), "{:?}", recording.warnings);
    assert!(recording.counters.iter().any(|(_, c)| c.damaged_rings > 0));
    for format in [Format::Summary, Format::Folded, Format::Samples] {
        render(format, &recording, NativeFrames::Hide).expect("rendered");
    }
    std::fs::remove_dir_all(dir).expect("cleaned");
}

#[test]
fn a_target_of_another_version_is_named() {
    let dir = folder("version");
    let (recording, outcome) = run(&config(&dir, "version"));
    let versions = [SESSION_VERSION + 3, SESSION_VERSION].map(|version| format!("version {version}"));
    for lines in [&recording.notes, &outcome.unrecorded] {
        let line = lines.iter().find(|line| line.starts_with(NOT_RECORDED)).unwrap_or_else(|| panic!("{lines:?}"));
        assert!(versions.iter().all(|version| line.contains(version)), "{line}");
    }
    std::fs::remove_dir_all(dir).expect("cleaned");
}

#[test]
fn samples_lost_on_a_full_ring_are_counted() {
    let dir = folder("full");
    let (recording, _) = run(&config(&dir, "full"));
    let counts = std::fs::read_to_string(dir.join("counts")).expect("written by the target");
    let (kept, lost) = counts.split_once(' ').expect("two numbers");
    let (kept, lost): (u64, u64) = (kept.parse().expect("number"), lost.parse().expect("number"));
    assert!(lost > 0 && kept > 0, "{counts}");
    assert_eq!(recording.samples.len() as u64, kept);
    assert_eq!(
        recording.lost.iter().map(|l| (l.samples, l.weight)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
        (lost, lost * 3)
    );
    std::fs::remove_dir_all(dir).expect("cleaned");
}

#[test]
fn what_a_killed_program_had_committed_is_kept() {
    let dir = folder("killed");
    let (recording, outcome) = run(&config(&dir, "killed"));
    assert_eq!(outcome.wait_status, Some(libc::SIGKILL));
    assert_eq!(recording.samples.len(), 1);
    std::fs::remove_dir_all(dir).expect("cleaned");
}

#[test]
fn a_duration_ends_the_recording_and_not_the_program() {
    let dir = folder("duration");
    let mut config = config(&dir, "long");
    // Long enough for the program to begin, on any machine.
    config.duration = Some(Duration::from_secs(2));
    let mut running = record(&config, Analysers::default(), |_| {}).expect("recorded");
    let outcome = running.outcome();
    assert_eq!((outcome.wait_status, outcome.samples), (None, 1));
    assert_eq!(Recording::read(&outcome.output).expect("readable").end.expect("whole").cause, EndCause::Duration);
    std::fs::write(dir.join("counts"), "").expect("what the program waits for");
    assert_eq!(libc::WEXITSTATUS(running.wait()), 3);
    std::fs::remove_dir_all(dir).expect("cleaned");
}

#[test]
fn what_cannot_be_written_or_started_is_found_before() {
    let dir = folder("refused");
    let mut config = config(&dir, "killed");
    config.output = Some(PathBuf::from("/dev/full"));
    assert!(
        matches!(record(&config, Analysers::default(), |_| {}), Err(RecordError::Output(path, _)) if path == Path::new("/dev/full"))
    );
    config.output = Some(dir.join("no/such/folder/x.uu"));
    assert!(matches!(record(&config, Analysers::default(), |_| {}), Err(RecordError::Output(..))));
    config.output = Some(dir.join("x.uu"));
    config.command = vec![dir.join("not there").into()];
    assert!(matches!(record(&config, Analysers::default(), |_| {}), Err(RecordError::Spawn(..))));
    let left: Vec<_> = std::fs::read_dir(&dir).expect("folder").map(|e| e.expect("entry").file_name()).collect();
    assert!(left.iter().all(|name| name.to_string_lossy().starts_with("harmless")), "{left:?}");
    std::fs::remove_dir_all(dir).expect("cleaned");
}
