//! The commands in the comment at the top of each example, which a reader copies into a shell in the project's folder:
//! they must run unchanged.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use uunwind_tests::{compile, paths, process, uu};

/// The indented lines of the comment at the head of a source file.
fn commands(source: &str) -> Vec<String> {
    let text = std::fs::read_to_string(source).expect("an example");
    let head: Vec<&str> = match Path::new(source).extension().and_then(|e| e.to_str()) {
        Some("rs") => {
            let block = text.split("//! ```").nth(1).expect("a block of commands");
            return block.lines().skip(1).map(|line| line.trim_start_matches("//!").trim().to_owned()).collect();
        }
        Some("py") => text.split("\"\"\"").nth(1).expect("a comment").lines().collect(),
        _ => text.split("*/").next().expect("a comment").lines().collect(),
    };
    let indented = head.iter().filter_map(|line| line.trim_start_matches(" *").strip_prefix("    "));
    indented.map(|line| line.trim().to_owned()).collect()
}

/// Runs the commands of an example in a folder that looks like the project's after `ci/build`. What they printed.
#[track_caller]
fn run(example: &str, count: usize) -> String {
    let root = paths::root();
    let commands = commands(root.join("examples").join(example).to_str().expect("text"));
    assert_eq!(commands.len(), count, "{commands:?}");
    let scratch = paths::scratch("commands");
    std::fs::create_dir(scratch.join("target")).expect("scratch");
    symlink(root.join("examples"), scratch.join("examples")).expect("scratch");
    symlink(paths::tree(), scratch.join("target/uu")).expect("scratch");
    symlink(paths::target().join("dso"), scratch.join("target/dso")).expect("scratch");
    let mut said = String::new();
    for line in commands {
        // Cargo wants the project itself, and builds where these tests are built.
        let folder = if line.starts_with("cargo ") { &root } else { &scratch };
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(folder).env("XDG_CACHE_HOME", scratch.join("cache"));
        shell.env("CARGO_TARGET_DIR", OsString::from(paths::target()));
        let outcome = process::run(&mut shell, &scratch, uu::LIMIT * 5);
        let text = outcome.text();
        assert!(outcome.code() == 0 && !text.contains("nothing was sampled"), "{line}: {text}");
        said += &outcome.stdout;
        said += &outcome.stderr;
    }
    said
}

#[test]
fn capture() {
    assert!(run("capture/capture.c", 2).contains("stop 1"));
}

#[test]
fn window() {
    assert!(run("window/window.c", 2).contains("unregister 0"));
}

#[test]
fn guards_in_cpp() {
    let said = run("cpp/guards.cpp", 2);
    let lines: Vec<&str> = said.lines().map(|line| line.split(' ').next().expect("a word")).collect();
    // The window has ended with its guard; its frame was named while it was there.
    assert!(said.starts_with("after the guard -2\ncomplete\n"), "{said}");
    let place = lines.iter().position(|name| *name == "callback").expect("callback");
    assert_eq!(lines[place + 2], "main", "{said}");
}

/// What a report says of each stack: its first line, and the lines of its frames.
fn reported(said: &str) -> Vec<(&str, Vec<&str>)> {
    let mut stacks: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in said.lines() {
        match (line.strip_prefix("    "), stacks.last_mut()) {
            (Some(frame), Some((_, frames))) => frames.push(frame),
            _ => stacks.push((line, Vec::new())),
        }
    }
    stacks.retain(|(_, frames)| !frames.is_empty());
    stacks
}

/// The numbers of a line.
fn numbers(line: &str) -> Vec<f64> {
    line.split([' ', ';']).filter_map(|word| word.parse().ok()).collect()
}

/// Whether there is a Python. Named as skipped if not.
fn has_python(what: &str) -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        uunwind_tests::skips::skipped(what, "python3 is not installed");
    }
    found
}

/// The sampled sums agree with malloc's own, and those of a function with what it keeps, within six standard
/// deviations.
#[test]
fn heap() {
    if !has_python("the commands of examples/heap") {
        return;
    }
    let said = run("heap/heap.c", 2);
    let live = said.lines().find(|line| line.starts_with("live ")).expect("a report");
    let [live, _, _, truth] = numbers(live)[..] else { panic!("{live}") };
    const RATE: f64 = 65_536.0;
    let near = |found: f64, truth: f64| {
        let deviation = (RATE / truth).sqrt();
        assert!((found / truth - 1.0).abs() < 6.0 * deviation, "{found} for {truth}: {said}");
    };
    near(live, truth);
    for (function, truth) in [("keep (", 4000.0 * 10_000.0), ("also (", 800.0 * 20_000.0)] {
        let keeps = |frames: &[&str]| frames.iter().any(|frame| frame.starts_with(function));
        let stacks = reported(&said);
        let of_it = stacks.iter().filter(|(_, frames)| keeps(frames)).map(|(line, _)| numbers(line)[0]);
        near(of_it.sum(), truth);
    }
    assert!(!said.contains("borrow (") && said.contains("lost 0 blocks"), "{said}");
}

#[test]
fn watchdog() {
    let said = run("watchdog/watchdog.c", 2);
    let stacks = reported(&said);
    let (_, frames) = stacks.last().expect("a report");
    let place = frames.iter().position(|frame| frame.starts_with("waits_for_reply (")).expect("where it is stuck");
    assert!(frames[place + 1].starts_with("work (") && frames[place + 2].starts_with("main ("), "{said}");
}

#[test]
fn tracer() {
    let said = run("tracer/tracer.c", 2);
    // The timer may find other periods late, too, on a busy machine: these three are.
    for period in [5, 13, 21] {
        let of_period = |line: &str| line.starts_with(&format!("period {period} was "));
        let (_, frames) = reported(&said).into_iter().find(|(line, _)| of_period(line)).expect("a report");
        let place = frames.iter().position(|frame| frame.starts_with("rebuilds_table ("));
        assert_eq!(place, Some(0), "what the handler interrupted: {said}");
        assert!(frames[1].starts_with("runs_period (") && frames[2].starts_with("main ("), "{said}");
    }
    assert!(said.ends_with("\n0 lost\n"), "{said}");
}

#[test]
fn locks() {
    if !has_python("the commands of examples/locks") {
        return;
    }
    let said = run("locks/locks.c", 2);
    // The innermost Python frame of one stack is the function that waits for the lock.
    let waits =
        |frames: &[&str]| frames.iter().find(|frame| frame.contains(".py:")).is_some_and(|f| f.starts_with("wants ("));
    let found = reported(&said).into_iter().find(|(_, frames)| waits(frames));
    let (line, _) = found.unwrap_or_else(|| panic!("{said}"));
    assert!(numbers(line)[0] > 0.0 && numbers(line)[1] >= 1.0, "{line}");
    assert!(said.contains("0 waits lost"), "{said}");
}

/// The waits of each function, and their time: between what the schedule demands and what the waiter measured itself.
#[test]
fn locks_by_a_schedule() {
    let scratch = paths::scratch("locks-schedule");
    let program = compile::gcc(&scratch, "contend", &["native/contend.c"], &["-pthread"]);
    let include = format!("-I{}", paths::tree().join("include").display());
    let library = paths::tree().join("lib");
    let (file, run) = (library.join("libuunwind.so.0"), format!("-Wl,-rpath,{}", library.display()));
    let options = ["-shared", "-fPIC", "-pthread", &include, file.to_str().expect("text"), &run];
    let tracer = compile::gcc_files(&scratch, "locks.so", &[paths::root().join("examples/locks/locks.c")], &options);
    let mut command = Command::new(&program);
    command.env("LD_PRELOAD", &tracer).env("XDG_CACHE_HOME", scratch.join("cache"));
    let outcome = process::run(&mut command, &scratch, uu::LIMIT);
    if outcome.code() == 77 {
        return uunwind_tests::skips::skipped("locks by a schedule", "/proc/PID/task/TID/syscall cannot be read");
    }
    let outcome = outcome.expect_code(0);
    let stacks = reported(&outcome.stderr);
    for (what, waits) in [("mutex", 4.0), ("semaphore", 2.0)] {
        let line = outcome.stdout.lines().find(|line| line.starts_with(what)).expect("printed");
        let [least, most] = numbers(line)[..] else { panic!("{line}") };
        let function = format!("wants_{what} (");
        let of_it = stacks.iter().filter(|(_, frames)| frames.iter().any(|frame| frame.starts_with(&function)));
        // More than one, where the compiler made two calls of one in a loop.
        let found: Vec<_> = of_it.map(|(line, _)| numbers(line)).collect();
        let (time, count): (f64, f64) = (found.iter().map(|of| of[0]).sum(), found.iter().map(|of| of[1]).sum());
        // Tenths of a millisecond are printed.
        let rounding = 0.05 * found.len() as f64;
        assert!(time >= least - rounding && time <= most + rounding, "{what}: {}", outcome.text());
        assert_eq!(count, waits, "{what}: {}", outcome.text());
    }
    let quiet = |frames: &[&str]| frames.iter().all(|frame| !frame.starts_with("wants_nothing_long ("));
    assert!(stacks.iter().all(|(_, frames)| quiet(frames)), "{}", outcome.text());
    assert!(outcome.stderr.contains("0 waits lost, 0 stacks incomplete"), "{}", outcome.text());
}

#[test]
fn jit() {
    let said = run("jit/jit.c", 3);
    assert!(said.contains(" 0 wrong") && said.contains("Hottest functions by themselves"), "{said}");
}

#[test]
fn embedder() {
    let said = run("embedder/embedder.c", 2);
    assert!(said.contains("Hottest functions by themselves") && said.contains("leaf (prog.lang:21)"), "{said}");
}

/// What it reads is compared with reports in `recording_readers.rs`.
#[test]
fn reader_in_c() {
    let said = run("reader-c/reader.c", 3);
    assert!(said.contains(" processes, ") && said.contains("main;"), "{said}");
}

#[test]
fn reader_in_rust() {
    let said = run("reader-rust/reader.rs", 3);
    assert!(said.contains(" processes, ") && said.contains("main;"), "{said}");
}

#[test]
fn lua() {
    if !Path::new("/usr/include/lua5.4/lua.h").exists() {
        return uunwind_tests::skips::skipped("the commands of examples/lua", "Lua 5.4's headers are not here");
    }
    let said = run("lua/lua.c", 2);
    assert!(said.contains("Where the time is"), "{said}");
}

#[test]
fn plugin_in_c() {
    let said = run("plugin-c/toy.c", 3);
    assert!(said.contains("toy") && said.contains("Where the time is"), "{said}");
}

#[test]
fn plugin_in_rust() {
    let said = run("plugin-rust/src/lib.rs", 3);
    assert!(said.contains("leaf (prog.toy:17)"), "the plugin took part: {said}");
}

#[test]
fn demo() {
    if !has_python("the commands of examples/demo") {
        return;
    }
    let said = run("demo/demo.py", 2);
    assert!(said.contains("demo.svg") && said.contains("heat_run"), "{said}");
}
