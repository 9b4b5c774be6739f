//! One pass over all blocks: new ones are taken over, rings are drained into the recording, ended ones are freed.

mod ends;
mod events;
mod frees;
mod names;
mod pauses;
mod run_delay;
mod waited;
mod waits;

use crate::block_owners::{describe, plugins, ProcessUse, ThreadUse, Use};
use crate::code_maps::CodeMaps;
use crate::code_rules::CodeRules;
use crate::ended::Ended;
use crate::facts::FactsPublisher;
use crate::jit::Jit;
use crate::kernel::clock::KernelClock;
use crate::kernel::stitch::UserStack;
use crate::objects::Objects;
use crate::records::Record;
use crate::ring_reader::RingReader;
use crate::samples::{Samples, Unread};
use crate::session::Session;
use crate::stacks::Stacks;
use crate::startup_time::Starts;
use crate::survey::{Id, Survey};
use crate::watch::Watcher;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use uunwind_recording::{Amount, Name, Object, Sample, Thread, Writer};
use uunwind_ring::layout::{ThreadBlock, ENDED_THREAD, FORKED, FREE, LIVE_PROCESS, LIVE_THREAD, RING_BYTES};
use uunwind_ring::record::{RecordHeader, SampleKind, SAMPLE_LOCK_SHIFT};
use uunwind_ring::samples::Sample as RingSample;
pub use waited::Waited;

const _: () = assert!(Sample::FATAL == SampleKind::Fatal.number());
const _: () = assert!(Sample::ALLOCATION == SampleKind::Allocation.number());
const _: () = assert!(Sample::MAPPING == SampleKind::Mapping.number());
const _: () = assert!(Sample::LOCKED == SampleKind::Lock.number());
const _: () = assert!(Sample::LOCK_SHIFT == SAMPLE_LOCK_SHIFT);

/// Frames of a thread that are decoded in one pass, at most: ten milliseconds' worth of the deepest stacks at 20 kHz.
/// Few bytes can stand for many frames.
const FRAMES: u64 = 1 << 20;

/// The state of a recording in progress, on which each pass works.
pub struct Drain {
    /// The session's shared memory.
    pub session: Session,
    /// Publishes facts and rule tables to targets.
    pub facts: FactsPublisher,
    /// The objects that processes have loaded.
    pub objects: Objects,
    /// Names of code generated at run time.
    pub jit: Jit,
    /// Writes the recording.
    pub writer: Writer<File>,
    /// Publishes to processes where their code is, for copies of stacks.
    pub code_maps: Option<CodeMaps>,
    uses: Vec<Option<Use>>,
    stacks: Stacks,
    /// The program's processes, and those of them that are not recorded.
    pub survey: Survey,
    buffer: Vec<u8>,
    processes: u32,
    /// Number of processes when those with the same pid were last looked for.
    compared: u32,
    threads: u32,
    /// Number of threads in other pid namespaces whose ids here are not known.
    threads_without_id: u64,
    /// The recording ends: freed blocks are not given back to targets.
    closing: bool,
    /// The recorder rests.
    rests: bool,
    /// Number of samples written.
    pub samples: u64,
    /// Bytes or ns from a sampled event to the next, on average; 0: no events are sampled.
    pub interval: u32,
    /// The processes that signals ended.
    pub ended: Ended,
    /// Samples what threads use before they are sampled themselves, if that is wanted.
    pub starts: Option<Starts>,
    /// Watches threads that wait, if these are to be sampled.
    pub watcher: Option<Box<dyn Watcher>>,
    /// How long threads have waited, the same.
    pub waited: Option<Waited>,
    /// Times the samples of threads beside their timers.
    pub clock: Option<KernelClock>,
    /// Threads have begun or ended since the watcher got their list.
    is_other: bool,
    /// Process, first address and key of each object that was written.
    reported: HashSet<(u32, u64, u64)>,
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pass {
    /// The fullest ring, in percent.
    pub fullest: u64,
    /// A process or a thread has begun or ended, or written something.
    pub has_found: bool,
}

impl Drain {
    /// Creates it with no block in use.
    pub fn new(
        session: Session,
        facts: FactsPublisher,
        objects: Objects,
        writer: Writer<File>,
        survey: Survey,
    ) -> Drain {
        let jit = Jit::with_rules(CodeRules::new(facts.memory().clone()));
        let uses = (0..session.blocks()).map(|_| None).collect();
        Drain {
            session,
            facts,
            objects,
            jit,
            writer,
            code_maps: None,
            uses,
            stacks: Stacks::default(),
            survey,
            buffer: Vec::new(),
            processes: 0,
            compared: 0,
            threads: 0,
            threads_without_id: 0,
            closing: false,
            rests: false,
            samples: 0,
            interval: 0,
            ended: Ended::default(),
            starts: None,
            watcher: None,
            waited: None,
            clock: None,
            is_other: false,
            reported: HashSet::new(),
        }
    }

    /// Descriptors that become readable when a recorded process ends.
    pub fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.uses.iter().filter_map(|used| match used {
            Some(Use::Process(p)) => p.poll_fd(),
            _ => None,
        })
    }

    /// Drains every ring. `look_for_dead`: also determines which processes and threads are gone, which costs system
    /// calls.
    pub fn pass(&mut self, look_for_dead: bool) -> Pass {
        let mut pass = Pass::default();
        if look_for_dead {
            self.look_at_run_delays();
        }
        // Determined before the rings are drained, so that no record can follow the last drain of a ring.
        let gone = if look_for_dead { self.gone() } else { Vec::new() };
        for block in 0..self.session.blocks() {
            let state = self.session.state(block);
            if state == FREE {
                continue;
            }
            if !matches!(self.uses.get(block), Some(Some(_))) {
                self.adopt(block, state);
                pass.has_found = true;
            }
            if let Some(Some(Use::Thread(_))) = self.uses.get(block) {
                self.drain(block, &mut pass);
                if state == ENDED_THREAD {
                    self.finish_thread(block);
                    pass.has_found = true;
                }
            }
        }
        self.frees(&mut pass);
        for block in gone.into_iter().chain(self.superseded()) {
            self.finish(block);
            pass.has_found = true;
        }
        self.watch();
        if self.survey.is_due(self.rests) {
            self.survey.look(&recorded(&self.uses, &self.session));
        }
        if let Some(maps) = self.code_maps.as_mut().filter(|maps| maps.is_due()) {
            for (block, used) in self.uses.iter().enumerate() {
                if let Some(Use::Process(p)) = used {
                    maps.look(&self.session, block, p.pid, p.index);
                }
            }
            maps.end();
            self.writer.complete_maps(&maps.take_complete());
        }
        self.objects.poll(&mut self.facts);
        // Code that was made since the last look has run for less than a tick.
        if !self.rests {
            self.jit.look();
        }
        self.writer.second_mappings(&self.jit.take_second_mappings());
        self.language_names();
        for note in self.objects.take_notes().into_iter().chain(self.jit.take_notes()) {
            self.writer.note(&note);
        }
        pass
    }

    /// Whether passes may follow each other slowly while nothing happens: nothing but the rings, and what becomes
    /// readable, brings samples.
    pub fn may_rest(&self) -> bool {
        self.watcher.is_none() && self.clock.is_none() && self.code_maps.is_none()
    }

    /// From now on, until the next call, the recorder rests or does not.
    pub fn rest(&mut self, rests: bool) {
        self.rests = rests;
        self.session.set_resting(rests);
    }

    /// Pid and executable of the recorded processes that still live.
    pub fn alive(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.uses.iter().flatten().filter_map(|used| match used {
            Use::Process(process) if !process.is_gone() => Some((process.pid, &process.exe[..])),
            _ => None,
        })
    }

    /// Surveys the program's processes a last time.
    pub fn last_look(&mut self) {
        self.survey.look_at_last(&recorded(&self.uses, &self.session), self.session.memory().inode());
    }

    /// Blocks whose process or thread is gone.
    fn gone(&self) -> Vec<usize> {
        let gone = self.uses.iter().enumerate().filter(|(_, used)| match used {
            Some(Use::Process(p)) => p.is_gone(),
            Some(Use::Thread(t)) => t.is_gone(),
            None => false,
        });
        gone.map(|(block, _)| block).collect()
    }

    /// Process blocks whose pid has claimed another block since then: the process has called exec.
    fn superseded(&mut self) -> Vec<usize> {
        if std::mem::replace(&mut self.compared, self.processes) == self.processes {
            return Vec::new();
        }
        let mut latest = HashMap::new();
        let processes = || {
            self.uses.iter().enumerate().filter_map(|(block, used)| match used {
                Some(Use::Process(p)) => Some((block, p)),
                _ => None,
            })
        };
        for (block, p) in processes() {
            let entry = latest.entry(p.pid).or_insert((p.start, p.index, block));
            *entry = (*entry).max((p.start, p.index, block));
        }
        processes().filter(|(block, p)| latest.get(&p.pid).is_some_and(|l| l.2 != *block)).map(|(b, _)| b).collect()
    }

    fn adopt(&mut self, block: usize, state: u32) {
        match state {
            LIVE_PROCESS => self.adopt_process(block),
            LIVE_THREAD | ENDED_THREAD => self.adopt_thread(block, state),
            // Claimed, but its header is not complete yet; or a number that no correct target writes.
            _ => {}
        }
    }

    fn adopt_process(&mut self, block: usize) {
        let Some(header) = self.session.process(block) else { return };
        let index = self.processes;
        self.processes += 1;
        let process = describe(&header);
        self.writer.process(&process);
        if !process.command.is_empty() {
            self.writer.command(index, &process.command);
        }
        let forked = (process.origin == FORKED).then(|| self.index_of(process.parent)).flatten();
        self.jit.process(index, process.pid, process.start, forked);
        let is_unnamed = process.origin != FORKED && process.exe.is_empty() && process.command.is_empty();
        let mut used = ProcessUse::new(index, &header, process.exe);
        used.is_unnamed = is_unnamed;
        self.set(block, Some(Use::Process(Box::new(used))));
    }

    /// Index of the process with this pid, the latest if it had several.
    fn index_of(&self, pid: u32) -> Option<u32> {
        let processes = self.uses.iter().flatten().filter_map(|used| match used {
            Use::Process(p) if p.pid == pid => Some(p.index),
            _ => None,
        });
        processes.max()
    }

    fn adopt_thread(&mut self, block: usize, state: u32) {
        let Some(header) = self.session.thread(block) else { return };
        let process_block = header.process as usize;
        if self.process(process_block).is_none() && self.session.state(process_block) == LIVE_PROCESS {
            self.adopt_process(process_block);
        }
        let Some(process) = self.process(process_block).filter(|p| p.pid == header.pid) else {
            // Without a matching process its addresses could not be resolved. The next pass tries again.
            return;
        };
        let (pid, process) = (header.pid, process.index);
        let Some((found, own_tid)) = self.ids_of_thread(&header, process_block) else {
            // Its ids could not be read. The next pass tries again.
            return;
        };
        let tid = found.unwrap_or(own_tid);
        let index = self.threads;
        self.threads += 1;
        self.writer.thread(&Thread { process, tid, name: String::new() });
        self.waited.iter_mut().for_each(|waited| waited.begin(process));
        let cpu_before = header.cpu_before.load(Ordering::Relaxed);
        let (reader, samples) = (RingReader::default(), Samples::default());
        // Without its id here, an event could be another thread's.
        let stitch = self.clock.as_mut().filter(|_| state == LIVE_THREAD && found.is_some());
        let stitch = stitch.and_then(|clock| clock.begin(pid, tid, cpu_before)).map(Box::new);
        let used = ThreadUse {
            index,
            process_block,
            pid,
            tid,
            own_tid,
            reader,
            samples,
            lost: (0, 0),
            renamed: false,
            language_name: None,
            looks: 0,
            is_sampled: false,
            run_delays: None,
            cpu: cpu_before,
            began: header.began,
            cpu_before,
            place: None,
            allocation: None,
            wait: None,
            stitch,
        };
        self.set(block, Some(Use::Thread(Box::new(used))));
    }

    /// A thread's id here, and the one in its own pid namespace. The first one is not known of a thread that had ended
    /// before it was looked at, which is counted. `None`: it cannot be read now.
    fn ids_of_thread(&mut self, header: &ThreadBlock, process_block: usize) -> Option<(Option<u32>, u32)> {
        if header.own_tid == 0 {
            return Some((Some(header.tid), header.tid));
        }
        let process = self.process(process_block)?;
        let ids = process.thread_ids.get_or_insert_default();
        if header.tid != 0 {
            return Some((Some(header.tid), header.own_tid));
        }
        let found = match ids.of(process.pid, header.own_tid) {
            Ok(found) => found,
            Err(_) if process.is_gone() => None,
            Err(_) => return None,
        };
        self.threads_without_id += u64::from(found.is_none());
        Some((found, header.own_tid))
    }

    /// A line for the user about threads whose ids here are not known.
    pub fn without_ids(&self) -> Option<String> {
        let count = self.threads_without_id;
        (count > 0).then(|| {
            format!(
                "{count} short {} in another pid namespace {} the ids of that namespace: they had ended before they were looked at",
                if count == 1 { "thread" } else { "threads" },
                if count == 1 { "has" } else { "have" },
            )
        })
    }

    fn set(&mut self, block: usize, used: Option<Use>) {
        if let Some(slot) = self.uses.get_mut(block) {
            *slot = used;
            self.is_other = true;
        }
    }

    fn process(&mut self, block: usize) -> Option<&mut ProcessUse> {
        match self.uses.get_mut(block) {
            Some(Some(Use::Process(p))) => Some(p),
            _ => None,
        }
    }

    fn drain(&mut self, block: usize, pass: &mut Pass) {
        let Some(Some(Use::Thread(thread))) = self.uses.get_mut(block) else { return };
        let drained = thread.reader.drain(&self.session, block, &mut self.buffer);
        let event = thread.stitch.as_ref().map_or(0, |stitch| stitch.event().fullness());
        let (thread, process_block) = (thread.index, thread.process_block);
        pass.fullest = pass.fullest.max(drained.bytes * 100 / RING_BYTES as u64).max(event);
        pass.has_found |= drained.bytes > 0;
        let mut damaged = drained.damaged_records;
        let mut budget = FRAMES;
        for record in drained.records {
            if let Record::Sample { mark, coded } = record {
                damaged += u64::from(!self.sample(block, process_block, mark, &coded, &mut budget));
            } else {
                self.record(record, block, thread, process_block);
            }
        }
        if drained.damaged_ring {
            if let Some(Some(Use::Thread(thread))) = self.uses.get_mut(block) {
                thread.samples.forget();
            }
        }
        if let Some(p) = self.process(process_block) {
            p.damaged_rings += u64::from(drained.damaged_ring);
            p.damaged_records += damaged;
        }
        self.stitch(block, false);
    }

    /// Decodes a sample and writes it to the recording. False: it was invalid.
    fn sample(&mut self, block: usize, process_block: usize, mark: u16, coded: &[u8], budget: &mut u64) -> bool {
        let Some(Some(Use::Thread(thread))) = self.uses.get_mut(block) else { return true };
        thread.is_sampled = true;
        let (stacks, writer, index) = (&mut self.stacks, &mut self.writer, thread.index);
        let node = |parent, frame| stacks.node(parent, frame, |node| writer.node(node));
        let (place, allocation, wait) = (thread.place.take(), thread.allocation.take(), thread.wait.take());
        let interval = self.interval;
        let mut periods = 0;
        match thread.samples.read(mark, coded, budget, node) {
            Ok((sample, node)) => {
                let RingSample { time, weight, stop, kind, flags, .. } = sample;
                let is_tick = kind == SampleKind::Timer.number();
                if kind == Sample::FATAL {
                    self.ended.is_shown(thread.pid);
                }
                periods = if is_tick { u64::from(weight) } else { 0 };
                let is_allocated = kind == Sample::ALLOCATION || kind == Sample::MAPPING;
                let allocation = allocation.filter(|_| is_allocated);
                let wait = wait.filter(|_| kind == Sample::LOCKED);
                match (place.filter(|_| is_tick), &mut thread.stitch) {
                    _ if allocation.is_some() => {
                        let (id, size) = allocation.unwrap_or_default();
                        let weight = Amount::of(size, interval).weight().min(u32::MAX.into()) as u32;
                        let sample = Sample { thread: index, stack: node, time, weight, stop, kind, flags };
                        self.writer.allocation(sample, id, size);
                        self.samples += 1;
                    }
                    _ if wait.is_some() => {
                        let wait = wait.unwrap_or_default();
                        let weight = Amount::of(wait.duration, interval).weight().min(u32::MAX.into()) as u32;
                        let sample = Sample { thread: index, stack: node, time, weight, stop, kind, flags };
                        self.writer.lock_wait(sample, &wait);
                        self.samples += 1;
                    }
                    (Some(at), Some(stitch)) => stitch.push(UserStack { sample, node, at }),
                    (_, stitch) => {
                        stitch.iter_mut().filter(|_| is_tick).for_each(|stitch| stitch.counted(weight));
                        // One that does not say what it is of was not made by our writer.
                        if is_allocated || kind == Sample::LOCKED {
                            return false;
                        }
                        self.writer.sample(Sample { thread: index, stack: node, time, weight, stop, kind, flags });
                        self.samples += u64::from(kind != Sample::FATAL);
                    }
                }
                self.rename(block);
            }
            Err(Unread::NoBase(weight)) => self.writer.lost(index, 1, u64::from(weight)),
            Err(Unread::Damaged) => return false,
        }
        if let Some(process) = self.process(process_block) {
            process.sample_bytes += (size_of::<RecordHeader>() + coded.len()) as u64;
            process.periods = process.periods.saturating_add(periods);
        }
        true
    }

    /// Takes the path of a process's first object, its program, for its command line, which could not be read: the
    /// process has ended.
    fn name_by_program(&mut self, process_block: usize, path: &[u8]) {
        let Some(Some(Use::Process(process))) = self.uses.get_mut(process_block) else { return };
        if std::mem::take(&mut process.is_unnamed) && path.starts_with(b"/") {
            self.writer.command(process.index, &[path.to_vec()]);
        }
    }

    /// Writes a record other than a sample to the recording.
    fn record(&mut self, record: Record, block: usize, thread: u32, process_block: usize) {
        if let Record::Object { path, .. } = &record {
            self.name_by_program(process_block, path);
        }
        let Some(Some(Use::Process(of))) = self.uses.get_mut(process_block) else { return };
        let process = of.index;
        match record {
            Record::Sample { .. } => {}
            Record::Place(at) => {
                if let Some(Some(Use::Thread(thread))) = self.uses.get_mut(block) {
                    thread.place = Some(at);
                }
            }
            Record::Allocation { id, size } => {
                if let Some(Some(Use::Thread(thread))) = self.uses.get_mut(block) {
                    thread.allocation = Some((id, size));
                }
            }
            Record::Wait(mut wait) => {
                if let Some(ids) = of.thread_ids.as_mut().filter(|_| wait.holder != 0) {
                    wait.holder = ids.known(of.pid, wait.holder);
                }
                if let Some(Some(Use::Thread(thread))) = self.uses.get_mut(block) {
                    thread.wait = Some(wait);
                }
            }
            Record::Copy { time, weight, beside, kind, flags, bytes } => {
                let sample = Sample { thread, stack: 0, time, weight, stop: 0, kind, flags };
                self.writer.copy(sample, beside, &bytes);
                if let Some(Some(Use::Thread(thread))) = self.uses.get_mut(block) {
                    thread.is_sampled = true;
                }
                self.rename(block);
                self.samples += u64::from(kind != Sample::FATAL && !beside);
            }
            Record::Name { id, plugin, code, fingerprint, first_line, table_kind, name, file, table } => {
                self.name_plugin(process_block, plugin);
                let name = Name { process, id, plugin, code, fingerprint, first_line, table_kind, name, file, table };
                self.writer.name(&name);
            }
            Record::Object { time, bias, start, end, build_id, path, facts_key } => {
                self.reported.insert((process, start, facts_key));
                of.thread_names.object(facts_key, bias);
                let mut object = Object { process, time, bias, start, end, facts_key, build_id, path };
                self.objects.seen(of.pid, &of.exe, &mut object, &mut self.facts);
                self.jit.object(process, &object, || self.objects.files(&object));
                self.writer.object(&object);
            }
            Record::Lost { .. } => self.losses(block),
            Record::Labels { time, labels } => self.writer.labels(thread, time, &labels),
            Record::Thread(name) => self.kernel_name(thread, &name),
        }
    }

    /// Writes the plugins of a process that has opened them since its block was seen.
    fn name_plugin(&mut self, block: usize, plugin: u32) {
        let is_named = |p: &&mut ProcessUse| p.plugins.get(plugin as usize).is_some_and(|name| !name.is_empty());
        let header = self.session.process(block);
        let Some(process) = self.process(block).filter(|p| !is_named(p)) else { return };
        let Some(names) = header.map(|header| plugins(&header)).filter(|names| *names != process.plugins) else {
            return;
        };
        process.plugins = names;
        let ProcessUse { index, plugins, .. } = process;
        let (index, plugins) = (*index, plugins.clone());
        self.writer.plugins(index, &plugins);
    }
}

/// The processes that have a block, with the periods of their samples, and of the pauses of their recording.
fn recorded(uses: &[Option<Use>], session: &Session) -> HashMap<Id, u64> {
    let mut recorded = HashMap::new();
    for (block, used) in uses.iter().enumerate() {
        if let Some(Use::Process(process)) = used {
            if let Some(id) = process.id() {
                let paused = session.process(block).map_or(0, |header| header.paused_periods.load(Ordering::Relaxed));
                let periods: &mut u64 = recorded.entry(id).or_default();
                *periods = periods.saturating_add(process.periods).saturating_add(paused);
            }
        }
    }
    recorded
}
