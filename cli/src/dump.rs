//! `uu dump`: shows what each thread of a running process is doing, or was doing when a core file was written.

use crate::exit::Failure;
use crate::record::{NAMING_SERVER, PLUGIN_SERVER};
use crate::{layout, options, terminal};
use clap::Args;
use serde_json::{json, Value};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uunwind_built_in::HALVES;
use uunwind_core_files::search::SYSTEM_DEBUG;
use uunwind_core_files::{dump_core, CoreFile, Search};
use uunwind_loader::ENV_PLUGINS;
use uunwind_recording::{signal_name, Lock, Sample};
use uunwind_remote::doing::{doing as doing_by, Doing};
use uunwind_remote::holders::{self, Held, WaitsFor, What};
use uunwind_remote::registers::{named, Registers};
use uunwind_remote::{children, dump, Dump, Plugins, ThreadState};
use uunwind_report::formats::printable;
use uunwind_report::hide::NativeFrames;
use uunwind_report::resolve::{is_complete, stop_text, Resolver};
use uunwind_report::stacks::{Kind, Line, Merger, Profile};
use uunwind_tables_build::Cache;

/// Shows the stacks of all threads of a running process or a core file: native and interpreted frames.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    after_help = "\
The process stands still for as long as its stacks are read, mostly some milliseconds, and goes on
as if nothing had happened: system calls in which its threads wait are not interrupted. It may hang,
be stopped, or be static. A core file's program and libraries are found by their build-ids: at
their paths, below --debug-dir and /usr/lib/debug, in debuginfod's cache, and by debuginfod-find,
if DEBUGINFOD_URLS is set. Exit code: 0, or 125 if no stack could be read."
)]
pub struct Options {
    /// The process
    #[arg(short, long, value_name = "PID", required_unless_present = "core", conflicts_with = "core")]
    pid: Option<OsString>,
    /// The core file
    core: Option<PathBuf>,
    /// The program that it is of, where it does not lie at its path any more
    executable: Option<PathBuf>,
    /// A folder with a core file's program and libraries, or their symbols; may be given more than once
    #[arg(long, value_name = "DIR", requires = "core")]
    debug_dir: Vec<PathBuf>,
    /// Its children and theirs, too
    #[arg(short, long, conflicts_with = "core")]
    subprocesses: bool,
    /// Write one JSON object for each process, a line each
    #[arg(long)]
    json: bool,
    /// hide: leave out an interpreter's own frames and importlib's; show: keep them
    #[arg(long, value_name = "MODE", default_value = "hide", value_parser = options::Offers(&["hide", "show"]),
          hide_possible_values = true)]
    native_frames: OsString,
}

/// Runs the subcommand; returns the exit code.
pub fn run(options: &Options) -> Result<u8, Failure> {
    let native_frames = options::native_frames(&options.native_frames)?;
    let layout = layout::find()?;
    let namer = vec![layout.command.clone().into_os_string(), NAMING_SERVER.into()];
    let launcher = vec![layout.command.into_os_string(), PLUGIN_SERVER.into()];
    let open = || {
        let found = uunwind_loader::find(&layout.plugins, std::env::var_os(ENV_PLUGINS).as_deref(), launcher);
        Plugins::open(found, HALVES)
    };
    let cache = Cache::of_user();
    let show = |pid: u32, dump: &Dump| {
        let text = if options.json { as_json(pid, dump, native_frames) } else { as_text(pid, dump, native_frames) };
        terminal::output(text.as_bytes())?;
        dump.notes.iter().for_each(|note| terminal::warn(&printable(note)));
        Ok::<(), Failure>(())
    };
    if let Some(path) = &options.core {
        if let Some(pid) = absent_number(path) {
            return Err(Failure::new(format!(
                "there is no core file {pid}; a process is dumped by `uu dump -p {pid}`"
            )));
        }
        let core = Arc::new(CoreFile::open(path).map_err(Failure::new)?);
        let mut folders = options.debug_dir.clone();
        folders.push(SYSTEM_DEBUG.into());
        let search =
            Search { executable: options.executable.clone(), own_paths: true, folders, caches: true, servers: true };
        let dump = dump_core(&core, &search, &mut open(), &cache, Some(&namer)).map_err(Failure::new)?;
        show(core.notes.pid, &dump)?;
        return Ok(0);
    }
    let pid = options::pid(&options.pid.clone().unwrap_or_default(), "-p")?;
    let mut plugins = open();
    let mut pids = vec![pid];
    let (mut next, mut shown) = (0, 0);
    let mut first_failure = None;
    while let Some(pid) = pids.get(next).copied() {
        next += 1;
        if options.subprocesses {
            pids.extend(children(pid));
        }
        match dump(pid, &mut plugins, &cache, &namer) {
            Ok(dump) => {
                if shown > 0 && !options.json {
                    terminal::output(b"\n")?;
                }
                show(pid, &dump)?;
                shown += 1;
            }
            Err(error) if pids.len() == 1 => return Err(Failure::new(error)),
            Err(error) => {
                terminal::warn(&error.to_string());
                first_failure.get_or_insert(Failure::new(error));
            }
        }
    }
    match first_failure.filter(|_| shown == 0) {
        Some(failure) => Err(failure),
        None => Ok(0),
    }
}

/// The number that was given where a core file belongs, by which people may mean a process.
fn absent_number(path: &Path) -> Option<u32> {
    path.to_str()?.parse().ok().filter(|_| !path.exists())
}

/// A thread with the lines of its stack, leaf first, and the reason for which the walk ended.
struct Shown<'d> {
    thread: &'d ThreadState,
    lines: Vec<&'d Line>,
    complete: bool,
    stop_text: String,
    lock: Lock,
}

fn threads<'d>(dump: &'d Dump, profile: &'d Profile, native_frames: NativeFrames) -> Vec<Shown<'d>> {
    let recording = &dump.recording;
    let shown = dump.threads.iter().map(|thread| {
        let index = recording.threads.iter().position(|recorded| recorded.tid == thread.tid).map(|index| index as u32);
        let stack = profile.stacks.iter().find(|stack| Some(stack.thread) == index);
        let lines =
            stack.iter().flat_map(|stack| &stack.lines[..]).filter_map(|line| profile.lines.get(*line as usize));
        let mut lines: Vec<&Line> = lines.collect();
        if native_frames == NativeFrames::Hide && system_call(thread).is_some() {
            lines.drain(..way_into_the_call(&lines, dump));
        }
        let sample = recording.samples.iter().find(|sample| Some(sample.thread) == index);
        let complete = sample.is_some_and(is_complete);
        let stop_text = sample.map(stop_text).unwrap_or_default();
        Shown { thread, lines, complete, stop_text, lock: sample.map_or(Lock::Unknown, Sample::lock) }
    });
    shown.collect()
}

/// The number of innermost frames of a thread that waits in a system call by which a language's runtime has come there:
/// its own and the C library's, called by a function of the language. What it waits in is said anyway.
fn way_into_the_call(lines: &[&Line], dump: &Dump) -> usize {
    let is_on_the_way = |line: &&&Line| {
        let object = line.object.and_then(|object| dump.recording.objects.get(object as usize));
        let is_native = matches!(line.kind, Kind::Native | Kind::Inlined);
        is_native && object.is_some_and(|object| dump.runtimes.contains(&object.path) || is_c_library(&object.path))
    };
    let count = lines.iter().take_while(is_on_the_way).count();
    let is_called = lines.get(count).is_some_and(|line| line.kind == Kind::Semantic);
    if is_called {
        count
    } else {
        0
    }
}

/// Whether an object is the C library, a part of it, or the kernel's.
fn is_c_library(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let names: [&[u8]; 7] =
        [b"libc.so.", b"libc-", b"libpthread.so.", b"libpthread-", b"ld-linux", b"ld-musl", b"[vdso]"];
    names.iter().any(|start| name.starts_with(start))
}

fn command(dump: &Dump) -> String {
    let words: Vec<_> = dump.recording.settings.command.iter().map(|word| String::from_utf8_lossy(word)).collect();
    printable(&words.join(" "))
}

fn as_text(pid: u32, dump: &Dump, native_frames: NativeFrames) -> String {
    let mut resolver = Resolver::new(&dump.recording);
    let profile = Merger::new(&mut resolver, native_frames).profile();
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "process {pid}: {}", command(dump));
    let count = dump.threads.len();
    let _ = write!(out, "{count} {}", if count == 1 { "thread" } else { "threads" });
    let _ = match (dump.stopped, &dump.signal) {
        (Some(stopped), _) => writeln!(out, ", stopped for {:.1} ms", stopped.as_secs_f64() * 1e3),
        (None, Some(signal)) => writeln!(out, ", core file written for {signal}"),
        (None, None) => writeln!(out),
    };
    for circle in circles(dump) {
        let _ = writeln!(out, "{}", deadlock(&circle));
        holds_and_waits(&circle, dump).into_iter().for_each(|line| {
            let _ = writeln!(out, "    {line}");
        });
    }
    for shown in threads(dump, &profile, native_frames) {
        let thread = shown.thread;
        let name = if thread.name.is_empty() { String::new() } else { format!(" \"{}\"", printable(&thread.name)) };
        let lock = if thread.waits_for.is_some() { "" } else { lock(shown.lock).0 };
        let waits = thread.waits_for.as_ref().map(|waits| waits_for(thread.tid, waits)).unwrap_or_default();
        let _ = writeln!(out, "\nthread {}{name}, {}{lock}{waits}", thread.tid, doing(thread));
        for line in shown.lines {
            let _ = writeln!(out, "    {}", frame(line, dump));
        }
        if let (Some(Doing::Signal(_)), Some(registers)) = (&thread.doing, &thread.registers) {
            let registers: Vec<_> =
                named(registers).into_iter().map(|(name, value)| format!("{name} {value:#x}")).collect();
            registers.chunks(4).for_each(|line| {
                let _ = writeln!(out, "    [{}]", line.join(", "));
            });
        }
    }
    out
}

fn doing(thread: &ThreadState) -> String {
    match &thread.doing {
        Some(Doing::Running) => "running".to_owned(),
        Some(Doing::Waiting(call)) => format!("waiting in {call}"),
        Some(Doing::Stopped) => "stopped by a signal".to_owned(),
        Some(Doing::Signal(number)) => {
            let call = system_call(thread).map(|call| format!(", waiting in {call}")).unwrap_or_default();
            format!("received {}{call}", signal_name(*number))
        }
        None => "could not be stopped".to_owned(),
    }
}

/// The system call that a thread waits in, also one that was dealing with a signal when it stood in the call.
fn system_call(thread: &ThreadState) -> Option<String> {
    match (&thread.doing, &thread.registers) {
        (Some(Doing::Waiting(call)), _) => Some(call.clone()),
        (Some(Doing::Signal(_)), Some(registers)) => match doing_by(registers) {
            Doing::Waiting(call) => Some(call),
            _ => None,
        },
        _ => None,
    }
}

/// How a thread stands to its runtime's lock, which people know as the GIL: for people, and for programs.
fn lock(lock: Lock) -> (&'static str, Option<&'static str>) {
    match lock {
        Lock::Held => (", holds the GIL", Some("held")),
        Lock::Waiting => (", waits for the GIL", Some("waiting")),
        Lock::None => ("", Some("none")),
        Lock::Unknown => ("", None),
    }
}

/// What a thread waits for and who has it, for people.
fn waits_for(tid: u32, waits: &WaitsFor) -> String {
    let (what, _) = what(waits);
    match (waits.what, waits.held) {
        (What::Mutex | What::RwLock, Held::Thread(holder)) if holder == tid => {
            format!(", waits for a {what} that it holds itself")
        }
        (What::RwLock, Held::Thread(holder)) => format!(", waits for a {what} that thread {holder} holds for writing"),
        (What::RwLock, Held::Readers(1)) => format!(", waits for a {what} that one thread holds for reading"),
        (What::RwLock, Held::Readers(readers)) => {
            format!(", waits for a {what} that {readers} threads hold for reading")
        }
        (What::Mutex, Held::Thread(holder)) => format!(", waits for a {what} that thread {holder} holds"),
        (What::End, Held::Thread(holder)) => format!(", waits for the {what} of thread {holder}"),
        (What::Stdio | What::Recursive, Held::Thread(holder)) => {
            format!(", waits for a {what} that thread {holder} holds")
        }
        (What::Gil, Held::Thread(holder)) => format!(", waits for the {what}, which thread {holder} holds"),
        (_, Held::Readers(_)) => String::new(),
    }
}

/// What a thread waits for: for people, and for programs.
fn what(waits: &WaitsFor) -> (&'static str, &'static str) {
    match waits.what {
        What::Mutex => ("mutex", "mutex"),
        What::RwLock => ("read-write lock", "rwlock"),
        What::End => ("end", "thread"),
        What::Gil => ("GIL", "gil"),
        What::Stdio => ("lock of stdio", "stdio"),
        What::Recursive => ("recursive lock", "rlock"),
    }
}

fn waits_for_as_json(waits: &WaitsFor) -> Value {
    let (holder, readers) = match waits.held {
        Held::Thread(holder) => (Some(holder), None),
        Held::Readers(readers) => (None, Some(readers)),
    };
    json!({
        "what": what(waits).1,
        "address": (waits.address != 0).then(|| format!("{:#x}", waits.address)),
        "holder": holder,
        "readers": readers,
    })
}

/// Threads that wait for each other in a circle.
fn circles(dump: &Dump) -> Vec<Vec<u32>> {
    holders::circles(dump.threads.iter().map(|thread| (thread.tid, thread.waits_for)))
}

/// They go on only if a wait has a limit of time, or a signal's handler ends it.
fn deadlock(circle: &[u32]) -> String {
    match circle {
        [one] => format!("deadlock: thread {one} waits for itself"),
        [first, ..] => {
            let all: Vec<String> = circle.iter().chain([first]).map(u32::to_string).collect();
            format!("deadlock: threads wait for each other in a circle: {}", all.join(" -> "))
        }
        [] => String::new(),
    }
}

/// For each thread of a circle, what it has and what it waits for: one that waits for itself has a line of its own.
fn holds_and_waits(circle: &[u32], dump: &Dump) -> Vec<String> {
    let of = |tid: u32| dump.threads.iter().find(|thread| thread.tid == tid);
    let before = circle.iter().cycle().skip(circle.len().saturating_sub(1));
    let lines = circle.iter().zip(before).filter_map(|(tid, before)| {
        let thread = of(*tid)?;
        let (waits, holds) = (thread.waits_for.as_ref()?, of(*before)?.waits_for.as_ref()?);
        let name = if thread.name.is_empty() { String::new() } else { format!(" \"{}\"", printable(&thread.name)) };
        let has = match holds.what {
            What::End => format!("is to end for thread {before}"),
            _ => format!("holds {}", the(holds)),
        };
        let waits = match (waits.what, waits.held) {
            (What::End, Held::Thread(other)) => format!("the end of thread {other}"),
            _ => the(waits),
        };
        Some(format!("thread {tid}{name} {has} and waits for {waits}"))
    });
    if circle.len() > 1 {
        lines.collect()
    } else {
        Vec::new()
    }
}

/// A lock, with its address.
fn the(waits: &WaitsFor) -> String {
    let (what, _) = what(waits);
    match waits.address {
        0 => format!("the {what}"),
        address => format!("the {what} {address:#x}"),
    }
}

fn frame(line: &Line, dump: &Dump) -> String {
    let place = match line.line {
        0 => line.file.clone(),
        number => format!("{}:{number}", line.file),
    };
    let object = line.object.and_then(|object| dump.recording.objects.get(object as usize));
    let object = object.map(|object| String::from_utf8_lossy(&object.path).into_owned()).unwrap_or_default();
    let place = match line.kind {
        Kind::Marker => String::new(),
        _ if !line.file.is_empty() => format!(" ({place})"),
        Kind::Native | Kind::Inlined if line.named => format!(" ({})", object.rsplit('/').next().unwrap_or(&object)),
        _ => String::new(),
    };
    printable(&format!("{}{place}", line.function))
}

fn as_json(pid: u32, dump: &Dump, native_frames: NativeFrames) -> String {
    let mut resolver = Resolver::new(&dump.recording);
    let profile = Merger::new(&mut resolver, native_frames).profile();
    let threads: Vec<Value> = threads(dump, &profile, native_frames)
        .into_iter()
        .map(|shown| {
            let state = match &shown.thread.doing {
                Some(Doing::Running) => "running",
                Some(Doing::Waiting(_)) => "waiting",
                Some(Doing::Stopped) => "stopped",
                Some(Doing::Signal(_)) => "signal",
                None => "unknown",
            };
            json!({
                "tid": shown.thread.tid,
                "name": shown.thread.name,
                "state": state,
                "system_call": system_call(shown.thread),
                "lock": lock(shown.lock).1,
                "waits_for": shown.thread.waits_for.as_ref().map(waits_for_as_json),
                "registers": shown.thread.registers.as_ref().map(registers_as_json),
                "complete": shown.complete,
                "stop_reason": shown.stop_text,
                "frames": shown.lines.iter().map(|line| frame_as_json(line, dump)).collect::<Vec<_>>(),
            })
        })
        .collect();
    let command: Vec<_> = dump.recording.settings.command.iter().map(|word| String::from_utf8_lossy(word)).collect();
    let process = json!({
        "pid": pid,
        "command": command,
        "stopped_ms": dump.stopped.map(|stopped| stopped.as_secs_f64() * 1e3),
        "signal": dump.signal.map(|signal| json!({
            "name": signal_name(signal.number),
            "code": signal.code,
            "address": signal.address,
            "sender": signal.sender,
        })),
        "deadlocks": circles(dump),
        "threads": threads,
        "notes": dump.notes,
    });
    format!("{process}\n")
}

/// Values above 2^53 would be rounded by many readers of JSON: as hexadecimal text.
fn registers_as_json(registers: &Registers) -> Value {
    named(registers).into_iter().map(|(name, value)| (name, Value::from(format!("{value:#x}")))).collect()
}

fn frame_as_json(line: &Line, dump: &Dump) -> Value {
    let kind = match line.kind {
        Kind::Native => "native",
        Kind::Inlined => "inlined",
        Kind::Jit => "jit",
        Kind::Semantic => "interpreted",
        Kind::Awaiting => "awaiting",
        Kind::Kernel => "kernel",
        Kind::Waiting => "waiting",
        Kind::Marker => "marker",
    };
    let object = line.object.and_then(|object| dump.recording.objects.get(object as usize));
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "kind": kind,
        "function": line.function,
        "file": text(&line.file),
        "line": (line.line != 0).then_some(line.line),
        "language": text(&line.plugin),
        "object": object.map(|object| String::from_utf8_lossy(&object.path)),
        "address": (line.address != 0).then_some(line.address),
    })
}
