//! A recording of a running process by a sampler that was put into it.

use super::follow::Followed;
use super::registrations::registered;
use super::threads::{Threads, THREADS};
use super::{Declined, Memories};
use crate::dump::exe;
use crate::record::{not_recorded, report, settings, Attach, AttachError, Event};
use crate::refusal::check;
use crate::threads::{children, tids};
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
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
/// Time between checks for processes and threads that are gone, and between writes to the file.
const SECOND: Duration = Duration::from_secs(1);
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
    let (mut inside, Memories { session, mut facts }) = Followed::begin(attach, object).map_err(Refusal::Declined)?;
    // From here on, whatever happens, the sampler is taken out.
    analyse(pid, &mut objects, &mut facts);
    let files = output.file().and_then(|file| Ok((file.try_clone()?, file)));
    let opened = files.and_then(|files| Ok((files, output.rename(path.clone()).map_err(io::Error::other)?)));
    let ((file, kept), path) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            inside.leave(&facts);
            return Err(unwritable(&error).into());
        }
    };
    if let Some(signal) = interrupted() {
        inside.leave(&facts);
        return Err(AttachError::Interrupted(signal).into());
    }
    let settings = settings(attach);
    let mut writer = Writer::begin(file, &settings);
    languages.iter().for_each(|language| writer.language(language));
    event(Event::Begun(&settings.command, &path));
    let survey = Survey::new(pid, PathBuf::new(), true);
    let mut drain = Drain::new(session, facts, objects, writer, survey);
    let (mut threads, mut without_block) = (Threads::default(), 0);
    let mut notes = Vec::new();
    let mut snapshots = Snapshots::new(attach.every);
    let cpu_before = machine::exact_cpu_of(pid).unwrap_or(0);
    let mut cpu = cpu_before;
    let start = Instant::now();
    let (mut looked, mut second, mut is_new) = (None::<Instant>, start, true);
    let cause = loop {
        if looked.is_none_or(|looked| looked.elapsed() >= THREADS) {
            cpu = machine::exact_cpu_of(pid).map_or(cpu, |now| now.max(cpu));
            match inside.look() {
                Ok(None) => {}
                Ok(Some(Memories { session, mut facts })) => {
                    drain.pass(false);
                    if facts.take_over(&drain.facts).is_err() {
                        notes.push("no room for what is known of the objects before an exec".to_owned());
                    }
                    analyse(pid, &mut drain.objects, &mut facts);
                    without_block += threads_without_block(&drain);
                    drain.go_on_in(session, facts);
                    threads.forget();
                    is_new = true;
                }
                // It may just have ended.
                Err(_) if tids(pid).is_err() => {}
                Err(Declined { why }) => {
                    notes.push(format!(
                        "the recording ended early: the process has called exec, and no sampler was put into the new \
                         program, since {why}. Record it again with --remote, which follows it from outside"
                    ));
                    break EndCause::Asked;
                }
            }
            if let Some(injected) = inside.injected() {
                if let (Err(trouble), true) = (threads.look(pid, injected, is_new), is_new && tids(pid).is_ok()) {
                    notes.push(format!("threads could not be given timers: {}", Declined::from(trouble).why));
                }
                is_new = false;
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
    let since = if cause == EndCause::ProgramEnded { None } else { registered(pid) };
    let ((stood, borrowed), programs) = (inside.costs(), inside.programs);
    threads.end();
    let stays = inside.leave(&drain.facts);
    drain.pass(false);
    child::forget_interrupt();
    let cpu_used = cpu.saturating_sub(cpu_before);
    notes.insert(0, how(attach, borrowed, stood));
    notes.extend(stays);
    notes.extend(threads.losses(cpu_used));
    notes.extend(since.map(|kind| {
        format!("the program has registered {kind} meanwhile, which the sampler does not see: record it with --remote")
    }));
    if programs > 0 {
        notes.push(format!(
            "the process has called exec: {programs} more programs were sampled, each from when its libraries were loaded"
        ));
    }
    let unrecorded = not_recorded(&left);
    notes.extend(unrecorded.clone());
    report(snapshots.made(true), &mut event);
    notes.iter().for_each(|note| drain.writer.note(note));
    drain.finish_all();
    let (threads_without_block, samples) = (without_block + threads_without_block(&drain), drain.samples);
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

/// Number of threads for which the session had no block.
fn threads_without_block(drain: &Drain) -> u64 {
    u64::from(drain.session.header().threads_without_block.load(Ordering::Relaxed))
}

/// How the recording was made, and what that cost the process.
fn how(attach: &Attach, borrowed: u32, stood: Duration) -> String {
    format!(
        "{FROM_INSIDE}{}. A thread was borrowed {borrowed} times to put it in and to arm threads, for {:.1} ms in all",
        attach.why,
        stood.as_secs_f64() * 1e3
    )
}
