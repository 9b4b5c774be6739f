//! Objects of this machine, to be compared with other tools' reading of them.

use std::collections::{BTreeSet, HashSet};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Depth to which folders are searched.
const DEPTH: u32 = 6;

/// Objects that most machines have, and this test itself.
pub fn usual() -> Vec<PathBuf> {
    let lib = Path::new("/usr/lib/x86_64-linux-gnu");
    let mut paths: Vec<PathBuf> = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "libsqlite3.so.0"]
        .map(|name| lib.join(name))
        .into();
    paths.extend([lib.join("libcrypto.so.3"), lib.join("libgcrypt.so.20"), "/lib64/ld-linux-x86-64.so.2".into()]);
    paths.extend(["python3", "bash", "git"].map(|name| Path::new("/usr/bin").join(name)));
    paths.extend(std::env::current_exe());
    paths
}

/// All objects in the usual places: libraries and programs of the system, of Rust, Python, Java, node and Go.
/// The first `wanted` are spread evenly over all, by size; the others follow.
pub fn all(wanted: usize) -> Vec<PathBuf> {
    let ask = |program: &str, arguments: &[&str]| {
        let out = Command::new(program).args(arguments).output().ok()?;
        Some(PathBuf::from(String::from_utf8(out.stdout).ok()?.trim()).join("lib"))
    };
    let folders = ["/usr/lib", "/usr/bin", "/usr/sbin", "/usr/libexec", "/usr/local"].map(PathBuf::from);
    let sysroot = ask("rustc", &["--print", "sysroot"]);
    let python = ask("python3", &["-c", "import sys; print(sys.base_prefix)"]);
    let (mut seen, mut found) = (HashSet::new(), BTreeSet::new());
    for folder in folders.into_iter().chain(sysroot).chain(python) {
        look_into(&folder, DEPTH, &mut seen, &mut found);
    }
    let found: Vec<PathBuf> = found.into_iter().rev().map(|(_, path)| path).collect();
    let step = (found.len() / wanted.max(1)).max(1);
    let (first, then): (Vec<_>, Vec<_>) = found.into_iter().enumerate().partition(|(number, _)| number % step == 0);
    first.into_iter().chain(then).map(|(_, path)| path).collect()
}

fn look_into(folder: &Path, depth: u32, seen: &mut HashSet<(u64, u64)>, found: &mut BTreeSet<(u64, PathBuf)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && depth > 0 {
            look_into(&entry.path(), depth - 1, seen, found);
        }
        let Ok(path) = entry.path().canonicalize() else { continue };
        let Ok(meta) = std::fs::metadata(&path) else { continue };
        // A file with many names (git's commands) is one object.
        let is_new = meta.is_file() && seen.insert((meta.dev(), meta.ino()));
        if is_new && std::fs::File::open(&path).is_ok_and(|mut f| is_object(&mut f)) {
            found.insert((meta.len(), path));
        }
    }
}

/// Whether a file is a program or library for x86-64.
fn is_object(file: &mut std::fs::File) -> bool {
    let mut head = [0; 20];
    // Magic, class 64, little-endian; e_type EXEC or DYN; e_machine.
    file.read_exact(&mut head).is_ok()
        && head.starts_with(b"\x7fELF\x02\x01")
        && matches!(head[16], 2 | 3)
        && head[18] == 62
}
