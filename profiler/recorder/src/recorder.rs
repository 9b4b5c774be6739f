//! A recording from beginning to end.

mod running;

use crate::child::{catch_signals, forget_interrupt, interrupted, let_signals_end, Child};
use crate::code_maps::CodeMaps;
use crate::config::{Config, RecordError};
use crate::drain::{Drain, Waited};
use crate::elsewhere::Elsewhere;
use crate::facts::FactsPublisher;
use crate::kept_names::Namer;
use crate::kernel::clock::KernelClock;
use crate::listener::Waker;
use crate::machine;
use crate::objects::Objects;
use crate::output::{default_name, with_pid, OutputFile};
use crate::reservation::Reservation;
use crate::safe_path::SafePaths;
use crate::session::Session;
use crate::snapshot::Snapshots;
use crate::spawn::{objects_value, preload_value, spawn, users_preload};
use crate::startup_time::Starts;
use crate::survey::Survey;
use crate::switch::{Of, Switch};
use crate::watch::Watcher;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_loader::Analysers;
use uunwind_recording::{Settings, Writer};
use uunwind_ring::{
    FLAG_ALLOC, FLAG_COPIES, FLAG_COPIES_BESIDE, FLAG_EVENTS, FLAG_EXPLICIT, FLAG_KERNEL, FLAG_LOCK, FLAG_NO_CHILDREN,
    FLAG_USER_MODE, FLAG_WALL,
};
use uunwind_tables_build::private_folder::Drawer;
use uunwind_tables_build::{user_folder, Cache};

pub use running::{Event, Running};

/// Above this rate, in Hz, perf events time the samples where they may: the kernel's tick is of 100 to 1,000 Hz.
const HIGH_RATE: u32 = 1000;

/// Runs the program and records it until it ends, or until the duration is over.
///
/// `analysers` are the plugins' analyse halves. Failures after the program was started do not disturb it; the outcome
/// reports them.
pub fn record(config: &Config, analysers: Analysers, event: impl FnMut(Event<'_>)) -> Result<Running, RecordError> {
    record_with(config, analysers, None, event)
}

/// The same, with somebody who watches threads that wait.
pub fn record_with(
    config: &Config,
    analysers: Analysers,
    watcher: Option<Box<dyn Watcher>>,
    mut event: impl FnMut(Event<'_>),
) -> Result<Running, RecordError> {
    catch_signals().map_err(|e| RecordError::Setup("set signal handlers", e))?;
    let reservation = Reservation::here();
    let failed = |error| RecordError::Session(error, reservation.bytes());
    let session = Session::create(reservation.blocks).map_err(failed)?;
    let mut facts = FactsPublisher::create(reservation.tables).map_err(failed)?;
    let wanted = config.output.clone().unwrap_or_else(|| default_name(program(config), std::process::id()));
    let output = OutputFile::create(&wanted)?;
    let files = output.file().and_then(|mut file| probe(&mut file).and_then(|()| Ok((file.try_clone()?, file))));
    let (file, kept) = files.map_err(|e| RecordError::Output(wanted.clone(), e))?;
    let languages = analysers.languages();
    let mut analysers = analysers;
    user_folder().into_iter().for_each(|folder| analysers.keep_answers(Drawer::at(folder.join("answers"))));
    let mut objects = Objects::new(Cache::of_user(), analysers);
    objects.vdso(&mut facts);
    let ours = config.objects.iter().chain([&config.preload]);
    for path in [&config.executable].into_iter().chain(&config.closure).chain(ours) {
        objects.analyse_path(path, &mut facts);
    }
    objects.finish_with_plugins(&mut facts);
    let waker = Waker::new().map_err(|e| RecordError::Setup("make an eventfd", e))?;
    objects.listen(&session, &facts, &waker);
    if let Some(signal) = interrupted() {
        return Err(RecordError::Interrupted(signal));
    }
    let (clock, missing) = clock(config);
    let flags = config.flags & !FLAG_KERNEL;
    let flags = match &clock {
        Some(clock) if clock.is_user_mode() => flags | FLAG_EVENTS | FLAG_USER_MODE,
        Some(_) => flags | FLAG_EVENTS | config.flags & FLAG_KERNEL,
        None => flags,
    };
    if config.start_paused {
        facts.switch(true);
    }
    // Without it, processes in other pid namespaces are not recorded, and named.
    let elsewhere = Elsewhere::start(session.memory().file(), facts.memory().file()).ok();
    let (child, safe) = start(config, flags, &session, &facts, elsewhere.as_ref())?;
    // From here on the program runs, and no failure may end uu before it.
    let pid = child.pid();
    let given = config.output.as_ref().map(|output| with_pid(output, pid));
    let name = given.unwrap_or_else(|| default_name(program(config), pid));
    let (path, older, rename_error) = match output.rename(name) {
        Ok((path, older)) => (path, older, None),
        Err(e) => (wanted, None, Some(std::io::Error::other(e.to_string()))),
    };
    let settings = settings(config, flags, pid);
    let mut writer = Writer::begin(file, &settings);
    writer.label_all(config.labels.clone());
    if let Some(tap) = config.tap.take() {
        writer.tap(tap);
    }
    languages.iter().for_each(|language| writer.language(language));
    let of = Of { pid, session: session.memory().inode(), by_events: clock.is_some(), with_children: false };
    let switch = Switch::new(of, config.start_paused);
    event(Event::Started { pid, output: &path });
    // Of events, no share of the CPU time is expected.
    let of_events = config.flags & (FLAG_ALLOC | FLAG_LOCK) != 0;
    let rate = if of_events { 1 } else { config.rate };
    let survey = Survey::new(pid, config.preload.clone(), config.flags & FLAG_NO_CHILDREN != 0, rate);
    let mut drain = Drain::new(session, facts, objects, writer, survey);
    drain.interval = if of_events { config.rate } else { 0 };
    drain.starts = (watcher.is_none() && !of_events).then(|| Starts::new(config.rate, machine::monotonic()));
    drain.waited = watcher.is_some().then(|| Waited::new(config.rate));
    drain.watcher = watcher;
    drain.clock = clock;
    drain.code_maps = (config.flags & (FLAG_COPIES | FLAG_COPIES_BESIDE) != 0).then(CodeMaps::default);
    for note in config.notes.iter().chain(&missing).chain(&reservation.note()) {
        drain.writer.note(note);
    }
    let namer = Namer::from(config.namer.clone());
    let (wall, cpu_used) = (Duration::ZERO, 0);
    let (snapshots, walk) = (Snapshots::new(config.every).into_folder(config.every_into.clone()), config.walk);
    let mut running = Running {
        child,
        executable: config.executable.clone(),
        drain,
        elsewhere,
        waker,
        safe,
        path,
        older,
        kept,
        namer,
        rename_error,
        naming: None,
        wall,
        cpu_used,
        snapshots,
        walk,
        switch,
    };
    let begin = Instant::now();
    let cause = running.until_end(config.duration, &mut event);
    running.wall = begin.elapsed();
    event(Event::Over);
    // A Ctrl-C so far was meant for the program; the next one ends the work that uu still does.
    forget_interrupt();
    running.close(cause);
    running.snapshot_made(true, &mut event);
    if config.names_later {
        running.leave_unnamed();
    } else if config.named {
        running.name(|progress| event(Event::Naming(progress)));
    }
    running.settle();
    if running.child.ended().is_some() {
        let_signals_end();
    }
    Ok(running)
}

fn program(config: &Config) -> &Path {
    config.command.first().map_or(Path::new("program"), |p| Path::new(p))
}

/// Writes and removes some bytes, to detect a full disk before the program runs.
fn probe(file: &mut std::fs::File) -> std::io::Result<()> {
    use std::io::{Seek, Write};
    file.write_all(&[0; 4096])?;
    file.set_len(0)?;
    file.rewind()
}

/// Perf events, if the recording is to have kernel stacks, or a rate above what the kernel's tick serves well; and why
/// there are none, or what they lack.
fn clock(config: &Config) -> (Option<KernelClock>, Option<String>) {
    let stacks = config.flags & FLAG_KERNEL != 0;
    let is_possible =
        config.flags & (FLAG_EXPLICIT | FLAG_COPIES | FLAG_COPIES_BESIDE | FLAG_WALL | FLAG_ALLOC | FLAG_LOCK) == 0;
    if !is_possible || !stacks && config.rate <= HIGH_RATE {
        return (None, None);
    }
    match KernelClock::new(config.rate, stacks, config.events_from.as_deref(), config.rate > HIGH_RATE) {
        Ok((clock, missing)) => (Some(clock), missing),
        Err(why) => {
            let without = if stacks { ", and kernel frames are left out" } else { "" };
            let why = format!("no perf events ({why}): samples are timed by the kernel's tick{without}");
            (None, Some(why))
        }
    }
}

fn start(
    config: &Config,
    flags: u32,
    session: &Session,
    facts: &FactsPublisher,
    elsewhere: Option<&Elsewhere>,
) -> Result<(Child, SafePaths), RecordError> {
    let mut preload = config.preload.clone();
    let mut objects = config.objects.clone();
    let safe = SafePaths::make(&mut [&mut preload].into_iter().chain(&mut objects).collect::<Vec<_>>())?;
    let value = format!("{}:{}:{}:{}:{}", std::process::id(), session.fd(), facts.fd(), config.rate, flags);
    // The first object is libuunwind, the others are the plugins.
    let beside = if config.allocator { objects.len() } else { 1 };
    let preloaded: Vec<&PathBuf> = [&preload].into_iter().chain(objects.iter().take(beside)).collect();
    let preload = preload_value(config.asan_runtime.as_ref(), &preloaded, users_preload());
    let socket = elsewhere.map_or("", Elsewhere::variable);
    let pid = spawn(config, &value, socket, &preload, &objects_value(&objects))?;
    Ok((Child::new(pid), safe))
}

fn settings(config: &Config, flags: u32, pid: u32) -> Settings {
    let (host, kernel) = machine::names();
    Settings {
        uu_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: config.command.iter().map(|w| w.as_bytes().to_vec()).collect(),
        pid,
        rate: config.rate,
        kernel_hz: machine::kernel_hz(),
        flags,
        host,
        kernel,
        start_unix: machine::wall(),
        start_monotonic: machine::monotonic(),
    }
}
