//! The processed profile format of the Firefox Profiler
//! (<https://github.com/firefox-devtools/profiler/blob/main/docs-developer/processed-profile-format.md>), in version
//! 55, which newer profilers upgrade: processes, threads, samples in order of time, categories by language, and markers
//! where samples were lost or fell due late.

use super::functions::Functions;
use super::period;
use super::threads::{self, Thread};
use crate::stacks::{Kind, Line, Profile};
use serde_json::{json, Value};
use std::collections::{BTreeMap, HashMap};
use uunwind_recording::Recording;

const VERSION: u32 = 55;
/// Categories of frames that are of no interpreted language, and their colours.
const CATEGORIES: [(&str, &str); 5] = [
    ("Other", "grey"),
    ("Machine code", "orange"),
    ("Made at run time", "green"),
    ("Remark", "grey"),
    ("Kernel", "red"),
];
/// Colours of languages, in turn. The names are the profiler's.
const COLOURS: [&str; 4] = ["blue", "purple", "yellow", "magenta"];

/// The profile as JSON.
pub fn render(recording: &Recording, profile: &Profile) -> Result<Vec<u8>, String> {
    let languages: BTreeMap<&str, usize> = {
        let plugins = profile.lines.iter().filter(|line| line.kind.is_semantic()).map(|line| line.plugin.as_str());
        let distinct: std::collections::BTreeSet<&str> = plugins.collect();
        distinct.into_iter().zip(CATEGORIES.len()..).collect()
    };
    let mut categories: Vec<Value> = CATEGORIES.iter().map(|(name, colour)| category(name, colour)).collect();
    for (plugin, colour) in languages.keys().zip(COLOURS.iter().cycle()) {
        let name = if plugin.is_empty() { "interpreter" } else { plugin };
        categories.push(category(name, colour));
    }
    let settings = &recording.settings;
    let maker = Maker { recording, profile, functions: Functions::new(profile), languages };
    let threads = threads::sampled(recording, profile);
    let threads: Vec<Value> = threads.iter().map(|(index, thread)| maker.thread(*index, thread)).collect();
    let file = json!({
        "meta": {
            "version": 24,
            "preprocessedProfileVersion": VERSION,
            "processType": 0,
            "product": super::command(recording),
            "oscpu": settings.kernel,
            "startTime": settings.start_unix as f64 / 1e6,
            "interval": period(settings.rate) as f64 / 1e6,
            "categories": categories,
            "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
            "markerSchema": [{
                "name": "Loss",
                "display": ["marker-chart", "marker-table", "timeline-overview"],
                "tooltipLabel": "{marker.name}: {marker.data.periods} periods",
                "fields": [{"key": "periods", "label": "Periods", "format": "integer"}],
            }],
            "extensions": {"length": 0, "baseURL": [], "id": [], "name": []},
            "debug": false,
            "symbolicated": true,
            "usesOnlyOneStackType": true,
            "sourceCodeIsNotOnSearchfox": true,
        },
        "libs": [],
        "pages": [],
        "counters": [],
        "profilerOverhead": [],
        "threads": threads,
    });
    serde_json::to_vec(&file).map_err(|e| e.to_string())
}

fn category(name: &str, colour: &str) -> Value {
    json!({"name": name, "color": colour, "subcategories": ["Other"]})
}

struct Maker<'a> {
    recording: &'a Recording,
    profile: &'a Profile,
    functions: Functions<'a>,
    /// Category of each plugin's frames.
    languages: BTreeMap<&'a str, usize>,
}

/// The texts of a thread, each once.
#[derive(Default)]
struct Texts {
    known: HashMap<String, usize>,
    list: Vec<String>,
}

impl Texts {
    fn id(&mut self, text: &str) -> usize {
        if let Some(id) = self.known.get(text) {
            return *id;
        }
        self.known.insert(text.to_owned(), self.list.len());
        self.list.push(text.to_owned());
        self.list.len() - 1
    }
}

/// Numbers for what is met, in the order in which it is met first.
struct Numbers<K> {
    known: HashMap<K, usize>,
    list: Vec<K>,
}

impl<K: Copy + Eq + std::hash::Hash> Numbers<K> {
    fn new() -> Numbers<K> {
        Numbers { known: HashMap::new(), list: Vec::new() }
    }

    fn of(&mut self, key: K) -> usize {
        let list = &mut self.list;
        *self.known.entry(key).or_insert_with(|| {
            list.push(key);
            list.len() - 1
        })
    }
}

impl Maker<'_> {
    fn category(&self, line: &Line) -> usize {
        match line.kind {
            Kind::Native | Kind::Inlined => 1,
            Kind::Jit => 2,
            Kind::Marker | Kind::Waiting => 3,
            Kind::Kernel => 4,
            Kind::Semantic | Kind::Awaiting => self.languages.get(line.plugin.as_str()).copied().unwrap_or(0),
        }
    }

    fn thread(&self, index: u32, thread: &Thread<'_>) -> Value {
        let period = period(self.recording.settings.rate);
        let mut texts = Texts::default();
        // Functions and frames are numbered by thread; a stack is its caller's number and a frame.
        let (mut functions, mut frames, mut stacks) = (Numbers::new(), Numbers::new(), Numbers::new());
        let (mut of_samples, mut deltas, mut weights, mut cpu) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut losses = Vec::new();
        let mut before = 0;
        for (entry, stack) in &thread.entries {
            let mut caller: Option<usize> = None;
            for line in stack.lines.iter().rev() {
                caller = Some(stacks.of((caller, frames.of(*line))));
            }
            let length = entry.weight.saturating_mul(period);
            of_samples.push(caller);
            deltas.push((entry.time - before) as f64 / 1e6);
            weights.push(entry.weight);
            cpu.push(if self.profile.waits(stack) { 0 } else { length });
            before = entry.time;
            if entry.samples() == 0 {
                let name = stack.lines.first().and_then(|line| self.profile.lines.get(*line as usize));
                let name = name.map_or("", |line| &line.function);
                losses.push((texts.id(name), entry.time.saturating_sub(length), entry.time, entry.weight));
            }
        }
        for lost in self.recording.lost.iter().filter(|lost| lost.thread == index) {
            losses.push((texts.id("samples lost: the ring was full"), before, before, lost.weight));
        }
        let lines: Vec<&Line> = frames.list.iter().filter_map(|line| self.profile.lines.get(*line as usize)).collect();
        let of_frames: Vec<usize> = frames.list.iter().map(|line| functions.of(self.functions.of(*line))).collect();
        let list: Vec<&Line> =
            functions.list.iter().filter_map(|f| self.functions.list.get(*f as usize).copied()).collect();
        let function_table = json!({
            "length": list.len(),
            "name": list.iter().map(|line| texts.id(&line.function)).collect::<Vec<_>>(),
            "isJS": vec![false; list.len()],
            "relevantForJS": vec![false; list.len()],
            "resource": vec![-1; list.len()],
            "fileName": list.iter().map(|line| (!line.file.is_empty()).then(|| texts.id(&line.file))).collect::<Vec<_>>(),
            "lineNumber": list.iter().map(|line| Some(line.first_line).filter(|n| *n > 0)).collect::<Vec<_>>(),
            "columnNumber": vec![Value::Null; list.len()],
        });
        let process = self.recording.processes.get(thread.process as usize);
        let pid = process.map_or(0, |process| process.pid);
        let name = threads::program(self.recording, thread.process);
        let since = |time: u64| time.saturating_sub(self.recording.settings.start_monotonic) as f64 / 1e6;
        json!({
            "name": if thread.name.is_empty() { &name } else { thread.name },
            "isMainThread": thread.tid == pid,
            "processType": "default",
            "processName": name,
            "processStartupTime": process.map_or(0.0, |process| since(process.start)),
            "processShutdownTime": null,
            "registerTime": 0,
            "unregisterTime": null,
            // One pid may be of several processes one after the other, which the profiler would take for one.
            "pid": format!("{pid}.{}", thread.process),
            "tid": thread.tid,
            "showMarkersInTimeline": true,
            "pausedRanges": [],
            "frameTable": {
                "length": lines.len(),
                "address": vec![-1; lines.len()],
                "inlineDepth": vec![0; lines.len()],
                "category": lines.iter().map(|line| self.category(line)).collect::<Vec<_>>(),
                "subcategory": vec![0; lines.len()],
                "func": of_frames,
                "nativeSymbol": vec![Value::Null; lines.len()],
                "innerWindowID": vec![0; lines.len()],
                "line": lines.iter().map(|line| Some(line.line).filter(|n| *n > 0)).collect::<Vec<_>>(),
                "column": lines.iter().map(|line| line.columns().map(|place| u64::from(place.column) + 1)).collect::<Vec<_>>(),
            },
            "funcTable": function_table,
            "stackTable": {
                "length": stacks.list.len(),
                "prefix": stacks.list.iter().map(|(caller, _)| *caller).collect::<Vec<_>>(),
                "frame": stacks.list.iter().map(|(_, frame)| *frame).collect::<Vec<_>>(),
            },
            "samples": {
                "length": of_samples.len(),
                "weightType": "samples",
                "stack": of_samples,
                "timeDeltas": deltas,
                "weight": weights,
                "threadCPUDelta": cpu,
            },
            "markers": {
                "length": losses.len(),
                "category": vec![3; losses.len()],
                "name": losses.iter().map(|(name, ..)| *name).collect::<Vec<_>>(),
                "startTime": losses.iter().map(|(_, start, ..)| *start as f64 / 1e6).collect::<Vec<_>>(),
                "endTime": losses.iter().map(|(_, _, end, _)| *end as f64 / 1e6).collect::<Vec<_>>(),
                // 1: an interval.
                "phase": vec![1; losses.len()],
                "data": losses.iter().map(|(.., periods)| json!({"type": "Loss", "periods": periods})).collect::<Vec<_>>(),
            },
            "nativeSymbols": {"length": 0, "address": [], "functionSize": [], "libIndex": [], "name": []},
            "resourceTable": {"length": 0, "lib": [], "name": [], "host": [], "type": []},
            "stringArray": texts.list,
        })
    }
}
