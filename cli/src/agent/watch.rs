//! Finds processes, begins and ends their recordings, and says what it does.

use super::budget::Budget;
use super::config::{self, Config};
use super::kit::Kit;
use super::processes::{self, Identity};
use super::profiles::{Made, Profiles};
use super::rules::{decide, Wanted};
use super::status::Listener;
use super::target::{Said, Target};
use crate::exit::Failure;
use crate::options::Mode;
use crate::terminal;
use serde_json::{json, Value};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_recorder::child::{asked_to_end, catch_signals_for_many, take_hangup, wait};
use uunwind_recorder::machine;
use uunwind_report::formats::printable;

/// Longest wait before a signal, or what a recording says, is taken notice of, in ms; the same while recordings begin.
const SLICE: u32 = 250;
const SHORT_SLICE: u32 = 20;
/// Recordings that begin at a time.
const COMING: usize = 2;
/// Whether a process that was looked at twice fits a rule is asked again after this time: it may have moved to another
/// control group. A process with another name is looked at at once.
const AGAIN: Duration = Duration::from_secs(30);
/// Time before a process that could not be profiled is tried again; it doubles with each time.
const FIRST: Duration = Duration::from_secs(10);
/// The longest such time.
const LONGEST: Duration = Duration::from_secs(600);
/// Time for which a process is left, for the sake of the budget.
const LEFT: Duration = Duration::from_secs(600);
/// Time for all recordings to end.
const LAST: Duration = Duration::from_secs(60);

/// What is known of a process.
struct Known {
    comm: String,
    looks: u32,
    looked: Instant,
    verdict: Option<Verdict>,
}

/// Which rule a process fits.
#[derive(Clone)]
struct Verdict {
    rule: usize,
    /// uu itself, which is never profiled.
    is_own: bool,
    wanted: Option<Wanted>,
}

/// A process that is to be profiled and is not.
struct Refused {
    service: String,
    why: String,
    tries: u32,
    /// When it is tried again; `None`: never.
    next: Option<Instant>,
}

struct Agent {
    config: Config,
    path: PathBuf,
    listener: Listener,
    kit: Arc<Kit>,
    profiles: Profiles,
    said: Receiver<(Identity, Said)>,
    saying: Sender<(Identity, Said)>,
    known: HashMap<Identity, Known>,
    active: HashMap<Identity, Target>,
    refused: BTreeMap<Identity, Refused>,
    /// Those to begin with.
    pending: VecDeque<(Identity, Wanted)>,
    budget: Budget,
    /// What is exceeded of the budget, and was said.
    exceeded: Option<String>,
    /// Number of recordings that were begun.
    ids: u64,
    refusals: u64,
    /// Of recordings that are over: profiles that could not be made, and samples that were lost.
    failed: u64,
    lost: u64,
    begun: Instant,
    next: Instant,
    /// Rules that were looked at once.
    rules_said: bool,
    notes: HashSet<String>,
}

/// Runs until a signal asks for the end. `path`: of the file that `config` is from.
pub fn run(config: Config, path: &Path, listener: Listener) -> Result<u8, Failure> {
    machine::share_arenas();
    catch_signals_for_many().map_err(|e| Failure::new(format!("cannot set signal handlers: {e}")))?;
    let kit = Arc::new(Kit::new(config.every, config.processes)?);
    let target = config::target(&config.url, "agent", &[], None);
    let profiles = Profiles::start(target.map_err(|e| Failure::new(format!("push.url: {e}")))?)?;
    let (saying, said) = channel();
    let now = Instant::now();
    let mut agent = Agent {
        path: path.to_owned(),
        config,
        listener,
        kit,
        profiles,
        said,
        saying,
        known: HashMap::new(),
        active: HashMap::new(),
        refused: BTreeMap::new(),
        pending: VecDeque::new(),
        budget: Budget::new(),
        exceeded: None,
        ids: 0,
        refusals: 0,
        failed: 0,
        lost: 0,
        begun: now,
        next: now,
        rules_said: false,
        notes: HashSet::new(),
    };
    terminal::say(&format!(
        "the agent runs (pid {}), with {} rules of {}; profiles go to {}",
        std::process::id(),
        agent.config.rules.len(),
        agent.path.display(),
        agent.config.url
    ));
    while !asked_to_end() {
        agent.turn();
    }
    agent.finish();
    Ok(0)
}

impl Agent {
    fn turn(&mut self) {
        if take_hangup() {
            self.read_again();
        }
        self.listen();
        let now = Instant::now();
        if now >= self.next {
            self.scan(now);
            self.next = Instant::now() + self.config.scan;
        }
        self.keep_budget();
        self.begin_some();
        self.listener.answer(|| self.status());
        let slice = if self.pending.is_empty() { SLICE } else { SHORT_SLICE };
        wait([self.listener.poll_fd()], slice);
    }

    /// Reads the file again; one that is wrong changes nothing.
    fn read_again(&mut self) {
        match config::read(&self.path) {
            Ok(new) => {
                if (&new.url, new.every, &new.socket) != (&self.config.url, self.config.every, &self.config.socket) {
                    terminal::warn("push.url, push.every and agent.socket change with the agent's next start only");
                }
                let (url, every) = (self.config.url.clone(), self.config.every);
                self.config = Config { url, every, ..new };
                self.known.clear();
                self.refused.clear();
                (self.rules_said, self.next) = (false, Instant::now());
                terminal::say(&format!("{} was read again: {} rules", self.path.display(), self.config.rules.len()));
            }
            Err(failure) => terminal::complain(&format!("{}; the rules stay as they were", failure.text)),
        }
    }

    /// Hears what recordings say.
    fn listen(&mut self) {
        // Asked first: what these have said is there by then.
        let ended = self.active.iter().filter(|(_, target)| target.has_ended());
        let ended: Vec<Identity> = ended.map(|(identity, _)| *identity).collect();
        for (identity, said) in self.said.try_iter().collect::<Vec<_>>() {
            self.heard(identity, said);
        }
        for identity in ended {
            let why = "its recording has failed: uu has panicked, see above".to_owned();
            self.heard(identity, Said::Refused { why, again: true });
        }
    }

    fn heard(&mut self, identity: Identity, said: Said) {
        match said {
            Said::Begun(how) => {
                self.refused.remove(&identity);
                let Some(target) = self.active.get_mut(&identity) else { return };
                if std::mem::replace(&mut target.how, how).is_empty() {
                    let (pid, service) = (identity.pid, &target.wanted.service);
                    terminal::say(&format!("profiles process {pid} as {service}, {}", target.how));
                }
            }
            Said::Refused { why, again } => {
                let Some(wanted) = self.take(identity) else { return };
                let tries = self.refused.get(&identity).map_or(0, |refused| refused.tries) + 1;
                let pause = FIRST.saturating_mul(1 << (tries - 1).min(10)).min(LONGEST);
                self.refuse(identity, wanted.service, why, again.then_some(pause), tries);
            }
            Said::Ended => drop(self.take(identity)),
            Said::Note(note) => self.note(&format!("process {}: {note}", identity.pid)),
        }
    }

    /// A recording is over.
    fn take(&mut self, identity: Identity) -> Option<Wanted> {
        let target = self.active.remove(&identity)?;
        self.failed += target.made.failed.load(Ordering::Relaxed);
        self.lost += target.made.lost.load(Ordering::Relaxed);
        let wanted = target.wanted.clone();
        // That it has panicked is said elsewhere.
        target.join();
        Some(wanted)
    }

    /// Notes that a process is not profiled; says so once for each reason.
    fn refuse(&mut self, identity: Identity, service: String, why: String, pause: Option<Duration>, tries: u32) {
        let before = self.refused.get(&identity).map(|refused| &refused.why);
        if before != Some(&why) {
            self.refusals += 1;
            let again = if pause.is_some() { "; it is tried again later" } else { "" };
            terminal::warn(&format!(
                "process {} ({service}) is not profiled: {}{again}",
                identity.pid,
                printable(&why)
            ));
        }
        let next = pause.map(|pause| Instant::now() + pause);
        self.refused.insert(identity, Refused { service, why, tries, next });
    }

    /// Says something once.
    fn note(&mut self, text: &str) {
        if self.notes.len() < 1000 && self.notes.insert(text.to_owned()) {
            terminal::warn(&printable(text));
        }
    }

    /// Looks at all processes.
    fn scan(&mut self, now: Instant) {
        let all = processes::all();
        let present: HashSet<Identity> = all.iter().map(|process| process.identity).collect();
        self.known.retain(|identity, _| present.contains(identity));
        self.refused.retain(|identity, _| present.contains(identity));
        self.pending.clear();
        for process in &all {
            let identity = process.identity;
            let known = self.known.get(&identity).filter(|known| {
                known.comm == process.comm && known.looks > 1 && now.saturating_duration_since(known.looked) < AGAIN
            });
            let verdict = match known {
                Some(known) => known.verdict.clone(),
                None => self.look(process, now),
            };
            let wanted = verdict.and_then(|verdict| verdict.wanted.filter(|_| !verdict.is_own));
            match (self.active.get(&identity), wanted) {
                (Some(target), wanted) if wanted.as_ref() != Some(&target.wanted) => target.end(),
                (None, Some(wanted)) if self.may_try(identity, now) => self.pending.push_back((identity, wanted)),
                _ => {}
            }
        }
        self.say_of_rules();
    }

    fn look(&mut self, process: &processes::Process, now: Instant) -> Option<Verdict> {
        let verdict =
            decide(&self.config.rules, process).map(|(rule, wanted)| Verdict { rule, is_own: process.is_uu(), wanted });
        let looks = self.known.get(&process.identity).filter(|known| known.comm == process.comm);
        let looks = looks.map_or(1, |known| known.looks.saturating_add(1));
        let known = Known { comm: process.comm.clone(), looks, looked: now, verdict: verdict.clone() };
        self.known.insert(process.identity, known);
        verdict
    }

    fn may_try(&self, identity: Identity, now: Instant) -> bool {
        self.refused.get(&identity).is_none_or(|refused| refused.next.is_some_and(|next| now >= next))
    }

    /// How many processes fit each rule; those of uu apart.
    fn fitting(&self) -> Vec<(usize, usize)> {
        let mut counts = vec![(0, 0); self.config.rules.len()];
        for verdict in self.known.values().filter_map(|known| known.verdict.as_ref()) {
            if let Some((others, own)) = counts.get_mut(verdict.rule) {
                *(if verdict.is_own { own } else { others }) += 1;
            }
        }
        counts
    }

    /// Says once which rules have no process.
    fn say_of_rules(&mut self) {
        if std::mem::replace(&mut self.rules_said, true) {
            return;
        }
        for (rule, (others, own)) in self.config.rules.iter().zip(self.fitting()) {
            let name = rule.service.as_deref().unwrap_or("skip");
            let line = rule.line;
            match (others, own) {
                (0, 0) => terminal::warn(&format!("the rule at line {line} ({name}) names no process so far")),
                (0, _) => terminal::warn(&format!(
                    "the rule at line {line} ({name}) names uu itself alone, which is never profiled"
                )),
                _ => {}
            }
        }
    }

    fn keep_budget(&mut self) {
        let is_coming = !self.pending.is_empty() || self.active.values().any(|target| target.how.is_empty());
        let over = self.budget.look(&self.config, is_coming);
        if over.is_none() {
            self.exceeded = None;
            return;
        }
        let why = over.unwrap_or_default();
        let youngest =
            self.active.iter().filter(|(_, target)| !target.is_ending()).max_by_key(|(_, target)| target.since);
        if let Some((identity, target)) = youngest.filter(|_| self.budget.is_to_shed()) {
            target.end();
            let (identity, service) = (*identity, target.wanted.service.clone());
            self.refuse(identity, service, why.clone(), Some(LEFT), 1);
        }
        self.exceeded = Some(why);
    }

    /// Begins recordings, as many as may begin at a time.
    fn begin_some(&mut self) {
        let mut coming = self.active.values().filter(|target| target.how.is_empty()).count();
        while coming < COMING {
            let Some((identity, wanted)) = self.pending.pop_front() else { return };
            let full = self.active.len() >= self.config.processes;
            let full = full.then(|| format!("{} processes are profiled already (agent.processes)", self.active.len()));
            if let Some(why) = full.or(self.exceeded.clone()) {
                let tries = self.refused.get(&identity).map_or(0, |refused| refused.tries);
                self.refuse(identity, wanted.service, why, Some(self.config.scan), tries);
                continue;
            }
            self.ids += 1;
            let service = wanted.service.clone();
            let (messages, said) = (self.profiles.messages(), self.saying.clone());
            match Target::start(&self.kit, (identity, wanted, self.ids), &self.config.url, messages, said) {
                Ok(target) => {
                    self.active.insert(identity, target);
                    coming += 1;
                }
                Err(error) => {
                    self.refuse(identity, service, format!("no thread can be started: {error}"), Some(LONGEST), 1);
                }
            }
        }
    }

    /// Ends all recordings, and sends what they have.
    fn finish(mut self) {
        terminal::say(&format!("the agent ends: it leaves {} processes", self.active.len()));
        self.kit.namer.hurry();
        self.active.values().for_each(Target::end);
        let begun = Instant::now();
        while !self.active.is_empty() && begun.elapsed() < LAST {
            self.listen();
            self.listener.answer(|| self.status());
            wait([self.listener.poll_fd()], SHORT_SLICE);
        }
        if !self.active.is_empty() {
            terminal::warn(&format!(
                "{} recordings did not end within {} s; their samplers end with this uu, and what was not sent is lost",
                self.active.len(),
                LAST.as_secs()
            ));
            return;
        }
        let url = self.config.url;
        let counts = self.profiles.finish();
        terminal::say(&format!("pushed {} profiles ({} samples) to {url}", counts.sent, counts.samples));
        if counts.refused + counts.dropped + counts.waiting > 0 {
            terminal::warn(&format!(
                "{} profiles were refused, {} found no room, {} wait to be sent",
                counts.refused, counts.dropped, counts.waiting
            ));
        }
    }

    fn status(&self) -> Value {
        let now = Instant::now();
        let mut active: Vec<_> = self.active.iter().collect();
        active.sort_by_key(|(identity, _)| **identity);
        let processes = active.into_iter().map(|(identity, target)| {
            let made = |count: &AtomicU64| count.load(Ordering::Relaxed);
            json!({
                "pid": identity.pid,
                "service": target.wanted.service,
                "labels": target.wanted.labels,
                "rule": target.wanted.line,
                "rate": target.wanted.rate,
                "mode": if target.wanted.mode == Mode::Wall { "wall" } else { "cpu" },
                "how": if target.how.is_empty() { "begins" } else { &target.how },
                "profiles": made(&target.made.profiles),
                "samples": made(&target.made.samples),
                "lost": made(&target.made.lost),
                "notes": *target.made.notes.lock().unwrap_or_else(PoisonError::into_inner),
                "seconds": target.since.elapsed().as_secs(),
            })
        });
        let processes: Vec<Value> = processes.collect();
        let refused = self.refused.iter().filter(|(identity, _)| !self.active.contains_key(identity));
        let refused = refused.map(|(identity, refused)| {
            json!({
                "pid": identity.pid,
                "service": refused.service,
                "why": refused.why,
                "tries": refused.tries,
                "again_in_seconds": refused.next.map(|next| next.saturating_duration_since(now).as_secs()),
            })
        });
        let refused: Vec<Value> = refused.collect();
        let rules = self.config.rules.iter().zip(self.fitting()).map(|(rule, (others, own))| {
            json!({ "line": rule.line, "service": rule.service, "processes": others, "uu_itself": own })
        });
        let rules: Vec<Value> = rules.collect();
        let sum = |count: fn(&Made) -> &AtomicU64| -> u64 {
            self.active.values().map(|target| count(&target.made).load(Ordering::Relaxed)).sum()
        };
        let counts = self.profiles.counts();
        json!({
            "pid": std::process::id(),
            "config": self.path,
            "seconds": self.begun.elapsed().as_secs(),
            "push": {
                "url": self.config.url,
                "sent": counts.sent,
                "samples": counts.samples,
                "refused": counts.refused,
                "dropped": counts.dropped,
                "waiting": counts.waiting,
                "failed": self.failed + sum(|made| &made.failed),
                "lost": self.lost + sum(|made| &made.lost),
            },
            "budget": {
                "cpu_percent": self.budget.cpu,
                "cpu_percent_limit": self.config.cpu,
                "memory_bytes": self.budget.memory,
                "memory_bytes_limit": self.config.memory,
                "processes_limit": self.config.processes,
            },
            "refusals": self.refusals,
            "processes": processes,
            "refused": refused,
            "rules": rules,
        })
    }
}
