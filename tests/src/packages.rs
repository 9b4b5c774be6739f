//! Python packages that tests need, each set in its own virtual environment.

use crate::interpreters::{self, Interpreter};
use crate::{paths, skips};
use std::path::PathBuf;
use std::process::Command;

/// The interpreter of a virtual environment with these packages, which is made on first use and kept. `None`, and
/// reported as skipped, if it is not available. Must not be called by several tests of one file at once.
///
/// # Panics
/// If an interpreter cannot make an environment.
#[track_caller]
pub fn environment(name: &str, packages: &[&str]) -> Option<PathBuf> {
    let Some(python) = interpreters::installed().into_iter().max_by_key(|i| i.version) else {
        skips::skipped(name, "no supported Python is installed");
        return None;
    };
    let folder = paths::target().join("uu-tests").join(format!("{name}-{}", python.label));
    let inside = folder.join("bin/python3");
    if !folder.join("ready").is_file() {
        let made = Command::new(&python.path).args(["-m", "venv"]).arg(&folder).output().expect("the interpreter runs");
        assert!(made.status.success(), "venv: {}", String::from_utf8_lossy(&made.stderr));
        let mut pip = Command::new(&inside);
        let done = pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check"]).args(packages).output();
        let done = done.expect("the interpreter runs");
        if !done.status.success() {
            let why = format!("pip could not install {packages:?}: {}", String::from_utf8_lossy(&done.stderr).trim());
            skips::skipped(name, why.lines().next_back().unwrap_or(&why));
            return None;
        }
        std::fs::write(folder.join("ready"), "").expect("the environment's folder");
    }
    Some(inside)
}

/// A folder with these packages for an interpreter, to be named in PYTHONPATH: wheels that need no other package,
/// unpacked by the pip of an installed interpreter, which need not be this one. It is made on first use and kept.
/// `None`, and reported as skipped, if one is not available. Must not be called by several tests for the same
/// interpreter at once.
///
/// # Panics
/// If there is no place for it.
pub fn folder(python: &Interpreter, packages: &[&str]) -> Option<PathBuf> {
    let what = format!("{packages:?} for {}", python.label);
    let Some(with_pip) = interpreters::installed().into_iter().max_by_key(|i| i.version) else {
        skips::skipped(&what, "no supported Python is installed");
        return None;
    };
    let minor = python.version.0;
    let folder = paths::target().join("uu-tests").join(format!("packages-{}-{}", python.label, packages.join("-")));
    if !folder.join("ready").is_file() {
        let mut pip = Command::new(&with_pip.path);
        pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]);
        pip.args([format!("--python-version=3.{minor}"), "--implementation=cp".into(), format!("--abi=cp3{minor}")]);
        pip.args(["--abi=abi3", "--abi=none", "--platform=any", "--platform=manylinux2014_x86_64"]);
        pip.args(["--platform=manylinux_2_24_x86_64", "--platform=manylinux_2_28_x86_64", "--target"]);
        let done = pip.arg(&folder).args(packages).output().expect("the interpreter runs");
        if !done.status.success() {
            let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            skips::skipped(&what, why.lines().next_back().unwrap_or(&why));
            return None;
        }
        std::fs::write(folder.join("ready"), "").expect("the packages' folder");
    }
    Some(folder)
}
