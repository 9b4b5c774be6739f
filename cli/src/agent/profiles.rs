//! The thread that makes profiles of what recordings have brought, and hands them to the one that sends.

use crate::exit::Failure;
use crate::record::push::waiting_place;
use crate::terminal;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use uunwind_push::{Counts, Target, Windows};
use uunwind_recording::{Recording, FROM_INSIDE};
use uunwind_report::view::View;

/// What was counted of a process.
#[derive(Debug, Default)]
pub struct Made {
    /// Profiles that were handed over to be sent.
    pub profiles: AtomicU64,
    /// Samples in them.
    pub samples: AtomicU64,
    /// Profiles that could not be made.
    pub failed: AtomicU64,
    /// Samples that found no room in its rings.
    pub lost: AtomicU64,
    /// What the last recording that is over says of itself, such as threads that could not be sampled.
    pub notes: Mutex<Vec<String>>,
}

/// A recording that goes on.
struct Recorded {
    windows: Windows,
    made: Arc<Made>,
    /// Lost samples of it that were counted.
    lost: u64,
}

/// What happens to a recording; each has a number.
pub enum Message {
    /// It has begun, for this target.
    Begun(u64, Box<Target>, Arc<Made>),
    /// A copy of what it has.
    Copy(u64, PathBuf),
    /// It is over, and has this.
    Over(u64, Option<Box<Recording>>),
    /// No more of it will come: its folder can go.
    Gone(PathBuf),
}

/// Both threads.
pub struct Profiles {
    messages: Sender<Message>,
    thread: JoinHandle<()>,
    sender: Arc<uunwind_push::Sender>,
}

impl Profiles {
    /// Starts the threads. `target`: one of those that profiles will have.
    pub fn start(target: Target) -> Result<Profiles, Failure> {
        let base = waiting_place();
        let sender = uunwind_push::Sender::start(target, &base, terminal::warn).map_err(|e| {
            let base = base.display();
            Failure::new(format!("cannot keep profiles that wait in {base}: {e}. Set XDG_CACHE_HOME"))
        })?;
        let sender = Arc::new(sender);
        let (messages, received) = channel();
        let to = sender.clone();
        let work = move || {
            let mut all = HashMap::new();
            received.into_iter().for_each(|message| work(message, &mut all, &to));
        };
        let thread = Builder::new().name("profiles".to_owned()).spawn(work);
        let thread = thread.map_err(|e| Failure::new(format!("cannot start a thread: {e}")))?;
        Ok(Profiles { messages, thread, sender })
    }

    /// Where recordings say what happens.
    pub fn messages(&self) -> Sender<Message> {
        self.messages.clone()
    }

    /// What became of the profiles so far.
    pub fn counts(&self) -> Counts {
        self.sender.counts()
    }

    /// Sends what is left. All recordings must be over.
    pub fn finish(self) -> Counts {
        drop(self.messages);
        if self.thread.join().is_err() {
            terminal::warn("the last profiles are lost: uu has failed to make them");
        }
        Arc::into_inner(self.sender).map(uunwind_push::Sender::finish).unwrap_or_default()
    }
}

fn work(message: Message, all: &mut HashMap<u64, Recorded>, sender: &uunwind_push::Sender) {
    match message {
        Message::Begun(id, target, made) => {
            all.insert(id, Recorded { windows: Windows::new(*target), made, lost: 0 });
        }
        Message::Copy(id, path) => {
            let read = Recording::read(&path).map_err(|e| e.to_string());
            // Best effort: its folder is removed in the end.
            let _ = fs::remove_file(&path);
            if let Some(of) = all.get_mut(&id) {
                add(read, of, sender);
            }
        }
        Message::Over(id, recording) => {
            let read = recording.map(|recording| *recording).ok_or_else(|| "it cannot be read back".to_owned());
            if let Some(mut of) = all.remove(&id) {
                if let Ok(recording) = &read {
                    let others = recording.notes.iter().filter(|note| !note.starts_with(FROM_INSIDE)).cloned();
                    *of.made.notes.lock().unwrap_or_else(PoisonError::into_inner) = others.collect();
                }
                add(read, &mut of, sender);
            }
        }
        Message::Gone(folder) => drop(fs::remove_dir_all(folder)),
    }
}

fn add(
    recording: Result<Recording, String>,
    Recorded { windows, made, lost }: &mut Recorded,
    sender: &uunwind_push::Sender,
) {
    if let Ok(recording) = &recording {
        let all = recording.lost.iter().fold(0u64, |sum, lost| sum.saturating_add(lost.samples));
        made.lost.fetch_add(all.saturating_sub(*lost), Ordering::Relaxed);
        *lost = all.max(*lost);
    }
    match recording.and_then(|mut recording| windows.next(&mut recording, &View::default())) {
        Ok(Some(profile)) => {
            made.profiles.fetch_add(1, Ordering::Relaxed);
            made.samples.fetch_add(profile.samples, Ordering::Relaxed);
            sender.send(profile);
        }
        Ok(None) => {}
        Err(why) => {
            made.failed.fetch_add(1, Ordering::Relaxed);
            terminal::warn(&format!("a profile was not made: {why}"));
        }
    }
}
