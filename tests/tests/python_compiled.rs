//! Functions of Python that were compiled to native code by Cython, mypyc and Nuitka: they have their names and lines
//! in Python, and the wrappers that lead to them are hidden.

use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use uunwind_tests::{compile, packages, paths, skips, uu};

/// A frame between `outer` and `back`: function, file, line.
type Shown = (String, String, u64);

/// The line of a source whose comment names a function: there it makes its call.
fn line_of(source: &str, function: &str) -> u64 {
    let comment = format!("  # {function}");
    let line = source.lines().position(|line| line.ends_with(&comment)).unwrap_or_else(|| panic!("{function}"));
    line as u64 + 1
}

/// The interpreter with the compilers; none, and named, where it or Python's headers are missing.
fn environment() -> Option<PathBuf> {
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compilers = ["cython==3.3.1", "mypy==1.18.2", "setuptools==80.9.0", "nuitka==4.3.3"];
    let python = MADE.get_or_init(|| packages::environment("compilers", &compilers)).clone()?;
    let header = PathBuf::from(asked(&python, "sysconfig.get_path('include')")).join("Python.h");
    if !header.is_file() {
        skips::skipped("compiled Python", "the newest Python that is installed has no Python.h");
        return None;
    }
    Some(python)
}

fn asked(python: &Path, what: &str) -> String {
    let program = format!("import sysconfig; print({what})");
    let out = Command::new(python).args(["-c", &program]).output().expect("the interpreter runs");
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

#[track_caller]
fn done(command: &mut Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = [out.stdout, out.stderr].concat();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
}

/// The frames from `outer` to `back`, outermost first, as a report shows them.
fn frames(python: &Path, folder: &Path, module: &str, mode: &str) -> Vec<Shown> {
    let library = compile::shared(folder, "libcap.so", &["python/cap.c"]);
    let script = paths::source("python/compiled/run.py");
    let words = [folder.as_os_str(), OsStr::new(module), library.as_os_str()];
    let program = [&[python.as_os_str(), script.as_os_str()], &words[..]].concat();
    let recording = uu::record(folder, &["--explicit", "-r", "1"], |_| (), &program).expect_code(0);
    let json = recording.report_with("json", &["--native-frames", mode]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let all = list(&report["frames"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for stack in list(&report["stacks"]) {
        let indices = list(&stack["frames"]);
        let frames = indices.iter().rev().filter_map(|index| all.get(index.as_u64()? as usize));
        let frames: Vec<Shown> =
            frames.map(|f| (text(&f["function"]), text(&f["file"]), f["line"].as_u64().unwrap_or(0))).collect();
        let place = |name: &str| frames.iter().position(|frame| frame.0 == name);
        if let (Some(outer), Some(back)) = (place(&format!("{module}.outer")), place("back")) {
            return frames[outer..back].to_vec();
        }
    }
    panic!("no stack from {module}.outer to back:\n{}", recording.report_with("folded", &["--native-frames", mode]));
}

fn names(frames: &[Shown]) -> Vec<&str> {
    frames.iter().map(|frame| &*frame.0).collect()
}

/// The frames as they must be shown.
fn expected(module: &str, source: &str, functions: &[&str]) -> Vec<Shown> {
    let text = std::fs::read_to_string(paths::source(&format!("python/compiled/{source}"))).expect("the source");
    functions.iter().map(|f| (format!("{module}.{f}"), source.to_owned(), line_of(&text, f))).collect()
}

/// The file names instead of paths.
fn by_name(frames: Vec<Shown>) -> Vec<Shown> {
    let file = |path: String| path.rsplit('/').next().unwrap_or_default().to_owned();
    frames.into_iter().map(|(function, path, line)| (function, file(path), line)).collect()
}

const BY_CYTHON: [&str; 7] = ["outer", "outer.inner", "Fast.meth", "Plain.meth", "load_x", "both", "leaf"];

#[test]
fn cython() {
    let Some(python) = environment() else { return };
    let folder = paths::scratch("compiled-cython");
    let (name, source) = ("by_cython", folder.join("by_cython.pyx"));
    std::fs::copy(paths::source("python/compiled/by_cython.pyx"), &source).expect("the scratch folder");
    done(Command::new(&python).args(["-m", "cython", "-3"]).arg(&source));
    let include = format!("-I{}", asked(&python, "sysconfig.get_path('include')"));
    let generated = folder.join("by_cython.c");
    let expected = expected(name, "by_cython.pyx", &BY_CYTHON);
    // Without optimization each wrapper calls its function; with it, it contains it.
    for options in [["-O2", "-g0"], ["-O2", "-g"], ["-O0", "-g"]] {
        compile::gcc_files(
            &folder,
            "by_cython.so",
            std::slice::from_ref(&generated),
            &[&["-shared", "-fPIC", "-w", &include], &options[..]].concat(),
        );
        let shown = frames(&python, &folder, name, "hide");
        if options[1] == "-g" {
            assert_eq!(by_name(shown), expected, "{options:?}");
        } else {
            // What was inlined is known from debug information only.
            let all: Vec<&str> = names(&expected);
            assert!(names(&shown).iter().all(|name| all.contains(name)), "{options:?}: {shown:?}");
            assert!(shown.len() >= 5, "{options:?}: {shown:?}");
        }
        let all = frames(&python, &folder, name, "show");
        let wrappers = names(&all).iter().filter(|name| name.starts_with("__pyx_pw_")).count();
        assert_eq!(wrappers > 0, options[0] == "-O0", "{options:?}: {all:?}");
    }
    // Where the generated source is gone, functions have their names, and its lines.
    std::fs::remove_file(&generated).expect("it is there");
    let shown = frames(&python, &folder, name, "hide");
    assert_eq!(names(&shown), names(&expected));
    assert!(shown.iter().all(|(_, file, line)| file.ends_with("by_cython.c") && *line > 0), "{shown:?}");
}

#[test]
fn mypyc() {
    let Some(python) = environment() else { return };
    let folder = paths::scratch("compiled-mypyc");
    let name = "by_mypyc";
    std::fs::copy(paths::source("python/compiled/by_mypyc.py"), folder.join("by_mypyc.py"))
        .expect("the scratch folder");
    let program = "import sys; from mypyc.__main__ import main; main()";
    done(Command::new(&python).args(["-c", program, "by_mypyc.py"]).current_dir(&folder));
    let expected = expected(name, "by_mypyc.py", &["outer", "through_python", "Plain.meth", "leaf"]);
    assert_eq!(frames(&python, &folder, name, "hide"), expected);
}

/// Nuitka has no lines of Python: those of the C source that it made are shown. Its symbols have no classes.
#[test]
fn nuitka() {
    let Some(python) = environment() else { return };
    let folder = paths::scratch("compiled-nuitka");
    let (name, source) = ("by_nuitka", folder.join("by_nuitka.py"));
    std::fs::copy(paths::source("python/compiled/by_nuitka.py"), &source).expect("the scratch folder");
    let mut compile = Command::new(&python);
    compile.args(["-m", "nuitka", "--module", "--debug", "--quiet", "--disable-cache=all", "by_nuitka.py"]);
    done(compile.current_dir(&folder));
    // What is imported is the compiled module.
    std::fs::remove_file(&source).expect("it is there");
    let shown = by_name(frames(&python, &folder, name, "hide"));
    let functions = ["outer", "outer.inner", "meth", "leaf"].map(|function| format!("{name}.{function}"));
    assert_eq!(names(&shown), functions);
    assert!(shown.iter().all(|(_, file, line)| file == "module.by_nuitka.c" && *line > 0), "{shown:?}");
    // The functions by which it calls are glue.
    let all = frames(&python, &folder, name, "show");
    assert!(names(&all).iter().any(|name| name.starts_with("CALL_FUNCTION_")), "{all:?}");
}
