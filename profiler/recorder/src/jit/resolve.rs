//! Which function a sample's address belonged to when the sample was taken: all that was told is gone through once more in
//! the order of time, together with the samples.

use super::ranges::Ranges;
use super::table::{Code, Event};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use uunwind_core::frame::{frames, Frame};
use uunwind_report::objects::{lookup_address, ObjectMap};
use uunwind_report::recording::{JitCode, JitNames, JitPlace, JitSource, Recording};
use uunwind_report::symbolize::demangle;

/// What was told to one process: its functions with their events.
pub type Told<'a> = Vec<(Event, &'a Code)>;

/// Names for the addresses of a process that no object covers.
pub struct Resolver<'a> {
    recording: &'a Recording,
    out: JitNames,
    /// Functions written already.
    written: HashMap<*const Code, u32>,
}

impl<'a> Resolver<'a> {
    /// Nothing named yet.
    pub fn new(recording: &'a Recording) -> Resolver<'a> {
        Resolver { recording, out: JitNames::default(), written: HashMap::new() }
    }

    /// The section.
    pub fn finish(self) -> JitNames {
        self.out
    }

    /// Names what `process` has, by what it was told.
    pub fn process(&mut self, process: u32, mut told: Told<'_>, map: &mut ObjectMap) {
        let queries = self.queries(process, map);
        // Stable: what has the same time stays in the order in which it was told.
        told.sort_by_key(|(event, _)| event.time);
        // A function's number is that of the event with which it came.
        let coming = told.iter().zip(0u32..).filter(|((event, _), _)| event.comes);
        let numbers: HashMap<*const Code, u32> = coming.map(|((_, code), n)| (core::ptr::from_ref(*code), n)).collect();
        let mut answers = HashMap::new();
        let (mut ranges, mut next) = (Ranges::default(), told.iter().peekable());
        for query in &queries {
            while let Some((event, code)) = next.next_if(|(event, _)| event.time <= query.0) {
                let Some(number) = numbers.get(&core::ptr::from_ref(*code)) else { continue };
                if event.comes {
                    ranges.insert(code.start, code.end, *number);
                } else {
                    ranges.remove(code.start, code.end, *number);
                }
            }
            if let Some(found) = ranges.find(query.1) {
                answers.insert(*query, found);
            }
        }
        self.told_late(&queries, &told, &mut answers);
        self.write(process, &queries, &told, &answers);
    }

    /// Perf maps are written through buffers, so a function may run before its line is in the file: what has no name yet takes
    /// the first that is told later.
    fn told_late(&self, queries: &BTreeSet<(u64, u64)>, told: &Told<'_>, answers: &mut HashMap<(u64, u64), u32>) {
        let late = |(_, (event, code)): &(usize, &(Event, &Code))| event.comes && code.source == JitSource::PerfMap;
        let mut later = told.iter().enumerate().rev().filter(late).peekable();
        let mut ranges = Ranges::default();
        for query in queries.iter().rev() {
            while let Some((number, (_, code))) = later.next_if(|(_, (event, _))| event.time > query.0) {
                ranges.insert(code.start, code.end, number as u32);
            }
            if let (None, Some(found)) = (answers.get(query), ranges.find(query.1)) {
                answers.insert(*query, found);
            }
        }
    }

    /// Time and address of each frame that no object covers.
    fn queries(&self, process: u32, map: &mut ObjectMap) -> BTreeSet<(u64, u64)> {
        let mut queries = BTreeSet::new();
        // Node -> the nearest one at or below it, towards the root, that no object covers, and its address.
        let mut nearest: HashMap<u32, (u32, u64)> = HashMap::from([(0, (0, 0))]);
        let node = |n: u32| self.recording.nodes.get((n as usize).wrapping_sub(1));
        let of = |t: u32| self.recording.threads.get(t as usize).map(|t| t.process);
        for sample in self.recording.samples.iter().filter(|s| of(s.thread) == Some(process)) {
            let mut at = sample.stack;
            loop {
                let mut passed = Vec::new();
                let found = loop {
                    if let Some(known) = nearest.get(&at) {
                        break *known;
                    }
                    let Some(entry) = node(at) else { break (0, 0) };
                    let frame = frames(&[entry.word, entry.position]).next();
                    let lookup = match frame {
                        Some(Frame::Native { address, exact, .. } | Frame::Window { address, exact, name: 0, .. }) => {
                            Some(lookup_address(address, exact))
                        }
                        _ => None,
                    };
                    passed.push(at);
                    match lookup.filter(|lookup| map.covering(self.recording, process, *lookup).is_empty()) {
                        Some(lookup) => break (at, lookup),
                        None => at = entry.parent,
                    }
                };
                nearest.extend(passed.into_iter().map(|n| (n, found)));
                let (Some(entry), true) = (node(found.0), found.0 != 0) else { break };
                queries.insert((sample.time, found.1));
                at = entry.parent;
            }
        }
        queries
    }

    /// Writes an answer where it is another one than the last for its address.
    fn write(
        &mut self,
        process: u32,
        queries: &BTreeSet<(u64, u64)>,
        told: &Told<'_>,
        answers: &HashMap<(u64, u64), u32>,
    ) {
        let mut last: HashMap<u64, Option<u32>> = HashMap::new();
        for (time, address) in queries {
            let answer = answers.get(&(*time, *address)).and_then(|n| told.get(*n as usize)).map(|(_, code)| *code);
            let code = answer.map(|code| self.code(code));
            if last.get(address).copied().unwrap_or(None) == code {
                continue;
            }
            last.insert(*address, code);
            let line = answer.and_then(|code| {
                let offset = address.wrapping_sub(code.start);
                code.lines.get(code.lines.partition_point(|l| l.offset <= offset).checked_sub(1)?)
            });
            let (file, line) = line.map_or((String::new(), 0), |l| (l.file.to_string(), l.line));
            self.out.places.push(JitPlace { process, address: *address, time: *time, code, file, line });
        }
    }

    fn code(&mut self, code: &Code) -> u32 {
        *self.written.entry(core::ptr::from_ref(code)).or_insert_with(|| {
            let size = code.end.wrapping_sub(code.start);
            let name = readable(&code.name);
            self.out.codes.push(JitCode { source: code.source, start: code.start, size, name });
            self.out.codes.len() as u32 - 1
        })
    }
}

/// A name as people wrote it: without what compilers hang on to tell versions of a function apart (`[abi:v1]`).
fn readable(told: &Rc<str>) -> String {
    let mut name = demangle(told);
    while let Some((start, end)) = name.find("[abi:").and_then(|s| Some((s, s + name.get(s..)?.find(']')?))) {
        name.replace_range(start..=end, "");
    }
    name
}
