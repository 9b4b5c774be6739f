//! The thread that sends.

use crate::backlog::{Backlog, Counts};
use crate::otlp;
use crate::parca;
use crate::pusher;
use crate::pyroscope;
use crate::spool::Spool;
use crate::target::{Protocol, Target};
use crate::tls::Trust;
use crate::window::Profile;
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
/// Time for all that waits when the recording is over.
const LAST: Duration = Duration::from_secs(10);
/// Longest nap.
const NAP: Duration = Duration::from_secs(3600);

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
        let shown = Arc::default();
        let backlog = Backlog::new((spool, earlier), target.url(), Box::new(say));
        let mut work = Work { target, trust: Trust::default(), backlog, shown: Arc::clone(&shown) };
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
    backlog: Backlog,
    /// What became of the profiles so far, for others.
    shown: Arc<Mutex<Counts>>,
}

impl Work {
    fn run(&mut self, profiles: &Receiver<Profile>) -> Counts {
        loop {
            let counts = self.backlog.counts();
            *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = counts;
            let longest = match counts.waiting {
                0 => NAP,
                _ => self.backlog.next().saturating_duration_since(Instant::now()),
            };
            match profiles.recv_timeout(longest) {
                Ok(profile) => self.add(&profile),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            profiles.try_iter().for_each(|profile| self.add(&profile));
            if Instant::now() >= self.backlog.next() {
                self.attempt(REQUEST);
            }
        }
        let begin = Instant::now();
        loop {
            let left = LAST.saturating_sub(begin.elapsed());
            if left.is_zero() || self.backlog.counts().waiting == 0 || !self.attempt(left) {
                break;
            }
        }
        self.backlog.say_what_waits();
        self.backlog.counts()
    }

    fn add(&mut self, profile: &Profile) {
        self.backlog.add(profile.samples, &profile.query, &profile.bytes);
    }

    /// Sends the oldest profile, if there is one. False: nothing may be sent for now.
    fn attempt(&mut self, longest: Duration) -> bool {
        let (target, trust) = (&self.target, &mut self.trust);
        self.backlog.attempt(Instant::now, |waiting| match &target.protocol {
            Protocol::Pyroscope { .. } => {
                pyroscope::judge(pyroscope::ingest(target, trust, &waiting.query, &waiting.body, longest))
            }
            Protocol::Otlp { .. } => otlp::export(target, trust, &waiting.body, longest),
            Protocol::Pusher { .. } => pusher::push(target, trust, &waiting.body, longest),
            Protocol::Parca { .. } => parca::write(target, trust, &waiting.body, longest),
        })
    }
}
