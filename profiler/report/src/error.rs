//! Why a recording could not be read.

use std::fmt;
use std::path::PathBuf;

/// Why a recording could not be read. Its text says what was found, where, and what to do.
#[derive(Debug)]
pub enum ReadError {
    /// The file could not be opened or read.
    Io(PathBuf, std::io::Error),
    /// The file is empty.
    Empty(PathBuf),
    /// The file is something else. The bytes are its first ones.
    Foreign(PathBuf, Vec<u8>),
    /// The file ends inside its own header.
    CutHeader(PathBuf, usize),
    /// Written by a later version of uu.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
    /// Nothing in it could be used.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of the first damaged section, in bytes.
        offset: usize,
        /// What was found there.
        found: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(path, e) => write!(f, "cannot read {}: {e}", path.display()),
            ReadError::Empty(path) => write!(
                f,
                "{} is empty: the recording was never begun, or the disk was full. Record again",
                path.display()
            ),
            ReadError::Foreign(path, bytes) => write!(
                f,
                "{} is not a uu recording: it begins with {} (offset 0), where a recording has \"uu-rec01\". \
                 Give the .uu file that `uu record` wrote",
                path.display(),
                shown(bytes)
            ),
            ReadError::CutHeader(path, len) => write!(
                f,
                "{} is truncated: it ends after {len} bytes, inside the 16-byte header. Record again, or copy the file again",
                path.display()
            ),
            ReadError::Newer { path, found, known } => write!(
                f,
                "{} has recording format {found} (offset 8); this uu knows {known}. Read it with the uu that wrote it, or \
                 a later one",
                path.display()
            ),
            ReadError::Damaged { path, offset, found } => write!(
                f,
                "{} is damaged at offset {offset}: {found}, and nothing before it can be reported. Copy the file again, or \
                 record again",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ReadError {}

/// The first bytes of a foreign file, as text that is safe to print.
fn shown(bytes: &[u8]) -> String {
    let text: String = bytes.iter().flat_map(|b| std::ascii::escape_default(*b)).map(char::from).collect();
    format!("\"{text}\"")
}
