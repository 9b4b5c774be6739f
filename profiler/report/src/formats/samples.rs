//! One block of text per sample, leaf first, nothing hidden or merged: for scripts and tests. Its grammar is in
//! docs/recording-format.md.

use crate::resolve::{function_of, stop_text, Moment, Resolver};
use crate::stacks::WAITING;
use std::collections::HashSet;
use std::fmt::Write;
use uunwind_core::frame::Frame;
use uunwind_recording::{Lock, Recording, Sample, KERNEL};
use uunwind_ring::record::{
    SAMPLE_APART, SAMPLE_BLOCKED, SAMPLE_DESYNC, SAMPLE_FACTS_PENDING, SAMPLE_LATE, SAMPLE_NO_PLUGINS,
};
use uunwind_ring::FLAG_NO_REPLAY;

const FLAGS: &[(u8, &str)] = &[
    (SAMPLE_BLOCKED, "blocked"),
    (SAMPLE_LATE, "late"),
    (SAMPLE_APART, "apart"),
    (SAMPLE_FACTS_PENDING, "facts-pending"),
    (SAMPLE_DESYNC, "desync"),
    (SAMPLE_NO_PLUGINS, "no-plugins"),
];

/// Every sample, or those that were chosen by their place in the recording, in its order.
pub fn render(recording: &Recording, resolver: &mut Resolver<'_>, chosen: Option<&HashSet<usize>>) -> Vec<u8> {
    let mut out = String::new();
    let is_chosen = |index: &usize| chosen.is_none_or(|chosen| chosen.contains(index));
    for (index, sample) in recording.all_samples().enumerate().filter(|(index, _)| is_chosen(index)) {
        header(recording, index, sample, &mut out);
        let moment = resolver.moment(sample);
        let process = moment.process;
        let mut callee = None;
        let frames = resolver.frames(sample);
        for (nth, frame) in frames.iter().copied().enumerate() {
            let called = callee.and_then(|callee| resolver.tail_call(moment, callee, frame));
            if let Some(called) = called {
                let _ = writeln!(out, "  (tail call: called {}, which jumped here)", one_line(&called));
            }
            callee = Some(frame);
            match frame {
                Frame::Semantic { plugin: WAITING, name, position, .. } => {
                    let name = resolver.name(process, name).map_or("?", |name| &name.name);
                    let _ = writeln!(out, "  waiting {} number {}", word(name), position as i64);
                }
                Frame::Semantic { plugin: KERNEL, name, .. } => {
                    let name = resolver.name(process, name).map_or("?", |name| &name.name);
                    let _ = writeln!(out, "  kernel {}", word(name));
                }
                Frame::Semantic { plugin, name, position, awaiting } => {
                    let mark = if awaiting { "-awaiting" } else { "" };
                    semantic(resolver, process, (plugin, mark), name, position, &mut out);
                }
                Frame::Window { address, exact, by_frame_pointer, interpreter, by_code, generation, name } => {
                    let named = resolver.name(process, name).filter(|_| name != 0);
                    // A window without a name: other sources of names for code made at run time may have one.
                    let jit = resolver.jit(moment.code(address, exact));
                    let name = named.map(|n| (&n.name, n.code)).or(jit.map(|(code, _)| (&code.name, code.start)));
                    let (function, offset) = name
                        .map_or_else(|| ("?".to_owned(), 0), |(name, at)| (one_line(name), address.wrapping_sub(at)));
                    let _ = write!(out, "  jit {function}+{offset:#x} (window gen {generation}) {address:#x}");
                    let by_code = by_code && found_by_rule(frames.get(nth + 1..).unwrap_or_default());
                    let flags =
                        [(exact, " exact"), (by_frame_pointer, " fp"), (by_code, " code"), (interpreter, " interp")];
                    marks(&flags, &mut out);
                }
                Frame::Omitted { frames } => {
                    let _ = writeln!(out, "  omitted {frames} frames");
                }
                Frame::Native { .. } => {
                    let goes_on = found_by_rule(frames.get(nth + 1..).unwrap_or_default());
                    native(recording, resolver, moment, (frame, goes_on), &mut out);
                }
            }
        }
        out.push('\n');
    }
    out.into_bytes()
}

// Writing to a String cannot fail, so the results of `write!` below are dropped.

fn header(recording: &Recording, index: usize, sample: &Sample, out: &mut String) {
    let thread = recording.threads.get(sample.thread as usize);
    let pid = thread.and_then(|t| recording.processes.get(t.process as usize)).map_or(0, |p| p.pid);
    let comm = thread.map_or("", |t| &t.name);
    let kind = match sample.kind {
        0 => "timer",
        1 => "explicit",
        2 => "fatal",
        3 => "waiting",
        4 => "allocation",
        5 => "lock",
        6 => "mapping",
        _ => "unknown",
    };
    let mut set: Vec<&str> = FLAGS.iter().filter(|(bit, _)| sample.flags & bit != 0).map(|(_, text)| *text).collect();
    if recording.settings.flags & FLAG_NO_REPLAY != 0 {
        set.push("no-replay");
    }
    let _ = writeln!(
        out,
        "sample {} pid {pid} tid {} comm {} time {} weight {} kind {kind} stop {} {} flags {} lock {}",
        index + 1,
        thread.map_or(0, |t| t.tid),
        word(comm),
        sample.time,
        sample.weight,
        sample.stop,
        stop_text(sample).replace(' ', "-"),
        if set.is_empty() { "-".to_owned() } else { set.join(",") },
        match sample.lock() {
            Lock::Unknown => "?",
            Lock::None => "none",
            Lock::Held => "held",
            Lock::Waiting => "waiting",
        },
    );
}

fn semantic(
    resolver: &Resolver<'_>,
    process: u32,
    (plugin, mark): (u8, &str),
    id: u32,
    position: u64,
    out: &mut String,
) {
    let plugin = resolver.plugin(process, plugin);
    let label = resolver.language(&plugin).map_or(&plugin, |language| &language.label);
    let label = word(label) + mark;
    let _ = match resolver.name(process, id) {
        Some(n) => writeln!(
            out,
            "  {label} {} ({}:{}) code {:#x} pos {position} first {}",
            one_line(&function_of(n)),
            one_line(&n.file),
            resolver.line_and_columns(n, position),
            n.code,
            n.first_line
        ),
        None => writeln!(out, "  {label} ? (?:0) code 0x0 pos {position} first 0"),
    };
}

/// Whether the nearest machine frame of these was not found by a frame pointer: its callee has a rule.
pub fn found_by_rule(callers: &[Frame]) -> bool {
    let found = callers.iter().find_map(|frame| match frame {
        Frame::Native { by_frame_pointer, .. } | Frame::Window { by_frame_pointer, .. } => Some(!by_frame_pointer),
        _ => None,
    });
    found.unwrap_or(false)
}

/// `goes_on`: the walk has gone on from the frame by a rule.
fn native(
    recording: &Recording,
    resolver: &mut Resolver<'_>,
    moment: Moment,
    (frame, goes_on): (Frame, bool),
    out: &mut String,
) {
    let Frame::Native { address, exact, by_frame_pointer, interpreter, by_code } = frame else { return };
    let code = moment.code(address, exact);
    let jit = resolver.jit(code);
    let native = resolver.native(code);
    let by_code = (by_code || native.by_code) && goes_on;
    let flags = [(exact, " exact"), (by_frame_pointer, " fp"), (by_code, " code"), (interpreter, " interp")];
    if let (None, Some((code, _))) = (native.object, jit) {
        let (offset, source) = (address.wrapping_sub(code.start), code.source.text());
        let _ = write!(out, "  jit {}+{offset:#x} ({source}) {address:#x}", one_line(&code.name));
        return marks(&flags, out);
    }
    let path = native.object.and_then(|i| recording.objects.get(i as usize)).map(|o| o.path.as_slice());
    let path = path.filter(|p| !p.is_empty()).map_or("?".into(), String::from_utf8_lossy);
    let (symbol, offset) = match native.symbol {
        Some(s) => (one_line(&s.name), native.file_address.wrapping_sub(s.start)),
        None => ("?".to_owned(), native.file_address),
    };
    for inlined in native.symbol.iter().flat_map(|symbol| &symbol.inlined) {
        let place = format!("{}:{}", if inlined.file.is_empty() { "?" } else { &inlined.file }, inlined.line);
        let _ = writeln!(out, "  inlined {} ({})", one_line(&inlined.name), one_line(&place));
    }
    let _ = write!(out, "  native {symbol}+{offset:#x} ({}) {address:#x}", one_line(&path));
    marks(&flags, out);
}

/// Ends a line with the names of the marks that are set.
fn marks(marks: &[(bool, &str)], out: &mut String) {
    for (_, text) in marks.iter().filter(|(set, _)| *set) {
        out.push_str(text);
    }
    out.push('\n');
}

fn one_line(text: &str) -> String {
    super::printable(text)
}

/// A text as one word: white space becomes `_`; an empty one `?`.
fn word(text: &str) -> String {
    if text.is_empty() {
        return "?".to_owned();
    }
    super::printable(&text.replace(char::is_whitespace, "_"))
}
