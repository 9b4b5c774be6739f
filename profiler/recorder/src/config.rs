//! The configuration of a recording, and its outcome.

use crate::output::Older;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use uunwind_recording::{Recording, TapHolder};
use uunwind_symbolize::Files;

/// Walks the copies of stacks in a recording. The files: where that of an object may be found.
pub type Walk = fn(&mut Recording, &Files<'_>);

/// What to record, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// Program and arguments, as given.
    pub command: Vec<OsString>,
    /// The ELF file that will run: symlinks, PATH and `#!` lines followed. Its facts are published before it starts.
    pub executable: PathBuf,
    /// Objects that the program needs (DT_NEEDED), as far as they can be determined before it runs. Analysed as well.
    pub closure: Vec<PathBuf>,
    /// Sampling rate in Hz of CPU time.
    pub rate: u32,
    /// `uunwind_ring::FLAG_*`.
    pub flags: u32,
    /// Ends the recording (not the program) after this time.
    pub duration: Option<Duration>,
    /// Nothing is sampled until the recording is resumed.
    pub start_paused: bool,
    /// Time between snapshots.
    pub every: Option<Duration>,
    /// A folder for those, whose names are then their numbers; `None`: beside the recording. Snapshots that SIGUSR2
    /// asks for are always there.
    pub every_into: Option<PathBuf>,
    /// Path of the recording; `None`: `uu-<program>-<pid>.uu` in the working directory.
    pub output: Option<PathBuf>,
    /// Path of `libuunwind-preload.so`.
    pub preload: PathBuf,
    /// Paths of `libuunwind.so.0` and then of the plugins.
    pub objects: Vec<PathBuf>,
    /// The AddressSanitizer runtime that the program needs, which insists on being preloaded first.
    pub asan_runtime: Option<PathBuf>,
    /// The program defines malloc itself: nothing that allocates may be called before its `main`, so that plugins
    /// cannot be opened there. They are preloaded.
    pub allocator: bool,
    /// Variables that the program gets besides, and their values.
    pub environment: Vec<(&'static str, &'static str)>,
    /// Labels of all samples.
    pub labels: Vec<(String, String)>,
    /// Where a process listens that has the rights to open perf events (`kernel::helper`).
    pub events_from: Option<PathBuf>,
    /// Lines for the summary that were collected before the recording.
    pub notes: Vec<String>,
    /// Program and arguments that start [`crate::naming::serve`]. Empty: functions are named in this process.
    pub namer: Vec<OsString>,
    /// Whether functions are named when the recording is over.
    pub named: bool,
    /// Whether that is left to whoever shows the recording, but for names that only the recorder has.
    pub names_later: bool,
    /// Walks the copies of stacks in the recording, before functions are named.
    pub walk: Option<Walk>,
    /// Is given what is recorded, as it is recorded.
    pub tap: TapHolder,
}

/// How the recording ended.
#[derive(Debug)]
pub struct Outcome {
    /// Raw wait status of the program; `None` when it still runs (the duration was over).
    pub wait_status: Option<i32>,
    /// Pid of the program.
    pub pid: u32,
    /// Path of the recording.
    pub output: PathBuf,
    /// Number of samples written.
    pub samples: u64,
    /// CPU time of the program and of its processes that still run, and of the children that these have waited for, in
    /// ns.
    pub cpu_used: u64,
    /// Time from the start of the program to the end of the recording.
    pub wall: Duration,
    /// One line on each kind of process of the program that was not recorded, with the reason.
    pub unrecorded: Vec<String>,
    /// Why writing failed: what is in the file is readable, the rest is lost.
    pub write_error: Option<io::Error>,
    /// The file that had the recording's name before.
    pub older: Option<Older>,
}

/// Why nothing was recorded. The program did not run.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Shared memory of this number of bytes could not be created.
    #[error("{}", session(.0, *.1))]
    Session(#[source] io::Error, usize),
    /// The output cannot be written.
    #[error("cannot write {0}: {1}. The program was not started; choose another place with -o FILE")]
    Output(PathBuf, #[source] io::Error),
    /// The directory for links to our objects could not be created.
    #[error(
        "uu is installed in {0}, a path that LD_PRELOAD cannot hold (it splits at spaces and colons), and no link to it \
         could be made in $XDG_RUNTIME_DIR or /tmp: {1}"
    )]
    SafePath(PathBuf, #[source] io::Error),
    /// The program could not be started.
    #[error("cannot start {program}: {1}", program = .0.to_string_lossy())]
    Spawn(OsString, #[source] io::Error),
    /// This signal was received before the program was started.
    #[error("signal {0} came before the program was started; nothing was recorded")]
    Interrupted(i32),
    /// Signal handlers or the like could not be set up.
    #[error("cannot {0}: {1}")]
    Setup(&'static str, #[source] io::Error),
}

/// The text of [`RecordError::Session`].
fn session(error: &io::Error, bytes: usize) -> String {
    let mib = bytes >> 20;
    match error.raw_os_error() {
        Some(libc::EFBIG) => format!(
            "the limit of file sizes (ulimit -f) is below the {mib} MiB that recording reserves in shared memory, and may \
             not be raised. Raise the hard limit"
        ),
        Some(libc::ENOMEM) => format!(
            "cannot map the {mib} MiB of shared memory that recording reserves: {error}. Check the limit of address space \
             (ulimit -v)"
        ),
        _ => format!(
            "cannot make the shared memory for recording (memfd_create): {error}. Check the memory limit and /proc/sys/vm"
        ),
    }
}
