//! A recording that goes on: passes until its end, names, and what it leaves behind.

use crate::child::{take_term, wait, Child};
use crate::config::{Outcome, Walk};
use crate::drain::Drain;
use crate::elsewhere::Elsewhere;
use crate::found_names::{FoundNames, Unnamed};
use crate::kept_names::Namer;
use crate::listener::Waker;
use crate::machine;
use crate::naming::Progress;
use crate::output::{settle, Older};
use crate::rest::Rest;
use crate::safe_path::SafePaths;
use crate::snapshot::{Now, Snapshots};
use crate::switch::Switch;
use crate::traceme;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_recording::{End, EndCause, Object, Recording, LEFT_RUNNING, NOT_RECORDED};
use uunwind_ring::layout::SESSION_VERSION;

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

/// A recording and its program, which may still run when the recording is over.
pub struct Running {
    pub(super) child: Child,
    /// The ELF file that it began with.
    pub(super) executable: PathBuf,
    pub(super) drain: Drain,
    pub(super) elsewhere: Option<Elsewhere>,
    pub(super) waker: Waker,
    pub(super) safe: SafePaths,
    pub(super) path: PathBuf,
    /// The file that had this path before.
    pub(super) older: Option<Older>,
    /// The recording's file, also if its path now leads to another one.
    pub(super) kept: File,
    pub(super) namer: Namer,
    pub(super) rename_error: Option<std::io::Error>,
    pub(super) naming: Option<Recording>,
    /// Time from the start of the program to the end of the recording.
    pub(super) wall: Duration,
    /// CPU time of the program and of its processes that still ran at the end, and of the children that these had
    /// waited for, in ns.
    pub(super) cpu_used: u64,
    pub(super) snapshots: Snapshots,
    pub(super) walk: Option<Walk>,
    pub(super) switch: Switch,
}

impl Running {
    /// Lets threads run on that have called PTRACE_TRACEME. Where waits are watched, it must not: a stop of the
    /// program's main thread, which the watcher's thread asked for, is given to any thread of its parent that waits.
    pub(super) fn release(&self) {
        if self.drain.watcher.is_none() {
            traceme::release(self.child.pid());
        }
    }

    /// Drains until the program ends or the time is over.
    pub(super) fn until_end(&mut self, duration: Option<Duration>, event: &mut impl FnMut(Event<'_>)) -> EndCause {
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
    pub(super) fn snapshot(&mut self) {
        self.drain.writer.flush();
        let Drain { objects, jit, samples, .. } = &self.drain;
        let files = |object: &Object| objects.files(object);
        let (file, path, namer) = (&self.kept, &self.path, &self.namer);
        self.snapshots.take(&Now { file, path, samples: *samples, files: &files, jit, namer });
    }

    /// Reports a snapshot that is made; with `wait`, the last one is waited for.
    pub(super) fn snapshot_made(&mut self, wait: bool, event: &mut impl FnMut(Event<'_>)) {
        if let Some(made) = self.snapshots.made(wait) {
            let why = made.error.map(|error| error.to_string());
            event(Event::Snapshot(&made.path, why.as_deref()));
        }
    }

    /// Stops the recording in processes that still run, drains a last time, and writes the totals.
    pub(super) fn close(&mut self, cause: EndCause) {
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
        self.elsewhere = None;
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
        if let Some(line) = self.drain.without_ids() {
            self.drain.writer.note(&line);
        }
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
    pub(super) fn other_version(&self) -> Option<String> {
        let version = self.drain.session.other_version()?;
        Some(format!(
            "{NOT_RECORDED}processes that have loaded libuunwind-preload.so of session version {version}, while this uu is of version \
             {SESSION_VERSION}. Both must come from one installation: install uu again, and start the recording anew"
        ))
    }

    /// Adds a note that names the processes that the program has left running, which are no longer recorded.
    pub(super) fn note_left_running(&mut self) {
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
    pub(super) fn name(&mut self, progress: impl FnMut(Progress)) {
        // If not even the header could be written, there is nothing to name; the outcome has the error.
        let Ok(mut recording) = Recording::read_open(&self.kept, &self.path) else { return };
        let objects = &self.drain.objects;
        let files = |object: &Object| objects.files(object);
        if let Some(walk) = self.walk {
            walk(&mut recording, &files);
        }
        let unnamed = Unnamed::of(&recording, &files, Some(&self.drain.jit));
        let names = unnamed.name_by(&recording, &self.namer, progress);
        self.append(names, recording);
    }

    /// Leaves the functions of objects to be named from their files by whoever shows the recording. What only this
    /// process has is appended: names in files that are gone, of code made at run time, and lines that plugins decode.
    pub(super) fn leave_unnamed(&mut self) {
        let Ok(recording) = Recording::read_open(&self.kept, &self.path) else { return };
        let objects = &self.drain.objects;
        let files = |object: &Object| objects.files(object);
        let names = Unnamed::of(&recording, &files, Some(&self.drain.jit)).name_passing(&recording, &self.namer);
        self.append(names, recording);
    }

    /// Appends names, with the lines that plugins decode, to the recording that they were found for.
    pub(super) fn append(&mut self, names: FoundNames, mut recording: Recording) {
        let names = names.with_lines(self.drain.objects.lines(&recording));
        self.drain.objects.close_plugins();
        let own_cpu = machine::own_cpu(self.child.ended().map_or(0, |ended| ended.cpu));
        names.append(&mut recording, &mut self.drain.writer, own_cpu);
        self.naming = Some(recording);
    }

    /// Gives the recording a name again if it has lost the one that it had.
    pub(super) fn settle(&mut self) {
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
