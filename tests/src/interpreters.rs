//! The CPython interpreters of this machine: Debian's, pyenv's, any `python3.N` on PATH, and those of other Debian
//! suites that `ci/interpreters` has fetched. Versions that are asked for and missing are named as skipped, once by
//! each file of tests: no test passes silently for want of an interpreter.

use crate::{builds, paths, skips};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Minor versions that the Python plugin supports, which should be tested.
pub fn served() -> std::ops::RangeInclusive<u32> {
    let (first, last) = uunwind_built_in::python::served();
    first..=last
}

/// The first one that has the syntax and the modules that all test programs use.
const MODERN: u32 = 11;

/// An interpreter of this machine.
#[derive(Clone, Debug)]
pub struct Interpreter {
    /// Path of the executable, without symbolic links.
    pub path: PathBuf,
    /// Version, such as `(11, 2)` for 3.11.2.
    pub version: (u32, u32),
    /// `sys.abiflags`: `d` for a debug build, `t` for a free-threaded one.
    pub flags: String,
    /// A label for test names, such as `3.11.2-usr-bin`; the flags follow the version.
    pub label: String,
}

impl Interpreter {
    /// Whether the build has a JIT, which PYTHON_JIT=1 turns on.
    pub fn has_jit(&self) -> bool {
        let mut ask = Command::new(&self.path);
        ask.args(["-c", "import sys; sys.exit(not (sys._jit.is_available() and sys._jit.is_enabled()))"]);
        ask.env("PYTHON_JIT", "1").output().is_ok_and(|out| out.status.success())
    }
}

/// The interpreters of supported versions that are tried: one build of each, or all ([`builds::every`]).
pub fn supported() -> Vec<Interpreter> {
    tried(every_build(), *served().start())
}

/// All interpreters of a supported version, one for each real file.
pub fn every_build() -> Vec<Interpreter> {
    all().into_iter().filter(|i| served().contains(&i.version.0)).collect()
}

/// The supported interpreters that run every test program and are tried: release builds.
pub fn modern() -> Vec<Interpreter> {
    let mut found = every_build();
    found.retain(|i| i.version.0 >= MODERN && i.flags.is_empty());
    tried(found, MODERN)
}

/// Of each minor version the build that most people have: a release, and Debian's rather than pyenv's. The others are
/// named as skipped, unless all are tried.
fn tried(mut found: Vec<Interpreter>, first: u32) -> Vec<Interpreter> {
    name_missing(&found, first);
    found.sort_by_key(|i| (i.version.0, !i.flags.is_empty(), i.label.ends_with("-pyenv")));
    if builds::every() {
        return found;
    }
    let mut seen = BTreeSet::new();
    found.retain(|interpreter| {
        let first = seen.insert(interpreter.version.0);
        if !first {
            skips::skipped(&format!("Python {}", interpreter.label), builds::LEFT_OUT);
        }
        first
    });
    found
}

/// The supported interpreters that are installed whole, with what makes virtual environments: not those that were
/// fetched from other Debian suites.
pub fn installed() -> Vec<Interpreter> {
    modern().into_iter().filter(|i| !i.path.starts_with(paths::target())).collect()
}

/// A program that `ci/interpreters` has fetched.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The folder of its Debian suite.
    pub suite: PathBuf,
    /// Its path.
    pub path: PathBuf,
    /// What follows the language in its name, such as `3.3`.
    pub version: String,
}

/// The programs of a language that `ci/interpreters` has fetched, by suite and name.
pub fn fetched(language: &str) -> Vec<Fetched> {
    let suites = paths::list(&paths::target().join("interpreters")).into_iter();
    let programs = suites.flat_map(|suite| {
        let of_suite = paths::list(&suite.join("usr/bin"));
        of_suite.into_iter().map(move |path| (suite.clone(), path))
    });
    let of_language = programs.filter_map(|(suite, path)| {
        let version = path.file_name()?.to_str()?.strip_prefix(language)?.to_owned();
        version.starts_with(|c: char| c.is_ascii_digit()).then_some(Fetched { suite, path, version })
    });
    of_language.collect()
}

/// All CPython 3 interpreters, one for each real file.
pub fn all() -> Vec<Interpreter> {
    let mut found = BTreeMap::new();
    for path in candidates() {
        let Ok(real) = path.canonicalize() else { continue };
        if found.contains_key(&real) {
            continue;
        }
        if let Some(interpreter) = ask(&real) {
            found.insert(real, interpreter);
        }
    }
    found.into_values().collect()
}

/// Names the supported minor versions, from this one on, that are not among these.
fn name_missing(found: &[Interpreter], first: u32) {
    static NAMED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
    let tests = std::env::current_exe().ok().and_then(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    // Cargo's number of the build follows.
    let tests = tests.as_deref().and_then(|name| name.rsplit_once('-')).map_or("tests", |(name, _)| name).to_owned();
    for minor in served().filter(|minor| *minor >= first && found.iter().all(|i| i.version.0 != *minor)) {
        if NAMED.lock().expect("no panic").insert(minor) {
            skips::skipped(&format!("{tests} with Python 3.{minor}"), "this machine has no such interpreter");
        }
    }
}

fn candidates() -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from("/usr/bin/python3")];
    if let Some(home) = std::env::var_os("HOME") {
        let versions = std::fs::read_dir(Path::new(&home).join(".pyenv/versions"));
        paths.extend(versions.into_iter().flatten().flatten().map(|entry| entry.path().join("bin/python3")));
    }
    let fetched = std::fs::read_dir(paths::target().join("interpreters"));
    for folder in fetched.into_iter().flatten().flatten().map(|entry| entry.path().join("usr/bin")) {
        let names = (0..100).flat_map(|minor| [format!("python3.{minor}"), format!("python3.{minor}d")]);
        paths.extend(names.map(|name| folder.join(name)).filter(|path| path.is_file()));
    }
    for folder in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        // pyenv's shims are shell scripts that start one of the above.
        if !folder.ends_with("shims") {
            paths.push(folder.join("python3"));
            let builds = ["", "d", "t", "td"];
            paths.extend(served().flat_map(|minor| builds.map(|build| folder.join(format!("python3.{minor}{build}")))));
        }
    }
    paths
}

fn ask(path: &Path) -> Option<Interpreter> {
    let program = "import sys; print(*sys.version_info[:3], sys.implementation.name, sys.abiflags)";
    let out = Command::new(path).args(["-I", "-c", program]).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    let fields: Vec<&str> = text.split_whitespace().collect();
    let (&[major, minor, micro, "cpython"], flags) = fields.split_at_checked(4)? else { return None };
    let flags = flags.concat();
    if major != "3" {
        return None;
    }
    let version = (minor.parse().ok()?, micro.parse().ok()?);
    let place = match path.strip_prefix(paths::target().join("interpreters")) {
        // The suite.
        Ok(inner) => inner.iter().next()?.to_str()?.to_owned(),
        Err(_) => path.parent()?.to_str()?.trim_matches('/').replace('/', "-"),
    };
    let place = if place.contains("pyenv") { "pyenv".to_owned() } else { place };
    let label = format!("{major}.{minor}.{micro}{flags}-{place}");
    Some(Interpreter { path: path.to_path_buf(), version, flags, label })
}
