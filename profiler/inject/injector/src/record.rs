//! A recording of a running process by a sampler that was put into it.

use super::family::{Costs, Family};
use super::follow::Common;
use super::threads::THREADS;
use super::{is_of_events, Declined, Memories};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::maps;
use uunwind_elf::process;
use uunwind_loader::Analysers;
use uunwind_recorder::child::{self, interrupted, wait};
use uunwind_recorder::drain::Drain;
use uunwind_recorder::facts::FactsPublisher;
use uunwind_recorder::found_names::Unnamed;
use uunwind_recorder::objects::Objects;
use uunwind_recorder::output::{finish, Older};
use uunwind_recorder::reservation::Reservation;
use uunwind_recorder::snapshot::{Now, Snapshots};
use uunwind_recorder::survey::Survey;
use uunwind_recorder::switch::{Of, Switch};
use uunwind_recorder::{machine, Outcome};
use uunwind_recording::{End, EndCause, Object, Recording, Writer, FROM_INSIDE};
use uunwind_remote::refusal::check;
use uunwind_remote::threads::children;
use uunwind_remote_sampler::notes::not_recorded;
use uunwind_remote_sampler::record::{create_output, report, settings, Among, Attach, AttachError, Event};
use uunwind_tables_build::Cache;

/// Time between passes over the rings, in ms.
const INTERVAL: u32 = 10;
/// Time between checks for processes and threads that are gone, and between writes to the file.
const SECOND: Duration = Duration::from_secs(1);
/// Among other recordings, the longest time between looks at a process that does nothing.
const IDLE: Duration = Duration::from_secs(10);
/// The longest nap there, in intervals.
const LONGEST_NAP: u32 = 4;
/// Looks at processes take at most one of this many parts of the time.
const SHARE: u32 = 10;
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
    let (path, output) = create_output(attach)?;
    let languages = analysers.languages();
    let mut objects = Objects::new(Cache::of_user(), analysers).keep_open(attach.open_files());
    let common = Common::new(object, attach.rate, attach.flags).with_files(attach.open_files());
    let reservation = Reservation::with(pid);
    let (family, memories) = Family::begin(pid, attach.with_children, common).map_err(Refusal::Declined)?;
    let Memories { session, mut facts } = memories;
    if attach.start_paused {
        facts.switch(true);
    }
    let mut switch = Switch::new(Of { pid, session: session.memory().inode(), ..Of::default() }, attach.start_paused);
    // From here on, whatever happens, the samplers are taken out.
    family.pids().for_each(|pid| analyse(pid, &mut objects, &mut facts));
    let files = output.file().and_then(|file| Ok((file.try_clone()?, file)));
    let opened = files.and_then(|files| Ok((files, output.rename(path.clone()).map_err(io::Error::other)?)));
    let ((file, kept), (path, mut older)) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            give_up(family, &mut facts, &mut event);
            return Err(AttachError::Output(path, error).into());
        }
    };
    if let Some(signal) = interrupted() {
        give_up(family, &mut facts, &mut event);
        return Err(AttachError::Interrupted(signal).into());
    }
    let settings = settings(attach);
    let mut writer = Writer::begin(file, &settings);
    writer.label_all(attach.labels.clone());
    languages.iter().for_each(|language| writer.language(language));
    event(Event::Begun(&settings.command, &path));
    // Of events, no share of the CPU time is expected.
    let of_events = is_of_events(attach.flags);
    let survey = Survey::new(pid, PathBuf::new(), true, if of_events { 1 } else { attach.rate });
    // Each look goes through all processes of the machine.
    let survey = if attach.among.is_some() { survey.off() } else { survey };
    let mut drain = Drain::new(session, facts, objects, writer, survey);
    drain.interval = if of_events { attach.rate } else { 0 };
    let mut snapshots = Snapshots::new(attach.every).into_folder(attach.every_into.clone());
    let start = Instant::now();
    let (drained, switched, older_one) = (&mut drain, &mut switch, &mut older);
    let mut running =
        Running { attach, family, drain: drained, switch: switched, kept: &kept, path: &path, older: older_one };
    let cause = running.until_over(start, &mut snapshots, &mut event);
    let (wall, family) = (start.elapsed(), running.family);
    event(Event::Over);
    let is_left = cause != EndCause::ProgramEnded && !attach.with_children;
    let left = if is_left { children(pid) } else { Vec::new() };
    let since = family.registered();
    drain.facts.stop();
    let (costs, mut notes) = family.leave();
    drain.pass(false);
    child::forget_interrupt();
    let cpu_used = costs.used;
    notes.insert(0, how(attach, &costs));
    notes.extend(reservation.note());
    notes.extend(losses(&costs, since));
    notes.extend(switch.end());
    let unrecorded = not_recorded(&left);
    notes.extend(unrecorded.clone());
    report(snapshots.made(true), &mut event);
    notes.iter().for_each(|note| drain.writer.note(note));
    drain.finish_all();
    let (threads_without_block, samples) = (threads_without_block(&drain), drain.samples);
    let (time, recorder_cpu) = (machine::monotonic(), machine::own_cpu(0));
    let end = End { time, cause, cpu_used, recorder_cpu, samples, threads_without_block, ..End::default() };
    drain.writer.end(&end);
    drain.writer.flush();

    let mut recording = attach.named.then(|| Recording::read_open(&kept, &path).ok()).flatten();
    if let Some(recording) = &mut recording {
        let Drain { objects, jit, writer, .. } = &mut drain;
        let files = |object: &Object| objects.files(object);
        let unnamed = Unnamed::of(recording, &files, Some(jit));
        let names = unnamed.name_by(recording, &attach.namer, |done| event(Event::Naming(done)));
        let names = names.with_lines(objects.lines(recording));
        objects.close_plugins();
        names.append(recording, writer, machine::own_cpu(0));
    }
    let (output, write_error) = finish(&kept, &path, drain.writer.failure());
    child::let_signals_end();
    let outcome = Outcome { wait_status: None, pid, output, samples, cpu_used, wall, unrecorded, write_error, older };
    Ok((outcome, recording))
}

/// A recording that goes on.
struct Running<'a> {
    attach: &'a Attach,
    family: Family,
    drain: &'a mut Drain,
    switch: &'a mut Switch,
    /// The recording's file, and its path.
    kept: &'a File,
    path: &'a Path,
    /// The file that had this path before.
    older: &'a mut Option<Older>,
}

impl Running<'_> {
    /// Drains the rings until the recording is over; says why it is.
    fn until_over(&mut self, start: Instant, snapshots: &mut Snapshots, event: &mut impl FnMut(Event<'_>)) -> EndCause {
        if let Some(among) = &self.attach.among {
            return self.until_over_among(among, snapshots, event);
        }
        let (mut next, mut second) = (start, start);
        loop {
            let now = Instant::now();
            if now >= next {
                if let Some(cause) = self.look() {
                    return cause;
                }
                next = now + THREADS.max(now.elapsed() * SHARE).min(SECOND);
            }
            if self.attach.duration.is_some_and(|duration| start.elapsed() >= duration) {
                return EndCause::Duration;
            }
            if interrupted().is_some() || child::take_term() {
                return EndCause::Asked;
            }
            let look = second.elapsed() >= SECOND;
            if let Some(paused) = self.switch.look() {
                self.drain.switch(paused);
                self.switch.done();
            }
            self.drain.pass(look);
            if self.drain.samples > 0 {
                self.older.take().into_iter().for_each(Older::discard);
            }
            if look {
                second = Instant::now();
                self.drain.writer.flush();
            }
            if snapshots.is_due() {
                self.snapshot(snapshots);
            }
            report(snapshots.made(false), event);
            if wait(self.family.poll_fds(), INTERVAL).iter().any(|ready| *ready) {
                next = Instant::now();
            }
        }
    }

    /// The same for one of many recordings: nothing is looked at before the process has used the CPU time of a sample,
    /// or a while has passed.
    fn until_over_among(
        &mut self,
        among: &Among,
        snapshots: &mut Snapshots,
        event: &mut impl FnMut(Event<'_>),
    ) -> EndCause {
        let period = 1_000_000_000 / u64::from(self.attach.rate.max(1));
        let (mut last, mut used, mut has_ended) = (None::<Instant>, 0, false);
        let mut nap = among.interval;
        while !self.attach.is_over_with(self.drain.samples) {
            let now = machine::exact_cpu_of(self.attach.pid);
            let is_worth = now.is_none_or(|now| now.saturating_sub(used) >= period);
            if has_ended || is_worth || last.is_none_or(|last| last.elapsed() >= IDLE) {
                (last, used, nap) = (Some(Instant::now()), now.unwrap_or(used), among.interval);
                if let Some(cause) = self.look() {
                    return cause;
                }
                self.drain.pass(true);
                self.drain.objects.rest();
            } else {
                nap = (nap * 2).min(among.interval * LONGEST_NAP);
            }
            if snapshots.is_due_with(self.drain.samples) {
                self.snapshot(snapshots);
            }
            report(snapshots.made(false), event);
            has_ended = wait(self.family.poll_fds(), nap.as_millis() as u32).iter().any(|ready| *ready);
        }
        EndCause::Asked
    }

    /// Looks for processes and threads that are new or gone. Says why the recording is over, if none is left.
    fn look(&mut self) -> Option<EndCause> {
        let drain = &mut *self.drain;
        self.family.look(|pid| {
            drain.pass(false);
            analyse(pid, &mut drain.objects, &mut drain.facts);
        })
    }

    fn snapshot(&mut self, snapshots: &mut Snapshots) {
        self.drain.writer.flush();
        let Drain { objects, jit, samples, .. } = &*self.drain;
        let files = |object: &Object| objects.files(object);
        let (file, path, namer) = (self.kept, self.path, &self.attach.namer);
        snapshots.take(&Now { file, path, samples: *samples, files: &files, jit, namer });
    }
}

/// Takes the samplers out of processes that are not recorded after all.
fn give_up(family: Family, facts: &mut FactsPublisher, event: &mut impl FnMut(Event<'_>)) {
    facts.stop();
    let (_, notes) = family.leave();
    notes.iter().for_each(|note| event(Event::Left(note)));
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
        let exact = process::mapped_file(pid, mapping.start, mapping.end);
        let inside = uunwind_remote::objects::in_root(pid, &mapping.name);
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
fn how(attach: &Attach, costs: &Costs) -> String {
    format!(
        "{FROM_INSIDE}{}. A thread was borrowed {} times to put it in and to arm threads, for {:.1} ms in all",
        attach.why,
        costs.borrowed,
        costs.stood.as_secs_f64() * 1e3
    )
}

/// Notes on what is missing, or was done again. `since`: what the program has registered meanwhile.
fn losses(costs: &Costs, since: Option<&str>) -> Vec<String> {
    let mut notes = if costs.is_timed { costs.threads.losses(costs.used) } else { Vec::new() };
    notes.extend(since.map(|kind| {
        format!("the program has registered {kind} meanwhile, which the sampler does not see: record it with --remote")
    }));
    if costs.programs > 0 {
        notes.push(format!(
            "the process has called exec: {} more programs were sampled, each from when its libraries were loaded",
            costs.programs
        ));
    }
    notes
}
