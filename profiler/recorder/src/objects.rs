//! The objects that processes meet: where their files are, their analysis (once per key), and copies kept open so that
//! they can still be named when the files are gone.

use crate::analyst::{Analyst, Finding};
use crate::claims::Claims;
use crate::facts::FactsPublisher;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use uunwind_analyse::elf::Image;
use uunwind_analyse::key_of;
use uunwind_analyse::rules::Cache;
use uunwind_loader::Analysers;
use uunwind_report::recording::Object;

/// Most files kept open. Beyond it, objects are named from their paths only.
const KEPT_OPEN: usize = 256;

/// What is known under a facts key.
struct Known {
    path: Vec<u8>,
    file: Option<File>,
}

/// The objects seen so far.
#[derive(Default)]
pub struct Objects {
    known: HashMap<u64, Known>,
    failed: HashSet<u64>,
    open: usize,
    notes: Vec<String>,
    facts_full: bool,
    tables_full: bool,
    analyst: Analyst,
    claims: Claims,
}

impl Objects {
    /// None so far; rule tables are kept in this cache, and `analysers` are the plugins' analyse halves.
    pub fn new(cache: Cache, analysers: Analysers) -> Objects {
        Objects { analyst: Analyst::new(cache), claims: Claims::new(analysers), ..Objects::default() }
    }

    /// Lines for people that came up since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.claims.take_notes());
        notes
    }

    /// Publishes what was found since the last call: by the analyst, and by the plugins that were asked then. Never waits.
    pub fn poll(&mut self, facts: &mut FactsPublisher) {
        for found in self.analyst.poll() {
            self.publish(found, facts);
        }
        let full = self.claims.poll(facts).is_err();
        self.note_full(full);
    }

    /// Waits until all objects so far are analysed, but for the plugins' answers, and publishes what was found.
    pub fn finish(&mut self, facts: &mut FactsPublisher) {
        while let Some(found) = self.analyst.next() {
            self.publish(found, facts);
        }
        if self.analyst.take_failed() {
            self.notes.push(
                "uu's analysis failed on an object, see above; interpreters in it, and in those that waited behind it, show native \
                 frames only"
                    .to_owned(),
            );
        }
        self.poll(facts);
    }

    /// The same, with the plugins' answers.
    pub fn finish_with_plugins(&mut self, facts: &mut FactsPublisher) {
        self.finish(facts);
        let full = self.claims.wait(facts).is_err();
        self.note_full(full);
    }

    /// Has an object analysed by its path, before any process has it.
    pub fn analyse_path(&mut self, path: &Path, facts: &mut FactsPublisher) {
        let Ok(image) = Image::open(path) else { return };
        let key = key_of(&image).0;
        if !self.known.contains_key(&key) {
            self.remember(key, path.as_os_str().as_bytes().to_vec(), File::open(path).ok());
            self.ask(image, facts);
        }
    }

    /// Takes note of an object that a process met: fills in its path, analyses it if its key is new, publishes facts.
    /// `exe` is the process's executable, as far as it is known.
    pub fn seen(&mut self, pid: u32, exe: &[u8], object: &mut Object, facts: &mut FactsPublisher) {
        if is_vdso(&object.path) {
            object.path = b"[vdso]".to_vec();
            self.note_full(facts.publish(object.facts_key, [0; 16], b"").is_err());
            return;
        }
        if object.path.is_empty() {
            // The program itself. Its path is known while it runs; one that was gone too soon, or has called exec since,
            // may have the key of one seen before.
            let known = self.known.get(&object.facts_key).map(|known| known.path.clone());
            object.path = known.unwrap_or_else(|| without_deleted(exe.to_vec()));
            let candidates = [format!("/proc/{pid}/exe").into(), path_of(&object.path)];
            if !self.analyse_candidates(object, &candidates, facts) {
                object.path.clear();
            }
            return;
        }
        if !object.path.starts_with(b"/") {
            if let Ok(cwd) = std::fs::read_link(format!("/proc/{pid}/cwd")) {
                object.path = cwd.join(OsStr::from_bytes(&object.path)).into_os_string().into_encoded_bytes();
            }
        }
        let path = Path::new(OsStr::from_bytes(&object.path));
        let in_root = Path::new(&format!("/proc/{pid}/root")).join(path.strip_prefix("/").unwrap_or(path));
        // What the process calls itself, such as /proc/self/fd/3 of a memory file.
        let own = path.strip_prefix("/proc/self").or(path.strip_prefix("/proc/thread-self"));
        let own = own.map(|rest| Path::new(&format!("/proc/{pid}")).join(rest)).unwrap_or_default();
        let mut candidates = vec![own, in_root, path.to_owned()];
        if !self.known.contains_key(&object.facts_key) {
            candidates.extend(mapped_file(pid, object.start, object.end));
        }
        if !self.analyse_candidates(object, &candidates, facts) {
            // Say so to targets too, which otherwise wait for its facts.
            self.note_full(facts.publish(object.facts_key, [0; 16], b"").is_err());
        }
    }

    /// Has the first candidate analysed whose key is the object's, unless that key is known. False: none was the object.
    fn analyse_candidates(&mut self, object: &Object, candidates: &[PathBuf], facts: &mut FactsPublisher) -> bool {
        let key = object.facts_key;
        if self.known.contains_key(&key) {
            return true;
        }
        let mut why = "its path is not known".to_owned();
        for path in candidates.iter().filter(|p| !p.as_os_str().is_empty()) {
            match Image::open(path) {
                Ok(image) if key_of(&image).0 == key => {
                    self.remember(key, object.path.clone(), File::open(path).ok());
                    self.ask(image, facts);
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

    fn ask(&mut self, image: Image, facts: &mut FactsPublisher) {
        for found in self.analyst.ask(image) {
            self.publish(found, facts);
        }
    }

    fn publish(&mut self, found: Finding, facts: &mut FactsPublisher) {
        let (key, analysis) = (found.analysis.facts_key, found.analysis);
        self.notes.extend(analysis.notes);
        let full = self.claims.settle(key, &found.path, analysis.facts, facts).is_err();
        self.note_full(full);
        let table = found.table.map_or(Ok(()), |table| facts.publish_table(key, &table));
        if table.is_err() && !self.tables_full {
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

    fn remember(&mut self, key: u64, path: Vec<u8>, file: Option<File>) {
        let file = file.filter(|_| self.open < KEPT_OPEN);
        self.open += usize::from(file.is_some());
        self.known.entry(key).or_insert(Known { path, file });
    }

    /// Where the file of an object may be found: its path, and the copy kept open.
    pub fn files(&self, object: &Object) -> Vec<PathBuf> {
        let mut files = vec![path_of(&object.path)];
        let open = self.known.get(&object.facts_key).and_then(|known| known.file.as_ref());
        files.extend(open.map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))));
        files
    }

    /// Has the kernel's own object analysed, which every process has. It has no file; this process's image of it is the same
    /// as the program's.
    pub fn vdso(&mut self, facts: &mut FactsPublisher) {
        let Some(file) = own_vdso() else { return };
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let Ok(image) = Image::open(&path) else { return };
        let key = key_of(&image).0;
        self.note_full(facts.publish(key, [0; 16], b"").is_err());
        self.remember(key, b"[vdso]".to_vec(), Some(file));
        self.ask(image, facts);
    }
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// The file that a process has mapped inside a range, by the kernel's own link to it (proc(5), map_files), which leads to
/// files without a name too. Opening it needs CAP_CHECKPOINT_RESTORE.
fn mapped_file(pid: u32, start: u64, end: u64) -> Option<PathBuf> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let ranges = maps.lines().filter_map(|line| line.split(' ').next()?.split_once('-'));
    let inside = |(from, to): &(&str, &str)| {
        let number = |text| u64::from_str_radix(text, 16).ok();
        number(from).is_some_and(|from| from >= start) && number(to).is_some_and(|to| to <= end)
    };
    let (from, to) = ranges.into_iter().find(inside)?;
    Some(PathBuf::from(format!("/proc/{pid}/map_files/{from}-{to}")))
}

fn is_vdso(path: &[u8]) -> bool {
    path == b"linux-vdso.so.1" || path == b"[vdso]"
}

/// `/proc/<pid>/exe` of a file that is gone ends in a remark.
fn without_deleted(mut path: Vec<u8>) -> Vec<u8> {
    if path.ends_with(b" (deleted)") && !Path::new(OsStr::from_bytes(&path)).exists() {
        path.truncate(path.len() - b" (deleted)".len());
    }
    path
}

/// A file with the image of this process's vDSO.
fn own_vdso() -> Option<File> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    // SAFETY: the kernel maps the vDSO readable, and keeps it for the life of the process.
    let image = unsafe { std::slice::from_raw_parts(start as *const u8, end.checked_sub(start)?) };
    // SAFETY: the name is NUL-terminated; a descriptor it gives is ours alone.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"uu-vdso".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return None;
        }
        File::from_raw_fd(fd)
    };
    file.write_all(image).and_then(|()| file.rewind()).ok()?;
    Some(file)
}
