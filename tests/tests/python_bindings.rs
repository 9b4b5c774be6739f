//! The frames of ctypes and cffi between Python and C: hidden where they pass a call on, and shown on request.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use uunwind_tests::{compile, interpreters, paths, skips, uu};

/// A call from Python to C, back to Python, and to C. Between each two of these are frames of the binding.
const STACK: [&str; 4] = ["call", "outer", "back", "cap"];

/// The names of a folded stack's frames from `call` on, without files and lines.
fn functions(folded: &str) -> Option<Vec<&str>> {
    let (stack, _) = folded.rsplit_once(' ')?;
    let names: Vec<&str> = stack.split(';').map(|frame| frame.split(' ').next().unwrap_or(frame)).collect();
    let name = |name: &&str| name.rsplit('.').next() == Some("call");
    let call = names.iter().position(name)?;
    (names.last() == Some(&"cap")).then(|| names[call..].to_vec())
}

#[track_caller]
fn is_hidden(python: &Path, binding: &str) {
    let scratch = paths::scratch(&format!("bindings-{binding}"));
    let library = compile::shared(&scratch, "libbindings.so", &["python/cap.c", "python/bindings.c"]);
    let source = paths::source("python/bindings.py");
    let program = [python.as_os_str(), source.as_os_str(), OsStr::new(binding), library.as_os_str()];
    let recording = uu::record(&scratch, &["--explicit", "-r", "1"], |_| (), &program).expect_code(0);
    let [hidden, all] = ["hide", "show"].map(|mode| recording.report_with("folded", &["--native-frames", mode]));
    let stack = |folded: &str| -> Vec<String> {
        let names = folded.lines().find_map(functions).unwrap_or_else(|| panic!("no stack of {binding}:\n{folded}"));
        names.iter().map(|name| name.rsplit('.').next().unwrap_or(name).to_owned()).collect()
    };
    let name = python.display();
    assert_eq!(stack(&hidden), STACK, "{name} {binding}");
    let all = stack(&all);
    let places: Vec<_> = STACK.iter().filter_map(|name| all.iter().position(|n| n == name)).collect();
    assert!(
        places.len() == STACK.len() && places.is_sorted_by(|a, b| a + 1 < *b),
        "{name} {binding}: frames of the binding are between {STACK:?}:\n{all:?}"
    );
}

#[test]
fn what_passes_a_call_on_is_hidden() {
    let pythons = interpreters::installed();
    if pythons.is_empty() {
        return skips::skipped("bindings of Python", "this machine has no Python that is served");
    }
    let mut cffi = 0;
    for python in &pythons {
        is_hidden(&python.path, "ctypes");
        let mut has_cffi = Command::new(&python.path);
        if has_cffi.args(["-c", "import _cffi_backend"]).output().is_ok_and(|output| output.status.success()) {
            is_hidden(&python.path, "cffi");
            cffi += 1;
        }
    }
    if cffi == 0 {
        skips::skipped("the frames of cffi", "no Python of this machine has _cffi_backend");
    }
}
