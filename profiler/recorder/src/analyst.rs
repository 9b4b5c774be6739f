//! The thread that analyses objects: a large library takes seconds on a slow disk, and meanwhile rings fill and JITs tell of
//! code that is gone again soon.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread::{Builder, JoinHandle};
use uunwind_analyse::elf::Image;
use uunwind_analyse::rules::{of_image, Cache};
use uunwind_analyse::{analyse_image, Analysis};

/// Most objects that wait: each has an open file.
const MOST_WAITING: usize = 64;

/// What was found in an object.
pub struct Finding {
    /// Where it was read.
    pub path: PathBuf,
    /// Whose it is, and what a person should know.
    pub analysis: Analysis,
    /// Its rule table. Without one, targets interpret its unwind information in place.
    pub table: Option<Vec<u8>>,
}

/// The thread, from here.
#[derive(Default)]
pub struct Analyst {
    thread: Option<Thread>,
    cache: Cache,
    /// Objects that were not analysed yet, or whose finding was not taken.
    waiting: usize,
    /// Findings made here, for want of a thread.
    own: Vec<Finding>,
    /// It ended in the middle of an object.
    failed: bool,
}

struct Thread {
    images: Sender<Image>,
    findings: Receiver<Finding>,
    handle: JoinHandle<()>,
}

impl Analyst {
    /// Starts the thread. Without one (RLIMIT_NPROC), objects are analysed by who asks. `cache`: where rule tables are kept.
    pub fn new(cache: Cache) -> Analyst {
        let thread = without_signals(|| start(cache.clone()));
        Analyst { thread, cache, waiting: 0, own: Vec::new(), failed: false }
    }

    /// Asks for an object's analysis. Waits only when too many are asked for already.
    pub fn ask(&mut self, image: Image) -> Vec<Finding> {
        let mut taken = Vec::new();
        while self.waiting >= MOST_WAITING {
            taken.extend(self.next());
        }
        self.waiting += 1;
        let refused = match &self.thread {
            Some(thread) => thread.images.send(image).err().map(|refused| refused.0),
            None => Some(image),
        };
        if let Some(image) = refused {
            self.own.push(find(&image, &self.cache));
        }
        taken
    }

    /// What was found since the last call. Never waits.
    pub fn poll(&mut self) -> Vec<Finding> {
        let mut taken = std::mem::take(&mut self.own);
        taken.extend(self.thread.iter().flat_map(|thread| thread.findings.try_iter()));
        self.waiting = self.waiting.saturating_sub(taken.len());
        taken
    }

    /// Waits until one more object is analysed; `None` when none is being analysed.
    pub fn next(&mut self) -> Option<Finding> {
        if let Some(found) = self.own.pop() {
            self.waiting = self.waiting.saturating_sub(1);
            return Some(found);
        }
        let thread = self.thread.as_ref().filter(|_| self.waiting > 0)?;
        let Ok(found) = thread.findings.recv() else {
            // A panic has said why. What it had is lost; what comes is analysed here.
            (self.thread, self.waiting, self.failed) = (None, 0, true);
            return None;
        };
        self.waiting -= 1;
        Some(found)
    }

    /// Whether the thread ended in the middle of an object; once.
    pub fn take_failed(&mut self) -> bool {
        std::mem::take(&mut self.failed)
    }
}

impl Drop for Analyst {
    /// Lets it finish what it is at: it may be writing to the cache.
    fn drop(&mut self) {
        if let Some(Thread { images, findings, handle }) = self.thread.take() {
            drop((images, findings));
            let _ = handle.join();
        }
    }
}

fn start(cache: Cache) -> Option<Thread> {
    let (images, asked) = channel::<Image>();
    let (tell, findings) = channel();
    let work = move || {
        for image in asked {
            // Nobody listens any more: what waits is not wanted either.
            if tell.send(find(&image, &cache)).is_err() {
                break;
            }
        }
    };
    let handle = Builder::new().name("uu-analyst".to_owned()).spawn(work).ok()?;
    Some(Thread { images, findings, handle })
}

/// Signals are the recorder's own thread's.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
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

fn find(image: &Image, cache: &Cache) -> Finding {
    let analysis = analyse_image(image);
    let build_id = analysis.build_id.as_deref().unwrap_or_default();
    let table = cache.get(build_id, analysis.facts_key, || of_image(image, analysis.facts_key)).ok();
    Finding { path: Path::to_owned(image.path()), table: table.map(|(table, _)| table), analysis }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Image {
        Image::open(Path::new("/bin/sh")).expect("an object")
    }

    #[test]
    fn each_object_is_answered_once() {
        let mut analyst = Analyst::new(Cache::none());
        let expected = find(&small(), &Cache::none());
        // More than may wait: the first are answered by asking.
        let mut found: Vec<Finding> = (0..MOST_WAITING + 3).flat_map(|_| analyst.ask(small())).collect();
        assert!(found.len() >= 3, "{}", found.len());
        found.extend(analyst.poll());
        found.extend(std::iter::from_fn(|| analyst.next()));
        assert_eq!((found.len(), analyst.waiting), (MOST_WAITING + 3, 0));
        assert!(found
            .iter()
            .all(|f| f.analysis == expected.analysis && f.table == expected.table && f.table.is_some()));
        assert!(analyst.poll().is_empty());
    }

    #[test]
    fn without_a_thread_it_is_done_here() {
        let mut analyst = Analyst::default();
        assert!(analyst.ask(small()).is_empty());
        assert!(analyst.ask(small()).is_empty());
        assert!(analyst.next().is_some_and(|found| found.table.is_some()));
        assert_eq!(analyst.poll().len(), 1);
        assert!(analyst.next().is_none() && !analyst.take_failed());
    }

    #[test]
    fn a_thread_that_died_is_told_and_done_without() {
        let mut analyst = Analyst::new(Cache::none());
        let (tell, findings) = channel();
        drop(tell);
        if let Some(thread) = &mut analyst.thread {
            thread.findings = findings;
        }
        analyst.ask(small());
        assert!(analyst.next().is_none());
        assert!(analyst.take_failed() && !analyst.take_failed());
        analyst.ask(small());
        assert!(analyst.next().is_some());
    }
}
