//! Determines which plugin an object belongs to: the plugins' analyse halves examine it, and the first plugin in their
//! order that claims it gets it.

use crate::child::interrupted;
use crate::facts::{FactsPublisher, Full};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use uunwind_core::plugin::padded;
use uunwind_loader::analysers::{Analysers, Finding, Outcome, FAILURE_LIMIT};

/// An object for which answers of plugins are outstanding.
struct Pending {
    path: PathBuf,
    answers: Vec<Option<Outcome>>,
    /// What the answers say is decided, and published if they say anything.
    published: bool,
    /// Index of the plugin whose claim was published.
    winner: Option<usize>,
}

/// The objects that plugins are examining.
#[derive(Default)]
pub struct Claims {
    analysers: Analysers,
    names: Vec<String>,
    failures: Vec<u32>,
    pending: HashMap<u64, Pending>,
    notes: Vec<String>,
}

impl Claims {
    /// Creates it for these plugins.
    pub fn new(analysers: Analysers) -> Claims {
        let names: Vec<String> = analysers.names().into_iter().map(str::to_owned).collect();
        Claims { failures: vec![0; names.len()], names, analysers, ..Claims::default() }
    }

    /// Notes for the user since the last call, a line each.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// The plugins' halves that run outside of handlers.
    pub fn analysers(&mut self) -> &mut Analysers {
        &mut self.analysers
    }

    /// Descriptors that become readable when a plugin has answered.
    pub fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.analysers.poll_fds()
    }

    /// Whether plugins are examining the object with this key.
    pub fn is_pending(&self, key: u64) -> bool {
        self.pending.contains_key(&key)
    }

    /// Publishes the object's owner and facts, now or when the plugins have answered. The object can be opened at
    /// `file`; the program has it at `path`.
    pub fn settle(&mut self, key: u64, file: &Path, path: &Path, facts: &mut FactsPublisher) -> Result<(), Full> {
        if facts.has(key) || self.is_pending(key) {
            return Ok(());
        }
        let answers = self.names.iter().map(|_| None).collect();
        self.pending.insert(key, Pending { path: path.to_owned(), answers, published: false, winner: None });
        self.analysers.ask(key, file, path);
        self.decide(key, facts)
    }

    /// Processes the answers that have arrived. Never waits.
    pub fn poll(&mut self, facts: &mut FactsPublisher) -> Result<(), Full> {
        let mut result = Ok(());
        for finding in self.analysers.poll() {
            let key = finding.key;
            self.take(finding);
            result = result.and(self.decide(key, facts));
        }
        result
    }

    /// Waits for all answers, unless a signal asks uu to end. Called before the program starts, so that the facts of
    /// its own objects are available from its first sample on.
    pub fn wait(&mut self, facts: &mut FactsPublisher) -> Result<(), Full> {
        let mut result = self.poll(facts);
        while self.analysers.is_busy() && interrupted().is_none() {
            self.analysers.wait();
            result = result.and(self.poll(facts));
        }
        result
    }

    fn take(&mut self, finding: Finding) {
        let (Some(pending), Some(name)) = (self.pending.get_mut(&finding.key), self.names.get(finding.plugin)) else {
            return;
        };
        let path = pending.path.display();
        match &finding.outcome {
            Outcome::Refused(why) => self.notes.push(format!("{path}: plugin \"{name}\": {why}")),
            Outcome::Failed(why) => {
                let failures = self.failures.get_mut(finding.plugin).map_or(0, |count| {
                    *count += 1;
                    *count
                });
                let off = if failures < FAILURE_LIMIT { "" } else { "; its analyse half is off from here on" };
                self.notes.push(format!("plugin \"{name}\" could not analyse {path}: {why}{off}"));
            }
            Outcome::NotMine | Outcome::Facts(_) | Outcome::Off => {}
        }
        if let Some(answer) = pending.answers.get_mut(finding.plugin) {
            *answer = Some(finding.outcome);
        }
    }

    /// Publishes the first claim once no plugin before it can still claim the object, or that there is none. Forgets
    /// the object when all have answered.
    fn decide(&mut self, key: u64, facts: &mut FactsPublisher) -> Result<(), Full> {
        let Some(pending) = self.pending.get_mut(&key) else { return Ok(()) };
        let mut result = Ok(());
        if !pending.published {
            let answered = pending.answers.iter().take_while(|answer| answer.is_some()).count();
            let claim = pending.answers.iter().take(answered).enumerate().find_map(|(index, answer)| match answer {
                Some(Outcome::Facts(bytes)) => Some((index, bytes)),
                _ => None,
            });
            if let Some((index, bytes)) = claim {
                (pending.published, pending.winner) = (true, Some(index));
                result = facts.publish(key, padded(self.names.get(index).map_or("", String::as_str)), bytes);
            } else if answered == pending.answers.len() {
                pending.published = true;
                // Nobody knows whether one that failed would have claimed it: the samples through it stay marked as
                // those from before all answers.
                if !pending.answers.iter().flatten().any(Outcome::is_unknown) {
                    result = facts.publish(key, [0; 16], b"");
                }
            }
        }
        if pending.published && pending.answers.iter().all(Option::is_some) {
            let winner = pending.winner.and_then(|index| self.names.get(index));
            for (name, answer) in self.names.iter().zip(&pending.answers) {
                if let (Some(Outcome::Facts(_)), Some(winner)) = (answer, winner.filter(|w| *w != name)) {
                    let path = pending.path.display();
                    self.notes.push(format!(
                        "{path} is claimed by the plugins \"{winner}\" and \"{name}\"; \"{winner}\", found first, has it"
                    ));
                }
            }
            self.pending.remove(&key);
        }
        result
    }
}
