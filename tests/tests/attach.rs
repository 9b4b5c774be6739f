//! `uu record -p`: a running process is recorded from outside, and does not notice it.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use uunwind_recording::{EndCause, Recording};
use uunwind_tests::running::{wait_for, Running};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, interpreters, lua, paths, process, registered, skips, uu};

/// A `uu record -p` that runs.
struct Attached {
    child: Child,
    scratch: PathBuf,
}

impl Attached {
    /// Starts it, and waits until the recording has begun: then its file has a name.
    fn begin(scratch: &Path, pid: u32, options: &[&str]) -> Attached {
        Attached::begin_as(scratch, pid, options, |_| ())
    }

    /// The same, with changes to the command.
    fn begin_as(scratch: &Path, pid: u32, options: &[&str], change: impl FnOnce(&mut Command)) -> Attached {
        let file = scratch.join("recording.uu");
        let _ = std::fs::remove_file(&file);
        let mut command = uu::command(scratch, &["record", "--remote", "-p"]);
        command.arg(pid.to_string()).args(options).arg("-o").arg(&file);
        // Programs that a shell has put into the background ignore SIGINT, and so would this one.
        // SAFETY: the call is async-signal-safe.
        let command = unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            })
        };
        change(command);
        let child = command.stderr(Stdio::piped()).spawn().expect("uu");
        let mut attached = Attached { child, scratch: scratch.to_path_buf() };
        wait_for("the recording's file", || {
            assert!(attached.child.try_wait().expect("its state").is_none(), "uu has ended");
            file.is_file()
        });
        attached
    }

    fn signal(&self, signal: i32) {
        // SAFETY: plain system call; the child is not waited for yet.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Waits for its end, which must be one with exit code 0.
    #[track_caller]
    fn end(self) -> (Recording, Vec<Sample>, String) {
        let out = self.child.wait_with_output().expect("its end");
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(0), "{stderr}");
        read(&self.scratch, stderr)
    }
}

fn read(scratch: &Path, stderr: String) -> (Recording, Vec<Sample>, String) {
    let file = scratch.join("recording.uu");
    let recording = Recording::read(&file).expect("a recording");
    assert_eq!(recording.warnings, Vec::<String>::new());
    let out = process::run(&mut uu::command(scratch, &["version"]), scratch, uu::LIMIT);
    let samples = uu::Recording::made(file, out, scratch.to_path_buf()).samples();
    (recording, samples, stderr)
}

/// Records for some seconds.
#[track_caller]
fn record(scratch: &Path, pid: u32, options: &[&str]) -> (Recording, Vec<Sample>, String) {
    let mut command = uu::command(scratch, &["record", "-p"]);
    command.arg(pid.to_string()).args(options).arg("-o").arg(scratch.join("recording.uu"));
    let out = process::run(&mut command, scratch, uu::LIMIT).expect_code(0);
    read(scratch, out.stderr)
}

/// The value of a field of `/proc/PID/status`, the first word.
fn status(pid: u32, field: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"));
    line.and_then(|rest| rest.split_whitespace().next()).unwrap_or_default().to_owned()
}

fn program(name: &str, options: &[&str]) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(name);
    let options: Vec<&str> = ["-pthread"].iter().chain(options).copied().collect();
    let program = compile::gcc(&scratch, "attached", &["native/attached.c"], &options);
    (scratch, program)
}

/// The native functions of a sample that are among these, leaf first.
fn known<'s>(sample: &'s Sample, names: &[&str]) -> Vec<&'s str> {
    sample.native_names().into_iter().filter(|name| names.contains(name)).collect()
}

/// All samples stand in the program's functions, and none of its ten thousands of waits was interrupted.
#[track_caller]
fn expect_native(samples: &[Sample]) {
    const CHAINS: [&[&str]; 3] = [&["spins", "in_loop"], &["ping_pong", "in_ping_pong"], &["spins_later", "in_later"]];
    for sample in samples {
        assert!(sample.complete(), "{}", sample.text());
        let names = known(sample, &CHAINS.concat());
        // The last thread writes a line when it has spun.
        let is_one = CHAINS.contains(&&names[..]) || names == ["in_later"];
        assert!(is_one || known(sample, &["main"]) == ["main"], "{}", sample.text());
    }
}

/// The CPU times of a program's threads, in seconds, the first one first.
fn used_by_threads(pid: u32) -> Vec<f64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let mut threads: Vec<PathBuf> = tasks.map(|task| task.expect("a thread").path()).collect();
    threads.sort_by_key(|path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
    let used = |path: &PathBuf| {
        let used = std::fs::read_to_string(path.join("schedstat")).expect("its times");
        used.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).expect("nanoseconds") / 1e9
    };
    threads.iter().map(used).collect()
}

/// The CPU time of the thread that spins, the second one of the program, in seconds.
fn used_by_the_spinner(pid: u32) -> f64 {
    used_by_threads(pid)[1]
}

/// A child that is there already, and some that a shell starts during the recording, are processes of their own in
/// it.
#[test]
fn children_of_a_shell_are_recorded_too() {
    let scratch = paths::scratch("attach-children");
    let flag = scratch.join("over");
    let burns = format!("sh -c 'echo $$; while [ ! -e {} ]; do :; done' &", flag.display());
    let script = format!("{burns} echo ready; read line; {burns} {burns} read line; wait; exit 7");
    let mut running = Running::start(Command::new("sh").args(["-c", &script]));
    // The child and the shell write at the same time.
    let said = [running.line(), running.line()];
    let mut pids: Vec<u32> = said.iter().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(pids.len(), 1, "{said:?}");
    let attached = Attached::begin(&scratch, running.pid(), &["-s"]);
    running.say("go");
    pids.extend((0..2).map(|_| running.line().parse::<u32>().expect("a process id")));
    wait_until_used(&pids, 0.5);
    attached.signal(libc::SIGINT);
    let (recording, samples, summary) = attached.end();
    let first = recording.processes.first().expect("a process").pid;
    assert_eq!(first, running.pid());
    for pid in &pids {
        assert!(samples.iter().any(|sample| sample.pid == *pid), "{pid} has no sample: {summary}");
        let process = recording.processes.iter().find(|process| process.pid == *pid).expect("it has samples");
        assert_eq!((process.parent, process.command.len()), (first, 3), "{process:?}");
    }
    let end = recording.end.as_ref().expect("an end");
    assert!(end.cpu_used >= 1_500_000_000, "the CPU time of all: {}", end.cpu_used);
    assert!(!summary.contains("-p leaves out"), "{summary}");
    std::fs::write(&flag, "").expect("scratch");
    assert_eq!(running.end(), Some(7), "the shell has noticed it");
}

/// Waits until each of these processes has used this CPU time more, in seconds.
fn wait_until_used(pids: &[u32], seconds: f64) {
    let used = || pids.iter().map(|pid| used_by_threads(*pid).iter().sum::<f64>()).collect::<Vec<f64>>();
    let before = used();
    wait_for("CPU time of each process", || used().iter().zip(&before).all(|(now, before)| *now > before + seconds));
}

/// Python's own frames, in each child.
#[test]
fn children_of_multiprocessing_are_recorded_too() {
    let python = interpreters::modern().pop().expect("an interpreter");
    let scratch = paths::scratch("attach-pool");
    let mut running = Running::start(Command::new(&python.path).arg(paths::source("python/pool.py")));
    let there: u32 = running.line().parse().expect("a process id");
    assert_eq!(running.line(), "ready");
    let attached = Attached::begin(&scratch, running.pid(), &["-s"]);
    running.say("more");
    let later: u32 = running.line().parse().expect("a process id");
    wait_until_used(&[there, later], 0.5);
    attached.signal(libc::SIGINT);
    let (_, samples, summary) = attached.end();
    for pid in [there, later] {
        let burns =
            |sample: &&Sample| sample.frames.iter().any(|frame| frame.is_python() && frame.name().ends_with("burns"));
        // It may be seen while it starts; from then on it burns.
        let of: Vec<&Sample> =
            samples.iter().filter(|sample| sample.pid == pid).skip_while(|sample| !burns(sample)).collect();
        assert!(!of.is_empty(), "{pid}: {summary}");
        let other = of.iter().find(|sample| !burns(sample));
        assert!(other.is_none(), "{}", other.map(|sample| sample.text()).unwrap_or_default());
    }
    assert_eq!(running.end(), Some(0));
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
        ("attach-native", &[][..], &["-d", "1.5", "--remote"][..], "as --remote asks"),
        ("attach-static", &["-static"], &["-d", "1.5", "--inject"], "no loader of glibc 2.35"),
    ] {
        let (scratch, program) = program(name, options);
        let running = Running::ready(&mut Command::new(&program));
        let (recording, samples, summary) = record(&scratch, running.pid(), given);
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
    let attached = Attached::begin(&scratch, running.pid(), &[]);
    running.say("go");
    assert_eq!(running.line(), "ready");
    let file = scratch.join("recording.uu");
    wait_for("samples of the second image", || {
        // It may be empty still.
        Recording::read(&file).is_ok_and(|recording| {
            let of = |thread: u32| recording.threads.get(thread as usize).map(|thread| thread.process);
            recording.samples.iter().filter(|sample| of(sample.thread) == Some(1)).count() > 10
        })
    });
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
    assert!(out.stderr.contains("nothing was sampled: the program used"), "{}", out.stderr);
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
        let (_, samples, _) = record(&scratch, running.pid(), &["--remote", "-d", "1", "-r", "199"]);
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
        let (_, samples, _) = record(&scratch, running.pid(), &["--remote", "-d", "0.5", "-r", "199"]);
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
            let stat = task.expect("a thread").path().join("stat");
            wait_for("a thread that goes on", || {
                let stat = std::fs::read_to_string(&stat).expect("stat");
                let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
                matches!(state, Some('R' | 'S'))
            });
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
        assert_eq!(recording.end.as_ref().map(|end| end.cause), Some(EndCause::Snapshot));
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

/// Children that live for a millisecond, hundreds of them a second, do not keep uu from sampling the others.
#[test]
fn short_children_do_not_hold_up_the_others() {
    let scratch = paths::scratch("attach-short");
    let script = "sh -c 'echo $$; while :; do :; done' & one=$!; \
                  (while :; do /bin/true; done) & two=$!; \
                  echo ready; read line; kill $one $two; wait; exit 7";
    let mut running = Running::start(Command::new("sh").args(["-c", script]));
    let said = [running.line(), running.line()];
    let burner: u32 = said.iter().find_map(|line| line.parse().ok()).expect("a process id");
    let attached = Attached::begin(&scratch, running.pid(), &["-s"]);
    let begin = used_by_threads(burner)[0];
    wait_until_used(&[burner], 2.0);
    let used = used_by_threads(burner)[0] - begin;
    attached.signal(libc::SIGINT);
    let (recording, samples, summary) = attached.end();
    assert_eq!(running.end(), Some(7));
    let periods: u64 = samples.iter().filter(|sample| sample.pid == burner).map(|sample| sample.weight).sum();
    let sampled = periods as f64 / f64::from(recording.settings.rate);
    // The rest passes while a child is looked at and uu waits for a CPU.
    assert!(sampled > used * 0.5, "{sampled} s of {used} s were sampled: {summary}");
    let ended = summary.lines().find(|line| line.contains(" children ended before they could be looked at"));
    let words = ended.into_iter().flat_map(str::split_whitespace);
    let ended: usize = words.filter_map(|word| word.parse().ok()).next().unwrap_or(0);
    let found = ended + recording.processes.len();
    assert!(ended > 0 && found > 20, "{ended} have ended, {found} were found: {summary}");
}

/// A child whose program may not be read is counted as that; so is a process that becomes one.
#[test]
fn programs_that_may_not_be_read_are_refused_at_once() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = paths::scratch("attach-closed");
    // Without the right to read it, its process is closed to its own user, too.
    let closed = scratch.join("closed");
    std::fs::copy("/bin/sleep", &closed).expect("a copy");
    let permit = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its owner");
    };
    permit(&closed, 0o111);
    permit(&scratch, 0o777);
    // SAFETY: a call without preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let as_user = |command: &mut Command| {
        if is_root {
            command.uid(65534);
        }
    };
    let flag = scratch.join("go");
    let (program, over) = (closed.display(), flag.display());
    let script = format!("{program} 3600 & echo $!; while [ ! -e {over} ]; do :; done; exec {program} 3600");
    let mut shell = Command::new("sh");
    as_user(shell.args(["-c", &script]));
    let mut running = Running::start(&mut shell);
    let child: libc::pid_t = running.line().parse().expect("a process id");
    wait_for("the child's exec", || {
        std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|name| name == "closed\n")
    });
    let attached = Attached::begin_as(&scratch, running.pid(), &["-s"], as_user);
    wait_until_used(&[running.pid()], 0.5);
    std::fs::write(&flag, "").expect("scratch");
    let (recording, _, summary) = attached.end();
    // SAFETY: a plain system call; the shell, which has become the other one, has not waited for it.
    unsafe { libc::kill(child, libc::SIGKILL) };
    running.kill();
    assert!(summary.contains("1 children could not be recorded; the first: process"), "{summary}");
    assert!(summary.contains(&format!("the recording of process {} ended early: process", running.pid())), "{summary}");
    assert!(!summary.contains("children ended"), "{summary}");
    assert_eq!(recording.end.expect("an end").cause, EndCause::Asked);
}

/// A child that runs a 32-bit program is left alone, and counted.
#[test]
fn children_that_run_a_32_bit_program_are_counted() {
    let scratch = paths::scratch("attach-narrow");
    let narrow = scratch.join("narrow");
    let mut gcc = Command::new("gcc");
    gcc.args(["-m32", "-nostdlib", "-static", "-o"]).arg(&narrow).arg(paths::source("native/narrow.c"));
    if !gcc.output().is_ok_and(|out| out.status.success()) {
        return skips::skipped("a refusal of a 32-bit child", "this gcc makes none");
    }
    // It becomes one in the recording; another one is one from the beginning.
    let (program, flag) = (narrow.display(), scratch.join("go"));
    let script = format!(
        "{program} & echo $!; one=$!; sh -c 'echo $$; while [ ! -e {} ]; do :; done; exec {program}' & two=$!; \
         read line; kill $one $two; wait; exit 7",
        flag.display()
    );
    let mut running = Running::start(Command::new("sh").args(["-c", &script]));
    let pids: Vec<u32> = (0..2).map(|_| running.line().parse().expect("a process id")).collect();
    let is_narrow = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == narrow);
    wait_for("one program", || pids.iter().any(|pid| is_narrow(*pid)));
    let later = *pids.iter().find(|pid| !is_narrow(**pid)).expect("the other one waits for the file");
    let attached = Attached::begin(&scratch, running.pid(), &["-s"]);
    wait_until_used(&[later], 0.5);
    std::fs::write(&flag, "").expect("scratch");
    wait_for("the other program", || is_narrow(later));
    wait_until_used(&pids, 0.5);
    attached.signal(libc::SIGINT);
    let (_, samples, summary) = attached.end();
    assert_eq!(running.end(), Some(7));
    assert!(summary.contains("1 children could not be recorded; the first: process"), "{summary}");
    assert!(summary.contains(&format!("the recording of process {later} ended early: process")), "{summary}");
    assert!(samples.iter().any(|sample| sample.pid == later), "before it became one: {summary}");
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
