//! PHP stacks against the runtime's own view: every test program under every PHP of this machine.

#[path = "php/fpm.rs"]
mod fpm;
#[path = "php/grammar.rs"]
mod grammar;
#[path = "php/runtime.rs"]
mod runtime;

use grammar::Program;
use runtime::{Expected, Php};
use std::ffi::{OsStr, OsString};
use std::process::Command;
use uunwind_tests::attached;
use uunwind_tests::own_walks::{self, Reads};
use uunwind_tests::running::Running;
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{chance, paths, skips, uu};

/// A tick of the timer at the moment of an explicit signal would swallow it, so the rate is the lowest.
const EXPLICIT: &[&str] = &["--explicit", "-r", "1"];

/// Calls `test` with each interpreter of this machine.
#[track_caller]
fn each(test: impl Fn(&Php) -> Result<(), String>) {
    let found = runtime::all();
    if found.is_empty() {
        skips::skipped("PHP stacks", "this machine has no php");
    }
    for php in found {
        test(&php).unwrap_or_else(|error| panic!("{}: {error}", php.version));
    }
}

#[test]
fn functions_methods_and_closures() {
    each(|php| agrees(php, "nested"));
}

#[test]
fn exceptions_on_their_way() {
    each(|php| agrees(php, "exceptions"));
}

#[test]
fn generators_that_delegate() {
    each(|php| agrees(php, "generators"));
}

fn agrees(php: &Php, script: &str) -> Result<(), String> {
    let scratch = paths::scratch(&format!("{script}-{}", php.version));
    let oracle = scratch.join("oracle");
    let program = php.run(script);
    let program: Vec<&OsStr> = program.iter().map(|word| &**word).collect();
    let configure = |command: &mut Command| php.configure(command, &oracle);
    let samples = uu::record(&scratch, EXPLICIT, configure, &program).expect_code(0).samples();
    for (expected, sample) in runtime::pair(&runtime::read(&oracle), &samples)? {
        check(expected, sample).map_err(|e| format!("{e}\n{}", sample.text()))?;
    }
    Ok(())
}

fn check(expected: &Expected, sample: &Sample) -> Result<(), String> {
    runtime::compare(expected, sample)?;
    // "facts-pending" comes from a library that was just opened.
    if !sample.complete() || !matches!(&*sample.flags, "-" | "" | "facts-pending") {
        return Err("the stack is not complete, or is flagged".into());
    }
    runtime::check_hosts(sample)
}

/// Limit of the share of stacks in doubt.
const DOUBTFUL: f64 = 0.01;
/// The lines of one loop of `async.php` that cost the same, and the share of the loop's samples that each of them has.
const LOOP: [u32; 5] = [10, 11, 12, 13, 14];
const LINE: std::ops::RangeInclusive<f64> = 0.1..=0.4;

/// Interrupted at any place: every stack is one that the program can have, and a loop's lines have their shares.
#[test]
fn any_instruction() {
    each(anywhere);
}

/// `async.php`, with what it includes and evaluates.
fn program() -> Result<Program, String> {
    let read = |name| {
        let script = runtime::path(name);
        let source = std::fs::read_to_string(&script).map_err(|e| format!("{}: {e}", script.display()))?;
        Ok::<_, String>((script.to_string_lossy().into_owned(), source))
    };
    let sources = [read("async")?, read("part")?, read("leaf")?];
    let (file, source) = &sources[0];
    let evaluates = source.lines().position(|line| line.contains("eval('fib(3);')")).ok_or("nothing is evaluated")?;
    Ok(Program::read(&sources).evaluates(file, evaluates as u32 + 1, &["fib"]))
}

fn anywhere(php: &Php) -> Result<(), String> {
    let scratch = paths::scratch(&format!("anywhere-{}", php.version));
    let program = program()?;
    let configure = |command: &mut Command| {
        php.configure(command, &scratch.join("oracle"));
        command.env("UU_TEST_SECONDS", chance::seconds(2.0).to_string());
    };
    let command = php.run("async");
    let command: Vec<&OsStr> = command.iter().map(|word| &**word).collect();
    let samples = uu::record(&scratch, &["-r", "999"], configure, &command).expect_code(0).samples();
    are_possible(php, &program, &samples)
}

/// A program that runs already: the same frames, and the summary names the language as its people write it.
#[test]
fn a_running_program() {
    each(|php| {
        let scratch = paths::scratch(&format!("running-{}", php.version));
        let words = php.run("async");
        let mut command = Command::new(&words[0]);
        php.configure(command.args(&words[1..]), &scratch.join("oracle"));
        let mut running = Running::start(command.env("UU_TEST_SECONDS", "600"));
        let (_, samples, summary) = attached::record_cpu(&scratch, running.pid(), 0.5, &["-r", "199"]);
        running.kill();
        let program = program()?;
        let mut right = 0;
        for sample in samples.iter().filter(|sample| sample.complete() && !sample.flags.contains("desync")) {
            right += usize::from(program.check(sample).map_err(|e| format!("{e}\n{}", sample.text()))? > 0);
        }
        if right * 10 < samples.len() * 8 || !summary.contains("\nHottest lines of PHP, ") {
            return Err(format!("PHP frames in {right} of {} samples\n{summary}", samples.len()));
        }
        Ok(())
    });
}

/// The server whose processes answer requests for pages.
#[test]
fn pages_of_a_server() {
    let Some(program) = fpm::program() else {
        return skips::skipped("PHP stacks in FPM", "this machine has no php-fpm that runs");
    };
    let scratch = paths::scratch("fpm");
    let server = fpm::Server::new(&scratch);
    let page = runtime::path("page");
    let mut words: Vec<OsString> = vec![program.into()];
    words.extend(server.options().into_iter().map(OsString::from));
    let words: Vec<&OsStr> = words.iter().map(|word| &**word).collect();
    let recording = std::thread::scope(|scope| {
        let client = scope.spawn(|| server.ask(&page, 80));
        let recording = uu::record(&scratch, &["-r", "499"], |_| (), &words).expect_code(0);
        let answer = client.join().expect("a client");
        assert!(answer.contains("46368,75025"), "{answer}");
        recording
    });
    let (mut whole, samples) = (0, recording.samples());
    for sample in samples.iter().filter(|sample| sample.complete() && !sample.flags.contains("desync")) {
        let names: Vec<String> = runtime::frames(sample).into_iter().map(|frame| frame.name).collect();
        let outer: Vec<&str> = names.iter().map(|name| &**name).skip_while(|name| *name == "Page::fib").collect();
        let expected = ["Page::{closure}", "array_map", "Page::render", "{main}"];
        // Each is an outer part of the chain.
        assert!(expected.ends_with(&outer), "{}", sample.text());
        whole += usize::from(outer.len() == expected.len() && names.len() > outer.len());
    }
    assert!(whole > 20, "{whole} of {} stacks are whole", samples.len());
    let summary = recording.report("summary");
    assert!(summary.contains("php-fpm: pool www"), "{summary}");
}

/// The same scripts without a recorder: the program's own handler calls uu_walk().
#[test]
fn by_uu_walk() {
    each(|php| {
        for (index, script) in ["nested", "exceptions", "generators"].iter().enumerate() {
            for reads in Reads::some(index) {
                let scratch = paths::scratch(&format!("{script}-{}-{}", php.version, reads.suffix()));
                let oracle = scratch.join("oracle");
                let program = php.run(script);
                let program: Vec<&OsStr> = program.iter().map(|word| &**word).collect();
                let configure = |command: &mut Command| php.configure(command, &oracle);
                let walked = own_walks::explicit(&scratch, *reads, configure, &program)?;
                for (expected, sample) in runtime::pair(&runtime::read(&oracle), &walked.samples)? {
                    check(expected, sample).map_err(|e| format!("{script}: {e}\n{}", sample.text()))?;
                }
            }
        }
        Ok(())
    });
}

/// Interrupted at any place by uu_walk() in the program's own handler, in a storm of signals, with calls of malloc()
/// and locks watched.
#[test]
fn any_instruction_by_uu_walk() {
    each(|php| {
        for reads in Reads::some(1) {
            let scratch = paths::scratch(&format!("anywhere-{}-{}", php.version, reads.suffix()));
            let program = program()?;
            let configure = |command: &mut Command| {
                php.configure(command, &scratch.join("oracle"));
                command.env("UU_TEST_SECONDS", chance::seconds(0.3).to_string());
            };
            let command = php.run("async");
            let command: Vec<&OsStr> = command.iter().map(|word| &**word).collect();
            let walked = own_walks::storm(&scratch, *reads, configure, &command)?;
            are_possible(php, &program, &walked.samples)?;
        }
        Ok(())
    });
}

fn are_possible(php: &Php, program: &Program, samples: &[Sample]) -> Result<(), String> {
    let (mut right, mut doubtful) = (0, Vec::new());
    for sample in samples {
        let interpreter = |frame: &Frame| matches!(frame, Frame::Native { interpreter: true, .. });
        if sample.flags.contains("desync") || !sample.complete() {
            doubtful.push(sample);
            continue;
        }
        match program.check(sample) {
            Err(e) => return Err(format!("{e}\n{}", sample.text())),
            Ok(0) if runtime::frames(sample).is_empty() && sample.frames.iter().any(interpreter) => {
                doubtful.push(sample)
            }
            Ok(frames) => right += usize::from(frames > 0),
        }
    }
    eprintln!("{}: {} samples, {right} of the program, {} in doubt", php.version, samples.len(), doubtful.len());
    if let (true, Some(first)) = (chance::too_many(doubtful.len(), samples.len(), DOUBTFUL), doubtful.first()) {
        return Err(format!("{} of {} stacks in doubt, such as\n{}", doubtful.len(), samples.len(), first.text()));
    }
    if right < 100 || right * 10 < samples.len() * 8 {
        return Err(format!("PHP frames in {right} of {} samples", samples.len()));
    }
    let shares = program.leaf_lines(samples, "lines");
    let of = |line| shares.get(&line).copied().unwrap_or(0) as usize;
    let total = LOOP.map(of).iter().sum();
    for line in LOOP {
        if chance::too_few(of(line), total, *LINE.start()) || chance::too_many(of(line), total, *LINE.end()) {
            return Err(format!("line {line} has {} of {total} samples of its loop: {shares:?}", of(line)));
        }
    }
    Ok(())
}
