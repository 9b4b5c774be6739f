//! `uu record --stream`: what is recorded, as lines of JSON while the program runs. docs/stream.md describes them.
//!
//! A sample's line refers to frames, threads and objects by number. Each of these has a line before the first sample
//! that needs it; that sample and the lines that it needs are written whole or not at all. So a reader understands
//! every line that it gets, whatever was lost to a slow one.

mod pipe;

use crate::formats::object;
use crate::resolve::is_complete;
pub use pipe::{Delivery, Pipe};
use serde_json::{json, Value};
use std::collections::{BTreeMap, HashMap, HashSet};
use uunwind_core::frame::{frames, Frame};
use uunwind_core::plugin::TABLE_NONE;
use uunwind_language::{Half, LineTable};
use uunwind_recording::{End, Name, Node, Object, Process, Sample, Tap, Thread, KERNEL};
use uunwind_symbolize::hex;

/// Number of the format; it grows when a field changes its meaning or goes away.
const VERSION: u32 = 1;

/// What distinguishes frames: process, object (none: 0, else its number + 1), the node's words.
type Key = (u32, u32, u64, u64);

/// Turns what is recorded into lines.
pub struct Stream {
    pipe: Pipe,
    halves: Vec<(String, String, &'static dyn Half)>,
    begun: bool,
    processes: Vec<(u32, Vec<String>)>,
    threads: Vec<Thread>,
    /// The labels of threads that have any.
    labels: HashMap<u32, Value>,
    objects: Vec<Object>,
    of_process: HashMap<u32, Vec<u32>>,
    names: HashMap<(u32, u32), Name>,
    nodes: Vec<Node>,
    frames: HashMap<Key, u32>,
    /// Threads and objects that have a line.
    threads_sent: HashSet<u32>,
    objects_sent: HashSet<u32>,
    samples: u64,
    /// Samples that found no room since the last line that did, and all.
    dropped: u64,
    all_dropped: u64,
    /// Samples that programs could not hand over, and their weight, by thread: those that have no line yet.
    lost: BTreeMap<u32, (u64, u64)>,
}

/// The lines for one sample, and what they are the first ones of.
#[derive(Default)]
struct Unit {
    text: String,
    frames: Vec<Key>,
    threads: Vec<u32>,
    objects: Vec<u32>,
}

impl Unit {
    fn line(&mut self, value: &Value) {
        self.text.push_str(&value.to_string());
        self.text.push('\n');
    }
}

impl Stream {
    /// Writes to this pipe. `halves`: languages whose line tables are decoded.
    pub fn new(pipe: Pipe, halves: &[&'static dyn Half]) -> Stream {
        let halves = halves.iter().map(|half| (half.language().plugin, half.language().label, *half));
        Stream {
            pipe,
            halves: halves.collect(),
            begun: false,
            processes: Vec::new(),
            threads: Vec::new(),
            labels: HashMap::new(),
            objects: Vec::new(),
            of_process: HashMap::new(),
            names: HashMap::new(),
            nodes: Vec::new(),
            frames: HashMap::new(),
            threads_sent: HashSet::new(),
            objects_sent: HashSet::new(),
            samples: 0,
            dropped: 0,
            all_dropped: 0,
            lost: BTreeMap::new(),
        }
    }

    /// Begins with the lines that are due: the first one of all, and what found no room before.
    fn begin_unit(&self) -> Unit {
        let mut unit = Unit::default();
        if !self.begun {
            unit.line(&json!({"type": "begin", "format": "uu stream", "version": VERSION}));
        }
        if self.dropped > 0 {
            unit.line(&json!({"type": "dropped", "samples": self.dropped}));
        }
        for (thread, (samples, weight)) in &self.lost {
            unit.line(&json!({"type": "lost", "thread": thread, "samples": samples, "weight": weight}));
        }
        unit
    }

    fn unit(&mut self, sample: &Sample) -> Unit {
        let mut unit = self.begin_unit();
        let process = self.threads.get(sample.thread as usize).map_or(0, |thread| thread.process);
        if self.threads_sent.insert(sample.thread) {
            unit.threads.push(sample.thread);
            let pid = self.processes.get(process as usize).map_or(0, |process| process.0);
            let thread = self.threads.get(sample.thread as usize);
            let (tid, name) = thread.map_or((0, ""), |thread| (thread.tid, &thread.name));
            unit.line(&json!({"type": "thread", "id": sample.thread, "process": process, "pid": pid, "tid": tid, "name": name}));
        }
        let (mut stack, mut at) = (Vec::new(), sample.stack);
        // A node's parent has a smaller number.
        while let Some(node) = (at as usize).checked_sub(1).and_then(|at| self.nodes.get(at)).copied() {
            stack.push(self.frame(&mut unit, process, node, sample.time));
            at = node.parent;
        }
        let kind = ["timer", "explicit", "fatal", "waiting", "allocation", "lock", "mapping"]
            .get(usize::from(sample.kind))
            .copied();
        unit.line(&json!({
            "type": "sample", "thread": sample.thread, "time": sample.time, "weight": sample.weight, "kind": kind,
            "stop": sample.reason().map(|reason| reason.text()), "complete": is_complete(sample),
            "flags": sample.flags, "frames": stack, "labels": self.labels.get(&sample.thread),
        }));
        unit
    }

    /// The number of a frame, whose line is added if it has none yet.
    fn frame(&mut self, unit: &mut Unit, process: u32, node: Node, time: u64) -> u32 {
        let frame = frames(&[node.word, node.position]).next();
        let address = match frame {
            Some(Frame::Native { address, exact, .. } | Frame::Window { address, exact, .. }) => {
                Some(if exact { address } else { address.wrapping_sub(1) })
            }
            _ => None,
        };
        let is_native = matches!(frame, Some(Frame::Native { .. }));
        let object = address.filter(|_| is_native).and_then(|address| self.covering(process, address, time));
        let key = (process, object.map_or(0, |object| object + 1), node.word, node.position);
        let next = self.frames.len() as u32;
        if let Some(known) = self.frames.get(&key) {
            return *known;
        }
        self.frames.insert(key, next);
        unit.frames.push(key);
        let found = object.and_then(|index| self.objects.get(index as usize));
        if let (Some(index), Some(object)) = (object, found) {
            if self.objects_sent.insert(index) {
                unit.objects.push(index);
                unit.line(&json!({
                    "type": "object", "id": index, "path": String::from_utf8_lossy(&object.path),
                    "build_id": hex(&object.build_id),
                }));
            }
        }
        let line = match frame {
            Some(Frame::Native { address, exact, by_frame_pointer, interpreter, by_code }) => json!({
                "type": "frame", "id": next, "kind": "native", "address": format!("{address:#x}"), "exact": exact,
                "by_frame_pointer": by_frame_pointer, "by_code": by_code, "interpreter": interpreter, "object": object,
                "offset": found.map(|object| format!("{:#x}", address.wrapping_sub(object.bias))),
            }),
            Some(Frame::Window { address, exact, by_code, name, .. }) => {
                let name = self.names.get(&(process, name));
                json!({
                    "type": "frame", "id": next, "kind": "window", "address": format!("{address:#x}"), "exact": exact,
                    "by_code": by_code,
                    "function": name.map(|name| &name.name), "file": name.map(|name| &name.file),
                    "first_line": name.map(|name| name.first_line),
                })
            }
            Some(Frame::Semantic { plugin: KERNEL, name, .. }) => {
                let name = self.names.get(&(process, name));
                json!({"type": "frame", "id": next, "kind": "kernel", "function": name.map(|name| &name.name)})
            }
            Some(Frame::Semantic { plugin, name, position, awaiting }) => {
                let plugin =
                    self.processes.get(process as usize).and_then(|(_, plugins)| plugins.get(usize::from(plugin)));
                let plugin = plugin.map_or("", String::as_str);
                let half = self.halves.iter().find(|(name, ..)| name == plugin);
                let name = self.names.get(&(process, name));
                let line = name.and_then(|name| line(name, half.map(|(.., half)| *half), position));
                json!({
                    "type": "frame", "id": next, "kind": "interpreted",
                    "language": half.map_or(plugin, |(_, label, _)| label.as_str()),
                    "function": name.map(|name| &name.name), "file": name.map(|name| &name.file), "line": line,
                    "first_line": name.map(|name| name.first_line), "awaiting": awaiting,
                })
            }
            Some(Frame::Omitted { frames }) => {
                json!({"type": "frame", "id": next, "kind": "omitted", "frames": frames})
            }
            None => json!({"type": "frame", "id": next, "kind": "unknown"}),
        };
        unit.line(&line);
        next
    }

    /// The object that covers the address: docs/recording-format.md, "Addresses to objects".
    fn covering(&self, process: u32, address: u64, time: u64) -> Option<u32> {
        let list = self.of_process.get(&process)?;
        let covering = || {
            let each = list.iter().filter_map(|index| Some((*index, self.objects.get(*index as usize)?)));
            each.filter(|(_, object)| (object.start..object.end).contains(&address))
        };
        let latest =
            covering().filter(|(_, object)| object.time <= time).max_by_key(|(index, object)| (object.time, *index));
        latest.or_else(|| covering().next()).map(|(index, _)| index)
    }

    fn send(&mut self, unit: Unit) -> bool {
        if self.pipe.push(unit.text) {
            (self.begun, self.dropped) = (true, 0);
            self.lost.clear();
            return true;
        }
        // Their lines have not been written: the next sample that needs them has them. Numbers of frames are given
        // again, in the same order.
        for key in &unit.frames {
            self.frames.remove(key);
        }
        for thread in &unit.threads {
            self.threads_sent.remove(thread);
        }
        for object in &unit.objects {
            self.objects_sent.remove(object);
        }
        false
    }
}

/// The line of a position in a code object.
fn line(name: &Name, half: Option<&dyn Half>, position: u64) -> Option<u32> {
    if name.table_kind == TABLE_NONE {
        return u32::try_from(position).ok();
    }
    let table = LineTable { kind: name.table_kind, first_line: name.first_line, bytes: &name.table };
    half.and_then(|half| half.line(&table, position)).filter(|line| *line != 0)
}

impl Tap for Stream {
    fn process(&mut self, process: &Process) {
        self.processes.push((process.pid, process.plugins.clone()));
    }

    fn plugins(&mut self, process: u32, plugins: &[String]) {
        if let Some(process) = self.processes.get_mut(process as usize) {
            process.1 = plugins.to_vec();
        }
    }

    fn thread(&mut self, thread: &Thread) {
        self.threads.push(thread.clone());
    }

    fn thread_name(&mut self, thread: u32, name: &str) {
        if let Some(of) = self.threads.get_mut(thread as usize).filter(|of| of.name != name) {
            name.clone_into(&mut of.name);
            // Its line is written again.
            self.threads_sent.remove(&thread);
        }
    }

    fn labels(&mut self, thread: u32, labels: &[(String, String)]) {
        match labels {
            [] => drop(self.labels.remove(&thread)),
            some => drop(self.labels.insert(thread, object(some))),
        }
    }

    fn object(&mut self, object: &Object) {
        self.of_process.entry(object.process).or_default().push(self.objects.len() as u32);
        self.objects.push(object.clone());
    }

    fn name(&mut self, name: &Name) {
        self.names.insert((name.process, name.id), name.clone());
    }

    fn node(&mut self, node: Node) {
        self.nodes.push(node);
    }

    fn sample(&mut self, sample: Sample) {
        let unit = self.unit(&sample);
        if self.send(unit) {
            self.samples += 1;
        } else {
            (self.dropped, self.all_dropped) = (self.dropped + 1, self.all_dropped + 1);
        }
    }

    fn lost(&mut self, thread: u32, samples: u64, weight: u64) {
        let of = self.lost.entry(thread).or_default();
        *of = (of.0.saturating_add(samples), of.1.saturating_add(weight));
        let unit = self.begin_unit();
        self.send(unit);
    }

    fn end(&mut self, end: &End) {
        let mut unit = self.begin_unit();
        unit.line(&json!({
            "type": "end", "time": end.time, "samples": self.samples, "dropped": self.all_dropped,
            "recorded": end.samples, "cpu": end.cpu_used,
        }));
        self.pipe.close(&unit.text, self.samples, self.all_dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// What is lost while the reader takes nothing has its line afterwards, and the first line is the beginning.
    #[test]
    fn losses_that_find_no_room_are_said_later() {
        let folder = std::env::temp_dir().join(format!("uu-stream-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
        assert!(made.success());
        let pipe = Pipe::to(&path).expect("a pipe");
        let mut stream = Stream::new(pipe.clone(), &[]);
        // As much as waits for a reader, of whom there is none yet.
        let much = " ".repeat(1 << 20);
        while pipe.push(much.clone()) {}
        stream.lost(7, 3, 30);
        stream.lost(7, 1, 10);
        stream.lost(8, 1, 1);
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            std::fs::File::open(&path).and_then(|mut file| file.read_to_string(&mut text)).expect("lines");
            text
        });
        stream.end(&End::default());
        // The writer closes the file when nothing more can come.
        drop(stream);
        let text = reader.join().expect("read");
        std::fs::remove_dir_all(folder).expect("removed");
        let lines: Vec<Value> = text.trim().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let types: Vec<&str> = lines.iter().filter_map(|line| line["type"].as_str()).collect();
        assert_eq!(types, ["begin", "lost", "lost", "end"]);
        assert_eq!((&lines[1]["samples"], &lines[1]["weight"]), (&json!(4), &json!(40)));
    }
}
