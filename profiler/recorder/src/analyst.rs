//! The thread that makes the rule tables of objects. A large library takes seconds on a slow disk. During that time
//! rings fill up, and JITs report code that is removed again soon.
//!
//! It publishes each table itself: no table waits for a pass over the rings. Those that are cached come first.

use crate::child::interrupted;
use crate::facts::Full;
use crate::tables::Tables;
use std::collections::VecDeque;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use uunwind_clock::channel::{channel, Receiver, Sender};
use uunwind_clock::sleep;
use uunwind_elf::{key_of, Image};
use uunwind_tables_build::Cache;

/// Longest time between two checks for a signal.
const GLANCE: Duration = Duration::from_millis(50);
/// At most this number of objects wait: each has an open file.
const MOST_WAITING: usize = 64;

/// The result of an object's analysis. If it has a rule table, that is published; without one, targets interpret its
/// unwind information in place.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The object's key among facts and tables.
    pub key: u64,
    /// Whether there was room for its table.
    pub published: Result<(), Full>,
}

/// An object to be analysed, and where its table is published.
type Request = (Image, Tables);

/// The recorder's side of the thread.
#[derive(Default)]
pub struct Analyst {
    thread: Option<Thread>,
    cache: Cache,
    /// Number of objects that were not analysed yet, or whose finding was not taken.
    waiting: usize,
    /// Findings of the calling thread, where no analysing thread runs.
    own: Vec<Finding>,
    /// The thread ended in the middle of an object.
    failed: bool,
}

struct Thread {
    images: mpsc::Sender<Request>,
    findings: Receiver<Finding>,
    handle: JoinHandle<()>,
}

impl Analyst {
    /// Starts the thread. If that fails (RLIMIT_NPROC), objects are analysed by the calling thread. `cache`: where rule
    /// tables are kept.
    pub fn new(cache: Cache) -> Analyst {
        let thread = without_signals(|| start(cache.clone()));
        Analyst { thread, cache, waiting: 0, own: Vec::new(), failed: false }
    }

    /// Requests an object's analysis. Waits only when [`MOST_WAITING`] objects wait already; returns the findings that
    /// this brought.
    pub fn ask(&mut self, image: Image, tables: &Tables) -> Vec<Finding> {
        let mut taken = Vec::new();
        while self.waiting >= MOST_WAITING {
            match self.next() {
                Some(found) => taken.push(found),
                // The thread is gone, or uu must end.
                None if interrupted().is_some() => return taken,
                None => {}
            }
        }
        self.waiting += 1;
        let refused = match &self.thread {
            Some(thread) => thread.images.send((image, tables.clone())).err().map(|refused| refused.0),
            None => Some((image, tables.clone())),
        };
        if let Some(request) = refused {
            self.own.push(find(&request, &self.cache));
        }
        taken
    }

    /// The findings since the last call. Never waits.
    pub fn poll(&mut self) -> Vec<Finding> {
        let mut taken = std::mem::take(&mut self.own);
        taken.extend(self.thread.iter().flat_map(|thread| thread.findings.try_iter()));
        self.waiting = self.waiting.saturating_sub(taken.len());
        taken
    }

    /// Waits until one more object is analysed; `None` when none is being analysed, or a signal asks uu to end.
    pub fn next(&mut self) -> Option<Finding> {
        if let Some(found) = self.own.pop() {
            self.waiting = self.waiting.saturating_sub(1);
            return Some(found);
        }
        let thread = self.thread.as_ref().filter(|_| self.waiting > 0)?;
        loop {
            match thread.findings.recv_timeout(GLANCE) {
                Ok(found) => {
                    self.waiting -= 1;
                    return Some(found);
                }
                Err(RecvTimeoutError::Timeout) if interrupted().is_some() => return None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    // The panic has written its reason. Its objects are lost; later ones are analysed by the calling
                    // thread.
                    (self.thread, self.waiting, self.failed) = (None, 0, true);
                    return None;
                }
            }
        }
    }

    /// Ends the thread, if it has nothing to do: from here on, objects are analysed by the calling thread.
    pub fn rest(&mut self) {
        if self.waiting == 0 {
            self.end();
        }
    }

    /// Whether the thread ended in the middle of an object. True once.
    pub fn take_failed(&mut self) -> bool {
        std::mem::take(&mut self.failed)
    }
}

impl Drop for Analyst {
    /// Lets the thread finish its current object, because it may be writing to the cache. Does not wait when uu must
    /// end.
    fn drop(&mut self) {
        self.end();
    }
}

impl Analyst {
    fn end(&mut self) {
        if let Some(Thread { images, findings, handle }) = self.thread.take() {
            drop((images, findings));
            while !handle.is_finished() && interrupted().is_none() {
                sleep(GLANCE.min(Duration::from_millis(5)));
            }
        }
    }
}

fn start(cache: Cache) -> Option<Thread> {
    let (images, asked) = mpsc::channel::<Request>();
    let (report, findings) = channel();
    let work = move || work(&asked, &report, &cache);
    let handle = Builder::new().name("uu-analyst".to_owned()).spawn(work).ok()?;
    Some(Thread { images, findings, handle })
}

/// Analyses what is asked for, until nobody can ask any more, or nobody takes the findings.
fn work(asked: &mpsc::Receiver<Request>, report: &Sender<Finding>, cache: &Cache) {
    // Those that are not cached: they are analysed while no other comes.
    let mut later = VecDeque::new();
    loop {
        let next =
            if later.is_empty() { asked.recv().map_err(|_| TryRecvError::Disconnected) } else { asked.try_recv() };
        let found = match next {
            Ok(request) => match cached(&request, cache) {
                Some(found) => found,
                None => {
                    later.push_back(request);
                    continue;
                }
            },
            Err(_) => match later.pop_front() {
                Some(request) => find(&request, cache),
                None => break,
            },
        };
        // The receiver is gone, so the objects that wait are not needed either.
        if report.send(found).is_err() {
            break;
        }
    }
}

/// Starts a thread with all signals blocked, so that they go to the recorder's own thread.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are live locals; all-zero is a valid set.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        started
    }
}

fn find((image, tables): &Request, cache: &Cache) -> Finding {
    let (key, table) = (key_of(image).0, cache.table(image).ok());
    Finding { key, published: table.map_or(Ok(()), |(table, _)| tables.publish(key, &table)) }
}

/// As [`find`], if the table is cached.
fn cached((image, tables): &Request, cache: &Cache) -> Option<Finding> {
    let key = key_of(image).0;
    Some(Finding { key, published: tables.publish(key, &cache.kept_of(image)?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::FactsPublisher;
    use std::path::Path;

    fn small() -> Image {
        Image::open(Path::new("/bin/sh")).expect("an object")
    }

    fn nowhere() -> Tables {
        FactsPublisher::create(8 << 20).expect("memory").tables().clone()
    }

    #[test]
    fn each_object_is_answered_once() {
        let (mut analyst, tables) = (Analyst::new(Cache::none()), nowhere());
        let key = key_of(&small()).0;
        // More than may wait: the first findings are returned by `ask`.
        let mut found: Vec<Finding> = (0..MOST_WAITING + 3).flat_map(|_| analyst.ask(small(), &tables)).collect();
        assert!(found.len() >= 3, "{}", found.len());
        found.extend(analyst.poll());
        found.extend(std::iter::from_fn(|| analyst.next()));
        assert_eq!((found.len(), analyst.waiting), (MOST_WAITING + 3, 0));
        assert!(found.iter().all(|f| *f == Finding { key, published: Ok(()) }) && tables.has(key));
        assert!(analyst.poll().is_empty());
    }

    /// What a pass publishes waits for the pass before.
    #[test]
    fn a_table_is_published_though_nobody_takes_the_finding() {
        let (mut analyst, tables) = (Analyst::new(Cache::none()), nowhere());
        analyst.ask(small(), &tables);
        while !tables.has(key_of(&small()).0) {
            std::thread::yield_now();
        }
        assert!(analyst.next().is_some());
    }

    #[test]
    fn cached_tables_come_before_those_that_are_built() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path().join("tables"));
        cache.table(&small()).expect("a table");
        let other = || Image::open(Path::new("/proc/self/exe")).expect("an object");
        // In one go, so that the thread finds both when it begins.
        let (images, asked) = mpsc::channel::<Request>();
        let (report, findings) = channel();
        let tables = nowhere();
        for image in [other(), small()] {
            images.send((image, tables.clone())).expect("there is a receiver");
        }
        drop(images);
        work(&asked, &report, &cache);
        let order: Vec<_> = findings.try_iter().map(|found| found.key).collect();
        assert_eq!(order, [key_of(&small()).0, key_of(&other()).0]);
    }

    #[test]
    fn without_a_thread_it_is_done_here() {
        let (mut analyst, tables) = (Analyst::default(), nowhere());
        assert!(analyst.ask(small(), &tables).is_empty());
        assert!(analyst.ask(small(), &tables).is_empty());
        assert!(analyst.next().is_some() && tables.has(key_of(&small()).0));
        assert_eq!(analyst.poll().len(), 1);
        assert!(analyst.next().is_none() && !analyst.take_failed());
    }

    #[test]
    fn a_thread_that_died_is_reported_and_not_needed() {
        let (mut analyst, tables) = (Analyst::new(Cache::none()), nowhere());
        let (report, findings) = channel();
        drop(report);
        if let Some(thread) = &mut analyst.thread {
            thread.findings = findings;
        }
        analyst.ask(small(), &tables);
        assert!(analyst.next().is_none());
        assert!(analyst.take_failed() && !analyst.take_failed());
        analyst.ask(small(), &tables);
        assert!(analyst.next().is_some());
    }
}
