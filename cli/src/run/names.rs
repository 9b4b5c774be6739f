//! Names and lines for a crash report, in the process that the crashed one starts for them (`uu crash-names PID`).
//!
//! Standard input is a copy of the report in JSON lines, standard output its destination, where the report is already.
//! The crashed process waits meanwhile, so that its files, mappings and memory can be looked at.

use super::found::{Frame, Report, Thread};
use crate::{layout, record};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use serde_json::json;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uunwind_built_in::HALVES;
use uunwind_elf::{key_of, maps, Image};
use uunwind_recorder::naming;
use uunwind_recorder::thread_names::{half, Timed};
use uunwind_recording::{Symbol, Symbols};
use uunwind_remote::language_names::Now;
use uunwind_remote::memory::Memory;
use uunwind_remote::plugins::{Answer, Plugins};
use uunwind_report::formats::printable;
use uunwind_symbolize::Question;

/// The subcommand by which a crashed process starts uu.
pub const CRASH_NAMES: &str = "crash-names";
/// After this time the crashed process waits no more; it waits a little longer.
const TIME: Duration = Duration::from_secs(14);
/// Longest report that is read, in bytes.
const REPORT: u64 = 64 << 20;
/// Longest time that a look at the names of threads takes.
const LOOK: Duration = Duration::from_secs(1);
/// Longest time without room at the destination, in milliseconds.
const STALL: i64 = 2000;

/// Adds names to the report. Whatever fails leaves the report as it is.
pub fn serve(pid: Option<u32>) {
    std::thread::spawn(|| {
        uunwind_clock::sleep(TIME);
        std::process::exit(1);
    });
    let (Some(pid), Ok(input)) = (pid, io::stdin().as_fd().try_clone_to_owned()) else { return };
    let (mut text, mut input) = (String::new(), File::from(input));
    if input.rewind().is_err() || input.take(REPORT).read_to_string(&mut text).is_err() {
        return;
    }
    let report = Report::read(&text);
    let symbols = symbols(pid, &report);
    let names = thread_names(pid, &report);
    let text = match report.wants_json {
        true => as_json(&report, &symbols, &names),
        false => as_text(&report, &symbols, &names),
    };
    write_all(io::stdout().as_fd(), text.as_bytes());
}

/// Looks functions up, where an object's file is the one that the process has mapped.
fn symbols(pid: u32, report: &Report) -> Symbols {
    let inodes: HashMap<Vec<u8>, u64> = match maps::of(pid) {
        Ok(mappings) => mappings.map(|mapping| (mapping.name, mapping.inode)).collect(),
        Err(_) => HashMap::new(),
    };
    let is_mapped = |path: &str| {
        let inode = inodes.get(path.as_bytes());
        inode.is_some_and(|inode| std::fs::metadata(path).is_ok_and(|file| file.ino() == *inode))
    };
    let questions: Vec<Question> = report
        .objects
        .iter()
        .zip(0..)
        .filter_map(|(object, index)| {
            // Without a build-id, nothing but the inode says that it is the same file.
            if object.build_id.is_empty() && !is_mapped(&object.file) {
                return None;
            }
            let frames = report.threads.iter().flat_map(|thread| &thread.frames);
            let places = frames.filter(|frame| frame.object.as_ref() == Some(&object.file));
            let mut addresses: Vec<u64> = places.map(Frame::lookup).collect();
            addresses.sort_unstable();
            addresses.dedup();
            Some(Question {
                object: index,
                build_id: object.build_id.clone(),
                facts_key: Image::open(Path::new(&object.file)).map_or(0, |image| key_of(&image).0),
                files: vec![PathBuf::from(&object.file)],
                folders: Vec::new(),
                addresses,
            })
        })
        .collect();
    let launcher = std::env::current_exe().map(|exe| vec![exe.into_os_string(), record::NAMING_SERVER.into()]);
    naming::name(&launcher.unwrap_or_default(), &questions, |_| {}).0
}

/// What languages call the threads, by their ids.
fn thread_names(pid: u32, report: &Report) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    // In another pid namespace's /proc, the number may be another process's.
    let (Ok(()), Ok(layout)) = (layout::check_proc(), layout::find()) else { return names };
    let launcher = vec![layout.command.into_os_string(), record::PLUGIN_SERVER.into()];
    let mut plugins = Plugins::open(uunwind_loader::find(&layout.plugins, None, launcher), HALVES);
    let memory = Memory::of(pid);
    let memory = Timed::new(Now(&memory), LOOK);
    for object in &report.objects {
        let path = Path::new(&object.file);
        let Ok(image) = Image::open(path) else { continue };
        let Answer::Claimed(facts) = plugins.facts(key_of(&image).0, path, path) else { continue };
        let Some(half) = plugins.names.get(usize::from(facts.plugin)).and_then(|name| half(name.as_bytes())) else {
            continue;
        };
        let bytes: Vec<u8> = facts.words.iter().flat_map(|word| word.to_ne_bytes()).take(facts.len).collect();
        names.extend(half.thread_names(&bytes, object.bias, &memory, &mut Vec::new()));
    }
    names
}

/// A function at a frame: innermost first, those that were inlined there and the one that contains them.
struct Named<'s> {
    function: &'s str,
    file: &'s str,
    line: u32,
}

fn named<'s>(frame: &Frame, report: &Report, symbols: &'s Symbols) -> Vec<Named<'s>> {
    let index = report.objects.iter().position(|object| Some(&object.file) == frame.object.as_ref());
    let is_it = |symbol: &&Symbol| Some(symbol.object as usize) == index && symbol.address == frame.lookup();
    let Some(symbol) = symbols.entries.iter().find(is_it).filter(|symbol| !symbol.name.is_empty()) else {
        return Vec::new();
    };
    let inlined = symbol.inlined.iter();
    let own = Named { function: &symbol.name, file: &symbol.file, line: symbol.line };
    inlined.map(|i| Named { function: &i.name, file: &i.file, line: i.line }).chain([own]).collect()
}

fn as_text(report: &Report, symbols: &Symbols, names: &HashMap<u32, String>) -> String {
    let mut out = String::from("\nwith names and lines");
    if report.threads.iter().flat_map(|thread| &thread.frames).any(|frame| frame.interpreter) {
        out += ", without the interpreter's own frames";
    }
    out += ":\n";
    // Writing to a String cannot fail.
    for (threads, stack) in alike(report, symbols) {
        let name = |thread: &Thread| names.get(&thread.tid).unwrap_or(&thread.name).clone();
        let titles: Vec<_> =
            threads.iter().map(|thread| format!("{} \"{}\"", thread.tid, printable(&name(thread)))).collect();
        let many = if threads.len() == 1 { "thread" } else { "threads" };
        let crashed = if threads.iter().any(|thread| thread.crashed) { ", crashed" } else { "" };
        let _ = writeln!(out, "{many} {}{crashed}", titles.join(", "));
        stack.iter().for_each(|line| {
            let _ = writeln!(out, "    {}", printable(line));
        });
    }
    out += "end of the names\n";
    out
}

/// Threads whose stacks look the same, in the report's order. The one that crashed is alone.
fn alike<'r>(report: &'r Report, symbols: &Symbols) -> Vec<(Vec<&'r Thread>, Vec<String>)> {
    let mut all: Vec<(Vec<&Thread>, Vec<String>)> = Vec::new();
    for thread in &report.threads {
        let stack = lines(thread, report, symbols);
        let same = all.iter_mut().find(|(threads, other)| !threads.iter().any(|one| one.crashed) && *other == stack);
        match same {
            Some((threads, _)) => threads.push(thread),
            None => all.push((vec![thread], stack)),
        }
    }
    all
}

/// The lines of a thread's stack, leaf first.
fn lines(thread: &Thread, report: &Report, symbols: &Symbols) -> Vec<String> {
    let mut lines = Vec::new();
    // Where the interpreter's own code crashed, its frames are what people look for.
    let leaf = thread.frames.iter().take_while(|frame| thread.crashed && frame.is_native()).count();
    // Where there are none of a language, they are all there is.
    let may_hide = thread.frames.iter().any(|frame| !frame.is_native());
    for (index, frame) in thread.frames.iter().enumerate() {
        let file = frame.object.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
        let named = named(frame, report, symbols);
        let function = named.last().map_or(&*frame.function, |named| named.function);
        let is_glue = || HALVES.iter().any(|half| half.language().is_glue(function));
        if may_hide && index >= leaf && (frame.interpreter || frame.is_native() && is_glue()) {
            continue;
        }
        for Named { function, file: source, line } in &named {
            lines.push(match (*source, file) {
                ("", Some(file)) => format!("{function} ({file})"),
                (source, _) => format!("{function} ({source}:{line})"),
            });
        }
        if named.is_empty() {
            lines.push(frame.text(file));
        }
    }
    lines
}

fn as_json(report: &Report, symbols: &Symbols, names: &HashMap<u32, String>) -> String {
    let mut out = String::new();
    for thread in &report.threads {
        if let Some(name) = names.get(&thread.tid) {
            let _ = writeln!(out, "{}", json!({"type": "thread_name", "tid": thread.tid, "name": name}));
        }
        for frame in &thread.frames {
            let functions: Vec<_> = named(frame, report, symbols)
                .iter()
                .map(|named| json!({"function": named.function, "file": named.file, "line": named.line}))
                .collect();
            if !functions.is_empty() {
                let line = json!({
                    "type": "named", "tid": thread.tid, "index": frame.index, "functions": functions,
                });
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

/// Writes all, as long as there is room: the descriptor may be one that does not block.
fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) {
    let Ok(to) = to.try_clone_to_owned() else { return };
    let mut to = File::from(to);
    while !bytes.is_empty() {
        let until = Timespec { tv_sec: STALL / 1000, tv_nsec: 0 };
        let mut ready = [PollFd::new(&to, PollFlags::OUT)];
        if poll(&mut ready, Some(&until)) == Ok(0) {
            return;
        }
        // A pipe that is ready takes this number of bytes without blocking.
        match to.write(bytes.get(..4096).unwrap_or(bytes)) {
            Ok(wrote) if wrote > 0 => bytes = bytes.get(wrote..).unwrap_or_default(),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            _ => return,
        }
    }
}
