//! Profiles of OpenTelemetry: a `ProfilesData` message
//! ([opentelemetry-proto 1.11.0](https://github.com/open-telemetry/opentelemetry-proto/blob/v1.11.0/opentelemetry/proto/profiles/v1development/profiles.proto),
//! package `v1development`, which may still change). One profile of CPU time for each process; each sample has the
//! times at which its stack was met. Of allocations four profiles, as a profile has one value.

use super::proto::Message;
use super::threads;
use crate::stacks::{Entry, Kind, Line, Profile, Stack};
use crate::values;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use uunwind_recording::Recording;
use uunwind_symbolize::hex;

/// A table of the dictionary: each entry once. Entry 0 is the empty one, which stands for "none".
struct Table<K> {
    field: u64,
    known: HashMap<K, u64>,
    out: Message,
}

impl<K: Eq + Hash> Table<K> {
    fn new(field: u64) -> Table<K> {
        let mut out = Message::default();
        out.message(field, Message::default());
        Table { field, known: HashMap::new(), out }
    }

    /// The index of an entry, if it is there already.
    fn find(&self, key: &K) -> Option<u64> {
        self.known.get(key).copied()
    }

    fn add(&mut self, key: K, entry: Message) -> u64 {
        let index = self.known.len() as u64 + 1;
        self.out.message(self.field, entry);
        self.known.insert(key, index);
        index
    }
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Value {
    Text(String),
    Number(u64),
}

impl Value {
    /// As an `AnyValue`.
    fn message(&self) -> Message {
        let mut out = Message::default();
        match self {
            Value::Text(text) => out.bytes(1, text.as_bytes()),
            Value::Number(number) => out.number(3, *number),
        }
        out
    }
}

/// The dictionary that all profiles of a file share.
struct Dictionary<'a> {
    recording: &'a Recording,
    profile: &'a Profile,
    mappings: Table<u32>,
    locations: Table<Vec<u32>>,
    functions: Table<(String, String, u32)>,
    texts: Table<String>,
    attributes: Table<(String, Value)>,
    stacks: Table<Box<[u32]>>,
}

/// Encodes a profile, uncompressed. `known`: what is known of all its processes, by the names of the semantic
/// conventions. The fields of an `ExportProfilesServiceRequest` are the same, by the same numbers.
pub fn render(recording: &Recording, profile: &Profile, known: &[(String, String)]) -> Vec<u8> {
    let mut dictionary = Dictionary {
        recording,
        profile,
        mappings: Table::new(1),
        locations: Table::new(2),
        functions: Table::new(3),
        texts: Table::new(5),
        attributes: Table::new(6),
        stacks: Table::new(7),
    };
    let mut processes: BTreeMap<u32, Vec<threads::Thread<'_>>> = BTreeMap::new();
    for (_, thread) in threads::sampled(recording, profile) {
        processes.entry(thread.process).or_default().push(thread);
    }
    let memory = recording.is_alloc().then(|| values::of(recording, profile));
    let mut out = Message::default();
    for (process, threads) in processes {
        let mut of_scope = Message::default();
        let mut scope = Message::default();
        scope.bytes(1, b"uu");
        scope.bytes(2, recording.settings.uu_version.as_bytes());
        of_scope.message(1, scope);
        match &memory {
            Some(values) => {
                for value in 0..values::COMMON {
                    of_scope.message(2, dictionary.memory(process, values, value));
                }
            }
            None => of_scope.message(2, dictionary.profile(&threads)),
        }
        let mut of_process = Message::default();
        of_process.message(1, resource(recording, process, known));
        of_process.message(2, of_scope);
        out.message(1, of_process);
    }
    out.message(2, dictionary.finish());
    out.into_bytes()
}

/// What is known of a process, by the names of OpenTelemetry's
/// [semantic conventions](https://opentelemetry.io/docs/specs/semconv/resource/process/).
fn resource(recording: &Recording, index: u32, known: &[(String, String)]) -> Message {
    let mut out = Message::default();
    let mut attribute = |key: &str, value: Value, is_known: bool| {
        // Keys are unique.
        if !is_known && known.iter().any(|(other, _)| other == key) {
            return;
        }
        let mut pair = Message::default();
        pair.bytes(1, key.as_bytes());
        pair.message(2, value.message());
        out.message(1, pair);
    };
    for (key, value) in known {
        attribute(key, Value::Text(value.clone()), true);
    }
    let mut attribute = |key: &str, value: Value| attribute(key, value, false);
    attribute("host.name", Value::Text(recording.settings.host.clone()));
    if let Some(process) = recording.processes.get(index as usize) {
        let command: Vec<_> = process.command.iter().map(|word| String::from_utf8_lossy(word)).collect();
        attribute("process.pid", Value::Number(process.pid.into()));
        attribute("process.parent_pid", Value::Number(process.parent.into()));
        attribute("process.executable.path", Value::Text(String::from_utf8_lossy(&process.exe).into_owned()));
        attribute("process.command_line", Value::Text(command.join(" ")));
    }
    out
}

impl Dictionary<'_> {
    /// The profile of one process.
    fn profile(&mut self, threads: &[threads::Thread<'_>]) -> Message {
        let settings = &self.recording.settings;
        let least = self.recording.value().unit.least(settings.rate);
        let value = self.recording.value();
        let kind = (value.name, value.unit.name());
        let mut out = Message::default();
        out.message(1, self.value_type(kind));
        for thread in threads {
            let mut stacks: BTreeMap<(&[u32], u32), Vec<&Entry>> = BTreeMap::new();
            for (entry, Stack { lines, labels, .. }) in &thread.entries {
                stacks.entry((lines, *labels)).or_default().push(entry);
            }
            for ((lines, labels), entries) in stacks {
                let mut sample = self.sample(lines, (thread.tid, thread.name), labels);
                sample.packed(4, entries.iter().map(|entry| entry.weight.saturating_mul(least)));
                // Threads' times are since the beginning.
                sample.packed_fixed(5, entries.iter().map(|entry| settings.start_unix.saturating_add(entry.time)));
                out.message(2, sample);
            }
        }
        self.time_and_period(&mut out, least);
        out
    }

    /// One value of the allocations of one process.
    fn memory(&mut self, process: u32, values: &[Box<[u64]>], value: usize) -> Message {
        let kind = values::kinds(self.recording).get(value).copied().unwrap_or_default();
        let mut out = Message::default();
        out.message(1, self.value_type(kind));
        let (recording, profile) = (self.recording, self.profile);
        for (stack, values) in profile.stacks.iter().zip(values) {
            let thread = recording.threads.get(stack.thread as usize).filter(|thread| thread.process == process);
            let amount = values.get(value).copied().filter(|amount| *amount > 0);
            let (Some(thread), Some(amount)) = (thread, amount) else { continue };
            let mut sample = self.sample(&stack.lines, (thread.tid, &thread.name), stack.labels);
            sample.packed(4, [amount]);
            out.message(2, sample);
        }
        self.time_and_period(&mut out, recording.settings.rate.into());
        out
    }

    /// A sample without values: its stack, its thread and its labels.
    fn sample(&mut self, lines: &[u32], (tid, name): (u32, &str), labels: u32) -> Message {
        let mut sample = Message::default();
        sample.number(1, self.stack(lines));
        let id = self.attribute("thread.id", Value::Number(tid.into()));
        let name = self.attribute("thread.name", Value::Text(name.to_owned()));
        // Keys are unique.
        let own = ["thread.id", "thread.name"];
        let labels = self.recording.labels.of(labels).iter().filter(|(key, _)| !own.contains(&&**key));
        let labels: Vec<u64> = labels.map(|(key, value)| self.attribute(key, Value::Text(value.clone()))).collect();
        sample.packed(2, [id, name].into_iter().chain(labels));
        sample
    }

    fn time_and_period(&mut self, out: &mut Message, period: u64) {
        let settings = &self.recording.settings;
        out.fixed(3, settings.start_unix);
        let end = self.recording.end.as_ref().map_or(0, |end| end.time);
        out.number(4, end.saturating_sub(settings.start_monotonic));
        let value = self.recording.value();
        out.message(5, self.value_type((value.name, value.unit.name())));
        out.number(6, period);
    }

    fn value_type(&mut self, (name, unit): values::Kind) -> Message {
        let mut out = Message::default();
        out.number(1, self.text(name));
        out.number(2, self.text(unit));
        out
    }

    fn text(&mut self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        let key = text.to_owned();
        self.texts.find(&key).unwrap_or_else(|| {
            let index = self.texts.known.len() as u64 + 1;
            self.texts.out.bytes(self.texts.field, text.as_bytes());
            self.texts.known.insert(key, index);
            index
        })
    }

    fn attribute(&mut self, name: &str, value: Value) -> u64 {
        let key = (name.to_owned(), value);
        self.attributes.find(&key).unwrap_or_else(|| {
            let mut out = Message::default();
            out.number(1, self.text(name));
            out.message(2, key.1.message());
            self.attributes.add(key, out)
        })
    }

    /// A stack, leaf first. Inlined frames and the frame that contains them form one location.
    fn stack(&mut self, lines: &[u32]) -> u64 {
        let key: Box<[u32]> = lines.into();
        if let Some(index) = self.stacks.find(&key) {
            return index;
        }
        let (mut locations, mut group) = (Vec::new(), Vec::new());
        for line in lines {
            group.push(*line);
            let kind = self.profile.lines.get(*line as usize).map(|line| line.kind);
            if kind.is_some_and(|kind| kind != Kind::Inlined) {
                locations.push(self.location(std::mem::take(&mut group)));
            }
        }
        if !group.is_empty() {
            locations.push(self.location(group));
        }
        let mut out = Message::default();
        out.packed(1, locations);
        self.stacks.add(key, out)
    }

    fn location(&mut self, group: Vec<u32>) -> u64 {
        if let Some(index) = self.locations.find(&group) {
            return index;
        }
        let profile = self.profile;
        let lines: Vec<&Line> = group.iter().filter_map(|line| profile.lines.get(*line as usize)).collect();
        let mut out = Message::default();
        if let Some(last) = lines.last() {
            out.number(1, last.object.map_or(0, |object| self.mapping(object)));
            out.number(2, last.address);
        }
        for line in &lines {
            let mut message = Message::default();
            message.number(1, self.function(line));
            message.number(2, line.line.into());
            message.number(3, line.columns().map_or(0, |place| u64::from(place.column) + 1));
            out.message(3, message);
        }
        let kind = lines.last().and_then(|line| match line.kind {
            Kind::Native | Kind::Inlined => Some("native".to_owned()),
            Kind::Semantic | Kind::Awaiting => Some(line.plugin.clone()),
            Kind::Kernel => Some("kernel".to_owned()),
            Kind::Jit | Kind::Marker | Kind::Waiting => None,
        });
        if let Some(kind) = kind {
            out.packed(4, [self.attribute("profile.frame.type", Value::Text(kind))]);
        }
        self.locations.add(group, out)
    }

    fn function(&mut self, line: &Line) -> u64 {
        let key = (line.function.clone(), line.file.clone(), line.first_line);
        self.functions.find(&key).unwrap_or_else(|| {
            let mut out = Message::default();
            out.number(1, self.text(&line.function));
            out.number(3, self.text(&line.file));
            out.number(4, line.first_line.into());
            self.functions.add(key, out)
        })
    }

    /// A mapping in file addresses: processes map a file at different addresses, and all addresses here are the file's.
    fn mapping(&mut self, object: u32) -> u64 {
        if let Some(index) = self.mappings.find(&object) {
            return index;
        }
        let mut out = Message::default();
        if let Some(o) = self.recording.objects.get(object as usize) {
            out.number(1, o.start.wrapping_sub(o.bias));
            out.number(2, o.end.wrapping_sub(o.bias));
            out.number(4, self.text(&String::from_utf8_lossy(&o.path)));
            if !o.build_id.is_empty() {
                let id = self.attribute("process.executable.build_id.gnu", Value::Text(hex(&o.build_id)));
                out.packed(5, [id]);
            }
        }
        self.mappings.add(object, out)
    }

    fn finish(self) -> Message {
        let mut out = self.mappings.out;
        out.append(self.locations.out);
        out.append(self.functions.out);
        // No sample has a link; the empty one must be there.
        out.message(4, Message::default());
        out.append(self.texts.out);
        out.append(self.attributes.out);
        out.append(self.stacks.out);
        out
    }
}
