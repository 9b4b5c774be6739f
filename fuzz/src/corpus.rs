//! The committed seeds: `corpus/<target>/`, one file a seed.

use std::fs;
use std::path::{Path, PathBuf};

/// This crate's folder.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Folder of a target's seeds.
pub fn folder(target: &str) -> PathBuf {
    home().join("corpus").join(target)
}

/// Name and bytes of every seed of a target, by name.
///
/// # Panics
/// Without a readable folder: a target without a corpus is a mistake.
pub fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = folder(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut seeds: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("a folder entry").path();
            let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), bytes)
        })
        .collect();
    seeds.sort();
    seeds
}
