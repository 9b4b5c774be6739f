//! The JVMs of this machine: those of Debian's folder, and those that `ci/jvms` has fetched. One file for this crate
//! and for tests of the HotSpot plugin, so it uses nothing of either.

use std::path::{Path, PathBuf};

/// Versions of the JDK whose HotSpot the plugin reads; each should be tested.
pub const SERVED: [u32; 6] = [8, 11, 17, 21, 25, 27];

/// A JVM.
#[derive(Clone, Debug)]
pub struct Jvm {
    /// The first number of the JDK's version.
    pub version: u32,
    /// The folder that has `bin/`, without symbolic links.
    pub home: PathBuf,
}

impl Jvm {
    /// The file that holds HotSpot.
    pub fn library(&self) -> PathBuf {
        let place = if self.version == 8 { "jre/lib/amd64/server" } else { "lib/server" };
        self.home.join(place).join("libjvm.so")
    }
}

/// Those of versions that are served, one for each version, by version. Names in `missing` what there is none of.
pub fn served(missing: impl Fn(u32)) -> Vec<Jvm> {
    let all = all();
    for version in SERVED {
        if !all.iter().any(|jvm| jvm.version == version) {
            missing(version);
        }
    }
    all.into_iter().filter(|jvm| SERVED.contains(&jvm.version)).collect()
}

/// One for each version, by version.
pub fn all() -> Vec<Jvm> {
    let mut found: Vec<Jvm> = Vec::new();
    for place in [PathBuf::from("/usr/lib/jvm"), target().join("jvms")] {
        let folders = std::fs::read_dir(place).into_iter().flatten().flatten();
        for jvm in folders.filter_map(|folder| read(&folder.path())) {
            if !found.iter().any(|known| known.version == jvm.version) {
                found.push(jvm);
            }
        }
    }
    found.sort_by_key(|jvm| jvm.version);
    found
}

/// Cargo's target folder, from the place of the running test program (`<target>/<profile>/deps/<name>`).
fn target() -> PathBuf {
    let me = std::env::current_exe().expect("the path of the test program");
    me.ancestors().nth(3).expect("test programs lie three folders below the target folder").to_path_buf()
}

fn read(home: &Path) -> Option<Jvm> {
    let home = std::fs::canonicalize(home).ok()?;
    let release = std::fs::read_to_string(home.join("release")).ok()?;
    let version = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
    // JDK 8 calls itself 1.8.
    let version = version.strip_prefix("1.").unwrap_or(version).split(['.', '"', '_']).next()?.parse().ok()?;
    Some(Jvm { version, home }).filter(|jvm| jvm.library().is_file())
}
