//! Programs with code that is registered at run time, each thread in code that is described in another way
//! (`native/registered.c`).

use crate::{compile, paths};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The threads of one of the two programs, in the order in which they are printed: their names, and what their two
/// functions are shown as.
pub type Threads = &'static [(&'static str, [&'static str; 2])];

const WINDOWS: Threads =
    &[("eh-frame", ["eh_frame_inner", "eh_frame_outer"]), ("sframe", ["sframe_inner", "sframe_outer"])];
const UNNAMED: &str = "[JIT code]";
const LISTS: Threads = &[
    ("sorted", [UNNAMED; 2]),
    ("register", [UNNAMED; 2]),
    ("gdb", ["gdb_inner", "gdb_outer"]),
    ("placed", ["placed_inner", "placed_outer"]),
];

/// Both programs: that with windows of `uu.h`, and that with the lists of libgcc and GDB, without uu in it.
pub fn programs(scratch: &Path) -> [(PathBuf, Threads); 2] {
    let emitter = format!("-I{}", paths::root().join("examples/jit").display());
    let options = [&*emitter, "-pthread", "-Wno-unused-function"];
    let windows = compile::with_library(scratch, "registered", &[&options[..], &["-DWINDOWS"]].concat());
    let with = scratch.join("windows");
    std::fs::rename(windows, &with).expect("scratch");
    let include = format!("-I{}", paths::tree().join("include").display());
    let lists = compile::gcc(scratch, "lists", &["native/registered.c"], &[&options[..], &[&include]].concat());
    [(with, WINDOWS), (lists, LISTS)]
}

/// The second program, static.
pub fn static_program(scratch: &Path) -> PathBuf {
    let emitter = format!("-I{}", paths::root().join("examples/jit").display());
    let include = format!("-I{}", paths::tree().join("include").display());
    let options = [&*emitter, &include, "-pthread", "-Wno-unused-function", "-static"];
    compile::gcc(scratch, "static", &["native/registered.c"], &options)
}

/// The libgccs of other suites that `ci/interpreters` has fetched.
pub fn other_libgccs() -> Vec<PathBuf> {
    let fetched = std::fs::read_dir(paths::target().join("interpreters")).into_iter().flatten();
    let place = |suite: std::fs::DirEntry| suite.path().join("usr/lib/x86_64-linux-gnu/libgcc_s.so.1");
    fetched.filter_map(|suite| Some(place(suite.ok()?))).filter(|path| path.is_file()).collect()
}

/// The chain of a thread, leaf first, from the function that its code calls.
pub fn chain(functions: [&'static str; 2]) -> [&'static str; 4] {
    ["called_back", functions[0], functions[1], "in_thread"]
}

/// A dump has all these threads, each with its whole chain and the number of frames, from the code's callee on, that it
/// has captured itself (0: it did not).
#[track_caller]
pub fn expect(dump: &Value, threads: Threads, captured: &[usize]) {
    for ((name, functions), captured) in threads.iter().zip(captured) {
        let of = |thread: &&Value| {
            let name: Value = (*name).into();
            // Core files have no names of threads.
            thread["name"] == name
                || thread["frames"].as_array().is_some_and(|frames| {
                    functions[0] != UNNAMED && frames.iter().any(|frame| frame["function"] == functions[0])
                })
        };
        let all = dump["threads"].as_array().expect("threads");
        let thread = all.iter().find(of).unwrap_or_else(|| panic!("no thread {name}: {dump:#}"));
        let frames = thread["frames"].as_array().expect("frames");
        let shown: Vec<&str> = frames.iter().map(|frame| frame["function"].as_str().expect("a name")).collect();
        let from = shown.iter().position(|function| *function == "called_back");
        let outer = &shown[from.unwrap_or_else(|| panic!("{name}: {thread:#}"))..];
        assert_eq!(outer[..4], chain(*functions), "{name}: {thread:#}");
        assert!(*captured == 0 || outer.len() == *captured, "{name} has captured {captured} frames: {thread:#}");
        assert_eq!(thread["complete"], true, "{name}: {thread:#}");
    }
}
