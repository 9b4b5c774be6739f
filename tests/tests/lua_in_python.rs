//! Lua in Python in Lua: `lupa`'s modules for Lua 5.1 to 5.5, each with a static copy of Lua in an extension of Python.

use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_ring::facts::{FactsEntry, DATA_OFFSET, ENTRIES};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{compile, interpreters, paths, skips, uu};

/// A Python with lupa, in an environment of its own. `None`: it could not be fetched.
fn python(interpreter: &Path) -> Option<PathBuf> {
    let folder = paths::scratch("lupa");
    let python = folder.join("bin/python");
    let done = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    let made = done(Command::new(interpreter).args(["-m", "venv"]).arg(&folder))
        && done(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "lupa==2.8"]));
    made.then_some(python)
}

/// The semantic frames, outermost first: Python functions by name, Lua functions by their first line.
fn semantic_frames(sample: &Sample) -> String {
    let frames = sample.frames.iter().rev().filter_map(|frame| match frame {
        Frame::Python { name, .. } => Some(format!("py:{name}")),
        Frame::Lua { first, .. } => Some(format!("lua:{first}")),
        _ => None,
    });
    frames.collect::<Vec<_>>().join(" ")
}

/// The place of the entries in the recorder's facts, for the script.
fn facts() -> String {
    let (size, name) = (size_of::<FactsEntry>(), offset_of!(FactsEntry, plugin));
    format!("{} {ENTRIES} {size} {name}", DATA_OFFSET - ENTRIES * size)
}

#[test]
fn one_stack_with_every_boundary() {
    let subject = "Lua in Python (lupa)";
    let Some(interpreter) = interpreters::modern().into_iter().find(|i| i.path.starts_with("/usr")) else {
        return skips::skipped(subject, "Debian's Python is not one that is served");
    };
    let Some(python) = python(&interpreter.path) else {
        return skips::skipped(subject, "lupa could not be installed by pip");
    };
    let scratch = paths::scratch("lua-in-python");
    let cap = compile::shared(&scratch, "libcap.so", &["python/cap.c"]);
    let source = paths::source("python/lupa_stacks.py");
    let program = [python.as_os_str(), source.as_os_str()];
    let configure = |command: &mut Command| {
        command.env("UU_TEST_CAP", &cap).env("UU_TEST_FACTS", facts());
    };
    let recording = uu::record(&scratch, &["--explicit", "-r", "1"], configure, &program).expect_code(0);
    let expected: Vec<&str> = recording.outcome.stdout.lines().collect();
    let samples = recording.samples();
    let explicit: Vec<&Sample> = samples.iter().filter(|s| s.kind == "explicit").collect();
    assert!(expected.len() >= 30 && explicit.len() == expected.len(), "{} of {}", explicit.len(), expected.len());
    for (sample, expected) in explicit.iter().zip(expected).filter(|(_, expected)| *expected != "any") {
        assert_eq!(semantic_frames(sample), expected, "\n{}", sample.text());
        assert!(sample.complete() && !sample.flags.contains("desync"), "\n{}", sample.text());
    }
}
