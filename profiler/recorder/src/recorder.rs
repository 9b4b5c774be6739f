//! A recording from beginning to end.

use crate::child::{catch_signals, forget_interrupt, interrupted, let_signals_end, take_term, wait, Child};
use crate::code_maps::CodeMaps;
use crate::config::{Config, Outcome, RecordError, Walk};
use crate::drain::Drain;
use crate::facts::FactsPublisher;
use crate::found_names::{FoundNames, Unnamed};
use crate::kernel::clock::KernelClock;
use crate::listener::Waker;
use crate::machine;
use crate::naming::Progress;
use crate::objects::Objects;
use crate::output::{default_name, settle, Older, OutputFile};
use crate::rest::Rest;
use crate::safe_path::SafePaths;
use crate::session::Session;
use crate::snapshot::{Now, Snapshots};
use crate::spawn::{objects_value, preload_value, spawn, users_preload};
use crate::startup_time::Starts;
use crate::survey::Survey;
use crate::switch::{Of, Switch};
use crate::traceme;
use crate::watch::Watcher;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_loader::Analysers;
use uunwind_recording::{End, EndCause, Object, Recording, Settings, Writer, LEFT_RUNNING, NOT_RECORDED};
use uunwind_ring::layout::SESSION_VERSION;
use uunwind_ring::{
    FLAG_ALLOC, FLAG_COPIES, FLAG_COPIES_BESIDE, FLAG_EVENTS, FLAG_EXPLICIT, FLAG_KERNEL, FLAG_LOCK, FLAG_NO_CHILDREN,
    FLAG_USER_MODE, FLAG_WALL,
};
use uunwind_tables_build::private_folder::Drawer;
use uunwind_tables_build::{user_folder, Cache};

/// Time between passes, in ms. At most one sampling period at the default rate, because a process's executable can be
/// read only while it lives.
const INTERVAL: u32 = 10;
/// Time between passes while rings fill quickly, in ms.
const QUICK: u32 = 4;
/// The same while the recorder rests, in ms: in this time all that it does not wait for is looked at.
const RESTING: u32 = 1000;
/// Fill level of a ring, in percent, above which passes follow each other quickly.
const BUSY: u64 = 25;
/// Time between checks for processes and threads that are gone.
const DEAD_CHECK: Duration = Duration::from_secs(1);
/// Above this rate, in Hz, perf events time the samples where they may: the kernel's tick is of 100 to 1,000 Hz.
const HIGH_RATE: u32 = 1000;
/// At most this number of processes that the program has left running are named.
const LEFT_NAMED: usize = 5;
/// Longest time before samples are written from memory to the file.
const FLUSH: Duration = Duration::from_secs(1);

/// An event during a recording, for the caller to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The program was started.
    Started {
        /// Pid of the program.
        pid: u32,
        /// Path of the recording.
        output: &'a Path,
    },
    /// The recording goes on.
    Recording {
        /// Samples so far.
        samples: u64,
    },
    /// A snapshot was made; or not, for this reason.
    Snapshot(&'a Path, Option<&'a str>),
    /// The recording is over. Until the call returns, signals do not end uu.
    Over,
    /// Functions are being named.
    Naming(Progress),
}

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
    let session = Session::create().map_err(RecordError::Session)?;
    let mut facts = FactsPublisher::create().map_err(RecordError::Session)?;
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
    let (child, safe) = start(config, flags, &session, &facts)?;
    // From here on the program runs, and no failure may end uu before it.
    let pid = child.pid();
    let name = config.output.clone().unwrap_or_else(|| default_name(program(config), pid));
    let (path, older, rename_error) = match output.rename(name) {
        Ok((path, older)) => (path, older, None),
        Err(e) => (wanted, None, Some(std::io::Error::other(e.to_string()))),
    };
    let settings = settings(config, flags, pid);
    let mut writer = Writer::begin(file, &settings);
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
    drain.watcher = watcher;
    drain.clock = clock;
    drain.code_maps = (config.flags & (FLAG_COPIES | FLAG_COPIES_BESIDE) != 0).then(CodeMaps::default);
    for note in config.notes.iter().chain(&missing) {
        drain.writer.note(note);
    }
    let namer = config.namer.clone();
    let (wall, cpu_used) = (Duration::ZERO, 0);
    let (snapshots, walk) = (Snapshots::new(config.every).into_folder(config.every_into.clone()), config.walk);
    let mut running = Running {
        child,
        executable: config.executable.clone(),
        drain,
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
) -> Result<(Child, SafePaths), RecordError> {
    let mut preload = config.preload.clone();
    let mut objects = config.objects.clone();
    let safe = SafePaths::make(&mut [&mut preload].into_iter().chain(&mut objects).collect::<Vec<_>>())?;
    let value = format!("{}:{}:{}:{}:{}", std::process::id(), session.fd(), facts.fd(), config.rate, flags);
    // The first object is libuunwind, the others are the plugins.
    let beside = if config.allocator { objects.len() } else { 1 };
    let preloaded: Vec<&PathBuf> = [&preload].into_iter().chain(objects.iter().take(beside)).collect();
    let preload = preload_value(config.asan_runtime.as_ref(), &preloaded, users_preload());
    let pid = spawn(config, &value, &preload, &objects_value(&objects))?;
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

/// A recording and its program, which may still run when the recording is over.
pub struct Running {
    child: Child,
    /// The ELF file that it began with.
    executable: PathBuf,
    drain: Drain,
    waker: Waker,
    safe: SafePaths,
    path: PathBuf,
    /// The file that had this path before.
    older: Option<Older>,
    /// The recording's file, also if its path now leads to another one.
    kept: File,
    namer: Vec<OsString>,
    rename_error: Option<std::io::Error>,
    naming: Option<Recording>,
    /// Time from the start of the program to the end of the recording.
    wall: Duration,
    /// CPU time of the program and of its processes that still ran at the end, and of the children that these had
    /// waited for, in ns.
    cpu_used: u64,
    snapshots: Snapshots,
    walk: Option<Walk>,
    switch: Switch,
}

impl Running {
    /// Lets threads run on that have called PTRACE_TRACEME. Where waits are watched, it must not: a stop of the
    /// program's main thread, which the watcher's thread asked for, is given to any thread of its parent that waits.
    fn release(&self) {
        if self.drain.watcher.is_none() {
            traceme::release(self.child.pid());
        }
    }

    /// Drains until the program ends or the time is over.
    fn until_end(&mut self, duration: Option<Duration>, event: &mut impl FnMut(Event<'_>)) -> EndCause {
        let begin = Instant::now();
        let (mut checked, mut flushed) = (begin, begin);
        let mut dead = false;
        // Without a descriptor that says so, the program may have ended at any time.
        let mut may_have_ended = true;
        let mut rest = Rest::new(self.waker.clone());
        loop {
            if take_term() {
                self.child.terminate();
            }
            self.release();
            if may_have_ended {
                // While the kernel still has its numbers: they go when it has been waited for.
                self.drain.look_at_run_delays();
            }
            if may_have_ended && self.child.ended().is_some() {
                return EndCause::ProgramEnded;
            }
            if duration.is_some_and(|d| begin.elapsed() >= d) {
                return EndCause::Duration;
            }
            let look = dead || checked.elapsed() >= DEAD_CHECK;
            if look {
                checked = Instant::now();
            }
            if let Some(paused) = self.switch.look() {
                self.drain.switch(paused);
                self.switch.done();
            }
            let pass = self.drain.pass(look);
            if self.drain.samples > 0 {
                self.older.take().into_iter().for_each(Older::discard);
            }
            event(Event::Recording { samples: self.drain.samples });
            if flushed.elapsed() >= FLUSH {
                flushed = Instant::now();
                self.drain.writer.flush();
            }
            if self.snapshots.is_due() {
                self.snapshot();
            }
            self.snapshot_made(false, event);
            let begins = rest.note(pass.has_found || !self.drain.may_rest(), self.drain.alive().map(|(pid, _)| pid));
            self.drain.rest(rest.is_on());
            let left = duration.map_or(u128::MAX, |d| d.saturating_sub(begin.elapsed()).as_millis().max(1));
            let interval = match pass.fullest > BUSY {
                _ if begins => 0,
                // Threads that have no room wait for it.
                true if self.drain.interval > 0 => 0,
                _ if rest.is_on() => RESTING.min(u32::try_from(left).unwrap_or(u32::MAX)),
                true => QUICK,
                false => INTERVAL,
            };
            let mut fds: Vec<_> = self.child.poll_fd().into_iter().collect();
            let of_child = fds.len();
            fds.extend(self.drain.poll_fds());
            let of_processes = fds.len() - of_child;
            fds.extend(self.drain.objects.poll_fds().chain([self.waker.poll_fd()]));
            let ready = wait(fds, interval);
            may_have_ended = ready.iter().take(of_child).all(|ready| *ready);
            dead = ready.iter().skip(of_child).take(of_processes).any(|ready| *ready);
        }
    }

    /// Begins a snapshot.
    fn snapshot(&mut self) {
        self.drain.writer.flush();
        let Drain { objects, jit, samples, .. } = &self.drain;
        let files = |object: &Object| objects.files(object);
        let (file, path, namer) = (&self.kept, &self.path, &self.namer);
        self.snapshots.take(&Now { file, path, samples: *samples, files: &files, jit, namer });
    }

    /// Reports a snapshot that is made; with `wait`, the last one is waited for.
    fn snapshot_made(&mut self, wait: bool, event: &mut impl FnMut(Event<'_>)) {
        if let Some(made) = self.snapshots.made(wait) {
            let why = made.error.map(|error| error.to_string());
            event(Event::Snapshot(&made.path, why.as_deref()));
        }
    }

    /// Stops the recording in processes that still run, drains a last time, and writes the totals.
    fn close(&mut self, cause: EndCause) {
        // First the program's state: if it ends after this, the survey still sees it. The survey comes before processes
        // stop recording, because it recognises recorded ones by their mapping of the session.
        let ended = self.child.ended();
        if let Some(line) = self.switch.end() {
            self.drain.writer.note(&line);
        }
        self.drain.last_look();
        self.drain.end_watching();
        self.drain.end_events();
        self.drain.facts.stop();
        self.drain.pass(false);
        if self.drain.alive().next().is_some() || ended.is_none() {
            self.safe.keep();
        }
        let header = self.drain.session.header();
        let without =
            |counter: &std::sync::atomic::AtomicU32| u64::from(counter.load(std::sync::atomic::Ordering::Relaxed));
        let (threads, processes) = (without(&header.threads_without_block), without(&header.processes_without_block));
        self.cpu_used = ended.map_or(0, |ended| ended.cpu).saturating_add(self.drain.survey.cpu());
        if ended.is_some() {
            self.note_left_running();
        }
        if let Some(line) = self.other_version() {
            self.drain.writer.note(&line);
        }
        self.drain.finish_all();
        if let Some(ended) = ended {
            let exe = self.executable.as_os_str().as_bytes();
            self.drain.ended.add(self.child.pid(), exe, ended.status);
        }
        if let Some(note) = self.drain.ended.note() {
            self.drain.writer.note(&note);
        }
        let end = End {
            time: machine::monotonic(),
            cause,
            wait_status: ended.map(|e| e.status as u32),
            cpu_used: self.cpu_used,
            recorder_cpu: machine::own_cpu(ended.map_or(0, |ended| ended.cpu)),
            samples: self.drain.samples,
            threads_without_block: threads,
            processes_without_block: processes,
        };
        self.drain.writer.end(&end);
        self.drain.writer.flush();
    }

    /// A line for the user about processes that have loaded a preload object of another version.
    fn other_version(&self) -> Option<String> {
        let version = self.drain.session.other_version()?;
        Some(format!(
            "{NOT_RECORDED}processes that have loaded libuunwind-preload.so of session version {version}, while this uu is of version \
             {SESSION_VERSION}. Both must come from one installation: install uu again, and start the recording anew"
        ))
    }

    /// Adds a note that names the processes that the program has left running, which are no longer recorded.
    fn note_left_running(&mut self) {
        let mut left = self.drain.survey.running();
        // One whose block was claimed during the last look, or whose start the survey could not see.
        let recorded: Vec<_> = self.drain.alive().map(|(pid, exe)| (pid, String::from_utf8_lossy(exe))).collect();
        for (pid, exe) in recorded.iter().filter(|(pid, _)| *pid != self.child.pid()) {
            if left.iter().all(|(other, _)| other != pid) {
                left.push((*pid, exe));
            }
        }
        let list = left.iter().take(LEFT_NAMED).map(|(pid, name)| format!("{name} (pid {pid})"));
        let mut list = list.collect::<Vec<_>>().join(", ");
        if left.len() > LEFT_NAMED {
            list += &format!(" and {} more", left.len() - LEFT_NAMED);
        }
        if !left.is_empty() {
            self.drain.writer.note(&format!(
                "{LEFT_RUNNING}, which are no longer recorded: {list}. To record a daemon, have it stay in the foreground"
            ));
        }
    }

    /// Names the functions, and appends the names to the recording.
    fn name(&mut self, progress: impl FnMut(Progress)) {
        // If not even the header could be written, there is nothing to name; the outcome has the error.
        let Ok(mut recording) = Recording::read_open(&self.kept, &self.path) else { return };
        let objects = &self.drain.objects;
        let files = |object: &Object| objects.files(object);
        if let Some(walk) = self.walk {
            walk(&mut recording, &files);
        }
        let unnamed = Unnamed::of(&recording, &files, Some(&self.drain.jit));
        let names = unnamed.name(&recording, &self.namer, progress);
        self.append(names, recording);
    }

    /// Leaves the functions of objects to be named from their files by whoever shows the recording. What only this
    /// process has is appended: names in files that are gone, of code made at run time, and lines that plugins decode.
    fn leave_unnamed(&mut self) {
        let Ok(recording) = Recording::read_open(&self.kept, &self.path) else { return };
        let objects = &self.drain.objects;
        let files = |object: &Object| objects.files(object);
        let names = Unnamed::of(&recording, &files, Some(&self.drain.jit)).name_passing(&recording, &self.namer);
        self.append(names, recording);
    }

    /// Appends names, with the lines that plugins decode, to the recording that they were found for.
    fn append(&mut self, names: FoundNames, mut recording: Recording) {
        let names = names.with_lines(self.drain.objects.lines(&recording));
        self.drain.objects.close_plugins();
        let own_cpu = machine::own_cpu(self.child.ended().map_or(0, |ended| ended.cpu));
        names.append(&mut recording, &mut self.drain.writer, own_cpu);
        self.naming = Some(recording);
    }

    /// Gives the recording a name again if it has lost the one that it had.
    fn settle(&mut self) {
        match settle(&self.kept, &self.path) {
            Ok(path) => self.path = path,
            Err(e) => self.rename_error = Some(e),
        }
    }

    /// The recording as read back, with its symbols. `None` when it was taken already, or could not be read.
    pub fn take_recording(&mut self) -> Option<Recording> {
        self.naming.take()
    }

    /// How the recording ended.
    pub fn outcome(&mut self) -> Outcome {
        let ended = self.child.ended();
        let write_error = self.drain.writer.failure().map(|e| std::io::Error::new(e.kind(), e.to_string()));
        Outcome {
            wait_status: ended.map(|e| e.status),
            pid: self.child.pid(),
            output: self.path.clone(),
            samples: self.drain.samples,
            cpu_used: self.cpu_used,
            wall: self.wall,
            unrecorded: self.other_version().into_iter().chain(self.drain.survey.lines(true)).collect(),
            write_error: self.rename_error.take().or(write_error),
            older: self.older.take(),
        }
    }

    /// Waits for the program, which was left running when the duration was over. Returns its raw wait status.
    pub fn wait(&mut self) -> i32 {
        loop {
            if take_term() {
                self.child.terminate();
            }
            self.release();
            if let Some(ended) = self.child.ended() {
                return ended.status;
            }
            wait(self.child.poll_fd(), 200);
        }
    }
}
