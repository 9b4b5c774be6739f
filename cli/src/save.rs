//! Writing a result to a file.

use crate::exit::Failure;
use std::fs::OpenOptions;
use std::path::Path;

/// Finds out whether a file can be written, and leaves no trace of it.
pub fn check(path: &Path) -> Result<(), Failure> {
    let fail = |e: std::io::Error| {
        Failure::new(format!(
            "cannot write {}: {e}. The program was not started; choose another place with -o FILE",
            path.display()
        ))
    };
    let existed = path.symlink_metadata().is_ok();
    if path.is_dir() {
        return Err(fail(std::io::ErrorKind::IsADirectory.into()));
    }
    OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(fail)?;
    if !existed {
        std::fs::remove_file(path).map_err(fail)?;
    }
    Ok(())
}

/// Writes a result.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes).map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))
}
