//! reader - the same as ../reader-c in Rust, with nothing but the standard library: reads a recording by
//! docs/recording-format.md, and prints its processes, threads and samples, and how often each stack was met, outermost
//! frame first.
//!
//! ```text
//! rustc --edition 2021 -O -o reader-rust examples/reader-rust/reader.rs
//! target/uu/bin/uu record -q -r 499 -o compiler.uu -- rustc --edition 2021 -o again examples/reader-rust/reader.rs
//! ./reader-rust compiler.uu
//! ```
//!
//! A file may hold anything: what is wrong ends the program with the place and the reason.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

/// Frames of a stack: those of a thread, and those of the kernel.
const DEEPEST: u32 = 4161 + 512;

type Read<T> = Result<T, String>;

/// What is left of a file or a payload, and where it begins in the file.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn wrong<T>(&self, why: &str) -> Read<T> {
        Err(format!("byte {}: {why}", self.at))
    }
    fn raw(&mut self, len: usize) -> Read<&'a [u8]> {
        let Some((taken, rest)) = self.bytes.split_at_checked(len) else {
            return self.wrong("the section or the file ends too early");
        };
        (self.bytes, self.at) = (rest, self.at + len);
        Ok(taken)
    }
    fn u32(&mut self) -> Read<u32> {
        Ok(self.raw(4)?.iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte)))
    }
    fn u64(&mut self) -> Read<u64> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }
    fn bytes(&mut self) -> Read<&'a [u8]> {
        let len = self.u32()?;
        self.raw(len as usize)
    }
    fn text(&mut self) -> Read<String> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
    fn below(&mut self, count: usize) -> Read<usize> {
        match self.u32()? as usize {
            index if index < count => Ok(index),
            _ => self.wrong("a number of something that was not there before"),
        }
    }
}

#[derive(Default)]
struct Process {
    pid: u32,
    path: String,
    threads: u64,
    samples: u64,
    objects: Vec<usize>,
    second: Vec<Second>,
}

/// A second mapping; `original` is 0 where one has ended.
struct Second {
    time: u64,
    start: u64,
    end: u64,
    original: u64,
}

struct Object<'a> {
    process: usize,
    time: u64,
    bias: u64,
    start: u64,
    end: u64,
    key: u64,
    id: &'a [u8],
    path: &'a [u8],
}

struct Node {
    parent: usize,
    depth: u32,
    word: u64,
    second: u64,
}

struct Sample {
    thread: usize,
    node: usize,
    time: u64,
}

#[derive(Default)]
struct Recording<'a> {
    processes: Vec<Process>,
    /// The process of each thread.
    threads: Vec<usize>,
    objects: Vec<Object<'a>>,
    /// By process and id. A name of its own, and what is shown if there is none.
    names: HashMap<(usize, u32), (String, String)>,
    nodes: Vec<Node>,
    samples: Vec<Sample>,
    /// By object and address in the file.
    symbols: HashMap<(usize, u64), String>,
    /// Names of code made at run time by process and address, each from a time on.
    jit: HashMap<(usize, u64), BTreeMap<u64, Option<String>>>,
    /// Number of samples, from the end section.
    expected: Option<u64>,
    /// The object that stands for the file of each.
    files: Vec<usize>,
}

impl<'a> Recording<'a> {
    fn read(bytes: &'a [u8]) -> Read<Recording<'a>> {
        let mut file = Input { bytes, at: 0 };
        let mut recording = Recording::default();
        if file.raw(8)? != b"uu-rec01" || file.u32()? != 1 {
            return file.wrong("no recording of uu, or another version of the format than 1");
        }
        file.u32()?;
        while !file.bytes.is_empty() {
            let (from, whole) = (file.at, file.bytes);
            let kind = file.u32()?;
            let payload = file.bytes()?;
            let sum = file.u32()?;
            if checksum(&whole[..8 + payload.len()]) != sum {
                return Err(format!("byte {from}: a section with a wrong checksum"));
            }
            recording.section(kind, &mut Input { bytes: payload, at: from + 8 })?;
        }
        match recording.expected {
            None => return file.wrong("the recording was cut: it has no end section"),
            Some(samples) if samples != recording.samples.len() as u64 => return file.wrong("samples are missing"),
            Some(_) => {}
        }
        recording.name_files();
        Ok(recording)
    }

    fn section(&mut self, kind: u32, r: &mut Input<'a>) -> Read<()> {
        match kind {
            2 => {
                let pid = r.u32()?;
                r.raw(4 + 4 + 8)?;
                self.processes.push(Process { pid, path: r.text()?, ..Process::default() });
            }
            3 => {
                let process = r.below(self.processes.len())?;
                self.processes[process].threads += 1;
                self.threads.push(process);
            }
            5 => {
                let process = r.below(self.processes.len())?;
                let (time, bias, start, end, key) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?);
                self.processes[process].objects.push(self.objects.len());
                self.objects.push(Object { process, time, bias, start, end, key, id: r.bytes()?, path: r.bytes()? });
            }
            6 => {
                let key = (r.below(self.processes.len())?, r.u32()?);
                r.raw(4 + 8 + 8)?;
                let line = r.u32()?;
                r.u32()?;
                let (name, file) = (r.text()?, r.text()?);
                let last = if file.starts_with(['[', '<']) { &file } else { file.rsplit('/').next().unwrap_or("") };
                self.names.insert(key, (name, format!("function <{last}:{line}>")));
            }
            7 => {
                for _ in 0..r.u32()? {
                    let parent = r.below(self.nodes.len() + 1)?;
                    let depth = 1 + parent.checked_sub(1).map_or(0, |parent| self.nodes[parent].depth);
                    if depth > DEEPEST {
                        return r.wrong("a stack of too many frames");
                    }
                    self.nodes.push(Node { parent, depth, word: r.u64()?, second: r.u64()? });
                }
            }
            8 => {
                for _ in 0..r.u32()? {
                    let (thread, node) = (r.below(self.threads.len())?, r.below(self.nodes.len() + 1)?);
                    let time = r.u64()?;
                    // Weight, stop reason, kind, flags. A fatal sample stands for no time.
                    if r.raw(8)?[6] != 2 {
                        self.processes[self.threads[thread]].samples += 1;
                        self.samples.push(Sample { thread, node, time });
                    }
                }
            }
            // Samples whose stacks are copies, which this reader does not walk: they have no frames here.
            19 => {
                for _ in 0..r.u32()? {
                    let (thread, beside) = (r.below(self.threads.len())?, r.u32()?);
                    let time = r.u64()?;
                    let is_fatal = r.raw(8)?[6] == 2;
                    r.bytes()?;
                    if beside == 0 && !is_fatal {
                        self.processes[self.threads[thread]].samples += 1;
                        self.samples.push(Sample { thread, node: 0, time });
                    }
                }
            }
            12 => {
                r.raw(8 + 4 + 4 + 4 + 8 + 8)?;
                self.expected = Some(r.u64()?);
            }
            13 => self.symbols(r)?,
            15 => self.jit(r)?,
            22 => {
                for _ in 0..r.u32()? {
                    let process = r.below(self.processes.len())?;
                    let (time, start, end, original) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
                    self.processes[process].second.push(Second { time, start, end, original });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn symbols(&mut self, r: &mut Input<'a>) -> Read<()> {
        self.symbols.clear();
        for _ in 0..r.u32()? {
            (r.u32()?, r.bytes()?);
        }
        for _ in 0..r.u32()? {
            let key = (r.below(self.objects.len())?, r.u64()?);
            self.symbols.insert(key, r.text()?);
            (r.u64()?, r.bytes()?, r.u32()?);
            for _ in 0..r.u32()? {
                (r.bytes()?, r.bytes()?, r.u32()?);
            }
        }
        Ok(())
    }

    fn jit(&mut self, r: &mut Input<'a>) -> Read<()> {
        self.jit.clear();
        let mut codes = vec![None];
        for _ in 0..r.u32()? {
            r.raw(4 + 8 + 8)?;
            codes.push(Some(r.text()?));
        }
        for _ in 0..r.u32()? {
            let (process, address, time) = (r.u32()? as usize, r.u64()?, r.u64()?);
            let code = codes[r.below(codes.len())?].clone();
            self.jit.entry((process, address)).or_default().insert(time, code);
            (r.bytes()?, r.u32()?);
        }
        Ok(())
    }

    /// Finds the object that stands for the file of each ("Addresses to objects" in the document).
    fn name_files(&mut self) {
        let (mut named, mut in_process) = (HashMap::new(), HashMap::new());
        let mut shared: HashMap<u64, bool> = HashMap::new();
        for (index, o) in self.objects.iter().enumerate().filter(|(_, o)| !o.path.is_empty()) {
            named.entry(o.key).or_insert(index);
            *shared.entry(o.key).or_default() |= *in_process.entry((o.process, o.key)).or_insert(o.path) != o.path;
        }
        let mut first = HashMap::new();
        for (index, o) in self.objects.iter().enumerate() {
            let by_path = o.id.is_empty() || shared.get(&o.key) == Some(&true);
            let identity = (o.key, o.id, if by_path { o.path } else { &[] });
            let first = *first.entry(identity).or_insert(index);
            let has_path = !self.objects[first].path.is_empty();
            self.files.push(if has_path { first } else { named.get(&o.key).copied().unwrap_or(first) });
        }
        for process in &mut self.processes {
            process.objects.sort_by_key(|index| self.objects[*index].time);
            process.second.sort_by_key(|second| second.time);
        }
    }

    /// The object that covers an address of a process at a time.
    fn covering(&self, process: usize, address: u64, time: u64) -> Option<usize> {
        let all = self.processes[process].objects.iter().copied();
        let mut covering = all.filter(|i| (self.objects[*i].start..self.objects[*i].end).contains(&address)).peekable();
        let earliest = covering.peek().copied();
        covering.take_while(|i| self.objects[*i].time <= time).last().or(earliest)
    }

    /// The address in an object whose code a second mapping has at an address.
    fn original(&self, process: usize, address: u64, time: u64) -> Option<u64> {
        let seen = self.processes[process].second.iter().take_while(|second| second.time <= time);
        let second = seen.filter(|second| (second.start..second.end).contains(&address)).last()?;
        (second.original != 0).then(|| (address - second.start).wrapping_add(second.original))
    }

    /// The name of a frame; `None` if it is on no stack.
    fn frame(&self, node: &Node, process: usize, time: u64) -> Option<String> {
        let (kind, flag) = (node.word >> 56 & 15, node.word >> 60 & 1 == 1);
        let address = node.word & ((1 << 56) - 1);
        let name = |id: u64| self.names.get(&(process, id as u32));
        match kind {
            2 if flag => return None,
            2 => return Some(name(node.word).map_or("?", |(name, or)| if name.is_empty() { or } else { name }).into()),
            4 => return Some(format!("[{} frames omitted]", address as u32)),
            3 if node.second as u32 != 0 && name(node.second).is_some() => return Some(name(node.second)?.0.clone()),
            1 | 3 => {}
            _ => return Some("[frame of unknown kind]".to_owned()),
        }
        // A return address may be the next function's.
        let lookup = if flag { address } else { address.saturating_sub(1) };
        let (mut address, mut lookup) = (address, lookup);
        let mut found = self.covering(process, lookup, time).filter(|_| kind == 1);
        if found.is_none() {
            let code = self.jit.get(&(process, lookup)).and_then(|places| places.range(..=time).next_back()?.1.clone());
            if code.is_some() {
                return code;
            }
            if let Some(original) = self.original(process, lookup, time).filter(|_| kind == 1) {
                found = self.covering(process, original, time);
                address = if found.is_some() { original.wrapping_add(address - lookup) } else { address };
                lookup = original;
            }
        }
        let Some(found) = found else { return Some(format!("{address:#x}")) };
        let (bias, file) = (self.objects[found].bias, self.files[found]);
        let symbol = self.symbols.get(&(file, lookup.wrapping_sub(bias))).filter(|name| !name.is_empty());
        let path = Some(self.objects[file].path).filter(|path| !path.is_empty()).unwrap_or(b"?");
        let place = || format!("{}+{:#x}", String::from_utf8_lossy(path), address.wrapping_sub(bias));
        Some(symbol.cloned().unwrap_or_else(place))
    }

    fn stack(&self, sample: &Sample) -> String {
        let (mut frames, mut node) = (Vec::new(), sample.node);
        while let Some(index) = node.checked_sub(1) {
            let name = self.frame(&self.nodes[index], self.threads[sample.thread], sample.time);
            // What would break the line is replaced.
            frames.extend(name.map(|name| name.replace(';', ":").replace(|c: char| c.is_control(), "?")));
            node = self.nodes[index].parent;
        }
        frames.reverse();
        if frames.is_empty() {
            "[no frames]".to_owned()
        } else {
            frames.join(";")
        }
    }
}

/// CRC-32 of IEEE 802.3, bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32| sum >> 1 ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)))
}

fn main() {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: reader RECORDING");
        std::process::exit(2);
    };
    let bytes = std::fs::read(&path).map_err(|e| e.to_string());
    let done = bytes.and_then(|bytes| print(&Recording::read(&bytes)?).map_err(|e| e.to_string()));
    if let Err(why) = done {
        eprintln!("reader: {}, {why}", path.to_string_lossy());
        std::process::exit(1);
    }
}

fn print(recording: &Recording) -> std::io::Result<()> {
    let Recording { processes, threads, samples, .. } = recording;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    writeln!(out, "{} processes, {} threads, {} samples", processes.len(), threads.len(), samples.len())?;
    for Process { pid, threads, samples, path, .. } in processes {
        writeln!(out, "process {pid}: {threads} threads, {samples} samples, {path:?}")?;
    }
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    samples.iter().for_each(|sample| *stacks.entry(recording.stack(sample)).or_default() += 1);
    writeln!(out)?;
    stacks.iter().try_for_each(|(stack, count)| writeln!(out, "{stack} {count}"))?;
    out.flush()
}
