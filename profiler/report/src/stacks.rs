//! Samples to merged stacks of named frames, with the hide rules applied.

use crate::hide::{is_glue, is_own, is_preload, NativeFrames};
use crate::recording::{JitCode, JitPlace, Sample};
use crate::resolve::{function_of, line_of, stop_text, Resolver};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use uunwind_core::frame::Frame;
use uunwind_core::stop_reason::StopReason;
use uunwind_ring::record::{SAMPLE_BLOCKED, SAMPLE_DESYNC, SAMPLE_FACTS_PENDING, SAMPLE_NO_PLUGINS};

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Machine code.
    Native,
    /// Machine code of a function inlined into the frame below.
    Inlined,
    /// Machine code made at run time, named by its JIT.
    Jit,
    /// A frame of an interpreted language.
    Semantic,
    /// No code: a remark, in square brackets.
    Marker,
}

/// A frame as people see it. Frames with equal content are one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Line {
    /// What it is.
    pub kind: Kind,
    /// Function, qualified and demangled. Without a name: `object+0xoffset` (of the function, if known), and `[unknown code]` where no object is known.
    pub function: String,
    /// Source file; empty when unknown.
    pub file: String,
    /// Executing line; 0 when unknown.
    pub line: u32,
    /// First line of the function; 0 when unknown.
    pub first_line: u32,
    /// Plugin of a semantic frame; else empty.
    pub plugin: String,
    /// Canonical object (index in the recording) of machine code.
    pub object: Option<u32>,
    /// Address of machine code, as in the object's file (in the process, when there is no object).
    pub address: u64,
    /// Whether the function's name was found.
    pub named: bool,
}

impl Line {
    fn marker(text: String) -> Line {
        Line {
            kind: Kind::Marker,
            function: text,
            file: String::new(),
            line: 0,
            first_line: 0,
            plugin: String::new(),
            object: None,
            address: 0,
            named: true,
        }
    }

    /// How the frame reads in a folded stack: semantic frames with file and executing line, others by name.
    pub fn folded(&self) -> String {
        match self.kind {
            Kind::Semantic => format!("{} ({}:{})", self.function, self.file, self.line),
            _ => self.function.clone(),
        }
    }

    /// How the frame reads where stacks are merged by function: semantic frames with their file.
    pub fn merged(&self) -> String {
        match self.kind {
            Kind::Semantic if !self.file.is_empty() => format!("{} ({})", self.function, self.file),
            _ => self.function.clone(),
        }
    }
}

/// Samples of one thread with the same stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Index of the thread in the recording.
    pub thread: u32,
    /// Indices into [`Profile::lines`], leaf first.
    pub lines: Vec<u32>,
    /// Number of samples.
    pub samples: u64,
    /// Their weight, in periods.
    pub weight: u64,
}

/// A recording with names, merged.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Every distinct frame.
    pub lines: Vec<Line>,
    /// Every distinct stack of a thread.
    pub stacks: Vec<Stack>,
}

/// A native or semantic frame of one process, with the object that covered it: what its lines depend on.
type Key = (u32, u64, u64, Owner);

/// What covered the address of a native frame: it may be another thing at another time.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    Nobody,
    /// An object, by its index.
    Object(u32),
    /// A function made at run time, by its index.
    Jit(u32),
}

/// The lines of one recorded frame, innermost first, and what the hide rules need to know of it.
#[derive(Clone)]
struct Shown {
    lines: Rc<[u32]>,
    /// An interpreter's machinery.
    glue: bool,
    /// Of one of our objects.
    own: bool,
    /// Of the preloaded object.
    preload: bool,
}

/// Merges samples into stacks.
pub struct Merger<'m, 'a> {
    resolver: &'m mut Resolver<'a>,
    native_frames: NativeFrames,
    hosts: HashSet<u32>,
    lines: HashMap<Line, u32>,
    list: Vec<Line>,
    shown: HashMap<Key, Shown>,
}

impl<'m, 'a> Merger<'m, 'a> {
    /// A merger for all samples of the resolver's recording.
    pub fn new(resolver: &'m mut Resolver<'a>, native_frames: NativeFrames) -> Merger<'m, 'a> {
        let hosts = hosts(resolver);
        Merger { resolver, native_frames, hosts, lines: HashMap::new(), list: Vec::new(), shown: HashMap::new() }
    }

    /// Merges every sample.
    pub fn profile(mut self) -> Profile {
        let recording = self.resolver.recording();
        let mut merged: HashMap<(u32, Vec<u32>), (u64, u64)> = HashMap::new();
        let blocked = self.intern(Line::marker("[signals blocked]".to_owned()));
        for sample in &recording.samples {
            let stack = self.stack(sample);
            let weight = u64::from(sample.weight.max(1));
            let own = if sample.flags & SAMPLE_BLOCKED != 0 { 1 } else { weight };
            let entry = merged.entry((sample.thread, stack)).or_default();
            *entry = (entry.0 + 1, entry.1 + own);
            if weight > own {
                merged.entry((sample.thread, vec![blocked])).or_default().1 += weight - own;
            }
        }
        let stacks =
            merged.into_iter().map(|((thread, lines), (samples, weight))| Stack { thread, lines, samples, weight });
        let mut stacks: Vec<Stack> = stacks.collect();
        stacks.sort_by(|a, b| (a.thread, &a.lines).cmp(&(b.thread, &b.lines)));
        Profile { lines: self.list, stacks }
    }

    /// The lines of a sample, leaf first, hide rules applied.
    fn stack(&mut self, sample: &Sample) -> Vec<u32> {
        let process = self.resolver.process(sample);
        let frames: Vec<Shown> =
            self.resolver.frames(sample).iter().map(|f| self.show(process, sample.time, f)).collect();
        // Where semantic frames are known to be missing, the machinery is all there is to see.
        let doubtful = sample.flags & (SAMPLE_FACTS_PENDING | SAMPLE_DESYNC | SAMPLE_NO_PLUGINS) != 0;
        let hide_glue = self.native_frames == NativeFrames::Hide && !doubtful;
        let leaf_own = frames.iter().take_while(|f| f.own).count();
        let root_own = frames.len() - frames.iter().rev().take_while(|f| f.own).count();
        let kept = frames.iter().enumerate().filter(|(i, f)| {
            let ours = f.preload || *i < leaf_own || *i >= root_own;
            !(ours || (hide_glue && f.glue))
        });
        let mut lines: Vec<u32> = kept.flat_map(|(_, f)| f.lines.iter().copied()).collect();
        if lines.is_empty() {
            lines.extend(frames.first().iter().flat_map(|f| f.lines.iter().copied()));
        }
        let cut = match sample.reason() {
            Some(StopReason::Complete | StopReason::StartSymbol | StopReason::FramePointerEnd) => None,
            _ => Some(stop_text(sample)),
        };
        if let Some(text) = cut {
            let text = text.strip_prefix("truncated: ").unwrap_or(&text).to_owned();
            lines.push(self.intern(Line::marker(format!("[truncated: {text}]"))));
        }
        lines
    }

    fn show(&mut self, process: u32, time: u64, frame: &Frame) -> Shown {
        match *frame {
            Frame::Semantic { plugin, name, position } => {
                let key = (process, u64::from(name) | 1 << 63, position, Owner::Nobody);
                if let Some(shown) = self.shown.get(&key) {
                    return shown.clone();
                }
                let line = self.semantic(process, plugin, name, position);
                let lines = Rc::from([self.intern(line)]);
                self.remember(key, Shown { lines, glue: false, own: false, preload: false })
            }
            Frame::Window { address, exact, interpreter, generation, name, .. } => {
                // Without a name of its own, by whoever else tells of code made at run time.
                let jit = self.resolver.jit(process, time, address, exact).filter(|_| name == 0);
                let owner = jit.map_or(Owner::Nobody, |(_, place)| Owner::Jit(place.code.unwrap_or(0)));
                let at = address | u64::from(exact) << 62 | u64::from(interpreter) << 61;
                let key = (process, at, 1 << 63 | u64::from(generation) << 32 | u64::from(name), owner);
                if let Some(shown) = self.shown.get(&key) {
                    return shown.clone();
                }
                let line = self.window(process, address, name, jit);
                let lines = Rc::from([self.intern(line)]);
                self.remember(key, Shown { lines, glue: interpreter, own: false, preload: false })
            }
            Frame::Native { address, exact, interpreter, .. } => {
                let owner = match self.resolver.native(process, time, address, exact).object {
                    Some(object) => Owner::Object(object),
                    None => match self.resolver.jit(process, time, address, exact) {
                        Some((_, place)) => Owner::Jit(place.code.unwrap_or(0)),
                        None => Owner::Nobody,
                    },
                };
                let key = (process, address | u64::from(exact) << 62 | u64::from(interpreter) << 61, 0, owner);
                if let Some(shown) = self.shown.get(&key) {
                    return shown.clone();
                }
                let shown = self.native(process, time, address, exact, interpreter);
                self.remember(key, shown)
            }
        }
    }

    fn remember(&mut self, key: Key, shown: Shown) -> Shown {
        self.shown.insert(key, shown.clone());
        shown
    }

    fn semantic(&self, process: u32, plugin: u8, id: u32, position: u64) -> Line {
        let plugin = self.resolver.plugin(process, plugin);
        let mut line = Line { kind: Kind::Semantic, plugin, ..Line::marker(String::new()) };
        match self.resolver.name(process, id) {
            Some(name) => {
                line.function = function_of(name);
                line.file = name.file.clone();
                line.line = line_of(name, position);
                line.first_line = name.first_line;
            }
            None => {
                line.function = format!("[unnamed {} function]", line.plugin);
                line.file = "?".to_owned();
                line.named = false;
            }
        }
        line
    }

    /// A frame in a window: named by whoever registered it, or not at all.
    fn window(&self, process: u32, address: u64, id: u32, jit: Option<(&JitCode, &JitPlace)>) -> Line {
        let line = Line { kind: Kind::Jit, address, ..Line::marker(String::new()) };
        match (self.resolver.name(process, id).filter(|_| id != 0), jit) {
            (Some(name), _) => Line {
                function: name.name.clone(),
                file: name.file.clone(),
                first_line: name.first_line,
                // One function is one line, wherever in it the frame stands.
                address: name.code,
                ..line
            },
            (None, Some((code, place))) => {
                Line { function: code.name.clone(), file: place.file.clone(), line: place.line, ..line }
            }
            (None, None) => Line { function: "[JIT code]".to_owned(), named: false, ..line },
        }
    }

    fn native(&mut self, process: u32, time: u64, address: u64, exact: bool, interpreter: bool) -> Shown {
        let recording = self.resolver.recording();
        let native = self.resolver.native(process, time, address, exact);
        let (object, file_address, start) = (native.object, native.file_address, native.start);
        let symbol = native.symbol.cloned();
        let path = object.and_then(|i| recording.objects.get(i as usize)).map_or(&b""[..], |o| &o.path);
        let base = Line { kind: Kind::Native, object, address: file_address, ..Line::marker(String::new()) };
        let mut lines = Vec::new();
        let mut glue = interpreter;
        match symbol {
            Some(s) => {
                glue = glue || (object.is_some_and(|c| self.hosts.contains(&c)) && is_glue(&s.name));
                for i in &s.inlined {
                    let (function, file, line) = (i.name.clone(), i.file.clone(), i.line);
                    lines.push(Line { kind: Kind::Inlined, function, file, line, ..base.clone() });
                }
                lines.push(Line { function: s.name.clone(), file: s.file.clone(), line: s.line, ..base });
            }
            None if object.is_none() => {
                let line = match self.resolver.jit(process, time, address, exact) {
                    Some((code, place)) => Line {
                        kind: Kind::Jit,
                        function: code.name.clone(),
                        file: place.file.clone(),
                        line: place.line,
                        ..base
                    },
                    None => Line { function: unnamed(b"", 0), named: false, ..base },
                };
                lines.push(line);
            }
            None => {
                let function = unnamed(path, start.unwrap_or(file_address));
                lines.push(Line { function, named: false, ..base });
            }
        }
        let lines = lines.into_iter().map(|l| self.intern(l)).collect();
        Shown { lines, glue, own: is_own(path), preload: is_preload(path) }
    }

    fn intern(&mut self, line: Line) -> u32 {
        let next = self.list.len() as u32;
        *self.lines.entry(line).or_insert_with_key(|line| {
            self.list.push(line.clone());
            next
        })
    }
}

/// Text for machine code without a name, by the address of its function or, if that is unknown, its own.
fn unnamed(path: &[u8], address: u64) -> String {
    if path.is_empty() {
        // Code made at run time: addresses of a process, which mean nothing to anybody else.
        return "[unknown code]".to_owned();
    }
    let path = String::from_utf8_lossy(path);
    format!("{}+{address:#x}", path.rsplit('/').next().unwrap_or(&path))
}

/// Canonical objects in which a frame was marked as an interpreter's.
fn hosts(resolver: &mut Resolver<'_>) -> HashSet<u32> {
    let mut hosts = HashSet::new();
    let mut seen = HashSet::new();
    let recording = resolver.recording();
    for sample in &recording.samples {
        let process = resolver.process(sample);
        for frame in resolver.frames(sample) {
            let Frame::Native { address, exact, interpreter: true, .. } = frame else { continue };
            if !seen.insert((process, address)) {
                continue;
            }
            hosts.extend(resolver.native(process, sample.time, address, exact).object);
        }
    }
    hosts
}
