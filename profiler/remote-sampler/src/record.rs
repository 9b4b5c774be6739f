//! A recording of a running process, from outside: nothing of uu enters it.

use crate::followed::{parent_of, Parent, Unseen};
use crate::open_files;
use crate::prepared::{prepare, Prepared, Unprepared};
use crate::sampler::{Pause, Sampler, Tally, CHILDREN};
use crate::target::Target;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_recorder::child::{self, interrupted};
use uunwind_recorder::found_names::Unnamed;
use uunwind_recorder::jit::Jit;
use uunwind_recorder::naming::Progress;
use uunwind_recorder::output::{default_name, settle, OutputFile};
use uunwind_recorder::snapshot::{Made, Now, Snapshots};
use uunwind_recorder::switch::{Of, Switch};
use uunwind_recorder::{lines, machine, Outcome};
use uunwind_recording::{End, EndCause, Object, Process, Recording, Settings, Writer, FROM_OUTSIDE, NOT_RECORDED};
use uunwind_remote::doing;
use uunwind_remote::dump::{command, exe};
use uunwind_remote::objects::Objects;
use uunwind_remote::plugins::Plugins;
use uunwind_remote::refusal::{check, is_gone, DumpError};
use uunwind_remote::threads::{children, tids};
use uunwind_tables_build::Cache;

/// At most this number of files is kept open, so that their functions can be named after the process has ended.
const KEPT_OPEN: usize = 512;
/// While children are prepared for so long, what the others use is not sampled.
const LONG: Duration = Duration::from_millis(50);
/// A recording that looked at the process less often than this share of what was asked for says so.
const LOOKED: f64 = 0.8;

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
    /// `uunwind_ring::FLAG_AWAITING` and `FLAG_WALL`, if they are wanted.
    pub flags: u32,
    /// Path of the recording; `None`: `uu-<program>-<pid>.uu` in the working directory.
    pub output: Option<PathBuf>,
    /// The command that names functions in a process of its own.
    pub namer: Vec<OsString>,
    /// Whether functions are named when the recording is over.
    pub named: bool,
    /// Why it is recorded from outside, for people.
    pub why: String,
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
    let program = exe(pid);
    let name = || default_name(Path::new(OsStr::from_bytes(&program)), pid);
    let path = attach.output.clone().unwrap_or_else(name);
    let unwritable = |error: &dyn ToString| AttachError::Output(path.clone(), io::Error::other(error.to_string()));
    let output = OutputFile::create(&path).map_err(|error| match error {
        uunwind_recorder::RecordError::Output(path, error) => AttachError::Output(path, error),
        other => unwritable(&other),
    })?;
    let share = open_files::share();
    let mut files = Files { most: KEPT_OPEN.min(share), ..Files::default() };
    // Before anybody learns that the recording has begun: what the process does then is seen as a change.
    let first = prepare(pid, pidfd.as_ref(), cache, plugins).map_err(|why| match why {
        Unprepared::Ended => DumpError::NoProcess(pid),
        Unprepared::Refused(why) => why,
    })?;
    if let Some(signal) = interrupted() {
        return Err(AttachError::Interrupted(signal));
    }
    let (file, kept) = output.file().and_then(|file| Ok((file.try_clone()?, file))).map_err(|e| unwritable(&e))?;
    let (path, older) = output.rename(path.clone()).map_err(|e| unwritable(&e))?;
    let settings = settings(attach);
    let mut writer = Writer::begin(file, &settings);
    plugins.languages().iter().for_each(|language| writer.language(language));
    let mut jit = Jit::default();
    begin_image(0, (pid, None), plugins, &mut writer, &mut jit);
    files.add(&first.objects, 0, 0, &mut writer, &mut jit);
    search(&mut jit, 0, &mut writer);
    event(Event::Begun(&settings.command, &path));

    let (period, wall) = (1_000_000_000 / u64::from(attach.rate.max(1)), attach.flags & uunwind_ring::FLAG_WALL != 0);
    let mut sampler = Sampler::new(period, wall, writer);
    let (begun, begun_at) = (Instant::now(), machine::monotonic());
    sampler.awaiting = attach.flags & uunwind_ring::FLAG_AWAITING != 0;
    sampler.with_children = attach.with_children;
    sampler.open_files = share;
    sampler.snapshots = Snapshots::new(attach.every);
    let of = Of { pid, with_children: attach.with_children, ..Of::default() };
    sampler.switch = Some(Switch::new(of, attach.start_paused));
    sampler.until = attach.duration.map(|duration| begun + duration);
    sampler.add(Target::new(pid, pidfd, 0, first, false), false);
    // Images that were begun, CPU time of processes that have ended, and children that were not recorded.
    let (mut images, mut cpu_of_ended, mut unseen) = (1, 0, Unseen::default());
    let mut notes = Vec::new();
    let cause = loop {
        // A thread of its own: the kernel lets go what it could not stop in time when that thread ends.
        let (with, by) = (&*plugins, &mut sampler);
        let pause = std::thread::scope(|scope| scope.spawn(|| by.run(with)).join());
        for target in &mut sampler.targets {
            target.usage.update();
            jit.unchanged_until(target.process, target.checked);
        }
        jit.look();
        sampler.writer.second_mappings(&jit.take_second_mappings());
        let index = match pause {
            Ok(Pause::Over(EndCause::ProgramEnded)) => {
                for target in sampler.drop_ended() {
                    jit.finish(target.process);
                    cpu_of_ended += target.usage.used();
                }
                if sampler.targets.is_empty() {
                    break EndCause::ProgramEnded;
                }
                continue;
            }
            Ok(Pause::Over(cause)) => break cause,
            Ok(Pause::LetGo) => continue,
            Ok(Pause::Snapshot) => {
                if sampler.snapshots.is_due() {
                    let (places, namer) = (|object: &Object| files.of(object), &attach.namer);
                    let (samples, file) = (sampler.tally.samples, &kept);
                    let now = Now { file, path: &path, samples, files: &places, jit: &jit, namer };
                    sampler.snapshots.take(&now);
                }
                report(sampler.snapshots.made(false), &mut event);
                continue;
            }
            Ok(Pause::Children(children)) => {
                let since = Instant::now();
                for child in children {
                    let pidfd = match child::pidfd(child) {
                        Err(error) if is_gone(&error) => {
                            unseen.ended();
                            continue;
                        }
                        pidfd => pidfd.ok().filter(|_| sampler.targets.len() < share),
                    };
                    let prepared = prepare(child, pidfd.as_ref(), cache, plugins);
                    let Some(prepared) = unseen.check(prepared) else { continue };
                    let parent = parent_of(child, &prepared.image, &sampler.targets);
                    begin_image(images, (child, parent), plugins, &mut sampler.writer, &mut jit);
                    // What those that are older than the recording have used before it is not its matter.
                    let whole = machine::start_of(child) >= begun_at;
                    let target = Target::new(child, pidfd, images, prepared, whole);
                    files.add(&target.objects, images, target.checked, &mut sampler.writer, &mut jit);
                    search(&mut jit, images, &mut sampler.writer);
                    sampler.add(target, whole);
                    images += 1;
                }
                if since.elapsed() > LONG && !sampler.wall {
                    (0..sampler.targets.len()).for_each(|index| sampler.skip(index));
                }
                continue;
            }
            Ok(Pause::OtherCode(index)) => index,
            Err(_) => {
                notes.push("the walk has panicked, which ended the recording".to_owned());
                break EndCause::Asked;
            }
        };
        let Some(target) = sampler.targets.get_mut(index) else { continue };
        let pid = target.pid;
        let Prepared { code, image: now, objects: prepared } = match prepare(pid, target.pidfd.as_ref(), cache, plugins)
        {
            Ok(prepared) => prepared,
            // It has ended, or is not to be looked at any more: the others go on.
            Err(why) => {
                if let Some(target) = sampler.leave(index) {
                    jit.finish(target.process);
                    cpu_of_ended += target.usage.used();
                }
                let cause = match why {
                    Unprepared::Ended => EndCause::ProgramEnded,
                    Unprepared::Refused(why) => {
                        unseen.left(pid, &why);
                        EndCause::Asked
                    }
                };
                if sampler.targets.is_empty() {
                    break cause;
                }
                continue;
            }
        };
        if now != target.usage.image {
            target.usage.image = now;
            jit.finish(target.process);
            // First the process, to which its threads then belong.
            begin_image(images, (pid, None), plugins, &mut sampler.writer, &mut jit);
            sampler.new_image(index, images);
            images += 1;
        }
        let Some(target) = sampler.targets.get_mut(index) else { continue };
        files.add(&prepared, target.process, target.checked, &mut sampler.writer, &mut jit);
        search(&mut jit, target.process, &mut sampler.writer);
        (target.code, target.objects) = (code, Arc::new(prepared));
        if !sampler.wall {
            sampler.skip(index);
        }
    };
    let wall = begun.elapsed();
    event(Event::Over);
    let is_left = cause != EndCause::ProgramEnded && !attach.with_children;
    let left = if is_left { children(pid) } else { Vec::new() };
    sampler.end();
    sampler.targets.iter().for_each(|target| jit.finish(target.process));
    sampler.writer.second_mappings(&jit.take_second_mappings());
    // A Ctrl-C so far has ended the recording; the next one ends the work that uu still does.
    child::forget_interrupt();
    notes.insert(0, how(attach, &sampler.tally, wall));
    notes.extend(losses(&sampler, attach.rate, wall));
    notes.append(&mut sampler.notes);
    notes.extend(unseen.notes());
    notes.extend(sampler.switch.take().and_then(|mut switch| switch.end()));
    let unrecorded = not_recorded(&left);
    notes.extend(unrecorded.clone());
    notes.extend(plugins.take_troubles());
    notes.extend(files.troubles.iter().cloned());
    notes.extend(jit.take_notes());
    report(sampler.snapshots.made(true), &mut event);
    let used = sampler.targets.iter().map(|target| target.usage.used());
    let (mut writer, tally) = (sampler.writer, sampler.tally);
    notes.iter().for_each(|note| writer.note(note));
    let cpu_used = cpu_of_ended + used.sum::<u64>();
    let (time, recorder_cpu) = (machine::monotonic(), machine::own_cpu(0));
    writer.end(&End { time, cause, cpu_used, recorder_cpu, samples: tally.samples, ..End::default() });
    writer.flush();

    let mut recording = attach.named.then(|| Recording::read_open(&kept, &path).ok()).flatten();
    if let Some(recording) = &mut recording {
        let places = |object: &Object| files.of(object);
        let unnamed = Unnamed::of(recording, &places, Some(&jit));
        let mut names = unnamed.name(recording, &attach.namer, |done| event(Event::Naming(done)));
        let (lines, more) = lines::decode(recording, plugins.analysers());
        names.lines = lines;
        names.notes.extend(more);
        plugins.analysers().close();
        names.append(recording, &mut writer, machine::own_cpu(0));
    }
    let failure = writer.failure().map(|error| io::Error::new(error.kind(), error.to_string()));
    let (output, lost_name) = match settle(&kept, &path) {
        Ok(path) => (path, None),
        Err(error) => (path, Some(error)),
    };
    child::let_signals_end();
    let samples = tally.samples;
    let write_error = lost_name.or(failure);
    let outcome = Outcome { wait_status: None, pid, output, samples, cpu_used, wall, unrecorded, write_error, older };
    Ok((outcome, recording))
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

/// Begins the image of a process, which has this index. `parent`: the id and the index of the one that it was forked
/// from, if that is recorded, and whether it still runs the same program.
fn begin_image(
    index: u32,
    (pid, parent): (u32, Option<Parent>),
    plugins: &Plugins,
    writer: &mut Writer<File>,
    jit: &mut Jit,
) {
    let start = machine::start_of(pid);
    let (id, origin) = parent.as_ref().map_or((0, 0), |parent| (parent.pid, u32::from(parent.is_same_program)));
    let plugins = plugins.names.clone();
    writer.process(&Process { pid, parent: id, origin, start, exe: exe(pid), plugins, ..Process::default() });
    writer.command(index, &command(pid));
    jit.process(index, pid, start, parent.filter(|parent| parent.is_same_program).map(|parent| parent.index));
}

/// Searches what a process has mapped for an object's code at another address.
fn search(jit: &mut Jit, process: u32, writer: &mut Writer<File>) {
    jit.search(process);
    writer.second_mappings(&jit.take_second_mappings());
}

/// The files of all objects that the process has had.
#[derive(Default)]
struct Files {
    /// Where the file of an object can be opened, by its key; kept open as long as there is room.
    known: HashMap<u64, (Vec<PathBuf>, Option<File>)>,
    open: usize,
    /// At most this number of them is kept open.
    most: usize,
    /// What was written for each process: key and place of each object.
    written: HashMap<u32, HashSet<(u64, u64)>>,
    troubles: Vec<String>,
}

impl Files {
    /// Writes the objects that are new in a process image. They are there since `time` at the earliest.
    fn add(&mut self, objects: &Objects, process: u32, time: u64, writer: &mut Writer<File>, jit: &mut Jit) {
        for trouble in &objects.troubles {
            if !self.troubles.contains(trouble) {
                self.troubles.push(trouble.clone());
            }
        }
        let mut now = HashSet::new();
        let before = self.written.remove(&process);
        for object in objects.recorded() {
            let mut object = Object { process, time, ..object };
            let place = (object.facts_key, object.start);
            now.insert(place);
            if before.as_ref().is_some_and(|before| before.contains(&place)) {
                continue;
            }
            // The first image's objects are there from the beginning.
            object.time = if process == 0 && before.is_none() { 0 } else { time };
            let places = objects.files_of(object.start);
            self.keep(object.facts_key, &places);
            jit.object(process, &object, || self.of(&object));
            writer.object(&object);
        }
        // One that is gone and comes back is written again.
        self.written.insert(process, now);
    }

    fn keep(&mut self, key: u64, places: &[PathBuf]) {
        if self.known.contains_key(&key) {
            return;
        }
        let file = places.first().filter(|_| self.open < self.most);
        let file = file.and_then(|path| uunwind_elf::files::open(path).ok());
        self.open += usize::from(file.is_some());
        self.known.insert(key, (places.to_vec(), file));
    }

    /// Where the file of an object may be found, by this process and the naming process.
    fn of(&self, object: &Object) -> Vec<PathBuf> {
        let Some((places, file)) = self.known.get(&object.facts_key) else { return Vec::new() };
        let descriptor = |file: &File| PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        file.as_ref().map(descriptor).into_iter().chain(places.iter().cloned()).collect()
    }
}

/// How the recording was made, and what that cost the process.
fn how(attach: &Attach, tally: &Tally, wall: Duration) -> String {
    let why = &attach.why;
    let stops = &tally.stops;
    let share = stops.total.as_secs_f64() * 100.0 / wall.as_secs_f64().max(1e-9);
    format!(
        "{FROM_OUTSIDE}{why}. {} stops of single running threads, {}, {share:.1} % of the time in all",
        stops.count,
        stops.lengths()
    )
}

/// Notes on what is missing.
fn losses(sampler: &Sampler, rate: u32, wall: Duration) -> Vec<String> {
    let tally = &sampler.tally;
    let mut notes = Vec::new();
    if sampler.wall {
        notes.push(sampler.waits.note());
        notes.extend(sampler.singles.note());
    }
    if sampler.unseen > 0 {
        let seconds = sampler.unseen as f64 / 1e9;
        notes.push(format!(
            "{seconds:.2} s of threads' time were not seen: they had ended before, or were not found in time"
        ));
    }
    if tally.left_out > 0 {
        notes.push(format!(
            "{} samples were left out: before they could be checked, the program had ended or unloaded code",
            tally.left_out
        ));
    }
    if tally.meanwhile > 0 {
        let seconds = tally.meanwhile as f64 / 1e9;
        notes.push(format!("{seconds:.2} s of CPU time passed unsampled, while newly loaded code was examined"));
    }
    if tally.unstopped > 0 {
        notes.push(format!(
            "{} times a thread could not be stopped, or not in time, and was not sampled",
            tally.unstopped
        ));
    }
    notes.extend(sampler.clockless.note());
    if sampler.beyond > 0 {
        notes
            .push(format!("{} children were not recorded: {CHILDREN} processes were recorded already", sampler.beyond));
    }
    let looked = tally.looks as f64 / wall.as_secs_f64().max(1e-9);
    let is_long = wall.as_secs_f64() * f64::from(rate) > 10.0;
    if is_long && looked < f64::from(rate) * LOOKED {
        notes.push(format!(
            "threads were looked at {looked:.0} times a second instead of {rate}: more would cost too much. Samples stand for \
             more time each"
        ));
    }
    if sampler.targets.iter().any(|target| target.names.is_full()) {
        notes.push("no room for the names of more code objects: frames of further ones have none".to_owned());
    }
    notes
}

/// A line on the process's children, which are not recorded.
pub fn not_recorded(children: &[u32]) -> Vec<String> {
    /// At most this number of them is named.
    const NAMED: usize = 5;
    let lives = |pid: &&u32| tids(**pid).is_ok();
    let named = children.iter().filter(lives).take(NAMED);
    let mut list: Vec<String> = named.map(|pid| format!("{} (pid {pid})", doing::name(*pid, *pid))).collect();
    if children.len() > NAMED {
        list.push(format!("{} more", children.len() - NAMED));
    }
    if list.is_empty() {
        return Vec::new();
    }
    vec![format!("{NOT_RECORDED}the process's children, which -p leaves out: {}", list.join(", "))]
}
