//! `uu pause` and `uu resume` of a recording: a page of memory, a memfd of the recorder's by which whoever may look at
//! its descriptors asks for the one or the other, and sees that it was done.
//!
//! ```text
//!  0  u64  magic word
//!  8  u32  pid of the program, or of the process of -p
//! 12  u32  flags: 1 its children are recorded, from outside; 2 it cannot be paused; 4 the recording is over
//! 16  u64  inode of the session's memory, by which recorded processes are known; 0: nothing of uu is in them
//! 24  u32  what was asked for last: bit 0 pause; the bits above it count
//! 28  u32  the last one of these that was done
//! ```
//! The recorder reads `asked` alone: others may write anything there.

use crate::session::SharedMemory;
use crate::survey::see;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::maps;
use uunwind_elf::process;
use uunwind_recording::PAUSED;

const MAGIC: u64 = u64::from_le_bytes(*b"uu-swtc1");
const BYTES: usize = 4096;
const MAIN: usize = 8;
const FLAGS: usize = 12;
const INODE: usize = 16;
const ASKED: usize = 24;
const DONE: usize = 28;
const NAME: &std::ffi::CStr = c"uu-switch";
const LINK: &[u8] = b"/memfd:uu-switch";
const WITH_CHILDREN: u32 = 1;
const TIMED_BY_EVENTS: u32 = 2;
const OVER: u32 = 4;
/// Longest wait for the recorder to do it, which looks each second while the program does nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// At most this number of parents is looked at.
const PARENTS: usize = 64;

/// What a recorder can be asked for by others.
pub struct Switch {
    /// `None`: there is no memory for it, and nobody can ask.
    memory: Option<SharedMemory>,
    seen: u32,
    since: Option<Instant>,
    times: u32,
    paused: Duration,
}

/// What is recorded, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Of {
    /// The program, or the process of `-p`.
    pub pid: u32,
    /// Inode of the session's memory; 0: there is none.
    pub session: u64,
    /// Its children are recorded, from outside.
    pub with_children: bool,
    /// Perf events time the samples: it cannot be paused.
    pub by_events: bool,
}

impl Switch {
    /// That of a recording, which is paused from the beginning, or not.
    pub fn new(of: Of, paused: bool) -> Switch {
        let memory = SharedMemory::create(NAME, BYTES).ok();
        if let Some(memory) = &memory {
            let half = |offset: usize, value| {
                memory.half(offset).into_iter().for_each(|half| half.store(value, Ordering::Relaxed));
            };
            let flags = [(of.with_children, WITH_CHILDREN), (of.by_events, TIMED_BY_EVENTS)];
            half(MAIN, of.pid);
            half(FLAGS, flags.iter().filter(|(is, _)| *is).fold(0, |all, (_, flag)| all | flag));
            memory.word(INODE).into_iter().for_each(|word| word.store(of.session, Ordering::Relaxed));
            memory.word(0).into_iter().for_each(|word| word.store(MAGIC, Ordering::Release));
        }
        let mut switch = Switch { memory, seen: 0, since: None, times: 0, paused: Duration::ZERO };
        if paused {
            switch.note(true);
        }
        switch
    }

    /// Whether the recording is paused.
    pub fn is_paused(&self) -> bool {
        self.since.is_some()
    }

    /// What was asked for since the last look: to pause, or to resume. It counts as done with the next look.
    pub fn look(&mut self) -> Option<bool> {
        let memory = self.memory.as_ref()?;
        // What was returned last time is done by now.
        memory.half(DONE)?.store(self.seen, Ordering::Release);
        let asked = memory.half(ASKED)?.load(Ordering::Acquire);
        if asked == self.seen {
            return None;
        }
        self.seen = asked;
        let paused = asked & 1 != 0;
        self.note(paused);
        Some(paused)
    }

    /// Says at once that it is done.
    pub fn done(&self) {
        if let Some(done) = self.memory.as_ref().and_then(|memory| memory.half(DONE)) {
            done.store(self.seen, Ordering::Release);
        }
    }

    fn note(&mut self, paused: bool) {
        match (paused, self.since) {
            (true, None) => (self.since, self.times) = (Some(Instant::now()), self.times + 1),
            (false, Some(since)) => (self.since, self.paused) = (None, self.paused + since.elapsed()),
            _ => {}
        }
    }

    /// The recording is over. A line for people, if it was ever paused.
    pub fn end(&mut self) -> Option<String> {
        if let Some(flags) = self.memory.as_ref().and_then(|memory| memory.half(FLAGS)) {
            flags.fetch_or(OVER, Ordering::Release);
        }
        let was_paused = self.is_paused();
        self.note(false);
        let (times, seconds) = (self.times, self.paused.as_secs_f64());
        let end = if was_paused { ", and so at its end" } else { "" };
        let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
        (self.times > 0).then(|| format!("{PAUSED}{times}{end}, for {seconds:.2} s in all"))
    }
}

/// Why a recording was not paused or resumed.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// Nothing records it, as far as can be seen.
    #[error("{}", not_recorded(.0, .1))]
    NotRecorded(u32, bool),
    /// Perf events time its samples.
    #[error(
        "the recording of process {0} cannot be paused: perf events time its samples. Record it without --kernel, and at \
         a rate of at most 1000 Hz"
    )]
    ByEvents(u32),
    /// The recording is over.
    #[error("the recording of process {0} is over: uu (process {1}) writes what it has")]
    Over(u32, u32),
    /// uu does not answer.
    #[error("uu (process {0}) has not answered for 10 s: it is stopped, or the machine has no time for it")]
    Silent(u32),
    /// The memory by which uu is asked cannot be used.
    #[error("uu (process {0}) cannot be asked: {1}")]
    Memory(u32, io::Error),
}

/// The text of [`SwitchError::NotRecorded`]. `hidden`: there is a uu whose descriptors may not be looked at.
fn not_recorded(pid: &u32, hidden: &bool) -> String {
    let other = if *hidden { ", or by another user's uu" } else { "" };
    format!(
        "process {pid} is not being recorded{other}. Start it with `uu record`, or record it with `uu record -p {pid}`"
    )
}

/// Pauses the recording of a process, or resumes it, and waits until that is done. `pid`: a recorded process, or the uu
/// that records. Returns the process id of that uu.
pub fn ask(pid: u32, paused: bool) -> Result<u32, SwitchError> {
    if see(pid).is_none() {
        return Err(SwitchError::NoProcess(pid));
    }
    let mut hidden = false;
    let mut over = None;
    for recorder in recorders() {
        let (file, inode) = match switch_of(recorder) {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(error) => {
                hidden |= error.kind() == io::ErrorKind::PermissionDenied;
                continue;
            }
        };
        let memory = SharedMemory::of_file(file, BYTES).map_err(|error| SwitchError::Memory(recorder, error))?;
        let half = |offset| memory.half(offset).map_or(0, |half| half.load(Ordering::Acquire));
        let (main, flags, session) =
            (half(MAIN), half(FLAGS), memory.word(INODE).map_or(0, |word| word.load(Ordering::Relaxed)));
        let is_magic = memory.word(0).is_some_and(|word| word.load(Ordering::Acquire) == MAGIC);
        let is_it = pid == recorder
            || pid == main
            || session != 0 && has_session(pid, session)
            || flags & WITH_CHILDREN != 0 && descends(pid, main);
        if !is_magic || inode == 0 || !is_it {
            continue;
        }
        if flags & OVER != 0 {
            over = Some(recorder);
            continue;
        }
        if flags & TIMED_BY_EVENTS != 0 {
            return Err(SwitchError::ByEvents(main));
        }
        return switch(&memory, (recorder, main), paused);
    }
    Err(over.map_or(SwitchError::NotRecorded(pid, hidden), |recorder| SwitchError::Over(pid, recorder)))
}

fn switch(memory: &SharedMemory, (recorder, main): (u32, u32), paused: bool) -> Result<u32, SwitchError> {
    let none = || SwitchError::Memory(recorder, io::ErrorKind::InvalidData.into());
    let (asked, done): (&AtomicU32, &AtomicU32) =
        (memory.half(ASKED).ok_or_else(none)?, memory.half(DONE).ok_or_else(none)?);
    let next = |before: u32| (before >> 1).wrapping_add(1) << 1 | u32::from(paused);
    let before = asked.fetch_update(Ordering::AcqRel, Ordering::Acquire, |before| Some(next(before)));
    let wanted = next(before.unwrap_or_else(|now| now));
    let begun = Instant::now();
    loop {
        let last = done.load(Ordering::Acquire);
        if (last >> 1).wrapping_sub(wanted >> 1) < 1 << 30 {
            return Ok(recorder);
        }
        let is_over = memory.half(FLAGS).is_some_and(|flags| flags.load(Ordering::Acquire) & OVER != 0);
        if is_over || see(recorder).is_none_or(|seen| seen.zombie) {
            return Err(SwitchError::Over(main, recorder));
        }
        if begun.elapsed() > PATIENCE {
            return Err(SwitchError::Silent(recorder));
        }
        uunwind_clock::sleep(Duration::from_millis(2));
    }
}

/// The ids of all processes that are called as a `uu record` is.
fn recorders() -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let records = |pid: &u32| {
        let words = fs::read(process::file(*pid, "cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        let is_uu = words.next().is_some_and(|program| program.rsplit(|byte| *byte == b'/').next() == Some(b"uu"));
        is_uu && words.next() == Some(b"record")
    };
    pids.filter(records).collect()
}

/// The memory by which a recorder is asked, and its inode. `None`: it has none.
fn switch_of(recorder: u32) -> io::Result<Option<(OwnedFd, u64)>> {
    let folder: PathBuf = process::file(recorder, "fd");
    for entry in fs::read_dir(folder)?.flatten() {
        let Ok(link) = fs::read_link(entry.path()) else { continue };
        if link.as_os_str().as_encoded_bytes().starts_with(LINK) {
            let file: File = OpenOptions::new().read(true).write(true).open(entry.path())?;
            let inode = file.metadata()?.ino();
            return Ok(Some((file.as_fd().try_clone_to_owned()?, inode)));
        }
    }
    Ok(None)
}

/// Whether a process has the memory of a session mapped.
fn has_session(pid: u32, inode: u64) -> bool {
    maps::of(pid).into_iter().flatten().any(|mapping| mapping.inode == inode && mapping.name.starts_with(b"/memfd:uu-"))
}

/// Whether a process is a child of another one, or a child's child.
fn descends(pid: u32, from: u32) -> bool {
    let parents =
        std::iter::successors(Some(pid), |pid| see(*pid).map(|seen| seen.parent).filter(|parent| *parent > 1));
    parents.take(PARENTS).any(|pid| pid == from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_done_once() {
        let mut switch = Switch::new(Of { pid: 7, ..Of::default() }, false);
        assert_eq!((switch.look(), switch.is_paused()), (None, false));
        let fd = switch.memory.as_ref().expect("memory").file().try_clone_to_owned().expect("a descriptor");
        let other = SharedMemory::of_file(fd, BYTES).expect("mapped");
        let asks = std::thread::spawn(move || {
            let own = std::process::id();
            (switch_to(&other, own, true), switch_to(&other, own, false))
        });
        let mut seen = Vec::new();
        while seen.len() < 2 {
            seen.extend(switch.look());
            switch.done();
        }
        assert_eq!(asks.join().expect("no panic"), (true, true));
        assert_eq!(seen, [true, false]);
        let line = switch.end().expect("it was paused");
        assert!(line.starts_with("the recording was paused once, for "), "{line}");
    }

    fn switch_to(memory: &SharedMemory, own: u32, paused: bool) -> bool {
        super::switch(memory, (own, 7), paused).is_ok()
    }

    #[test]
    fn nobody_records_this_process() {
        let own = std::process::id();
        let text = ask(own, true).expect_err("it is not recorded").to_string();
        assert!(text.contains(&format!("process {own} is not being recorded")), "{text}");
        assert!(matches!(ask(u32::MAX >> 2, true), Err(SwitchError::NoProcess(_))));
        let mut begins = Switch::new(Of::default(), true);
        assert!(begins.is_paused() && begins.end().is_some_and(|line| line.contains("once, and so at its end")));
        assert!(Switch::new(Of::default(), false).end().is_none());
    }
}
