//! `uu record --push`: what each interval has brought becomes a profile, on a thread of its own, and goes to a sender.

use super::arguments::Arguments;
use super::finish::view;
use super::store::Store;
use crate::exit::Failure;
use crate::terminal;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, Sender as Paths};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use tempfile::TempDir;
use uunwind_push::{Counts, Sender, Windows};
use uunwind_recording::Recording;
use uunwind_report::view::View;

/// What is pushed, while the program runs.
pub struct Push {
    /// Holds copies of the recording until a profile is made of them.
    folder: TempDir,
    url: String,
    view: View,
    paths: Paths<PathBuf>,
    windows: JoinHandle<Windows>,
    sender: Arc<Sender>,
}

impl Push {
    /// Starts the threads, before the program.
    pub fn begin(asked: &Store, arguments: &Arguments) -> Result<Push, Failure> {
        let folder = tempfile::Builder::new().prefix("uu-push-").tempdir().map_err(|e| {
            let place = std::env::temp_dir();
            Failure::new(format!("cannot make a folder in {}: {e}. Set TMPDIR", place.display()))
        })?;
        let base = waiting_place();
        let cannot = |e| {
            let base = base.display();
            Failure::new(format!("cannot keep profiles that wait in {base}: {e}. Set XDG_CACHE_HOME"))
        };
        let sender = Sender::start(asked.target.clone(), &base, terminal::warn).map_err(cannot)?;
        let (sender, view) = (Arc::new(sender), view(arguments));
        let (paths, received) = channel::<PathBuf>();
        let (to, shown, target) = (sender.clone(), view.clone(), asked.target.clone());
        let windows = move || {
            let mut windows = Windows::new(target);
            for path in received {
                let read = Recording::read(&path).map_err(|e| e.to_string());
                // Best effort: its folder is removed in the end.
                let _ = std::fs::remove_file(&path);
                add(read, &mut windows, &shown, &to);
            }
            windows
        };
        let thread = Builder::new().name("windows".to_owned()).spawn(windows);
        let windows = thread.map_err(|e| Failure::new(format!("cannot start a thread: {e}")))?;
        Ok(Push { folder, url: asked.target.url(), view, paths, windows, sender })
    }

    /// Where snapshots for it are written.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whether a snapshot is for it.
    pub fn is_own(&self, path: &Path) -> bool {
        path.starts_with(self.folder())
    }

    /// A snapshot is there; or not, for this reason. Its samples are in the next one, then.
    pub fn window(&self, path: &Path, why: Option<&str>) {
        match why {
            None => {
                // The thread ends after this only.
                let _ = self.paths.send(path.to_owned());
            }
            Some(why) => terminal::warn(&format!("--push: a profile comes later, with the next one: {why}")),
        }
    }

    /// Sends the rest, and says what became of all.
    pub fn finish(self, recording: Option<Recording>, quiet: bool) {
        drop(self.paths);
        match self.windows.join() {
            Ok(mut windows) => {
                let last = recording.ok_or_else(|| "the recording cannot be read back".to_owned());
                add(last, &mut windows, &self.view, &self.sender);
            }
            Err(_) => terminal::warn("--push: the last profile is lost: uu has failed to make it"),
        }
        let counts = Arc::into_inner(self.sender).map(Sender::finish).unwrap_or_default();
        said(&self.url, &counts, quiet);
    }
}

fn add(recording: Result<Recording, String>, windows: &mut Windows, view: &View, sender: &Sender) {
    match recording.and_then(|mut recording| windows.next(&mut recording, view)) {
        Ok(Some(profile)) => sender.send(profile),
        Ok(None) => {}
        Err(why) => terminal::warn(&format!("--push: a profile comes later, with the next one: {why}")),
    }
}

fn said(url: &str, counts: &Counts, quiet: bool) {
    let Counts { sent, samples, refused, dropped, waiting, earlier } = counts;
    if !quiet {
        let earlier = if *earlier > 0 { format!(", {earlier} of an earlier recording") } else { String::new() };
        terminal::say(&format!("pushed {sent} profiles ({samples} samples{earlier}) to {url}"));
    }
    if refused + dropped + waiting > 0 {
        terminal::warn(&format!(
            "--push: {refused} profiles were refused, {dropped} found no room, {waiting} wait to be sent"
        ));
    }
}

/// The folder below which profiles wait.
pub fn waiting_place() -> PathBuf {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("uu/push")
}
