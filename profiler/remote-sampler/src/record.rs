//! A recording of a running process, from outside: nothing of uu enters it.

use crate::files::Files;
use crate::notes::{how, losses, not_recorded};
use crate::open_files;
use crate::prepared::{prepare, Unprepared};
use crate::running::Running;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use uunwind_recorder::child::{self, interrupted};
use uunwind_recorder::found_names::Unnamed;
use uunwind_recorder::kept_names::Namer;
use uunwind_recorder::naming::Progress;
use uunwind_recorder::output::{default_name, finish, OutputFile};
use uunwind_recorder::snapshot::{Made, Snapshots};
use uunwind_recorder::{lines, machine, Outcome, RecordError};
use uunwind_recording::{End, EndCause, Object, Recording, Settings, Writer};
use uunwind_remote::dump::{command, exe};
use uunwind_remote::plugins::Plugins;
use uunwind_remote::refusal::{check, DumpError};
use uunwind_remote::threads::children;
use uunwind_tables_build::Cache;

/// What to record, and how.
pub struct Attach {
    /// The process.
    pub pid: u32,
    /// Its children, and theirs, are recorded, too.
    pub with_children: bool,
    /// Sampling rate in Hz of CPU time; of time with `FLAG_WALL`.
    pub rate: u32,
    /// Ends the recording after this time.
    pub duration: Option<Duration>,
    /// Nothing is sampled until the recording is resumed.
    pub start_paused: bool,
    /// Time between snapshots.
    pub every: Option<Duration>,
    /// Folder for those; `None`: beside the recording.
    pub every_into: Option<PathBuf>,
    /// `uunwind_ring::FLAG_AWAITING` and `FLAG_WALL`, if they are wanted.
    pub flags: u32,
    /// Path of the recording; `None`: `uu-<program>-<pid>.uu` in the working directory.
    pub output: Option<PathBuf>,
    /// Who names functions, in a process of its own.
    pub namer: Namer,
    /// Whether functions are named when the recording is over.
    pub named: bool,
    /// Labels of all samples.
    pub labels: Vec<(String, String)>,
    /// Why it is recorded from outside, for people.
    pub why: String,
    /// It is one of many recordings of this process, each on a thread of its own.
    pub among: Option<Among>,
}

/// What is so of a recording among others. No signal ends it (`child::catch_signals_for_many`).
#[derive(Clone, Debug)]
pub struct Among {
    /// Ends the recording.
    pub ends: Arc<AtomicBool>,
    /// Time between passes over the rings, and between looks for threads.
    pub interval: Duration,
    /// The recording ends when it has this number of samples.
    pub samples: u64,
    /// Number of recordings that share the open files.
    pub recordings: usize,
}

impl Attach {
    /// Whether it was asked to end, or has as many samples as are wanted.
    pub fn is_over_with(&self, samples: u64) -> bool {
        self.among.as_ref().is_some_and(|among| among.ends.load(Ordering::Relaxed) || samples >= among.samples)
    }

    /// Number of files that may be kept open, of the share of one.
    pub fn open_files(&self) -> usize {
        open_files::share() / self.among.as_ref().map_or(1, |among| among.recordings.max(1))
    }

    /// Whether a snapshot is due. Among other recordings, one without new samples is left out.
    pub fn is_due(&self, snapshots: &mut Snapshots, samples: u64) -> bool {
        if self.among.is_some() {
            snapshots.is_due_with(samples)
        } else {
            snapshots.is_due()
        }
    }
}

/// Why nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The process cannot be looked at.
    #[error(transparent)]
    Refused(#[from] DumpError),
    /// The output cannot be written.
    #[error("cannot write {0}: {1}. Choose another place with -o FILE")]
    Output(PathBuf, io::Error),
    /// This signal was received before the recording began.
    #[error("signal {0} came before the recording began; nothing was recorded")]
    Interrupted(i32),
    /// Signal handlers could not be set.
    #[error("cannot set signal handlers: {0}")]
    Signals(io::Error),
}

/// What happens during a recording, for the caller to show.
pub enum Event<'a> {
    /// It has begun: the words of the process's command line, and the recording's path.
    Begun(&'a [Vec<u8>], &'a Path),
    /// A snapshot was made; or not, for this reason.
    Snapshot(&'a Path, Option<&'a str>),
    /// It is over. Until the call returns, signals do not end uu.
    Over,
    /// Functions are being named.
    Naming(Progress),
    /// There is no recording, and something of a sampler stays in a process: what, and why.
    Left(&'a str),
}

/// Records a running process until it ends, the time is over, or a signal asks uu to end.
pub fn record(
    attach: &Attach,
    plugins: &mut Plugins,
    cache: &Cache,
    mut event: impl FnMut(Event<'_>),
) -> Result<(Outcome, Option<Recording>), AttachError> {
    child::catch_signals().map_err(AttachError::Signals)?;
    let pid = attach.pid;
    check(pid)?;
    // From here on, the descriptor shows the end of this very process.
    let pidfd = child::pidfd(pid).ok();
    let (path, output) = create_output(attach)?;
    let share = attach.open_files();
    // Before anybody learns that the recording has begun: what the process does then is seen as a change.
    let first = prepare(pid, pidfd.as_ref(), cache, plugins).map_err(|why| match why {
        Unprepared::Ended => DumpError::NoProcess(pid),
        Unprepared::Refused(why) => why,
    })?;
    if let Some(signal) = interrupted() {
        return Err(AttachError::Interrupted(signal));
    }
    let unwritable = |error: io::Error| AttachError::Output(path.clone(), error);
    let (file, kept) = output.file().and_then(|file| Ok((file.try_clone()?, file))).map_err(unwritable)?;
    let (path, older) = output.rename(path.clone()).map_err(|error| unwritable(io::Error::other(error)))?;
    let settings = settings(attach);
    let mut writer = Writer::begin(file, &settings);
    writer.label_all(attach.labels.clone());
    plugins.languages().iter().for_each(|language| writer.language(language));

    let mut running = Running::new(attach, plugins, cache, writer, Files::new(share), share);
    running.first(pid, pidfd, first);
    event(Event::Begun(&settings.command, &path));
    let begun = running.begin();
    let cause = running.until_over(&kept, &path, &mut event);
    let wall = begun.elapsed();
    event(Event::Over);
    let is_left = cause != EndCause::ProgramEnded && !attach.with_children;
    let left = if is_left { children(pid) } else { Vec::new() };
    let cpu_used = running.end();
    // A Ctrl-C so far has ended the recording; the next one ends the work that uu still does.
    child::forget_interrupt();
    let unrecorded = not_recorded(&left);
    let Running { mut sampler, mut jit, files, unseen, notes: mut others, .. } = running;
    let mut notes = vec![how(attach, &sampler.tally, wall)];
    notes.append(&mut others);
    notes.extend(losses(&sampler, attach.rate, wall));
    notes.append(&mut sampler.notes);
    notes.extend(unseen.notes());
    notes.extend(sampler.switch.take().and_then(|mut switch| switch.end()));
    notes.extend(unrecorded.clone());
    notes.extend(plugins.take_troubles());
    notes.extend(files.troubles.iter().cloned());
    notes.extend(jit.take_notes());
    report(sampler.snapshots.made(true), &mut event);
    let (mut writer, samples) = (sampler.writer, sampler.tally.samples);
    notes.iter().for_each(|note| writer.note(note));
    let (time, recorder_cpu) = (machine::monotonic(), machine::own_cpu(0));
    writer.end(&End { time, cause, cpu_used, recorder_cpu, samples, ..End::default() });
    writer.flush();

    let mut recording = attach.named.then(|| Recording::read_open(&kept, &path).ok()).flatten();
    if let Some(recording) = &mut recording {
        let places = |object: &Object| files.of(object);
        let unnamed = Unnamed::of(recording, &places, Some(&jit));
        let names = unnamed.name_by(recording, &attach.namer, |done| event(Event::Naming(done)));
        let names = names.with_lines(lines::decode(recording, plugins.analysers()));
        plugins.analysers().close();
        names.append(recording, &mut writer, machine::own_cpu(0));
    }
    let (output, write_error) = finish(&kept, &path, writer.failure());
    child::let_signals_end();
    let outcome = Outcome { wait_status: None, pid, output, samples, cpu_used, wall, unrecorded, write_error, older };
    Ok((outcome, recording))
}

/// The recording's file, which has no name yet, and the path that it will have.
pub fn create_output(attach: &Attach) -> Result<(PathBuf, OutputFile), AttachError> {
    let name = || default_name(Path::new(OsStr::from_bytes(&exe(attach.pid))), attach.pid);
    let path = attach.output.clone().unwrap_or_else(name);
    match OutputFile::create(&path) {
        Ok(output) => Ok((path, output)),
        Err(RecordError::Output(path, error)) => Err(AttachError::Output(path, error)),
        Err(error) => Err(AttachError::Output(path, io::Error::other(error))),
    }
}

/// Passes on what became of a snapshot.
pub fn report(made: Option<Made>, event: &mut impl FnMut(Event<'_>)) {
    if let Some(made) = made {
        let why = made.error.map(|error| error.to_string());
        event(Event::Snapshot(&made.path, why.as_deref()));
    }
}

/// What a recording of the process begins with.
pub fn settings(attach: &Attach) -> Settings {
    let (host, kernel) = machine::names();
    Settings {
        uu_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command(attach.pid),
        pid: attach.pid,
        rate: attach.rate,
        kernel_hz: machine::kernel_hz(),
        flags: attach.flags,
        host,
        kernel,
        start_unix: machine::wall(),
        start_monotonic: machine::monotonic(),
    }
}
