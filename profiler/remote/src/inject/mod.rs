//! A sampler is put into a running process, and taken out again.
//!
//! `uu` is the sampler's loader: it maps the object, applies its relocations, and calls its functions, all by a
//! thread of the process that it borrows for a millisecond. The object imports nothing and makes system calls only,
//! so it does not matter at which instruction the threads stand, nor which locks they hold: nothing of libc or of the
//! dynamic loader is called.
//!
//! ```text
//! borrow         a thread makes system calls for us, and goes on where it was, whatever becomes of uu
//! place          what is found out about the process before, and why it will not do
//! process        a process, told apart from a later one with its id
//! registrations  code that it has registered, which a sampler would not see
//! image          the sampler's object
//! opened         files that the process opens
//! pass           files of uu's are passed to the process
//! leave          the sampler is taken out, this uu's or one that an earlier uu has left
//! threads        the process's threads get their timers
//! forked         children that were forked while a sampler went in
//! follow         the samplers of one process: after an exec, another one
//! family         a process, and its children
//! record         a recording by such samplers
//! ```
//!
//! While it is there, a process has: a handler for SIGSTKFLT; a CPU timer for each thread; these mappings, which
//! children do not inherit. No file stays open.

mod borrow;
mod family;
mod follow;
mod forked;
mod image;
mod leave;
mod opened;
mod pass;
mod place;
mod process;
pub mod record;
mod registrations;
mod threads;

use crate::memory::Memory;
use crate::prepared::Image;
use crate::threads::tids;
use crate::waits::Registers;
use borrow::{Borrowed, Trouble, STACK};
use forked::Files;
use image::Sampler;
use opened::{file_there, is_still, Opened};
use place::Place;
use process::Process;
use rustix::fs::{fcntl_add_seals, ftruncate, SealFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use uunwind_elf::maps::{self, Mapping};
use uunwind_recorder::facts::FactsPublisher;
use uunwind_recorder::machine::Stat;
use uunwind_recorder::session::{memory_file, Session};
use uunwind_ring::facts::PUBLISHED_BYTES;
use uunwind_ring::injected::{
    self as ring, Control, Region, Request, ALTERNATE_STACK, ARM, BATCH, BEGUN, CONTROL_BYTES, FAILED_CALL, FORGET,
    MAGIC, SIGNAL_TAKEN, VERSION,
};
use uunwind_ring::layout::SESSION_BYTES;

/// The sampler's signal.
pub const SIGNAL: i32 = libc::SIGSTKFLT;
/// Longest time in which a thread is looked for that can be borrowed.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why no sampler was put into a process: it can still be recorded from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined {
    /// What decides, for people.
    pub why: String,
    /// It stays so as long as the process runs this program.
    is_final: bool,
    /// Something is said besides.
    has_notes: bool,
}

impl Declined {
    /// For a reason that may pass.
    pub fn new(why: impl Into<String>) -> Declined {
        Declined { why: why.into(), is_final: false, has_notes: false }
    }

    fn for_good(why: impl Into<String>) -> Declined {
        Declined { is_final: true, ..Declined::new(why) }
    }

    /// The same, with what else people should know.
    fn with(mut self, notes: impl IntoIterator<Item = String>) -> Declined {
        for note in notes {
            self.why += &format!(" (and {note})");
            self.has_notes = true;
        }
        self
    }
}

impl From<Trouble> for Declined {
    fn from(trouble: Trouble) -> Declined {
        match trouble {
            Trouble::Unfit => Declined::new("no thread stood at a place where it could be borrowed"),
            Trouble::Stopped => Declined::new("the process is stopped (SIGSTOP)"),
            Trouble::Locks => Declined::for_good("it locks all memory that it will ever map (mlockall)"),
            Trouble::Failed(error) => Declined::new(format!("a call in the process failed: {error}")),
            Trouble::Faulted(signal) => Declined::new(format!("a call in the process raised signal {signal}")),
        }
    }
}

/// The control memory, mapped here.
struct Shared {
    at: *mut Control,
}

// SAFETY: the mapping is shared memory of this process, used by one thread at a time.
unsafe impl Send for Shared {}
// SAFETY: as above; what the other process changes meanwhile is atomic.
unsafe impl Sync for Shared {}

impl Shared {
    fn map(file: &File) -> io::Result<Shared> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file whose size is sealed.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), CONTROL_BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Shared { at: at.cast() })
    }

    fn get(&self) -> &Control {
        // SAFETY: CONTROL_BYTES are mapped; any bytes are a valid value.
        unsafe { &*self.at }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, and no reference outlives the value.
        unsafe { libc::munmap(self.at.cast(), CONTROL_BYTES) };
    }
}

/// A sampler in a process.
pub struct Injected {
    pid: u32,
    place: Place,
    control: Shared,
    /// The control memory's address there.
    control_at: u64,
    base: u64,
    sampler: Sampler,
    /// The program that it is in.
    pub image: Image,
    /// How long threads stood for it.
    pub stood: Duration,
    /// How often a thread was borrowed.
    pub borrowed: u32,
    /// What people should know of how it was put in.
    note: Option<String>,
}

/// How a process is sampled, and what is said of it.
pub struct Settings {
    /// In Hz.
    pub rate: u32,
    /// `FLAG_*` of the session.
    pub flags: u32,
    /// The id of the process's parent.
    pub parent: u32,
    /// `ProcessBlock::origin`, as long as it runs this program.
    pub origin: u32,
    /// The program.
    pub image: Image,
}

/// What is written into the process's session, and what it reads.
pub struct Memories {
    /// Its rings.
    pub session: Session,
    /// Facts and rule tables for it.
    pub facts: FactsPublisher,
}

/// Runs something on a thread of its own: what it traces and cannot stop in time is let go when that ends.
fn alone<T: Send>(run: impl FnOnce() -> Result<T, Trouble> + Send) -> Result<T, Trouble> {
    let done = std::thread::scope(|scope| scope.spawn(run).join());
    done.unwrap_or_else(|_| Err(Trouble::Failed(io::Error::other("uu has panicked"))))
}

/// Borrows any thread that is fit, for some calls. `text`: code in which it may not stand.
fn with_thread<T: Send>(
    pid: u32,
    code: &place::Code,
    text: Region,
    mut run: impl FnMut(&mut Borrowed<'_>) -> Result<T, Trouble> + Send,
) -> Result<T, Trouble> {
    let begun = Instant::now();
    loop {
        match alone(|| with_any(pid, code, text, begun, &mut run)) {
            Err(Trouble::Unfit) if begun.elapsed() <= PATIENCE => std::thread::sleep(Duration::from_millis(2)),
            other => return other,
        }
    }
}

/// As [`with_thread`], which has begun then, but no thread is asked twice.
fn with_any<T>(
    pid: u32,
    code: &place::Code,
    text: Region,
    begun: Instant,
    run: impl FnOnce(&mut Borrowed<'_>) -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    let mappings: Vec<Mapping> = maps::of(pid)?.collect();
    let fits = |registers: &Registers| {
        let is_inside = (text.start..text.start + text.len).contains(&registers.rip);
        !is_inside && place::has_stack(registers, &mappings, STACK + 16 * 1024)
    };
    if tids(pid)?.is_empty() {
        return Err(Trouble::Failed(rustix::io::Errno::SRCH.into()));
    }
    let mut failed = None;
    for tid in place::in_order(pid) {
        if begun.elapsed() > PATIENCE {
            break;
        }
        match Borrowed::take(pid, tid, code, fits) {
            // From here on, an exec ends this thread before it is over.
            Ok(_) if !code.lies_there(&Memory::of(pid)) => {
                return Err(Trouble::Failed(io::Error::other("its code is not where it was")))
            }
            Ok(mut borrowed) => return run(&mut borrowed),
            Err(Trouble::Unfit) => {}
            // The first thread may have ended before the others.
            Err(Trouble::Failed(error)) => failed = failed.or(Some(error)),
            Err(other) => return Err(other),
        }
    }
    Err(failed.map_or(Trouble::Unfit, Trouble::Failed))
}

/// Maps a file of the process there, out of its children's sight.
fn map(thread: &mut Borrowed<'_>, at: u64, len: u64, how: (u64, i32), file: (u64, u64)) -> Result<u64, Trouble> {
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED };
    let flags = (how.1 | libc::MAP_NORESERVE | fixed) as u64;
    let at = thread.call(libc::SYS_mmap, [at, len, how.0, flags, file.0, file.1])?;
    for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
        let _ = thread.call(libc::SYS_madvise, [at, len, advice as u64, 0, 0, 0]);
    }
    Ok(at)
}

const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

impl Injected {
    /// Puts the sampler in, with memories that the process makes: nothing is sampled before [`Injected::arm`].
    pub fn begin(process: &Process, object: &Path, settings: &Settings) -> Result<(Injected, Memories), Declined> {
        let put_in = |sampler, place| Injected::put_in(process, sampler, place, settings);
        let (injected, memories) = Injected::put(process.pid, object, put_in)?;
        Ok((injected.begun()?, memories))
    }

    /// As [`Injected::begin`], with the memories of a recording that has begun: the files of its session and its facts.
    pub fn join(
        process: &Process,
        object: &Path,
        settings: &Settings,
        memories: &[OwnedFd; 2],
    ) -> Result<Injected, Declined> {
        let joined = |sampler, place| Injected::put_with(process, sampler, place, settings, memories);
        Injected::put(process.pid, object, joined)?.begun()
    }

    fn put<T>(pid: u32, object: &Path, put: impl FnOnce(Sampler, Place) -> Result<T, Trouble>) -> Result<T, Declined> {
        leave::remove_left(pid)?;
        let place = Place::of(pid, SIGNAL)?;
        let sampler = Sampler::read(object).map_err(Declined::for_good)?;
        put(sampler, place).map_err(|trouble| {
            // What was done by then.
            let left = leave::remove_left(pid).err();
            Declined::from(trouble).with(left.map(|left| left.why))
        })
    }

    fn put_with(
        process: &Process,
        sampler: Sampler,
        place: Place,
        settings: &Settings,
        [session, facts]: &[OwnedFd; 2],
    ) -> Result<Injected, Trouble> {
        let file = File::from(memory_file(ring::CONTROL)?);
        let mut control = control_in(&file, &sampler)?;
        let begun = Instant::now();
        let (pid, mut made) = (process.pid, Files::new());
        let map = |thread: &mut Borrowed<'_>| {
            process.must_live()?;
            let opened = pass::pass(thread, process, [file.as_fd(), session.as_fd(), facts.as_fd()], &mut made)?;
            map_all(thread, &mut control, (&file, &opened), (pid, &sampler, &place), settings)
        };
        let mapped = with_thread(pid, &place.code, Region::default(), map);
        let stood = begun.elapsed();
        let note = made.close_in_children(pid, &place.code);
        let (control_at, base, image) = mapped?;
        Ok(Injected { pid, place, control, control_at, base, sampler, image, stood, borrowed: 1, note })
    }

    fn put_in(
        process: &Process,
        sampler: Sampler,
        place: Place,
        settings: &Settings,
    ) -> Result<(Injected, Memories), Trouble> {
        let mut made = Files::new();
        let code = place.code.clone();
        let put = Injected::put_in_with(process, sampler, place, settings, &mut made);
        let note = made.close_in_children(process.pid, &code);
        let (injected, memories) = put?;
        Ok((Injected { note, ..injected }, memories))
    }

    /// `made`: the files that are opened there for it.
    fn put_in_with(
        process: &Process,
        sampler: Sampler,
        place: Place,
        settings: &Settings,
        made: &mut Files,
    ) -> Result<(Injected, Memories), Trouble> {
        let (pid, none, note) = (process.pid, Region::default(), None);
        let begun = Instant::now();
        let names = [ring::CONTROL, ring::SESSION, ring::FACTS];
        let make = |thread: &mut Borrowed<'_>| {
            process.must_live()?;
            names.iter().map(|name| file_there(thread, process, name, made)).collect::<Result<Vec<_>, _>>()
        };
        let files = with_thread(pid, &place.code, none, make)?;
        let mut stood = begun.elapsed();
        let opened: Vec<Opened> = files.iter().map(|(opened, _)| *opened).collect();
        let mut files = files.into_iter().map(|(_, file)| file);
        let mut file = || files.next().ok_or(Trouble::Unfit);
        // By this thread, which lives as long as the recording does: the facts show its end.
        let (file, memories) = (
            File::from(file()?),
            Memories { session: Session::in_file(file()?)?, facts: FactsPublisher::in_file(file()?)? },
        );
        let mut control = control_in(&file, &sampler)?;
        let begun = Instant::now();
        let map = |thread: &mut Borrowed<'_>| {
            process.must_live()?;
            map_all(thread, &mut control, (&file, &opened), (pid, &sampler, &place), settings)
        };
        let (control_at, base, image) = with_thread(pid, &place.code, none, map)?;
        stood += begun.elapsed();
        Ok((Injected { pid, place, control, control_at, base, sampler, image, stood, borrowed: 2, note }, memories))
    }

    /// The sampler, if it could begin.
    fn begun(self) -> Result<Injected, Declined> {
        let injected = self;
        if injected.control.get().state.load(Ordering::SeqCst) == BEGUN {
            return Ok(injected);
        }
        let (refusal, detail) = (injected.control.get().refusal, injected.control.get().detail);
        let declined = match refusal {
            SIGNAL_TAKEN => Declined::for_good("it has a handler for SIGSTKFLT, the sampler's signal, itself"),
            ALTERNATE_STACK => Declined::for_good(format!(
                "it handles signal {detail} on an alternate stack, as Go's runtime does, whose goroutines have no stack for a sample"
            )),
            FAILED_CALL => Declined::new("the kernel refused the signal's handler"),
            _ => Declined::new("the sampler found no memory, or no block"),
        };
        Err(declined.with(injected.leave(Instant::now() + leave::LONGEST)))
    }

    /// Gives these threads timers, and takes those of threads that have ended away. Returns the threads that got none.
    pub fn arm(&mut self, new: &[u32], ended: &[u32]) -> Result<Vec<u32>, Trouble> {
        let pid = self.pid;
        let arm = new.iter().map(|tid| (ARM, place::inner_id(pid, *tid), *tid));
        let forget = ended.iter().map(|inner| (FORGET, *inner, 0));
        let all: Vec<(u32, u32, u32)> = forget.chain(arm).collect();
        let mut failed = Vec::new();
        for batch in all.chunks(BATCH) {
            let control = self.control.at;
            // SAFETY: the mapping of the value's life. By the fields: handlers there change others of them.
            let (requests, count) = unsafe { (&mut (*control).requests, &mut (*control).count) };
            for (to, (what, inner, outer)) in requests.iter_mut().zip(batch) {
                *to = Request { what: *what, inner: *inner, outer: *outer, error: 0 };
            }
            *count = batch.len() as u32;
            let (function, argument) = (self.base + self.sampler.change, self.control_at);
            self.with_thread(|thread| thread.call_function(function, argument))?;
            let control = self.control.get();
            let wrong = control.requests.iter().take(batch.len()).filter(|request| request.error != 0);
            failed.extend(wrong.map(|request| request.outer));
        }
        Ok(failed)
    }

    fn with_thread<T: Send>(
        &mut self,
        mut run: impl FnMut(&mut Borrowed<'_>) -> Result<T, Trouble> + Send,
    ) -> Result<T, Trouble> {
        let (pid, code, text) = (self.pid, &self.place.code, self.control.get().text);
        let control_at = self.control_at;
        let begun = Instant::now();
        let done = with_thread(pid, code, text, |thread| {
            leave::must_be_there(pid, control_at)?;
            run(thread)
        });
        self.stood += begun.elapsed();
        self.borrowed += 1;
        done
    }

    /// Takes the sampler out, as far as that can be done by then; it is tried once at least. `None`: the process is as
    /// it was before; otherwise what is left there, and why.
    pub fn leave(self, deadline: Instant) -> Option<String> {
        let left = leave::Left {
            pid: self.pid,
            control_at: self.control_at,
            end: self.control.get().end.load(Ordering::Relaxed),
            text: self.control.get().text,
        };
        left.remove(&self.place.code, deadline).err()
    }
}

/// Gives the control memory's file its size, and maps it here.
fn control_in(file: &File, sampler: &Sampler) -> io::Result<Shared> {
    ftruncate(file, CONTROL_BYTES as u64 + sampler.len)?;
    fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::GROW)?;
    Shared::map(file)
}

/// Maps everything and calls the sampler's beginning. What is mapped is noted as soon as it is, so that a later uu
/// finds it if this one ends in the middle. Returns where the control memory and the sampler lie, and in which program.
fn map_all(
    thread: &mut Borrowed<'_>,
    control: &mut Shared,
    (file, opened): (&File, &[Opened]),
    (pid, sampler, place): (u32, &Sampler, &Place),
    settings: &Settings,
) -> Result<(u64, u64, Image), Trouble> {
    let &[(control_fd, _), (session_fd, _), (facts_fd, _)] = opened else { return Err(Trouble::Unfit) };
    if !opened.iter().all(|opened| is_still(pid, *opened)) {
        return Err(Trouble::Failed(io::Error::other("it has closed a file of the sampler's")));
    }
    let own = std::process::id();
    let head = control.at;
    // SAFETY: the mapping of the value's life. By the fields, here and below: the process changes others of them.
    unsafe {
        ((*head).version, (*head).recorder) = (VERSION, own);
        (*head).recorder_began = Stat::of(own).and_then(|stat| stat.number(22)).unwrap_or(0);
        ((*head).pid, (*head).parent) = (pid, settings.parent);
        (*head).magic = MAGIC;
    }
    let shared = libc::MAP_SHARED;
    let locked = place::locked(pid);
    let control_at = map(thread, 0, CONTROL_BYTES as u64, (READ_WRITE, shared), (control_fd, 0))?;
    if place::locked(pid) > locked {
        return Err(Trouble::Locks);
    }
    let reserved = (libc::PROT_NONE as u64, libc::MAP_PRIVATE);
    let base = map(thread, 0, sampler.len, reserved, (control_fd, CONTROL_BYTES as u64))?;
    note(control, base, sampler.len);
    file.write_all_at(&sampler.at(base), CONTROL_BYTES as u64)?;
    for part in &sampler.parts {
        let how = (part.protection, libc::MAP_PRIVATE);
        map(thread, base + part.start, part.len, how, (control_fd, CONTROL_BYTES as u64 + part.start))?;
    }
    let session = map(thread, 0, SESSION_BYTES as u64, (READ_WRITE, shared), (session_fd, 0))?;
    note(control, session, SESSION_BYTES as u64);
    let facts = map(thread, 0, PUBLISHED_BYTES as u64, (libc::PROT_READ as u64, shared), (facts_fd, 0))?;
    note(control, facts, PUBLISHED_BYTES as u64);
    for opened in opened.iter().filter(|opened| is_still(pid, **opened)) {
        thread.call(libc::SYS_close, [opened.0, 0, 0, 0, 0, 0])?;
    }
    let code = sampler.code().unwrap_or(image::Part { start: 0, len: 0, protection: 0 });
    // SAFETY: as above.
    unsafe {
        (*head).text = Region { start: base + code.start, len: code.len };
        ((*head).session, (*head).facts, (*head).find_object) = (session, facts, place.find_object);
        (*head).loader = place.loader;
        ((*head).program, (*head).rate, (*head).flags) = (place.program, settings.rate, settings.flags);
        (*head).tsd_offset = crate::walks::TSD_OFFSET;
        (*head).end.store(base + sampler.end, Ordering::SeqCst);
    }
    // The thread has lived until here, and lives after this if the next call succeeds: so no exec was in between.
    let image = Image::of(pid);
    // SAFETY: as above.
    unsafe { (*head).origin = if image == settings.image { settings.origin } else { 0 } };
    thread.call_function(base + sampler.begin, control_at)?;
    Ok((control_at, base, image))
}

/// Notes a mapping in the control memory.
fn note(control: &mut Shared, start: u64, len: u64) {
    // SAFETY: the mapping of the value's life. By the fields: the process changes others of them.
    let (count, regions) = unsafe { (&(*control.at).region_count, &mut (*control.at).regions) };
    let index = count.fetch_add(1, Ordering::SeqCst) as usize;
    if let Some(place) = regions.get_mut(index) {
        *place = Region { start, len };
    }
}

/// Whether a process with this pid, which began then, still lives.
fn lives(pid: u32, began: u64) -> bool {
    tids(pid).is_ok() && Stat::of(pid).and_then(|stat| stat.number(22)) == Some(began)
}
