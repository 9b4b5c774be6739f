//! What is loaded in the child of a fork. The loader is not asked there: another thread of the parent may have held its
//! lock when the process was forked, and does not exist in the child, so that nobody ever releases it.

use crate::mapped;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
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
    let all = maps::of("self").into_iter().flatten();
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

/// As [`mapped::headers_key`].
pub fn headers_key(address: u64) -> u64 {
    let read = || {
        let mappings: Vec<Mapping> = maps::of("self").ok()?.collect();
        let at = mappings.iter().position(|mapping| mapping.start <= address && address < mapping.end)?;
        let inode = mappings.get(at)?.inode;
        let before = mappings.get(..=at)?.iter().rev().take_while(|mapping| mapping.inode == inode);
        let first = before.filter(|mapping| mapping.offset == 0).last()?;
        let memory = File::open("/proc/self/mem").ok()?;
        let bytes = |at: u64, len: usize| {
            let mut bytes = vec![0; len];
            memory.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
        };
        let header = bytes(first.start, mapped::ELF_HEADER)?;
        // e_phoff and e_phnum (<elf.h>).
        let offset = u64::from_le_bytes(header.get(32..40)?.try_into().ok()?);
        let count = u16::from_le_bytes(header.get(56..58)?.try_into().ok()?);
        let programs = bytes(first.start.checked_add(offset)?, usize::from(count) * mapped::PROGRAM_HEADER)?;
        Some(object_key::key(&[header, programs].concat()))
    };
    read().unwrap_or(0)
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
        for address in [headers_key as *const () as u64, libc::getpid as *const () as u64] {
            let key = headers_key(address);
            assert!(key != 0 && key == mapped::headers_key(address));
        }
        assert!(headers_key(8) == 0 && loads().is_some() && loads() == loads());
    }
}
