//! The halves of all plugins that run outside of handlers, each in its own process: files go in, findings come out
//! later; when the recording ends, line tables go in, lines come out. A plugin that
//! fails is started again; after [`FAILURE_LIMIT`] failures its analyse half is switched off.

use crate::answers::{identity, Answers};
use crate::server::{wait_readable, Launcher, Server};
use crate::wire::{Answer, Table};
use crate::Plugin;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use uunwind_elf::private_folder::Drawer;
use uunwind_elf::FileId;
use uunwind_language::Language;

/// Number of failures after which an analyse half is switched off.
pub const FAILURE_LIMIT: u32 = 3;

/// A plugin's result for one file.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The plugin does not claim the file.
    NotMine,
    /// The plugin claims the file, with these facts.
    Facts(Vec<u8>),
    /// The plugin claims the file but cannot serve it, for this reason.
    Refused(String),
    /// The plugin failed, in this way.
    Failed(String),
    /// The plugin's analyse half is off.
    Off,
}

impl Outcome {
    /// Whether nobody knows what the plugin would have found.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Outcome::Failed(_) | Outcome::Off)
    }
}

/// An answer that arrived.
#[derive(Debug)]
pub struct Finding {
    /// The key of the file.
    pub key: u64,
    /// Index of the plugin in [`Analysers::names`].
    pub plugin: usize,
    /// The plugin's result.
    pub outcome: Outcome,
}

/// The analyse halves of a recording.
#[derive(Debug, Default)]
pub struct Analysers {
    launcher: Launcher,
    list: Vec<Analyser>,
    answers: Option<Answers>,
}

#[derive(Debug)]
struct Analyser {
    plugin: Plugin,
    server: Option<Server>,
    failures: u32,
    /// Files to analyse: the first is being analysed if `asked` is set, the others wait.
    queue: VecDeque<Request>,
    asked: bool,
    /// The first file of the queue as it was before it was asked for, where its answer may be kept.
    file: Option<FileId>,
}

/// A file to be analysed.
#[derive(Clone, Debug)]
struct Request {
    key: u64,
    /// Where it can be opened.
    file: PathBuf,
    /// Where the program has it.
    path: PathBuf,
}

impl Analysers {
    /// No plugins yet.
    pub fn new(launcher: Launcher) -> Analysers {
        Analysers { launcher, list: Vec::new(), answers: None }
    }

    /// Keeps what uu's own halves answer in this folder, and looks for it there.
    pub fn keep_answers(&mut self, folder: Drawer) {
        self.answers = Answers::new(folder, &self.launcher);
    }

    /// Adds a plugin, with its process if it has a half that runs there.
    pub fn add(&mut self, plugin: Plugin, server: Option<Server>) {
        self.list.push(Analyser { plugin, server, failures: 0, queue: VecDeque::new(), asked: false, file: None });
    }

    /// What reports must know of the plugins' languages.
    pub fn languages(&self) -> Vec<Language> {
        self.list.iter().map(|a| a.plugin.language.clone()).collect()
    }

    /// The command that starts a plugin's process.
    pub fn launcher(&self) -> &Launcher {
        &self.launcher
    }

    /// Names of the plugins.
    pub fn names(&self) -> Vec<&str> {
        self.list.iter().map(|a| a.plugin.name.as_str()).collect()
    }

    /// Asks every plugin to analyse a file, identified by `key`, which can be opened at `file` and which the program
    /// has at `path`.
    pub fn ask(&mut self, key: u64, file: &Path, path: &Path) {
        for analyser in &mut self.list {
            analyser.queue.push_back(Request { key, file: file.to_owned(), path: path.to_owned() });
        }
    }

    /// The lines of all positions in tables of a plugin, in order; 0: not available. Waits for them. `tables` must fit
    /// into a message.
    pub fn lines(&mut self, plugin: &str, tables: Vec<Table>) -> Result<Vec<u32>, String> {
        let found = self.list.iter_mut().find(|a| a.plugin.name == plugin && a.plugin.decodes);
        let analyser = found.ok_or("it does not decode its line tables")?;
        if std::mem::take(&mut analyser.asked) {
            // An answer about a file is outstanding, and nobody needs it any more.
            (analyser.server, analyser.queue) = (None, VecDeque::new());
        }
        let done = analyser.running(&self.launcher).and_then(|server| server.lines(tables));
        if done.is_err() {
            analyser.server = None;
            analyser.failures += 1;
        }
        done
    }

    /// Ends the plugins' processes, and waits for their ends. One that is asked again is started again.
    pub fn close(&mut self) {
        for analyser in &mut self.list {
            analyser.server = None;
            analyser.asked = false;
        }
        self.answers.iter_mut().for_each(Answers::shrink);
    }

    /// Ends the processes of plugins from which no answer is outstanding: they are started again when they are asked.
    pub fn rest(&mut self) {
        for analyser in self.list.iter_mut().filter(|analyser| analyser.queue.is_empty()) {
            analyser.server = None;
        }
    }

    /// Whether answers are outstanding.
    pub fn is_busy(&self) -> bool {
        self.list.iter().any(|a| !a.queue.is_empty())
    }

    /// Descriptors that become readable when an answer arrives.
    pub fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.list.iter().filter(|a| a.asked).filter_map(|a| Some(a.server.as_ref()?.poll_fd()))
    }

    /// Waits a short time for the next answer.
    pub fn wait(&self) {
        wait_readable(self.list.iter().filter_map(|a| Some(a.server.as_ref()?.poll_fd())), 50);
    }

    /// The answers that arrived; also sends waiting requests. Does not block.
    pub fn poll(&mut self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (plugin, analyser) in self.list.iter_mut().enumerate() {
            while let Some((key, outcome)) = analyser.next(&self.launcher, &mut self.answers) {
                findings.push(Finding { key, plugin, outcome });
            }
        }
        findings
    }
}

impl Analyser {
    /// The next answer, if it has arrived.
    fn next(&mut self, launcher: &Launcher, answers: &mut Option<Answers>) -> Option<(u64, Outcome)> {
        let Request { key, file, path } = self.queue.front().cloned()?;
        if !self.plugin.analyses {
            return self.finish(key, Outcome::NotMine);
        }
        if self.failures >= FAILURE_LIMIT {
            return self.finish(key, Outcome::Off);
        }
        let mut answers = answers.as_mut().filter(|_| self.plugin.built_in);
        let asked = self.asked;
        if !asked {
            self.file = answers.as_ref().and_then(|_| identity(&file));
            let kept = self.file.and_then(|id| answers.as_ref()?.find(&self.plugin, id));
            if let Some(answer) = kept.filter(|answer| answer.key == key) {
                return self.finish(key, outcome(answer));
            }
        }
        let server = match self.running(launcher) {
            Ok(server) => server,
            Err(why) => return self.failed(key, why),
        };
        if !asked {
            if let Err(why) = server.ask(&file, &path) {
                return self.failed(key, why);
            }
        }
        let answer = server.answer();
        self.asked = true;
        let answer = match answer {
            Ok(answer) => answer?,
            Err(why) => return self.failed(key, why),
        };
        // Another file may have replaced the one under the path.
        if answer.key != key {
            return self.finish(key, Outcome::NotMine);
        }
        if let (Some(answers), Some(id)) = (&mut answers, self.file.filter(|id| identity(&file) == Some(*id))) {
            answers.keep(&self.plugin, id, &answer);
        }
        self.finish(key, outcome(answer))
    }

    /// Its process, started again if it has ended.
    fn running(&mut self, launcher: &Launcher) -> Result<&mut Server, String> {
        if self.server.is_none() {
            if self.failures >= FAILURE_LIMIT {
                return Err("it is off".to_owned());
            }
            let mut server = Server::start(launcher, &self.plugin.path)
                .map_err(|error| format!("its process cannot be started: {error}"))?;
            server.hello().map_err(|trouble| trouble.to_string())?;
            self.server = Some(server);
        }
        self.server.as_mut().ok_or_else(|| "it has ended".to_owned())
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

fn outcome(answer: Answer) -> Outcome {
    match answer.outcome {
        0 => Outcome::NotMine,
        n if n > 0 => Outcome::Facts(answer.facts),
        _ if answer.note.is_empty() => Outcome::Refused("it cannot be served".to_owned()),
        _ => Outcome::Refused(answer.note),
    }
}
