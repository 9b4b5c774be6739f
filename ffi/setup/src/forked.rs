//! What is loaded in the child of a fork. The loader is not asked there: another thread of the parent may have held its
//! lock when the process was forked, and does not exist in the child, so that nobody ever releases it.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use uunwind_core::object_key;
use uunwind_elf::maps::{self, Mapping};

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// This process is the child of a fork from now on. Async-signal-safe.
pub fn note() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Whether the loader must not be asked.
pub fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// The files' parts that are mapped as code.
fn code() -> Vec<Mapping> {
    let all = maps::own().into_iter().flatten();
    all.filter(|mapping| mapping.inode != 0 && mapping.permissions.contains('x')).collect()
}

/// Two numbers that are others when something else is loaded.
pub fn loads() -> Option<(u64, u64)> {
    let code = code();
    let words: Vec<u8> = code
        .iter()
        .flat_map(|mapping| [mapping.start, mapping.end, mapping.inode])
        .flat_map(u64::to_le_bytes)
        .collect();
    (!code.is_empty()).then(|| (code.len() as u64, object_key::key(&words)))
}

/// The files of the loaded objects.
pub fn objects() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for mapping in code() {
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&mapping.name));
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_found_as_by_the_loader() {
        let by_maps = objects();
        let (by_loader, _) = crate::loaded();
        assert!(!by_loader.is_empty() && by_maps.len() >= by_loader.len());
        for (path, _) in by_loader {
            let path = path.canonicalize().expect("a file");
            assert!(by_maps.contains(&path), "{} is not in {by_maps:?}", path.display());
        }
        assert!(loads().is_some() && loads() == loads());
    }
}
