//! Writing a result to a file.

use crate::exit::Failure;
use crate::terminal;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use uunwind_elf::files;

/// Checks that a file can be written, and leaves no trace.
pub fn check(path: &Path) -> Result<(), Failure> {
    let fail = |e: std::io::Error| {
        Failure::new(format!(
            "cannot write {}: {e}. The program was not started; choose another place with -o FILE",
            path.display()
        ))
    };
    if files::check_special(path).map_err(fail)? {
        return Ok(());
    }
    let existed = path.symlink_metadata().is_ok();
    files::open_result(path, false).map_err(fail)?;
    if !existed {
        std::fs::remove_file(path).map_err(fail)?;
    }
    Ok(())
}

/// Ends the wait of a FIFO's reader for which no result came; where one came, it has ended.
pub fn release(path: &Path) {
    if std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo()) {
        // An error says that nobody waits.
        let _ = files::open_result(path, false);
    }
}

/// Asks a person whether a file may be replaced. Where no person sits, it may.
pub fn may_replace(path: &Path) -> Result<(), Failure> {
    if !path.is_file() || !terminal::is_interactive() {
        return Ok(());
    }
    match terminal::ask(&format!("{} exists. Replace it? [y/N]", path.display())) {
        true => Ok(()),
        false => Err(Failure::new(format!("{} stays as it is. Give another name with -o", path.display()))),
    }
}

/// Writes a result to a file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    files::open_result(path, true)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))
}
