//! `uu_walk_thread()` and `uu_walk_all()`: what other threads of a process are doing.

use std::process::Command;
use uunwind_tests::{compile, interpreters, paths, process, uu};

#[test]
fn other_threads_are_walked_or_the_reason_is_given() {
    let scratch = paths::scratch("walk-threads");
    let program = compile::with_library(&scratch, "walk_threads", &["-pthread", "-rdynamic", "-Wno-unused-result"]);
    let out = process::run(&mut Command::new(&program), &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(out.stdout, "ok\n");
}

/// Python's own frames of another thread, beside `sys._current_frames()`.
#[test]
fn threads_of_python_have_their_functions() {
    let library = paths::tree().join("lib/libuunwind.so.0");
    let found = interpreters::modern();
    assert!(!found.is_empty(), "no interpreter");
    for python in found {
        let scratch = paths::scratch("walk-threads-python");
        let mut command = Command::new(&python.path);
        command.env("XDG_CACHE_HOME", scratch.join("cache"));
        command.arg(paths::source("python/walk_threads.py")).arg(&library);
        let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
        assert_eq!(out.stdout, "ok\n", "{}", python.label);
    }
}
