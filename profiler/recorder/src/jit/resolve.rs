//! Determines which function a sample's address belonged to when the sample was taken: all reports of JITs are replayed
//! in the order of time, together with the samples.

use super::ranges::Ranges;
use super::table::{Code, Event};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use uunwind_core::frame::{frames, Frame};
use uunwind_recording::objects::{lookup_address, ObjectMap};
use uunwind_recording::{JitCode, JitNames, JitPlace, JitSource, Recording};
use uunwind_symbolize::demangle;

/// The reports for one process: events with their functions.
pub type Reports<'a> = Vec<(Event, &'a Code)>;

/// Flag on a function's number: at this time, either this function or its predecessor was there. Larger than any
/// number.
const DOUBT: u32 = 1 << 31;

/// The functions at each time, by address. A function's number is the index of the event that added it.
struct History<'a> {
    reports: &'a Reports<'a>,
    /// Changes that lie ahead, by time and number: those of events, and the ends of doubts.
    changes: BTreeMap<(u64, u32, bool), Change>,
    /// For each function that was removed, the time from which it was certainly gone.
    gone: HashMap<u32, u64>,
    now: Ranges,
}

#[derive(Clone, Copy)]
enum Change {
    Comes,
    IsThere,
    Goes,
}

impl<'a> History<'a> {
    fn new(reports: &'a Reports<'a>) -> History<'a> {
        let coming = reports.iter().zip(0u32..).filter(|((event, _), _)| event.comes);
        let numbers: HashMap<*const Code, u32> = coming.map(|((_, code), n)| (core::ptr::from_ref(*code), n)).collect();
        let (mut changes, mut gone) = (BTreeMap::new(), HashMap::new());
        for ((event, code), at) in reports.iter().zip(0u32..) {
            if event.comes {
                changes.insert((event.when.after, at, false), Change::Comes);
            } else if let Some(number) = numbers.get(&core::ptr::from_ref(*code)) {
                changes.insert((event.when.by, *number, true), Change::Goes);
                gone.insert(*number, event.when.by);
            }
        }
        History { reports, changes, gone, now: Ranges::default() }
    }

    /// The functions at a time, which must not be earlier than that of the last call.
    fn at(&mut self, time: u64) -> &Ranges {
        while let Some(next) = self.changes.first_entry().filter(|next| next.key().0 <= time) {
            let ((at, number, _), change) = next.remove_entry();
            let Some((event, code)) = self.reports.get(number as usize) else { continue };
            match change {
                Change::Goes => self.now.remove(code.start, code.end, number),
                Change::IsThere => self.now.rename(code.start, code.end, number | DOUBT, number),
                // Until its predecessor is certainly gone, either of them may be there.
                Change::Comes => {
                    let before = self.now.overlapped(code.start, code.end);
                    let until = before
                        .filter_map(|n| self.gone.get(&(n & !DOUBT)))
                        .max()
                        .copied()
                        .unwrap_or(at)
                        .min(event.when.by);
                    if until > at {
                        self.now.insert(code.start, code.end, number | DOUBT);
                        self.changes.insert((until, number, true), Change::IsThere);
                    } else {
                        self.now.insert(code.start, code.end, number);
                    }
                }
            }
        }
        &self.now
    }
}

/// Names for the addresses of a process that no object covers.
pub struct Resolver<'a> {
    recording: &'a Recording,
    out: JitNames,
    /// Functions that are in `out` already, with their index.
    written: HashMap<*const Code, u32>,
}

impl<'a> Resolver<'a> {
    /// Creates it with no names.
    pub fn new(recording: &'a Recording) -> Resolver<'a> {
        Resolver { recording, out: JitNames::default(), written: HashMap::new() }
    }

    /// The names, as they are written to the recording.
    pub fn finish(self) -> JitNames {
        self.out
    }

    /// Names the unowned addresses in samples of `process`, by the reports for it.
    pub fn process(&mut self, process: u32, mut reports: Reports<'_>, map: &mut ObjectMap) {
        let queries = self.queries(process, map);
        // A stable sort: events with the same time stay in the order in which they were reported.
        reports.sort_by_key(|(event, _)| event.when.after);
        let mut answers = HashMap::new();
        let mut history = History::new(&reports);
        for query in &queries {
            if let Some(found) = history.at(query.0).find(query.1) {
                answers.insert(*query, found);
            }
        }
        self.reported_late(&queries, &reports, &mut answers);
        self.write(process, &queries, &reports, &answers);
    }

    /// Perf maps are written through buffers, so a function may run before its line is in the file. An address without
    /// a name takes the first function that is reported for it later.
    fn reported_late(
        &self,
        queries: &BTreeSet<(u64, u64)>,
        reports: &Reports<'_>,
        answers: &mut HashMap<(u64, u64), u32>,
    ) {
        let late = |(_, (event, code)): &(usize, &(Event, &Code))| event.comes && code.source == JitSource::PerfMap;
        let mut later = reports.iter().enumerate().rev().filter(late).peekable();
        let mut ranges = Ranges::default();
        for query in queries.iter().rev() {
            while let Some((number, (_, code))) = later.next_if(|(_, (event, _))| event.when.after > query.0) {
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
        // Node -> the nearest node from it towards the root that no object covers, and its lookup address.
        let mut nearest: HashMap<u32, (u32, u64)> = HashMap::from([(0, (0, 0))]);
        let node = |n: u32| self.recording.nodes.get((n as usize).wrapping_sub(1));
        let of = |t: u32| self.recording.threads.get(t as usize).map(|t| t.process);
        for sample in self.recording.all_samples().filter(|s| of(s.thread) == Some(process)) {
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

    /// Writes each answer that differs from the previous one for its address.
    fn write(
        &mut self,
        process: u32,
        queries: &BTreeSet<(u64, u64)>,
        reports: &Reports<'_>,
        answers: &HashMap<(u64, u64), u32>,
    ) {
        let mut last: HashMap<u64, Option<u32>> = HashMap::new();
        for (time, address) in queries {
            let answer = answers.get(&(*time, *address)).and_then(|n| reports.get(*n as usize)).map(|(_, code)| *code);
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

/// A demangled name without the ABI tags (`[abi:v1]`) that compilers append to distinguish versions of a function.
fn readable(name: &Rc<str>) -> String {
    let mut name = demangle(name);
    while let Some((start, end)) = name.find("[abi:").and_then(|s| Some((s, s + name.get(s..)?.find(']')?))) {
        name.replace_range(start..=end, "");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jit::table::When;

    fn code(name: &str, start: u64, end: u64) -> Code {
        Code { source: JitSource::Gdb, start, end, name: name.into(), lines: Rc::from([]) }
    }

    fn event(after: u64, by: u64, code: u32, comes: bool) -> Event {
        Event { when: When { after, by }, code, comes }
    }

    /// Names at an address, at times from 0 on; `!` where it is in doubt.
    fn names(codes: &[Code], events: &[Event], address: u64, times: u64) -> String {
        let mut reports: Reports<'_> = events.iter().map(|e| (*e, &codes[e.code as usize])).collect();
        reports.sort_by_key(|(event, _)| event.when.after);
        let mut history = History::new(&reports);
        let name = |time| match history.at(time).find(address) {
            Some(number) if number >= DOUBT => "!".to_owned(),
            Some(number) => reports[number as usize].1.name.to_string(),
            None => ".".to_owned(),
        };
        (0..times).map(name).collect()
    }

    #[test]
    fn a_function_removed_between_two_looks_may_have_been_there_until_the_second() {
        let codes = [code("a", 0x10, 0x20)];
        assert_eq!(names(&codes, &[event(2, 4, 0, true), event(6, 8, 0, false)], 0x10, 10), "..aaaaaa..");
    }

    #[test]
    fn two_functions_at_one_place_between_two_looks_are_in_doubt() {
        let codes = [code("a", 0x10, 0x20), code("b", 0x18, 0x28)];
        let events = [event(0, 1, 0, true), event(4, 7, 0, false), event(4, 7, 1, true), event(9, 10, 1, false)];
        assert_eq!(names(&codes, &events, 0x18, 12), "aaaa!!!bbb..");
        assert_eq!(names(&codes, &events, 0x10, 12), "aaaaaaa.....", "only the first was ever there");
        assert_eq!(names(&codes, &events, 0x20, 12), "....!!!bbb..", "the second, which was there last");
    }

    #[test]
    fn a_third_function_there_at_once_is_in_doubt_as_well() {
        let codes = [code("a", 0x10, 0x20), code("b", 0x10, 0x20), code("c", 0x18, 0x20)];
        // Looks begin at 1, 4 and 7, and see what they find a moment later.
        let events = [
            event(0, 2, 0, true),
            event(1, 5, 0, false),
            event(1, 5, 1, true),
            event(4, 8, 1, false),
            event(4, 8, 2, true),
        ];
        assert_eq!(names(&codes, &events, 0x18, 10), "a!!!!!!!cc");
        assert_eq!(names(&codes, &events, 0x10, 10), "a!!!!bbb..");
    }

    #[test]
    fn times_that_the_jit_reported_leave_no_doubt() {
        let codes = [code("a", 0x10, 0x20), code("b", 0x10, 0x20)];
        let events = [event(1, 1, 0, true), event(4, 4, 0, false), event(4, 4, 1, true)];
        assert_eq!(names(&codes, &events, 0x10, 7), ".aaabbb");
    }

    #[test]
    fn a_function_in_a_region_reported_before_takes_its_part() {
        let codes = [code("region", 0, 0x100), code("f", 0x10, 0x20)];
        let events = [event(0, 1, 0, true), event(3, 5, 1, true)];
        assert_eq!(names(&codes, &events, 0x10, 5), "regionregionregionff");
        assert_eq!(names(&codes, &events, 0x30, 1), "region");
    }
}
