//! Appends sections to a recording.

use crate::allocations::{Free, Unmap};
use crate::complete_maps::CompleteMap;
use crate::copies::StackCopy;
use crate::jit::JitNames;
use crate::languages::{encode_language, encode_lines, CodeLine};
use crate::lock_waits::LockWait;
use crate::model::{Name, Node, Object, Process, Sample, Settings, Start, Thread, Wait};
use crate::second_mappings::SecondMapping;
use crate::section::{frame, Kind, HEADER_BYTES, MAGIC, VERSION};
use crate::symbols::Symbols;
use crate::tap::Tap;
use crate::totals::{Counters, End};
use crate::wire::Put;
use std::io::{self, Write};
use uunwind_language::Language;

/// Number of gathered bytes at which they are written to the file.
const BATCH: usize = 256 * 1024;

/// The writing end of a recording. Sections are gathered in memory and written whole, so that a recording whose writer
/// was killed ends between sections or inside the last one.
///
/// After a failed write nothing more is written: the contents of the file stay readable, and the error is kept.
///
/// ```
/// use uunwind_core::frame::{native_word, FLAG_EXACT};
/// use uunwind_recording::{Node, Process, Recording, Sample, Settings, Thread, Writer};
///
/// let mut file = Vec::new();
/// let mut writer = Writer::begin(&mut file, &Settings { rate: 99, ..Settings::default() });
/// writer.process(&Process { pid: 7, ..Process::default() });
/// writer.thread(&Thread { process: 0, tid: 7, ..Thread::default() });
/// writer.node(Node { parent: 0, word: native_word(0x40_1136, FLAG_EXACT), position: 0 });
/// writer.sample(Sample { thread: 0, stack: 1, time: 5, weight: 1, stop: 1, kind: 0, flags: 0 });
/// writer.flush();
/// drop(writer);
///
/// let recording = Recording::parse(&file, "example.uu".as_ref()).expect("a recording");
/// assert_eq!((recording.settings.rate, recording.samples.len()), (99, 1));
/// // It has no end: its recorder was killed, or still runs.
/// assert!(recording.end.is_none() && !recording.warnings.is_empty());
/// ```
pub struct Writer<W: Write> {
    out: W,
    pending: Vec<u8>,
    nodes: Vec<u8>,
    node_count: u32,
    samples: Vec<u8>,
    sample_count: u32,
    copies: Vec<u8>,
    copy_count: u32,
    allocations: Vec<u8>,
    allocation_count: u32,
    lock_waits: Vec<u8>,
    lock_wait_count: u32,
    frees: Vec<u8>,
    free_count: u32,
    unmaps: Vec<u8>,
    unmap_count: u32,
    temporaries: Vec<u8>,
    temporary_count: u32,
    written: u64,
    failed: Option<io::Error>,
    tap: Option<Box<dyn Tap>>,
    threads: u32,
    labels: Vec<(String, String)>,
}

impl<W: Write> Writer<W> {
    /// Writes the file's header and the settings, at once.
    pub fn begin(out: W, settings: &Settings) -> Writer<W> {
        let mut bytes = Vec::with_capacity(4096);
        bytes.extend_from_slice(MAGIC);
        bytes.put_u32(VERSION);
        bytes.put_u32(0);
        debug_assert_eq!(bytes.len(), HEADER_BYTES);
        let mut payload = Vec::new();
        settings.encode(&mut payload);
        frame(Kind::Settings, &payload, &mut bytes);
        let mut writer = Writer { pending: bytes, ..Writer::resume(out) };
        writer.flush();
        writer
    }

    /// Goes on with a recording that is whole up to the place where `out` writes.
    pub fn resume(out: W) -> Writer<W> {
        Writer {
            out,
            pending: Vec::new(),
            nodes: Vec::new(),
            node_count: 0,
            samples: Vec::new(),
            sample_count: 0,
            copies: Vec::new(),
            copy_count: 0,
            allocations: Vec::new(),
            allocation_count: 0,
            lock_waits: Vec::new(),
            lock_wait_count: 0,
            frees: Vec::new(),
            free_count: 0,
            unmaps: Vec::new(),
            unmap_count: 0,
            temporaries: Vec::new(),
            temporary_count: 0,
            written: 0,
            failed: None,
            tap: None,
            threads: 0,
            labels: Vec::new(),
        }
    }

    /// Gives this tap everything that is written from now on.
    pub fn tap(&mut self, tap: Box<dyn Tap>) {
        self.tap = Some(tap);
    }

    /// Gives all samples these labels, where their thread has no label of the same key. Before the first thread.
    pub fn label_all(&mut self, labels: Vec<(String, String)>) {
        self.labels = labels;
    }

    fn tapped(&mut self, give: impl FnOnce(&mut dyn Tap)) {
        if let Some(tap) = &mut self.tap {
            give(tap.as_mut());
        }
    }

    /// Number of bytes that it has written to the file.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The error that stopped writing, if there was one.
    pub fn failure(&self) -> Option<&io::Error> {
        self.failed.as_ref()
    }

    fn section(&mut self, kind: Kind, fill: impl FnOnce(&mut Vec<u8>)) {
        if self.failed.is_some() {
            return;
        }
        let mut payload = Vec::new();
        fill(&mut payload);
        frame(kind, &payload, &mut self.pending);
    }

    /// A process; its index is the number of processes before it.
    pub fn process(&mut self, process: &Process) {
        self.tapped(|tap| tap.process(process));
        self.section(Kind::Process, |out| process.encode(out));
    }

    /// The plugins of a process already written.
    pub fn plugins(&mut self, process: u32, plugins: &[String]) {
        self.tapped(|tap| tap.plugins(process, plugins));
        self.section(Kind::Plugins, |out| {
            out.put_u32(process);
            Process::encode_plugins(plugins, out);
        });
    }

    /// The command line of a process already written.
    pub fn command(&mut self, process: u32, words: &[Vec<u8>]) {
        self.section(Kind::Command, |out| {
            out.put_u32(process);
            out.put_u32(words.len() as u32);
            words.iter().for_each(|word| out.put_bytes(word));
        });
    }

    /// A thread, of a process already written; its index is the number of threads before it.
    pub fn thread(&mut self, thread: &Thread) {
        self.tapped(|tap| tap.thread(thread));
        self.section(Kind::Thread, |out| {
            out.put_u32(thread.process);
            out.put_u32(thread.tid);
        });
        if !self.labels.is_empty() {
            self.labels(self.threads, 0, &[]);
        }
        self.threads += 1;
    }

    /// The name of a thread already written.
    pub fn thread_name(&mut self, thread: u32, name: &str) {
        self.tapped(|tap| tap.thread_name(thread, name));
        self.section(Kind::ThreadName, |out| {
            out.put_u32(thread);
            out.put_bytes(name.as_bytes());
        });
    }

    /// An object of a process already written.
    pub fn object(&mut self, object: &Object) {
        self.tapped(|tap| tap.object(object));
        self.section(Kind::Object, |out| object.encode(out));
    }

    /// A name of a process already written.
    pub fn name(&mut self, name: &Name) {
        self.tapped(|tap| tap.name(name));
        self.section(Kind::Name, |out| name.encode(out));
    }

    /// A node; its number is one more than the number of nodes before it.
    pub fn node(&mut self, node: Node) {
        self.tapped(|tap| tap.node(node));
        node.encode(&mut self.nodes);
        self.node_count += 1;
    }

    /// A sample of a thread and a node already written.
    pub fn sample(&mut self, sample: Sample) {
        self.tapped(|tap| tap.sample(sample));
        sample.encode(&mut self.samples);
        self.sample_count += 1;
        self.flush_if_full();
    }

    /// The sample of an allocation, of one of both kinds: its number in its process, 0 if its free will not be written,
    /// and its size.
    pub fn allocation(&mut self, sample: Sample, id: u64, size: u64) {
        self.allocations.put_u64(id);
        self.allocations.put_u64(size);
        self.allocation_count += 1;
        self.sample(sample);
    }

    /// The sample of a wait for a lock.
    pub fn lock_wait(&mut self, sample: Sample, wait: &LockWait) {
        wait.encode(&mut self.lock_waits);
        self.lock_wait_count += 1;
        self.sample(Sample { kind: Sample::LOCKED, ..sample });
    }

    /// A sampled allocation, which may be written later, is freed.
    pub fn free(&mut self, free: Free) {
        free.encode(&mut self.frees);
        self.free_count += 1;
        self.flush_if_full();
    }

    /// Bytes of a sampled mapping, which may be written later, are unmapped.
    pub fn unmap(&mut self, unmap: Unmap) {
        unmap.encode(&mut self.unmaps);
        self.unmap_count += 1;
        self.flush_if_full();
    }

    /// The thread that has made the allocation with this number of a process frees it, and has made no other one since.
    pub fn temporary(&mut self, process: u32, id: u64) {
        self.temporaries.put_u32(process);
        self.temporaries.put_u64(id);
        self.temporary_count += 1;
        self.flush_if_full();
    }

    /// A sample of a thread already written, with a copy of its stack, to be walked later. `beside`: it is no sample of
    /// its own, but the copy of one that was walked.
    pub fn copy(&mut self, sample: Sample, beside: bool, bytes: &[u8]) {
        StackCopy::encode(sample, beside, bytes, &mut self.copies);
        self.copy_count += 1;
        self.flush_if_full();
    }

    fn flush_if_full(&mut self) {
        let events = self.frees.len() + self.unmaps.len() + self.temporaries.len();
        if self.samples.len() + self.nodes.len() + self.copies.len() + events + self.pending.len() > BATCH {
            self.flush();
        }
    }

    /// Samples lost by a thread already written.
    pub fn lost(&mut self, thread: u32, samples: u64, weight: u64) {
        self.tapped(|tap| tap.lost(thread, samples, weight));
        self.section(Kind::Lost, |out| {
            out.put_u32(thread);
            out.put_u64(samples);
            out.put_u64(weight);
        });
    }

    /// What a thread already written had used before its timer was armed.
    pub fn start(&mut self, start: Start) {
        self.section(Kind::Start, |out| {
            out.put_u32(start.thread);
            out.put_u64(start.time);
            out.put_u32(start.weight);
        });
    }

    /// The labels that a thread already written has from this time on (ns of CLOCK_MONOTONIC).
    pub fn labels(&mut self, thread: u32, time: u64, labels: &[(String, String)]) {
        let is_own = |(key, _): &&(String, String)| labels.iter().all(|(own, _)| own != key);
        let labels: Vec<(String, String)> = self.labels.iter().filter(is_own).chain(labels).cloned().collect();
        self.tapped(|tap| tap.labels(thread, &labels));
        self.section(Kind::Labels, |out| {
            out.put_u32(thread);
            out.put_u64(time);
            out.put_u32(labels.len() as u32);
            for (key, value) in &labels {
                out.put_bytes(key.as_bytes());
                out.put_bytes(value.as_bytes());
            }
        });
    }

    /// Single waits of threads already written.
    pub fn waits(&mut self, waits: &[Wait]) {
        self.section(Kind::Waits, |out| {
            out.put_u32(waits.len() as u32);
            for wait in waits {
                out.put_u32(wait.thread);
                out.put_u64(wait.begin);
                out.put_u64(wait.duration);
            }
        });
    }

    /// Second mappings of processes already written, if there are any.
    pub fn second_mappings(&mut self, mappings: &[SecondMapping]) {
        if mappings.is_empty() {
            return;
        }
        self.section(Kind::SecondMappings, |out| {
            out.put_u32(mappings.len() as u32);
            mappings.iter().for_each(|mapping| mapping.encode(out));
        });
    }

    /// Complete maps of processes already written, if there are any.
    pub fn complete_maps(&mut self, maps: &[CompleteMap]) {
        if maps.is_empty() {
            return;
        }
        self.section(Kind::CompleteMaps, |out| {
            out.put_u32(maps.len() as u32);
            maps.iter().for_each(|map| map.encode(out));
        });
    }

    /// The counters of a process already written.
    pub fn counters(&mut self, process: u32, counters: &Counters) {
        self.section(Kind::Counters, |out| {
            out.put_u32(process);
            counters.encode(out);
        });
    }

    /// Writes a note for people: one line.
    pub fn note(&mut self, text: &str) {
        self.section(Kind::Note, |out| out.put_bytes(text.as_bytes()));
    }

    /// Writes the end of the recording, with its totals. A recording without it was cut.
    pub fn end(&mut self, end: &End) {
        if let Some(mut tap) = self.tap.take() {
            tap.end(end);
        }
        self.gather();
        self.section(Kind::End, |out| end.encode(out));
    }

    /// Writes the symbols of all addresses.
    pub fn symbols(&mut self, symbols: &Symbols) {
        self.gather();
        self.section(Kind::Symbols, |out| symbols.encode(out));
    }

    /// Names of code made at run time; nothing if there are none.
    pub fn jit(&mut self, names: &JitNames) {
        if *names != JitNames::default() {
            self.gather();
            self.section(Kind::Jit, |out| names.encode(out));
        }
    }

    /// What reports must know of a plugin's language.
    pub fn language(&mut self, language: &Language) {
        self.section(Kind::Language, |out| encode_language(language, out));
    }

    /// Lines of positions in code objects already written; nothing if there are none.
    pub fn lines(&mut self, lines: &[CodeLine]) {
        if !lines.is_empty() {
            self.gather();
            self.section(Kind::Lines, |out| encode_lines(lines, out));
        }
    }

    /// Moves nodes and samples into sections: nodes first, since samples refer to them, and samples before what they
    /// are of.
    fn gather(&mut self) {
        for (kind, count, bytes) in [
            (Kind::Nodes, &mut self.node_count, &mut self.nodes),
            (Kind::Samples, &mut self.sample_count, &mut self.samples),
            (Kind::Allocations, &mut self.allocation_count, &mut self.allocations),
            (Kind::LockWaits, &mut self.lock_wait_count, &mut self.lock_waits),
            (Kind::Frees, &mut self.free_count, &mut self.frees),
            (Kind::Unmaps, &mut self.unmap_count, &mut self.unmaps),
            (Kind::Temporaries, &mut self.temporary_count, &mut self.temporaries),
            (Kind::Copies, &mut self.copy_count, &mut self.copies),
        ] {
            if *count > 0 {
                let mut payload = Vec::with_capacity(bytes.len() + 4);
                payload.put_u32(*count);
                payload.append(bytes);
                *count = 0;
                frame(kind, &payload, &mut self.pending);
            }
        }
    }

    /// Writes everything gathered so far to the file.
    pub fn flush(&mut self) {
        self.gather();
        let bytes = std::mem::take(&mut self.pending);
        if self.failed.is_some() || bytes.is_empty() {
            return;
        }
        match self.out.write_all(&bytes).and_then(|()| self.out.flush()) {
            Ok(()) => self.written += bytes.len() as u64,
            Err(e) => self.failed = Some(e),
        }
    }
}
