//! A program that runs while a test looks at it from outside.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

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
        self.say("end");
        self.child.wait().expect("its end").code()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.child.kill().expect("a kill");
        self.child.wait().expect("its end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
