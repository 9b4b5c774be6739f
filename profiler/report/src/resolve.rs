//! Names of the frames of samples, as recorded: nothing is hidden or merged.

use crate::line::with_columns;
use std::collections::{HashMap, HashSet};
use uunwind_core::frame::{frames, Frame};
use uunwind_core::plugin::TABLE_NONE;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::EMBEDDER;
use uunwind_language::{Language, Place};
use uunwind_recording::objects::{file_address, lookup_address, ObjectMap};
use uunwind_recording::{Call, JitCode, JitPlace, Name, Recording, Sample, Symbol, Symbols};
use uunwind_ring::record::{SAMPLE_DESYNC, SAMPLE_FACTS_PENDING};
use uunwind_symbolize::calls::jumped;
use uunwind_symbolize::{own_path, symbolize};

/// The index that stood for marked interpreters ([`EMBEDDER`]) while a process had at most six plugins.
const EARLIER_EMBEDDER: u8 = 7;

/// The process and time of a sample, by which its addresses have a meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Index of the process in the recording.
    pub process: u32,
    /// Time of the sample: ns of CLOCK_MONOTONIC, as in the recording.
    pub time: u64,
}

impl Moment {
    /// A code address of this process at this time.
    pub fn code(self, address: u64, exact: bool) -> CodeAt {
        CodeAt { moment: self, address, exact }
    }
}

/// A code address in a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeAt {
    /// Process and time.
    pub moment: Moment,
    /// The process address.
    pub address: u64,
    /// Whether it is that of an interrupted instruction; otherwise it is a return address.
    pub exact: bool,
}

impl CodeAt {
    /// The process address to look up: a return address may lie after the end of the function that called.
    fn lookup(self) -> u64 {
        lookup_address(self.address, self.exact)
    }
}

/// A resolved native frame, for the formats that show raw samples.
#[derive(Clone, Copy, Debug)]
pub struct Native<'a> {
    /// Index in the recording of the object that covered it: the canonical one of all with its identity.
    pub object: Option<u32>,
    /// Its symbol, if it has one.
    pub symbol: Option<&'a Symbol>,
    /// File address of the beginning of its function, if that is available for a function without a symbol.
    pub start: Option<u64>,
    /// File address; the process address if no object covered it.
    pub file_address: u64,
    /// The object's table has a rule made from the machine code here.
    pub by_code: bool,
}

/// Resolves the frames of a recording.
pub struct Resolver<'a> {
    recording: &'a Recording,
    map: ObjectMap,
    symbols: HashMap<(u32, u64), Symbol>,
    /// By object and file address of the call's last byte.
    calls: HashMap<(u32, u64), Call>,
    /// By the same: where tables have rules made from the machine code.
    by_code: HashSet<(u32, u64)>,
    unusable: Vec<(u32, String)>,
    names: HashMap<(u32, u32), &'a Name>,
    /// By process, name id and position: lines of code objects that have line tables.
    lines: HashMap<(u32, u32, u64), u32>,
    /// By the same: columns, if they are to be shown.
    places: HashMap<(u32, u32, u64), Place>,
    /// By process and address: the code made at run time that covered it, in order of time.
    jit: HashMap<(u32, u64), Vec<&'a JitPlace>>,
    /// By process: when what its addresses mean has changed, in order.
    changes: HashMap<u32, Vec<u64>>,
}

/// The names that were recorded, and of other addresses those that were found now.
fn complete(recorded: &Symbols, mut found: Symbols) -> Symbols {
    let named: HashSet<_> = recorded.entries.iter().map(|symbol| (symbol.object, symbol.address)).collect();
    let objects: HashSet<_> = named.iter().map(|(object, _)| *object).collect();
    found.entries.retain(|symbol| !named.contains(&(symbol.object, symbol.address)));
    found.calls.retain(|call| {
        !recorded.calls.iter().any(|other| (other.object, other.address) == (call.object, call.address))
    });
    found.unusable.retain(|(object, _)| !objects.contains(object));
    found.add(recorded.clone());
    found
}

impl<'a> Resolver<'a> {
    /// Takes the symbols of the recording. If it was cut before they were written, symbolizes now.
    pub fn new(recording: &'a Recording) -> Resolver<'a> {
        let mut map = ObjectMap::new(recording);
        let symbols = match &recording.symbols {
            Some(recorded) if recording.is_named_later() => {
                complete(recorded, symbolize(recording, &mut map, &own_path))
            }
            Some(symbols) => symbols.clone(),
            None => symbolize(recording, &mut map, &own_path),
        };
        let names = recording.names.iter().map(|n| ((n.process, n.id), n)).collect();
        let mut jit: HashMap<_, Vec<&JitPlace>> = HashMap::new();
        for place in &recording.jit.places {
            jit.entry((place.process, place.address)).or_default().push(place);
        }
        jit.values_mut().for_each(|places| places.sort_by_key(|place| place.time));
        let mut changes: HashMap<u32, Vec<u64>> = HashMap::new();
        let objects = recording.objects.iter().map(|object| (object.process, object.time));
        let mapped = recording.second_mappings.iter().map(|mapping| (mapping.process, mapping.time));
        let made = recording.jit.places.iter().map(|place| (place.process, place.time));
        for (process, time) in objects.chain(mapped).chain(made) {
            changes.entry(process).or_default().push(time);
        }
        changes.values_mut().for_each(|times| times.sort_unstable());
        let unusable = symbols.unusable;
        let by_code = symbols.by_code.into_iter().collect();
        let calls = symbols.calls.into_iter().map(|call| ((call.object, call.address), call)).collect();
        let symbols = symbols.entries.into_iter().map(|s| ((s.object, s.address), s)).collect();
        let lines = recording.lines.iter().map(|l| ((l.process, l.name, l.position), l.line)).collect();
        let places = recording.places.iter().map(|p| ((p.process, p.name, p.position), p.place)).collect();
        Resolver { recording, map, symbols, calls, by_code, unusable, names, lines, places, jit, changes }
    }

    /// The recording whose frames are resolved.
    pub fn recording(&self) -> &'a Recording {
        self.recording
    }

    /// Objects whose names could not be used, and the reason.
    pub fn unusable(&self) -> &[(u32, String)] {
        &self.unusable
    }

    /// Frames of a sample as recorded, leaf first; those that await others only if the recording's are to be shown.
    pub fn frames(&self, sample: &Sample) -> Vec<Frame> {
        let mut out = Vec::new();
        let mut node = sample.stack;
        // A node's parent has a smaller number, which the reader checked, so this ends.
        while let Some(entry) = (node as usize).checked_sub(1).and_then(|i| self.recording.nodes.get(i)) {
            let frame = frames(&[entry.word, entry.position]).next();
            let shown =
                |frame: &Frame| self.recording.awaiting || !matches!(frame, Frame::Semantic { awaiting: true, .. });
            out.extend(frame.filter(shown));
            node = entry.parent;
        }
        out
    }

    /// Process and time of a sample.
    pub fn moment(&self, sample: &Sample) -> Moment {
        let process = self.recording.threads.get(sample.thread as usize).map_or(0, |t| t.process);
        Moment { process, time: sample.time }
    }

    /// A number that is the same for two moments of a process if addresses have the same meaning at both.
    pub fn era(&self, moment: Moment) -> usize {
        self.changes.get(&moment.process).map_or(0, |times| times.partition_point(|time| *time <= moment.time))
    }

    /// Resolves a native frame: the object that covered it, its symbol, its file address. Where none did, and no JIT
    /// has reported a function, it may be the code of a second mapping.
    pub fn native(&mut self, mut code: CodeAt) -> Native<'_> {
        let Moment { process, time } = code.moment;
        let mut lookup = code.lookup();
        let mut object = self.map.find(self.recording, process, lookup, time);
        let second = if object.is_none() { self.map.original(process, lookup, time) } else { None };
        if let Some(original) = second.filter(|_| self.jit(code).is_none()) {
            code.address = code.address.wrapping_sub(lookup).wrapping_add(original);
            lookup = original;
            object = self.map.find(self.recording, process, lookup, time);
        }
        let Some(o) = object.and_then(|i| self.recording.objects.get(i as usize)) else {
            return Native { object: None, symbol: None, start: None, file_address: code.address, by_code: false };
        };
        let canonical = self.map.canonical(object.unwrap_or(0));
        let found = self.symbols.get(&(canonical, file_address(o, lookup)));
        let symbol = found.filter(|s| !s.name.is_empty());
        let start = found.filter(|s| s.name.is_empty() && s.start != 0).map(|s| s.start);
        let by_code = self.by_code.contains(&(canonical, file_address(o, lookup)));
        Native { object: Some(canonical), symbol, start, file_address: file_address(o, code.address), by_code }
    }

    /// The function that the caller called and that entered the callee's by a jump, if both are native frames, one the
    /// direct caller of the other, and the code shows it.
    pub fn tail_call(&mut self, moment: Moment, callee: Frame, caller: Frame) -> Option<String> {
        let Frame::Native { address, exact: false, .. } = caller else { return None };
        let code = moment.code(address, false);
        let native = self.native(code);
        let object = native.object?;
        let place = (object, native.file_address.wrapping_sub(address.wrapping_sub(code.lookup())));
        let call = self.calls.get(&place)?.clone();
        let Frame::Native { address, exact, .. } = callee else { return None };
        let callee = self.native(moment.code(address, exact));
        jumped(&call, (callee.object?, callee.symbol)).then_some(call.name)
    }

    /// The function made at run time that covered this address at this time, and its place. For addresses that no
    /// object covers.
    pub fn jit(&self, code: CodeAt) -> Option<(&'a JitCode, &'a JitPlace)> {
        let places = self.jit.get(&(code.moment.process, code.lookup()))?;
        let place = places.get(places.partition_point(|p| p.time <= code.moment.time).checked_sub(1)?)?;
        Some((self.recording.jit.codes.get(place.code? as usize)?, place))
    }

    /// The name record of a semantic frame, if it arrived.
    pub fn name(&self, process: u32, id: u32) -> Option<&'a Name> {
        self.names.get(&(process, id)).copied()
    }

    /// The line of a position in a code object; its first line if the recording has no better one.
    pub fn line(&self, name: &Name, position: u64) -> u32 {
        let line = match name.table_kind {
            TABLE_NONE => u32::try_from(position).ok(),
            _ => self.lines.get(&(name.process, name.id, position)).copied(),
        };
        line.unwrap_or(name.first_line)
    }

    /// Where the code at a position stands, with columns, if these are to be shown and known.
    pub fn place(&self, name: &Name, position: u64) -> Option<Place> {
        self.places.get(&(name.process, name.id, position)).copied()
    }

    /// The line, with its columns if they are to be shown.
    pub fn line_and_columns(&self, name: &Name, position: u64) -> String {
        let line = self.line(name, position);
        match self.place(name, position) {
            Some(place) if place.line == line => with_columns(place),
            _ => line.to_string(),
        }
    }

    /// What is known of the language of a plugin.
    pub fn language(&self, plugin: &str) -> Option<&'a Language> {
        self.recording.languages.iter().find(|language| language.plugin == plugin)
    }

    /// Name of a plugin of a process.
    pub fn plugin(&self, process: u32, plugin: u8) -> String {
        let plugins = self.recording.processes.get(process as usize).map(|p| &p.plugins);
        let other = if matches!(plugin, EMBEDDER | EARLIER_EMBEDDER) { "embedder" } else { "interpreter" };
        plugins.and_then(|p| p.get(plugin as usize)).filter(|n| !n.is_empty()).cloned().unwrap_or(other.into())
    }
}

/// The name of a function. A function that its runtime gives no name is named by where it begins.
pub fn function_of(name: &Name) -> String {
    if !name.name.is_empty() {
        return name.name.clone();
    }
    // In brackets, runtimes name code that is in no file, some by its text, which may contain any characters.
    let file = match name.file.starts_with(['[', '<']) {
        true => &name.file,
        false => name.file.rsplit('/').next().unwrap_or(&name.file),
    };
    format!("function <{file}:{}>", name.first_line)
}

/// Whether the stack of a sample is whole. A walk that came to the end of the stack does not say so where a file was
/// not analysed yet, or where a plugin's frames are missing or doubtful: callers may be missing.
pub fn is_complete(sample: &Sample) -> bool {
    sample.reason().is_some_and(StopReason::is_complete) && sample.flags & (SAMPLE_FACTS_PENDING | SAMPLE_DESYNC) == 0
}

/// Whether a walk ended before any end that a stack has, for a reason that this version need not know.
pub fn is_cut(sample: &Sample) -> bool {
    sample.reason().is_none_or(|reason| !reason.is_complete() && !reason.is_plausible())
}

/// Text of a stop reason, including one that this version does not define.
pub fn stop_text(sample: &Sample) -> String {
    match sample.reason() {
        Some(reason) => reason.text().to_owned(),
        None if sample.stop == 0 => "the walk did not run".to_owned(),
        None => format!("unknown reason {}", sample.stop),
    }
}
