//! `uu record -p`: a sampler is put into a running process and taken out again. Before and after, the process
//! looks the same, and it lives on, whatever becomes of uu.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use uunwind_recording::{EndCause, Recording, FROM_INSIDE, FROM_OUTSIDE};
use uunwind_tests::attached::{known, program, record_cpu, used_by_threads, Attached, CHAINS};
use uunwind_tests::looks::Looks;
use uunwind_tests::running::{all_sleep, wait_for, Running};
use uunwind_tests::samples::Sample;
use uunwind_tests::{compile, interpreters, paths, process, registered, uu};

fn command(scratch: &Path, pid: u32, options: &[&str]) -> Command {
    let mut command = uu::command(scratch, &["record", "-p"]);
    command.arg(pid.to_string()).args(options).arg("-o").arg(scratch.join("recording.uu"));
    command
}

/// Records for a time, and again if the process got no CPU in it, and reads what came of it.
#[track_caller]
fn record(scratch: &Path, pid: u32, options: &[&str]) -> (Recording, Vec<Sample>, String) {
    let file = scratch.join("recording.uu");
    let begun = Instant::now();
    let out = loop {
        // That of an earlier recording would stay, if this one has no sample.
        let _ = std::fs::remove_file(&file);
        let out = process::run(&mut command(scratch, pid, options), scratch, uu::LIMIT).expect_code(0);
        if file.is_file() {
            break out;
        }
        assert!(begun.elapsed() < uu::LIMIT, "{}", out.stderr);
    };
    let recording = Recording::read(&file).expect("a recording");
    let stderr = out.stderr.clone();
    let samples = uu::Recording::made(file, out, scratch.to_path_buf()).samples();
    (recording, samples, stderr)
}

fn is_from_inside(recording: &Recording) -> bool {
    recording.notes.iter().any(|note| note.starts_with(FROM_INSIDE))
}

/// Why no sampler was put in.
fn declined(recording: &Recording) -> &str {
    recording.notes.iter().find_map(|note| note.strip_prefix(FROM_OUTSIDE)).expect("a note")
}

/// The files that uu opens in a process, for the moment in which a sampler goes in, take no number that the program
/// would use meanwhile.
#[test]
fn files_get_the_numbers_that_they_get_alone() {
    let scratch = paths::scratch("inject-numbers");
    let program = compile::gcc(&scratch, "own_numbers", &["native/own_numbers.c"], &[]);
    let mut running = Running::ready(&mut Command::new(&program));
    for _ in 0..5 {
        let (recording, _, summary) = record(&scratch, running.pid(), &["-d", "0.3"]);
        assert!(is_from_inside(&recording), "{summary}");
    }
    running.say("end");
    assert_eq!(running.end(), Some(0), "a file had another number");
}

/// Whether a process has a timer for its thread with this index, the oldest being the first
/// ([proc_pid_timers(5)](https://man7.org/linux/man-pages/man5/proc_pid_timers.5.html)).
fn is_timed(pid: u32, index: usize) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let mut threads: Vec<u32> =
        tasks.filter_map(|task| task.expect("a thread").file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    let timers = std::fs::read_to_string(format!("/proc/{pid}/timers")).expect("a list of timers");
    threads.get(index).is_some_and(|tid| timers.lines().any(|line| line.ends_with(&format!("tid.{tid}"))))
}

/// A second recording finds the process as the first one did. A thread that begins later is sampled, too.
#[test]
fn a_sampler_goes_in_and_out_again_and_leaves_nothing() {
    let (scratch, program) = program("inject-native", &[]);
    let mut running = Running::ready(&mut Command::new(&program));
    let threads = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process").count();
    let all = threads(running.pid());
    // The stack of the first later thread is kept for others.
    running.say("more");
    assert_eq!(running.line(), "done");
    wait_for("its end", || threads(running.pid()) == all);
    let before = Looks::of(running.pid());
    for round in 0..2 {
        let attached = Attached::begin_inside(&scratch, running.pid(), &["-r", "250"]);
        let spun = used_by_threads(running.pid())[1];
        running.say("stay");
        // Until it is sampled, which takes as long as uu has to wait for a CPU, and for some time from then on.
        wait_for("a timer of the later thread", || is_timed(running.pid(), all));
        let later = || used_by_threads(running.pid()).get(all).copied().unwrap_or_default();
        let begun = later();
        wait_for("the later thread", || later() > begun + 0.2);
        running.say("leave");
        assert_eq!(running.line(), "done");
        wait_for("the thread that spins", || used_by_threads(running.pid())[1] > spun + 0.3);
        attached.signal(libc::SIGINT);
        let (recording, samples, _) = attached.end();
        assert!(is_from_inside(&recording), "{:?}", recording.notes);
        assert!(recording.notes.iter().all(|note| !note.contains("stays in process")), "{:?}", recording.notes);
        for sample in &samples {
            assert!(sample.complete(), "{}", sample.text());
            let found = known(sample, &CHAINS.concat());
            // The later thread also says that it is done.
            let is_one = CHAINS.iter().any(|chain| found == *chain) || found == ["in_later"];
            assert!(is_one || known(sample, &["main"]) == ["main"], "{}", sample.text());
        }
        let of = |name: &str| samples.iter().filter(|s| !known(s, &[name]).is_empty()).map(|s| s.weight).sum::<u64>();
        assert!(of("spins") > 20 && of("spins_later") > 5, "round {round}: {} {}", of("spins"), of("spins_later"));
        wait_for("its end", || threads(running.pid()) == all);
        assert_eq!(Looks::of(running.pid()), before, "round {round}");
    }
    assert_eq!(running.end(), Some(0), "a wait was interrupted");
}

/// A thread that waits for its vfork child blocks all signals, and a child may take long to start on a busy machine.
#[test]
fn a_process_that_starts_a_child_is_waited_for() {
    let scratch = paths::scratch("inject-vfork");
    let program = compile::gcc(&scratch, "vforks", &["native/vforks.c"], &[]);
    let running = Running::ready(&mut Command::new(&program));
    let out = process::run(&mut command(&scratch, running.pid(), &["-d", "0.1"]), &scratch, uu::LIMIT).expect_code(0);
    assert!(out.stderr.contains("from inside"), "{}", out.stderr);
    assert_eq!(running.end(), Some(0));
}

/// exec takes the sampler away with all other memory: the new program gets another one.
#[test]
fn a_program_that_calls_exec_is_followed() {
    let (scratch, program) = program("inject-exec", &[]);
    let script = "echo ready; read line; exec \"$0\"";
    let mut running = Running::ready(Command::new("bash").args(["-c", script]).arg(&program));
    let mut attached = Attached::begin_inside(&scratch, running.pid(), &[]);
    running.say("go");
    assert_eq!(running.line(), "ready");
    attached.wait_for_samples_of(1);
    attached.signal(libc::SIGTERM);
    let (recording, samples, summary) = attached.end();
    assert!(is_from_inside(&recording) && summary.contains("1 more programs were sampled"), "{summary}");
    assert!(!Looks::of(running.pid()).has_sampler());
    assert_eq!(running.end(), Some(0), "a wait was interrupted");
    assert_eq!(recording.processes.len(), 2, "{summary}");
    for sample in samples.iter().filter(|sample| !known(sample, &CHAINS.concat()).is_empty()) {
        assert!(sample.complete(), "{}", sample.text());
    }
    assert!(samples.iter().any(|sample| known(sample, &["spins", "in_loop"]) == ["spins", "in_loop"]), "{summary}");
}

/// A program that begins again and again, each time as soon as it can.
#[test]
fn programs_that_end_in_exec_at_any_moment_live_on() {
    /// The script computes, and begins again as another program, this number of times.
    const TIMES: usize = 12;
    let scratch = paths::scratch("inject-execs");
    let script = scratch.join("again.sh");
    let text = "[ \"$1\" = 12 ] && echo ready && read line\n\
                for ((n = RANDOM * 8; n > 0; n--)); do :; done\n\
                [ \"$1\" -gt 0 ] && exec bash \"$0\" $(($1 - 1))\nexit 0\n";
    std::fs::write(&script, text).expect("scratch");
    let mut running = Running::ready(Command::new("bash").arg(&script).arg(TIMES.to_string()));
    let attached = Attached::begin_inside(&scratch, running.pid(), &["-r", "999"]);
    running.say("go");
    assert_eq!(running.end(), Some(0));
    let (recording, _, summary) = attached.end();
    assert!((2..=TIMES + 1).contains(&recording.processes.len()), "{} images\n{summary}", recording.processes.len());
    assert_eq!(recording.end.expect("an end").cause, EndCause::ProgramEnded, "{summary}");
}

/// Where the new program cannot have one, the recording ends, and says why.
#[test]
fn exec_of_a_program_without_a_loader_ends_the_recording() {
    let (scratch, program) = program("inject-exec-static", &["-static"]);
    let script = "echo ready; read line; for ((n = 0; n < 300000; n++)); do :; done; exec \"$0\"";
    let mut running = Running::ready(Command::new("bash").args(["-c", script]).arg(&program));
    let attached = Attached::begin_inside(&scratch, running.pid(), &[]);
    running.say("go");
    assert_eq!(running.line(), "ready");
    let (recording, _, said) = attached.end();
    assert!(recording.end.expect("an end").cpu_used > 0, "{said}");
    for part in ["the process has called exec", "no loader of glibc", "again with --remote"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(running.end(), Some(0), "a wait was interrupted");
}

/// A sampler in a process knows nothing of code that it registers: such processes are recorded from outside.
#[test]
fn processes_with_registered_code_are_recorded_from_outside() {
    let scratch = paths::scratch("inject-registered");
    let kinds = ["windows of uu.h", "objects in GDB's JIT interface"];
    for ((program, ways), kind) in registered::programs(&scratch).into_iter().zip(kinds) {
        let mut running = Running::start(Command::new(&program).arg("spin"));
        ways.iter().for_each(|_| drop(running.line()));
        assert_eq!(running.line(), "ready");
        let (recording, _, stderr) = record(&scratch, running.pid(), &["-d", "0.2"]);
        assert!(declined(&recording).contains(&format!("it has registered {kind}")), "{stderr}");
        assert_eq!(running.end(), Some(0));
    }
    let program = compile::gcc(&scratch, "registers", &["native/registers.c"], &["-pthread"]);
    let mut running = Running::ready(&mut Command::new(&program));
    running.say("register");
    assert_eq!(running.line(), "done");
    let (recording, _, stderr) = record(&scratch, running.pid(), &["-d", "0.2"]);
    assert!(declined(&recording).contains("it has registered unwind data with __register_frame"), "{stderr}");
    running.say("forget");
    assert_eq!(running.line(), "done");
    let attached = Attached::begin_inside(&scratch, running.pid(), &[]);
    running.say("register");
    assert_eq!(running.line(), "done");
    let file = scratch.join("recording.uu");
    wait_for("a sample", || Recording::read(&file).is_ok_and(|recording| !recording.samples.is_empty()));
    attached.signal(libc::SIGTERM);
    let (recording, _, stderr) = attached.end();
    assert!(is_from_inside(&recording), "{stderr}");
    assert!(stderr.contains("has registered unwind data with __register_frame meanwhile"), "{stderr}");
    assert_eq!(running.end(), Some(0));
}

/// Threads wait in forty kinds of system calls and more, those among them that any stop ends with EINTR: none notices
/// that a thread is borrowed.
#[test]
fn no_wait_notices_that_a_sampler_comes_and_goes() {
    let scratch = paths::scratch("inject-waits");
    let program = compile::gcc(&scratch, "waits", &["native/waits.c"], &["-pthread"]);
    let mut running = Running::start(&mut Command::new(&program));
    let kinds: Option<u32> = running.line().strip_prefix("ready ").and_then(|count| count.parse().ok());
    assert!(kinds.is_some_and(|kinds| kinds > 40), "{kinds:?}");
    for _ in 0..3 {
        wait_for("all to sleep", || all_sleep(running.pid()));
        let out = process::run(&mut command(&scratch, running.pid(), &["-d", "0.3"]), &scratch, uu::LIMIT);
        let out = out.expect_code(0);
        // Few or no samples: the thread that is borrowed uses some CPU time.
        assert!(!out.stderr.contains("from outside"), "{}", out.stderr);
    }
    assert_eq!(running.end(), Some(0), "some call was interrupted");
}

/// Python's functions are seen from inside, by the plugins that the sampler has of its own. So is who holds the GIL.
/// What a thread's walk has found is there for its next one: frames are replayed, and no object is reported twice.
#[test]
fn functions_of_python_are_seen_from_inside() {
    let found = interpreters::modern();
    assert!(!found.is_empty(), "no interpreter");
    // The data of the loader differs between versions of glibc: one of each folder.
    let mut folders = HashSet::new();
    let of_each = found.iter().filter(|python| folders.insert(python.path.parent()));
    for python in of_each {
        let scratch = paths::scratch("inject-python");
        let running = Running::ready(Command::new(&python.path).arg(paths::source("python/attached.py")));
        let before = Looks::of(running.pid());
        let (recording, samples, stderr) = record_cpu(&scratch, running.pid(), 0.5, &["-r", "199"]);
        assert!(is_from_inside(&recording), "{stderr}");
        assert!(!samples.is_empty(), "{stderr}");
        for sample in &samples {
            let outermost = sample.frames.iter().rfind(|frame| frame.is_python());
            let outermost = outermost.map(|frame| frame.name().rsplit('.').next().unwrap_or_default());
            assert!(sample.complete(), "{}", sample.text());
            assert!(outermost.is_some_and(|name| ["<module>", "_bootstrap"].contains(&name)), "{}", sample.text());
        }
        let held = samples.iter().filter(|sample| sample.lock == "held").count();
        assert!(held * 2 > samples.len(), "{held} of {} samples hold the GIL: {stderr}", samples.len());
        let replayed: u64 = recording.counters.iter().map(|(_, counters)| counters.frames_reused).sum();
        assert!(replayed > samples.len() as u64, "{replayed} frames were replayed: {stderr}");
        let places: HashSet<_> = recording.objects.iter().map(|object| (object.start, object.end)).collect();
        assert_eq!(places.len(), recording.objects.len(), "objects are reported once: {stderr}");
        assert_eq!(Looks::of(running.pid()).signals, before.signals);
    }
}

/// uu is killed at any moment: the process goes on, and the next uu takes out what the last one has left.
#[test]
fn a_process_lives_on_when_uu_is_killed_in_the_middle() {
    let (scratch, program) = program("inject-killed", &[]);
    let running = Running::ready(&mut Command::new(&program));
    let pid = running.pid();
    // Its threads open files of their own when they begin.
    wait_for("its files", || Looks::of(pid).files.iter().any(|file| file.contains("eventpoll")));
    let before = Looks::of(pid);
    let times = std::env::var("UU_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    for time in 0..times {
        let mut child: Child = command(&scratch, pid, &["-q"]).stderr(Stdio::null()).spawn().expect("uu");
        // A moment in the first tenths of a second, another one each time.
        std::thread::sleep(Duration::from_micros(time * 7919 % 300_000));
        let _ = child.kill();
        child.wait().expect("its end");
        wait_for("the end of tracing", || !Looks::of(pid).traced);
    }
    let (recording, samples, stderr) = record(&scratch, pid, &["-d", "0.5"]);
    assert!(is_from_inside(&recording) && !samples.is_empty(), "{stderr}");
    assert_eq!(Looks::of(pid), before);
    assert_eq!(running.end(), Some(0), "a wait was interrupted");
}

/// Where a sampler cannot be, uu says why, and samples from outside.
#[test]
fn what_forbids_a_sampler_is_named() {
    let (scratch, program) = program("inject-static", &["-static"]);
    let running = Running::ready(&mut Command::new(&program));
    let (recording, _, stderr) = record(&scratch, running.pid(), &["-d", "0.3"]);
    assert!(declined(&recording).contains("no loader of glibc"), "{stderr}");
    assert_eq!(running.end(), Some(0));
    let scratch = paths::scratch("inject-declined");
    for (what, why) in [
        ("ignores", "it ignores SIGSTKFLT"),
        ("handles", "it has a handler for SIGSTKFLT"),
        ("blocks", "all of its threads block SIGSTKFLT"),
        ("alternate", "handles signal 23 on an alternate stack"),
        ("seccomp", "a filter of system calls (seccomp)"),
        ("locks", "it locks all memory that it will ever map"),
    ] {
        let program = compile::gcc(&scratch, "declines", &["native/declines.c"], &["-pthread"]);
        let running = Running::ready(Command::new(&program).arg(what));
        let before = Looks::of(running.pid());
        let (recording, _, stderr) = record(&scratch, running.pid(), &["-d", "0.3"]);
        assert!(declined(&recording).contains(why), "{what}: {stderr}");
        assert_eq!(Looks::of(running.pid()), before, "{what}");
        assert_eq!(running.end(), Some(0), "{what}");
    }
}

/// A process that is stopped stays as it was, and goes on when it is continued.
#[test]
fn a_stopped_process_is_left_alone() {
    let (scratch, program) = program("inject-stopped", &[]);
    let running = Running::ready(&mut Command::new(&program));
    let send = |signal: i32| {
        // SAFETY: plain system call; the process is our child, and not waited for yet.
        assert_eq!(unsafe { libc::kill(running.pid() as libc::pid_t, signal) }, 0);
    };
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", running.pid())).expect("a process");
    let is_stopped = || state().rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
    send(libc::SIGSTOP);
    wait_for("the stop", is_stopped);
    let out = process::run(&mut command(&scratch, running.pid(), &["-d", "0.3"]), &scratch, uu::LIMIT);
    assert!(out.expect_code(0).stderr.contains("nothing was sampled") && is_stopped());
    send(libc::SIGCONT);
    // 1: the stop itself has ended a wait, which the kernel allows for some calls (signal(7), "Interruption of system
    // calls and library functions by stop signals").
    assert!(matches!(running.end(), Some(0 | 1)));
}

/// The end of the program ends the recording.
#[test]
fn the_end_of_the_program_is_the_end_of_the_recording() {
    let (scratch, program) = program("inject-ends", &[]);
    let mut running = Running::ready(&mut Command::new(&program));
    let child = command(&scratch, running.pid(), &["-q"]).stderr(Stdio::piped()).spawn().expect("uu");
    wait_for("the recording", || scratch.join("recording.uu").is_file());
    running.say("more");
    assert_eq!(running.line(), "done");
    assert_eq!(running.end(), Some(0));
    let out = child.wait_with_output().expect("its end");
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let recording = Recording::read(&scratch.join("recording.uu")).expect("a recording");
    assert_eq!(recording.end.expect("an end").cause, EndCause::ProgramEnded);
}
