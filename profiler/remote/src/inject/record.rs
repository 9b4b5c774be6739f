//! A recording of a running process by a sampler that was put into it.

use super::{place, Declined, Injected, Memories, SIGNAL};
use crate::clocks::Clock;
use crate::dump::exe;
use crate::prepared::Image;
use crate::record::{not_recorded, report, settings, Attach, AttachError, Event};
use crate::refusal::check;
use crate::threads::{children, tids};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use uunwind_elf::maps;
use uunwind_loader::Analysers;
use uunwind_recorder::child::{self, interrupted, wait};
use uunwind_recorder::drain::Drain;
use uunwind_recorder::facts::FactsPublisher;
use uunwind_recorder::found_names::Unnamed;
use uunwind_recorder::objects::Objects;
use uunwind_recorder::output::{default_name, settle, OutputFile};
use uunwind_recorder::snapshot::{Now, Snapshots};
use uunwind_recorder::survey::Survey;
use uunwind_recorder::{machine, Outcome, RecordError};
use uunwind_recording::{End, EndCause, Object, Recording, Writer, FROM_INSIDE};
use uunwind_tables_build::Cache;

/// Time between passes over the rings, in ms.
const INTERVAL: u32 = 10;
/// Time between looks for new threads, and for those that have ended.
const THREADS: Duration = Duration::from_millis(40);
/// Time between checks for processes and threads that are gone, and between writes to the file.
const SECOND: Duration = Duration::from_secs(1);
/// CPU time that passed unsampled is reported from this share of the whole on, and from this time on, in ns.
const MISSED: (f64, u64) = (0.05, 50_000_000);
/// At most this number of files is analysed before the first sample.
const FILES: usize = 4096;

/// Why nothing was recorded by a sampler inside.
#[derive(Debug)]
pub enum Refusal {
    /// The process cannot be recorded in any way.
    Never(AttachError),
    /// It can be recorded from outside.
    Declined(Declined),
}

impl From<AttachError> for Refusal {
    fn from(error: AttachError) -> Refusal {
        Refusal::Never(error)
    }
}

/// The threads of the process, as they were last seen.
#[derive(Default)]
struct Threads {
    known: HashMap<u32, Known>,
    /// CPU time of sampled threads that have ended, in ns.
    ended: u64,
    /// Threads that block the sampler's signal, or have a filter of system calls.
    blocking: u32,
    /// Threads that got no timer.
    refused: u32,
}

struct Known {
    inner: u32,
    clock: Option<Clock>,
    /// CPU time when it got its timer, and as last seen, in ns.
    from: u64,
    used: u64,
    armed: bool,
    /// Number of looks at which it blocked the signal.
    blocked: u32,
}

impl Threads {
    /// Arms threads that were there at the last look already; with `all`, new ones, too.
    fn look(&mut self, pid: u32, injected: &mut Injected, all: bool) -> Result<(), super::Trouble> {
        let now = tids(pid).unwrap_or_default();
        let mut new = Vec::new();
        for tid in &now {
            if let Some(known) = self.known.get_mut(tid) {
                let used = known.clock.as_ref().and_then(Clock::used);
                known.used = used.unwrap_or(known.used);
                if !known.armed {
                    new.push(*tid);
                }
                continue;
            }
            let clock = Clock::of(pid, *tid, self.known.len() < 256).ok();
            let used = clock.as_ref().and_then(Clock::used).unwrap_or(0);
            let inner = place::inner_id(pid, *tid);
            self.known.insert(*tid, Known { inner, clock, from: used, used, armed: false, blocked: 0 });
            if all {
                new.push(*tid);
            }
        }
        let gone: Vec<u32> = self.known.keys().filter(|tid| !now.contains(tid)).copied().collect();
        let mut forget = Vec::new();
        for tid in gone {
            let Some(known) = self.known.remove(&tid) else { continue };
            if known.armed {
                self.ended += known.used.saturating_sub(known.from);
                forget.push(known.inner);
            }
        }
        let (mut blocking, mut free) = (Vec::new(), Vec::new());
        for tid in new {
            let Some(known) = self.known.get_mut(&tid) else { continue };
            if !place::blocks(pid, tid, SIGNAL) && !place::filters(pid, tid) {
                free.push(tid);
            } else if known.blocked + 1 < place::LOOKS {
                // It may do so for a moment only, and is looked at again.
                known.blocked += 1;
            } else {
                blocking.push(tid);
            }
        }
        let new = free;
        self.blocking += blocking.len() as u32;
        let failed = if new.is_empty() && forget.is_empty() { Vec::new() } else { injected.arm(&new, &forget)? };
        for tid in new.iter().chain(&blocking) {
            if let Some(known) = self.known.get_mut(tid) {
                known.armed = true;
                if failed.contains(tid) || blocking.contains(tid) {
                    // Looked at as one of which no time is sampled.
                    (known.clock, known.from) = (None, known.used);
                }
            }
        }
        self.refused += failed.len() as u32;
        Ok(())
    }

    /// CPU time of sampled threads since they have their timers, in ns.
    fn sampled(&self) -> u64 {
        let used = |known: &Known| known.used.saturating_sub(known.from);
        self.ended + self.known.values().filter(|known| known.armed).map(used).sum::<u64>()
    }
}

/// Records a running process by a sampler in it, until it ends, the time is over, or a signal asks uu to end.
/// `object`: the sampler. `analysers`: the plugins' analyse halves.
pub fn record(
    attach: &Attach,
    object: &Path,
    analysers: Analysers,
    mut event: impl FnMut(Event<'_>),
) -> Result<(Outcome, Option<Recording>), Refusal> {
    child::catch_signals().map_err(AttachError::Signals)?;
    let pid = attach.pid;
    check(pid).map_err(AttachError::from)?;
    let pidfd = child::pidfd(pid).ok();
    let program = exe(pid);
    let path = attach.output.clone().unwrap_or_else(|| default_name(Path::new(OsStr::from_bytes(&program)), pid));
    let unwritable = |error: &dyn ToString| AttachError::Output(path.clone(), io::Error::other(error.to_string()));
    let output = OutputFile::create(&path).map_err(|error| match error {
        RecordError::Output(path, error) => AttachError::Output(path, error),
        other => unwritable(&other),
    })?;
    let languages = analysers.languages();
    let mut objects = Objects::new(Cache::of_user(), analysers);
    let image = Image::of(pid);
    let begun = Injected::begin(pid, object, attach.rate, attach.flags | uunwind_ring::FLAG_NO_CHILDREN);
    let (mut injected, Memories { session, mut facts }) = begun.map_err(Refusal::Declined)?;
    // From here on, whatever happens, the sampler is taken out.
    analyse(pid, &mut objects, &mut facts);
    let files = output.file().and_then(|file| Ok((file.try_clone()?, file)));
    let opened = files.and_then(|files| Ok((files, output.rename(path.clone()).map_err(io::Error::other)?)));
    let ((file, kept), path) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            injected.leave(&facts);
            return Err(unwritable(&error).into());
        }
    };
    if let Some(signal) = interrupted() {
        injected.leave(&facts);
        return Err(AttachError::Interrupted(signal).into());
    }
    let settings = settings(attach);
    let mut writer = Writer::begin(file, &settings);
    languages.iter().for_each(|language| writer.language(language));
    event(Event::Begun(&settings.command, &path));
    let survey = Survey::new(pid, PathBuf::new(), true);
    let mut drain = Drain::new(session, facts, objects, writer, survey);
    let mut threads = Threads::default();
    let mut notes = Vec::new();
    let mut snapshots = Snapshots::new(attach.every);
    let cpu_before = machine::exact_cpu_of(pid).unwrap_or(0);
    let mut cpu = cpu_before;
    let start = Instant::now();
    let (mut looked, mut second) = (None::<Instant>, start);
    let cause = loop {
        if looked.is_none_or(|looked| looked.elapsed() >= THREADS) {
            cpu = machine::exact_cpu_of(pid).map_or(cpu, |now| now.max(cpu));
            if Image::of(pid) != image && !exe(pid).is_empty() {
                let why = "the recording ended early: the process has called exec, which takes the sampler away. \
                           Record it again, or without --inject, which follows it";
                notes.push(why.to_owned());
                break EndCause::Asked;
            }
            if let Err(trouble) = threads.look(pid, &mut injected, looked.is_none()) {
                let lives = tids(pid).is_ok();
                if lives && looked.is_none() {
                    notes.push(format!("threads could not be given timers: {}", Declined::from(trouble).why));
                }
            }
            looked = Some(Instant::now());
        }
        let is_dead = pidfd.as_ref().is_some_and(|fd| wait([fd.as_fd()], 0).iter().any(|ready| *ready));
        if is_dead || tids(pid).is_err() {
            break EndCause::ProgramEnded;
        }
        if attach.duration.is_some_and(|duration| start.elapsed() >= duration) {
            break EndCause::Duration;
        }
        if interrupted().is_some() || child::take_term() {
            break EndCause::Asked;
        }
        let look = second.elapsed() >= SECOND;
        drain.pass(look);
        if look {
            second = Instant::now();
            drain.writer.flush();
        }
        if snapshots.is_due() {
            drain.writer.flush();
            let Drain { objects, jit, samples, .. } = &drain;
            let files = |object: &Object| objects.files(object);
            let (file, path, namer) = (&kept, &path, &attach.namer);
            snapshots.take(&Now { file, path, samples: *samples, files: &files, jit, namer });
        }
        report(snapshots.made(false), &mut event);
        wait(pidfd.iter().map(AsFd::as_fd), INTERVAL);
    };
    let wall = start.elapsed();
    event(Event::Over);
    cpu = machine::exact_cpu_of(pid).map_or(cpu, |now| now.max(cpu));
    let left = if cause == EndCause::ProgramEnded { Vec::new() } else { children(pid) };
    let (stood, borrowed) = (injected.stood, injected.borrowed);
    for known in threads.known.values_mut() {
        known.used = known.clock.as_ref().and_then(Clock::used).unwrap_or(known.used);
    }
    let stays = injected.leave(&drain.facts);
    drain.pass(false);
    child::forget_interrupt();
    let cpu_used = cpu.saturating_sub(cpu_before);
    notes.insert(0, how(attach, borrowed, stood));
    notes.extend(stays);
    notes.extend(losses(&threads, cpu_used));
    let unrecorded = not_recorded(&left);
    notes.extend(unrecorded.clone());
    report(snapshots.made(true), &mut event);
    notes.iter().for_each(|note| drain.writer.note(note));
    drain.finish_all();
    let header = drain.session.header();
    let without =
        |counter: &std::sync::atomic::AtomicU32| u64::from(counter.load(std::sync::atomic::Ordering::Relaxed));
    let (threads_without_block, samples) = (without(&header.threads_without_block), drain.samples);
    let (time, recorder_cpu) = (machine::monotonic(), machine::own_cpu(0));
    let end = End { time, cause, cpu_used, recorder_cpu, samples, threads_without_block, ..End::default() };
    drain.writer.end(&end);
    drain.writer.flush();

    let mut recording = attach.named.then(|| Recording::read_open(&kept, &path).ok()).flatten();
    if let Some(recording) = &mut recording {
        let Drain { objects, jit, writer, .. } = &mut drain;
        let files = |object: &Object| objects.files(object);
        let unnamed = Unnamed::of(recording, &files, Some(jit));
        let mut names = unnamed.name(recording, &attach.namer, |done| event(Event::Naming(done)));
        let (lines, more) = objects.lines(recording);
        names.lines = lines;
        names.notes.extend(more);
        objects.close_plugins();
        names.append(recording, writer, machine::own_cpu(0));
    }
    let failure = drain.writer.failure().map(|error| io::Error::new(error.kind(), error.to_string()));
    let (output, lost_name) = match settle(&kept, &path) {
        Ok(path) => (path, None),
        Err(error) => (path, Some(error)),
    };
    child::let_signals_end();
    let write_error = lost_name.or(failure);
    Ok((Outcome { wait_status: None, pid, output, samples, cpu_used, wall, unrecorded, write_error }, recording))
}

/// Analyses the files that the process has mapped, before their first samples.
fn analyse(pid: u32, objects: &mut Objects, facts: &mut FactsPublisher) {
    objects.vdso(facts);
    let mut seen = Vec::new();
    let code = maps::of(pid).into_iter().flatten().filter(|m| m.is_executable() && m.inode != 0);
    for mapping in code.take(FILES) {
        if mapping.name.starts_with(b"/memfd:uu-") || seen.contains(&mapping.inode) {
            continue;
        }
        seen.push(mapping.inode);
        let exact = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end));
        let mut inside = format!("/proc/{pid}/root").into_bytes();
        inside.extend_from_slice(&mapping.name);
        let inside = crate::objects::path_of(&inside);
        let opened = if std::fs::metadata(&exact).is_ok() { exact } else { inside };
        objects.analyse_file(&opened, mapping.name, facts);
    }
    objects.finish_with_plugins(facts);
}

/// How the recording was made, and what that cost the process.
fn how(attach: &Attach, borrowed: u32, stood: Duration) -> String {
    format!(
        "{FROM_INSIDE}{}. A thread was borrowed {borrowed} times to put it in and to arm threads, for {:.1} ms in all; \
         windows and unwind data that the program registers at run time are not seen this way",
        attach.why,
        stood.as_secs_f64() * 1e3
    )
}

/// Notes on what is missing.
fn losses(threads: &Threads, cpu_used: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if threads.blocking > 0 {
        notes.push(format!(
            "{} threads block the sampler's signal (SIGSTKFLT) or have a filter of system calls, and were not sampled",
            threads.blocking
        ));
    }
    if threads.refused > 0 {
        notes.push(format!("{} threads got no timer (see RLIMIT_SIGPENDING), and were not sampled", threads.refused));
    }
    let missed = cpu_used.saturating_sub(threads.sampled());
    if missed > MISSED.1 && missed as f64 > cpu_used as f64 * MISSED.0 {
        notes.push(format!(
            "{:.2} s of CPU time passed in threads that had no timer: a new thread gets one after {} to {} ms, and shorter ones none",
            missed as f64 / 1e9,
            THREADS.as_millis(),
            2 * THREADS.as_millis()
        ));
    }
    notes
}
