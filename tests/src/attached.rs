//! `uu record -p` of programs that run, above all of `native/attached.c`.

use crate::gate::{looks, redirected, words};
use crate::running::{wait_for, Running};
use crate::samples::Sample;
use crate::{compile, paths, process, skips, uu};
use std::collections::HashMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use uunwind_recording::{Recording, FROM_INSIDE};

/// The chains of functions, leaf first, in which threads of `native/attached.c` are.
pub const CHAINS: [&[&str]; 3] = [&["spins", "in_loop"], &["ping_pong", "in_ping_pong"], &["spins_later", "in_later"]];

/// A `uu record -p` that runs.
pub struct Attached {
    /// The `uu` itself.
    pub child: Child,
    scratch: PathBuf,
}

impl Attached {
    /// Starts one from outside, and waits until the recording has begun: then its file has a name.
    pub fn begin(scratch: &Path, pid: u32, options: &[&str]) -> Attached {
        Attached::begin_as(scratch, pid, options, |_| ())
    }

    /// The same, with changes to the command.
    pub fn begin_as(scratch: &Path, pid: u32, options: &[&str], change: impl FnOnce(&mut Command)) -> Attached {
        Attached::start(scratch, pid, &[&["--remote"], options].concat(), change)
    }

    /// As `begin`, by a sampler in the process.
    pub fn begin_inside(scratch: &Path, pid: u32, options: &[&str]) -> Attached {
        Attached::start(scratch, pid, options, |_| ())
    }

    fn start(scratch: &Path, pid: u32, options: &[&str], change: impl FnOnce(&mut Command)) -> Attached {
        let file = scratch.join("recording.uu");
        let _ = std::fs::remove_file(&file);
        let mut command = uu::command(scratch, &["record", "-p"]);
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
            attached.must_run();
            file.is_file()
        });
        attached
    }

    /// It has not ended.
    #[track_caller]
    fn must_run(&mut self) {
        if let Some(status) = self.child.try_wait().expect("its state") {
            let mut said = String::new();
            let _ = self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
            panic!("uu has ended, {status}: {said}");
        }
    }

    /// Waits until it has more than ten samples of the process's image with this index.
    #[track_caller]
    pub fn wait_for_samples_of(&mut self, image: u32) {
        let file = self.scratch.join("recording.uu");
        wait_for("samples of an image", || {
            self.must_run();
            // It may be empty still.
            Recording::read(&file).is_ok_and(|recording| {
                let of = |thread: u32| recording.threads.get(thread as usize).map(|thread| thread.process);
                recording.samples.iter().filter(|sample| of(sample.thread) == Some(image)).count() > 10
            })
        });
    }

    /// Waits until it has a sample of each of these processes.
    #[track_caller]
    pub fn wait_for_processes(&self, pids: &[u32]) {
        let file = self.scratch.join("recording.uu");
        wait_for("samples of processes", || {
            // It may be empty still.
            let Ok(recording) = Recording::read(&file) else { return false };
            let of = |sample: &uunwind_recording::Sample| {
                let thread = recording.threads.get(sample.thread as usize)?;
                recording.processes.get(thread.process as usize).map(|process| process.pid)
            };
            let sampled: Vec<u32> = recording.samples.iter().filter_map(of).collect();
            pids.iter().all(|pid| sampled.contains(pid))
        });
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain system call; the child is not waited for yet.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.child.kill().expect("a signal");
        self.child.wait().expect("its end");
    }

    /// Waits for its end, which must be one with exit code 0, whatever was recorded; returns what it says.
    #[track_caller]
    pub fn end_alone(self) -> String {
        let out = self.child.wait_with_output().expect("its end");
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(0), "{stderr}");
        stderr
    }

    /// Waits for its end, which must be one with exit code 0.
    #[track_caller]
    pub fn end(self) -> (Recording, Vec<Sample>, String) {
        let out = self.child.wait_with_output().expect("its end");
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(0), "{stderr}");
        read(&self.scratch, stderr)
    }
}

impl Attached {
    /// Ends a recording of events that a sampler in the process has made, and that has lost nothing; returns what uu
    /// says.
    #[track_caller]
    pub fn end_whole(self) -> String {
        self.signal(libc::SIGINT);
        let (recording, _, stderr) = self.end();
        assert!(recording.notes.iter().any(|note| note.starts_with(FROM_INSIDE)), "{stderr}");
        assert!(!stderr.contains("were left as they are") && !stderr.contains("were lost"), "{stderr}");
        stderr
    }
}

/// A process whose entries of global offset tables are redirected while it is recorded.
pub struct Entries {
    pid: u32,
    /// How it was before.
    words: HashMap<u64, u64>,
    mappings: Vec<String>,
    redirected: Vec<u64>,
}

impl Entries {
    /// Before it is recorded.
    pub fn before(pid: u32) -> Entries {
        Entries { pid, words: words(pid), mappings: looks(pid).mappings, redirected: Vec::new() }
    }

    /// While it is: this number of entries and more are redirected, and pages have the rights that they had.
    #[track_caller]
    pub fn must_be_redirected(&mut self, least: usize, context: &str) {
        self.redirected = redirected(self.pid);
        assert!(self.redirected.len() >= least, "{context}: {:x?}", self.redirected);
        let during: Vec<String> = looks(self.pid).mappings;
        assert!(self.mappings.iter().all(|line| during.contains(line)), "{context}: {during:?}");
    }

    /// Afterwards: they are as they were. `may_be_bound`: what the loader had not bound may have been bound meanwhile.
    #[track_caller]
    pub fn must_be_back(&self, may_be_bound: bool, context: &str) {
        assert_eq!(redirected(self.pid), [0u64; 0], "{context}");
        let after = words(self.pid);
        for place in &self.redirected {
            assert!(may_be_bound || self.words.get(place) == after.get(place), "{context}: {place:#x}");
        }
        assert_eq!(looks(self.pid).mappings, self.mappings, "{context}");
    }
}

/// The program as the only child of a process.
#[track_caller]
pub fn child_of(running: &Running) -> u32 {
    let pid = running.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("its children");
    children.trim().parse().expect("one child")
}

/// A command that runs the program in a pid namespace of its own, as its only child; `None`: that may not be done here,
/// and `what` is skipped.
pub fn in_other_namespace(program: &Command, what: &str) -> Option<Command> {
    const WAY: [&str; 3] = ["--pid", "--fork", "--mount-proc"];
    if !Command::new("unshare").args(WAY).arg("true").output().is_ok_and(|done| done.status.success()) {
        skips::skipped(&format!("{what} in another pid namespace"), "unshare may not do it here");
        return None;
    }
    let mut unshare = Command::new("unshare");
    unshare.args(WAY).arg(program.get_program()).args(program.get_args());
    Some(unshare)
}

/// Has samplers with these options go in and out of a process under load, each for a moment.
#[track_caller]
pub fn go_in_and_out(scratch: &Path, mut running: Running, options: [&[&str]; 2]) {
    let wanted = std::env::var("UU_CYCLES").ok().and_then(|text| text.parse().ok());
    let cycles = wanted.unwrap_or(if std::env::var_os("UU_CAMPAIGNS").is_some() { 100 } else { 5 });
    for number in 0..cycles {
        let mut command = uu::command(scratch, &["record", "-d", "0.2", "-p"]);
        command.arg(running.pid().to_string()).args(options[number % 2]).arg("-o").arg(scratch.join("cycle.uu"));
        let said = process::run(&mut command, scratch, uu::LIMIT).expect_code(0);
        assert!(!said.stderr.contains("stays in process"), "cycle {number}: {}", said.stderr);
        assert_eq!(redirected(running.pid()), [0u64; 0], "cycle {number}");
    }
    assert!(!looks(running.pid()).has_sampler());
    running.say("over");
    assert_eq!(running.line(), "wrong 0");
    assert_eq!(running.end(), Some(0));
}

/// What was recorded into the scratch folder: the recording, its samples, and what uu has written to stderr.
pub fn read(scratch: &Path, stderr: String) -> (Recording, Vec<Sample>, String) {
    let file = scratch.join("recording.uu");
    let recording = Recording::read(&file).expect("a recording");
    assert_eq!(recording.warnings, Vec::<String>::new());
    let out = process::run(&mut uu::command(scratch, &["version"]), scratch, uu::LIMIT);
    let samples = uu::Recording::made(file, out, scratch.to_path_buf()).samples();
    (recording, samples, stderr)
}

/// Records for some seconds.
#[track_caller]
pub fn record(scratch: &Path, pid: u32, options: &[&str]) -> (Recording, Vec<Sample>, String) {
    let mut command = uu::command(scratch, &["record", "-p"]);
    command.arg(pid.to_string()).args(options).arg("-o").arg(scratch.join("recording.uu"));
    let out = process::run(&mut command, scratch, uu::LIMIT).expect_code(0);
    read(scratch, out.stderr)
}

/// Records until the process has used this much CPU time meanwhile, in seconds: for twice that time, and longer on a
/// machine that gives it less.
#[track_caller]
pub fn record_cpu(scratch: &Path, pid: u32, cpu: f64, options: &[&str]) -> (Recording, Vec<Sample>, String) {
    let mut seconds = 2.0 * cpu;
    loop {
        let duration = seconds.to_string();
        let mut command = uu::command(scratch, &["record", "-p"]);
        let file = scratch.join("recording.uu");
        // That of an earlier recording would stay, if this one has no sample.
        let _ = std::fs::remove_file(&file);
        command.arg(pid.to_string()).args(["-d", &duration]).args(options).arg("-o").arg(&file);
        let out = process::run(&mut command, scratch, uu::LIMIT).expect_code(0);
        // Without a sample, there is no file.
        let used = Recording::read(&file).ok().and_then(|recording| recording.end).map_or(0, |end| end.cpu_used);
        if used as f64 / 1e9 >= cpu {
            return read(scratch, out.stderr);
        }
        assert!(seconds < uu::LIMIT.as_secs_f64() / 4.0, "{used} ns in {seconds} s: {}", out.stderr);
        seconds *= 2.0;
    }
}

/// The value of a field of `/proc/PID/status`, the first word.
pub fn status(pid: u32, field: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"));
    line.and_then(|rest| rest.split_whitespace().next()).unwrap_or_default().to_owned()
}

/// Compiles `native/attached.c` with these options, in a scratch folder of this name. Returns the folder and the
/// program.
pub fn program(name: &str, options: &[&str]) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(name);
    let options: Vec<&str> = ["-pthread"].iter().chain(options).copied().collect();
    let program = compile::gcc(&scratch, "attached", &["native/attached.c"], &options);
    (scratch, program)
}

/// The native functions of a sample that are among these, leaf first.
pub fn known<'s>(sample: &'s Sample, names: &[&str]) -> Vec<&'s str> {
    sample.native_names().into_iter().filter(|name| names.contains(name)).collect()
}

/// The CPU times of a program's threads, in seconds, the first one first.
pub fn used_by_threads(pid: u32) -> Vec<f64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let mut threads: Vec<PathBuf> = tasks.map(|task| task.expect("a thread").path()).collect();
    threads.sort_by_key(|path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
    let used = |path: &PathBuf| {
        let used = std::fs::read_to_string(path.join("schedstat")).expect("its times");
        used.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).expect("nanoseconds") / 1e9
    };
    threads.iter().map(used).collect()
}
