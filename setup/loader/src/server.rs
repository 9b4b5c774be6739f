//! uu's end of a plugin's process (`serve` is the other one): starts it, receives its description, and asks it to
//! analyse files and decode lines, one request at a time, without waiting for longer than [`PATIENCE`].

use crate::wire::{self, decode_answer, decode_hello, decode_lines, encode_request, Answer, Request, Table};
use crate::{Plugin, Trouble};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{fcntl_getfl, fcntl_setfl, OFlags};
use rustix::net::{send, SendFlags};
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;
use uunwind_clock::Instant;

/// Time limit for opening a plugin, and for one file.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The same for files that a part of uu analyses: its work is bounded, but a disk may be slow.
const OWN_PATIENCE: Duration = Duration::from_secs(60);

/// The command that starts a plugin's process: a program and its arguments; the plugin's path is appended.
pub type Launcher = Vec<OsString>;

/// A plugin's process.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    child: Child,
    input: Option<Input>,
    output: ChildStdout,
    arrived: Vec<u8>,
    since: Instant,
    patience: Duration,
}

/// The process's standard input. A socket: when the process has ended, an error is all that a write leads to. With a
/// pipe the program that uses the library, which may never have heard of SIGPIPE, would be killed by it.
#[derive(Debug)]
struct Input(UnixStream);

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Server {
    /// Starts the process. Its description arrives later ([`Server::hello`]).
    pub fn start(launcher: &Launcher, path: &Path) -> std::io::Result<Server> {
        let (program, arguments) = launcher.split_first().ok_or(ErrorKind::NotFound)?;
        let mut command = Command::new(program);
        // In a process group of its own, so that Ctrl-C goes to the recorded program only.
        let (input, theirs) = UnixStream::pair()?;
        command.args(arguments).arg(path).process_group(0).stdin(OwnedFd::from(theirs)).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        // It holds the process's end of the socket, which counts as open while somebody has that.
        drop(command);
        let (input, output) = (Some(Input(input)), child.stdout.take().ok_or(ErrorKind::BrokenPipe)?);
        fcntl_setfl(&output, fcntl_getfl(&output)? | OFlags::NONBLOCK)?;
        let (arrived, since) = (Vec::new(), Instant::now());
        Ok(Server { path: path.to_owned(), child, input, output, arrived, since, patience: PATIENCE })
    }

    /// Waits for the plugin's description.
    pub fn hello(&mut self) -> Result<Plugin, Trouble> {
        let body = self.wait().map_err(Trouble::Died)?;
        let plugin = decode_hello(&body, &self.path);
        let plugin = plugin.unwrap_or_else(|| Err(Trouble::Died("it answered nonsense".to_owned())))?;
        if plugin.built_in {
            self.patience = OWN_PATIENCE;
        }
        Ok(plugin)
    }

    /// Requests the analysis of a file that can be opened at `file` and that the program has at `path`. The answer is
    /// fetched with [`Server::answer`].
    pub fn ask(&mut self, file: &Path, path: &Path) -> Result<(), String> {
        self.send(&Request::Analyse { file: file.to_owned(), path: path.to_owned() })
    }

    /// The lines of all positions, in order; 0: not available. Waits for them.
    pub fn lines(&mut self, tables: Vec<Table>) -> Result<Vec<u32>, String> {
        let count = tables.iter().map(|table| table.positions.len()).sum();
        self.send(&Request::Lines(tables))?;
        decode_lines(&self.wait()?, count).ok_or_else(|| "it answered nonsense".to_owned())
    }

    fn send(&mut self, request: &Request) -> Result<(), String> {
        self.since = Instant::now();
        let input = self.input.as_mut().ok_or("it is closed")?;
        wire::send(input, &encode_request(request)).map_err(|_| self.end())
    }

    /// The answer, if it has arrived. `Err`: the process ended, took too long, or sent a malformed answer.
    pub fn answer(&mut self) -> Result<Option<Answer>, String> {
        match self.look()? {
            Some(body) => decode_answer(&body).map(Some).ok_or_else(|| "its analyse half answered nonsense".to_owned()),
            None => Ok(None),
        }
    }

    /// A descriptor that becomes readable when a message arrives.
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// Id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait(&mut self) -> Result<Vec<u8>, String> {
        loop {
            if let Some(body) = self.look()? {
                return Ok(body);
            }
            wait_readable([self.poll_fd()], 100);
        }
    }

    fn look(&mut self) -> Result<Option<Vec<u8>>, String> {
        let mut part = [0; 16 * 1024];
        let mut ended = false;
        loop {
            match self.output.read(&mut part) {
                Ok(0) => {
                    ended = true;
                    break;
                }
                Ok(n) => self.arrived.extend_from_slice(part.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            if self.arrived.len() > wire::LIMIT + 4 {
                break;
            }
        }
        match wire::take(&mut self.arrived) {
            // Messages that it sent before it ended are still used.
            Ok(None) if ended => Err(self.end()),
            Ok(None) if self.since.elapsed() > self.patience => {
                Err(format!("it took more than {} s", self.patience.as_secs()))
            }
            Ok(message) => Ok(message),
            Err(wire::TooLong) => Err("it answered nonsense".to_owned()),
        }
    }

    /// Describes how the process ended; ends it if it is running.
    fn end(&mut self) -> String {
        self.input = None;
        end_of(&mut self.child).map_or_else(|| "it closed its standard output".to_owned(), describe)
    }
}

/// How a process has ended whose stream has, so that it is about to; `None`: it has not ended.
pub(crate) fn end_of(child: &mut Child) -> Option<ExitStatus> {
    for _ in 0..100 {
        match child.try_wait() {
            Ok(None) => uunwind_clock::sleep(Duration::from_millis(1)),
            Ok(status) => return status,
            Err(_) => return None,
        }
    }
    None
}

/// In words.
pub(crate) fn describe(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("it crashed (signal {signal})"),
        None => format!("it ended its process (exit code {})", status.code().unwrap_or(0)),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until one of these descriptors is readable, for at most `milliseconds` (fewer than 1000).
pub fn wait_readable<'fd>(fds: impl IntoIterator<Item = BorrowedFd<'fd>>, milliseconds: u32) {
    let mut list: Vec<_> = fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(milliseconds) * 1_000_000 };
    // A signal ends the wait as well; the caller looks again.
    let _ = poll(&mut list, Some(&timeout));
}
