//! Names functions, in a separate process. The recorded program determines the files that names are read from, and one
//! may be crafted to exhaust memory, or to keep its reader busy forever. That costs the names of one object, but not
//! the recording.

use crate::child::{interrupted, wait_for};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{fcntl_getfl, fcntl_setfl, OFlags};
use rustix::process::{getrlimit, set_parent_process_death_signal, setrlimit, Resource, Rlimit, Signal};
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_recording::Symbols;
use uunwind_symbolize::answer;
use uunwind_symbolize::question::{self, Question, MESSAGE_LIMIT};

/// Longest time for one object.
const PATIENCE: Duration = Duration::from_secs(60);
/// After this number of objects that made the process fail, the remaining ones get no names.
const DEATHS: u32 = 8;
/// Limit of the process's memory, in bytes; half of the machine's memory where that is less.
const MEMORY: u64 = 4 << 30;

/// The progress of naming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of objects whose functions are named.
    pub done: usize,
    /// Number of all objects.
    pub objects: usize,
}

/// Answers the questions, in the process that `launcher` starts; without a launcher, in this process. The second
/// result: notes for the user.
pub fn name(
    launcher: &[OsString],
    questions: &[Question],
    mut progress: impl FnMut(Progress),
) -> (Symbols, Vec<String>) {
    let (mut symbols, mut notes, mut deaths) = (Symbols::default(), Vec::new(), 0);
    let (mut process, objects) = (None, questions.len());
    for (done, question) in questions.iter().enumerate() {
        progress(Progress { done, objects });
        let answered = match launcher.split_first() {
            None => Ok(answer(question)),
            Some(_) if deaths >= DEATHS => Err(Lost::Died("others ended naming too often".to_owned())),
            Some((program, arguments)) => ask(&mut process, program, arguments, question),
        };
        match answered {
            Ok(named) => symbols.add(named),
            Err(Lost::Died(why)) => {
                process = None;
                deaths += 1;
                symbols.unusable.push((question.object, format!("naming its functions failed: {why}")));
            }
            Err(Lost::Interrupted) => {
                let left = questions.get(done..).unwrap_or_default();
                let why = "naming was interrupted";
                symbols.unusable.extend(left.iter().map(|question| (question.object, why.to_owned())));
                notes.push(format!(
                    "naming was interrupted: functions of {} of {objects} objects have no names",
                    left.len()
                ));
                return (symbols, notes);
            }
        }
    }
    progress(Progress { done: objects, objects });
    (symbols, notes)
}

/// Why there is no answer.
enum Lost {
    /// uu received a signal that asks it to end.
    Interrupted,
    /// The process ended, took too long, or sent an invalid answer.
    Died(String),
}

/// The process, and the pipes to and from it.
struct Process {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

fn ask(
    process: &mut Option<Process>,
    program: &OsString,
    arguments: &[OsString],
    question: &Question,
) -> Result<Symbols, Lost> {
    let process = match process {
        Some(process) => process,
        None => process.insert(Process::start(program, arguments).map_err(|e| Lost::Died(e.to_string()))?),
    };
    let mut message = Vec::new();
    question::send(&mut message, &question.encode()).map_err(|_| Lost::Died("it has too many addresses".to_owned()))?;
    let answer = process.exchange(&message)?;
    Symbols::from_bytes(&answer, question.object).ok_or_else(|| Lost::Died("the answer makes no sense".to_owned()))
}

impl Process {
    fn start(program: &OsString, arguments: &[OsString]) -> std::io::Result<Process> {
        let mut command = Command::new(program);
        // In a separate process group: Ctrl-C reaches only uu, which then ends this process.
        command.args(arguments).process_group(0);
        // Its answer or its exit status says everything that it could write to stderr.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let input = child.stdin.take().ok_or(ErrorKind::BrokenPipe)?;
        let output = child.stdout.take().ok_or(ErrorKind::BrokenPipe)?;
        for fd in [input.as_fd(), output.as_fd()] {
            fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        }
        Ok(Process { child, input, output })
    }

    /// Sends a message, and waits for its answer.
    fn exchange(&mut self, mut message: &[u8]) -> Result<Vec<u8>, Lost> {
        let begun = Instant::now();
        let (mut arrived, mut part) = (Vec::new(), vec![0; 64 * 1024]);
        loop {
            while !message.is_empty() {
                match self.input.write(message) {
                    Ok(written) => message = message.get(written..).unwrap_or_default(),
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return Err(self.end()),
                }
            }
            match self.output.read(&mut part) {
                Ok(0) => return Err(self.end()),
                Ok(read) => arrived.extend_from_slice(part.get(..read).unwrap_or_default()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    let sending = (!message.is_empty()).then(|| PollFd::new(&self.input, PollFlags::OUT));
                    let fds = [PollFd::new(&self.output, PollFlags::IN)].into_iter().chain(sending);
                    wait_for(&mut fds.collect::<Vec<_>>(), 100);
                }
                Err(_) => return Err(self.end()),
            }
            let len = arrived.first_chunk::<4>().map(|len| u32::from_le_bytes(*len) as usize);
            match len {
                Some(len) if len > MESSAGE_LIMIT => return Err(Lost::Died("the answer is too long".to_owned())),
                Some(len) if arrived.len() >= 4 + len => {
                    arrived.drain(..4);
                    arrived.truncate(len);
                    return Ok(arrived);
                }
                _ => {}
            }
            if interrupted().is_some() {
                return Err(Lost::Interrupted);
            }
            if begun.elapsed() > PATIENCE {
                return Err(Lost::Died(format!("it took more than {} s", PATIENCE.as_secs())));
            }
        }
    }

    /// Waits for the end of the process, which has closed its pipe, and returns why it ended.
    fn end(&mut self) -> Lost {
        let _ = self.child.kill();
        Lost::Died(match self.child.wait().map(|status| (status.signal(), status.code())) {
            // A failed allocation aborts the process.
            Ok((Some(libc::SIGABRT), _)) => "it needs too much memory, or its files are damaged".to_owned(),
            Ok((Some(signal), _)) => format!("signal {signal} ended it"),
            Ok((_, Some(code))) => format!("its process ended with exit code {code}"),
            _ => "its process ended".to_owned(),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs in the separate process: answers questions from standard input until its end.
pub fn serve() {
    limit();
    question::serve(std::io::stdin().lock(), std::io::stdout().lock());
}

/// Limits this process's memory, and makes the kernel kill it when its parent dies
/// ([PR_SET_PDEATHSIG](https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html)).
fn limit() {
    // Each of them is a second line of defence; the process serves without it as well.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let machine = rustix::system::sysinfo();
    let half = machine.totalram.saturating_mul(machine.mem_unit.into()) / 2;
    let most = if half == 0 { MEMORY } else { half.min(MEMORY) };
    // RLIMIT_DATA counts private writable memory, but not files that are mapped read-only.
    let data = getrlimit(Resource::Data);
    let _ = setrlimit(Resource::Data, Rlimit { current: Some(data.current.unwrap_or(u64::MAX).min(most)), ..data });
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // If memory is short nevertheless, the kernel kills this process first.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}
