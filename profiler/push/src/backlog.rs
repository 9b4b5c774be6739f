//! Profiles that wait, in the order in which they are sent. What may succeed later is tried again, later and later;
//! what never will is dropped, counted and said once.

use crate::attempt::Attempt;
use crate::spool::{Spool, Waiting};
use std::fs;
use std::time::Duration;
use uunwind_clock::Instant;

/// Time before the first repetition; it doubles with each one.
const FIRST: Duration = Duration::from_secs(1);
/// The longest such time.
const LONGEST: Duration = Duration::from_secs(60);
/// What the store may ask for at most (`Retry-After`).
const ASKED: Duration = Duration::from_secs(600);

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

pub(crate) struct Backlog {
    spool: Spool,
    /// The store's URL, for messages.
    url: String,
    say: Box<dyn Fn(&str) + Send>,
    counts: Counts,
    /// Profiles of an earlier uu that were not sent yet.
    earlier: usize,
    /// What was said last.
    said: String,
    /// Time before the next repetition.
    pause: Duration,
    /// When something may be sent again.
    next: Instant,
}

impl Backlog {
    /// Those of a folder, with the number of profiles that an earlier uu has left there. `say`: shows a line to the
    /// user.
    pub(crate) fn new((spool, earlier): (Spool, usize), url: String, say: Box<dyn Fn(&str) + Send>) -> Backlog {
        let (counts, said) = (Counts::default(), String::new());
        Backlog { spool, url, say, counts, earlier, said, pause: FIRST, next: Instant::now() }
    }

    /// What became of the profiles so far.
    pub(crate) fn counts(&self) -> Counts {
        Counts { waiting: self.spool.count() as u64, ..self.counts }
    }

    /// When something may be sent again.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Adds a profile: the number of its samples, the query of its request and its bytes.
    pub(crate) fn add(&mut self, samples: u64, query: &str, body: &[u8]) {
        match self.spool.add(samples, query, body) {
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

    /// Tries the oldest profile, if there is one. False: nothing may be sent for now. `now` is asked when it was tried.
    pub(crate) fn attempt(&mut self, now: impl Fn() -> Instant, send: impl FnOnce(&Waiting) -> Attempt) -> bool {
        let waiting = match self.spool.oldest() {
            Ok(Some(waiting)) => waiting,
            Ok(None) => return false,
            Err(error) => {
                self.once(&format!("--push: {} cannot be read: {error}", self.spool.folder().display()));
                self.later(now(), None);
                return false;
            }
        };
        let attempt = match waiting.query.is_empty() {
            true => Attempt::Refused("it was damaged while it waited".to_owned()),
            false => send(&waiting),
        };
        if let Attempt::SentBut(said) = &attempt {
            self.once(&format!("--push {}: {said}", self.url));
        }
        match attempt {
            Attempt::Sent | Attempt::SentBut(_) => {
                self.counts.sent += 1;
                self.counts.samples += waiting.samples;
                self.counts.earlier += u64::from(self.earlier > 0);
                self.done(&waiting, now())
            }
            Attempt::Refused(why) => {
                self.counts.refused += 1;
                self.once(&format!("--push {}: a profile was refused: {why}", self.url));
                self.done(&waiting, now())
            }
            Attempt::Later(why, asked) => {
                self.once(&format!("--push {}: {why}; uu tries again", self.url));
                self.later(now(), asked);
                false
            }
        }
    }

    /// A profile is done with. False: it cannot be removed, and would be sent again and again.
    fn done(&mut self, waiting: &Waiting, now: Instant) -> bool {
        self.earlier = self.earlier.saturating_sub(1);
        if let Err(error) = fs::remove_file(&waiting.path) {
            self.once(&format!("--push: {} cannot be removed: {error}", waiting.path.display()));
            self.later(now, None);
            return false;
        }
        (self.pause, self.next) = (FIRST, now);
        true
    }

    /// Nothing is sent for a while: at least as long as the store asks.
    fn later(&mut self, now: Instant, asked: Option<Duration>) {
        let pause = asked.map_or(self.pause, |asked| asked.min(ASKED).max(self.pause));
        self.next = now + pause;
        self.pause = (self.pause * 2).min(LONGEST);
    }

    /// Says something, unless it was the last thing said.
    fn once(&mut self, text: &str) {
        if self.said != text {
            (self.say)(text);
            text.clone_into(&mut self.said);
        }
    }

    /// Says what is not sent now.
    pub(crate) fn say_what_waits(&self) {
        let waiting = self.counts().waiting;
        if waiting > 0 {
            (self.say)(&format!(
                "--push: {waiting} profiles wait in {}; the next uu that pushes to {} sends them",
                self.spool.folder().display(),
                self.url
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// What a store has got: the numbers of the profiles.
    #[derive(Default)]
    struct Store {
        got: Vec<u64>,
        refused: Vec<u64>,
    }

    impl Store {
        /// Refuses each 97th profile, and has something to say of each 89th.
        fn takes(&mut self, waiting: &Waiting) -> Attempt {
            let number: u64 = waiting.query.parse().expect("a number");
            if number % 97 == 13 {
                self.refused.push(number);
                return Attempt::Refused("no such service".to_owned());
            }
            self.got.push(number);
            match number % 89 {
                7 => Attempt::SentBut("soon full".to_owned()),
                _ => Attempt::Sent,
            }
        }
    }

    /// A day with a profile each 10 s, in which the store starts anew 1,000 times, and uu itself 24 times; once the
    /// store is away for three hours, with more to keep than there is room for.
    #[test]
    fn a_day_with_a_store_that_restarts() {
        let base = tempfile::tempdir().expect("a folder");
        let (begin, second) = (Instant::now(), Cell::new(0u64));
        let now = || begin + Duration::from_secs(second.get());
        let open = || {
            let url = "http://store".to_owned();
            let mut backlog = Backlog::new(Spool::open(base.path(), &url).expect("a folder"), url, Box::new(|_| {}));
            backlog.next = now();
            backlog
        };
        let (mut backlog, mut store) = (open(), Store::default());
        let (mut added, mut longest_wait, mut restarts) = (0u64, 0, 0);
        let mut all = Counts::default();
        let close = |all: &mut Counts, counts: Counts| {
            all.sent += counts.sent;
            all.samples += counts.samples;
            all.refused += counts.refused;
            all.dropped += counts.dropped;
            all.earlier += counts.earlier;
        };
        let day = 24 * 3600;
        while second.get() < day {
            let at = second.get();
            let is_long_away = (36_000..46_800).contains(&at);
            if at % 10 == 0 {
                // What waits in those hours is larger than the room.
                let body = vec![7; if is_long_away { 100 << 10 } else { 100 }];
                backlog.add(3, &added.to_string(), &body);
                added += 1;
            }
            if at % 3600 == 1800 {
                close(&mut all, backlog.counts());
                drop(backlog);
                backlog = open();
            }
            // 86 s from one restart to the next, of which it is away for 23.
            let (is_up, is_busy) = (at % 86 >= 23 && !is_long_away, at % 86 < 12);
            while now() >= backlog.next() {
                let goes_on = backlog.attempt(now, |waiting| match (is_up, is_busy) {
                    (true, _) => store.takes(waiting),
                    (false, true) => Attempt::Later("503".to_owned(), Some(Duration::from_secs(5))),
                    (false, false) => Attempt::Later("Connection refused".to_owned(), None),
                });
                if !goes_on {
                    break;
                }
            }
            if at % 10 == 0 && !(36_000..47_000).contains(&at) {
                longest_wait = longest_wait.max(backlog.counts().waiting);
            }
            restarts += u64::from(at % 86 == 23);
            second.set(at + 1);
        }
        assert!(restarts >= 1000);
        let counts = backlog.counts();
        close(&mut all, counts);
        assert_eq!(added, 8640);
        assert_eq!(all.sent + all.refused + all.dropped + counts.waiting, added, "{all:?} {counts:?}");
        assert_eq!((all.sent, all.samples), (store.got.len() as u64, 3 * all.sent));
        assert_eq!(all.refused, store.refused.len() as u64);
        assert!(store.got.is_sorted_by(|a, b| a < b), "each once, in order");
        // Of three hours, 64 MiB of profiles are kept.
        let kept = (64 << 20) / (100 << 10);
        assert!(all.dropped.abs_diff(1080 - kept) <= 2, "{all:?}");
        assert!(longest_wait <= 12 && counts.waiting <= 12, "{longest_wait} {counts:?}");
        assert!(all.earlier > 0);
    }
}
