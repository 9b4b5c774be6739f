//! A recording from outside that goes on: samples, and between them what has changed.

use crate::files::Files;
use crate::followed::{parent_of, Parent, Unseen};
use crate::prepared::{prepare, Prepared, Unprepared};
use crate::record::{report, Attach, Event};
use crate::sampler::{Pause, Sampler};
use crate::target::Target;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_recorder::child;
use uunwind_recorder::jit::Jit;
use uunwind_recorder::machine;
use uunwind_recorder::snapshot::{Now, Snapshots};
use uunwind_recorder::switch::{Of, Switch};
use uunwind_recording::{EndCause, Object, Process, Writer};
use uunwind_remote::dump::{command, exe};
use uunwind_remote::objects::Objects;
use uunwind_remote::plugins::Plugins;
use uunwind_remote::refusal::is_gone;
use uunwind_tables_build::Cache;

/// While children are prepared for so long, what the others use is not sampled.
const LONG: Duration = Duration::from_millis(50);

/// The processes that are recorded, and what is known of them.
pub struct Running<'a> {
    attach: &'a Attach,
    plugins: &'a mut Plugins,
    cache: &'a Cache,
    /// Samples of their threads.
    pub sampler: Sampler,
    /// Their code that was made at run time.
    pub jit: Jit,
    /// The files of their objects.
    pub files: Files,
    /// Children that were not recorded, and processes that were left.
    pub unseen: Unseen,
    /// For people.
    pub notes: Vec<String>,
    /// Each of at most this number of processes has a descriptor.
    share: usize,
    /// When the recording began, as the machine counts it.
    begun_at: u64,
    /// Images that were begun.
    images: u32,
    /// CPU time of processes that have ended, in ns.
    cpu_of_ended: u64,
}

impl<'a> Running<'a> {
    /// A recording without processes.
    pub fn new(
        attach: &'a Attach,
        plugins: &'a mut Plugins,
        cache: &'a Cache,
        writer: Writer<File>,
        files: Files,
        share: usize,
    ) -> Running<'a> {
        let period = 1_000_000_000 / u64::from(attach.rate.max(1));
        let mut sampler = Sampler::new(period, attach.flags & uunwind_ring::FLAG_WALL != 0, writer);
        sampler.awaiting = attach.flags & uunwind_ring::FLAG_AWAITING != 0;
        sampler.with_children = attach.with_children;
        sampler.open_files = share;
        sampler.ends = attach.among.as_ref().map(|among| among.ends.clone());
        sampler.snapshots = Snapshots::new(attach.every).into_folder(attach.every_into.clone());
        let of = Of { pid: attach.pid, with_children: attach.with_children, ..Of::default() };
        sampler.switch = Some(Switch::new(of, attach.start_paused));
        let (jit, unseen, notes) = (Jit::default(), Unseen::default(), Vec::new());
        let (begun_at, images, cpu_of_ended) = (0, 0, 0);
        Running { attach, plugins, cache, sampler, jit, files, unseen, notes, share, begun_at, images, cpu_of_ended }
    }

    /// Adds the process that was asked for.
    pub fn first(&mut self, pid: u32, pidfd: Option<OwnedFd>, first: Prepared) {
        let index = self.begin_image(pid, None);
        let target = Target::new(pid, pidfd, index, first, false);
        self.add_objects(&target.objects, index, 0);
        self.sampler.add(target, false);
    }

    /// The recording's time begins.
    pub fn begin(&mut self) -> Instant {
        let begun = Instant::now();
        self.begun_at = machine::monotonic();
        self.sampler.until = self.attach.duration.map(|duration| begun + duration);
        begun
    }

    /// Samples until the recording is over; says why it is. `kept`, `path`: its file.
    pub fn until_over(&mut self, kept: &File, path: &Path, event: &mut impl FnMut(Event<'_>)) -> EndCause {
        loop {
            let over = match self.sample() {
                Ok(Pause::Over(EndCause::ProgramEnded)) => {
                    self.drop_ended();
                    self.sampler.targets.is_empty().then_some(EndCause::ProgramEnded)
                }
                Ok(Pause::Over(cause)) => Some(cause),
                Ok(Pause::LetGo) => None,
                Ok(Pause::Snapshot) => {
                    self.snapshot(kept, path);
                    report(self.sampler.snapshots.made(false), event);
                    self.attach.is_over_with(self.sampler.tally.samples).then_some(EndCause::Asked)
                }
                Ok(Pause::Children(children)) => {
                    self.add_children(children);
                    None
                }
                Ok(Pause::OtherCode(index)) => self.prepare_again(index),
                Err(_) => {
                    self.notes.push("the walk has panicked, which ended the recording".to_owned());
                    Some(EndCause::Asked)
                }
            };
            if let Some(cause) = over {
                return cause;
            }
        }
    }

    /// Ends the samples. Returns the CPU time that the processes have used meanwhile, in ns.
    pub fn end(&mut self) -> u64 {
        self.sampler.end();
        self.sampler.targets.iter().for_each(|target| self.jit.finish(target.process));
        self.sampler.writer.second_mappings(&self.jit.take_second_mappings());
        let used = self.sampler.targets.iter().map(|target| target.usage.used());
        self.cpu_of_ended + used.sum::<u64>()
    }

    /// Samples until there is something else to do.
    fn sample(&mut self) -> std::thread::Result<Pause> {
        // A thread of its own: the kernel lets go what it could not stop in time when that thread ends.
        let (with, by) = (&*self.plugins, &mut self.sampler);
        let pause = std::thread::scope(|scope| scope.spawn(|| by.run(with)).join());
        for target in &mut self.sampler.targets {
            target.usage.update();
            self.jit.unchanged_until(target.process, target.checked);
        }
        self.jit.look();
        self.sampler.writer.second_mappings(&self.jit.take_second_mappings());
        pause
    }

    fn drop_ended(&mut self) {
        for target in self.sampler.drop_ended() {
            self.jit.finish(target.process);
            self.cpu_of_ended += target.usage.used();
        }
    }

    /// Makes a snapshot that is due.
    fn snapshot(&mut self, file: &File, path: &Path) {
        if self.attach.is_due(&mut self.sampler.snapshots, self.sampler.tally.samples) {
            let (places, namer) = (|object: &Object| self.files.of(object), &self.attach.namer);
            let (samples, jit) = (self.sampler.tally.samples, &self.jit);
            self.sampler.snapshots.take(&Now { file, path, samples, files: &places, jit, namer });
        }
    }

    fn add_children(&mut self, children: Vec<u32>) {
        let since = Instant::now();
        for child in children {
            let pidfd = match child::pidfd(child) {
                Err(error) if is_gone(&error) => {
                    self.unseen.ended();
                    continue;
                }
                pidfd => pidfd.ok().filter(|_| self.sampler.targets.len() < self.share),
            };
            let prepared = prepare(child, pidfd.as_ref(), self.cache, self.plugins);
            let Some(prepared) = self.unseen.check(prepared) else { continue };
            let parent = parent_of(child, &prepared.image, &self.sampler.targets);
            let index = self.begin_image(child, parent);
            // What those that are older than the recording have used before it is not its matter.
            let whole = machine::start_of(child) >= self.begun_at;
            let target = Target::new(child, pidfd, index, prepared, whole);
            self.add_objects(&target.objects, index, target.checked);
            self.sampler.add(target, whole);
        }
        if since.elapsed() > LONG && !self.sampler.wall {
            (0..self.sampler.targets.len()).for_each(|index| self.sampler.skip(index));
        }
    }

    /// A process has mapped other code, or runs another program. Says why the recording is over, if it was the last
    /// one, and cannot be looked at any more.
    fn prepare_again(&mut self, index: usize) -> Option<EndCause> {
        let target = self.sampler.targets.get(index)?;
        let (pid, before) = (target.pid, target.process);
        let prepared = match prepare(pid, target.pidfd.as_ref(), self.cache, self.plugins) {
            Ok(prepared) => prepared,
            Err(why) => return self.leave(index, pid, why),
        };
        if prepared.image != target.usage.image {
            self.sampler.targets.get_mut(index)?.usage.image = prepared.image;
            self.jit.finish(before);
            // First the process, to which its threads then belong.
            let image = self.begin_image(pid, None);
            self.sampler.new_image(index, image);
        }
        let target = self.sampler.targets.get(index)?;
        let (process, checked) = (target.process, target.checked);
        self.add_objects(&prepared.objects, process, checked);
        let target = self.sampler.targets.get_mut(index)?;
        (target.code, target.objects) = (prepared.code, Arc::new(prepared.objects));
        if !self.sampler.wall {
            self.sampler.skip(index);
        }
        None
    }

    /// Leaves a process that has ended or is not to be looked at any more: the others go on.
    fn leave(&mut self, index: usize, pid: u32, why: Unprepared) -> Option<EndCause> {
        if let Some(target) = self.sampler.leave(index) {
            self.jit.finish(target.process);
            self.cpu_of_ended += target.usage.used();
        }
        let cause = match why {
            Unprepared::Ended => EndCause::ProgramEnded,
            Unprepared::Refused(why) => {
                self.unseen.left(pid, &why);
                EndCause::Asked
            }
        };
        self.sampler.targets.is_empty().then_some(cause)
    }

    /// Begins the image of a process. `parent`: the one that it was forked from, if that is recorded. Returns its
    /// index.
    fn begin_image(&mut self, pid: u32, parent: Option<Parent>) -> u32 {
        let index = self.images;
        self.images += 1;
        let start = machine::start_of(pid);
        let (id, origin) = parent.as_ref().map_or((0, 0), |parent| (parent.pid, u32::from(parent.is_same_program)));
        let plugins = self.plugins.names.clone();
        let writer = &mut self.sampler.writer;
        writer.process(&Process { pid, parent: id, origin, start, exe: exe(pid), plugins, ..Process::default() });
        writer.command(index, &command(pid));
        let same = parent.filter(|parent| parent.is_same_program).map(|parent| parent.index);
        self.jit.process(index, pid, start, same);
        index
    }

    /// Adds what is new among an image's objects, which are there since `time` at the earliest, and searches what is
    /// mapped for their code at other addresses.
    fn add_objects(&mut self, objects: &Objects, image: u32, time: u64) {
        self.files.add(objects, image, time, &mut self.sampler.writer, &mut self.jit);
        self.jit.search(image);
        self.sampler.writer.second_mappings(&self.jit.take_second_mappings());
    }
}
