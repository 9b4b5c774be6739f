//! Paths for LD_PRELOAD and our own lists: the dynamic loader splits
//! [LD_PRELOAD](https://man7.org/linux/man-pages/man8/ld.so.8.html) at spaces and colons and expands `$`, without a way
//! to quote them. Objects in directories with such characters are linked from a new directory.

use crate::config::RecordError;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Whether a path can be used in LD_PRELOAD unchanged.
fn is_safe(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|b| matches!(b, b' ' | b'\t' | b'\n' | b':' | b'$' | b';'))
}

/// The links to unsafe paths. They are removed when this value is dropped.
#[derive(Debug)]
pub struct SafePaths {
    directory: Option<PathBuf>,
    keep: bool,
}

impl SafePaths {
    /// Replaces every unsafe path by a link to it.
    pub fn make(paths: &mut [&mut PathBuf]) -> Result<SafePaths, RecordError> {
        let mut safe = SafePaths { directory: None, keep: false };
        for (number, path) in paths.iter_mut().enumerate() {
            if !is_safe(path) {
                let linked = safe.link(number, path).map_err(|e| RecordError::SafePath(path.to_path_buf(), e))?;
                **path = linked;
            }
        }
        Ok(safe)
    }

    fn link(&mut self, number: usize, path: &Path) -> io::Result<PathBuf> {
        let directory = match &self.directory {
            Some(directory) => directory.clone(),
            None => self.directory.insert(fresh_directory()?).clone(),
        };
        // One folder per object, so that it keeps its file name and names do not clash.
        let folder = directory.join(number.to_string());
        std::fs::create_dir(&folder)?;
        let link = folder.join(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        symlink(path, &link)?;
        Ok(link)
    }

    /// Leaves the links in place, for processes that still run and may call exec.
    pub fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for SafePaths {
    fn drop(&mut self) {
        if let Some(directory) = self.directory.take().filter(|_| !self.keep) {
            // On failure, a few links stay in a directory for temporary files.
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

/// A new directory that only we can write to.
fn fresh_directory() -> io::Result<PathBuf> {
    let mut places: Vec<PathBuf> = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).into_iter().collect();
    places.push(PathBuf::from("/tmp"));
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for place in places.iter().filter(|p| p.is_absolute() && is_safe(p)) {
        match tempfile::Builder::new().prefix("uu-").tempdir_in(place) {
            Ok(folder) => return Ok(folder.keep()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_paths_are_linked_and_the_links_go_away() {
        let base = fresh_directory().expect("temporary directory");
        let odd = base.join("a b:c");
        std::fs::create_dir(&odd).expect("directory");
        let object = odd.join("lib.so");
        std::fs::write(&object, b"content").expect("file");
        let (mut unsafe_path, mut fine) = (object.clone(), PathBuf::from("/usr/lib/x.so"));
        let safe = SafePaths::make(&mut [&mut unsafe_path, &mut fine]).expect("links");
        assert_eq!(fine, Path::new("/usr/lib/x.so"));
        assert!(is_safe(&unsafe_path), "{unsafe_path:?}");
        assert_eq!(unsafe_path.file_name(), object.file_name());
        assert_eq!(std::fs::read(&unsafe_path).expect("readable"), b"content");
        drop(safe);
        assert!(!unsafe_path.exists());
        std::fs::remove_dir_all(base).expect("cleaned");
    }
}
