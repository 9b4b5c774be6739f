//! A process that is profiled: a thread that records it, again and again, so that no recording grows without end.

use super::config;
use super::kit::Kit;
use super::processes::{Identity, Process};
use super::profiles::{Made, Message};
use super::rules::Wanted;
use crate::options::Mode;
use crate::record::attach::{INSIDE, OUTSIDE};
use crate::record::inside::{self, Refusal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use uunwind_built_in::HALVES;
use uunwind_clock::Instant;
use uunwind_recorder::Outcome;
use uunwind_recording::Recording;
use uunwind_remote::{DumpError, Plugins};
use uunwind_remote_sampler::record::{record, Among, Event};
use uunwind_remote_sampler::{Attach, AttachError};
use uunwind_ring::FLAG_WALL;
use uunwind_tables_build::Cache;

/// Time between passes over the rings of a process, and between looks for its threads: one that lives shorter is not
/// sampled.
const INTERVAL: Duration = Duration::from_secs(1);
/// Samples of a recording, after which the next one begins: each profile costs a copy of the recording so far.
const SAMPLES: u64 = 10_000;
/// A recording that ends sooner by itself is not begun again at once.
const LEAST: Duration = Duration::from_secs(5);

/// What becomes of a process.
#[derive(Debug)]
pub enum Said {
    /// It is sampled now, in this way.
    Begun(String),
    /// It cannot be; `again`: that may change.
    Refused {
        /// For people.
        why: String,
        /// Whether another try may help.
        again: bool,
    },
    /// It has ended, or is not sampled any more, as was asked.
    Ended,
    /// For people.
    Note(String),
}

/// A thread that records a process.
pub struct Target {
    /// How it is profiled.
    pub wanted: Wanted,
    /// When the thread began.
    pub since: Instant,
    /// How it is sampled; empty: not yet.
    pub how: String,
    /// What was counted.
    pub made: Arc<Made>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// What the thread has.
struct Work {
    kit: Arc<Kit>,
    identity: Identity,
    wanted: Wanted,
    url: String,
    made: Arc<Made>,
    ends: Arc<AtomicBool>,
    messages: Sender<Message>,
    said: Sender<(Identity, Said)>,
}

/// Why a recording did not begin.
struct Failed {
    why: String,
    again: bool,
}

impl Target {
    /// Starts the thread. `id`: of no other one.
    pub fn start(
        kit: &Arc<Kit>,
        (identity, wanted, id): (Identity, Wanted, u64),
        url: &str,
        messages: Sender<Message>,
        said: Sender<(Identity, Said)>,
    ) -> std::io::Result<Target> {
        let (made, ends) = (Arc::new(Made::default()), Arc::new(AtomicBool::new(false)));
        let work = Work {
            kit: kit.clone(),
            identity,
            wanted: wanted.clone(),
            url: url.to_owned(),
            made: made.clone(),
            ends: ends.clone(),
            messages,
            said,
        };
        let thread = Builder::new().name(format!("of {}", identity.pid)).spawn(move || work.run(id))?;
        Ok(Target { wanted, since: Instant::now(), how: String::new(), made, ends, thread })
    }

    /// Asks the thread to end.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked.
    pub fn is_ending(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the thread. False: it has panicked.
    pub fn join(self) -> bool {
        self.thread.join().is_ok()
    }
}

impl Work {
    fn run(&self, id: u64) {
        let said = match self.kit.folder(id) {
            Ok(folder) => {
                let said = self.record_while_it_lives(id, &folder);
                // The thread that makes profiles lives longer.
                let _ = self.messages.send(Message::Gone(folder));
                said
            }
            Err(error) => Said::Refused { why: format!("its recording's folder cannot be made: {error}"), again: true },
        };
        self.say(said);
    }

    fn say(&self, said: Said) {
        // Who listens lives as long as the agent.
        let _ = self.said.send((self.identity, said));
    }

    fn record_while_it_lives(&self, id: u64, folder: &Path) -> Said {
        loop {
            let begun = Instant::now();
            if let Err(Failed { why, again }) = self.record_once(id, folder) {
                // Of one that is gone, nothing else is to be said.
                let is_over = self.ends.load(Ordering::Relaxed) || !Process::lives(self.identity);
                return if is_over { Said::Ended } else { Said::Refused { why, again } };
            }
            if self.ends.load(Ordering::Relaxed) || !Process::lives(self.identity) {
                return Said::Ended;
            }
            if begun.elapsed() < LEAST && self.made.samples.load(Ordering::Relaxed) < SAMPLES {
                return Said::Refused { why: "its recording ended at once".to_owned(), again: true };
            }
        }
    }

    /// Makes a recording, and profiles of it. It is over when the process has ended, or when it is long enough.
    fn record_once(&self, id: u64, folder: &Path) -> Result<(), Failed> {
        let mut turn = Some(self.kit.turn.lock().unwrap_or_else(PoisonError::into_inner));
        if self.ends.load(Ordering::Relaxed) || !Process::lives(self.identity) {
            return Ok(());
        }
        let pid = self.identity.pid;
        let target = config::target(&self.url, &self.wanted.service, &self.wanted.labels, Some(pid));
        let target = target.map_err(|error| Failed { why: error.to_string(), again: false })?;
        let _ = self.messages.send(Message::Begun(id, Box::new(target), self.made.clone()));
        let mut attach = self.attach(folder);
        let mut begun = |event: Event<'_>, why: &str| {
            if matches!(event, Event::Begun(..)) {
                turn = None;
            }
            self.happened(id, event, why);
        };
        let is_wall = self.wanted.mode == Mode::Wall;
        let outside = match self.kit.foreign.as_ref().filter(|_| !is_wall) {
            _ if is_wall => Some("as mode = \"wall\" asks".to_owned()),
            Some(why) => Some(format!("since {why}")),
            None => match inside::record(&attach, &self.kit.layout.inject, self.kit.analysers(), |event| {
                begun(event, INSIDE);
            }) {
                Ok(recorded) => {
                    self.over(id, recorded);
                    return Ok(());
                }
                Err(Refusal::Never(error)) => return Err(never(&error)),
                Err(Refusal::Declined(declined)) => Some(format!("since {}", declined.why)),
            },
        };
        let why = outside.unwrap_or_default();
        if !self.wanted.outside && !is_wall {
            return Err(Failed { why: format!("no sampler was put into it, {why}; outside = false"), again: true });
        }
        attach.why = format!("{OUTSIDE}, {why}");
        let mut plugins = Plugins::open(self.kit.found(), HALVES);
        let recorded = record(&attach, &mut plugins, &Cache::of_user(), |event| begun(event, &attach.why));
        self.over(id, recorded.map_err(|error| never(&error))?);
        Ok(())
    }

    fn attach(&self, folder: &Path) -> Attach {
        let wall = if self.wanted.mode == Mode::Wall { FLAG_WALL } else { 0 };
        Attach {
            pid: self.identity.pid,
            with_children: false,
            rate: self.wanted.rate,
            duration: None,
            start_paused: false,
            every: Some(self.kit.every),
            every_into: Some(folder.to_owned()),
            flags: wall,
            output: Some(folder.join("recording.uu")),
            namer: self.kit.namer.clone(),
            named: true,
            labels: Vec::new(),
            why: INSIDE.to_owned(),
            among: Some(Among {
                ends: self.ends.clone(),
                interval: INTERVAL,
                samples: SAMPLES,
                recordings: self.kit.most,
            }),
        }
    }

    fn happened(&self, id: u64, event: Event<'_>, how: &str) {
        match event {
            Event::Begun(..) => self.say(Said::Begun(how.to_owned())),
            Event::Snapshot(path, None) => drop(self.messages.send(Message::Copy(id, path.to_owned()))),
            Event::Snapshot(_, Some(why)) => self.say(Said::Note(format!("a profile comes later: {why}"))),
            Event::Left(what) => self.say(Said::Note(what.to_owned())),
            Event::Naming(_) | Event::Over => {}
        }
    }

    fn over(&self, id: u64, (outcome, recording): (Outcome, Option<Recording>)) {
        let _ = self.messages.send(Message::Over(id, recording.map(Box::new)));
        let file: PathBuf = outcome.output;
        // Best effort: its folder is removed in the end.
        let _ = std::fs::remove_file(file);
        if let Some(error) = outcome.write_error {
            self.say(Said::Note(format!("its recording could not be written: {error}")));
        }
    }
}

/// Whether another try may help: rights stay as they are, and so does what a process runs.
fn never(error: &AttachError) -> Failed {
    let is_final = matches!(
        error,
        AttachError::Refused(DumpError::Forbidden { .. } | DumpError::Narrow(_) | DumpError::Kernel(..))
    );
    Failed { why: error.to_string(), again: !is_final }
}
