//! A recording from beginning to end.

use crate::child::{catch_signals, take_term, wait, Child, Ended};
use crate::config::{Config, Outcome, RecordError};
use crate::drain::Drain;
use crate::facts::FactsPublisher;
use crate::host;
use crate::objects::Objects;
use crate::output::{default_name, OutputFile};
use crate::safe_path::SafePaths;
use crate::session::Session;
use crate::spawn::{objects_value, preload_value, spawn, users_preload};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use uunwind_analyse::rules::Cache;
use uunwind_loader::Analysers;
use uunwind_report::objects::ObjectMap;
use uunwind_report::recording::{End, EndCause, Recording, Settings, Writer};
use uunwind_report::symbolize::symbolize;

/// Time between passes, in ms. Not longer than a process needs to be sampled at the default rate: its executable can only
/// be read while it lives.
const INTERVAL: i32 = 10;
/// The same while rings fill quickly.
const QUICK: i32 = 4;
/// How full a ring may be, in percent, before passes come quickly.
const BUSY: u64 = 25;
/// Time between questions to the kernel about who is gone.
const DEAD_CHECK: Duration = Duration::from_secs(1);
/// Longest time that samples wait in memory before they are in the file.
const FLUSH: Duration = Duration::from_secs(1);

/// What happens meanwhile, for whoever shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The program runs.
    Started {
        /// Its pid.
        pid: u32,
        /// Where the recording goes.
        output: &'a Path,
    },
    /// The recording is over; functions are being named.
    Naming,
}

/// Runs the program and records it until it ends, or until the duration is over.
///
/// `analysers` are the plugins' analyse halves. Whatever fails after the program was started leaves it undisturbed, and is
/// told in the outcome.
pub fn record(config: &Config, analysers: Analysers, mut event: impl FnMut(Event<'_>)) -> Result<Running, RecordError> {
    catch_signals().map_err(|e| RecordError::Setup("set signal handlers", e))?;
    let session = Session::create().map_err(RecordError::Session)?;
    let mut facts = FactsPublisher::create().map_err(RecordError::Session)?;
    let wanted = config.output.clone().unwrap_or_else(|| default_name(program(config), std::process::id()));
    let output = OutputFile::create(&wanted)?;
    let file = match output.file().and_then(|mut file| probe(&mut file).map(|()| file)) {
        Ok(file) => file,
        Err(e) => {
            output.discard();
            return Err(RecordError::Output(wanted, e));
        }
    };
    let mut objects = Objects::new(Cache::of_user(), analysers);
    objects.vdso(&mut facts);
    let ours = config.objects.iter().chain([&config.preload]);
    for path in [&config.executable].into_iter().chain(&config.closure).chain(ours) {
        objects.analyse_path(path, &mut facts);
    }
    objects.finish_with_plugins(&mut facts);
    let started = start(config, &session, &facts);
    let (child, safe) = match started {
        Ok(started) => started,
        Err(e) => {
            output.discard();
            return Err(e);
        }
    };
    // From here on the program runs: nothing may end uu before it.
    let pid = child.pid();
    let name = config.output.clone().unwrap_or_else(|| default_name(program(config), pid));
    let (path, rename_error) = match output.rename(name) {
        Ok(path) => (path, None),
        Err(e) => (wanted, Some(std::io::Error::other(e.to_string()))),
    };
    let settings = settings(config, pid);
    let writer = Writer::begin(file, &settings);
    event(Event::Started { pid, output: &path });
    let mut drain = Drain::new(session, facts, objects, writer);
    for note in &config.notes {
        drain.writer.note(note);
    }
    let mut running = Running { child, drain, safe, path, rename_error, naming: None };
    let cause = running.until_end(config.duration);
    running.close(cause);
    event(Event::Naming);
    running.name();
    Ok(running)
}

fn program(config: &Config) -> &Path {
    config.command.first().map_or(Path::new("program"), |p| Path::new(p))
}

/// Writes and takes back enough bytes to find a full disk before the program runs.
fn probe(file: &mut std::fs::File) -> std::io::Result<()> {
    use std::io::{Seek, Write};
    file.write_all(&[0; 4096])?;
    file.set_len(0)?;
    file.rewind()
}

fn start(config: &Config, session: &Session, facts: &FactsPublisher) -> Result<(Child, SafePaths), RecordError> {
    let mut preload = config.preload.clone();
    let mut objects = config.objects.clone();
    let safe = SafePaths::make(&mut [&mut preload].into_iter().chain(&mut objects).collect::<Vec<_>>())?;
    let value = format!("{}:{}:{}:{}:{}", std::process::id(), session.fd(), facts.fd(), config.rate, config.flags);
    let preload = preload_value(config.asan_runtime.as_ref(), &preload, users_preload());
    let pid = spawn(config, &value, &preload, &objects_value(&objects))?;
    Ok((Child::new(pid), safe))
}

fn settings(config: &Config, pid: u32) -> Settings {
    let (host, kernel) = host::names();
    Settings {
        uu_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: config.command.iter().map(|w| w.as_bytes().to_vec()).collect(),
        pid,
        rate: config.rate,
        kernel_hz: host::kernel_hz(),
        flags: config.flags,
        host,
        kernel,
        start_unix: host::wall(),
        start_monotonic: host::monotonic(),
    }
}

/// A recording and its program, which may still run when the recording is over.
pub struct Running {
    child: Child,
    drain: Drain,
    safe: SafePaths,
    path: PathBuf,
    rename_error: Option<std::io::Error>,
    naming: Option<Recording>,
}

impl Running {
    /// Drains until the program ends or the time is over.
    fn until_end(&mut self, duration: Option<Duration>) -> EndCause {
        let begin = Instant::now();
        let (mut checked, mut flushed) = (begin, begin);
        let mut dead = false;
        loop {
            if take_term() {
                self.child.signal(libc::SIGTERM);
            }
            if self.child.ended().is_some() {
                return EndCause::ProgramEnded;
            }
            if duration.is_some_and(|d| begin.elapsed() >= d) {
                return EndCause::Duration;
            }
            let look = dead || checked.elapsed() >= DEAD_CHECK;
            if look {
                checked = Instant::now();
            }
            let pass = self.drain.pass(look);
            if flushed.elapsed() >= FLUSH {
                flushed = Instant::now();
                self.drain.writer.flush();
            }
            let interval = if pass.fullest > BUSY { QUICK } else { INTERVAL };
            let fds: Vec<i32> = self.drain.poll_fds().into_iter().map(|(_, fd)| fd).collect();
            let child = self.child.poll_fd();
            let ready = wait(&child.into_iter().chain(fds).collect::<Vec<_>>(), interval);
            dead = ready.iter().skip(usize::from(child.is_some())).any(|r| *r);
        }
    }

    /// Tells survivors to stop, drains a last time, writes the totals.
    fn close(&mut self, cause: EndCause) {
        self.drain.session.stop();
        self.drain.pass(false);
        if self.drain.any_alive() || self.child.ended().is_none() {
            self.safe.keep();
        }
        let header = self.drain.session.header();
        let without =
            |counter: &std::sync::atomic::AtomicU32| u64::from(counter.load(std::sync::atomic::Ordering::Relaxed));
        let (threads, processes) = (without(&header.threads_without_block), without(&header.processes_without_block));
        self.drain.finish_all();
        let ended = self.child.ended();
        let end = End {
            time: host::monotonic(),
            cause,
            wait_status: ended.map(|e| e.status as u32),
            cpu_used: self.cpu_used(ended),
            recorder_cpu: host::own_cpu(),
            samples: self.drain.samples,
            threads_without_block: threads,
            processes_without_block: processes,
        };
        self.drain.writer.end(&end);
        self.drain.writer.flush();
    }

    fn cpu_used(&self, ended: Option<Ended>) -> u64 {
        ended.map_or_else(|| host::cpu_of(self.child.pid()), |e| e.cpu)
    }

    /// Names the functions, and appends the names to the recording.
    fn name(&mut self) {
        // Nothing to name when not even the header could be written; the outcome has the error.
        let Ok(mut recording) = Recording::read(&self.path) else { return };
        let mut map = ObjectMap::new(&recording);
        let objects = &self.drain.objects;
        let symbols = symbolize(&recording, &mut map, &|object| objects.files(object));
        let jit = self.drain.jit.names(&recording, &mut map);
        // Symbols last: a recording with them is whole.
        self.drain.writer.jit(&jit);
        self.drain.writer.symbols(&symbols);
        self.drain.writer.flush();
        recording.symbols = Some(symbols);
        recording.jit = jit;
        self.naming = Some(recording);
    }

    /// The recording as read back, with its symbols; once.
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
            cpu_used: self.cpu_used(ended),
            write_error: self.rename_error.take().or(write_error),
        }
    }

    /// Waits for the program, which was left running when the duration was over. Gives its raw wait status.
    pub fn wait(&mut self) -> i32 {
        loop {
            if take_term() {
                self.child.signal(libc::SIGTERM);
            }
            if let Some(ended) = self.child.ended() {
                return ended.status;
            }
            wait(&self.child.poll_fd().into_iter().collect::<Vec<_>>(), 200);
        }
    }
}
