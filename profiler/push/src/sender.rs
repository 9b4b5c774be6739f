//! The thread that sends. What may succeed later is tried again, later and later; what never will is dropped, counted
//! and said once.

use crate::attempt::Attempt;
use crate::otlp;
use crate::pyroscope;
use crate::spool::{Spool, Waiting};
use crate::target::{Protocol, Target};
use crate::tls::Trust;
use crate::window::Profile;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use uunwind_clock::channel::{self, channel, Receiver};
use uunwind_clock::Instant;

/// Longest time of one request.
const REQUEST: Duration = Duration::from_secs(10);
/// Time before the first repetition; it doubles with each one.
const FIRST: Duration = Duration::from_secs(1);
/// The longest such time.
const LONGEST: Duration = Duration::from_secs(60);
/// What the store may ask for at most (`Retry-After`).
const ASKED: Duration = Duration::from_secs(600);
/// Time for all that waits when the recording is over.
const LAST: Duration = Duration::from_secs(10);
/// Longest nap.
const NAP: Duration = Duration::from_secs(3600);

/// What became of the profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The store has them.
    pub sent: u64,
    /// Samples in those.
    pub samples: u64,
    /// The store refused them, for good.
    pub refused: u64,
    /// They found no room in the folder of those that wait.
    pub dropped: u64,
    /// They wait there; the next uu that pushes to the same place sends them.
    pub waiting: u64,
    /// Of those that were sent, left by an earlier uu.
    pub earlier: u64,
}

/// A thread that sends profiles, of one service or of several: each profile says whose it is.
pub struct Sender {
    profiles: channel::Sender<Profile>,
    shown: Arc<Mutex<Counts>>,
    thread: JoinHandle<Counts>,
}

impl Sender {
    /// Starts the thread. `target`: where profiles go, and who asks; its service is not looked at. `base`: the folder
    /// below which profiles wait. `say`: shows a line to the user.
    pub fn start(target: Target, base: &Path, say: impl Fn(&str) + Send + 'static) -> io::Result<Sender> {
        let (spool, earlier) = Spool::open(base, &target.url())?;
        let (profiles, receiver) = channel();
        let (begin, shown) = (Instant::now(), Arc::default());
        let mut work = Work {
            target,
            trust: Trust::default(),
            spool,
            say: Box::new(say),
            counts: Counts::default(),
            shown: Arc::clone(&shown),
            earlier,
            said: String::new(),
            pause: FIRST,
            next: begin,
        };
        let thread = std::thread::Builder::new().name("push".to_owned()).spawn(move || work.run(&receiver))?;
        Ok(Sender { profiles, shown, thread })
    }

    /// Hands a profile over.
    pub fn send(&self, profile: Profile) {
        // The thread ends after this only.
        let _ = self.profiles.send(profile);
    }

    /// What became of the profiles so far.
    pub fn counts(&self) -> Counts {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what still waits, for a few seconds at most, and ends.
    pub fn finish(self) -> Counts {
        drop(self.profiles);
        self.thread.join().unwrap_or_default()
    }
}

struct Work {
    target: Target,
    trust: Trust,
    spool: Spool,
    say: Box<dyn Fn(&str) + Send>,
    counts: Counts,
    /// The same, for others.
    shown: Arc<Mutex<Counts>>,
    /// Profiles of an earlier uu that were not sent yet.
    earlier: usize,
    /// What was said last.
    said: String,
    /// Time before the next repetition.
    pause: Duration,
    /// When something may be sent again.
    next: Instant,
}

impl Work {
    fn run(&mut self, profiles: &Receiver<Profile>) -> Counts {
        loop {
            let now = Instant::now();
            self.counts.waiting = self.spool.count() as u64;
            *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = self.counts;
            let longest = match self.counts.waiting {
                0 => NAP,
                _ => self.next.saturating_duration_since(now),
            };
            match profiles.recv_timeout(longest) {
                Ok(profile) => self.add(&profile),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            profiles.try_iter().for_each(|profile| self.add(&profile));
            if Instant::now() >= self.next {
                self.attempt(REQUEST);
            }
        }
        let begin = Instant::now();
        loop {
            let left = LAST.saturating_sub(begin.elapsed());
            if left.is_zero() || self.spool.count() == 0 || !self.attempt(left) {
                break;
            }
        }
        self.counts.waiting = self.spool.count() as u64;
        if self.counts.waiting > 0 {
            (self.say)(&format!(
                "--push: {} profiles wait in {}; the next uu that pushes to {} sends them",
                self.counts.waiting,
                self.spool.folder().display(),
                self.target.url()
            ));
        }
        self.counts
    }

    fn add(&mut self, profile: &Profile) {
        match self.spool.add(profile.samples, &profile.query, &profile.bytes) {
            Ok(gone) => {
                self.earlier = self.earlier.saturating_sub(gone);
                self.counts.dropped += gone as u64;
            }
            Err(error) => {
                self.counts.dropped += 1;
                let folder = self.spool.folder().display();
                self.once(&format!("--push: a profile is lost: it cannot be written to {folder}: {error}"));
            }
        }
    }

    /// Sends the oldest profile, if there is one. False: nothing may be sent for now.
    fn attempt(&mut self, longest: Duration) -> bool {
        let waiting = match self.spool.oldest() {
            Ok(Some(waiting)) => waiting,
            Ok(None) => return false,
            Err(error) => {
                self.once(&format!("--push: {} cannot be read: {error}", self.spool.folder().display()));
                self.later(None);
                return false;
            }
        };
        let (target, trust) = (&self.target, &mut self.trust);
        let attempt = match &target.protocol {
            _ if waiting.query.is_empty() => Attempt::Refused("it was damaged while it waited".to_owned()),
            Protocol::Pyroscope { .. } => {
                pyroscope::judge(pyroscope::ingest(target, trust, &waiting.query, &waiting.body, longest))
            }
            Protocol::Otlp { .. } => otlp::judge(otlp::export(target, trust, &waiting.body, longest)),
        };
        if let Attempt::SentBut(said) = &attempt {
            self.once(&format!("--push {}: {said}", self.target.url()));
        }
        match attempt {
            Attempt::Sent | Attempt::SentBut(_) => {
                self.counts.sent += 1;
                self.counts.samples += waiting.samples;
                self.counts.earlier += u64::from(self.earlier > 0);
                self.done(&waiting)
            }
            Attempt::Refused(why) => {
                self.counts.refused += 1;
                self.once(&format!("--push {}: a profile was refused: {why}", self.target.url()));
                self.done(&waiting)
            }
            Attempt::Later(why, asked) => {
                self.once(&format!("--push {}: {why}; uu tries again", self.target.url()));
                self.later(asked);
                false
            }
        }
    }

    /// A profile is done with. False: it cannot be removed, and would be sent again and again.
    fn done(&mut self, waiting: &Waiting) -> bool {
        self.earlier = self.earlier.saturating_sub(1);
        if let Err(error) = fs::remove_file(&waiting.path) {
            self.once(&format!("--push: {} cannot be removed: {error}", waiting.path.display()));
            self.later(None);
            return false;
        }
        (self.pause, self.next) = (FIRST, Instant::now());
        true
    }

    /// Nothing is sent for a while: at least as long as the store asks.
    fn later(&mut self, asked: Option<Duration>) {
        let pause = asked.map_or(self.pause, |asked| asked.min(ASKED).max(self.pause));
        self.next = Instant::now() + pause;
        self.pause = (self.pause * 2).min(LONGEST);
    }

    /// Says something, unless it was the last thing said.
    fn once(&mut self, text: &str) {
        if self.said != text {
            (self.say)(text);
            text.clone_into(&mut self.said);
        }
    }
}
