//! Samples to merged stacks of named frames, with the hide rules applied.

mod frames;

pub use crate::line::{Kind, Line};

use crate::hide::{shown, Facts, Missing, NativeFrames};
use crate::resolve::{is_cut, stop_text, Moment, Resolver};
use crate::values::Part;
use frames::{Key, Shown};
use std::collections::{BTreeSet, HashMap, HashSet};
use uunwind_core::frame::Frame;
use uunwind_recording::{Held, Sample, KERNEL};
use uunwind_ring::record::{
    SAMPLE_APART, SAMPLE_BLOCKED, SAMPLE_DESYNC, SAMPLE_FACTS_PENDING, SAMPLE_LATE, SAMPLE_NO_PLUGINS,
};

/// Samples of one thread with the same stack and the same labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Index of the thread in the recording.
    pub thread: u32,
    /// Indices into [`Profile::lines`], leaf first.
    pub lines: Box<[u32]>,
    /// Their labels: a set of the recording's ([`Labels`](uunwind_recording::Labels)).
    pub labels: u32,
    /// Number of samples merged into it.
    pub samples: u64,
    /// Weight of these samples, in periods.
    pub weight: u64,
}

/// A sample as it was merged: when, and into which stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Time in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// Index into [`Profile::stacks`].
    pub stack: u32,
    /// Weight, in periods.
    pub weight: u64,
    /// Index of its sample in the recording; [`Entry::NONE`]: it is of none, as the periods of a sample that a remark
    /// stands for.
    pub sample: u32,
}

impl Entry {
    /// There is no sample.
    pub const NONE: u32 = u32::MAX;

    /// Number of its samples: 1 or 0.
    pub fn samples(&self) -> u64 {
        u64::from(self.sample != Entry::NONE)
    }
}

/// A recording with names resolved and stacks merged.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Every distinct frame.
    pub lines: Vec<Line>,
    /// Every distinct stack of a thread.
    pub stacks: Vec<Stack>,
    /// Every sample, in order of time.
    pub entries: Vec<Entry>,
    /// The last stacks of threads by which a signal ended their process, in the order of the recording's.
    pub fatal: Vec<Box<[u32]>>,
    /// What was left out: threads that did nothing but wait in one place.
    pub idle: Idle,
    /// The values of each stack (`crate::values`), where the recording has no samples to tell them from.
    pub values: Option<Vec<Box<[u64]>>>,
    /// Of a recording of allocations: which of the values profiles for other programs have.
    pub part: Part,
    /// Of a recording of allocations: how many of its samples an earlier profile has. These are in use, if they are,
    /// and were allocated before.
    pub since: Option<usize>,
    /// Of a recording of allocations: which of them these are; `None`: all.
    pub held: Option<Held>,
    /// Whether functions have their lines in their names.
    pub by_line: bool,
    /// Whether some samples were left out because they met no condition.
    pub selected: bool,
    /// Objects whose code is an interpreter's own, and the C libraries that it calls, if there is one.
    pub internals: BTreeSet<u32>,
}

/// Threads that were left out because they did nothing but wait in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// Their indices in the recording.
    pub threads: BTreeSet<u32>,
    /// Weight of their samples, in periods.
    pub weight: u64,
    /// The one stack of each.
    pub stacks: Vec<Stack>,
}

impl Profile {
    /// Whether a stack is that of a thread that waits.
    pub fn waits(&self, stack: &Stack) -> bool {
        let leaf = stack.lines.first().and_then(|line| self.lines.get(*line as usize));
        leaf.is_some_and(|line| line.kind == Kind::Waiting)
    }
}

/// Stacks as they are merged.
#[derive(Default)]
struct Stacks {
    /// Samples are merged if the thread, the lines and the labels are equal.
    known: HashMap<(u32, Box<[u32]>, u32), u32>,
    entries: Vec<Entry>,
}

impl Stacks {
    /// `one`: the entry, whose stack is determined here.
    fn add(&mut self, (thread, labels): (u32, u32), lines: Box<[u32]>, one: Entry) {
        let next = self.known.len() as u32;
        let stack = *self.known.entry((thread, lines, labels)).or_insert(next);
        self.entries.push(Entry { stack, ..one });
    }

    /// The stacks by thread, lines and labels, and the samples by time.
    fn sorted(mut self) -> (Vec<Stack>, Vec<Entry>) {
        let mut order: Vec<_> = self.known.into_iter().collect();
        order.sort_unstable();
        let mut place = vec![0; order.len()];
        let mut stacks = Vec::with_capacity(order.len());
        for (new, ((thread, lines, labels), old)) in (0..).zip(order) {
            stacks.push(Stack { thread, lines, labels, samples: 0, weight: 0 });
            if let Some(place) = place.get_mut(old as usize) {
                *place = new;
            }
        }
        for entry in &mut self.entries {
            entry.stack = place.get(entry.stack as usize).copied().unwrap_or(0);
            if let Some(stack) = stacks.get_mut(entry.stack as usize) {
                (stack.samples, stack.weight) = (stack.samples + entry.samples(), stack.weight + entry.weight);
            }
        }
        self.entries.sort_by_key(|entry| entry.time);
        (stacks, self.entries)
    }
}

/// Process, stack, stop reason, flags and era of a sample.
type Met = (u32, u32, u16, u8, usize);

/// Merges samples into stacks.
pub struct Merger<'m, 'a> {
    resolver: &'m mut Resolver<'a>,
    native_frames: NativeFrames,
    /// Whether what would be hidden is marked instead.
    marking: bool,
    hosts: Hosts,
    lines: HashMap<Line, u32>,
    list: Vec<Line>,
    shown: HashMap<Key, Shown>,
    /// The lines of stacks that were met.
    known: HashMap<Met, Box<[u32]>>,
    /// For each thread, the outermost line of its last whole stack so far.
    roots: HashMap<u32, u32>,
}

/// The line of samples that the kernel took in uu's own handler.
pub const IN_HANDLER: &str = "[uu's handler]";

impl<'m, 'a> Merger<'m, 'a> {
    /// A merger for all samples of the resolver's recording.
    pub fn new(resolver: &'m mut Resolver<'a>, native_frames: NativeFrames) -> Merger<'m, 'a> {
        let hosts = hosts(resolver);
        Merger {
            resolver,
            native_frames,
            marking: false,
            hosts,
            lines: HashMap::new(),
            list: Vec::new(),
            shown: HashMap::new(),
            known: HashMap::new(),
            roots: HashMap::new(),
        }
    }

    /// A merger that hides no native frame, and marks those that it would hide ([`Line::glue`]).
    pub fn marking_glue(resolver: &'m mut Resolver<'a>) -> Merger<'m, 'a> {
        Merger { marking: true, ..Merger::new(resolver, NativeFrames::Show) }
    }

    /// Merges every sample.
    pub fn profile(mut self) -> Profile {
        let recording = self.resolver.recording();
        let mut merged = Stacks::default();
        let markers = ["[signals blocked]", "[late tick]"].map(|text| self.intern(Line::marker(text.to_owned())));
        for ((index, sample), weight) in (0..).zip(&recording.samples).zip(recording.weights()) {
            let of_events = recording.is_alloc() || recording.is_lock();
            let stack = if of_events { self.known_stack(sample) } else { self.stack(sample) };
            let [blocked, late] = markers;
            let outside = match sample.flags {
                flags if flags & SAMPLE_BLOCKED != 0 => Some(blocked),
                flags if flags & SAMPLE_LATE != 0 => Some(late),
                _ => None,
            };
            let own = if outside.is_some() { 1 } else { weight };
            let entry = Entry { time: sample.time, stack: 0, weight: own, sample: index };
            let of = (sample.thread, recording.labels.at(sample.thread, sample.time));
            merged.add(of, stack.into(), entry);
            if let Some(marker) = outside.filter(|_| weight > own) {
                merged.add(of, Box::from([marker]), Entry { weight: weight - own, sample: Entry::NONE, ..entry });
            }
        }
        for start in &recording.starts {
            let thread = recording.threads.get(start.thread as usize);
            let process = thread.and_then(|thread| recording.processes.get(thread.process as usize));
            let is_main = thread.zip(process).is_some_and(|(thread, process)| thread.tid == process.pid);
            let text = if is_main { "[process start]" } else { "[thread start]" };
            let line = self.intern(Line::marker(text.to_owned()));
            let weight = start.weight.into();
            let entry = Entry { time: start.time, stack: 0, weight, sample: Entry::NONE };
            let of = (start.thread, recording.labels.at(start.thread, start.time));
            merged.add(of, Box::from([line]), entry);
        }
        let (stacks, entries) = merged.sorted();
        let fatal = recording.fatal.iter().map(|sample| self.stack(sample).into()).collect();
        let internals = self.internals();
        Profile { lines: self.list, stacks, entries, fatal, internals, ..Profile::default() }
    }

    /// Objects of interpreters, and those of the C library.
    fn internals(&self) -> BTreeSet<u32> {
        if self.hosts.is_empty() {
            return BTreeSet::new();
        }
        let objects = self.resolver.recording().objects.iter();
        let c_libraries = (0..).zip(objects).filter(|(_, object)| is_c_library(&object.path));
        self.hosts.keys().copied().chain(c_libraries.map(|(index, _)| index)).collect()
    }

    /// As [`Merger::stack`], for recordings with very many samples of few stacks: where nothing was loaded or made at
    /// run time since the same stack was last met, its lines are the same.
    fn known_stack(&mut self, sample: &Sample) -> Vec<u32> {
        let moment = self.resolver.moment(sample);
        let key = (moment.process, sample.stack, sample.stop, sample.flags, self.resolver.era(moment));
        if let Some(lines) = self.known.get(&key) {
            return lines.to_vec();
        }
        let lines = self.stack(sample);
        self.known.insert(key, lines.clone().into());
        lines
    }

    /// The lines of a sample, leaf first, hide rules applied.
    fn stack(&mut self, sample: &Sample) -> Vec<u32> {
        let moment = self.resolver.moment(sample);
        let mut frames = self.resolver.frames(sample);
        let waiting = self.waiting(moment, &mut frames);
        let kernel = self.kernel(moment, &mut frames);
        let frames: Vec<Shown> = frames.into_iter().map(|f| self.show(moment, f)).collect();
        if sample.flags & SAMPLE_APART != 0 && frames.first().is_some_and(|frame| frame.facts.own) {
            // The time is uu's, also that of the kernel on its behalf: no function of the program is charged with it.
            let marker = self.intern(Line::marker(IN_HANDLER.to_owned()));
            return [marker].into_iter().chain(self.roots.get(&sample.thread).copied()).collect();
        }
        let missing = match sample.flags {
            flags if flags & (SAMPLE_DESYNC | SAMPLE_NO_PLUGINS) != 0 => Missing::Semantic,
            flags if flags & SAMPLE_FACTS_PENDING != 0 => Missing::Unanalysed,
            _ => Missing::Nothing,
        };
        let facts: Vec<Facts> = frames.iter().map(|f| f.facts).collect();
        let kept = frames.iter().zip(shown(&facts, self.native_frames, missing)).filter(|(_, shown)| *shown);
        let mut lines: Vec<u32> = kept.flat_map(|(f, _)| f.lines.iter().copied()).collect();
        if self.marking {
            lines = self.mark_glue(&frames, &facts, missing);
        }
        if lines.is_empty() {
            lines.extend(frames.first().iter().flat_map(|f| f.lines.iter().copied()));
        }
        let cut = is_cut(sample).then(|| match sample.flags & SAMPLE_APART {
            0 => stop_text(sample),
            _ => "no user stack of this moment".to_owned(),
        });
        if let Some(text) = cut {
            let text = text.strip_prefix("truncated: ").unwrap_or(&text).to_owned();
            lines.push(self.intern(Line::marker(format!("[truncated: {text}]"))));
        } else if let Some(root) = lines.last() {
            self.roots.insert(sample.thread, *root);
        }
        lines.splice(0..0, waiting);
        lines.splice(0..0, kernel);
        lines
    }

    /// Takes away the frames of the kernel, and returns their lines.
    fn kernel(&mut self, moment: Moment, frames: &mut Vec<Frame>) -> Vec<u32> {
        let is_other = |frame: &Frame| !matches!(frame, Frame::Semantic { plugin: KERNEL, .. });
        let user = frames.iter().position(is_other).unwrap_or(frames.len());
        let mut lines = Vec::with_capacity(user);
        for frame in frames.drain(..user) {
            let Frame::Semantic { name, .. } = frame else { continue };
            let name = self.resolver.name(moment.process, name);
            let function = format!("{} [k]", name.map_or("?", |name| &name.name));
            let file = name.map_or(String::new(), |name| name.file.clone());
            lines.push(self.intern(Line { kind: Kind::Kernel, file, ..Line::marker(function) }));
        }
        lines
    }

    /// Takes away the frame that says what the thread waits in, and returns its line.
    fn waiting(&mut self, moment: Moment, frames: &mut Vec<Frame>) -> Option<u32> {
        let Some(Frame::Semantic { plugin: WAITING, name, .. }) = frames.first().copied() else { return None };
        frames.remove(0);
        let name = self.resolver.name(moment.process, name).map_or("?", |name| &name.name);
        let text = format!("[waiting in {name}]");
        Some(self.intern(Line { kind: Kind::Waiting, ..Line::marker(text) }))
    }

    /// The lines of all frames but uu's own; those that are hidden by default are marked.
    fn mark_glue(&mut self, frames: &[Shown], facts: &[Facts], missing: Missing) -> Vec<u32> {
        let by_default = shown(facts, NativeFrames::Hide, missing);
        // A stack of glue only is shown by its innermost frame.
        let none = !by_default.contains(&true);
        let mut lines = Vec::new();
        let kept = shown(facts, NativeFrames::Show, missing);
        for (at, frame) in frames.iter().enumerate().filter(|(at, _)| kept.get(*at) == Some(&true)) {
            let glue = by_default.get(at) != Some(&true) && !(none && at == 0);
            for line in frame.lines.iter() {
                let marked = self.list.get(*line as usize).filter(|_| glue).map(|line| Line { glue, ..line.clone() });
                lines.push(marked.map_or(*line, |marked| self.intern(marked)));
            }
        }
        lines
    }

    fn intern(&mut self, line: Line) -> u32 {
        let next = self.list.len() as u32;
        *self.lines.entry(line).or_insert_with_key(|line| {
            self.list.push(line.clone());
            next
        })
    }
}

/// Whether an object is a part of a C library, or the kernel's part of a process.
fn is_c_library(path: &[u8]) -> bool {
    const LIBRARIES: [&str; 9] =
        ["libc.so", "libc-", "libm.so", "libm-", "libpthread", "ld-linux", "ld-musl", "ld-2", "[vdso]"];
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    LIBRARIES.iter().any(|library| name.starts_with(library.as_bytes()))
}

/// The plugin of the frame that says what a thread waits in (docs/recording-format.md).
pub const WAITING: u8 = 0;

/// Canonical objects with a frame that was marked as an interpreter's, and the plugins whose frames it hosted; none: it
/// was never seen with such frames.
type Hosts = HashMap<u32, BTreeSet<String>>;

fn hosts(resolver: &mut Resolver<'_>) -> Hosts {
    let mut hosts = Hosts::new();
    let mut seen = HashSet::new();
    let recording = resolver.recording();
    let mut met = HashSet::new();
    for sample in recording.all_samples() {
        let moment = resolver.moment(sample);
        let process = moment.process;
        // All that it shows was seen with the first one.
        if !met.insert((process, sample.stack)) {
            continue;
        }
        // The semantic frames of an activation come just before the native frame that hosts them.
        let mut hosted = None;
        for frame in resolver.frames(sample) {
            let before = hosted.take();
            match frame {
                Frame::Semantic { plugin, .. } if !matches!(plugin, WAITING | KERNEL) => hosted = Some(plugin),
                Frame::Native { address, exact, interpreter: true, .. } if seen.insert((process, address, before)) => {
                    let Some(object) = resolver.native(moment.code(address, exact)).object else { continue };
                    let plugins = hosts.entry(object).or_default();
                    plugins.extend(before.map(|plugin| resolver.plugin(process, plugin)));
                }
                _ => {}
            }
        }
    }
    hosts
}
