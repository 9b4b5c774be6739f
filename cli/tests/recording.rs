//! Recordings made through the command line, of a target that writes records without uu's signal code.

mod support;
#[path = "../../profiler/recorder/tests/support/target.rs"]
#[allow(dead_code, reason = "shared with the recorder's own tests, which use more of it")]
mod target;

use std::ffi::OsString;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{exists, outcome, Installation};
use target::{mixed_stack, Target, ENV_ROLE};
use uunwind_core::frame::{native_word, FLAG_EXACT};
use uunwind_core::stop_reason::StopReason;
use uunwind_recording::{End, EndCause, Node, Process, Sample, Settings, Symbols, Thread, Writer};

/// Not a test of its own: the program that the tests below run.
#[test]
fn program() {
    let Ok(role) = std::env::var(ENV_ROLE) else { return };
    let target = Target::join().expect("a session");
    let mut main = target.thread(std::process::id(), "main thread");
    main.own_object();
    main.python_name(1, "Work;run", "/src/work.py");
    for _ in 0..10 {
        main.sample(&mixed_stack(1, 0), 1, StopReason::Complete, 0);
    }
    if role == "fills" {
        // More than a second of samples, each with a stack of its own.
        for n in 0..400 {
            main.sample(&mixed_stack(1, n), 1, StopReason::Complete, 0);
            std::thread::sleep(Duration::from_millis(4));
        }
    }
    // The program's path and name can only be read while it lives.
    target.settle();
    match role.as_str() {
        "fails" => std::process::exit(9),
        "aborts" => std::process::abort(),
        "waits" => {
            // SAFETY: an ordinary handler that ends the program.
            unsafe { libc::signal(libc::SIGTERM, on_term as extern "C" fn(i32) as libc::sighandler_t) };
            std::fs::write("ready", "").expect("file");
            std::thread::sleep(Duration::from_secs(20));
        }
        _ => println!("program output"),
    }
}

extern "C" fn on_term(_: i32) {
    // SAFETY: ends the program at once.
    unsafe { libc::_exit(42) };
}

/// Arguments of `uu record` for a role.
fn record(options: &[&str], role: &str) -> Vec<OsString> {
    let mut arguments = vec![OsString::from("record")];
    arguments.extend(options.iter().map(OsString::from));
    arguments.extend(["--", "env"].map(OsString::from));
    arguments.push(format!("{ENV_ROLE}={role}").into());
    arguments.push(std::env::current_exe().expect("own path").into());
    arguments.extend(["program", "--exact", "--nocapture"].map(OsString::from));
    arguments
}

#[test]
fn a_recording_and_its_reports() {
    let uu = Installation::new("reports");
    let output = uu.run(&record(&[], "works"));
    let (code, text) = outcome(&output);
    assert_eq!(code, 0, "{text}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("program output") && !stdout.contains("uu:"), "{stdout}");
    assert!(text.contains("10 complete (100.0 %)") && text.contains("Work;run (/src/work.py:"), "{text}");
    let recording = uu.files(".uu");
    assert!(recording.len() == 1 && recording[0].starts_with("uu-env-"), "{recording:?}");
    let recording = recording[0].as_str();

    let report = |options: &[&str]| {
        let output = uu.run(&[&["report"], options, &[recording]].concat());
        assert_eq!(outcome(&output), (0, String::new()), "{options:?}");
        output.stdout
    };
    let folded = String::from_utf8(report(&["-f", "folded"])).expect("text");
    assert!(folded.lines().count() == 1 && folded.ends_with("interrupted_function 10\n"), "{folded}");
    assert!(folded.contains(";Work\\x3brun (/src/work.py:10);"), "{folded}");

    let samples = String::from_utf8(report(&["-f", "samples"])).expect("text");
    let blocks: Vec<&str> = samples.split_terminator("\n\n").collect();
    assert_eq!(blocks.len(), 10);
    let lines: Vec<&str> = blocks[0].lines().collect();
    // The recorder reads a main thread's name from the kernel: this program's, cut to 15 bytes.
    let program = std::env::current_exe().expect("own path");
    let comm = program.file_name().and_then(|name| name.to_str()).and_then(|name| name.get(..15)).expect("a long name");
    assert!(lines[0].starts_with("sample 1 pid "), "{}", lines[0]);
    assert!(lines[0].contains(&format!(" comm {comm} time ")), "{}", lines[0]);
    assert!(lines[0].ends_with(" weight 1 kind timer stop 1 complete flags - lock ?"), "{}", lines[0]);
    assert!(lines[1].starts_with("  native ") && lines[1].ends_with(" exact"), "{}", lines[1]);
    assert!(lines[1].contains("interrupted_function+0x0 (/"), "{}", lines[1]);
    assert_eq!(lines[2], "  py Work;run (/src/work.py:10) code 0xc0de0001 pos 0 first 10");
    assert!(lines[3].contains("calling_function+0x1 (/"), "{}", lines[3]);

    let svg = String::from_utf8(
        report(&["-o", "x.svg"]).into_iter().chain(std::fs::read(uu.folder.join("x.svg")).expect("svg")).collect(),
    );
    let svg = svg.expect("text");
    assert!(svg.contains("</svg>") && svg.contains("interrupted_function"));

    report(&["-o", "x.pb.gz"]);
    let unpacked = Command::new("gzip").args(["-dc", "x.pb.gz"]).current_dir(&uu.folder).output().expect("gzip");
    assert!(unpacked.status.success());
    report(&["-o", "x.pb"]);
    assert_eq!(unpacked.stdout, std::fs::read(uu.folder.join("x.pb")).expect("plain"));

    // The browser is a program that says which file it was given.
    let script = uu.folder.join("browser");
    std::fs::write(&script, "#!/bin/sh\ncp \"$1\" seen.html\n").expect("file");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    let viewed = uu.uu(&["view", recording]).env("BROWSER", &script).env("TMPDIR", &uu.folder).output().expect("runs");
    assert_eq!(outcome(&viewed), (0, String::new()));
    let page = std::fs::read(uu.folder.join("seen.html")).expect("the page");
    assert_eq!(page, report(&["-f", "html"]));
    assert_eq!(
        std::fs::read(String::from_utf8_lossy(&viewed.stdout).trim_end()).ok(),
        Some(page),
        "its path is printed"
    );

    let mut piped = uu.uu(&["report", "-", "-f", "folded", "--by", "thread"]);
    let piped = piped.stdin(std::fs::File::open(uu.folder.join(recording)).expect("recording")).output().expect("runs");
    assert_eq!(outcome(&piped), (0, String::new()));
    assert_eq!(String::from_utf8_lossy(&piped.stdout).split(" (thread ").next(), Some(comm), "by thread");

    let diff = uu.run(&["diff", recording, recording, "--fail-over", "0.1%", "-o", "diff.svg"]);
    assert_eq!(outcome(&diff), (0, String::new()));
    let table = String::from_utf8(diff.stdout).expect("text");
    assert!(table.contains("in 10 samples") && table.contains("no function's share changed"), "{table}");
    assert!(std::fs::read_to_string(uu.folder.join("diff.svg")).expect("a picture").contains("interrupted_function"));

    // Twice itself, in ns: a folder's recordings, or files.
    std::fs::create_dir(uu.folder.join("day")).expect("folder");
    for name in ["a.uu", "b.uu"] {
        std::fs::copy(uu.folder.join(recording), uu.folder.join("day").join(name)).expect("a copy");
    }
    std::fs::write(uu.folder.join("day/c.uu"), "no recording").expect("file");
    let merged = uu.run(&["merge", "-o", "day.folded", "day"]);
    let (code, text) = outcome(&merged);
    assert!(code == 1 && text.contains("day/c.uu") && text.contains("2 of 3 recordings are in day.folded"), "{text}");
    let weights = |folded: &str| -> Vec<(String, u64)> {
        let line =
            |line: &str| line.rsplit_once(' ').map(|(stack, n)| (stack.to_owned(), n.parse().expect("a number")));
        folded.lines().filter_map(line).collect()
    };
    let once = weights(&String::from_utf8(report(&["-f", "folded"])).expect("text"));
    let twice = weights(&std::fs::read_to_string(uu.folder.join("day.folded")).expect("folded stacks"));
    let ratio = twice[0].1 / once[0].1;
    assert!(ratio > 1_000_000 && ratio % 2 == 0, "{once:?} {twice:?}");
    assert_eq!(twice, once.iter().map(|(stack, n)| (stack.clone(), n * ratio)).collect::<Vec<_>>());
    for name in ["day.svg", "day.pb.gz", "day.callgrind"] {
        assert_eq!(outcome(&uu.run(&["merge", "-o", name, recording, recording])).0, 0, "{name}");
    }
    let (code, text) = outcome(&uu.run(&["merge", "-o", "day.html", recording]));
    assert!(code == 125 && text.contains("the format html has processes or times"), "{text}");

    // Its samples are of no Python.
    for format in ["summary", "svg", "folded", "html"] {
        let (code, text) = outcome(&uu.run(&["report", "--gil", "-f", format, recording]));
        assert!(code == 125 && text.contains("no sample is left by --gil: no sample of this"), "{format}: {text}");
    }

    report(&["-o", "copy.uu"]);
    assert_eq!(std::fs::read(uu.folder.join("copy.uu")).ok(), std::fs::read(uu.folder.join(recording)).ok());
    assert!(String::from_utf8(report(&[])).expect("text").starts_with("CPU profile of env "));
}

/// A recording of a run that began at this time, with this number of samples.
fn written(path: &std::path::Path, start: u64, samples: u64, cause: EndCause) {
    let settings = Settings { rate: 99, pid: 7, start_unix: start, start_monotonic: start, ..Settings::default() };
    let mut writer = Writer::begin(std::fs::File::create(path).expect("a file"), &settings);
    writer.process(&Process { pid: 7, exe: b"/bin/server".to_vec(), ..Process::default() });
    writer.thread(&Thread { process: 0, tid: 7, name: String::new() });
    writer.node(Node { parent: 0, word: native_word(0x1136, FLAG_EXACT), position: 0 });
    for time in 0..samples {
        writer.sample(Sample { thread: 0, stack: 1, time: start + time, weight: 1, stop: 1, kind: 0, flags: 0 });
    }
    writer.end(&End { cause, samples, ..End::default() });
    writer.symbols(&Symbols::default());
    writer.flush();
}

/// A snapshot holds what the recording itself has, and what later snapshots have.
#[test]
fn samples_of_snapshots_are_counted_once() {
    let uu = Installation::new("snapshots");
    let folder = uu.folder.join("day");
    std::fs::create_dir(&folder).expect("folder");
    let file =
        |name: &str, start: u64, samples: u64, cause: EndCause| written(&folder.join(name), start, samples, cause);
    // A run with two snapshots, one that was killed after three, and one without any.
    file("a.1.uu", 100, 3, EndCause::Snapshot);
    file("a.2.uu", 100, 5, EndCause::Snapshot);
    file("a.uu", 100, 7, EndCause::ProgramEnded);
    file("b.1.uu", 200, 10, EndCause::Snapshot);
    file("b.3.uu", 200, 30, EndCause::Snapshot);
    file("b.2.uu", 200, 20, EndCause::Snapshot);
    file("c.uu", 300, 100, EndCause::Duration);
    let (code, text) = outcome(&uu.run(&["merge", "-o", "day.folded", "day"]));
    assert!(code == 0 && text.contains("3 of 7 recordings are in day.folded"), "{text}");
    assert!(text.contains("left out: 4 snapshots"), "{text}");
    let folded = std::fs::read_to_string(uu.folder.join("day.folded")).expect("folded stacks");
    let weight = folded.trim_end().rsplit_once(' ').expect("a weight").1.parse::<u64>().expect("a number");
    assert_eq!(weight / (1_000_000_000 / 99), 137, "{folded}");

    for (files, wrong) in [(["day/a.1.uu", "day/a.uu"], "day/a.1.uu"), (["day/a.uu", "day/a.2.uu"], "day/a.2.uu")] {
        let (code, text) = outcome(&uu.run(&["report", files[0], files[1]]));
        assert!(code == 125 && text.contains(&format!("{wrong} is a snapshot of the run")), "{text}");
    }
    assert_eq!(outcome(&uu.run(&["report", "day/a.1.uu", "day/b.2.uu"])).0, 0, "of two runs");
}

#[test]
fn recordings_of_different_times_are_not_compared() {
    let uu = Installation::new("times");
    for (name, mode) in [("cpu.uu", "cpu"), ("wall.uu", "wall")] {
        let (code, text) = outcome(&uu.run(&record(&["--mode", mode, "-o", name], "works")));
        assert!(code == 0 && exists(&uu.folder.join(name)), "{text}");
    }
    for words in [["report", "cpu.uu", "wall.uu"], ["diff", "cpu.uu", "wall.uu"]] {
        let (code, text) = outcome(&uu.run(&words));
        let says = "wall.uu: it is a recording of wall-clock time, and another one of CPU time";
        assert!(code == 125 && text.contains(says) && text.contains("--mode"), "{words:?}: {text}");
    }
    let same = uu.run(&["diff", "wall.uu", "wall.uu", "-o", "wall.svg"]);
    let table = String::from_utf8_lossy(&same.stdout).into_owned();
    assert!(same.status.success() && table.contains(" s of threads' time in ") && !table.contains("CPU"), "{table}");
    let picture = std::fs::read_to_string(uu.folder.join("wall.svg")).expect("a picture");
    assert!(picture.contains("Wall-clock time: wall.uu to wall.uu"), "its title");
}

#[test]
fn results_beside_the_recording_and_without_it() {
    let uu = Installation::new("results");
    let (code, text) = outcome(&uu.run(&record(&["-o", "x.folded"], "works")));
    assert!(code == 0 && exists(&uu.folder.join("x.uu")), "{text}");
    let kept = std::fs::read(uu.folder.join("x.folded")).expect("result");
    let again = uu.run(&["report", "-f", "folded", "x.uu"]);
    assert_eq!(again.stdout, kept);
    let (code, text) = outcome(&uu.run(&record(&["-o", "y.svg", "--no-keep"], "works")));
    assert!(code == 0 && exists(&uu.folder.join("y.svg")), "{text}");
    assert_eq!(uu.files(".uu"), ["x.uu"]);
    let (code, text) = outcome(&uu.run(&record(&["-f", "svg", "--no-keep"], "works")));
    assert_eq!(code, 0, "{text}");
    assert_eq!((uu.files(".svg").len(), uu.files(".uu").len()), (2, 1));
}

#[test]
fn a_fifo_takes_the_result_of_the_whole_run() {
    let uu = Installation::new("fifo");
    let fifo = uu.folder.join("fifo.folded");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    // It reads up to the first end of file.
    let reader = Command::new("cat").arg(&fifo).stdout(Stdio::piped()).spawn().expect("cat");
    let (code, text) = outcome(&uu.run(&record(&["-o", "fifo.folded"], "works")));
    let got = reader.wait_with_output().expect("its end").stdout;
    assert!(code == 0 && text.contains("result: fifo.folded"), "{text}");
    let recording = uu.files(".uu").pop().expect("a recording");
    assert!(recording.starts_with("uu-env-") && text.contains(&format!("recording: {recording}")), "{text}");
    let again = uu.run(&["report", "-f", "folded", &recording]);
    assert!(!got.is_empty() && got == again.stdout);
    let (code, text) = outcome(&uu.run(&record(&["-o", "fifo.folded"], "works")));
    assert!(code == 0 && text.contains("cannot write fifo.folded: it is a FIFO that nobody reads"), "{text}");
    assert_eq!(uu.files(".uu").len(), 2, "the recordings are kept");
    // Where there is no result, the reader does not wait for ever.
    let reader = Command::new("timeout").arg("20").arg("cat").arg(&fifo).spawn().expect("cat");
    let (code, text) = outcome(&uu.run(&["record", "-o", "fifo.folded", "--", "true"]));
    assert!(code == 0 && text.contains("nothing was sampled"), "{text}");
    assert!(reader.wait_with_output().expect("its end").status.success());
}

#[test]
fn a_recording_does_not_lie_beside_a_device() {
    let uu = Installation::new("device");
    for output in ["/dev/null", "/dev/stdout", "/dev/fd/1"] {
        let (code, text) = outcome(&uu.run(&record(&["-f", "folded", "-o", output], "works")));
        let recording = uu.files(".uu").pop().expect("a recording in the current folder");
        assert!(code == 0 && text.contains(&format!("recording: {recording}")), "{output}: {text}");
        std::fs::remove_file(uu.folder.join(recording)).expect("removed");
        assert!(!exists(format!("{output}.uu").as_ref()));
    }
}

#[test]
fn exit_codes() {
    let uu = Installation::new("exit");
    assert_eq!(outcome(&uu.run(&record(&[], "fails"))).0, 9);
    assert_eq!(outcome(&uu.run(&record(&[], "aborts"))).0, 128 + libc::SIGABRT);
    let (code, text) = outcome(&uu.run(&["record", "--", "true"]));
    assert!(code == 0 && text.contains("nothing was sampled: "), "{text}");
    for (options, program, expected) in
        [(&["--fail-empty"][..], "exit 0", 125), (&["--fail-empty"], "exit 3", 125), (&[], "exit 3", 3)]
    {
        let words = [&["record"], options, &["--", "sh", "-c", program]].concat();
        let (code, text) = outcome(&uu.run(&words));
        assert!(code == expected && text.contains("nothing was sampled"), "{words:?}: {code}, {text}");
    }
    let (code, text) = outcome(&uu.run(&record(&["--fail-empty"], "fails")));
    assert!(code == 9 && !text.contains("nothing was sampled"), "{text}");
    // A signal that ended the program is the reason, and what it computed until then is none.
    for (signal, name) in [("9", "SIGKILL"), ("SEGV", "SIGSEGV"), ("ABRT", "SIGABRT"), ("TERM", "SIGTERM")] {
        let (code, text) = outcome(&uu.run(&["record", "--", "sh", "-c", &format!("kill -{signal} $$")]));
        let said = format!("nothing was sampled: {name} ended the program, before it was recorded. It had used ");
        assert!(code > 128 && text.contains(&said) && !text.contains("more work"), "{code}: {text}");
    }
    assert_eq!(outcome(&uu.run(&["record", "--", "sh", "-c", "kill -9 $$"])).0, 137);
    assert_eq!(uu.files(".uu").len(), 3, "empty recordings are removed");
}

#[test]
fn sigterm_is_passed_on_and_the_recording_is_finished() {
    let uu = Installation::new("term");
    let mut running = uu.uu(&record(&["-o", "x.uu"], "waits")).stderr(Stdio::piped()).spawn().expect("uu runs");
    while !exists(&uu.folder.join("ready")) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: a plain system call on a child that was not waited for.
    unsafe { libc::kill(running.id() as i32, libc::SIGTERM) };
    let mut text = String::new();
    running.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
    assert_eq!(running.wait().expect("ended").code(), Some(42), "{text}");
    assert!(text.contains("10 complete"), "{text}");
    assert!(exists(&uu.folder.join("x.uu")));
}

#[test]
fn a_full_disk_leaves_the_program_alone() {
    let uu = Installation::new("full");
    // bash counts blocks of 1,024 bytes: the first limit stops the check before the start, the second the recording.
    for (blocks, runs) in [(1, false), (20, true)] {
        let script = format!("ulimit -S -f {blocks}; exec bin/uu \"$@\"");
        let mut command = Command::new("bash");
        command.args(["-c", &script, "uu"]).args(record(&["-o", "x.uu"], "fills")).current_dir(&uu.folder);
        let output = command.output().expect("uu runs");
        let (code, text) = outcome(&output);
        assert_eq!(String::from_utf8_lossy(&output.stdout).contains("program output"), runs, "{text}");
        if runs {
            assert!(text.contains("writing x.uu failed: File too large"), "{text}");
            assert_eq!(code, 0, "the program's own: {text}");
            let (code, text) = outcome(&uu.run(&["report", "x.uu"]));
            assert!(code == 0 && text.contains("truncated"), "{text}");
        } else {
            assert!(code == 125 && text.contains("cannot write x.uu: File too large"), "{text}");
        }
    }
}

#[test]
fn a_truncated_recording_is_reported_with_a_warning() {
    let uu = Installation::new("cut");
    assert_eq!(outcome(&uu.run(&record(&["-o", "x.uu"], "works"))).0, 0);
    let bytes = std::fs::read(uu.folder.join("x.uu")).expect("recording");
    // The cut is within the symbols, which come last.
    std::fs::write(uu.folder.join("cut.uu"), &bytes[..bytes.len() - 10]).expect("file");
    let output = uu.run(&["report", "-f", "folded", "cut.uu"]);
    let (code, text) = outcome(&output);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("cut.uu is truncated at offset"), "{text}");
    let whole = uu.run(&["report", "-f", "folded", "x.uu"]);
    assert_eq!(output.stdout, whole.stdout, "the object's file still has the names");
}

#[test]
fn ctrl_c_ends_the_program_and_not_the_recording() {
    use std::os::unix::process::CommandExt;
    let uu = Installation::new("interrupt");
    let mut command = uu.uu(&record(&["-o", "x.uu"], "waits"));
    // Tests that run in the background may have SIGINT ignored, which the program would inherit.
    let default = || {
        // SAFETY: a plain system call.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: the child does nothing else between fork and exec.
    let command = unsafe { command.pre_exec(default) };
    let mut running = command.process_group(0).stderr(Stdio::piped()).spawn().expect("uu runs");
    while !exists(&uu.folder.join("ready")) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: a plain system call; the group is uu and its program.
    unsafe { libc::kill(-(running.id() as i32), libc::SIGINT) };
    let mut text = String::new();
    running.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
    assert_eq!(running.wait().expect("ended").code(), Some(128 + libc::SIGINT), "{text}");
    assert!(text.contains("10 complete") && exists(&uu.folder.join("x.uu")), "{text}");
}
