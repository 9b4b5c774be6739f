//! `uu record -p`: a running process is recorded from outside, and does not notice it.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};
use uunwind_recording::{EndCause, Recording};
use uunwind_tests::attached::{known, program, record_cpu, status, used_by_threads, Attached, CHAINS};
use uunwind_tests::running::{wait_for, Running};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, interpreters, lua, paths, process, registered, skips, uu};

/// All samples stand in the program's functions, and none of its ten thousands of waits was interrupted.
#[track_caller]
fn expect_native(samples: &[Sample]) {
    for sample in samples {
        assert!(sample.complete(), "{}", sample.text());
        let names = known(sample, &CHAINS.concat());
        // The last thread writes a line when it has spun.
        let is_one = CHAINS.contains(&&names[..]) || names == ["in_later"];
        assert!(is_one || known(sample, &["main"]) == ["main"], "{}", sample.text());
    }
}

/// The CPU time of the thread that spins, the second one of the program, in seconds.
fn used_by_the_spinner(pid: u32) -> f64 {
    used_by_threads(pid)[1]
}

/// Running code that is registered at run time is walked by its unwind data, too.
#[test]
fn code_registered_at_run_time_is_walked_by_its_rules() {
    let scratch = paths::scratch("attach-registered");
    for (program, ways) in registered::programs(&scratch) {
        let mut running = Running::start(Command::new(&program).arg("spin"));
        ways.iter().for_each(|_| drop(running.line()));
        assert_eq!(running.line(), "ready");
        let attached = Attached::begin(&scratch, running.pid(), &[]);
        let before = used_by_threads(running.pid());
        wait_for("half a second of each thread", || {
            let now = used_by_threads(running.pid());
            now.iter().zip(&before).skip(1).all(|(now, before)| *now > before + 0.5)
        });
        attached.signal(libc::SIGINT);
        let (recording, samples, _) = attached.end();
        for (name, functions) in ways {
            let index = recording.threads.iter().position(|thread| thread.name == *name).expect("the thread");
            let tid = recording.threads[index].tid;
            let of: Vec<_> = samples.iter().filter(|sample| sample.tid == tid).collect();
            assert!(!of.is_empty(), "{name} has no sample");
            for sample in of {
                assert!(sample.complete(), "{}", sample.text());
                let names = sample.native_names();
                let from = names.iter().position(|function| *function == "called_back").unwrap_or(names.len());
                let chain = registered::chain(*functions);
                let shown: Vec<&str> = names[from..]
                    .iter()
                    .zip(chain)
                    .map(|(name, of)| if of == "[JIT code]" { of } else { *name })
                    .collect();
                assert_eq!(shown, chain, "{name}: {}", sample.text());
            }
        }
        assert_eq!(running.end(), Some(0));
    }
}

/// uu, which gets no CPU time for most of the recording, looks once more at its end.
#[test]
fn what_was_used_after_the_last_look_is_sampled_at_the_end() {
    let (scratch, program) = program("attach-late", &[]);
    let running = Running::ready(&mut Command::new(&program));
    let attached = Attached::begin(&scratch, running.pid(), &[]);
    let file = scratch.join("recording.uu");
    // Now it looks; the file has its name before.
    wait_for("a sample", || Recording::read(&file).is_ok_and(|recording| !recording.samples.is_empty()));
    attached.signal(libc::SIGSTOP);
    let (begun, before) = (Instant::now(), used_by_the_spinner(running.pid()));
    while begun.elapsed() < Duration::from_millis(1200) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let used = used_by_the_spinner(running.pid()) - before;
    attached.signal(libc::SIGINT);
    attached.signal(libc::SIGCONT);
    let (_, samples, summary) = attached.end();
    let spun = samples.iter().filter(|s| !known(s, &["spins"]).is_empty());
    let spun = spun.map(|s| s.weight).sum::<u64>() as f64 / 99.0;
    assert!(spun > used - 0.05, "{spun} of {used}: {summary}");
    assert_eq!(running.end(), Some(0), "a wait was interrupted");
}

#[test]
fn a_running_program_is_sampled_by_its_cpu_time_and_does_not_notice_it() {
    for (name, options, given, way) in [
        ("attach-native", &[][..], &["--remote"][..], "as --remote asks"),
        ("attach-static", &["-static"], &[], "no loader of glibc's"),
    ] {
        let (scratch, program) = program(name, options);
        let running = Running::ready(&mut Command::new(&program));
        let (recording, samples, summary) = record_cpu(&scratch, running.pid(), 0.8, given);
        assert_eq!(status(running.pid(), "TracerPid"), "0");
        assert_eq!(running.end(), Some(0), "a wait was interrupted");
        expect_native(&samples);
        let of = |function: &str| samples.iter().filter(|s| !known(s, &[function]).is_empty()).map(|s| s.weight).sum();
        let (spun, talked): (u64, u64) = (of("spins"), of("ping_pong"));
        assert!(spun > 10 && talked > 0, "{spun} {talked}: {summary}");
        let end = recording.end.expect("an end");
        assert_eq!((end.cause, end.wait_status), (EndCause::Duration, None));
        // Each thread's last period, and that of a look at which it could not be stopped in time, may be missing.
        let sampled = samples.iter().map(|s| s.weight).sum::<u64>() as f64 / 99.0;
        let used = end.cpu_used as f64 / 1e9;
        assert!(sampled > used * 0.7 - 0.05 && sampled < used + 0.05, "{sampled} of {used}: {summary}");
        for part in ["from outside: by short stops of its threads", way, "stops of single running threads"] {
            assert!(summary.contains(part), "{part}: {summary}");
        }
    }
}

#[test]
fn a_thread_that_begins_later_is_sampled_and_ctrl_c_ends_the_recording_alone() {
    let (scratch, program) = program("attach-later", &[]);
    let mut running = Running::ready(&mut Command::new(&program));
    let attached = Attached::begin(&scratch, running.pid(), &[]);
    running.say("more");
    assert_eq!(running.line(), "done");
    attached.signal(libc::SIGINT);
    let (recording, samples, summary) = attached.end();
    assert_eq!(running.end(), Some(0), "a wait was interrupted");
    expect_native(&samples);
    let later: Vec<&Sample> = samples.iter().filter(|s| !known(s, &["spins_later"]).is_empty()).collect();
    assert!(!later.is_empty() && later.iter().all(|s| s.comm == "later"), "{summary}");
    assert_eq!(recording.end.expect("an end").cause, EndCause::Asked);
    assert!(summary.contains("until it was asked to end"), "{summary}");
}

/// A process that ends leaves a whole recording, with the names of its functions.
#[test]
fn a_program_that_ends_ends_its_recording() {
    let (scratch, program) = program("attach-ends", &[]);
    let mut running = Running::ready(&mut Command::new(&program));
    let attached = Attached::begin(&scratch, running.pid(), &[]);
    running.say("more");
    assert_eq!(running.line(), "done");
    running.kill();
    let (recording, samples, summary) = attached.end();
    expect_native(&samples);
    assert!(samples.iter().any(|s| !known(s, &["spins"]).is_empty()), "{summary}");
    assert_eq!(recording.end.expect("an end").cause, EndCause::ProgramEnded);
}

/// exec makes another process image, with threads, code and names of its own.
#[test]
fn a_program_that_calls_exec_is_followed() {
    let (scratch, program) = program("attach-exec", &[]);
    let script = "echo ready; read line; exec \"$0\"";
    let mut running = Running::ready(Command::new("bash").args(["-c", script]).arg(&program));
    let mut attached = Attached::begin(&scratch, running.pid(), &[]);
    running.say("go");
    assert_eq!(running.line(), "ready");
    attached.wait_for_samples_of(1);
    attached.signal(libc::SIGTERM);
    let (recording, samples, summary) = attached.end();
    assert_eq!(running.end(), Some(0), "a wait was interrupted");
    assert_eq!(recording.processes.len(), 2, "{summary}");
    assert!(samples.iter().any(|sample| known(sample, &["spins", "in_loop"]) == ["spins", "in_loop"]), "{summary}");
}

/// A process that is met inside exec has no image there that is neither the old one nor the new one.
#[test]
fn each_exec_makes_one_image() {
    /// The script computes, and begins again as another program, this number of times.
    const TIMES: usize = 60;
    let (scratch, _) = program("attach-execs", &[]);
    let script = scratch.join("again.sh");
    let text = "[ \"$1\" = 60 ] && echo ready && read line\n\
                for ((n = 0; n < 5000; n++)); do :; done\n\
                [ \"$1\" -gt 0 ] && exec bash \"$0\" $(($1 - 1))\nexit 0\n";
    std::fs::write(&script, text).expect("scratch");
    let mut running = Running::ready(Command::new("bash").arg(&script).arg(TIMES.to_string()));
    let attached = Attached::begin(&scratch, running.pid(), &["-r", "999"]);
    running.say("go");
    assert_eq!(running.end(), Some(0));
    let (recording, _, summary) = attached.end();
    assert!((2..=TIMES + 1).contains(&recording.processes.len()), "{} images\n{summary}", recording.processes.len());
}

/// What waits is not touched: nothing is sampled, and no kind of wait ends.
#[test]
fn threads_that_wait_are_left_alone() {
    let scratch = paths::scratch("attach-waits");
    let program = compile::gcc(&scratch, "waits", &["native/waits.c"], &["-pthread"]);
    let mut running = Running::start(&mut Command::new(&program));
    assert!(running.line().starts_with("ready "));
    let mut command = uu::command(&scratch, &["record", "--remote", "-d", "0.3", "-p"]);
    let out = process::run(command.arg(running.pid().to_string()), &scratch, uu::LIMIT).expect_code(0);
    // Its children, which were left out, are named, and are not the reason.
    assert!(out.stderr.contains("nothing was sampled: the program used "), "{}", out.stderr);
    assert!(out.stderr.contains("not recorded: the process's children, which -p leaves out: wait"), "{}", out.stderr);
    assert_eq!(running.end(), Some(0), "some call was interrupted");
}

/// Semantic frames by function, innermost first, without the qualifying part of their names.
fn functions(sample: &Sample) -> Vec<&str> {
    let semantic = sample.frames.iter().filter(|frame| matches!(frame, Frame::Python { .. } | Frame::Lua { .. }));
    semantic.map(|frame| frame.name().rsplit('.').next().unwrap_or_default()).collect()
}

/// The samples have these stacks of interpreted functions, or inner parts of them that the interpreter is about to call
/// or has just left; and every chain is met.
#[track_caller]
fn expect_chains(samples: &[Sample], chains: &[&[&str]]) {
    assert!(!samples.is_empty());
    for sample in samples {
        assert!(sample.complete() && sample.flags == "-", "{}", sample.text());
        let found = functions(sample);
        assert!(chains.iter().any(|chain| chain.ends_with(&found) && !found.is_empty()), "{}", sample.text());
    }
    for chain in chains {
        assert!(samples.iter().any(|sample| functions(sample) == *chain), "{chain:?} was never met");
    }
}

#[test]
fn functions_of_python_have_their_names_and_lines() {
    let found = interpreters::modern();
    assert!(!found.is_empty(), "no interpreter");
    for python in found {
        let scratch = paths::scratch("attach-python");
        let running = Running::ready(Command::new(&python.path).arg(paths::source("python/attached.py")));
        let (_, samples, _) = record_cpu(&scratch, running.pid(), 0.5, &["--remote", "-r", "199"]);
        let worker: &[&str] = &["turns", "part", "run", "run", "_bootstrap_inner", "_bootstrap"];
        expect_chains(&samples, &[&["turns", "inner", "middle", "outer", "<module>"], worker]);
        // Lines 8 to 11 of the file are those of `turns`.
        let in_turns = samples.iter().filter_map(|s| s.frames.iter().find(|frame| frame.is_python()));
        for frame in in_turns {
            let Frame::Python { name, line, .. } = frame else { continue };
            assert!(name != "turns" || (7..=10).contains(line), "{}: {frame:?}", python.label);
        }
    }
}

#[test]
fn functions_of_lua_have_their_names() {
    let interpreters: Vec<_> = lua::all().into_iter().filter(|lua| lua.kind == lua::Kind::Interpreter).collect();
    if interpreters.is_empty() {
        return skips::skipped("Lua recorded from outside", "no interpreter of Lua is installed");
    }
    for lua in interpreters {
        let scratch = paths::scratch("attach-lua");
        let path = format!("/usr/bin/lua5.{}", lua.minor);
        let running = Running::ready(Command::new(path).arg(paths::source("lua/attached.lua")));
        let (_, samples, _) = record_cpu(&scratch, running.pid(), 0.25, &["--remote", "-r", "199"]);
        let lines = |sample: &Sample| -> Vec<u32> {
            let lua = |frame: &Frame| if let Frame::Lua { first, .. } = frame { Some(*first) } else { None };
            sample.frames.iter().filter_map(lua).collect()
        };
        // `turns` begins in line 2, `middle` in 10, `outer` in 14; 0 is the chunk.
        for sample in &samples {
            let lines = lines(sample);
            assert!(sample.complete() && [2, 10, 14, 0].ends_with(&lines) && !lines.is_empty(), "{}", sample.text());
        }
        assert!(samples.iter().any(|sample| lines(sample) == [2, 10, 14, 0]), "5.{}", lua.minor);
    }
}

/// However uu dies, the process goes on, untraced. `UU_KILLS` is how often that is tried.
#[test]
fn a_process_lives_on_when_uu_is_killed() {
    let (scratch, program) = program("attach-killed", &[]);
    let running = Running::ready(&mut Command::new(&program));
    let pid = running.pid();
    let times = std::env::var("UU_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    for time in 0..times {
        let mut attached = Attached::begin(&scratch, pid, &["-r", "2000"]);
        // A moment in the first few hundred stops, another one each time.
        std::thread::sleep(Duration::from_micros(time * 7919 % 50_000));
        attached.signal(libc::SIGKILL);
        attached.child.wait().expect("its end");
        wait_for("the end of tracing", || status(pid, "TracerPid") == "0");
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
        for task in tasks {
            let task = task.expect("a thread").path();
            let read = |name: &str| std::fs::read_to_string(task.join(name)).unwrap_or_else(|error| error.to_string());
            let begun = Instant::now();
            loop {
                let stat = read("stat");
                let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
                if matches!(state, Some('R' | 'S')) {
                    break;
                }
                let all = || ["stat", "status", "wchan", "syscall", "stack"].map(read).join("\n");
                assert!(begun.elapsed() < uu::LIMIT, "after kill {time}, a thread does not go on: {}", all());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    assert_eq!(running.end(), Some(0), "a wait was interrupted");
}

#[test]
fn what_cannot_be_recorded_is_refused_with_its_reason() {
    let scratch = paths::scratch("attach-refused");
    let refused = |options: &[&str]| {
        let mut command = uu::command(&scratch, &["record"]);
        process::run(command.args(options), &scratch, uu::LIMIT).expect_code(125).stderr
    };
    assert!(refused(&["-p", "0"]).contains("a process id is a whole number above 0"));
    // No system has this many processes (PID_MAX_LIMIT of linux/threads.h is 4 Mi).
    assert!(refused(&["-p", "2000000000"]).contains("there is no process 2000000000"));
    assert!(refused(&["-p", "7", "--explicit"]).contains("--explicit takes a PROGRAM"));
    refused(&["-p", "7", "true"]);
    assert!(refused(&["--remote", "true"]).contains("give it with -p PID"));
    let (_, program) = program("attach-traced", &[]);
    let running = Running::ready(&mut Command::new(&program));
    let pid = running.pid().to_string();
    let output = scratch.join("missing/recording.uu");
    assert!(refused(&["-p", &pid, "-o", &output.to_string_lossy()]).contains("cannot write"));
    assert_eq!(
        std::fs::read_dir(&scratch)
            .expect("the folder")
            .filter_map(|e| e.ok())
            .filter(|e| { e.file_name().to_string_lossy().contains("partial") })
            .count(),
        0,
        "nothing is left"
    );
    assert_eq!(running.end(), Some(0));
}

/// What decides is named: a part of the kernel, a 32-bit program, another user's process, another tracer.
#[test]
fn refusals_say_what_decides() {
    let scratch = paths::scratch("attach-decides");
    let dump = |pid: u32| {
        let mut command = uu::command(&scratch, &["dump", "-p"]);
        command.arg(pid.to_string());
        command
    };
    let refused = |mut command: Command| process::run(&mut command, &scratch, uu::LIMIT).expect_code(125).stderr;
    // In the first pid namespace, process 2 is kthreadd.
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        assert!(refused(dump(2)).contains("process 2 (kthreadd) is a thread of the kernel"));
    } else {
        skips::skipped("a refusal of a kernel thread", "this pid namespace has none");
    }

    let narrow = scratch.join("narrow");
    let mut gcc = Command::new("gcc");
    gcc.args(["-m32", "-nostdlib", "-static", "-o"]).arg(&narrow).arg(paths::source("native/narrow.c"));
    if gcc.output().is_ok_and(|out| out.status.success()) {
        let running = Running::start(&mut Command::new(&narrow));
        wait_for("the program's start", || {
            std::fs::read_link(format!("/proc/{}/exe", running.pid())).is_ok_and(|exe| exe == narrow)
        });
        assert!(refused(dump(running.pid())).contains("runs a 32-bit program"));
    } else {
        skips::skipped("a refusal of a 32-bit program", "this gcc makes none");
    }

    let (_, program) = program("attach-others", &[]);
    let running = Running::ready(&mut Command::new(&program));
    let pid = running.pid();
    // SAFETY: a call without preconditions.
    if unsafe { libc::geteuid() } == 0 {
        let mut command = dump(pid);
        command.uid(65534);
        let said = refused(command);
        assert!(said.contains("it belongs to user 0, and uu runs as user 65534: run uu as root"), "{said}");
    } else {
        skips::skipped("a refusal of another user's process", "needs root");
    }

    // SAFETY: no pointers are passed; this thread stays the tracer until it lets the process go.
    unsafe { assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, pid as libc::pid_t, 0usize, 0usize), 0) };
    let said = refused(dump(pid));
    let name = std::fs::read_to_string("/proc/self/comm").expect("a name");
    let expected = format!("is traced by process {} ({})", std::process::id(), name.trim_end());
    assert!(said.contains(&expected), "{said}");
}

/// The clock of files may be this much behind: a tick of the kernel's, at 100 Hz.
const TICK: Duration = Duration::from_millis(10);

/// Snapshots are recordings of their own: whole, with names. The recording goes on, and has all of it.
#[test]
fn snapshots_have_what_there_is_so_far() {
    let (scratch, program) = program("attach-snapshots", &[]);
    let mut running = Running::ready(&mut Command::new(&program));
    let attached = Attached::begin(&scratch, running.pid(), &[]);
    running.say("more");
    assert_eq!(running.line(), "done");
    let asked = |pid: u32| process::run(uu::command(&scratch, &["snapshot"]).arg(pid.to_string()), &scratch, uu::LIMIT);
    asked(attached.child.id()).expect_code(0);
    let first = scratch.join("recording.1.uu");
    wait_for("the first snapshot", || first.is_file());
    running.say("more");
    assert_eq!(running.line(), "done");
    attached.signal(libc::SIGUSR2);
    let second = scratch.join("recording.2.uu");
    wait_for("the second snapshot", || second.is_file());
    attached.signal(libc::SIGTERM);
    let (_, samples, said) = attached.end();
    let said_so = asked(running.pid()).expect_code(125).stderr;
    assert!(said_so.contains("is no `uu record`"), "a program that the signal would end: {said_so}");
    assert_eq!(running.end(), Some(0));
    let mut counts = Vec::new();
    for file in [first, second] {
        let recording = Recording::read(&file).expect("a recording");
        assert_eq!(recording.warnings, Vec::<String>::new());
        let end = recording.end.as_ref().expect("an end");
        assert_eq!(end.cause, EndCause::Snapshot);
        // Its end is when its copy was made, not when its functions had names.
        let made = std::fs::metadata(&file).and_then(|file| file.created()).expect("a time of birth");
        let made = made.duration_since(UNIX_EPOCH).expect("after 1970");
        let settings = &recording.settings;
        let ended = Duration::from_nanos(settings.start_unix + (end.time - settings.start_monotonic));
        assert!(ended < made + TICK, "{:?}", ended - made);
        assert!(said.contains(&format!("snapshot: {}", file.display())), "{said}");
        let out = process::run(&mut uu::command(&scratch, &["version"]), &scratch, uu::LIMIT);
        let samples = uu::Recording::made(file, out, scratch.clone()).samples();
        expect_native(&samples);
        counts.push(samples.len());
    }
    counts.push(samples.len());
    assert!(counts.is_sorted() && counts[0] > 0, "{counts:?}");
}

/// A program that uu started writes snapshots, too, each time the interval is over.
#[test]
fn a_recording_writes_snapshots_at_intervals() {
    let (scratch, program) = program("attach-every", &[]);
    let file = scratch.join("recording.uu");
    let mut command = uu::command(&scratch, &["record", "--every", "1s", "-o"]);
    command.arg(&file).arg("--").arg(&program).stderr(Stdio::null());
    let running = Running::ready(&mut command);
    for number in 1..3 {
        let snapshot = scratch.join(format!("recording.{number}.uu"));
        wait_for("a snapshot", || snapshot.is_file());
        let recording = Recording::read(&snapshot).expect("a recording");
        assert_eq!(recording.warnings, Vec::<String>::new());
        let symbols = recording.symbols.expect("symbols");
        assert!(!recording.samples.is_empty() && format!("{symbols:?}").contains("spins"));
    }
    assert_eq!(running.end(), Some(0));
    assert_eq!(Recording::read(&file).expect("a recording").end.expect("an end").cause, EndCause::ProgramEnded);
}

/// Each of many threads is watched, however low the limit of open files is.
#[test]
fn few_open_files_suffice_for_many_threads() {
    let python = interpreters::modern().pop().expect("an interpreter");
    let scratch = paths::scratch("attach-files");
    let script = "import threading\n\
                  over = threading.Event()\n\
                  def burns():\n    \
                      while not over.is_set(): pass\n\
                  for run in [burns] + [over.wait] * 99: threading.Thread(target=run).start()\n\
                  print('ready', flush=True)\n\
                  input()\n\
                  over.set()\n";
    let running = Running::ready(Command::new(&python.path).args(["-c", script]));
    let file = scratch.join("recording.uu");
    // The soft limit can be raised, or not.
    for limit in ["64:4096", "64:64"] {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={limit}")).arg(paths::uu()).args(["record", "--remote", "-d", "1", "-p"]);
        command.arg(running.pid().to_string()).arg("-o").arg(&file);
        command.env("XDG_CACHE_HOME", scratch.join("cache")).env("XDG_CONFIG_HOME", scratch.join("config"));
        let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
        let recording = Recording::read(&file).expect("a recording");
        assert_eq!(recording.threads.len(), 101, "{limit}: {}", out.stderr);
        assert_eq!(recording.end.expect("an end").cause, EndCause::Duration, "{limit}: {}", out.stderr);
        assert!(!recording.notes.iter().any(|note| note.contains("clock")), "{limit}: {:?}", recording.notes);
    }
    assert_eq!(running.end(), Some(0));
}
