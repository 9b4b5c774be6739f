//! Reads a recording, trusting no byte of it.
//!
//! Sections are read in order. Reading stops at the first one that is cut or damaged: all before it is kept,
//! with a warning, since later sections refer to earlier ones by index.

use crate::allocations::{Allocation, Free, Unmap};
use crate::complete_maps::CompleteMap;
use crate::copies::{Of, StackCopy};
use crate::error::ReadError;
use crate::jit::JitNames;
use crate::labels::Labels;
use crate::languages::{decode_language, decode_lines, CodeLine, CodePlace};
use crate::lock_waits::LockWait;
use crate::model::{Lock, Name, Node, Object, Process, Sample, Settings, Start, Thread, Wait};
use crate::second_mappings::SecondMapping;
use crate::section::{unframe, wanted, BadFrame, Kind, FRAME_HEAD, HEADER_BYTES, MAGIC, VERSION};
use crate::symbols::Symbols;
use crate::totals::{Counters, End};
use crate::wire::{Malformed, Reader};
use crate::KERNEL_FRAMES;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;
use uunwind_core::walk::{MAX_FRAMES, OUTERMOST};
use uunwind_elf::files;
use uunwind_language::Language;

/// Size of the read buffer, in bytes.
const BUFFER: usize = 256 << 10;

/// Samples lost by a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Index of the thread in the recording.
    pub thread: u32,
    /// Number of lost samples.
    pub samples: u64,
    /// Weight of the lost samples, in periods.
    pub weight: u64,
}

/// A recording in memory. Every index in it has been checked.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// How the recording was made.
    pub settings: Settings,
    /// Process images.
    pub processes: Vec<Process>,
    /// Threads of all processes.
    pub threads: Vec<Thread>,
    /// Objects of all processes.
    pub objects: Vec<Object>,
    /// Names of all processes.
    pub names: Vec<Name>,
    /// Stack nodes; `nodes[n - 1]` is node n.
    pub nodes: Vec<Node>,
    /// Number of nodes of each stack; `depths[n - 1]` belongs to node n.
    pub depths: Vec<u32>,
    /// Samples, in the order in which they were drained, without the fatal ones.
    pub samples: Vec<Sample>,
    /// The last stacks of threads by which a signal ended their process ([`Sample::FATAL`]).
    pub fatal: Vec<Sample>,
    /// What threads without a sample had used when their timers were armed.
    pub starts: Vec<Start>,
    /// Single waits, where the kernel has said when each began and ended.
    pub waits: Vec<Wait>,
    /// The labels of threads.
    pub labels: Labels,
    /// Stacks that await their walk.
    pub copies: Vec<StackCopy>,
    /// What the samples of allocations are of, in their order.
    pub allocations: Vec<Allocation>,
    /// What the samples of waits for locks are of, in their order.
    pub lock_waits: Vec<LockWait>,
    /// Frees, until their allocations have them; not after reading.
    pub frees: Vec<Free>,
    /// The same of mappings.
    pub unmaps: Vec<Unmap>,
    /// The same of temporary ones: process and number.
    pub temporaries: Vec<(u32, u64)>,
    /// Samples lost, by thread.
    pub lost: Vec<Lost>,
    /// Counters by process index.
    pub counters: Vec<(u32, Counters)>,
    /// Notes from the recorder, for people: one line each.
    pub notes: Vec<String>,
    /// Totals; `None` if the recording was cut.
    pub end: Option<End>,
    /// Symbols; `None` if the recording was cut before they were written.
    pub symbols: Option<Symbols>,
    /// Names of code made at run time.
    pub jit: JitNames,
    /// Where processes have objects' code at other addresses than their loaders', in the order in which it was found.
    pub second_mappings: Vec<SecondMapping>,
    /// When it was known where all executable memory of a process is, for copies of its stacks.
    pub complete_maps: Vec<CompleteMap>,
    /// What is known of plugins' languages: at most one for each plugin.
    pub languages: Vec<Language>,
    /// Lines of positions in code objects that have line tables.
    pub lines: Vec<CodeLine>,
    /// Columns of positions in code objects, if [`add_columns`](crate::languages::add_columns) was called.
    pub places: Vec<CodePlace>,
    /// What is wrong with the file, for people.
    pub warnings: Vec<String>,
    /// Samples that [`Recording::keep_holders`] has taken out of `samples`.
    pub left_out: LeftOut,
    /// Whether frames that await those of the stack are shown; not after reading.
    pub awaiting: bool,
}

/// Samples of a recording that are not shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Number of samples.
    pub samples: u64,
    /// Number of those that timers have taken, and their weight in periods.
    pub timed: (u64, u64),
    /// Number of those that say how their thread stood to the lock.
    pub known: u64,
}

impl Recording {
    /// Every sample, the fatal ones last.
    pub fn all_samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().chain(&self.fatal)
    }

    /// What threads without a sample had used when their timers were armed, in periods.
    pub fn periods_of_starts(&self) -> u64 {
        self.starts.iter().fold(0, |sum, start| sum.saturating_add(start.weight.into()))
    }

    /// Keeps only samples of threads that held their runtime's lock, and the fatal ones.
    pub fn keep_holders(&mut self) {
        let mut left_out = self.left_out;
        self.retain_samples(|sample| {
            let kept = sample.lock() == Lock::Held;
            if !kept {
                left_out.samples += 1;
                left_out.known += u64::from(sample.lock() != Lock::Unknown);
                if sample.kind == Sample::TIMER {
                    let weight = u64::from(sample.weight.max(1));
                    left_out.timed = (left_out.timed.0 + 1, left_out.timed.1.saturating_add(weight));
                }
            }
            kept
        });
        self.left_out = left_out;
    }

    /// Why [`Recording::keep_holders`] has left no sample, for people; `None` if it has left some, or was not called.
    pub fn without_holders(&self) -> Option<&'static str> {
        let LeftOut { samples, known, .. } = self.left_out;
        match known {
            _ if samples == 0 || !self.samples.is_empty() => None,
            0 => Some("no sample of this recording says how its thread stood to the GIL"),
            _ => Some("no thread was seen to hold the GIL"),
        }
    }

    /// Whether the functions of files that stay were left to be named when the recording is shown.
    pub fn is_named_later(&self) -> bool {
        self.notes.iter().any(|note| note.ends_with(crate::NAMED_LATER))
    }

    /// Reads a recording from a file.
    pub fn read(path: &Path) -> Result<Recording, ReadError> {
        let file = files::open(path).map_err(|e| ReadError::Io(path.to_owned(), e))?;
        Recording::read_open(&file, path)
    }

    /// The same, for those who show it: names are the last section, so a recording that has ended without them was cut
    /// there, or is not whole yet. That is one more warning. `path` is for messages.
    pub fn to_show(mut self, path: &Path) -> Recording {
        if self.end.is_some() && self.symbols.is_none() {
            self.warnings.push(format!(
                "{} has no section of names: uu was killed while it named functions, or the file was cut. They are named \
                 from the files as they are now",
                path.display()
            ));
        }
        self
    }

    /// Reads a recording from the beginning of an open file; `path` is for messages.
    pub fn read_open(mut file: &File, path: &Path) -> Result<Recording, ReadError> {
        let io = |e| ReadError::Io(path.to_owned(), e);
        file.rewind().map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        Recording::from_stream(BufReader::with_capacity(BUFFER, file.take(len)), len, path)
    }

    /// Reads a recording from bytes; `path` is for messages. Any bytes may be passed.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Recording, ReadError> {
        Recording::from_stream(bytes, bytes.len() as u64, path)
    }

    /// Reads section by section, so that memory is needed for what is kept only, not for the whole file.
    fn from_stream(mut input: impl Read, len: u64, path: &Path) -> Result<Recording, ReadError> {
        let io = |e| ReadError::Io(path.to_owned(), e);
        let mut section = Vec::new();
        fill(&mut input, HEADER_BYTES as u64, &mut section).map_err(io)?;
        check_header(&section, path)?;
        let mut recording = Recording::default();
        let mut at = HEADER_BYTES as u64;
        let mut damage = None;
        let mut unknown = 0u64;
        while at < len {
            section.clear();
            fill(&mut input, FRAME_HEAD as u64, &mut section).map_err(io)?;
            // A section whose length exceeds the file is not read; it is reported as cut.
            let whole = wanted(&section).filter(|whole| *whole <= len - at).unwrap_or(0);
            fill(&mut input, whole.saturating_sub(section.len() as u64), &mut section).map_err(io)?;
            let (number, payload) = match unframe(&section) {
                Ok((number, payload, _)) => (number, payload),
                Err(BadFrame::Cut { wanted, .. }) => {
                    damage = Some((describe(&BadFrame::Cut { wanted, left: (len - at) as usize }), true));
                    break;
                }
                Err(bad) => {
                    damage = Some((describe(&bad), false));
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
            at += section.len() as u64;
        }
        if unknown > 0 {
            recording
                .warnings
                .push(format!("{unknown} sections of a kind that this version does not know were skipped"));
        }
        recording.join_frees();
        recording.join_temporaries();
        recording.judge(damage, at as usize, len as usize, path)?;
        recording.join_unmaps();
        Ok(recording)
    }

    /// Turns damage into a warning if something can still be reported, else into an error.
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

    pub(super) fn section(&mut self, kind: Kind, payload: &[u8]) -> Result<(), Malformed> {
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
                    // A stack without a depth limit would cost time for every sample that names it.
                    let below = (node.parent as usize).checked_sub(1).and_then(|parent| self.depths.get(parent));
                    let depth = below.map_or(1, |below| below + 1);
                    // The innermost and the outermost frames, and one that stands for those left out between them; and
                    // those of the kernel that stand on them.
                    const DEEPEST: usize = MAX_FRAMES as usize + 1 + OUTERMOST + KERNEL_FRAMES;
                    self.check(depth as usize, DEEPEST + 1, r, "stack of at most 4,673 frames")?;
                    self.depths.push(depth);
                    self.nodes.push(node);
                }
            }
            Kind::Samples => {
                for _ in 0..r.count(Sample::BYTES, "number of samples")? {
                    let sample = Sample::decode(r)?;
                    self.check(sample.thread as usize, self.threads.len(), r, "thread index")?;
                    self.check(sample.stack as usize, self.nodes.len() + 1, r, "stack node")?;
                    let is_fatal = sample.kind == Sample::FATAL;
                    if is_fatal { &mut self.fatal } else { &mut self.samples }.push(sample);
                }
            }
            Kind::Copies => {
                for _ in 0..r.count(StackCopy::BYTES, "number of copies")? {
                    let (sample, beside, bytes) = StackCopy::decode(r)?;
                    self.check(sample.thread as usize, self.threads.len(), r, "thread index")?;
                    let of = match (beside, sample.kind) {
                        (true, _) => Of::Beside(sample.thread, sample.time),
                        (false, Sample::FATAL) => Of::Fatal(self.fatal.len()),
                        (false, _) => Of::Sample(self.samples.len()),
                    };
                    match of {
                        Of::Sample(_) => self.samples.push(sample),
                        Of::Fatal(_) => self.fatal.push(sample),
                        Of::Beside(..) => {}
                    }
                    self.copies.push(StackCopy { of, bytes });
                }
            }
            Kind::Lost => {
                let lost = Lost { thread: r.u32("thread")?, samples: r.u64("number")?, weight: r.u64("weight")? };
                self.check(lost.thread as usize, self.threads.len(), r, "thread index")?;
                self.lost.push(lost);
            }
            Kind::Start => {
                let start = Start { thread: r.u32("thread")?, time: r.u64("time")?, weight: r.u32("weight")? };
                self.check(start.thread as usize, self.threads.len(), r, "thread index")?;
                self.starts.push(start);
            }
            Kind::Waits => {
                for _ in 0..r.count(4 + 8 + 8, "number of waits")? {
                    let (thread, begin) = (r.u32("thread")?, r.u64("time")?);
                    self.check(thread as usize, self.threads.len(), r, "thread index")?;
                    self.waits.push(Wait { thread, begin, duration: r.u64("duration")? });
                }
            }
            Kind::Labels => {
                let (thread, time) = (r.u32("thread")?, r.u64("time")?);
                self.check(thread as usize, self.threads.len(), r, "thread index")?;
                let count = r.count(4 + 4, "number of labels")?;
                let labels = (0..count).map(|_| Ok((r.text("key of a label")?, r.text("value of a label")?)));
                self.labels.add(thread, time, labels.collect::<Result<_, Malformed>>()?);
            }
            Kind::SecondMappings => {
                for _ in 0..r.count(SecondMapping::BYTES, "number of second mappings")? {
                    let mapping = SecondMapping::decode(r)?;
                    self.check(mapping.process as usize, self.processes.len(), r, "process index")?;
                    self.second_mappings.push(mapping);
                }
            }
            Kind::CompleteMaps => {
                for _ in 0..r.count(CompleteMap::BYTES, "number of complete maps")? {
                    let map = CompleteMap::decode(r)?;
                    self.check(map.process as usize, self.processes.len(), r, "process index")?;
                    self.complete_maps.push(map);
                }
            }
            Kind::Allocations => self.read_allocations(r)?,
            Kind::LockWaits => self.read_lock_waits(r)?,
            Kind::Frees => {
                for _ in 0..r.count(Free::BYTES, "number of frees")? {
                    let free = Free::decode(r)?;
                    self.check(free.process as usize, self.processes.len(), r, "process index")?;
                    self.frees.push(free);
                }
            }
            Kind::Unmaps => {
                for _ in 0..r.count(Unmap::BYTES, "number of unmaps")? {
                    let unmap = Unmap::decode(r)?;
                    self.check(unmap.process as usize, self.processes.len(), r, "process index")?;
                    self.unmaps.push(unmap);
                }
            }
            Kind::Temporaries => {
                for _ in 0..r.count(4 + 8, "number of temporary allocations")? {
                    let process = self.process_index(r)?;
                    self.temporaries.push((process, r.u64("number of an allocation")?));
                }
            }
            Kind::Counters => {
                let process = self.process_index(r)?;
                self.counters.push((process, Counters::decode(r)?));
            }
            Kind::Note => self.notes.push(r.text("note")?),
            Kind::End => self.end = Some(End::decode(r)?),
            Kind::Symbols => self.symbols = Some(Symbols::decode(r)?),
            Kind::Jit => self.jit = JitNames::decode(r)?,
            Kind::Language => {
                let language = decode_language(r)?;
                self.languages.retain(|other| other.plugin != language.plugin);
                self.languages.push(language);
            }
            Kind::Lines => self.lines.append(&mut decode_lines(r)?),
            Kind::Command => {
                let process = self.process_index(r)? as usize;
                let words = r.count(4, "number of command words")?;
                let words =
                    (0..words).map(|_| Ok(r.bytes("command word")?.to_vec())).collect::<Result<_, Malformed>>()?;
                self.processes.get_mut(process).ok_or_else(|| r.malformed("process index"))?.command = words;
            }
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

/// Adds up to `more` bytes of a stream, as many as it has. Too little memory is an error.
fn fill(input: &mut impl Read, more: u64, out: &mut Vec<u8>) -> io::Result<()> {
    let (mut at, more) = (out.len(), more as usize);
    out.try_reserve(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
    out.resize(at + more, 0);
    while let Some(place) = out.get_mut(at..).filter(|place| !place.is_empty()) {
        match input.read(place) {
            Ok(0) => break,
            Ok(read) => at += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    out.truncate(at);
    Ok(())
}

pub(super) fn check_header(bytes: &[u8], path: &Path) -> Result<(), ReadError> {
    let path = || path.to_owned();
    if bytes.is_empty() {
        return Err(ReadError::Empty(path()));
    }
    let compared = bytes.len().min(MAGIC.len());
    if bytes[..compared] != MAGIC[..compared] {
        return Err(ReadError::Foreign(path(), bytes[..compared].to_vec()));
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

pub(super) fn describe(bad: &BadFrame) -> String {
    match bad {
        BadFrame::Cut { wanted, left } => {
            format!("a section of {wanted} bytes begins there, and the file ends after {left}")
        }
        BadFrame::Checksum { found, computed } => {
            format!("the checksum of a section is {found:#010x}, its bytes give {computed:#010x}")
        }
    }
}
