//! Plugins that are not uu's own and misbehave where uu walks from outside: in `uu dump` of a process and of a core
//! file, and in `uu record -p`. uu goes on, the native stack is whole, what a failed call emitted is not shown, the
//! plugin is named with what happened, and another plugin works on.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use uunwind_recording::Recording;
use uunwind_tests::attached::Attached;
use uunwind_tests::dumps::{functions, threads};
use uunwind_tests::running::wait_for;
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, faces, paths, process, skips, uu};

/// The host's functions, leaf first.
const CALLS: [&str; 4] = ["work", "through_bad", "outer", "run"];

/// Calls that ask uu for something without end: by turns both compute, so that it depends on the machine, and on what
/// else it has to do, which limit is reached first.
const TOO_LONG: &str = "it took more than 20 ms of CPU time for one call|it did not answer within 500 ms|\
    it asked for more than 4096 things in one call";

/// Faces of overlay, and what is said of each, or one of what.
const FACES: [(&str, &str); 23] = [
    ("null-read", "in its first call and is off: it crashed (signal 11)"),
    ("wild-write", "it crashed (signal 11)"),
    ("far-jump", "it crashed (signal 11)"),
    ("trap", "it crashed (signal 4)"),
    ("divide", "it crashed (signal 8)"),
    ("stack-pointer", "it crashed (signal 11)"),
    ("recursion", "it "),
    ("recursion-in-host", "it "),
    ("loop", "it took more than 20 ms of CPU time for one call"),
    ("nonsense", "what it answered makes no sense"),
    ("endless", TOO_LONG),
    ("endless-emits", TOO_LONG),
    ("endless-hashes", TOO_LONG),
    ("endless-reads", TOO_LONG),
    ("endless-descriptions", "it "),
    ("endless-pages", "it "),
    ("raises", "it made a system call, which signal code may not"),
    ("bus", "it made a system call, which signal code may not"),
    ("exit", "it ended its process (exit code 0)"),
    ("closes", "it made a system call, which signal code may not"),
    ("forks", "it made a system call, which signal code may not"),
    ("garbage", "it sent nonsense"),
    ("backwards", "what it answered makes no sense"),
];

/// One of each kind.
fn few() -> Vec<(&'static str, &'static str)> {
    let kinds = ["trap", "loop", "exit", "garbage", "nonsense"];
    FACES.into_iter().filter(|(face, _)| kinds.contains(face)).collect()
}

/// The programs and libraries.
struct Built {
    scratch: PathBuf,
    host: PathBuf,
    /// Both plugins, the bad one first.
    listed: std::ffi::OsString,
}

fn built(name: &str) -> Built {
    let scratch = paths::scratch(name);
    let (bad, good) = (faces::bad(&scratch), faces::good(&scratch));
    faces::library(&scratch);
    let folder = scratch.display().to_string();
    let options = ["-rdynamic", "-pthread", &format!("-L{folder}"), "-lfaces", &format!("-Wl,-rpath,{folder}")];
    let host = compile::gcc(&scratch, "host", &["native/faces_host.c"], &options);
    let listed = std::env::join_paths([&bad, &good]).expect("no colons");
    Built { scratch, host, listed }
}

/// A program that runs until it is dropped.
struct Host(std::process::Child);

impl Host {
    fn start(built: &Built) -> Host {
        Host(Command::new(&built.host).arg("100000").stdout(Stdio::null()).spawn().expect("the host"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.0.kill().expect("it still runs");
        self.0.wait().expect("its end");
    }
}

/// A dump in which the program computes in the bad plugin's library; of a process, one is taken until it does.
fn dump(built: &Built, face: &str, arguments: &[&str]) -> Value {
    let mut found = None;
    wait_for("the computation", || {
        let dump = dump_once(built, face, arguments);
        let computes = threads(&dump).iter().any(|thread| functions(thread).contains(&"through_bad"));
        found = computes.then_some(dump);
        computes
    });
    found.expect("it computes")
}

fn dump_once(built: &Built, face: &str, arguments: &[&str]) -> Value {
    let mut command = uu::command(&built.scratch, &["dump", "--json"]);
    command.args(arguments).env("UU_PLUGINS", &built.listed).env("UU_FACE", face);
    let out = process::run(&mut command, &built.scratch, uu::LIMIT).expect_code(0);
    serde_json::from_str(&out.stdout).unwrap_or_else(|why| panic!("{face}: {why}: {}", out.text()))
}

/// The stack of the thread that computes: complete, but for the frames of a plugin that has failed.
#[track_caller]
fn computing<'d>(dump: &'d Value, face: &str, failed: bool) -> Vec<&'d str> {
    let stack = threads(dump).iter().find(|thread| functions(thread).contains(&"through_bad"));
    let thread = stack.expect("it computes");
    assert_eq!(thread["complete"], !failed, "{face}: {dump:#}");
    let all = functions(thread);
    let own: Vec<&str> = all.iter().copied().filter(|name| CALLS.contains(name)).collect();
    assert!(CALLS.ends_with(&own) && own.len() >= 3, "{face}: {dump:#}");
    all
}

fn count(functions: &[&str], name: &str) -> usize {
    functions.iter().filter(|function| **function == name).count()
}

/// What is said of the bad plugin.
#[track_caller]
fn said<'d>(dump: &'d Value, face: &str) -> &'d str {
    let notes: Vec<&str> = dump["notes"].as_array().expect("notes").iter().filter_map(Value::as_str).collect();
    let [note] = notes[..] else { panic!("{face}: {notes:?}") };
    note
}

/// Dumps `what` with each of these faces.
#[track_caller]
fn each_face(built: &Built, faces: &[(&str, &str)], what: &[&str]) {
    let well = dump(built, "", what);
    let shown = computing(&well, "none", false);
    assert_eq!(well["notes"], Value::Array(Vec::new()), "{well:#}");
    // Where the sample lies in the library, or in a function that it calls, both have their frames.
    assert!(count(&shown, "bad frame") == 1 && count(&shown, "good frame") >= 1, "{well:#}");
    for (face, text) in faces {
        let dump = dump(built, face, what);
        let (shown, note) = (computing(&dump, face, true), said(&dump, face));
        let is_said = text.split('|').any(|text| note.contains(text));
        assert!(note.starts_with("plugin \"bad\" failed ") && is_said, "{face}: {note}");
        assert!(count(&shown, "bad frame") == 0 && count(&shown, "good frame") >= 1, "{face}: {dump:#}");
    }
    // What breaks no rule fails no call: reads that fail, destroyed registers.
    for (face, frames) in [("reads", 0), ("direction", 1)] {
        let dump = dump(built, face, what);
        assert_eq!(count(&computing(&dump, face, false), "bad frame"), frames, "{face}: {dump:#}");
        assert_eq!(dump["notes"], Value::Array(Vec::new()), "{face}: {dump:#}");
    }
}

#[test]
fn dumps_of_processes() {
    let built = built("foreign-dump");
    let host = Host::start(&built);
    each_face(&built, &FACES, &["-p", &host.0.id().to_string()]);
}

#[test]
fn dumps_of_core_files() {
    let built = built("foreign-core");
    let host = Host::start(&built);
    let (pid, stem) = (host.0.id().to_string(), built.scratch.join("core").display().to_string());
    let core = format!("{stem}.{pid}");
    let mut is_there = true;
    wait_for("a core file with the computation", || {
        let made = Command::new("gcore").args(["-o", &stem, &pid]).output();
        is_there = made.is_ok_and(|out| out.status.success());
        let computes = |dump: &Value| threads(dump).iter().any(|thread| functions(thread).contains(&"through_bad"));
        !is_there || computes(&dump_once(&built, "", &[&core]))
    });
    if !is_there {
        return skips::skipped("foreign plugins and core files", "gcore is not installed");
    }
    each_face(&built, &few(), &[&core]);
}

/// Number of frames with this name.
fn emitted(sample: &Sample, name: &str) -> usize {
    sample.frames.iter().filter(|frame| matches!(frame, Frame::Other { name: n, .. } if n == name)).count()
}

fn record(built: &Built, pid: u32, face: &str) -> (Vec<Sample>, String) {
    let scratch: &Path = &built.scratch;
    let attached = Attached::begin_as(scratch, pid, &["-r", "199"], |command| {
        command.env("UU_PLUGINS", &built.listed).env("UU_FACE", face);
    });
    let file = scratch.join("recording.uu");
    wait_for("samples", || Recording::read(&file).is_ok_and(|recording| recording.samples.len() >= 20));
    attached.signal(libc::SIGINT);
    let (_, samples, said) = attached.end();
    for sample in &samples {
        assert!(sample.complete(), "{face}: {}", sample.text());
        let own: Vec<&str> = sample.native_names().into_iter().filter(|name| CALLS.contains(name)).collect();
        assert!(CALLS.ends_with(&own), "{face}: {}", sample.text());
    }
    (samples, said)
}

#[test]
fn recordings_from_outside() {
    let built = built("foreign-record");
    let host = Host::start(&built);
    let (samples, said) = record(&built, host.0.id(), "");
    assert!(!said.contains("plugin \""), "{said}");
    assert!(samples.iter().any(|sample| emitted(sample, "bad frame") == 1), "{said}");
    for (face, text) in few() {
        let (samples, said) = record(&built, host.0.id(), face);
        assert!(said.contains("plugin \"bad\" failed ") && said.contains(text), "{face}: {said}");
        for sample in &samples {
            assert_eq!(emitted(sample, "bad frame"), 0, "{face}: {}", sample.text());
            let is_met = sample.native_names().contains(&"through_bad");
            assert_eq!(sample.flags.contains("desync"), is_met, "{face}: {}", sample.text());
        }
        let good = samples.iter().filter(|sample| emitted(sample, "good frame") >= 1).count();
        assert!(good > samples.len() / 2, "{face}: {good} of {}", samples.len());
    }
}

/// Whether a plugin whose analysis has failed would have emitted frames is not known: stacks through the file are
/// marked. One that refuses the file has answered.
#[test]
fn analyses_that_fail() {
    let built = built("foreign-analyse");
    let host = Host::start(&built);
    for (face, marked) in [("analyse-crash", true), ("analyse-refuses", false)] {
        let (samples, said) = record(&built, host.0.id(), face);
        assert!(said.contains(if marked { "it crashed" } else { "a version that is not known" }), "{face}: {said}");
        let through = samples.iter().filter(|sample| sample.native_names().contains(&"through_bad"));
        let met: Vec<_> = through.inspect(|sample| assert_eq!(emitted(sample, "bad frame"), 0, "{face}")).collect();
        assert!(!met.is_empty(), "{face}: {said}");
        for sample in met {
            assert_eq!(sample.flags.contains("desync"), marked, "{face}: {}", sample.text());
        }
    }
}
