//! Where this machine has interpreters.

use std::path::PathBuf;

/// Interpreters of a version: on PATH, among those of other Debian suites that `ci/interpreters` has fetched, or among
/// pyenv's. pyenv's shims on PATH fail for versions that are not active.
pub fn candidates(version: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from(format!("python{version}"))];
    let root = PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".pyenv/versions");
    let target = std::env::current_exe().ok().and_then(|me| Some(me.ancestors().nth(3)?.join("interpreters")));
    let fetched = target.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    found.extend(fetched.map(|suite| suite.path().join(format!("usr/bin/python{version}"))));
    let installed = std::fs::read_dir(root).into_iter().flatten().flatten();
    let fitting = installed.filter(|e| e.file_name().to_string_lossy().starts_with(&format!("{version}.")));
    found.extend(fitting.map(|e| e.path().join(format!("bin/python{version}"))));
    found
}
