//! The stacks of all threads of a process at one moment.
//!
//! The process stands still while its threads are walked, because interpreters change what a walk reads. Calls of
//! plugins in processes of their own may take long, so where there are such plugins, the process is let go before they
//! are asked: the registers, the stacks and what else the walks will read are copied, and the walks read the copies.
//! What they will read is known from a walk before, which has read that while the process ran, and whose result is
//! thrown away; what lies in a file that it may not write to need not be copied. If the walks still read something
//! else, all is done again, with that; and in the end the process stands still as ever.

use crate::doing::{self, doing, Doing};
use crate::dump::{record, within, Taken, ThreadState};
use crate::holders::Look;
use crate::language_names::LanguageNames;
use crate::memory::{Memory, AHEAD};
use crate::names::Names;
use crate::objects::Objects;
use crate::plugins::Plugins;
use crate::registers::{sp, Registers};
use crate::threads::{self, Stopped};
use crate::walks::{Walked, Walks};
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;
use uunwind_recorder::machine;

/// Longest time for the walks of a process's threads, which may all stand still meanwhile.
const STANDS: Duration = Duration::from_secs(10);
/// At most this number of times the process is copied.
const COPIES: usize = 6;
/// At most this number of bytes of all stacks is copied at once, and this number of other pages.
const STACKS: usize = 16 << 20;
const PAGES: usize = 8 * 1024;

/// A moment.
struct Moment<'p> {
    /// The threads, whether each was stopped before, and the registers of those that stood.
    threads: Vec<(u32, Option<bool>, Option<Registers>)>,
    walks: Walks<'p>,
    walked: Vec<Option<Walked>>,
    /// What they wait for.
    look: Look,
    time: u64,
    stood: Duration,
    notes: Vec<String>,
}

/// Where a walk is made.
struct Place<'p> {
    pid: u32,
    objects: &'p Objects,
    plugins: &'p Plugins,
    memory: &'p Memory,
    /// Objects that have changed are left out.
    last: bool,
}

/// Takes the stacks of all threads. `None`: the process has mapped other files meanwhile; with `last`, they are left
/// out.
pub fn take(pid: u32, objects: &Objects, plugins: &Plugins, last: bool) -> io::Result<Option<Taken>> {
    let memory = Memory::of(pid);
    let place = Place { pid, objects, plugins, memory: &memory, last };
    let (mut stood, mut pages, mut copies) = (Duration::ZERO, BTreeSet::new(), 0);
    let moment = loop {
        let copied = (plugins.any_elsewhere() && copies < COPIES && pages.len() <= PAGES).then_some(&pages);
        let is_copied = copied.is_some();
        let Some(moment) = place.moment(copied)? else { return Ok(None) };
        stood += moment.stood;
        copies += 1;
        // Pages of files are not copied, but read while the process runs: if it has mapped other files meanwhile, what
        // was read may be theirs.
        if is_copied && !objects.are_current(pid) {
            if !last {
                return Ok(None);
            }
            copies = COPIES;
            continue;
        }
        let missed: Vec<u64> = memory.missed().into_iter().filter(|page| objects.may_change(*page)).collect();
        if !is_copied || missed.is_empty() {
            break moment;
        }
        pages.extend(missed);
    };
    Ok(Some(place.describe(moment, stood)))
}

impl<'p> Place<'p> {
    /// Stops the process and walks all of its threads. `copied`: it is let go before, and all walks read copies of the
    /// stacks and of these pages.
    fn moment(&self, copied: Option<&BTreeSet<u64>>) -> io::Result<Option<Moment<'p>>> {
        self.memory.forget();
        self.memory.make_room(threads::tids(self.pid)?.len());
        threads::prefer_this_thread();
        let stopped = Stopped::all_of(self.pid)?;
        let mut notes = Vec::new();
        if !self.objects.are_current(self.pid) {
            if !self.last {
                return Ok(None);
            }
            notes.push("the process loads or unloads libraries all the time: some frames may have no owner".to_owned());
        }
        let all: Vec<(u32, Option<bool>, Option<Registers>)> =
            stopped.threads().map(|(tid, still)| (tid, still, still.and_then(|_| stopped.registers(tid)))).collect();
        let time = machine::monotonic();
        let mut walks = Walks::new(self.objects, self.plugins, self.memory, Names::default());
        let registers = || all.iter().map(|(_, _, registers)| registers.as_ref());
        let look = Look::at(registers(), (self.objects, self.plugins), self.memory);
        let ((walked, late), stood) = match copied {
            Some(pages) => {
                self.copy(registers().flatten(), pages);
                let stood = stopped.let_go();
                threads::be_ordinary();
                self.memory.run_on();
                (within(STANDS, registers(), |registers| walks.walk(registers)), stood)
            }
            None => {
                let walked = within(STANDS, registers(), |registers| walks.walk(registers));
                (walked, stopped.let_go())
            }
        };
        // The process runs again: what follows may take a while, and holds up nobody.
        threads::be_ordinary();
        notes.extend(walks.notes().into_iter().chain(late));
        Ok(Some(Moment { threads: all, walks, walked, look, time, stood, notes }))
    }

    /// Copies the used parts of all stacks, and these pages.
    fn copy<'r>(&self, threads: impl Iterator<Item = &'r Registers>, pages: &BTreeSet<u64>) {
        let mut room = STACKS;
        for registers in threads {
            let Some(end) = self.objects.end_of_mapping(sp(registers)) else { continue };
            let len = (end.saturating_sub(sp(registers))).min(room.min(AHEAD) as u64);
            room = room.saturating_sub(len as usize);
            self.memory.read_ahead(sp(registers), sp(registers).saturating_add(len));
        }
        self.memory.copy_pages(pages);
    }

    /// What the threads were doing.
    fn describe(&self, moment: Moment<'_>, stood: Duration) -> Taken {
        let Moment { threads: all, walks, walked, look, time, mut notes, .. } = moment;
        let mut looks = LanguageNames::default();
        let called = walks.thread_names(&mut looks);
        notes.extend(looks.note());
        let name = |tid| {
            let inner = (!called.is_empty()).then(|| doing::inner_id(self.pid, tid)).flatten();
            inner.and_then(|inner| called.get(&inner)).cloned().unwrap_or_else(|| doing::name(self.pid, tid))
        };
        let looked = all.into_iter().map(|(tid, before, registers)| {
            let doing = registers.as_ref().map(|registers| match before {
                Some(true) => Doing::Stopped,
                _ => doing(registers),
            });
            ThreadState { tid, name: name(tid), doing, registers, waits_for: None }
        });
        let mut taken = record(looked.collect(), walked, walks.into_names().names, time);
        taken.stopped = Some(stood);
        if look.needs_ids() {
            let own = |thread: &ThreadState| Some((doing::inner_id(self.pid, thread.tid)?, thread.tid));
            taken.own = taken.threads.iter().filter_map(own).collect();
        }
        taken.look = look;
        if !taken.threads.is_empty() && taken.threads.iter().all(|thread| thread.tid != self.pid) {
            notes.push(
                "the main thread has ended, and has no stack: the process lives on in its other threads".to_owned(),
            );
        }
        let missed = taken.threads.iter().filter(|thread| thread.doing.is_none()).count();
        if missed > 0 {
            notes.push(format!("{missed} threads could not be stopped in time, and have no stack here"));
        }
        taken.notes.extend(notes);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};
    use std::sync::mpsc::channel;
    use uunwind_core::plugin::{CRule, Caller, OVERLAY_NONE};
    use uunwind_core::regs::COUNT;
    use uunwind_elf::maps::{self, Mapping};
    use uunwind_elf::{key_of, Image};
    use uunwind_loader::calls::message::{Answer, Function, Hello, Request};
    use uunwind_loader::calls::Foreign;
    use uunwind_loader::wire;
    use uunwind_tables_build::Cache;

    /// Serves the calls of a plugin that reads a page each time: sends with each call what `sees` says.
    fn serve(mut stream: UnixStream, page: u64, mut sees: impl FnMut()) {
        let mut call = 0;
        while wire::receive(&mut stream).is_some() {
            call += 1;
            sees();
            let caller = Caller { pc: 0, registers: [0; COUNT], known: 0, exact: 0 };
            let (rule, frames) = (CRule::simple(7, 8), Vec::new());
            let answer = Answer { answer: OVERLAY_NONE, caller, rule, frames };
            let asked = wire::send(&mut stream, &Request::Page(page).encode(call)).is_ok();
            let answered = asked && wire::receive(&mut stream).is_some();
            if !answered || wire::send(&mut stream, &Request::Answer(Box::new(answer)).encode(call)).is_err() {
                return;
            }
        }
    }

    /// A process with such a plugin for its libc runs whenever that is called; it has stood before, to be copied.
    #[test]
    fn a_process_does_not_stand_while_plugins_in_other_processes_are_called() {
        let mut sleep = Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn().expect("sleep");
        let pid = sleep.id();
        let is_asleep = || {
            let line = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
            line.starts_with(&format!("{} ", libc::SYS_clock_nanosleep))
        };
        let begun = uunwind_clock::Instant::now();
        while !is_asleep() {
            assert!(begun.elapsed() < Duration::from_secs(60), "sleep does not sleep");
            std::thread::yield_now();
        }
        let mappings: Vec<_> = maps::of(pid).expect("a process").collect();
        let of_libc = |m: &&Mapping| m.name.windows(8).any(|part| part == b"/libc.so");
        let libc = mappings.iter().find(of_libc).expect("libc");
        let key = key_of(&Image::open(&crate::objects::path_of(&libc.name)).expect("a file")).0;
        let data = mappings.iter().find(|m| m.inode == 0 && m.permissions.starts_with("rw")).expect("data").start;
        let (ours, theirs) = UnixStream::pair().expect("streams");
        let functions =
            1 << Function::ALL.iter().position(|function| *function == Function::Overlay).expect("it is one");
        let foreign = Foreign::over(ours, &Hello { flags: 0, scratch_bytes: 0, functions }).expect("a stream");
        let mut plugins = Plugins::of_one(foreign, key);
        let (say, hear) = channel();
        let status = move || std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
        let server = std::thread::spawn(move || {
            serve(theirs, data, || say.send(status().contains("TracerPid:\t0\n")).expect("it is heard"));
        });
        let cache = Cache::none();
        let objects = Objects::prepare(pid, &Memory::of(pid), &cache, &mut plugins).expect("objects");
        let run = || take(pid, &objects, &plugins, true);
        let taken = std::thread::scope(|scope| scope.spawn(run).join()).expect("no panic").expect("it lives");
        let stood = taken.and_then(|taken| taken.stopped);
        assert!(stood.is_some_and(|stood| stood > Duration::ZERO), "{stood:?}");
        let troubles = plugins.take_troubles();
        assert_eq!(troubles, Vec::<String>::new());
        drop(plugins);
        server.join().expect("no panic");
        let ran: Vec<bool> = hear.iter().collect();
        // In the first moment, the page was not copied.
        assert!(ran.len() >= 2 && ran.iter().all(|ran| *ran), "{ran:?}");
        sleep.kill().expect("it runs");
        sleep.wait().expect("its end");
    }
}
