//! A client of the library in a process with what others bring: sanitizers, another malloc.

use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::{compile, paths, process, skips, uu};

fn scratch(name: &str) -> (PathBuf, PathBuf) {
    let scratch = paths::scratch(name);
    let library = compile::shared(&scratch, "libopened.so", &["native/truncated_lib.c"]);
    (scratch, library)
}

/// `context`: a handler runs when the signal comes, so that its third argument describes the interrupted stack.
#[track_caller]
fn holds(program: &Path, scratch: &Path, library: &Path, context: bool, preload: &str) {
    let mut command = Command::new(program);
    command.arg(library).arg(u32::from(context).to_string()).env("XDG_CACHE_HOME", scratch.join("cache"));
    if !preload.is_empty() {
        command.env("LD_PRELOAD", preload);
    }
    let done = process::run(&mut command, scratch, uu::LIMIT).expect_code(0);
    assert_eq!((&*done.stdout, &*done.stderr), ("ok\n", ""), "{preload}");
}

fn with_sanitizer(name: &str, option: &str, context: bool) {
    let (scratch, library) = scratch(name);
    let empty = scratch.join("empty.c");
    std::fs::write(&empty, "int main(void) { return 0; }\n").expect("scratch");
    let here = Command::new("gcc").arg(option).arg(&empty).arg("-o").arg(scratch.join("empty")).output();
    let runs = here.is_ok_and(|done| done.status.success())
        && Command::new(scratch.join("empty")).output().is_ok_and(|done| done.status.success());
    if !runs {
        return skips::skipped(
            &format!("a client that is built with {option}"),
            "gcc's programs with it do not run here",
        );
    }
    let program = compile::with_library(&scratch, "companions", &["-pthread", option]);
    holds(&program, &scratch, &library, context, "");
}

#[test]
fn address_sanitizer() {
    with_sanitizer("client-asan", "-fsanitize=address", true);
}

/// Its runtime calls handlers later and from elsewhere.
#[test]
fn thread_sanitizer() {
    with_sanitizer("client-tsan", "-fsanitize=thread", false);
}

#[test]
fn other_allocators() {
    let (scratch, library) = scratch("client-allocators");
    let program = compile::with_library(&scratch, "companions", &["-pthread"]);
    holds(&program, &scratch, &library, true, "");
    for allocator in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        // Another process opens it: an allocator is for a whole process.
        let listed =
            Command::new("/lib64/ld-linux-x86-64.so.2").arg("--preload").arg(allocator).arg("/bin/true").output();
        let is_here = listed.is_ok_and(|done| done.status.success() && done.stderr.is_empty());
        if !is_here {
            skips::skipped(&format!("a client with {allocator}"), "it is not here");
            continue;
        }
        holds(&program, &scratch, &library, true, allocator);
    }
}
