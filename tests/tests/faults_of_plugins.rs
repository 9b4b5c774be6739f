//! Programs that handle their own faults, with a plugin that faults in every walk until it is switched off: neither
//! sees the other's faults.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use uunwind_tests::pair::{both, without_addresses, Pair};
use uunwind_tests::{compile, faces, interpreters, java, paths, skips};

/// Runs the program without `uu`, and with `uu` and the bad plugin: output and exit code must be the same, and the
/// plugin must have failed.
#[track_caller]
fn same(name: &str, face: &str, clean: impl Fn(&str) -> String, words: &[&OsStr]) -> Pair {
    let bad = faces::bad(&paths::scratch(&format!("{name}-plugin")));
    let environment = |command: &mut Command| {
        command.env("UU_PLUGINS", &bad).env("UU_FACE", face);
    };
    let pair = both(name, &["-r", "999"], environment, words).same_after(clean);
    let said = &pair.recording.outcome.stderr;
    let line = said.lines().find(|l| l.contains("plugin \"bad\" failed"));
    println!("{name}, {face}: {}", line.unwrap_or_else(|| panic!("the plugin was never called: {said}")));
    pair
}

#[track_caller]
fn faults(mode: &str, face: &str) {
    let scratch = paths::scratch(mode);
    let program = compile::gcc(&scratch, "faults", &["native/faults.c"], &["-pthread", faces::CLAIMED]);
    let pair = same(mode, face, str::to_owned, &[program.as_os_str(), OsStr::new(mode)]);
    assert_eq!(pair.plain.code, 0, "{:?}", pair.plain);
}

#[test]
fn handlers_installed_after_us() {
    faults("after", "null-read");
}

#[test]
fn handlers_installed_before_us() {
    let scratch = paths::scratch("before");
    let early = compile::shared(&scratch, "libearly.so", &["native/faults_early.c"]);
    let options = ["-pthread", faces::CLAIMED, "-Wl,--no-as-needed", early.to_str().expect("UTF-8")];
    let program = compile::gcc(&scratch, "faults", &["native/faults.c"], &options);
    same("before", "wild-read", str::to_owned, &[program.as_os_str(), OsStr::new("before")]);
}

#[test]
fn samples_inside_a_handler_of_faults() {
    faults("inside", "wild-jump");
}

#[test]
fn samples_inside_a_handler_on_an_alternate_stack() {
    faults("inside-alternate", "null-read");
}

#[test]
fn threads_that_block_every_signal() {
    faults("blocked", "divide");
}

#[test]
fn threads_with_small_alternate_stacks() {
    faults("small", "null-read");
}

#[test]
fn overflows_of_the_stack() {
    faults("overflow", "trap");
}

#[test]
fn children_of_all_kinds() {
    faults("children", "wild-write");
}

#[test]
fn compiled_java_code() {
    let Some(words) = java::null_checks(&paths::scratch("jvm-unrelated")) else { return };
    let words: Vec<&OsStr> = words.iter().map(|w| &**w).collect();
    let pair = same("jvm-unrelated", "unrelated-fault", str::to_owned, &words);
    assert_eq!((pair.plain.code, &*pair.plain.stdout), (0, java::NULL_CHECKS_SAY));
}

#[test]
fn webassembly_in_node() {
    if Command::new("node").arg("--version").output().is_err() {
        skips::skipped("Node with WebAssembly that traps, and a faulting plugin", "there is no node on this machine");
        return;
    }
    let script = paths::source("native/wasm_traps.js");
    let pair = same("node-unrelated", "unrelated-fault", str::to_owned, &[OsStr::new("node"), script.as_os_str()]);
    assert!(pair.plain.stdout.contains("traps 100000"));
}

/// Through the plugin's library into Python again; at the end a fault of the program's own, in the same place.
const PYTHON: &str = "\
import ctypes, sys, time
library = ctypes.CDLL(sys.argv[1])
back = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_uint)
library.through_bad.argtypes, library.through_bad.restype = [back, ctypes.c_uint], ctypes.c_double
def work(n):
    end = time.process_time() + 0.3
    while time.process_time() < end: pass
    return n
def crash(n):
    ctypes.string_at(0)
    return n
print(library.through_bad(back(work), 7), flush=True)
library.through_bad(back(crash), 7)
";

#[test]
fn faulthandler_of_python() {
    let library = faces::library(&paths::scratch("faulthandler"));
    for python in interpreters::modern() {
        let words = [python.path.as_os_str(), OsStr::new("-X"), OsStr::new("faulthandler"), OsStr::new("-c")];
        let words = [&words[..], &[OsStr::new(PYTHON), library.as_os_str()]].concat();
        let pair = same(&format!("faulthandler-{}", python.label), "null-read", without_addresses, &words);
        assert_eq!((pair.plain.code, &*pair.plain.stdout), (128 + 11, "8.0\n"), "{:?}", pair.plain);
        assert!(pair.plain.stderr.contains("in crash"), "{:?}", pair.plain);
    }
}

/// All modes of the program must be in this file, so that a new one is not forgotten.
#[test]
fn the_list_is_that_of_the_program() {
    let source = std::fs::read_to_string(paths::source("native/faults.c")).expect("the program's source");
    let usage = source.lines().find_map(|l| l.trim().strip_prefix("Usage: faults ")).expect("a line of usage");
    let here = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults_of_plugins.rs"))
        .expect("this file");
    // Its handler leaves walks by siglongjmp; no fault may be outstanding then. The other two are about a number.
    let elsewhere = ["left", "strict", "depth"];
    for mode in usage.split('|').map(|m| m.trim_end_matches([' ', '*', '/'])) {
        assert!(elsewhere.contains(&mode) || here.contains(&format!("\"{mode}\"")), "{mode}");
    }
}
