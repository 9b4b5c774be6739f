//! Paths that LD_PRELOAD and our lists can hold: the dynamic loader splits LD_PRELOAD at spaces and colons and expands
//! `$`, with no way to quote them. Objects in such places are linked from a fresh directory.

use crate::config::RecordError;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Whether a path can stand in LD_PRELOAD as it is.
fn is_safe(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|b| matches!(b, b' ' | b'\t' | b'\n' | b':' | b'$' | b';'))
}

/// Paths made safe; the links go away with this value.
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

    /// Leaves the links in place: processes that may exec again still run.
    pub fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for SafePaths {
    fn drop(&mut self) {
        if let Some(directory) = self.directory.take().filter(|_| !self.keep) {
            // Best effort: what is left is a few links in a directory for temporary files.
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
        let mut template = CString::new(place.join("uu-XXXXXX").into_os_string().into_vec())?.into_bytes_with_nul();
        // SAFETY: the template is NUL-terminated and writable.
        if unsafe { libc::mkdtemp(template.as_mut_ptr().cast()) }.is_null() {
            last = io::Error::last_os_error();
            continue;
        }
        template.pop();
        return Ok(PathBuf::from(std::ffi::OsString::from_vec(template)));
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
