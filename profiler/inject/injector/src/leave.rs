//! The sampler is taken out of a process: this uu's, or one that a uu has left that was killed.
//!
//! First its timers and its handler go. Then all threads are looked at once, those that run by a stop, to see that
//! none stands in its code or has a frame there: its handler counts the threads inside, and calls nothing outside of
//! its own code. Then nobody can get in any more, and it is unmapped.

use super::preflight::{debug_of, Code};
use super::redirect::Unbound;
use super::remote_call::{Borrowed, Trouble};
use super::{alone, gate, lives, redirect, with_thread, Declined};
use rustix::io::Errno;
use std::io;
use std::mem::offset_of;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::maps::{self, Mapping};
use uunwind_elf::process;
use uunwind_recorder::machine::Stat;
use uunwind_remote::memory::Memory;
use uunwind_remote::refusal::is_gone;
use uunwind_remote::registers::pc;
use uunwind_remote::threads::{tids, Stopped};
use uunwind_ring::injected::{Control, Region, CONTROL_BYTES, MAGIC, NEW, OVER, REGIONS};

/// Longest time in which a sampler is tried to be taken out.
pub const LONGEST: Duration = Duration::from_secs(10);
/// Longest wait for a thread to stop.
const STOP: Duration = Duration::from_millis(200);
/// Longest wait for all of them to stand, for a process's entries; and how often.
const UNDO: Duration = Duration::from_secs(1);
const UNDOINGS: u32 = 3;

/// The control memory of a sampler.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ControlMemory {
    /// Its address in the process; 0: there is none.
    pub at: u64,
    /// Inode of its file: another uu's memory may lie at that address later.
    pub inode: u64,
}

/// A sampler that is to go.
#[derive(Clone, Copy)]
pub struct Left {
    /// The process.
    pub pid: u32,
    /// Its control memory.
    pub control: ControlMemory,
    /// Address of its function that ends the sampling; 0: it has installed nothing.
    pub end: u64,
    /// Its code.
    pub text: Region,
}

/// The attempts to have a process's entries lead to where they led before.
struct Undoing {
    /// How often it is tried, if it fails.
    left: u32,
    /// Why it has failed the last time.
    why_not: Option<String>,
}

impl Undoing {
    /// That they stay as they are, if they do.
    fn note(self, pid: u32) -> Option<String> {
        let why = self.why_not?;
        Some(format!(
            "calls of process {pid} go on through the stubs that uu has put there, which only pass them on: their \
             addresses could not be put back, since {why}. The next uu record -p puts them back"
        ))
    }
}

/// Takes out what an earlier `uu` has left in a process, which nobody else changes ([`super::exclusive`]). Error: a
/// `uu` that lives is recording it.
pub fn remove_left(pid: u32) -> Result<(), Declined> {
    let mappings: Vec<Mapping> = maps::of(pid).into_iter().flatten().collect();
    let control = mappings.iter().find(|m| is_control(m));
    if control.is_none() && ours(&mappings).is_empty() && files(pid).is_empty() {
        return Ok(());
    }
    let memory = Memory::of(pid);
    let no_code = || Declined::new("an earlier uu has left a sampler there, which cannot be taken out");
    let code = Code::find(&memory, &mappings).ok_or_else(no_code)?;
    let mut left = Left { pid, control: ControlMemory::default(), end: 0, text: Region::default() };
    if let Some(control) = control {
        let number = |offset: usize| left_word(&memory, control.start + offset as u64);
        let recorder = number(offset_of!(Control, recorder)) as u32;
        if number(offset_of!(Control, magic)) == MAGIC {
            // This uu itself comes here when it could not finish.
            let own = recorder == std::process::id();
            let of = number(offset_of!(Control, pid)) as u32;
            if of != 0 && of != pid {
                let why = format!("it has the memory of the sampler of process {of}, as a child of fork or vfork may");
                return Err(Declined::new(why));
            }
            if !own && lives(recorder, number(offset_of!(Control, recorder_began))) {
                return Err(Declined::new(format!("uu (process {recorder}) records it already by a sampler in it")));
            }
            left.end = number(offset_of!(Control, end));
            left.text = Region {
                start: number(offset_of!(Control, text)),
                len: number(offset_of!(Control, text) + offset_of!(Region, len)),
            };
        }
        left.control = ControlMemory { at: control.start, inode: control.inode };
    }
    left.remove(&code, &Unbound::new(), Instant::now() + LONGEST).map(|_| ()).map_err(Declined::new)
}

fn left_word(memory: &Memory, at: u64) -> u64 {
    let mut bytes = [0; 8];
    if memory.read_now(at, &mut bytes) {
        u64::from_le_bytes(bytes)
    } else {
        0
    }
}

fn is_control(mapping: &Mapping) -> bool {
    mapping.name.starts_with(b"/memfd:uu-control-injected") && mapping.permissions.ends_with('s')
}

impl ControlMemory {
    /// Whether it still lies there. After an exec or the process's end it does not, and the addresses that are known of
    /// the process mean nothing any more.
    fn is_there(self, pid: u32) -> io::Result<bool> {
        let mut mappings = maps::of(pid)?.peekable();
        if mappings.peek().is_none() {
            // So it is when the process has ended. If threads of it live, it cannot be known.
            return Ok(tids(pid)?.iter().any(|tid| *tid != pid));
        }
        Ok(mappings.any(|m| (m.start, m.inode) == (self.at, self.inode) && is_control(&m)))
    }

    /// An error if it does not. For the process of a borrowed thread: that goes on before an exec can be over.
    pub fn must_be_there(self, pid: u32) -> Result<(), Trouble> {
        if self.is_there(pid)? {
            Ok(())
        } else {
            Err(Trouble::Failed(Errno::SRCH.into()))
        }
    }
}

/// The pc of a thread that waits; `None`: it runs, or is ready to, or cannot be looked at. A thread that waits for a
/// page (state D) counts as one that runs: the page may be that of the frame of a signal which it is about to handle.
fn waits_at(pid: u32, tid: u32) -> Option<u64> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    // After the pc, which may be that of a wait before: it is seen outside now.
    Stat::of_thread(pid, tid).filter(|stat| stat.field(3) == Some("S"))?;
    u64::from_str_radix(line.trim_end().rsplit_once(" 0x")?.1, 16).ok()
}

/// Mappings that only a sampler has.
fn ours(mappings: &[Mapping]) -> Vec<Region> {
    let names: [&[u8]; 3] = [b"/memfd:uu-control-injected", b"/memfd:uu-session-injected", b"/memfd:uu-facts-injected"];
    let is_ours = |m: &&Mapping| names.iter().any(|name| m.name.starts_with(name));
    mappings.iter().filter(is_ours).map(|m| Region { start: m.start, len: m.end - m.start }).collect()
}

/// Open files that only the beginning of a sampler has.
fn files(pid: u32) -> Vec<u64> {
    let entries = std::fs::read_dir(process::file(pid, "fd")).into_iter().flatten().flatten();
    let is_ours = |entry: &std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        target.starts_with("/memfd:uu-") && target.contains("-injected")
    };
    entries.filter(is_ours).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

impl Left {
    /// Takes it out: tries it until the deadline, and once at least. Error: what is left, and why. Returns what else
    /// people should know.
    /// `unbound`: of entries that were redirected.
    pub fn remove(self, code: &Code, unbound: &Unbound, deadline: Instant) -> Result<Option<String>, String> {
        let mut undoing = Undoing { left: UNDOINGS, why_not: None };
        let why = loop {
            let why = match self.try_once(code, unbound, &mut undoing) {
                Ok(true) => return Ok(undoing.note(self.pid)),
                Ok(false) => "threads stood in its handler each time".to_owned(),
                Err(trouble) => Declined::from(trouble).why,
            };
            if tids(self.pid).is_err_and(|error| is_gone(&error)) {
                return Ok(None);
            }
            if Instant::now() >= deadline {
                break why;
            }
            uunwind_clock::sleep(Duration::from_millis(1));
        };
        Err(format!(
            "the sampler's memory stays in process {}, where nothing of it runs any more: {why}. The next uu takes it out",
            self.pid
        ))
    }

    /// True: it is gone. False: a thread stands in its code.
    /// `undoing`: how often it is tried to have the process's entries lead to where they led before, if they do not. If
    /// it fails, they stay: the gate does, too, and only passes calls on.
    fn try_once(&self, code: &Code, unbound: &Unbound, undoing: &mut Undoing) -> Result<bool, Trouble> {
        if self.control.at != 0 && !self.control.is_there(self.pid)? {
            return Ok(true);
        }
        if undoing.left > 0 {
            undoing.left -= 1;
            if let Err(trouble) = redirect::undo(self.pid, debug_of(self.pid), unbound, UNDO) {
                let declined = Declined::from(trouble);
                undoing.why_not = Some(declined.why.clone());
                return Err(Trouble::Failed(io::Error::other(declined.why)));
            }
            *undoing = Undoing { left: 0, why_not: None };
        }
        let memory = Memory::of(self.pid);
        let half = |offset: usize| left_word(&memory, self.control.at + offset as u64) as u32;
        let state = || half(offset_of!(Control, state));
        if self.end != 0 && self.control.at != 0 && state() != OVER && state() != NEW {
            with_thread(self.pid, code, self.text, |thread| {
                self.control.must_be_there(self.pid)?;
                thread.call_function(self.end, self.control.at)
            })?;
            if state() != OVER {
                return Ok(false);
            }
        }
        let inside = half(offset_of!(Control, inside));
        if gate::all_in(self.pid).iter().any(|gate| gate::is_inside(&memory, *gate)) {
            return Ok(false);
        }
        if self.end != 0 && (inside != 0 || !alone(|| self.is_empty())?) {
            return Ok(false);
        }
        with_thread(self.pid, code, self.text, |thread| self.unmap(thread))?;
        Ok(true)
    }

    /// Closes and unmaps all that is left. What is looked up for that is looked up now: the process runs on meanwhile.
    /// Nothing is unmapped twice, since other threads may map something in the place of what is gone.
    fn unmap(&self, thread: &mut Borrowed<'_>) -> Result<(), Trouble> {
        let mappings: Vec<Mapping> = maps::of(self.pid)?.collect();
        if self.control.at != 0 {
            self.control.must_be_there(self.pid)?;
        }
        let noted = self.noted(&Memory::of(self.pid));
        for file in files(self.pid) {
            let _ = thread.call(libc::SYS_close, [file, 0, 0, 0, 0, 0]);
        }
        let unmap = |thread: &mut Borrowed<'_>, region: Region| {
            thread.call(libc::SYS_munmap, [region.start, region.len, 0, 0, 0, 0])
        };
        for (note, region) in &noted {
            // The note goes first: if uu is killed in between, that memory stays, and the next uu unmaps nothing of
            // the program's.
            thread.write(*note, &[0; 8])?;
            unmap(thread, *region)?;
        }
        let is_noted = |part: &Region| {
            let end = |region: &Region| region.start.saturating_add(region.len);
            noted.iter().any(|(_, region)| region.start <= part.start && end(part) <= end(region))
        };
        for part in ours(&mappings).into_iter().filter(|part| part.start != self.control.at && !is_noted(part)) {
            unmap(thread, part)?;
        }
        // The control memory goes last: while it is there, what is left can be found.
        if self.control.at != 0 {
            unmap(thread, Region { start: self.control.at, len: CONTROL_BYTES as u64 })?;
        }
        Ok(())
    }

    /// Whether no thread stands in its code, or has a frame of it. Its handler is gone: a thread that was once seen
    /// outside never comes in again, so they are looked at one by one.
    fn is_empty(&self) -> Result<bool, Trouble> {
        let text = self.text.start..self.text.start.saturating_add(self.text.len);
        for tid in tids(self.pid)? {
            // A thread that waits in a call is not on its way into a handler, and is not touched.
            let pc = waits_at(self.pid, tid).or_else(|| self.stands_at(tid));
            let lives = || std::fs::metadata(format!("/proc/{}/task/{tid}", self.pid)).is_ok();
            if pc.map_or_else(lives, |pc| text.contains(&pc)) {
                return Ok(false);
            }
        }
        let at = self.control.at + offset_of!(Control, inside) as u64;
        Ok(left_word(&Memory::of(self.pid), at) as u32 == 0)
    }

    /// The pc of a thread, by a stop. `None`: it has ended, or could not be stopped in time.
    fn stands_at(&self, tid: u32) -> Option<u64> {
        let stopped = Stopped::one(self.pid, tid, STOP).ok()?;
        let pc = stopped.registers(tid).map(|registers| pc(&registers));
        stopped.let_go();
        pc
    }

    /// The mappings that its control memory names, after the address of the length there.
    fn noted(&self, memory: &Memory) -> Vec<(u64, Region)> {
        if self.control.at == 0 {
            return Vec::new();
        }
        let word = |offset: usize| left_word(memory, self.control.at + offset as u64);
        let count = (word(offset_of!(Control, region_count)) as u32 as usize).min(REGIONS);
        let at = |index: usize| offset_of!(Control, regions) + index * size_of::<Region>();
        let len_at = |index: usize| at(index) + offset_of!(Region, len);
        let region = |index: usize| Region { start: word(at(index)), len: word(len_at(index)) };
        let noted = (0..count).map(|index| (self.control.at + len_at(index) as u64, region(index)));
        noted.filter(|(_, region)| region.start != 0 && region.len != 0).collect()
    }
}
