//! The recording's file: made and write-tested before the program starts, under a passing name until its pid is known.

use crate::config::RecordError;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The file, perhaps not yet under its final name.
pub struct OutputFile {
    file: File,
    /// The passing name; `None` for a device or pipe, which is written to as it is.
    partial: Option<PathBuf>,
}

impl OutputFile {
    /// Makes the file beside `wanted` (which may not be known beyond its directory).
    pub fn create(wanted: &Path) -> Result<OutputFile, RecordError> {
        let error = |e| RecordError::Output(wanted.to_owned(), e);
        match std::fs::metadata(wanted) {
            Ok(meta) if meta.is_dir() => return Err(error(io::Error::from(io::ErrorKind::IsADirectory))),
            Ok(meta) => {
                // What is there must be ours to replace. It is only replaced once the program runs.
                let file = OpenOptions::new().write(true).open(wanted).map_err(error)?;
                if !meta.is_file() {
                    return Ok(OutputFile { file, partial: None });
                }
            }
            Err(_) => {}
        }
        let directory = wanted.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let partial = directory.join(format!(".uu-partial-{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&partial).map_err(error)?;
        Ok(OutputFile { file, partial: Some(partial) })
    }

    /// The file, to write to.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Gives the file its final name.
    pub fn rename(self, name: PathBuf) -> Result<PathBuf, RecordError> {
        let Some(partial) = &self.partial else { return Ok(name) };
        match std::fs::rename(partial, &name) {
            Ok(()) => Ok(name),
            Err(e) => {
                self.discard();
                Err(RecordError::Output(name, e))
            }
        }
    }

    /// Removes the file, if it has not its final name yet.
    pub fn discard(self) {
        if let Some(partial) = &self.partial {
            // Best effort: an empty hidden file is all that could stay.
            let _ = std::fs::remove_file(partial);
        }
    }
}

/// `uu-<program>-<pid>.uu`.
pub fn default_name(program: &Path, pid: u32) -> PathBuf {
    let program = program.file_name().map_or("program".into(), |name| name.to_string_lossy());
    PathBuf::from(format!("uu-{program}-{pid}.uu"))
}
