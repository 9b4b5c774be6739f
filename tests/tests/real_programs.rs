//! Real programs, as they are installed: at least 99 of 100 samples have a complete stack; the reasons of the others
//! are printed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use uunwind_tests::{interpreters, paths, samples, skips, uu};

/// Least share of whole stacks.
const WHOLE: f64 = 0.99;
const RATE: &str = "999";
/// Samples without which a test says nothing. The programs have two or three hundred where the kernel ticks 250 times a
/// second; on a machine twice as fast, half of that.
const LEAST: usize = 50;

/// Whether the sample's flags say that Python frames are missing. "facts-pending" is also caused by objects that were
/// just opened and are no interpreter; the files on the stack distinguish the cases.
fn lacks_python(sample: &samples::Sample) -> bool {
    // The interpreter itself: threads of a library below lib/python3 may have nothing to do with it.
    let interpreter = |object: &str| object.rsplit('/').next().is_some_and(|name| name.contains("python3"));
    let in_python = |f: &samples::Frame| matches!(f, samples::Frame::Native { object, .. } if interpreter(object));
    match &*sample.flags {
        "" | "-" => false,
        "facts-pending" => sample.frames.iter().any(in_python) && !sample.frames.iter().any(samples::Frame::is_python),
        _ => true,
    }
}

/// Records `program`, and prints how many of its stacks are whole. Nothing is demanded.
#[track_caller]
fn look(name: &str, folder: &Path, program: &[&OsStr]) {
    let samples = uu::record(folder, &["-r", RATE], |_| {}, program).expect_code(0).samples();
    let (share, reasons) = samples::completeness(&samples);
    println!("{name} (reported only): {} samples, {:.2} % whole; others {reasons:?}", samples.len(), share * 100.0);
}

/// Records `program`, and looks at its stacks. `least`: samples without which the test says nothing.
#[track_caller]
fn whole_stacks(name: &str, folder: &Path, least: usize, program: &[&OsStr]) {
    let recording = uu::record(folder, &["-r", RATE], |_| {}, program).expect_code(0);
    let samples = recording.samples();
    let flagged = samples.iter().filter(|s| !matches!(&*s.flags, "" | "-")).count();
    let good = samples.iter().filter(|s| s.complete() && !lacks_python(s)).count();
    let (_, reasons) = samples::completeness(&samples);
    let share = good as f64 / samples.len().max(1) as f64;
    println!("{name}: {} samples, {:.2} % whole; others {reasons:?}; flagged {flagged}", samples.len(), share * 100.0);
    assert!(samples.len() >= least, "{name}: only {} samples: {}", samples.len(), recording.outcome.text());
    let example = samples.iter().find(|s| !s.complete()).map(|s| s.text()).unwrap_or_default();
    assert!(
        share >= WHOLE,
        "{name}: {:.2} % whole, others {reasons:?}, flagged {flagged}; one of them:\n{example}",
        share * 100.0
    );
}

fn words<'a>(words: &[&'a str]) -> Vec<&'a OsStr> {
    words.iter().map(|w| OsStr::new(*w)).collect()
}

#[test]
fn sqlite3_on_a_heavy_query() {
    let query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1600000) \
        SELECT count(*), sum(length(hex(i))), max(printf('%08d', i * 7919 % 100003)) FROM (SELECT i FROM n ORDER BY i * 31 % 1009, i DESC);";
    whole_stacks("sqlite3", &paths::scratch("sqlite"), LEAST, &words(&["sqlite3", ":memory:", query]));
}

/// Some megabytes of text that packs neither too well nor too badly.
fn text(folder: &Path, megabytes: usize) -> PathBuf {
    let path = folder.join("text");
    let mut out = String::new();
    let mut seed = 1u32;
    while out.len() < megabytes << 20 {
        seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
        out += ["walk ", "frame ", "stack ", "return ", "address\n", "rule "][(seed >> 16) as usize % 6];
        out += &(seed >> 25).to_string();
    }
    std::fs::write(&path, out).expect("scratch");
    path
}

#[test]
fn xz_and_zstd() {
    let folder = paths::scratch("pack");
    let text = text(&folder, 6);
    let text = text.to_str().expect("UTF-8");
    whole_stacks("xz", &folder, LEAST, &words(&["xz", "-6", "-k", "-T1", text]));
    whole_stacks("zstd", &folder, LEAST, &words(&["zstd", "-q", "-15", "-T2", text]));
    // Its threads block every signal while they live, ours too.
    look("xz with threads", &folder, &words(&["xz", "-6", "-k", "-f", "-T2", text]));
}

#[test]
fn gcc_on_a_large_file() {
    let folder = paths::scratch("gcc");
    let source = folder.join("graph.c");
    std::fs::write(&source, uunwind_tests::call_graph::source(1.0)).expect("scratch");
    let out = folder.join("graph");
    let program = [&words(&["gcc", "-O2", "-g", "-o"])[..], &[out.as_os_str(), source.as_os_str()]].concat();
    whole_stacks("gcc -O2", &folder, LEAST, &program);
}

/// The newest supported interpreter, in a virtual environment with what the tests need from PyPI. Made once.
fn environment() -> Option<&'static (PathBuf, PathBuf)> {
    static MADE: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    MADE.get_or_init(make_environment).as_ref()
}

fn make_environment() -> Option<(PathBuf, PathBuf)> {
    let python = interpreters::installed().into_iter().max_by_key(|i| i.version)?;
    let folder = paths::target().join("uu-tests").join(format!("environment-{}", python.label));
    let inside = folder.join("bin/python3");
    if !folder.join("ready").is_file() {
        let made = Command::new(&python.path).args(["-m", "venv"]).arg(&folder).output().expect("the interpreter runs");
        assert!(made.status.success(), "venv: {}", String::from_utf8_lossy(&made.stderr));
        let mut pip = Command::new(&inside);
        pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "black", "numpy", "pytest"]);
        let done = pip.output().expect("the interpreter runs");
        if !done.status.success() {
            let why = format!("pip could not install what they need: {}", String::from_utf8_lossy(&done.stderr).trim());
            skips::skipped("black, numpy and pytest", why.lines().next_back().unwrap_or(&why));
            return None;
        }
        std::fs::write(folder.join("ready"), "").expect("the environment's folder");
    }
    Some((python.path, inside))
}

/// A copy of a part of the standard library, to work on.
fn library(python: &Path, folder: &Path, parts: &str) -> PathBuf {
    let copy = folder.join("library");
    let program = format!(
        "import glob, os, shutil, sys, sysconfig\nfrom pathlib import Path\nsource = Path(sysconfig.get_path('stdlib'))\n\
         for file in list(source.glob({parts:?})):\n    to = Path(sys.argv[1]) / file.relative_to(source)\n\
         \x20   to.parent.mkdir(parents=True, exist_ok=True)\n    shutil.copyfile(file, to)\n"
    );
    let done = Command::new(python).args(["-c", &program]).arg(&copy).output().expect("the interpreter runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    copy
}

#[test]
fn compileall_over_the_standard_library() {
    for python in interpreters::modern() {
        let folder = paths::scratch("compileall");
        let copy = library(&python.path, &folder, "[a-t]*.py");
        // At every level of optimization: one level alone is soon over.
        let levels = ["-m", "compileall", "-q", "-f", "-o", "0", "-o", "1", "-o", "2"];
        let program = [&[python.path.as_os_str()], &words(&levels)[..], &[copy.as_os_str()]].concat();
        whole_stacks(&format!("compileall on {}", python.label), &folder, LEAST, &program);
    }
}

#[test]
fn black_over_the_standard_library() {
    let Some((plain, inside)) = environment() else { return };
    let folder = paths::scratch("black");
    let copy = library(plain, &folder, "[a-c]*.py");
    // Makes the folder a separate project: black skips files that a surrounding project's .gitignore lists.
    std::fs::write(folder.join("pyproject.toml"), "[tool.black]\n").expect("the scratch folder");
    // One worker process for each CPU: black forks them itself.
    let program = [&[inside.as_os_str()], &words(&["-m", "black", "-q", "--fast"])[..], &[copy.as_os_str()]].concat();
    whole_stacks("black", &folder, LEAST, &program);
}

#[test]
fn numpy_with_python_callbacks() {
    let Some((_, inside)) = environment() else { return };
    let folder = paths::scratch("numpy");
    let source = "import numpy as np\ndef f(x): return float(x) ** 1.5 + 1\ng = np.vectorize(f)\na = np.linspace(0, 1, 200000)\n\
        for _ in range(32):\n    g(a); np.apply_along_axis(lambda r: np.sort(r)[0] + f(r[0]), 0, a.reshape(20, -1))\n\
        \x20   np.frompyfunc(lambda x, y: x / 2 + f(y), 2, 1).reduce(a.astype(object)[:50000]); np.sin(np.sort(a * 7919 % 1)).sum()\n";
    whole_stacks("numpy", &folder, LEAST, &[inside.as_os_str(), "-c".as_ref(), source.as_ref()]);
    // Hand-written kernels of the linear algebra library have no unwind information.
    let source = "import numpy as np\nm = np.random.default_rng(1).random((400, 400))\nfor _ in range(5): np.linalg.eigvals(m)\n";
    look("numpy, linear algebra", &folder, &[inside.as_os_str(), "-c".as_ref(), source.as_ref()]);
}

/// pytest turns faulthandler on, hence handlers for SIGSEGV and others that are not ours.
#[test]
fn pytest_with_faulthandler() {
    let Some((_, inside)) = environment() else { return };
    let folder = paths::scratch("pytest");
    let source = "import faulthandler, pytest\n@pytest.mark.parametrize('n', range(480))\ndef test_sum(n):\n\
        \x20   assert faulthandler.is_enabled()\n    assert sum(i for i in range(60000 + n)) > 0\n";
    std::fs::write(folder.join("test_sums.py"), source).expect("scratch");
    let program =
        [&[inside.as_os_str()], &words(&["-m", "pytest", "-q", "-p", "no:cacheprovider"])[..], &[folder.as_os_str()]]
            .concat();
    whole_stacks("pytest", &folder, LEAST, &program);
}
