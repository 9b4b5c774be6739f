//! The Nodes of this machine: the one on PATH, and those that `ci/nodes` has fetched. One file for this crate and for
//! tests of the V8 plugin, so it uses nothing of either.

use std::path::{Path, PathBuf};

/// Versions of Node whose V8 the plugin reads; each should be tested.
pub const SERVED: [u32; 4] = [20, 22, 24, 26];

/// A Node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its executable, without symbolic links.
    pub path: PathBuf,
    /// Its version, such as `20.20.2`.
    pub version: String,
}

impl Node {
    /// The first part of the version.
    pub fn major(&self) -> u32 {
        self.version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0)
    }
}

/// Those of versions that are served, one for each version, the one on PATH first. Names in `missing` what there is
/// none of.
pub fn served(missing: impl Fn(u32)) -> Vec<Node> {
    let all = all();
    for major in SERVED {
        if !all.iter().any(|node| node.major() == major) {
            missing(major);
        }
    }
    all.into_iter().filter(|node| SERVED.contains(&node.major())).collect()
}

fn all() -> Vec<Node> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut paths: Vec<PathBuf> = std::env::split_paths(&folders)
        .map(|folder| folder.join("node"))
        .filter(|path| path.is_file())
        .take(1)
        .collect();
    let fetched = std::fs::read_dir(target().join("nodes")).into_iter().flatten().flatten();
    let mut fetched: Vec<PathBuf> =
        fetched.map(|entry| entry.path().join("node")).filter(|path| path.is_file()).collect();
    fetched.sort();
    paths.extend(fetched);
    let mut found: Vec<Node> = Vec::new();
    for node in paths.iter().filter_map(|path| ask(path)) {
        if !found.iter().any(|known| known.major() == node.major()) {
            found.push(node);
        }
    }
    found
}

/// Cargo's target folder, from the place of the running test program (`<target>/<profile>/deps/<name>`).
fn target() -> PathBuf {
    let me = std::env::current_exe().expect("the path of the test program");
    me.ancestors().nth(3).expect("test programs lie three folders below the target folder").to_path_buf()
}

fn ask(path: &Path) -> Option<Node> {
    let path = std::fs::canonicalize(path).ok()?;
    let mut command = std::process::Command::new(&path);
    let out = command.args(["-p", "process.versions.node"]).env_remove("NODE_OPTIONS").output().ok()?;
    let version = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    Some(Node { path, version })
}
