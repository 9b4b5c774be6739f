//! Reads a recording, trusting no byte of it.
//!
//! Sections are taken in order. At the first one that is cut or damaged reading stops: what stood before it is kept,
//! with a warning, since later sections refer to earlier ones by number.

use super::jit::JitNames;
use super::model::{Name, Node, Object, Process, Sample, Settings, Thread};
use super::section::{unframe, BadFrame, Kind, HEADER_BYTES, MAGIC, VERSION};
use super::symbols::Symbols;
use super::totals::{Counters, End};
use super::wire::{Malformed, Reader};
use crate::error::ReadError;
use std::path::Path;
use uunwind_core::walk::MAX_FRAMES;

/// Samples lost by a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Index of the thread.
    pub thread: u32,
    /// How many.
    pub samples: u64,
    /// Their weight.
    pub weight: u64,
}

/// A recording in memory. Every index in it was checked.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// How it was made.
    pub settings: Settings,
    /// Process images.
    pub processes: Vec<Process>,
    /// Threads.
    pub threads: Vec<Thread>,
    /// Objects of all processes.
    pub objects: Vec<Object>,
    /// Names of all processes.
    pub names: Vec<Name>,
    /// Stack nodes; `nodes[n - 1]` is node n.
    pub nodes: Vec<Node>,
    /// How many nodes each stack has; `depths[n - 1]` is node n's.
    pub depths: Vec<u32>,
    /// Samples, in the order in which they were drained.
    pub samples: Vec<Sample>,
    /// Losses.
    pub lost: Vec<Lost>,
    /// Counters by process index.
    pub counters: Vec<(u32, Counters)>,
    /// Notes from the recorder.
    pub notes: Vec<String>,
    /// Totals; `None` when the recording was cut.
    pub end: Option<End>,
    /// Symbols; `None` when the recording was cut before they were made.
    pub symbols: Option<Symbols>,
    /// Names of code made at run time.
    pub jit: JitNames,
    /// What was wrong with the file, for people.
    pub warnings: Vec<String>,
}

impl Recording {
    /// Reads a recording from a file.
    pub fn read(path: &Path) -> Result<Recording, ReadError> {
        let bytes = std::fs::read(path).map_err(|e| ReadError::Io(path.to_owned(), e))?;
        Recording::parse(&bytes, path)
    }

    /// Reads a recording from bytes; `path` is for messages. Any bytes are safe to give.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Recording, ReadError> {
        check_header(bytes, path)?;
        let mut recording = Recording::default();
        let mut at = HEADER_BYTES;
        let mut damage = None;
        let mut unknown = 0u64;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let (number, payload, len) = match unframe(rest) {
                Ok(section) => section,
                Err(bad) => {
                    damage = Some((describe(&bad), matches!(bad, BadFrame::Cut { .. })));
                    break;
                }
            };
            match Kind::from_number(number) {
                Some(kind) => {
                    if let Err(m) = recording.section(kind, payload) {
                        let found = format!("a {kind:?} section without a valid {} (byte {} in it)", m.wanted, m.at);
                        damage = Some((found, false));
                        break;
                    }
                }
                None => unknown += 1,
            }
            at += len;
        }
        if unknown > 0 {
            recording
                .warnings
                .push(format!("{unknown} sections of a kind that this version does not know were skipped"));
        }
        recording.judge(damage, at, bytes.len(), path)?;
        Ok(recording)
    }

    /// Turns damage into a warning when something can still be reported, else into an error.
    fn judge(&mut self, damage: Option<(String, bool)>, at: usize, len: usize, path: &Path) -> Result<(), ReadError> {
        let shown = path.display();
        match damage {
            Some((found, _)) if self.samples.is_empty() && self.end.is_none() => {
                return Err(ReadError::Damaged { path: path.to_owned(), offset: at, found });
            }
            Some((found, cut)) => {
                let what = if cut { "truncated" } else { "damaged" };
                self.warnings.push(format!(
                    "{shown} is {what} at offset {at}: {found}. The {} samples before it are reported; the remaining {} \
                     bytes are left out",
                    self.samples.len(),
                    len - at
                ));
            }
            None if self.settings == Settings::default() => {
                let found = "no settings section".to_owned();
                return Err(ReadError::Damaged { path: path.to_owned(), offset: at, found });
            }
            None if self.end.is_none() => self.warnings.push(format!(
                "{shown} is truncated at offset {at}: it has no end section, so the recorder was killed, the disk was full \
                 or the file was cut. The {} samples in it are reported",
                self.samples.len()
            )),
            None => {}
        }
        if let Some(end) = &self.end {
            if end.samples != self.samples.len() as u64 {
                self.warnings.push(format!(
                    "{shown} should have {} samples and has {}: some sections are missing",
                    end.samples,
                    self.samples.len()
                ));
            }
        }
        Ok(())
    }

    fn section(&mut self, kind: Kind, payload: &[u8]) -> Result<(), Malformed> {
        let r = &mut Reader::new(payload);
        match kind {
            Kind::Settings => self.settings = Settings::decode(r)?,
            Kind::Process => self.processes.push(Process::decode(r)?),
            Kind::Thread => {
                let process = self.process_index(r)?;
                self.threads.push(Thread { process, tid: r.u32("tid")?, name: String::new() });
            }
            Kind::ThreadName => {
                let thread = r.u32("thread")? as usize;
                let name = r.text("thread name")?;
                self.threads.get_mut(thread).ok_or_else(|| r.malformed("thread index"))?.name = name;
            }
            Kind::Object => {
                let object = Object::decode(r)?;
                self.check(object.process as usize, self.processes.len(), r, "process index")?;
                self.objects.push(object);
            }
            Kind::Name => {
                let name = Name::decode(r)?;
                self.check(name.process as usize, self.processes.len(), r, "process index")?;
                self.names.push(name);
            }
            Kind::Nodes => {
                for _ in 0..r.count(Node::BYTES, "number of nodes")? {
                    let node = Node::decode(r)?;
                    self.check(node.parent as usize, self.nodes.len() + 1, r, "parent node")?;
                    // A chain without end would cost every sample that names it, over and over.
                    let below = (node.parent as usize).checked_sub(1).and_then(|parent| self.depths.get(parent));
                    let depth = below.map_or(1, |below| below + 1);
                    self.check(depth as usize, MAX_FRAMES as usize + 1, r, "stack of at most 4,096 frames")?;
                    self.depths.push(depth);
                    self.nodes.push(node);
                }
            }
            Kind::Samples => {
                for _ in 0..r.count(Sample::BYTES, "number of samples")? {
                    let sample = Sample::decode(r)?;
                    self.check(sample.thread as usize, self.threads.len(), r, "thread index")?;
                    self.check(sample.stack as usize, self.nodes.len() + 1, r, "stack node")?;
                    self.samples.push(sample);
                }
            }
            Kind::Lost => {
                let lost = Lost { thread: r.u32("thread")?, samples: r.u64("number")?, weight: r.u64("weight")? };
                self.check(lost.thread as usize, self.threads.len(), r, "thread index")?;
                self.lost.push(lost);
            }
            Kind::Counters => {
                let process = self.process_index(r)?;
                self.counters.push((process, Counters::decode(r)?));
            }
            Kind::Note => self.notes.push(r.text("note")?),
            Kind::End => self.end = Some(End::decode(r)?),
            Kind::Symbols => self.symbols = Some(Symbols::decode(r)?),
            Kind::Jit => self.jit = JitNames::decode(r)?,
            Kind::Plugins => {
                let process = self.process_index(r)? as usize;
                let plugins = Process::decode_plugins(r)?;
                self.processes.get_mut(process).ok_or_else(|| r.malformed("process index"))?.plugins = plugins;
            }
        }
        if r.is_done() {
            Ok(())
        } else {
            Err(r.malformed("end of the section"))
        }
    }

    fn process_index(&self, r: &mut Reader<'_>) -> Result<u32, Malformed> {
        let process = r.u32("process")?;
        self.check(process as usize, self.processes.len(), r, "process index")?;
        Ok(process)
    }

    fn check(&self, index: usize, limit: usize, r: &Reader<'_>, wanted: &'static str) -> Result<(), Malformed> {
        if index < limit {
            Ok(())
        } else {
            Err(r.malformed(wanted))
        }
    }
}

fn check_header(bytes: &[u8], path: &Path) -> Result<(), ReadError> {
    let path = || path.to_owned();
    if bytes.is_empty() {
        return Err(ReadError::Empty(path()));
    }
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(ReadError::Foreign(path(), bytes[..known].to_vec()));
    }
    let Some(version) = bytes.get(8..12).filter(|_| bytes.len() >= HEADER_BYTES) else {
        return Err(ReadError::CutHeader(path(), bytes.len()));
    };
    let found = u32::from_le_bytes([version[0], version[1], version[2], version[3]]);
    match found {
        VERSION => Ok(()),
        0 => Err(ReadError::Damaged { path: path(), offset: 8, found: "format version 0".to_owned() }),
        _ => Err(ReadError::Newer { path: path(), found, known: VERSION }),
    }
}

fn describe(bad: &BadFrame) -> String {
    match bad {
        BadFrame::Cut { wanted, left } => {
            format!("a section of {wanted} bytes begins there, and the file ends after {left}")
        }
        BadFrame::Checksum { found, computed } => {
            format!("the checksum of a section is {found:#010x}, its bytes give {computed:#010x}")
        }
    }
}
