//! Whose an object is: what the plugins' analyse halves say of it, in the order of the plugins; the first claim holds.

use crate::facts::{FactsPublisher, Full};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use uunwind_analyse::ObjectFacts;
use uunwind_core::plugin::trimmed;
use uunwind_loader::analysers::{Analysers, Finding, Outcome, FAILURE_LIMIT};

/// An object that not every plugin has answered for.
struct Pending {
    path: PathBuf,
    /// What the analysers say that are part of uu: they come first.
    own: Option<ObjectFacts>,
    answers: Vec<Option<Outcome>>,
    published: bool,
}

/// The objects that plugins are being asked about.
#[derive(Default)]
pub struct Claims {
    analysers: Analysers,
    names: Vec<String>,
    failures: Vec<u32>,
    pending: HashMap<u64, Pending>,
    notes: Vec<String>,
}

impl Claims {
    /// With these plugins.
    pub fn new(analysers: Analysers) -> Claims {
        let names: Vec<String> = analysers.names().into_iter().map(str::to_owned).collect();
        Claims { failures: vec![0; names.len()], names, analysers, ..Claims::default() }
    }

    /// Lines for people that came up since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Whether plugins are being asked about the object with this key.
    pub fn is_pending(&self, key: u64) -> bool {
        self.pending.contains_key(&key)
    }

    /// Publishes whose the object is, now or when the plugins have answered.
    pub fn settle(
        &mut self,
        key: u64,
        path: &Path,
        own: Option<ObjectFacts>,
        facts: &mut FactsPublisher,
    ) -> Result<(), Full> {
        if facts.has(key) || self.is_pending(key) {
            return Ok(());
        }
        let answers = self.names.iter().map(|_| None).collect();
        self.pending.insert(key, Pending { path: path.to_owned(), own, answers, published: false });
        self.analysers.ask(key, path);
        self.decide(key, facts)
    }

    /// Takes the answers that have come. Never waits.
    pub fn poll(&mut self, facts: &mut FactsPublisher) -> Result<(), Full> {
        let mut result = Ok(());
        for finding in self.analysers.poll() {
            let key = finding.key;
            self.take(finding);
            result = result.and(self.decide(key, facts));
        }
        result
    }

    /// Waits for all answers: before the program starts, so that its own objects are known from its first sample on.
    pub fn wait(&mut self, facts: &mut FactsPublisher) -> Result<(), Full> {
        let mut result = self.poll(facts);
        while self.analysers.is_busy() {
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

    /// Publishes the first claim once nobody before it can still claim; forgets the object when all have answered.
    fn decide(&mut self, key: u64, facts: &mut FactsPublisher) -> Result<(), Full> {
        let Some(pending) = self.pending.get_mut(&key) else { return Ok(()) };
        let mut result = Ok(());
        if !pending.published {
            let known = pending.answers.iter().take_while(|answer| answer.is_some()).count();
            let claim = pending.answers.iter().take(known).enumerate().find_map(|(index, answer)| match answer {
                Some(Outcome::Facts(bytes)) => Some((padded(self.names.get(index)?), bytes.clone())),
                _ => None,
            });
            let claim = pending.own.take().map(|own| (own.plugin, own.bytes)).or(claim);
            let nobody = ([0; 16], Vec::new());
            if let Some((plugin, bytes)) = claim.or((known == pending.answers.len()).then_some(nobody)) {
                pending.published = true;
                result = facts.publish(key, plugin, &bytes);
                let winner = String::from_utf8_lossy(trimmed(&plugin)).into_owned();
                pending.own = (!winner.is_empty()).then_some(ObjectFacts { plugin, bytes: Vec::new() });
            }
        }
        if pending.published && pending.answers.iter().all(Option::is_some) {
            let winner = pending.own.as_ref().map(|own| String::from_utf8_lossy(trimmed(&own.plugin)).into_owned());
            for (name, answer) in self.names.iter().zip(&pending.answers) {
                if let (Some(Outcome::Facts(_)), Some(winner)) = (answer, winner.as_ref().filter(|w| *w != name)) {
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

fn padded(name: &str) -> [u8; 16] {
    let mut padded = [0; 16];
    for (to, from) in padded.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    padded
}
