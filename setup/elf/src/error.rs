//! Why an object could not be analysed.

use std::io;
use std::path::PathBuf;

/// Why an object could not be analysed. Displayed, it names the file and what was found.
#[derive(Debug, thiserror::Error)]
pub enum AnalyseError {
    /// The file could not be opened or read.
    #[error("{path}: cannot be read: {error}")]
    Unreadable {
        /// Path by which the file was opened.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// It does not begin with ELF's magic number.
    #[error("{path}: not an ELF file (it begins with {found:?})", found = String::from_utf8_lossy(found))]
    NotElf {
        /// Path by which the file was opened.
        path: PathBuf,
        /// Its first bytes, at most four.
        found: Vec<u8>,
    },
    /// ELF, but not 64-bit little-endian x86-64.
    #[error("{path}: an ELF file for {found}; only 64-bit x86-64 is served")]
    Foreign {
        /// Path by which the file was opened.
        path: PathBuf,
        /// What it is for, in words.
        found: String,
    },
    /// ELF of no kind that can be loaded.
    #[error("{path}: neither an executable nor a shared object (ELF type {kind})")]
    NotLoadable {
        /// Path by which the file was opened.
        path: PathBuf,
        /// `e_type` of its ELF header.
        kind: u16,
    },
    /// Headers lie outside the file.
    #[error("{path}: truncated: its {what} would end at byte {end}, the file ends at {len}")]
    Truncated {
        /// Path by which the file was opened.
        path: PathBuf,
        /// What lies outside.
        what: &'static str,
        /// Where it would end, in bytes from the start of the file.
        end: u64,
        /// Length of the file, in bytes.
        len: u64,
    },
}
