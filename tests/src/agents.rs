//! An agent that runs while a test looks at it.

use crate::receiver::Server;
use crate::running::wait_for;
use crate::{process, uu};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// An agent that runs.
pub struct Agent {
    /// Its process.
    pub child: Child,
    scratch: PathBuf,
}

/// What every file begins with. Budgets must not interfere on a slow machine.
pub fn head(server: &Server) -> String {
    head_of(&server.url())
}

/// The same for a store with this URL.
pub fn head_of(url: &str) -> String {
    format!("[push]\nurl = \"{url}\"\nevery = 1\n[agent]\nrate = 199\nscan = 1\ncpu = 100\nmemory = \"3G\"\n")
}

impl Agent {
    /// Starts one with this file. `change`: of the command.
    pub fn start_as(scratch: &Path, config: &str, change: impl FnOnce(&mut Command)) -> Agent {
        fs::write(scratch.join("agent.toml"), config).expect("a file");
        let log = File::create(scratch.join("agent.log")).expect("a file");
        let mut command = uu::command(scratch, &["agent", "-c"]);
        command.arg(scratch.join("agent.toml")).arg("--socket").arg(socket(scratch)).env("TMPDIR", scratch).stderr(log);
        change(&mut command);
        let child = command.spawn().expect("uu");
        let mut agent = Agent { child, scratch: scratch.to_path_buf() };
        wait_for("the agent's first lines", || agent.said().contains("the agent runs"));
        agent
    }

    /// Starts one with this file.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn start(scratch: &Path, config: &str) -> Agent {
        Agent::start_as(scratch, config, |_| ())
    }

    /// What it has said so far; it runs.
    #[track_caller]
    pub fn said(&mut self) -> String {
        let said = self.log();
        assert!(self.child.try_wait().expect("its state").is_none(), "it has ended: {said}");
        said
    }

    /// All that it has said, also where it has ended.
    pub fn log(&self) -> String {
        fs::read_to_string(self.scratch.join("agent.log")).expect("a log")
    }

    /// What it says of itself.
    ///
    /// # Panics
    /// Where it does not answer.
    pub fn status(&mut self) -> Value {
        self.said();
        let mut command = uu::command(&self.scratch, &["agent", "status", "--json", "--socket"]);
        let out = process::run(command.arg(socket(&self.scratch)), &self.scratch, uu::LIMIT).expect_code(0);
        serde_json::from_str(&out.stdout).expect("JSON")
    }

    /// Waits until it samples these processes.
    #[track_caller]
    pub fn wait_for(&mut self, pids: &[u32]) {
        wait_for("processes to be profiled", || {
            let status = self.status();
            let is_sampled = |pid: &u32| {
                let is_it = |entry: &&Value| entry["pid"] == *pid && entry["how"] != "begins";
                list(&status, "processes").iter().any(|entry| is_it(&entry))
            };
            pids.iter().all(is_sampled)
        });
    }

    /// Gives it another file, which it reads at once.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn reread(&self, config: &str) {
        fs::write(self.scratch.join("agent.toml"), config).expect("a file");
        self.signal(libc::SIGHUP);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain system call; the child is not waited for yet.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Ends it, and returns what it has said.
    #[track_caller]
    pub fn end(mut self) -> String {
        self.signal(libc::SIGTERM);
        let status = self.child.wait().expect("its end");
        let said = self.log();
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(!socket(&self.scratch).exists(), "its socket is left");
        said
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where it answers.
pub fn socket(scratch: &Path) -> PathBuf {
    scratch.join("run/agent.sock")
}

/// A list of its status.
///
/// # Panics
/// Where there is none.
pub fn list<'v>(status: &'v Value, key: &str) -> &'v [Value] {
    status[key].as_array().expect("a list")
}

/// Fails if something of uu is mapped in a process, or the sampler's signal has a handler there.
///
/// # Panics
/// If so.
#[track_caller]
pub fn is_as_before(pid: u32) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process");
    assert!(!maps.contains("memfd:uu-"), "{maps}");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).expect("a mask");
    let caught = u64::from_str_radix(caught, 16).expect("a number");
    assert_eq!(caught >> (libc::SIGSTKFLT - 1) & 1, 0, "{status}");
}
