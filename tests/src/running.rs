//! A program that runs while a test looks at it from outside.

use crate::uu;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that runs until it is asked to end, or dropped.
pub struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
    input: Option<ChildStdin>,
}

impl Running {
    /// Starts it, with pipes to its standard input and output.
    pub fn start(command: &mut Command) -> Running {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a program");
        let lines = BufReader::new(child.stdout.take().expect("its output"));
        Running { input: child.stdin.take(), lines, child }
    }

    /// Starts it, and waits for its line "ready".
    #[track_caller]
    pub fn ready(command: &mut Command) -> Running {
        let mut running = Running::start(command);
        assert_eq!(running.line(), "ready");
        running
    }

    /// The next line that it writes; empty after the last one.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Writes a line to it.
    pub fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input");
        writeln!(input, "{line}").expect("it reads");
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says "end" to it. Returns its exit code.
    pub fn end(mut self) -> Option<i32> {
        // It may have ended by itself.
        let _ = self.input.as_mut().map(|input| writeln!(input, "end"));
        self.child.wait().expect("its end").code()
    }

    /// Closes its standard input. Returns its exit code.
    pub fn close(mut self) -> Option<i32> {
        self.input = None;
        self.child.wait().expect("its end").code()
    }

    /// Sends it a signal, and waits for its end. True: it has written a core file.
    pub fn end_by(&mut self, signal: i32) -> bool {
        use std::os::unix::process::ExitStatusExt;
        // SAFETY: plain system call; the child is not waited for yet.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        self.child.wait().expect("its end").core_dumped()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.child.kill().expect("a kill");
        self.child.wait().expect("its end");
    }
}

/// Whether the kernel says that each thread of the process sleeps.
pub fn all_sleep(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let mut stats =
        tasks.map(|task| std::fs::read_to_string(task.expect("a thread").path().join("stat")).expect("stat"));
    stats.all(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S")))
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something is so, but not for ever.
///
/// # Panics
/// If it takes longer than [`uu::LIMIT`].
#[track_caller]
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < uu::LIMIT, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
