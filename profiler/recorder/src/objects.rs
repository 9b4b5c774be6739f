//! The objects that processes load: their files, their analysis (once for each key), and descriptors kept open, so that
//! functions can still be named when the files are gone.

use crate::analyst::{Analyst, Finding};
use crate::facts::FactsPublisher;
use crate::lines;
use crate::listener::{Listener, Waker};
use crate::map_files::MapFiles;
use crate::plugin_assignment::Claims;
use crate::session::{memory_file, Session};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use uunwind_elf::process;
use uunwind_elf::Image;
use uunwind_elf::{files, key_of, maps};
use uunwind_loader::Analysers;
use uunwind_recording::{CodeLine, Object, Recording};
use uunwind_tables_build::Cache;

/// At most this number of files are kept open. Further objects are named from their paths only.
const KEPT_OPEN: usize = 256;

/// Path and open file of an object that was analysed.
struct Known {
    path: Vec<u8>,
    file: Option<File>,
}

/// The objects of all processes so far.
#[derive(Default)]
pub struct Objects {
    known: HashMap<u64, Known>,
    failed: HashSet<u64>,
    open: usize,
    /// At most this number of files is kept open; 0: [`KEPT_OPEN`].
    most: usize,
    notes: Vec<String>,
    facts_full: bool,
    tables_full: bool,
    analyst: Analyst,
    cache: Cache,
    listener: Option<Listener>,
    claims: Claims,
    map_files: MapFiles,
}

impl Objects {
    /// Creates it with no objects. `cache`: where rule tables are kept. `analysers`: the plugins' analyse halves.
    pub fn new(cache: Cache, analysers: Analysers) -> Objects {
        let analyst = Analyst::new(cache.clone());
        Objects { analyst, cache, claims: Claims::new(analysers), ..Objects::default() }
    }

    /// The same, with at most this number of files kept open.
    pub fn keep_open(self, most: usize) -> Objects {
        Objects { most: most.clamp(1, KEPT_OPEN), ..self }
    }

    /// Prepares objects that processes are about to load, from here on. `waker` wakes the thread that calls
    /// [`Objects::poll`].
    pub fn listen(&mut self, session: &Session, facts: &FactsPublisher, waker: &Waker) {
        // Without it, objects come with the first samples that meet them.
        self.listener = Listener::start(session, facts.tables().clone(), self.cache.clone(), waker.clone()).ok();
    }

    /// Descriptors that become readable when a plugin has answered.
    pub fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.claims.poll_fds()
    }

    /// Notes for the user since the last call, a line each.
    pub fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.claims.take_notes());
        notes
    }

    /// Takes the findings of the analyst, and publishes the plugins' answers since the last call. Never waits.
    pub fn poll(&mut self, facts: &mut FactsPublisher) {
        self.map_files.turn();
        for opening in self.listener.iter().flat_map(Listener::poll).collect::<Vec<_>>() {
            self.analyse_file(&opening.file, opening.path, facts);
        }
        for found in self.analyst.poll() {
            self.published(&found);
        }
        let full = self.claims.poll(facts).is_err();
        self.note_full(full);
    }

    /// Waits until all objects so far are analysed, except for the plugins' answers, and publishes the findings.
    pub fn finish(&mut self, facts: &mut FactsPublisher) {
        while let Some(found) = self.analyst.next() {
            self.published(&found);
        }
        if self.analyst.take_failed() {
            self.notes.push(
                "making a rule table failed, see above: that object, and those that waited after it, are interpreted in place"
                    .to_owned(),
            );
        }
        self.poll(facts);
    }

    /// As [`Objects::finish`], but also waits for the plugins' answers.
    pub fn finish_with_plugins(&mut self, facts: &mut FactsPublisher) {
        self.finish(facts);
        let full = self.claims.wait(facts).is_err();
        self.note_full(full);
    }

    /// Requests the analysis of an object by its path, before any process has loaded it.
    pub fn analyse_path(&mut self, path: &Path, facts: &mut FactsPublisher) {
        self.analyse_file(path, path.as_os_str().as_bytes().to_vec(), facts);
    }

    /// As [`Objects::analyse_path`]. `opened`: where the file can be opened. `path`: the path that processes have it
    /// under.
    pub fn analyse_file(&mut self, opened: &Path, path: Vec<u8>, facts: &mut FactsPublisher) {
        let Ok(image) = Image::open(opened) else { return };
        let key = key_of(&image).0;
        if !self.known.contains_key(&key) {
            let file = self.remember(key, path, &image);
            self.ask(image, &file, facts);
        }
    }

    /// Processes an object that a process has loaded: fills in its path, and requests its analysis if its key is new.
    /// `exe`: path of the process's executable, or empty.
    pub fn seen(&mut self, pid: u32, exe: &[u8], object: &mut Object, facts: &mut FactsPublisher) {
        if is_vdso(&object.path) {
            object.path = b"[vdso]".to_vec();
            self.note_full(facts.publish(object.facts_key, [0; 16], b"").is_err());
            return;
        }
        if object.path.is_empty() {
            // The program itself. Its path can be read while it runs. If it ended too soon, or has called exec since
            // then, an object with the same key may have been seen before.
            let known = self.known.get(&object.facts_key).map(|known| known.path.clone());
            object.path = known.unwrap_or_else(|| without_deleted(exe.to_vec()));
            let candidates = [process::file(pid, "exe"), path_of(&object.path)];
            if !self.analyse_candidates(object, pid, &candidates, facts) {
                object.path.clear();
            }
            return;
        }
        if !object.path.starts_with(b"/") {
            if let Ok(cwd) = std::fs::read_link(process::file(pid, "cwd")) {
                object.path = cwd.join(OsStr::from_bytes(&object.path)).into_os_string().into_encoded_bytes();
            }
        }
        let path = Path::new(OsStr::from_bytes(&object.path));
        let in_root = process::file(pid, "root").join(path.strip_prefix("/").unwrap_or(path));
        // A path through /proc/self, such as /proc/self/fd/3 of a memfd, is translated to the process's pid.
        let own = path.strip_prefix("/proc/self").or(path.strip_prefix("/proc/thread-self"));
        let own = own.map(|rest| process::folder(pid).join(rest)).unwrap_or_default();
        if !self.analyse_candidates(object, pid, &[own, in_root, path.to_owned()], facts) {
            // Empty facts are published, because targets would otherwise wait for them.
            self.note_full(facts.publish(object.facts_key, [0; 16], b"").is_err());
        }
    }

    /// Requests the analysis of the first file that has the object's key: one of the candidates, or the file that the
    /// process has mapped there. Does nothing if the key was seen before. False: no file has the key.
    fn analyse_candidates(
        &mut self,
        object: &Object,
        pid: u32,
        candidates: &[PathBuf],
        facts: &mut FactsPublisher,
    ) -> bool {
        let key = object.facts_key;
        if self.known.contains_key(&key) {
            return true;
        }
        let mut why = "its path is not known".to_owned();
        let candidates = candidates.iter().cloned().map(Some).chain([None]);
        for candidate in candidates {
            // Tried last, because it reads all mappings of the process.
            let path = candidate.or_else(|| self.map_files.find(pid, object.start, object.end));
            let Some(path) = path.as_ref().filter(|path| !path.as_os_str().is_empty()) else { continue };
            match Image::open(path) {
                Ok(image) if key_of(&image).0 == key => {
                    let file = self.remember(key, object.path.clone(), &image);
                    self.ask(image, &file, facts);
                    return true;
                }
                Ok(_) => why = "the file is not the one that was mapped".to_owned(),
                Err(e) => why = e.to_string(),
            }
        }
        if object.path.starts_with(b"/") && !self.failed.contains(&key) {
            let path = String::from_utf8_lossy(&object.path);
            self.notes.push(format!("{path} could not be analysed: {why}"));
        }
        self.failed.insert(key);
        false
    }

    /// Offers an object to the plugins, which open it at `file`, and requests its rule table.
    fn ask(&mut self, image: Image, file: &Path, facts: &mut FactsPublisher) {
        let key = key_of(&image).0;
        let path = self.known.get(&key).map_or_else(|| image.path().to_owned(), |known| path_of(&known.path));
        let full = self.claims.settle(key, file, &path, facts).is_err();
        self.note_full(full);
        if facts.has_table(key) {
            return;
        }
        for found in self.analyst.ask(image, facts.tables()) {
            self.published(&found);
        }
    }

    fn published(&mut self, found: &Finding) {
        if found.published.is_err() && !self.tables_full {
            self.tables_full = true;
            self.notes.push("no room for more rule tables: further objects are interpreted in place".to_owned());
        }
    }

    fn note_full(&mut self, full: bool) {
        if full && !self.facts_full {
            self.facts_full = true;
            self.notes.push("no room for more facts: interpreters met from now on show native frames only".to_owned());
        }
    }

    /// Keeps the path of an object, and its file open. Returns where the file can be opened, also by uu's other
    /// processes and when the process that had it is gone: the descriptor, as long as there is room for more of them.
    fn remember(&mut self, key: u64, path: Vec<u8>, image: &Image) -> PathBuf {
        let most = if self.most == 0 { KEPT_OPEN } else { self.most };
        let file = files::open(image.path()).ok().filter(|_| self.open < most);
        self.open += usize::from(file.is_some());
        let known = self.known.entry(key).or_insert(Known { path, file });
        known.file.as_ref().map_or_else(|| image.path().to_owned(), descriptor)
    }

    /// The lines of the positions that samples met, decoded by the plugins; and notes for the user.
    pub fn lines(&mut self, recording: &Recording) -> (Vec<CodeLine>, Vec<String>) {
        lines::decode(recording, self.claims.analysers())
    }

    /// Ends the plugins' processes.
    pub fn close_plugins(&mut self) {
        self.claims.analysers().close();
    }

    /// Ends the processes of plugins and the thread that have nothing to do: they would do nothing for long.
    pub fn rest(&mut self) {
        self.claims.analysers().rest();
        self.analyst.rest();
    }

    /// Paths where the file of an object may be found by this process and the naming process: its path, and the
    /// descriptor kept open.
    pub fn files(&self, object: &Object) -> Vec<PathBuf> {
        let mut files = vec![path_of(&object.path)];
        let open = self.known.get(&object.facts_key).and_then(|known| known.file.as_ref());
        files.extend(open.map(descriptor));
        files
    }

    /// Requests the analysis of the [vDSO](https://man7.org/linux/man-pages/man7/vdso.7.html), which every process has.
    /// It has no file; this process's copy is identical to the program's.
    pub fn vdso(&mut self, facts: &mut FactsPublisher) {
        let Some(file) = own_vdso() else { return };
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let Ok(image) = Image::open(&path) else { return };
        let key = key_of(&image).0;
        self.note_full(facts.publish(key, [0; 16], b"").is_err());
        let file = self.remember(key, b"[vdso]".to_vec(), &image);
        self.ask(image, &file, facts);
    }
}

/// Where another process of uu can open a file that this one has open.
fn descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

fn is_vdso(path: &[u8]) -> bool {
    path == b"linux-vdso.so.1" || path == b"[vdso]"
}

/// Removes the suffix " (deleted)" that `/proc/<pid>/exe` has for a file that is gone.
fn without_deleted(mut path: Vec<u8>) -> Vec<u8> {
    if path.ends_with(b" (deleted)") && !Path::new(OsStr::from_bytes(&path)).exists() {
        path.truncate(path.len() - b" (deleted)".len());
    }
    path
}

/// A memfd with a copy of this process's vDSO.
fn own_vdso() -> Option<File> {
    let vdso = maps::own().ok()?.find(|mapping| mapping.name == b"[vdso]")?;
    let mut image = vec![0; usize::try_from(vdso.end.checked_sub(vdso.start)?).ok()?];
    File::open("/proc/self/mem").and_then(|memory| memory.read_exact_at(&mut image, vdso.start)).ok()?;
    let mut file = File::from(memory_file(c"uu-vdso").ok()?);
    file.write_all(&image).and_then(|()| file.rewind()).ok()?;
    Some(file)
}
