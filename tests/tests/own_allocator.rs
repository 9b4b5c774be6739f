//! Programs whose allocator may not be called before their `main`: they are recorded, report their crashes, and end as
//! alone.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::process::{run, Outcome};
use uunwind_tests::{compile, paths, skips, uu};

/// What the program ends with.
const CODE: i32 = 7;

fn program(scratch: &Path, options: &[&str]) -> PathBuf {
    let options = [&["-pthread", "-rdynamic"], options].concat();
    compile::gcc(scratch, "own_allocator", &["native/own_allocator.c"], &options)
}

fn plain(scratch: &Path, program: &Path, words: &[&str]) -> Outcome {
    run(Command::new(program).args(words), scratch, uu::LIMIT)
}

/// Records the program, which must end as alone, with samples of this function.
#[track_caller]
fn recorded(scratch: &Path, options: &[&str], program: &[&OsStr], function: &str) -> uu::Recording {
    let recording = uu::record(scratch, options, |_| {}, program).expect_code(CODE);
    let said = recording.outcome.text();
    assert!(!said.contains("called before main"), "{said}");
    let found = recording.samples().iter().filter(|s| s.frames.iter().any(|f| f.name() == function)).count();
    assert!(found >= 5, "{found} samples of {function}: {said}");
    recording
}

/// The dynamic loader calls the program's functions, so that a call that comes too early is seen.
#[test]
fn a_program_that_is_called_too_early_aborts() {
    let scratch = paths::scratch("own-allocator-early");
    let program = program(&scratch, &[]);
    let early = compile::shared(&scratch, "early.so", &["native/early_open.c"]);
    assert_eq!(plain(&scratch, &program, &["burn"]).code(), CODE);
    let outcome = run(Command::new(&program).env("LD_PRELOAD", &early), &scratch, uu::LIMIT);
    assert!(outcome.stderr.contains("called before main"), "{}", outcome.text());
}

#[test]
fn it_is_sampled_and_ends_as_alone() {
    let scratch = paths::scratch("own-allocator");
    let program = program(&scratch, &[]);
    for (options, what, function) in [
        (&["-r", "999"][..], "burn", "own_work"),
        (&["-r", "999"], "thread", "own_work"),
        (&["-r", "999"], "child", "own_work"),
        (&["--mode", "wall"], "wait", "own_wait"),
        (&["--kernel", "-r", "999"], "burn", "own_work"),
    ] {
        recorded(&scratch, options, &[program.as_os_str(), what.as_ref()], function);
    }
    // As a program that a shell becomes: the recorder has not seen it before.
    let script: [&OsStr; 5] =
        ["sh".as_ref(), "-c".as_ref(), "exec \"$0\" burn".as_ref(), program.as_ref(), "".as_ref()];
    recorded(&scratch, &["-r", "999"], &script, "own_work");
}

#[test]
fn its_crashes_are_reported() {
    let scratch = paths::scratch("own-allocator-crash");
    let program = program(&scratch, &[]);
    for what in ["burn", "thread", "crash"] {
        let alone = plain(&scratch, &program, &[what]);
        let mut uu = uu::command(&scratch, &["run", "--report-crashes", "--"]);
        let outcome = run(uu.arg(&program).arg(what), &scratch, uu::LIMIT);
        assert_eq!(outcome.status, alone.status, "{}", outcome.text());
        assert!(!outcome.stderr.contains("called before main"), "{}", outcome.text());
        assert_eq!(outcome.stderr.contains("own_crash"), what == "crash", "{}", outcome.text());
    }
    // And by a recording.
    let words = [program.as_os_str(), "crash".as_ref()];
    let recording = uu::record(&scratch, &[], |_| {}, &words).expect_code(128 + libc::SIGSEGV);
    let said = &recording.outcome.stderr;
    assert!(said.contains("ended by SIGSEGV") && said.contains("own_crash"), "{said}");
}

/// The interpreter's plugin is wanted from the start.
#[test]
fn its_scripts_are_seen() {
    let scratch = paths::scratch("own-allocator-script");
    let include = Path::new("/usr/include/lua5.4");
    if !include.is_dir() {
        return skips::skipped("a program with an allocator of its own and Lua", "no headers of Lua 5.4 are installed");
    }
    let include = format!("-I{}", include.display());
    let program = program(&scratch, &["-DLUA", &include, "-llua5.4"]);
    let script = scratch.join("script.lua");
    let text = "local function in_script()\n  local sum = 0\n  for i = 1, 20000000 do sum = sum + i % 7 end\n  \
                return sum\nend\nlocal sum = in_script()\nassert(sum > 0)\n";
    std::fs::write(&script, text).expect("scratch");
    let words = [program.as_os_str(), "script".as_ref(), script.as_os_str()];
    let recording = recorded(&scratch, &["-r", "999"], &words, "in_script");
    let samples = recording.samples();
    let with = samples.iter().filter(|s| s.frames.iter().any(|f| f.name() == "in_script")).count();
    assert!(with * 10 >= samples.len() * 8, "{with} of {} samples", samples.len());
}
