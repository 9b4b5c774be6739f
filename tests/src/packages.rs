//! Python packages that tests need, each set in its own virtual environment.

use crate::{interpreters, paths, skips};
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
