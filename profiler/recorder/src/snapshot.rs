//! Snapshots: what a recording has so far, as a recording of its own, while it goes on.

use crate::child::snapshot_asked;
use crate::found_names::Unnamed;
use crate::jit::Jit;
use crate::kept_names::Namer;
use crate::machine;
use crate::output::partial;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tempfile::NamedTempFile;
use uunwind_clock::Instant;
use uunwind_recording::{End, EndCause, Recording, Writer};
use uunwind_symbolize::Files;

/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;
/// What the copy says of itself.
const NOTE: &str = "this is a snapshot: what processes count is in the recording itself, when it has ended";

/// The path of a snapshot that is made, or why it is not.
#[derive(Debug)]
pub struct Made {
    /// Where the snapshot is, or was to be.
    pub path: PathBuf,
    /// Why there is no such file.
    pub error: Option<io::Error>,
}

/// The recording as it is now.
pub struct Now<'a> {
    /// Its file, with everything written.
    pub file: &'a File,
    /// That file's path.
    pub path: &'a Path,
    /// Number of samples in it.
    pub samples: u64,
    /// Where the file of an object may be found.
    pub files: &'a Files<'a>,
    /// Names of code made at run time.
    pub jit: &'a Jit,
    /// Who names functions.
    pub namer: &'a Namer,
}

/// The snapshots of a recording. Each is named on a thread of its own, one after the other.
#[derive(Default)]
pub struct Snapshots {
    every: Option<Duration>,
    next: Option<Instant>,
    taken: u32,
    /// Where those go whose time has come, and how many they are.
    folder: Option<PathBuf>,
    timed: u32,
    /// Number of samples in the last one.
    samples: u64,
    naming: Option<(PathBuf, JoinHandle<io::Result<()>>)>,
    failed: Option<Made>,
}

impl Snapshots {
    /// One is due after each such time, and whenever SIGUSR2 arrives.
    pub fn new(every: Option<Duration>) -> Snapshots {
        Snapshots { every, next: every.map(|every| Instant::now() + every), ..Snapshots::default() }
    }

    /// Those whose time has come go into this folder.
    pub fn into_folder(self, folder: Option<PathBuf>) -> Snapshots {
        Snapshots { folder, ..self }
    }

    /// Whether one is to be taken. While another is still being named, it has to wait.
    pub fn is_due(&self) -> bool {
        let is_time = self.next.is_some_and(|next| Instant::now() >= next);
        self.naming.is_none() && self.failed.is_none() && (is_time || snapshot_asked(false))
    }

    /// Whether one is to be taken that has more samples than the last one, of this number of them; else the next time
    /// is waited for.
    pub fn is_due_with(&mut self, samples: u64) -> bool {
        let is_due = self.is_due();
        if is_due && samples == self.samples {
            self.next = self.every.map(|every| Instant::now() + every);
        }
        is_due && samples != self.samples
    }

    /// Whether [`Snapshots::made`] has something to say.
    pub fn is_made(&self) -> bool {
        self.failed.is_some() || self.naming.as_ref().is_some_and(|(_, naming)| naming.is_finished())
    }

    /// The last snapshot, once it is made; with `wait`, it is waited for.
    pub fn made(&mut self, wait: bool) -> Option<Made> {
        if let Some(failed) = self.failed.take() {
            return Some(failed);
        }
        let (path, naming) = self.naming.take_if(|(_, naming)| wait || naming.is_finished())?;
        let ended = naming.join().unwrap_or_else(|_| Err(io::Error::other("naming it has panicked")));
        Some(Made { path, error: ended.err() })
    }

    /// Copies the recording, and begins to name what is in the copy.
    pub fn take(&mut self, now: &Now<'_>) {
        self.samples = now.samples;
        let asked = snapshot_asked(true);
        let path = match self.folder.as_ref().filter(|_| !asked) {
            Some(folder) => {
                self.timed += 1;
                folder.join(format!("{}.uu", self.timed))
            }
            None => {
                self.taken += 1;
                let stem = now.path.file_stem().unwrap_or_default().to_string_lossy();
                now.path.with_file_name(format!("{stem}.{}.uu", self.taken))
            }
        };
        if self.folder.is_none() || !asked {
            self.next = self.every.map(|every| Instant::now() + every);
        }
        match begin(now, &path) {
            Ok(naming) => self.naming = Some((path, naming)),
            Err(error) => self.failed = Some(Made { path, error: Some(error) }),
        }
    }
}

fn begin(now: &Now<'_>, path: &Path) -> io::Result<JoinHandle<io::Result<()>>> {
    // What comes later is not in it; to name it may take long.
    let time = machine::monotonic();
    let copy = copy(now.file, path)?;
    let mut recording = Recording::read_open(copy.as_file(), path).map_err(io::Error::other)?;
    let unnamed = Unnamed::of(&recording, now.files, Some(now.jit));
    let (namer, samples, path) = (now.namer.clone(), now.samples, path.to_owned());
    Builder::new().name("snapshot".to_owned()).spawn(move || {
        let mut names = unnamed.name_together(&recording, &namer);
        names.notes.insert(0, NOTE.to_owned());
        // Reading has left the file's position at its end.
        let mut writer = Writer::resume(copy.as_file().try_clone()?);
        writer.end(&End { time, cause: EndCause::Snapshot, samples, ..End::default() });
        names.append(&mut recording, &mut writer, 0);
        if let Some(error) = writer.failure() {
            return Err(io::Error::new(error.kind(), error.to_string()));
        }
        copy.persist(&path).map(|_| ()).map_err(|error| error.error)
    })
}

/// A copy of the recording's file under a temporary name. The file's own position stays where it is: its writer has it.
fn copy(file: &File, path: &Path) -> io::Result<NamedTempFile> {
    let mut copy = partial(path)?;
    let (len, mut at, mut part) = (file.metadata()?.len(), 0, vec![0; CHUNK]);
    while at < len {
        let most = (len - at).min(CHUNK as u64) as usize;
        let read = file.read_at(part.get_mut(..most).unwrap_or_default(), at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        copy.write_all(part.get(..read).unwrap_or_default())?;
        at += read as u64;
    }
    Ok(copy)
}
