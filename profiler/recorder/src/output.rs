//! The recording's file: made and write-tested before the program starts, under a passing name until its pid is known.

use crate::config::RecordError;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file, not yet under its final name.
pub struct OutputFile {
    file: File,
    partial: PathBuf,
}

impl OutputFile {
    /// Makes the file beside `wanted` (which may not be known beyond its directory).
    pub fn create(wanted: &Path) -> Result<OutputFile, RecordError> {
        let error = |e| RecordError::Output(wanted.to_owned(), e);
        match std::fs::metadata(wanted) {
            Ok(meta) if meta.is_dir() => return Err(error(io::Error::from(io::ErrorKind::IsADirectory))),
            Ok(meta) if !meta.is_file() => {
                return Err(error(io::Error::other("it is a device or pipe, and a recording must be read back")));
            }
            Ok(_) => {
                // What is there must be ours to replace. It is only replaced once the program runs.
                OpenOptions::new().write(true).open(wanted).map_err(error)?;
            }
            Err(_) => {}
        }
        let directory = wanted.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let partial = directory.join(format!(".uu-partial-{}", std::process::id()));
        let mut options = OpenOptions::new();
        // A link that somebody else put there is not followed.
        options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(&partial).map_err(error)?;
        Ok(OutputFile { file, partial })
    }

    /// The file, to write to.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Gives the file its final name.
    pub fn rename(self, name: PathBuf) -> Result<PathBuf, RecordError> {
        match std::fs::rename(&self.partial, &name) {
            Ok(()) => Ok(name),
            Err(e) => {
                self.discard();
                Err(RecordError::Output(name, e))
            }
        }
    }

    /// Removes the file.
    pub fn discard(self) {
        // Best effort: an empty hidden file is all that could stay.
        let _ = std::fs::remove_file(&self.partial);
    }
}

/// `uu-<program>-<pid>.uu`.
pub fn default_name(program: &Path, pid: u32) -> PathBuf {
    let program = program.file_name().map_or("program".into(), |name| name.to_string_lossy());
    PathBuf::from(format!("uu-{program}-{pid}.uu"))
}
