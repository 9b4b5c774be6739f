//! Threads, their frames, and the objects that those are in.

use super::symbols::{Name, Names};
use super::text::Out;
use crate::threads::{status, Refused};
use uunwind_core::frame::{frame_words, KIND_NATIVE, KIND_OMITTED, KIND_SEMANTIC};
use uunwind_core::memory::Reader;
use uunwind_core::stop_reason::StopReason;
use uunwind_stacks::describe::{describe, until_nul, FrameInfo, BY_CODE, BY_FRAME_POINTER, EXACT, INTERPRETER};
use uunwind_stacks::request::{doubt, doubt_text};
use uunwind_stacks::walk::Whole;

/// Frames of a thread that are written: those nearest the leaf, and the outermost ones.
const INNER: u64 = 192;
const OUTER: u64 = 64;
/// Objects that are listed.
const OBJECTS: usize = 512;

/// Objects that frames were in: the difference between process and file address, and a frame in it.
#[derive(Debug)]
pub struct Objects {
    seen: [(u64, u64); OBJECTS],
    len: usize,
}

impl Objects {
    /// None yet.
    pub fn new() -> Objects {
        Objects { seen: [(0, 0); OBJECTS], len: 0 }
    }

    fn add(&mut self, bias: u64, frame: u64) {
        let is_new = self.seen.iter().take(self.len).all(|seen| seen.0 != bias);
        if let Some(place) = self.seen.get_mut(self.len).filter(|_| is_new) {
            *place = (bias, frame);
            self.len += 1;
        }
    }
}

/// Writes threads.
pub struct Printer<'p, 'r> {
    /// Where to.
    pub out: &'p mut Out,
    /// JSON lines.
    pub json: bool,
    /// What was met.
    pub objects: &'p mut Objects,
    /// Names of native functions.
    pub names: Names,
    /// How memory is read.
    pub reader: &'p mut Reader<'r>,
    /// Where the same goes as JSON lines.
    pub copy: Option<&'p mut Out>,
}

impl Printer<'_, '_> {
    /// Writes a line as JSON or as text, and its copy.
    fn line(&mut self, json: impl Fn(&mut Out), text: impl Fn(&mut Out)) {
        if self.json {
            json(self.out);
        } else {
            text(self.out);
        }
        if let Some(copy) = &mut self.copy {
            json(copy);
        }
    }

    /// A thread and its stack.
    pub fn thread(&mut self, tid: u32, crashed: bool, whole: &Whole<'_>) {
        let count = frames(whole.frames).map(stands_for).sum();
        let name = status::name(tid);
        let doubts = doubt_text(doubt(whole));
        let json = |out: &mut Out| {
            out.begin("thread").with("tid", tid.into()).with_text("name", until_nul(&name));
            out.with_bool("crashed", crashed).with("frames", count as i64);
            out.with("stop", whole.stop.number().into()).with_text("end", whole.stop.text().as_bytes());
            out.with_bool("complete", whole.stop.is_complete() && doubts.is_empty());
            out.with_text("doubt", doubts.as_bytes()).end();
        };
        let text = |out: &mut Out| {
            head(out, tid, &name, crashed);
            out.number(count).text(" frames, ").text(whole.stop.text());
            out.text(if doubts.is_empty() { "" } else { "; " }).text(doubts).text("\n");
        };
        self.line(json, text);
        // Of the frames between, those that the walk left out already have one word.
        let (mut index, mut left_out) = (0, 0);
        for frame in frames(whole.frames) {
            let frames = stands_for(frame);
            let is_between = index >= INNER && index < count.saturating_sub(OUTER);
            if is_omitted(frame) || is_between {
                left_out += frames;
            } else {
                self.omitted(tid, index, left_out);
                left_out = 0;
                self.frame(tid, index, frame);
            }
            index += frames;
        }
        self.omitted(tid, index, left_out);
        self.out.flush();
    }

    /// A thread without a stack.
    pub fn no_stack(&mut self, tid: u32, refused: Refused) {
        let name = status::name(tid);
        let why = match refused.stop {
            Some(stop) => stop.text(),
            None if refused.error == uunwind_core::errno::ESRCH => "it has ended",
            None if refused.error == uunwind_core::errno::EBUSY => {
                "the program uses the signal by which threads are asked"
            }
            None => "the kernel queues no more signals",
        };
        let json = |out: &mut Out| {
            out.begin("thread").with("tid", tid.into()).with_text("name", until_nul(&name));
            out.with_bool("crashed", false).with("frames", 0);
            out.with("stop", refused.stop.map_or(0, StopReason::number).into()).with_text("end", why.as_bytes());
            out.with_bool("complete", false).with_text("doubt", b"").end();
        };
        let text = |out: &mut Out| {
            head(out, tid, &name, false);
            out.text("no stack: ").text(why).text("\n");
        };
        self.line(json, text);
        self.out.flush();
    }

    /// Says that the `frames` before the one with this index are not written, unless there is none.
    fn omitted(&mut self, tid: u32, index: u64, frames: u64) {
        if frames == 0 {
            return;
        }
        let json = |out: &mut Out| {
            out.begin("frame").with("tid", tid.into()).with("index", index.saturating_sub(frames) as i64);
            out.with_text("kind", b"omitted").with("frames", frames as i64).end();
        };
        let text = |out: &mut Out| {
            out.text("  ... ").number(frames).text(" frames left out\n");
        };
        self.line(json, text);
    }

    fn frame(&mut self, tid: u32, index: u64, words: &[u64]) {
        let mut info = FrameInfo::EMPTY;
        if describe(words, &mut info, self.reader).is_none() {
            return;
        }
        if info.file_address != 0 {
            self.objects.add(info.address.wrapping_sub(info.file_address), words.first().copied().unwrap_or(0));
        }
        let lookup = info.address.wrapping_sub(u64::from(info.flags & EXACT == 0));
        let name = if info.file_address != 0 { self.names.find(lookup, self.reader) } else { None };
        let name =
            name.map(|name| Name { offset: name.offset.wrapping_add(info.address.wrapping_sub(lookup)), ..name });
        let (info, name) = (&info, name.as_ref());
        self.line(|out| frame_json(out, (tid, index), info, name), |out| frame_text(out, index, info, name));
    }

    /// The objects that were met, with their build-ids.
    pub fn objects(&mut self) {
        for index in 0..self.objects.len {
            let Some((bias, frame)) = self.objects.seen.get(index).copied() else { break };
            let mut info = FrameInfo::EMPTY;
            if describe(&[frame], &mut info, self.reader).is_none() || info.file_address == 0 {
                continue;
            }
            let id = info.build_id.get(..info.build_id_len as usize).unwrap_or(&[]);
            let file = until_nul(&info.file);
            let json = |out: &mut Out| {
                out.begin("object").with_text("file", file).with_address("bias", bias);
                out.with_octets("build_id", id).end();
            };
            let text = |out: &mut Out| {
                out.text("object ").foreign(file).text(" at ").hex(bias).text(", build-id ");
                match id {
                    [] => out.text("none"),
                    id => out.octets(id),
                };
                out.text("\n");
            };
            self.line(json, text);
        }
    }

    /// Adds a line for people, such as that the threads cannot be listed.
    pub fn note(&mut self, text: &str) {
        if self.json {
            self.out.begin("note").with_text("text", text.as_bytes()).end();
        } else {
            self.out.text(text).text("\n");
        }
    }

    /// The last line.
    pub fn end(&mut self, whole: bool) {
        if self.json {
            self.out.begin("end").with_bool("complete", whole).end();
        } else if whole {
            self.out.text("end of the crash report\n");
        } else {
            self.out.text("the crash report ends here: a fault in it\n");
        }
        self.out.flush();
    }
}

/// A thread, for people.
fn head(out: &mut Out, tid: u32, name: &[u8], crashed: bool) {
    out.text("thread ").number(tid.into()).text(" \"").foreign(until_nul(name)).text("\"");
    out.text(if crashed { ", crashed: " } else { ": " });
}

fn frame_json(out: &mut Out, (tid, index): (u32, u64), info: &FrameInfo, name: Option<&Name>) {
    out.begin("frame").with("tid", tid.into()).with("index", index as i64);
    let (function, file) = (until_nul(&info.function), until_nul(&info.file));
    if info.kind == u32::from(KIND_SEMANTIC) {
        out.with_text("kind", b"semantic").with_text("language", until_nul(&info.language));
        out.with_text("function", function).with_text("file", file).with("line", info.line.into()).end();
        return;
    }
    let native = info.kind == u32::from(KIND_NATIVE);
    out.with_text("kind", if native { b"native" } else { b"window" }).with_address("address", info.address);
    out.with_bool("exact", info.flags & EXACT != 0);
    out.with_bool("by_frame_pointer", info.flags & BY_FRAME_POINTER != 0);
    out.with_bool("by_code", info.flags & BY_CODE != 0);
    out.with_bool("interpreter", info.flags & INTERPRETER != 0);
    if !function.is_empty() {
        out.with_text("function", function);
    }
    if let Some(name) = name {
        out.with_text("function", until_nul(&name.bytes)).with_address("function_offset", name.offset);
    }
    if info.file_address != 0 {
        out.with_text("object", file).with_address("file_address", info.file_address);
        out.with_octets("build_id", info.build_id.get(..info.build_id_len as usize).unwrap_or(&[]));
    }
    out.end();
}

fn frame_text(out: &mut Out, index: u64, info: &FrameInfo, name: Option<&Name>) {
    let (function, file) = (until_nul(&info.function), until_nul(&info.file));
    out.text("  #").number(index).text(" ");
    if info.kind == u32::from(KIND_SEMANTIC) {
        out.foreign(until_nul(&info.language)).text(" ").foreign(function);
        out.text(" (").foreign(file).text(":").number(info.line.into()).text(")\n");
        return;
    }
    out.hex(info.address);
    if !function.is_empty() {
        out.text(" ").foreign(function);
    }
    if let Some(name) = name {
        out.text(" ").foreign(until_nul(&name.bytes)).text("+").hex(name.offset);
    }
    if info.file_address != 0 {
        out.text(" ").foreign(file).text("+").hex(info.file_address);
    }
    let texts =
        [(INTERPRETER, " [interpreter]"), (BY_FRAME_POINTER, " [by frame pointer]"), (BY_CODE, " [rule from code]")];
    for (flag, text) in texts {
        if info.flags & flag != 0 {
            out.text(text);
        }
    }
    out.text("\n");
}

/// The frames of a stack, each with its words.
fn frames(words: &[u64]) -> impl Iterator<Item = &[u64]> {
    let mut rest = words;
    core::iter::from_fn(move || {
        let (frame, after) = rest.split_at_checked(frame_words(*rest.first()?))?;
        rest = after;
        Some(frame)
    })
}

/// Whether this is the word of frames that the walk left out.
fn is_omitted(frame: &[u64]) -> bool {
    frame.first().is_some_and(|word| word >> 56 & 15 == u64::from(KIND_OMITTED))
}

/// How many frames this one is.
fn stands_for(frame: &[u64]) -> u64 {
    let left_out = frame.first().map_or(0, |word| u64::from(*word as u32));
    if is_omitted(frame) {
        left_out
    } else {
        1
    }
}
