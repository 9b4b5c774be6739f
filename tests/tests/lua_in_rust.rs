//! Lua inside a Rust program, as it is built and stripped of all symbols.

use std::process::Command;
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{executable, paths, uu};

/// The Lua functions, outermost first: file and executing line.
fn lua_functions(sample: &Sample) -> String {
    let frames = sample.frames.iter().rev().filter_map(|frame| match frame {
        Frame::Lua { file, line, .. } => Some(format!("{file}:{line}")),
        _ => None,
    });
    frames.collect::<Vec<_>>().join(" ")
}

fn check(strip: bool) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // Of the whole workspace: other features would replace libraries that tests beside this one link.
    build.args(["build", "--locked", "--workspace", "--example", "lua_in_rust"]);
    let done = build.current_dir(paths::root()).output().expect("cargo runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let built = paths::target().join("debug/examples/lua_in_rust");
    let scratch = paths::scratch(&format!("lua-in-rust-{strip}"));
    let program = scratch.join("lua_in_rust");
    executable::copy(&built, &program);
    if strip {
        let done = Command::new("strip").arg("--strip-all").arg(&program).status().expect("strip runs");
        assert!(done.success());
    }
    let recording = uu::record(&scratch, &["--explicit", "-r", "1"], |_| {}, &[program.as_os_str()]).expect_code(0);
    let samples = recording.samples();
    let explicit: Vec<&Sample> = samples.iter().filter(|s| s.kind == "explicit").collect();
    let expected: Vec<&str> = recording.outcome.stdout.lines().collect();
    assert!(expected.len() == 5 && explicit.len() == expected.len(), "{} of {}", explicit.len(), expected.len());
    for (sample, expected) in explicit.iter().zip(expected) {
        assert_eq!(lua_functions(sample), expected, "\n{}", sample.text());
        assert!(sample.complete() && sample.flags == "-", "\n{}", sample.text());
    }
}

#[test]
fn with_symbols() {
    check(false);
}

#[test]
fn stripped() {
    check(true);
}
