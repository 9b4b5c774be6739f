//! Runs a program with a time limit, and keeps its output.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The output of a program, and how it ended.
pub struct Outcome {
    /// How it ended.
    pub status: ExitStatus,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
    /// User and system CPU seconds of it and of the children that it waited for.
    pub cpu: f64,
    /// Wall-clock seconds.
    pub wall: f64,
}

impl Outcome {
    /// The exit code as a shell shows it: 128 + n for signal n.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// All of it, for the message of a failed test.
    pub fn text(&self) -> String {
        format!("exit {}\n--- stdout\n{}\n--- stderr\n{}", self.code(), ends(&self.stdout), ends(&self.stderr))
    }

    /// Fails unless the program ended with this exit code.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Outcome {
        assert!(self.code() == code, "expected exit {code}: {}", self.text());
        self
    }
}

/// A text's beginning, where `uu record` reports what was lost, and its end, where programs say why they failed.
fn ends(text: &str) -> String {
    const EACH: usize = 4000;
    let (mut to, mut from) = (EACH, text.len().saturating_sub(EACH));
    if from <= to {
        return text.to_owned();
    }
    while !text.is_char_boundary(to) {
        to -= 1;
    }
    while !text.is_char_boundary(from) {
        from += 1;
    }
    format!("{}\n[{} bytes left out]\n{}", &text[..to], from - to, &text[from..])
}

/// Gives a command the changes of the environment that another one has.
pub fn environment_of(other: &Command, command: &mut Command) {
    for (name, value) in other.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// Runs `command` in a process group of its own, with standard input empty and its output kept in files in `scratch`.
///
/// # Panics
/// If it cannot be started, or takes longer than `limit`: then the whole group is killed.
#[track_caller]
#[allow(clippy::zombie_processes, reason = "wait4 below takes the place of wait")]
pub fn run(command: &mut Command, scratch: &Path, limit: Duration) -> Outcome {
    let (out, err) = (scratch.join("stdout.txt"), scratch.join("stderr.txt"));
    let file = |path| std::fs::File::create(path).expect("a file in the scratch folder");
    command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&err)).process_group(0);
    let started = Instant::now();
    let child = command.spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    let pid = child.id() as libc::pid_t;
    let (status, cpu) = loop {
        if let Some(end) = reap(pid) {
            break end;
        }
        if started.elapsed() > limit {
            // SAFETY: plain system call; the group is the one that was made for this child.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
            reap_blocking(pid);
            let said =
                Outcome { status: ExitStatus::from_raw(9), stdout: read(&out), stderr: read(&err), cpu: 0., wall: 0. };
            panic!("{command:?} took longer than {limit:?}: {}", said.text());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Outcome { status, stdout: read(&out), stderr: read(&err), cpu, wall: started.elapsed().as_secs_f64() }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

fn reap(pid: libc::pid_t) -> Option<(ExitStatus, f64)> {
    wait(pid, libc::WNOHANG)
}

fn reap_blocking(pid: libc::pid_t) {
    wait(pid, 0);
}

/// Calls `wait4`, which alone returns the CPU time of this one child.
fn wait(pid: libc::pid_t, options: libc::c_int) -> Option<(ExitStatus, f64)> {
    let mut status = 0;
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid; the pid is our child's, and only this function waits for it.
    let got = unsafe { libc::wait4(pid, &mut status, options, &mut usage) };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    (got == pid).then(|| (ExitStatus::from_raw(status), seconds(usage.ru_utime) + seconds(usage.ru_stime)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_signal_are_kept() {
        let dir = crate::paths::scratch("process");
        let got = run(
            Command::new("sh").args(["-c", "echo out; echo err >&2; kill -SEGV $$"]),
            &dir,
            Duration::from_secs(10),
        );
        assert_eq!((got.code(), &*got.stdout, &*got.stderr), (139, "out\n", "err\n"));
    }

    #[test]
    fn long_texts_keep_both_ends() {
        let long = format!("first{}last", "\u{e4}".repeat(6000));
        let kept = ends(&long);
        assert!(kept.starts_with("first") && kept.ends_with("last") && kept.contains("bytes left out]"), "{kept}");
        assert!(kept.len() < 8100 && ends("short") == "short");
    }

    #[test]
    #[should_panic(expected = "took longer")]
    fn a_hang_is_a_failure() {
        let dir = crate::paths::scratch("process");
        run(Command::new("sleep").arg("60"), &dir, Duration::from_millis(50));
    }
}
