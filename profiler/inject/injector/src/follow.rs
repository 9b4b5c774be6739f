//! The samplers of a process that may call exec, which takes one away: another one is put into the new program.
//!
//! That, and the first one of a child, is done on a thread of its own, since it may take a while: a program that is
//! just being loaded has no list of objects yet.

use super::process::Process;
use super::{is_of_events, Declined, Injected, Memories, Settings};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_recorder::facts::FactsPublisher;
use uunwind_recorder::session::Session;
use uunwind_remote::dump::exe;
use uunwind_remote_sampler::prepared::Image;
use uunwind_ring::FLAG_NO_CHILDREN;

/// How long a sampler may fail to go into a program, which may just be being loaded.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same where it stays so as long as the process runs this program, as a number of times: a child that was just
/// forked may call exec in a moment.
const TRIES: u32 = 3;
/// Time between those.
const PAUSE: Duration = Duration::from_millis(100);

/// What all samplers of a recording need.
pub struct Common {
    /// The sampler's file.
    object: PathBuf,
    rate: u32,
    flags: u32,
    /// The files of the session and of the facts; none before the first sampler is in.
    memories: Option<Arc<[OwnedFd; 2]>>,
    /// Number of files that may be kept open.
    pub files: usize,
}

impl Common {
    /// For samplers of this file, with this rate in Hz and these `FLAG_*`.
    pub fn new(object: &Path, rate: u32, flags: u32) -> Common {
        Common { object: object.to_owned(), rate, flags: flags | FLAG_NO_CHILDREN, memories: None, files: usize::MAX }
    }

    /// The same, with at most this number of files kept open.
    pub fn with_files(self, files: usize) -> Common {
        Common { files, ..self }
    }

    /// Samplers to come write into these memories.
    pub fn share(&mut self, session: &Session, facts: &FactsPublisher) -> io::Result<()> {
        let own = |file: BorrowedFd<'_>| file.try_clone_to_owned();
        self.memories = Some(Arc::new([own(session.memory().file())?, own(facts.file())?]));
        Ok(())
    }

    /// Whether samples are of time.
    pub fn is_timed(&self) -> bool {
        !is_of_events(self.flags)
    }

    fn settings(&self, (parent, origin): (u32, u32), image: Image) -> Settings {
        Settings { rate: self.rate, flags: self.flags, parent, origin, image }
    }
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing new.
    Same,
    /// Exec has taken the sampler away.
    Without,
    /// A sampler is in the process.
    Sampled,
}

/// The samplers of a process, of which there is one at a time.
pub struct Followed {
    pid: u32,
    /// `None`: there was no file left for it.
    process: Option<Process>,
    /// The program that has a sampler, or the one that was last seen.
    pub image: Image,
    /// The id of its parent, and `ProcessBlock::origin` as long as it runs the program that it has begun with.
    origin: (u32, u32),
    injected: Option<Injected>,
    /// A sampler that is being put in.
    coming: Option<JoinHandle<Result<Injected, Declined>>>,
    /// When it was first tried to put one in, if there is none.
    tried_since: Option<Instant>,
    /// How often since then.
    tries: u32,
    /// When that is done again at the earliest.
    next: Option<Instant>,
    /// How long threads stood for those before, and how often one was borrowed.
    before: (Duration, u32),
    /// Number of programs that have got a sampler.
    pub programs: u32,
    /// What people should know.
    notes: Vec<String>,
}

impl Followed {
    /// Puts the first sampler of a recording in.
    pub fn begin(pid: u32, origin: (u32, u32), common: &Common) -> Result<(Followed, Memories), Declined> {
        let process = Process::of(pid).map_err(|error| Declined::new(error.to_string()))?;
        let settings = common.settings(origin, Image::default());
        let (injected, memories) = Injected::begin(&process, &common.object, &settings)?;
        let mut followed = Followed::child((pid, Some(process)), Image::of(pid), origin);
        followed.came(injected);
        Ok((followed, memories))
    }

    /// A process that has none yet.
    pub fn child((pid, process): (u32, Option<Process>), image: Image, origin: (u32, u32)) -> Followed {
        let (injected, coming, before) = (None, None, (Duration::ZERO, 0));
        let (tried_since, tries, next, notes, programs) = (None, 0, None, Vec::new(), 0);
        Followed { pid, process, image, origin, injected, coming, tried_since, tries, next, before, programs, notes }
    }

    /// The process, if there was a file for it.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    fn came(&mut self, mut injected: Injected) {
        self.image = injected.image.clone();
        self.notes.extend(injected.note.take());
        (self.injected, self.tried_since, self.tries) = (Some(injected), None, 0);
        self.programs += 1;
    }

    /// Looks whether the process has called exec, and whether a sampler has come. Error: why none can be put in.
    pub fn look(&mut self, common: &Common) -> Result<Look, Declined> {
        let another = another(self.pid, &self.image);
        let quiet = if another.is_some() { Look::Without } else { Look::Same };
        if let Some(image) = another {
            self.before = self.costs();
            (self.injected, self.image, self.tried_since, self.tries, self.next) = (None, image, None, 0, None);
            self.origin.1 = 0;
        }
        if self.injected.is_some() {
            return Ok(quiet);
        }
        let since = *self.tried_since.get_or_insert_with(Instant::now);
        match self.coming.take() {
            None if self.next.is_some_and(|next| Instant::now() < next) => Ok(quiet),
            None => {
                let Some(memories) = common.memories.clone() else { return Ok(quiet) };
                let Some(process) = self.process.clone() else {
                    return Err(Declined::new("there was no file left for its pidfd (ulimit -n)"));
                };
                let object = common.object.clone();
                let settings = common.settings(self.origin, self.image.clone());
                self.coming = Some(std::thread::spawn(move || Injected::join(&process, &object, &settings, &memories)));
                self.tries += 1;
                Ok(quiet)
            }
            Some(coming) if !coming.is_finished() => {
                self.coming = Some(coming);
                Ok(quiet)
            }
            Some(coming) => match joined(coming) {
                // If that program is gone by now, the next look finds another one.
                Ok(injected) => {
                    self.came(injected);
                    Ok(Look::Sampled)
                }
                Err(declined) if since.elapsed() >= PATIENCE || declined.is_final && self.tries >= TRIES => {
                    Err(declined)
                }
                Err(declined) => {
                    self.next = declined.is_final.then(|| Instant::now() + PAUSE);
                    Ok(quiet)
                }
            },
        }
    }

    /// Whether a sampler is being put in.
    pub fn is_coming(&self) -> bool {
        self.coming.is_some()
    }

    /// Waits for the sampler that is being put in, if there is one. Error: why it was not.
    pub fn wait(&mut self) -> Result<(), Declined> {
        if let Some(coming) = self.coming.take() {
            self.came(joined(coming)?);
        }
        Ok(())
    }

    /// The sampler that is in the process.
    pub fn injected(&mut self) -> Option<&mut Injected> {
        self.injected.as_mut()
    }

    /// How long threads stood for them, and how often one was borrowed.
    pub fn costs(&self) -> (Duration, u32) {
        let (stood, borrowed) = self.before;
        self.injected.as_ref().map_or(self.before, |now| (stood + now.stood, borrowed + now.borrowed))
    }

    /// The samplers, with nothing left but their number and costs.
    pub fn take(&mut self) -> Followed {
        let (before, programs, image) = (self.costs(), self.programs, Image::default());
        let process = (self.pid, self.process.clone());
        let empty = Followed { before, programs, ..Followed::child(process, image, self.origin) };
        std::mem::replace(self, empty)
    }

    /// Takes the sampler out, once the facts say that the recording is over. It is tried at least once, and again until
    /// the deadline. Returns notes for people: what is left in the process, and why.
    pub fn leave(mut self, deadline: Instant) -> Vec<String> {
        // One that was not put in may have left something, too.
        if let Err(declined) = self.wait() {
            let what = format!("process {} got no sampler, since {}", self.pid, declined.why);
            self.notes.extend(declined.has_notes.then_some(what));
        }
        self.notes.extend(self.injected.and_then(|injected| injected.leave(deadline)));
        self.notes
    }
}

/// The process's image, if exec has made another one than this.
fn another(pid: u32, last: &Image) -> Option<Image> {
    let now = Image::of(pid);
    (now != *last && !now.is_being_made() && !exe(pid).is_empty()).then_some(now)
}

fn joined(coming: JoinHandle<Result<Injected, Declined>>) -> Result<Injected, Declined> {
    coming.join().unwrap_or_else(|_| Err(Declined::new("uu has panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::waits;

    fn common() -> Common {
        // None goes in, so its file is not needed.
        let mut common = Common::new(Path::new("/dev/null"), 99, 0);
        let (session, facts) = (Session::create(16).expect("memory"), FactsPublisher::create(8 << 20).expect("memory"));
        common.share(&session, &facts).expect("files");
        common
    }

    /// What stays as it is as long as the program runs is not tried for as long as what may pass.
    #[test]
    fn what_will_not_do_is_tried_three_times() {
        let mut child = waits("trap '' 16; exec sleep 3600");
        let (pid, common) = (child.id(), common());
        let mut followed = Followed::child((pid, Process::of(pid).ok()), Image::of(pid), (0, 0));
        let why = loop {
            match followed.look(&common) {
                Ok(_) => uunwind_clock::sleep(Duration::from_millis(1)),
                Err(declined) => break declined,
            }
        };
        child.kill().expect("it runs");
        child.wait().expect("its end");
        assert!(why.is_final && why.why.contains("ignores SIGSTKFLT"), "{why:?}");
        // Fewer where the machine is so slow that the time was over.
        assert!(followed.tries <= TRIES, "{} times", followed.tries);
    }
}
