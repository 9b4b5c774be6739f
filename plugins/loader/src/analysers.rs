//! The analyse halves of all plugins, each in its process: files go in, findings come out later. A plugin that fails is
//! started again; after [`FAILURE_LIMIT`] failures its analyse half is off.

use crate::server::{wait_readable, Launcher, Server};
use crate::Plugin;
use std::collections::VecDeque;
use std::path::PathBuf;

/// After so many failures an analyse half is off.
pub const FAILURE_LIMIT: u32 = 3;

/// What one plugin makes of one file.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not its own.
    NotMine,
    /// Its own, with these facts.
    Facts(Vec<u8>),
    /// Its own, but not served, for this reason.
    Refused(String),
    /// It failed, in this way.
    Failed(String),
    /// Its analyse half is off.
    Off,
}

/// An answer that came.
#[derive(Debug)]
pub struct Finding {
    /// The key that was asked for.
    pub key: u64,
    /// The plugin's place among [`Analysers::names`].
    pub plugin: usize,
    /// What it made of the file.
    pub outcome: Outcome,
}

/// The analyse halves.
#[derive(Debug, Default)]
pub struct Analysers {
    launcher: Launcher,
    list: Vec<Analyser>,
}

#[derive(Debug)]
struct Analyser {
    plugin: Plugin,
    server: Option<Server>,
    failures: u32,
    /// Under way with `asked`, waiting otherwise.
    queue: VecDeque<(u64, PathBuf)>,
    asked: bool,
}

impl Analysers {
    /// None yet.
    pub fn new(launcher: Launcher) -> Analysers {
        Analysers { launcher, list: Vec::new() }
    }

    /// Adds a plugin that analyses, with its process.
    pub fn add(&mut self, plugin: Plugin, server: Server) {
        self.list.push(Analyser { plugin, server: Some(server), failures: 0, queue: VecDeque::new(), asked: false });
    }

    /// Names of the plugins.
    pub fn names(&self) -> Vec<&str> {
        self.list.iter().map(|a| a.plugin.name.as_str()).collect()
    }

    /// Asks every plugin for a file, whose key was found to be this one.
    pub fn ask(&mut self, key: u64, path: &std::path::Path) {
        for analyser in &mut self.list {
            analyser.queue.push_back((key, path.to_owned()));
        }
    }

    /// Whether answers are due.
    pub fn is_busy(&self) -> bool {
        self.list.iter().any(|a| !a.queue.is_empty())
    }

    /// Waits a little for the next answer.
    pub fn wait(&self) {
        let fds: Vec<i32> = self.list.iter().filter_map(|a| Some(a.server.as_ref()?.poll_fd())).collect();
        wait_readable(&fds, 50);
    }

    /// The answers that have come; sends what waits. Never waits itself.
    pub fn poll(&mut self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (plugin, analyser) in self.list.iter_mut().enumerate() {
            while let Some((key, outcome)) = analyser.next(&self.launcher) {
                findings.push(Finding { key, plugin, outcome });
            }
        }
        findings
    }
}

impl Analyser {
    /// The next answer, if it is there.
    fn next(&mut self, launcher: &Launcher) -> Option<(u64, Outcome)> {
        let (key, path) = self.queue.front().cloned()?;
        if self.failures >= FAILURE_LIMIT {
            return self.finish(key, Outcome::Off);
        }
        if self.server.is_none() {
            match Server::start(launcher, &self.plugin.path).map(|mut server| server.hello().map(|_| server)) {
                Ok(Ok(server)) => self.server = Some(server),
                Ok(Err(trouble)) => return self.failed(key, trouble.to_string()),
                Err(error) => return self.failed(key, format!("its process cannot be started: {error}")),
            }
        }
        let server = self.server.as_mut()?;
        if !self.asked {
            match server.ask(&path) {
                Ok(()) => self.asked = true,
                Err(why) => return self.failed(key, why),
            }
        }
        let answer = match server.answer() {
            Ok(answer) => answer?,
            Err(why) => return self.failed(key, why),
        };
        // Another file may have come to lie under the path.
        let outcome = match answer.outcome {
            _ if answer.key != key => Outcome::NotMine,
            0 => Outcome::NotMine,
            n if n > 0 => Outcome::Facts(answer.facts),
            _ if answer.note.is_empty() => Outcome::Refused("it cannot be served".to_owned()),
            _ => Outcome::Refused(answer.note),
        };
        self.finish(key, outcome)
    }

    fn failed(&mut self, key: u64, why: String) -> Option<(u64, Outcome)> {
        self.server = None;
        self.failures += 1;
        self.finish(key, Outcome::Failed(why))
    }

    fn finish(&mut self, key: u64, outcome: Outcome) -> Option<(u64, Outcome)> {
        self.asked = false;
        self.queue.pop_front();
        Some((key, outcome))
    }
}
