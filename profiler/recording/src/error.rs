//! Why a recording could not be read.

use std::path::PathBuf;

/// Why a recording could not be read. Its text says what was found, where, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be opened or read.
    #[error("cannot read {0}: {1}")]
    Io(PathBuf, #[source] std::io::Error),
    /// The file is empty.
    #[error("{0} is empty: the recording was never begun, or the disk was full. Record again")]
    Empty(PathBuf),
    /// The file is something else; these are its first bytes.
    #[error(
        "{0} is not a uu recording: it begins with {bytes} (offset 0), where a recording has \"uu-rec01\". Give the .uu \
         file that `uu record` wrote",
        bytes = shown(.1)
    )]
    Foreign(PathBuf, Vec<u8>),
    /// The file ends inside its own header, after this many bytes.
    #[error(
        "{0} is truncated: it ends after {1} bytes, inside the 16-byte header. Record again, or copy the file again"
    )]
    CutHeader(PathBuf, usize),
    /// Written by a later version of uu.
    #[error(
        "{path} has recording format {found} (offset 8); this uu knows {known}. Read it with the uu that wrote it, or a \
         later one"
    )]
    Newer {
        /// Path by which the recording was opened.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The newest format version that this uu reads.
        known: u32,
    },
    /// Nothing in it could be used.
    #[error(
        "{path} is damaged at offset {offset}: {found}, and nothing before it can be reported. Copy the file again, or \
         record again"
    )]
    Damaged {
        /// Path by which the recording was opened.
        path: PathBuf,
        /// Offset of the first damaged section, in bytes.
        offset: usize,
        /// What was found there.
        found: String,
    },
}

/// The first bytes of a foreign file, as text that is safe to print.
fn shown(bytes: &[u8]) -> String {
    let text: String = bytes.iter().flat_map(|b| std::ascii::escape_default(*b)).map(char::from).collect();
    format!("\"{text}\"")
}
