//! Paths: the project, the built tree, and what tests write.

pub use crate::scratch::folder as scratch;
use std::path::{Path, PathBuf};

/// The project's root folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie inside the project").to_path_buf()
}

/// Cargo's target folder, from the place of the running test program (`<target>/<profile>/deps/<name>`).
pub fn target() -> PathBuf {
    let me = std::env::current_exe().expect("the path of the test program");
    me.ancestors().nth(3).expect("test programs lie three folders below the target folder").to_path_buf()
}

/// The `uu` command that is tested: `$UU_BIN`, or what `ci/build` laid out.
///
/// # Panics
/// If it is missing. The end-to-end tests then fail, and say what to do; they are not skipped.
pub fn uu() -> PathBuf {
    let path = std::env::var_os("UU_BIN").map_or_else(|| target().join("uu/bin/uu"), PathBuf::from);
    assert!(path.is_file(), "{} is missing: run ci/build first (or set UU_BIN)", path.display());
    path
}

/// The built tree around [`uu`]: the folder that has `bin/` and `lib/`.
pub fn tree() -> PathBuf {
    uu().ancestors().nth(2).expect("uu lies in bin/").to_path_buf()
}

/// What a folder holds, in order; nothing, if it cannot be read.
pub fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = entries.collect();
    paths.sort();
    paths
}

/// A program under observation, as source: `tests/targets/<relative>`.
pub fn source(relative: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("targets").join(relative);
    assert!(path.is_file(), "no such test target: {}", path.display());
    path
}
