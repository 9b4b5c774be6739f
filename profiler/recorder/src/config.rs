//! What to record, and how it ended.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What to record.
#[derive(Clone, Debug)]
pub struct Config {
    /// Program and arguments, as given.
    pub command: Vec<OsString>,
    /// The ELF file that will run: symlinks, PATH and `#!` lines followed. Its facts are published before it starts.
    pub executable: PathBuf,
    /// What it loads, as far as that is known beforehand. Analysed as well.
    pub closure: Vec<PathBuf>,
    /// Sampling rate in Hz of CPU time.
    pub rate: u32,
    /// `uunwind_ring::FLAG_*`.
    pub flags: u32,
    /// Ends the recording (not the program) after this time.
    pub duration: Option<Duration>,
    /// Where the recording goes; `None`: `uu-<program>-<pid>.uu` in the working directory.
    pub output: Option<PathBuf>,
    /// `libuu-preload.so`.
    pub preload: PathBuf,
    /// `libuu.so.0`, then the plugins.
    pub objects: Vec<PathBuf>,
    /// The AddressSanitizer runtime that the program needs, which insists on being preloaded first.
    pub asan_runtime: Option<PathBuf>,
    /// Notes for the summary.
    pub notes: Vec<String>,
}

/// How the recording ended.
#[derive(Debug)]
pub struct Outcome {
    /// Raw wait status of the program; `None` when it still runs (the duration was over).
    pub wait_status: Option<i32>,
    /// Pid of the program.
    pub pid: u32,
    /// The recording.
    pub output: PathBuf,
    /// Samples written.
    pub samples: u64,
    /// CPU time of the program and the children it waited for, in ns.
    pub cpu_used: u64,
    /// Writing failed: what stands in the file is readable, the rest is lost.
    pub write_error: Option<io::Error>,
}

/// Why nothing was recorded. The program did not run.
#[derive(Debug)]
pub enum RecordError {
    /// Shared memory could not be made.
    Session(io::Error),
    /// The output cannot be written.
    Output(PathBuf, io::Error),
    /// The directory for links to our objects could not be made.
    SafePath(PathBuf, io::Error),
    /// The program could not be started.
    Spawn(OsString, io::Error),
    /// Signal handlers or the like could not be set up.
    Setup(&'static str, io::Error),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Session(e) if e.raw_os_error() == Some(libc::EFBIG) => write!(
                f,
                "the limit of file sizes (ulimit -f) is below the {} MB that recording reserves in shared memory, and may not \
                 be raised. Raise the hard limit",
                uunwind_ring::layout::SESSION_BYTES >> 20
            ),
            RecordError::Session(e) => write!(
                f,
                "cannot make the shared memory for recording (memfd_create): {e}. Check the memory limit and /proc/sys/vm"
            ),
            RecordError::Output(path, e) => write!(
                f,
                "cannot write {}: {e}. The program was not started; choose another place with -o FILE",
                path.display()
            ),
            RecordError::SafePath(path, e) => write!(
                f,
                "uu is installed in {}, a path that LD_PRELOAD cannot hold (it splits at spaces and colons), and no link to \
                 it could be made in $XDG_RUNTIME_DIR or /tmp: {e}",
                path.display()
            ),
            RecordError::Spawn(program, e) => write!(f, "cannot start {}: {e}", program.to_string_lossy()),
            RecordError::Setup(what, e) => write!(f, "cannot {what}: {e}"),
        }
    }
}

impl std::error::Error for RecordError {}
