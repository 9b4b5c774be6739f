//! Writing a result to a file.

use crate::exit::Failure;
use crate::terminal;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use uunwind_elf::files;
use uunwind_recorder::output::partial;

/// Checks that a file can be written, and leaves no trace. `so_far`: what was not done, if it cannot.
pub fn check(path: &Path, so_far: &str) -> Result<(), Failure> {
    let fail = |e: std::io::Error| {
        Failure::new(format!("cannot write {}: {e}. {so_far}; choose another place with -o FILE", path.display()))
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

/// Writes a result to a file. An older one stays as it is if that fails, on a full disk.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let written = match replacement(path) {
        Some((mut new, target)) => new.write_all(bytes).and_then(|()| {
            // The name may be that of a mount, which cannot be replaced.
            new.persist(target).map(drop).or_else(|_| write_in_place(path, bytes))
        }),
        None => write_in_place(path, bytes),
    };
    written.map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))
}

fn write_in_place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    files::open_result(path, true)?.write_all(bytes)
}

/// A new file that can take the place of the one at this path, or at the path that it leads to; and that path. `None`:
/// something else must be written to, such as a device, an open file or a file with several names, or there is no place
/// for a new file.
fn replacement(path: &Path) -> Option<(NamedTempFile, PathBuf)> {
    let target = match path.symlink_metadata() {
        Ok(_) if leads_to_open_file(path) => return None,
        Ok(_) => path.canonicalize().ok()?,
        Err(_) => return partial(path).ok().map(|new| (new, path.to_owned())),
    };
    let old = target.metadata().ok().filter(|old| old.is_file() && old.nlink() == 1)?;
    // Whether it may be written to is its own matter, not its folder's.
    files::open_result(&target, false).ok()?;
    let new = partial(&target).ok()?;
    let made = new.as_file().metadata().ok()?;
    if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
        std::os::unix::fs::fchown(new.as_file(), Some(old.uid()), Some(old.gid())).ok()?;
    }
    new.as_file().set_permissions(old.permissions()).ok()?;
    Some((new, target))
}

/// Where files stand that a process has open.
const OPEN_FILES: [&str; 4] = ["/dev/fd", "/dev/stdout", "/dev/stderr", "/proc"];

/// Whether a path is that of a file that a process has open (`/dev/stdout`).
pub fn is_open_file(path: &Path) -> bool {
    OPEN_FILES.iter().any(|place| path.starts_with(place))
}

/// The same of a path, or of one that it leads to by symbolic links.
fn leads_to_open_file(path: &Path) -> bool {
    // The kernel follows at most 40.
    let mut links =
        std::iter::successors(Some(path.to_owned()), |path| Some(path.parent()?.join(path.read_link().ok()?)));
    links.by_ref().take(40).any(|path| is_open_file(&path))
}

/// Fails if a result would take the place of a recording that is read for it.
pub fn check_apart(result: &Path, recordings: &[PathBuf]) -> Result<(), Failure> {
    match recordings.iter().any(|recording| recording.exists() && is_same(result, recording)) {
        true => Err(Failure::new(format!(
            "-o {}: this is the recording that is read, and cannot be the result, too. Give the result another name",
            result.display()
        ))),
        false => Ok(()),
    }
}

/// Whether two paths are those of one file, which may be there or not; devices can take several results.
pub fn is_same(one: &Path, other: &Path) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => {
            (one.dev(), one.ino()) == (other.dev(), other.ino()) && !one.file_type().is_char_device()
        }
        (Err(_), Err(_)) => {
            let folder = |path: &Path| match path.parent() {
                Some(folder) if folder != Path::new("") => folder.canonicalize().ok(),
                _ => Path::new(".").canonicalize().ok(),
            };
            one.file_name() == other.file_name() && folder(one) == folder(other)
        }
        _ => false,
    }
}
