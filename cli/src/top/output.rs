//! What is written to the terminal by others while a table is drawn on it: kept in a file, and shown afterwards.

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};

/// Standard descriptors that were a terminal's, and are a file's now; input is empty.
pub struct Kept {
    file: File,
    input: Option<OwnedFd>,
    output: Option<OwnedFd>,
    errors: Option<OwnedFd>,
}

impl Kept {
    /// Begins to keep output; children that are started from now on have these descriptors.
    pub fn begin() -> io::Result<Kept> {
        fn of(fd: impl AsFd + IsTerminal) -> io::Result<Option<OwnedFd>> {
            Ok(if fd.is_terminal() { Some(fcntl_dupfd_cloexec(fd, 3)?) } else { None })
        }
        let file = tempfile::tempfile()?;
        let kept = Kept { input: of(io::stdin())?, output: of(io::stdout())?, errors: of(io::stderr())?, file };
        if kept.input.is_some() {
            dup2_stdin(File::open("/dev/null")?)?;
        }
        if kept.output.is_some() {
            dup2_stdout(&kept.file)?;
        }
        if kept.errors.is_some() {
            dup2_stderr(&kept.file)?;
        }
        Ok(kept)
    }

    /// Gives this process the terminal back.
    pub fn end(&mut self) {
        // Descriptors that were there: this cannot fail.
        let _ = self.input.take().map(dup2_stdin);
        let _ = self.output.take().map(dup2_stdout);
        let _ = self.errors.take().map(dup2_stderr);
    }

    /// Shows what was kept, on standard error.
    pub fn show(mut self) -> io::Result<()> {
        self.end();
        self.file.rewind()?;
        let mut part = vec![0; 64 * 1024];
        loop {
            match self.file.read(&mut part)? {
                0 => return Ok(()),
                read => io::stderr().write_all(part.get(..read).unwrap_or_default())?,
            }
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.end();
    }
}
