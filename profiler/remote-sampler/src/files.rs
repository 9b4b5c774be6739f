//! The files of the objects that the recorded processes have had.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use uunwind_recorder::jit::Jit;
use uunwind_recording::{Object, Writer};
use uunwind_remote::objects::Objects;

/// At most this number of files is kept open, so that their functions can be named after the process has ended.
const KEPT_OPEN: usize = 512;

/// Where they can be opened, and which of them the recording has.
#[derive(Default)]
pub struct Files {
    /// Where the file of an object can be opened, by its key; kept open as long as there is room.
    known: HashMap<u64, (Vec<PathBuf>, Option<File>)>,
    open: usize,
    /// At most this number of them is kept open.
    most: usize,
    /// What was written for each process: key and place of each object.
    written: HashMap<u32, HashSet<(u64, u64)>>,
    /// What could not be read of them, for people.
    pub troubles: Vec<String>,
}

impl Files {
    /// None so far. At most this number of descriptors is kept open.
    pub fn new(share: usize) -> Files {
        Files { most: KEPT_OPEN.min(share), ..Files::default() }
    }

    /// Writes the objects that are new in a process image. They are there since `time` at the earliest.
    pub fn add(&mut self, objects: &Objects, process: u32, time: u64, writer: &mut Writer<File>, jit: &mut Jit) {
        for trouble in &objects.troubles {
            if !self.troubles.contains(trouble) {
                self.troubles.push(trouble.clone());
            }
        }
        let mut now = HashSet::new();
        let before = self.written.remove(&process);
        for object in objects.recorded() {
            let mut object = Object { process, time, ..object };
            let place = (object.facts_key, object.start);
            now.insert(place);
            if before.as_ref().is_some_and(|before| before.contains(&place)) {
                continue;
            }
            // The first image's objects are there from the beginning.
            object.time = if process == 0 && before.is_none() { 0 } else { time };
            let places = objects.files_of(object.start);
            self.keep(object.facts_key, &places);
            jit.object(process, &object, || self.of(&object));
            writer.object(&object);
        }
        // One that is gone and comes back is written again.
        self.written.insert(process, now);
    }

    fn keep(&mut self, key: u64, places: &[PathBuf]) {
        if self.known.contains_key(&key) {
            return;
        }
        let file = places.first().filter(|_| self.open < self.most);
        let file = file.and_then(|path| uunwind_elf::files::open(path).ok());
        self.open += usize::from(file.is_some());
        self.known.insert(key, (places.to_vec(), file));
    }

    /// Where the file of an object may be found, by this process and the naming process.
    pub fn of(&self, object: &Object) -> Vec<PathBuf> {
        let Some((places, file)) = self.known.get(&object.facts_key) else { return Vec::new() };
        let descriptor = |file: &File| PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        file.as_ref().map(descriptor).into_iter().chain(places.iter().cloned()).collect()
    }
}
