//! Why an object could not be analysed.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why an object could not be analysed. Displayed, it names the file and what was found.
#[derive(Debug)]
pub enum AnalyseError {
    /// The file could not be opened or read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Not a regular file: a directory, device, pipe or socket.
    NotAFile {
        /// What is there instead of a file.
        path: PathBuf,
    },
    /// It does not begin with ELF's magic number.
    NotElf {
        /// The file.
        path: PathBuf,
        /// Its first bytes, at most four.
        found: Vec<u8>,
    },
    /// ELF, but not 64-bit little-endian x86-64.
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is for, in words.
        found: String,
    },
    /// ELF of no kind that can be loaded.
    NotLoadable {
        /// The file.
        path: PathBuf,
        /// Its `e_type`.
        kind: u16,
    },
    /// Headers lie outside the file.
    Truncated {
        /// The file.
        path: PathBuf,
        /// What lies outside.
        what: &'static str,
        /// Where it would end, in bytes from the start of the file.
        end: u64,
        /// Length of the file, in bytes.
        len: u64,
    },
}

impl fmt::Display for AnalyseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnalyseError::Unreadable { path, error } => write!(f, "{}: cannot be read: {error}", path.display()),
            AnalyseError::NotAFile { path } => write!(f, "{}: not a regular file", path.display()),
            AnalyseError::NotElf { path, found } => {
                write!(f, "{}: not an ELF file (it begins with {:?})", path.display(), String::from_utf8_lossy(found))
            }
            AnalyseError::Foreign { path, found } => {
                write!(f, "{}: an ELF file for {found}; only 64-bit x86-64 is served", path.display())
            }
            AnalyseError::NotLoadable { path, kind } => {
                write!(f, "{}: neither an executable nor a shared object (ELF type {kind})", path.display())
            }
            AnalyseError::Truncated { path, what, end, len } => {
                write!(f, "{}: truncated: its {what} would end at byte {end}, the file ends at {len}", path.display())
            }
        }
    }
}

impl std::error::Error for AnalyseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AnalyseError::Unreadable { error, .. } => Some(error),
            _ => None,
        }
    }
}
