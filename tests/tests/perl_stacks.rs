//! Perl stacks against the runtime's own view: every test program under the Perls of this machine.

#[path = "perl/grammar.rs"]
mod grammar;
#[path = "perl/runtime.rs"]
mod runtime;

use grammar::Program;
use runtime::{Expected, Perl};
use serde_json::Value;
use std::ffi::OsStr;
use std::process::Command;
use uunwind_tests::attached;
use uunwind_tests::own_walks::{self, Reads};
use uunwind_tests::running::Running;
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{builds, chance, cores, dumps, paths, process, skips, uu};

/// A tick of the timer at the moment of an explicit signal would swallow it, so the rate is the lowest.
const EXPLICIT: &[&str] = &["--explicit", "-r", "1"];

/// Calls `test` with each interpreter of this machine.
#[track_caller]
fn each(test: impl Fn(&Perl) -> Result<(), String>) {
    let found = runtime::all();
    if found.is_empty() {
        skips::skipped("Perl stacks", "this machine has no Perl");
    }
    for perl in found {
        if !perl.is_tried && !builds::every() {
            skips::skipped(&format!("Perl {}", perl.version), builds::LEFT_OUT);
            continue;
        }
        test(&perl).unwrap_or_else(|error| panic!("{}: {error}", perl.version));
    }
}

#[test]
fn subs_methods_and_evals() {
    each(|perl| agrees(perl, "nested"));
}

#[test]
fn threads() {
    each(|perl| agrees(perl, "threads"));
}

fn agrees(perl: &Perl, script: &str) -> Result<(), String> {
    let scratch = paths::scratch(script);
    let oracle = scratch.join("oracle");
    let program = perl.run(script);
    let program: Vec<&OsStr> = program.iter().map(|word| &**word).collect();
    let configure = |command: &mut Command| perl.configure(command, &oracle);
    let samples = uu::record(&scratch, EXPLICIT, configure, &program).expect_code(0).samples();
    let mut wrong = Vec::new();
    for (expected, sample) in runtime::pair(&runtime::read(&oracle), &samples)? {
        if let Err(e) = check(expected, sample) {
            wrong.push(format!("{e}\n{:?}\n{}", expected.frames, sample.text()));
        }
    }
    match wrong.first() {
        Some(first) => Err(format!("{} of {} stacks are wrong, such as\n{first}", wrong.len(), samples.len())),
        None => Ok(()),
    }
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
const DOUBTFUL: f64 = 0.02;
/// The share of a loop's samples that each of its lines has which cost the same.
const LINE: std::ops::RangeInclusive<f64> = 0.1..=0.4;

/// `async.pl`, and its source.
fn program() -> Result<(Program, String), String> {
    let script = runtime::path("async");
    let source = std::fs::read_to_string(&script).map_err(|e| format!("{}: {e}", script.display()))?;
    Ok((Program::read(&script.to_string_lossy(), &source), source))
}

/// Interrupted at any place: every stack is one that the program can have, and a loop's lines have their shares.
#[test]
fn any_instruction() {
    each(|perl| {
        let scratch = paths::scratch("anywhere");
        let configure = |command: &mut Command| {
            perl.configure(command, &scratch.join("oracle"));
            command.env("UU_TEST_SECONDS", chance::seconds(3.0).to_string());
        };
        let command = perl.run("async");
        let command: Vec<&OsStr> = command.iter().map(|word| &**word).collect();
        let samples = uu::record(&scratch, &["-r", "999"], configure, &command).expect_code(0).samples();
        are_possible(&samples)
    });
}

/// A program that runs already: the same frames, and the summary names the language as its people write it.
#[test]
fn a_running_program() {
    each(|perl| {
        let scratch = paths::scratch("running");
        let words = perl.run("async");
        let mut command = Command::new(&words[0]);
        perl.configure(command.args(&words[1..]), &scratch.join("oracle"));
        let mut running = Running::start(command.env("UU_TEST_SECONDS", "600"));
        let (_, samples, summary) = attached::record_cpu(&scratch, running.pid(), 0.5, &["-r", "199"]);
        running.kill();
        let (program, _) = program()?;
        let mut right = 0;
        for sample in samples.iter().filter(|sample| sample.complete() && !sample.flags.contains("desync")) {
            right += usize::from(program.check(sample).map_err(|e| format!("{e}\n{}", sample.text()))? > 0);
        }
        if right * 10 < samples.len() * 8 || !summary.contains("\nHottest lines of Perl, ") {
            return Err(format!("Perl frames in {right} of {} samples\n{summary}", samples.len()));
        }
        Ok(())
    });
}

/// The frames of `waits.pl`, innermost first.
const WAITING: [&str; 7] =
    ["Kind::waits", "Kind::by_waiting", "main::sorts", "main::__ANON__", "List::Util::first", "main::finds", "(eval)"];

/// A program that waits, looked at from outside, and its core file.
#[test]
fn from_outside() {
    each(|perl| {
        let scratch = paths::scratch("outside");
        let words = perl.run("waits");
        let mut command = Command::new(&words[0]);
        perl.configure(command.args(&words[1..]), &scratch.join("oracle"));
        let mut running = Running::ready(&mut command);
        let pid = running.pid().to_string();
        let dump = |from: &[&str]| {
            let options = [&["dump"], from, &["--json"]].concat();
            let out = process::run(&mut uu::command(&scratch, &options), &scratch, uu::LIMIT).expect_code(0);
            let dump: Value = serde_json::from_str(&out.stdout).map_err(|e| e.to_string())?;
            let [thread] = dumps::threads(&dump) else { return Err(format!("{from:?}: {dump}")) };
            let functions = dumps::functions(thread);
            let at = functions.iter().position(|name| *name == WAITING[0]).ok_or(format!("{from:?}: {thread}"))?;
            let perl: Vec<&str> =
                functions[at..].iter().filter(|name| name.contains(':') || **name == "(eval)").copied().collect();
            if thread["complete"] != true || perl[..] != WAITING || !functions.contains(&"(main)") {
                return Err(format!("{from:?}: {functions:?} of {thread}"));
            }
            Ok(())
        };
        dump(&["-p", &pid])?;
        if cores::has_gcore() {
            let mut gcore = Command::new("gcore");
            process::run(gcore.arg("-o").arg(scratch.join("gdb")).arg(&pid), &scratch, uu::LIMIT).expect_code(0);
            let core = scratch.join(format!("gdb.{pid}"));
            dump(&[core.to_str().ok_or("no path")?])?;
            std::fs::remove_file(core).map_err(|e| e.to_string())?;
        } else {
            skips::skipped("a core file of a Perl", "there is no gcore on this machine");
        }
        running.kill();
        Ok(())
    });
}

/// A program that embeds Perl, with two interpreters in one thread whose subs call each other through C.
#[test]
fn embedded() {
    let scratch = paths::scratch("embedded");
    let Some(program) = runtime::embedding(&scratch) else {
        return skips::skipped("a program that embeds Perl", "this machine has no headers of perl 5.36 (libperl-dev)");
    };
    let samples = uu::record(&scratch, &["-r", "4999"], |_| {}, &[program.as_os_str()]).expect_code(0).samples();
    let chain = ["main::inner", "main::work", "(eval)", "main::into_second", "main::middle", "main::outer"];
    let mut whole = 0;
    for sample in samples.iter().filter(|sample| sample.complete() && !sample.flags.contains("desync")) {
        let names: Vec<String> = runtime::frames(sample).into_iter().map(|frame| frame.name).collect();
        // Each stack is an outer part of the chain, but for what Perl does while it begins.
        let begins = sample.text().contains("perl_parse") || sample.text().contains("perl_construct");
        let is_outer = chain.iter().rev().zip(names.iter().rev()).all(|(chain, name)| chain == name);
        assert!(begins || is_outer && names.len() <= chain.len(), "{}", sample.text());
        whole += usize::from(names.len() == chain.len());
    }
    assert!(whole > 20, "{whole} of {} stacks are whole", samples.len());
}

/// Native frames that only pass calls on are hidden unless they are asked for, and those that do a program's work are
/// not; the picture has the language's frames, too.
#[test]
fn glue_is_hidden() {
    each(|perl| {
        let scratch = paths::scratch("glue");
        let configure = |command: &mut Command| {
            perl.configure(command, &scratch.join("oracle"));
            command.env("UU_TEST_SECONDS", "0.5");
        };
        let command = perl.run("async");
        let command: Vec<&OsStr> = command.iter().map(|word| &**word).collect();
        let recording = uu::record(&scratch, &["-r", "499"], configure, &command).expect_code(0);
        let [hidden, all] = ["hide", "show"].map(|mode| recording.report_with("folded", &["--native-frames", mode]));
        // Where stacks are in doubt, all is shown.
        let glued = |text: &str| text.lines().filter(|line| line.contains(";Perl_runops_standard;")).count();
        if glued(&hidden) * 10 > glued(&all) || glued(&all) == 0 {
            return Err(format!("{} and {} stacks with glue:\n{hidden}", glued(&hidden), glued(&all)));
        }
        if !hidden.contains(";Perl_sortsv_flags") || !hidden.contains("main::fib (") {
            return Err(format!("no sort, or no fib in:\n{hidden}"));
        }
        if !recording.report_with("svg", &[]).contains("main::fib") {
            return Err("the picture has no fib".into());
        }
        Ok(())
    });
}

/// The same scripts without a recorder: the program's own handler calls uu_walk().
#[test]
fn by_uu_walk() {
    each(|perl| {
        for (index, script) in ["nested", "threads"].iter().enumerate() {
            for reads in Reads::some(index) {
                let scratch = paths::scratch(&format!("{script}-{}", reads.suffix()));
                let oracle = scratch.join("oracle");
                let program = perl.run(script);
                let program: Vec<&OsStr> = program.iter().map(|word| &**word).collect();
                let configure = |command: &mut Command| perl.configure(command, &oracle);
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
    each(|perl| {
        for reads in Reads::some(1) {
            let scratch = paths::scratch(&format!("anywhere-{}", reads.suffix()));
            let configure = |command: &mut Command| {
                perl.configure(command, &scratch.join("oracle"));
                command.env("UU_TEST_SECONDS", chance::seconds(0.5).to_string());
            };
            let command = perl.run("async");
            let command: Vec<&OsStr> = command.iter().map(|word| &**word).collect();
            let walked = own_walks::storm(&scratch, *reads, configure, &command)?;
            are_possible(&walked.samples)?;
        }
        Ok(())
    });
}

fn are_possible(samples: &[Sample]) -> Result<(), String> {
    let (program, source) = program()?;
    let (mut right, mut doubtful, mut wrong) = (0, Vec::new(), Vec::new());
    for sample in samples {
        let interpreter = |frame: &Frame| matches!(frame, Frame::Native { interpreter: true, .. });
        if sample.flags.contains("desync") || !sample.complete() {
            doubtful.push(sample);
            continue;
        }
        match program.check(sample) {
            Err(e) => wrong.push(format!("{e}\n{}", sample.text())),
            Ok(0) if runtime::frames(sample).is_empty() && sample.frames.iter().any(interpreter) => {
                doubtful.push(sample);
            }
            Ok(frames) => right += usize::from(frames > 0),
        }
    }
    eprintln!("{} samples, {right} of the program, {} in doubt", samples.len(), doubtful.len());
    if std::env::var_os("UU_SHOW").is_some() {
        wrong.iter().for_each(|wrong| eprintln!("wrong: {wrong}"));
        doubtful.iter().for_each(|sample| eprintln!("in doubt: {}", sample.text()));
    }
    if let Some(first) = wrong.first() {
        return Err(format!("{} of {} stacks are wrong, such as\n{first}", wrong.len(), samples.len()));
    }
    if let (true, Some(first)) = (chance::too_many(doubtful.len(), samples.len(), DOUBTFUL), doubtful.first()) {
        return Err(format!("{} of {} stacks in doubt, such as\n{}", doubtful.len(), samples.len(), first.text()));
    }
    if right < 100 || right * 10 < samples.len() * 8 {
        return Err(format!("Perl frames in {right} of {} samples", samples.len()));
    }
    let shares = program.leaf_lines(samples, "main::lines");
    let of = |line: &u32| shares.get(line).copied().unwrap_or(0) as usize;
    let lines = program.loop_lines(&source, "main::lines");
    let total = lines.iter().map(of).sum();
    for line in &lines {
        if chance::too_few(of(line), total, *LINE.start()) || chance::too_many(of(line), total, *LINE.end()) {
            return Err(format!("line {line} has {} of {total} samples of its loop: {shares:?}", of(line)));
        }
    }
    match lines.len() {
        5 => Ok(()),
        other => Err(format!("the loop has {other} lines")),
    }
}
