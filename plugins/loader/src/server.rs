//! The near end of a plugin's process (`serve` is the far one): starts it, waits for its first words, and asks it to analyse
//! files, one at a time, without ever waiting for longer than is said.

use crate::wire::{self, decode_answer, decode_hello, Answer};
use crate::{Plugin, Trouble};
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a plugin may take to open, and for one file.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How a plugin's process is started: a program and its arguments, to which the plugin's path is added.
pub type Launcher = Vec<OsString>;

/// A plugin's process.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    arrived: Vec<u8>,
    since: Instant,
}

impl Server {
    /// Starts the process; what it is comes later ([`Server::hello`]).
    pub fn start(launcher: &Launcher, path: &Path) -> std::io::Result<Server> {
        let (program, arguments) = launcher.split_first().ok_or(ErrorKind::NotFound)?;
        let mut command = Command::new(program);
        // In a process group of its own: Ctrl-C is for the program that is recorded.
        command.args(arguments).arg(path).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take().ok_or(ErrorKind::BrokenPipe)?);
        // SAFETY: plain system calls on a descriptor of ours.
        unsafe {
            let flags = libc::fcntl(output.as_raw_fd(), libc::F_GETFL);
            libc::fcntl(output.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
        Ok(Server { path: path.to_owned(), child, input, output, arrived: Vec::new(), since: Instant::now() })
    }

    /// Waits for what the plugin says of itself.
    pub fn hello(&mut self) -> Result<Plugin, Trouble> {
        let body = self.wait().map_err(Trouble::Died)?;
        decode_hello(&body, &self.path).unwrap_or_else(|| Err(Trouble::Died("it answered nonsense".to_owned())))
    }

    /// Asks for the analysis of a file. The answer comes by [`Server::answer`].
    pub fn ask(&mut self, file: &Path) -> Result<(), String> {
        self.since = Instant::now();
        let input = self.input.as_mut().ok_or("it is closed")?;
        wire::send(input, file.as_os_str().as_bytes()).map_err(|_| self.end())
    }

    /// The answer, if it is there; `Err`: the process is gone, took too long, or answered nonsense.
    pub fn answer(&mut self) -> Result<Option<Answer>, String> {
        match self.look()? {
            Some(body) => decode_answer(&body).map(Some).ok_or_else(|| "its analyse half answered nonsense".to_owned()),
            None => Ok(None),
        }
    }

    /// A descriptor that becomes readable when something arrives.
    pub fn poll_fd(&self) -> i32 {
        self.output.as_raw_fd()
    }

    fn wait(&mut self) -> Result<Vec<u8>, String> {
        loop {
            if let Some(body) = self.look()? {
                return Ok(body);
            }
            wait_readable(&[self.poll_fd()], 100);
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
            // What it said before it ended counts.
            Ok(None) if ended => Err(self.end()),
            Ok(None) if self.since.elapsed() > PATIENCE => Err(format!("it took more than {} s", PATIENCE.as_secs())),
            Ok(message) => Ok(message),
            Err(wire::TooLong) => Err("it answered nonsense".to_owned()),
        }
    }

    /// How the process ended; ends it if it has not.
    fn end(&mut self) -> String {
        self.input = None;
        // The stream has ended, so the process is about to.
        for _ in 0..100 {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(Some(status)) => {
                    return match status.signal() {
                        Some(signal) => format!("it crashed (signal {signal})"),
                        None => format!("it ended its process (exit code {})", status.code().unwrap_or(0)),
                    }
                }
                Err(_) => break,
            }
        }
        "it closed its standard output".to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until one of these can be read, at most so many milliseconds.
pub fn wait_readable(fds: &[i32], milliseconds: i32) {
    let mut list: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: a list of that length.
    unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, milliseconds) };
}
