//! pprof: the profile.proto of google/pprof, with mappings and build-ids, functions and lines, and labels for process
//! and thread, and those that the thread has set. Sample types: samples/count and cpu/nanoseconds, or wall/nanoseconds;
//! of allocations, those of Go's heap profiles: alloc_objects, alloc_space, inuse_objects, inuse_space. In use is what
//! was held at the end, or at the time that was asked for. After these, temporary_objects and temporary_space: of the
//! allocated ones, those that their thread freed before it made another one.

use super::proto::Message;
use crate::stacks::{Kind, Line, Profile};
use crate::values::{self, Part};
use flate2::{write::GzEncoder, Compression};
use std::collections::HashMap;
use std::io::Write;
use uunwind_recording::Recording;
use uunwind_symbolize::hex;

/// Field numbers of `Profile` in profile.proto (<https://github.com/google/pprof/blob/main/proto/profile.proto>).
mod field {
    pub const SAMPLE_TYPE: u64 = 1;
    pub const SAMPLE: u64 = 2;
    pub const MAPPING: u64 = 3;
    pub const LOCATION: u64 = 4;
    pub const FUNCTION: u64 = 5;
    pub const STRING: u64 = 6;
    pub const TIME_NANOS: u64 = 9;
    pub const DURATION_NANOS: u64 = 10;
    pub const PERIOD_TYPE: u64 = 11;
    pub const PERIOD: u64 = 12;
    pub const COMMENT: u64 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u64 = 14;
}

/// The string table: each text once; index 0 is the empty text.
struct Strings {
    index: HashMap<String, u64>,
    list: Vec<String>,
}

impl Strings {
    fn id(&mut self, text: &str) -> u64 {
        if let Some(id) = self.index.get(text) {
            return *id;
        }
        let id = self.list.len() as u64;
        self.list.push(text.to_owned());
        self.index.insert(text.to_owned(), id);
        id
    }
}

struct Builder<'a> {
    recording: &'a Recording,
    profile: &'a Profile,
    out: Message,
    strings: Strings,
    functions: HashMap<(String, String), u64>,
    /// Location id by lines (indices into [`Profile::lines`], innermost first).
    locations: HashMap<Vec<u32>, u64>,
    /// Mapping id by object.
    mappings: HashMap<u32, u64>,
}

/// Encodes a profile, uncompressed.
pub fn render(recording: &Recording, profile: &Profile) -> Vec<u8> {
    let strings = Strings { index: HashMap::from([(String::new(), 0)]), list: vec![String::new()] };
    let mut builder = Builder {
        recording,
        profile,
        out: Message::default(),
        strings,
        functions: HashMap::new(),
        locations: HashMap::new(),
        mappings: HashMap::new(),
    };
    builder.fill();
    builder.out.into_bytes()
}

/// Compresses with gzip.
pub fn gzip(plain: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain)?;
    encoder.finish()
}

impl Builder<'_> {
    fn fill(&mut self) {
        let settings = &self.recording.settings;
        let value = self.recording.value();
        let (name, unit) = (value.name, value.unit.name());
        let least = value.unit.least(settings.rate);
        let is_alloc = self.recording.is_alloc();
        let is_lock = self.recording.is_lock();
        let (part, kinds) = (self.profile.part, values::kinds(self.recording));
        for (kind, unit) in part.of(&kinds).iter().copied() {
            let value = self.value_type(kind, unit);
            self.out.message(field::SAMPLE_TYPE, value);
        }
        // Readers take the first mapping for the program's.
        if let Some(program) = program_object(self.recording, self.profile) {
            self.mapping(program);
        }
        let profile = self.profile;
        for (stack, values) in profile.stacks.iter().zip(values::of(self.recording, profile)) {
            let values = part.of(&values);
            if part != Part::Whole && values.iter().all(|value| *value == 0) {
                continue;
            }
            let locations = self.stack(&stack.lines);
            let mut sample = Message::default();
            sample.packed(1, locations);
            sample.packed(2, values.iter().copied());
            self.labels(stack.thread, &mut sample);
            self.own_labels(stack.labels, &mut sample);
            self.out.message(field::SAMPLE, sample);
        }
        let value = self.value_type(name, unit);
        self.out.message(field::PERIOD_TYPE, value);
        let period = if is_alloc || is_lock { settings.rate.into() } else { least };
        self.out.number(field::PERIOD, period);
        if is_alloc && part != Part::Allocated {
            // What readers show first.
            let shown = self.strings.id("inuse_space");
            self.out.number(field::DEFAULT_SAMPLE_TYPE, shown);
        }
        if is_lock {
            let shown = self.strings.id("delay");
            self.out.number(field::DEFAULT_SAMPLE_TYPE, shown);
        }
        self.out.number(field::TIME_NANOS, settings.start_unix);
        let end = self.recording.end.as_ref().map_or(0, |e| e.time);
        // What is in use is that of a moment.
        let duration = if part == Part::InUse { 0 } else { end.saturating_sub(settings.start_monotonic) };
        self.out.number(field::DURATION_NANOS, duration);
        let comment = self.strings.id(&format!("uu record: {}", super::command(self.recording)));
        self.out.packed(field::COMMENT, [comment]);
        for text in std::mem::take(&mut self.strings.list) {
            self.out.bytes(field::STRING, text.as_bytes());
        }
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> Message {
        let mut value = Message::default();
        value.number(1, self.strings.id(kind));
        value.number(2, self.strings.id(unit));
        value
    }

    fn labels(&mut self, thread: u32, sample: &mut Message) {
        let Some(t) = self.recording.threads.get(thread as usize) else { return };
        let pid = self.recording.processes.get(t.process as usize).map_or(0, |p| p.pid);
        for (key, number, text) in
            [("pid", u64::from(pid), None), ("tid", u64::from(t.tid), None), ("thread", 0, Some(t.name.as_str()))]
        {
            let mut label = Message::default();
            label.number(1, self.strings.id(key));
            if let Some(text) = text {
                label.number(2, self.strings.id(text));
            }
            label.number(3, number);
            sample.message(3, label);
        }
    }

    /// The labels that the thread has set. Readers take keys that occur twice for lists: those of uu's own come first.
    fn own_labels(&mut self, set: u32, sample: &mut Message) {
        for (key, value) in self.recording.labels.of(set) {
            let mut label = Message::default();
            label.number(1, self.strings.id(key));
            label.number(2, self.strings.id(value));
            sample.message(3, label);
        }
    }

    /// Location ids of a stack, leaf first. Inlined frames and the frame that contains them form one location.
    fn stack(&mut self, lines: &[u32]) -> Vec<u64> {
        let profile = self.profile;
        let mut ids = Vec::new();
        let mut group = Vec::new();
        for index in lines {
            group.push(*index);
            if profile.lines.get(*index as usize).is_some_and(|l| l.kind != Kind::Inlined) {
                ids.push(self.location(std::mem::take(&mut group)));
            }
        }
        if !group.is_empty() {
            ids.push(self.location(group));
        }
        ids
    }

    fn location(&mut self, group: Vec<u32>) -> u64 {
        if let Some(id) = self.locations.get(&group) {
            return *id;
        }
        let id = self.locations.len() as u64 + 1;
        let profile = self.profile;
        let lines: Vec<&Line> = group.iter().filter_map(|i| profile.lines.get(*i as usize)).collect();
        let mut location = Message::default();
        location.number(1, id);
        if let Some(last) = lines.last() {
            if let Some(object) = last.object {
                let mapping = self.mapping(object);
                location.number(2, mapping);
            }
            location.number(3, last.address);
        }
        for line in lines {
            let mut message = Message::default();
            message.number(1, self.function(line));
            message.number(2, u64::from(line.line));
            if let Some(place) = line.columns() {
                // `Line.column`, from 1 on (<https://github.com/google/pprof/blob/main/proto/profile.proto>).
                message.number(3, u64::from(place.column) + 1);
            }
            location.message(4, message);
        }
        self.out.message(field::LOCATION, location);
        self.locations.insert(group, id);
        id
    }

    fn function(&mut self, line: &Line) -> u64 {
        let key = (line.function.clone(), line.file.clone());
        if let Some(id) = self.functions.get(&key) {
            return *id;
        }
        let id = self.functions.len() as u64 + 1;
        let (name, file) = (self.strings.id(&line.function), self.strings.id(&line.file));
        let mut function = Message::default();
        function.number(1, id);
        function.number(2, name);
        // system_name (3) stays empty. pprof takes a name that stands in both fields for a mangled one, and shows it
        // without what is in angle brackets: of `<module>`, nothing would be left.
        function.number(4, file);
        function.number(5, u64::from(line.first_line));
        self.out.message(field::FUNCTION, function);
        self.functions.insert(key, id);
        id
    }

    /// A mapping in file addresses: processes map a file at different addresses, and all addresses in the profile are
    /// the file's.
    fn mapping(&mut self, object: u32) -> u64 {
        if let Some(id) = self.mappings.get(&object) {
            return *id;
        }
        let id = self.mappings.len() as u64 + 1;
        let mut mapping = Message::default();
        mapping.number(1, id);
        if let Some(o) = self.recording.objects.get(object as usize) {
            mapping.number(2, o.start.wrapping_sub(o.bias));
            mapping.number(3, o.end.wrapping_sub(o.bias));
            mapping.number(5, self.strings.id(&String::from_utf8_lossy(&o.path)));
            mapping.number(6, self.strings.id(&hex(&o.build_id)));
        }
        for has in 7..=10 {
            // has_functions, has_filenames, has_line_numbers, has_inline_frames: everything that is available was
            // resolved here.
            mapping.number(has, 1);
        }
        self.out.message(field::MAPPING, mapping);
        self.mappings.insert(object, id);
        id
    }
}

/// The program's own object, if a frame of it is in the profile.
fn program_object(recording: &Recording, profile: &Profile) -> Option<u32> {
    let exes: Vec<&[u8]> =
        recording.processes.iter().filter(|p| p.pid == recording.settings.pid).map(|p| &p.exe[..]).collect();
    let path = |index: u32| recording.objects.get(index as usize).map_or(&b""[..], |o| &o.path);
    profile.lines.iter().filter_map(|line| line.object).find(|o| exes.contains(&path(*o)) && !path(*o).is_empty())
}
