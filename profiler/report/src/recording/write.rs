//! Appends sections to a recording while it is made.

use super::jit::JitNames;
use super::model::{Name, Node, Object, Process, Sample, Settings, Thread};
use super::section::{frame, Kind, HEADER_BYTES, MAGIC, VERSION};
use super::symbols::Symbols;
use super::totals::{Counters, End};
use super::wire::Put;
use std::io::{self, Write};

/// Bytes gathered before they are written out by themselves.
const BATCH: usize = 256 * 1024;

/// The writing end of a recording. Sections are gathered in memory and written whole, so that a recording whose writer
/// was killed ends between sections or inside the last one.
///
/// After a failed write nothing more is written: what stands in the file stays readable, and the error is kept.
pub struct Writer<W: Write> {
    out: W,
    pending: Vec<u8>,
    nodes: Vec<u8>,
    node_count: u32,
    samples: Vec<u8>,
    sample_count: u32,
    written: u64,
    failed: Option<io::Error>,
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
        let mut writer = Writer {
            out,
            pending: bytes,
            nodes: Vec::new(),
            node_count: 0,
            samples: Vec::new(),
            sample_count: 0,
            written: 0,
            failed: None,
        };
        writer.flush();
        writer
    }

    /// Bytes that stand in the file.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The error that ended writing, if one did.
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
        self.section(Kind::Process, |out| process.encode(out));
    }

    /// The plugins of a process already written.
    pub fn plugins(&mut self, process: u32, plugins: &[String]) {
        self.section(Kind::Plugins, |out| {
            out.put_u32(process);
            Process::encode_plugins(plugins, out);
        });
    }

    /// A thread, of a process already written; its index is the number of threads before it.
    pub fn thread(&mut self, thread: &Thread) {
        self.section(Kind::Thread, |out| {
            out.put_u32(thread.process);
            out.put_u32(thread.tid);
        });
    }

    /// The name of a thread already written.
    pub fn thread_name(&mut self, thread: u32, name: &str) {
        self.section(Kind::ThreadName, |out| {
            out.put_u32(thread);
            out.put_bytes(name.as_bytes());
        });
    }

    /// An object of a process already written.
    pub fn object(&mut self, object: &Object) {
        self.section(Kind::Object, |out| object.encode(out));
    }

    /// A name of a process already written.
    pub fn name(&mut self, name: &Name) {
        self.section(Kind::Name, |out| name.encode(out));
    }

    /// A node; its number is one more than the number of nodes before it.
    pub fn node(&mut self, node: Node) {
        node.encode(&mut self.nodes);
        self.node_count += 1;
    }

    /// A sample of a thread and a node already written.
    pub fn sample(&mut self, sample: Sample) {
        sample.encode(&mut self.samples);
        self.sample_count += 1;
        if self.samples.len() + self.nodes.len() + self.pending.len() > BATCH {
            self.flush();
        }
    }

    /// Samples lost by a thread already written.
    pub fn lost(&mut self, thread: u32, samples: u64, weight: u64) {
        self.section(Kind::Lost, |out| {
            out.put_u32(thread);
            out.put_u64(samples);
            out.put_u64(weight);
        });
    }

    /// The counters of a process already written.
    pub fn counters(&mut self, process: u32, counters: &Counters) {
        self.section(Kind::Counters, |out| {
            out.put_u32(process);
            counters.encode(out);
        });
    }

    /// A note for people.
    pub fn note(&mut self, text: &str) {
        self.section(Kind::Note, |out| out.put_bytes(text.as_bytes()));
    }

    /// The end of the recording.
    pub fn end(&mut self, end: &End) {
        self.gather();
        self.section(Kind::End, |out| end.encode(out));
    }

    /// The symbols.
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

    /// Moves nodes and samples into sections: nodes first, since samples refer to them.
    fn gather(&mut self) {
        for (kind, count, bytes) in [
            (Kind::Nodes, &mut self.node_count, &mut self.nodes),
            (Kind::Samples, &mut self.sample_count, &mut self.samples),
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
