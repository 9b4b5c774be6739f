//! A sampler is put into a running process, and taken out again (report room).
//!
//! `uu` is the sampler's loader: it maps the object, applies its relocations, and calls its functions, all by a
//! thread of the process that it borrows for a millisecond. The object imports nothing and makes system calls only,
//! so it does not matter at which instruction the threads stand, nor which locks they hold: nothing of libc or of the
//! dynamic loader is called.
//!
//! ```text
//! remote_call    a thread makes system calls for us, and goes on where it was, whatever becomes of uu
//! frame          the signal frame by which that thread restores itself, and the registers of calls, by CPU
//! preflight      what is found out about the process before, and why it will not do
//! process        a process, distinguished from a later one with its id
//! registrations  code that it has registered, which a sampler would not see
//! image          the sampler's object
//! opened         files that the process opens
//! mapping        what is mapped for the sampler, here and there
//! send_fds       files of uu's are passed to the process
//! gate           the pages through which a process's allocator is called while its allocations are sampled
//! loaded         the objects that its loader has loaded, and the words that it fills with functions' addresses
//! redirect       these lead to the gate, and back
//! exclusive      one uu at a time does so
//! leave          the sampler is taken out, this uu's or one that an earlier uu has left
//! threads        the process's threads get their timers
//! forked         children that were forked while a sampler went in
//! follow         the samplers of one process: after an exec, another one
//! family         a process, and its children
//! record         a recording by such samplers
//! ```
//!
//! While it is there, a process has: a handler for SIGSTKFLT; a CPU timer for each thread; these mappings, which
//! children do not inherit. Where its allocations are sampled, it has neither handler nor timers, and entries of its
//! global offset tables lead to a gate, whose pages stay. No file stays open.

mod exclusive;
mod family;
mod follow;
mod forked;
mod frame;
mod gate;
mod image;
mod leave;
mod loaded;
mod mapping;
mod opened;
mod preflight;
mod process;
pub mod record;
mod redirect;
mod registrations;
mod remote_call;
mod send_fds;
mod threads;

use exclusive::Exclusive;
use forked::Files;
use image::Sampler;
use leave::ControlMemory;
use mapping::{control_in, map_all, Shared};
use opened::{file_there, Opened};
use preflight::Place;
use process::Process;
use redirect::Redirected;
use remote_call::{Borrowed, Trouble, STACK};
use rustix::fs::fstat;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::maps::{self, Mapping};
use uunwind_recorder::facts::FactsPublisher;
use uunwind_recorder::machine::Stat;
use uunwind_recorder::reservation::Reservation;
use uunwind_recorder::session::{memory_file, Session};
use uunwind_remote::memory::Memory;
use uunwind_remote::registers::{pc, Registers};
use uunwind_remote::threads::tids;
use uunwind_remote_sampler::prepared::Image;
use uunwind_ring::injected::{
    self as ring, Region, Request, ALTERNATE_STACK, ARM, BATCH, BEGUN, FAILED_CALL, FORGET, SIGNAL_TAKEN,
};

use uunwind_ring::{FLAG_ALLOC, FLAG_LOCK};

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

/// A sampler in a process.
pub struct Injected {
    pid: u32,
    place: Place,
    control: Shared,
    /// Where that lies there.
    control_there: ControlMemory,
    base: u64,
    /// Distance of the sampler's function from there by which threads are armed.
    change: u64,
    /// Distances from there of what the gate calls before and after a function.
    hooks: [u64; 2],
    /// The program that it is in.
    pub image: Image,
    /// How long threads stood for it.
    pub stood: Duration,
    /// How often a thread was borrowed.
    pub borrowed: u32,
    /// What people should know of how it was put in.
    note: Option<String>,
    /// What is led through its gate, if it has one.
    redirected: Option<Redirected>,
    flags: u32,
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
    code: &preflight::Code,
    text: Region,
    mut run: impl FnMut(&mut Borrowed<'_>) -> Result<T, Trouble> + Send,
) -> Result<T, Trouble> {
    let begun = Instant::now();
    loop {
        match alone(|| with_any(pid, code, text, begun, &mut run)) {
            Err(Trouble::Unfit) if begun.elapsed() <= PATIENCE => uunwind_clock::sleep(Duration::from_millis(2)),
            other => return other,
        }
    }
}

/// As [`with_thread`], which has begun then, but no thread is asked twice.
fn with_any<T>(
    pid: u32,
    code: &preflight::Code,
    text: Region,
    begun: Instant,
    run: impl FnOnce(&mut Borrowed<'_>) -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    let mappings: Vec<Mapping> = maps::of(pid)?.collect();
    let fits = |registers: &Registers| {
        let is_inside = (text.start..text.start + text.len).contains(&pc(registers));
        !is_inside && preflight::has_stack(registers, &mappings, STACK + 16 * 1024)
    };
    if tids(pid)?.is_empty() {
        return Err(Trouble::Failed(rustix::io::Errno::SRCH.into()));
    }
    let mut failed = None;
    for tid in preflight::in_order(pid) {
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

impl Injected {
    /// Puts the sampler in, with memories that the process makes: nothing is sampled before [`Injected::arm`].
    pub fn begin(process: &Process, object: &Path, settings: &Settings) -> Result<(Injected, Memories), Declined> {
        let put_in = |sampler, place| Injected::put_in(process, sampler, place, settings);
        let _exclusive = exclusive(process.pid)?;
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
        let _exclusive = exclusive(process.pid)?;
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
        let size = |file: &OwnedFd| fstat(file).map(|stat| stat.st_size as u64).map_err(io::Error::from);
        let sizes = (size(session)?, size(facts)?);
        let map = |thread: &mut Borrowed<'_>| {
            process.must_live()?;
            if needs_gate(pid, settings.flags) {
                place.has_gate(gate::ensure(thread, process, &sampler, &mut made)?);
            }
            let opened = send_fds::pass(thread, process, [file.as_fd(), session.as_fd(), facts.as_fd()], &mut made)?;
            map_all(thread, &mut control, (&file, &opened), (pid, &sampler, &place), sizes, settings)
        };
        let mapped = with_thread(pid, &place.code, Region::default(), map);
        let stood = begun.elapsed();
        let note = made.close_in_children(pid, &place.code);
        let injected = Injected::mapped(pid, &sampler, place, control, mapped?, settings.flags);
        Ok(Injected { stood, note, ..injected })
    }

    /// What was mapped for a sampler, and where: the control memory, the sampler's object, and the program's image.
    fn mapped(
        pid: u32,
        sampler: &Sampler,
        place: Place,
        control: Shared,
        (control_there, base, image): (ControlMemory, u64, Image),
        flags: u32,
    ) -> Injected {
        Injected {
            pid,
            place,
            control,
            control_there,
            base,
            change: sampler.change,
            hooks: sampler.hooks,
            image,
            stood: Duration::ZERO,
            borrowed: 1,
            note: None,
            redirected: None,
            flags,
        }
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
        let (pid, none) = (process.pid, Region::default());
        let reservation = Reservation::with(pid);
        let begun = Instant::now();
        let names = [ring::CONTROL, ring::SESSION, ring::FACTS];
        let make = |thread: &mut Borrowed<'_>| {
            process.must_live()?;
            if needs_gate(pid, settings.flags) {
                place.has_gate(gate::ensure(thread, process, &sampler, made)?);
            }
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
            Memories {
                session: Session::in_file(file()?, reservation.blocks)?,
                facts: FactsPublisher::in_file(file()?, reservation.tables)?,
            },
        );
        let sizes = (memories.session.memory().bytes() as u64, memories.facts.memory().bytes() as u64);
        let mut control = control_in(&file, &sampler)?;
        let begun = Instant::now();
        let map = |thread: &mut Borrowed<'_>| {
            process.must_live()?;
            map_all(thread, &mut control, (&file, &opened), (pid, &sampler, &place), sizes, settings)
        };
        let mapped = with_thread(pid, &place.code, none, map)?;
        stood += begun.elapsed();
        let injected = Injected::mapped(pid, &sampler, place, control, mapped, settings.flags);
        Ok((Injected { stood, borrowed: 2, ..injected }, memories))
    }

    /// The sampler, if it could begin.
    fn begun(self) -> Result<Injected, Declined> {
        let mut injected = self;
        if injected.control.get().state.load(Ordering::SeqCst) == BEGUN {
            return match injected.redirect() {
                Ok(()) => Ok(injected),
                Err(trouble) => Err(Declined::from(trouble).with(injected.remove(Instant::now() + leave::LONGEST))),
            };
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
        Err(declined.with(injected.remove(Instant::now() + leave::LONGEST)))
    }

    /// Has the process's calls of what is sampled led through the gate, and the program's questions to it.
    fn redirect(&mut self) -> Result<(), Trouble> {
        if self.place.gate() != 0 {
            if is_of_events(self.flags) && self.needs_threads() {
                // Before their first samples, which need the ids that they have here.
                self.arm(&tids(self.pid)?, &[])?;
            }
            let hooks = self.hooks.map(|hook| self.base + hook);
            let begun = Instant::now();
            match Redirected::begin(self.pid, &self.place, hooks, self.flags) {
                Ok(redirected) => self.redirected = Some(redirected),
                Err(trouble) if is_of_events(self.flags) => return Err(trouble),
                Err(trouble) => {
                    let why = Declined::from(trouble).why;
                    let what = "uu_label_set() and uu_record_stop() of the program are not heard, since";
                    self.note = Some(self.note.take().map_or_else(String::new, |note| note + "; ") + what + " " + &why);
                }
            }
            self.stood += begun.elapsed();
        }
        Ok(())
    }

    /// What is led through its gate, if it has one.
    pub fn redirected(&mut self) -> Option<&mut Redirected> {
        self.redirected.as_mut()
    }

    /// Whether the process's threads need timers, or their ids are to be passed to it.
    pub fn needs_threads(&self) -> bool {
        !is_of_events(self.flags) || preflight::inner_id(self.pid, self.pid) != self.pid
    }

    /// Gives these threads timers, and takes those of threads that have ended away. Returns the threads that got none.
    pub fn arm(&mut self, new: &[u32], ended: &[u32]) -> Result<Vec<u32>, Trouble> {
        let pid = self.pid;
        let arm = new.iter().map(|tid| (ARM, preflight::inner_id(pid, *tid), *tid));
        let forget = ended.iter().map(|inner| (FORGET, *inner, 0));
        let all: Vec<(u32, u32, u32)> = forget.chain(arm).collect();
        let mut failed = Vec::new();
        for batch in all.chunks(BATCH) {
            self.control.ask(batch.iter().map(|(what, inner, outer)| Request {
                what: *what,
                inner: *inner,
                outer: *outer,
                error: 0,
            }));
            let (function, argument) = (self.base + self.change, self.control_there.at);
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
        let control = self.control_there;
        let begun = Instant::now();
        let done = with_thread(pid, code, text, |thread| {
            control.must_be_there(pid)?;
            run(thread)
        });
        self.stood += begun.elapsed();
        self.borrowed += 1;
        done
    }

    /// Takes the sampler out, as far as that can be done by then; it is tried once at least. `None`: the process is as
    /// it was before; otherwise what is left there, and why.
    pub fn leave(self, deadline: Instant) -> Option<String> {
        // One that waits in the middle for ever sees that this uu lives, and would remove nothing.
        let _exclusive = Exclusive::of(self.pid, deadline.min(Instant::now() + exclusive::LONGEST));
        self.remove(deadline)
    }

    /// As [`Injected::leave`], where nobody else changes the process.
    fn remove(self, deadline: Instant) -> Option<String> {
        let left = leave::Left {
            pid: self.pid,
            control: self.control_there,
            end: self.control.get().end.load(Ordering::Relaxed),
            text: self.control.get().text,
        };
        let unbound = self.redirected.map(Redirected::into_unbound).unwrap_or_default();
        left.remove(&self.place.code, &unbound, deadline).unwrap_or_else(Some)
    }
}

/// Keeps other uu's from putting samplers into a process, and from taking them out.
fn exclusive(pid: u32) -> Result<Exclusive, Declined> {
    let busy =
        "another uu puts a sampler into it or takes one out, or a process holds a lock (flock) of its folder in /proc";
    Exclusive::of(pid, Instant::now() + exclusive::LONGEST).ok_or_else(|| Declined::new(busy))
}

/// Whether allocations or waits for locks are sampled by such flags, and not time.
fn is_of_events(flags: u32) -> bool {
    flags & (FLAG_ALLOC | FLAG_LOCK) != 0
}

/// Whether a process that is sampled by such flags needs a gate: for its calls, or for what its program asks of the
/// recording.
fn needs_gate(pid: u32, flags: u32) -> bool {
    is_of_events(flags) || redirect::may_ask(pid)
}

/// Whether a process with this pid, which began then, still lives. One that has ended, of which its parent has not
/// taken notice yet, does not.
fn lives(pid: u32, began: u64) -> bool {
    let has_ended = |stat: &Stat| matches!(stat.field(3), Some("Z" | "X")) && tids(pid).is_ok_and(|all| all == [pid]);
    Stat::of(pid).is_some_and(|stat| stat.number(22) == Some(began) && !has_ended(&stat))
}
