//! A look at a process: which of its threads are sampled, and which samples are written.

use super::{Pause, Sampler, SHARE};
use crate::target::{Pending, Target};
use std::sync::Arc;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_recorder::machine;
use uunwind_recording::Sample;
use uunwind_remote::clocks::is_running;
use uunwind_remote::doing::{doing, Doing};
use uunwind_remote::language_names::LanguageNames;
use uunwind_remote::memory::Memory;
use uunwind_remote::objects::code_of;
use uunwind_remote::threads::Stopped;
use uunwind_remote::walks::Walks;
use uunwind_ring::record::SampleKind;
use uunwind_waits::waiting::{Found, Stood, Stop, PATIENCE};

/// A thread that did not stop in time is not asked again for so long: the others would wait for it.
const AGAIN: Duration = Duration::from_secs(20);

/// How a look ended.
pub(super) enum Looked {
    Whole,
    /// The process has mapped other code.
    OtherCode,
    /// A thread did not stop in time.
    LetGo,
}

impl Sampler {
    /// Looks at a process, and from time to time at what it has mapped. Returns what else is to be done, if anything.
    pub(super) fn look_once(
        &mut self,
        target: &mut Target,
        index: usize,
        walks: &mut Walks<'_>,
        memory: &Memory,
    ) -> Option<Pause> {
        let looked = self.look(target, walks, memory);
        if self.wall {
            target.threads.values_mut().for_each(|thread| self.singles.take(thread.single.as_mut(), thread.index));
        }
        let (begun, cost) = (Instant::now(), self.cost());
        if begun >= target.check || matches!(looked, Looked::OtherCode) {
            if !self.settle(target, walks) {
                return Some(Pause::OtherCode(index));
            }
            target.check = begun + (self.cost() - cost) * SHARE * 2;
        }
        matches!(looked, Looked::LetGo).then_some(Pause::LetGo)
    }

    /// Samples every thread that is due, and runs or waits.
    pub(super) fn look(&mut self, target: &mut Target, walks: &mut Walks<'_>, memory: &Memory) -> Looked {
        self.watch(target, false);
        self.tally.looks += 1;
        let (pid, code, pending) = (target.pid, &target.code, &mut target.pending);
        for (tid, thread) in &mut target.threads {
            if thread.due < self.period || thread.asked.is_some_and(|asked| asked.elapsed() < AGAIN) {
                continue;
            }
            if self.wall {
                let (at, tally) = ((pid, *tid), &mut self.waits);
                let mut is_current = || code_of(at.0) == *code;
                let found = thread.waiting.look(at, &thread.clock, (walks, memory), &mut is_current, tally);
                if let (Some(single), Some(stop)) = (&mut thread.single, thread.waiting.last_stop.take()) {
                    single.stopped(stop);
                }
                match found {
                    Found::Waits(walked, time) => {
                        let (weight, kind) = (thread.due(self.period), SampleKind::Waiting);
                        pending.push(Pending { tid: *tid, thread: thread.index, time, weight, kind, walked });
                        continue;
                    }
                    Found::OtherCode => return Looked::OtherCode,
                    Found::NotInTime => {
                        thread.is_late();
                        return Looked::LetGo;
                    }
                    Found::Missed | Found::Gone => continue,
                    Found::Runs => {}
                }
            } else if !is_running(pid, *tid) {
                continue;
            }
            let from = machine::monotonic();
            let Ok(stopped) = Stopped::one(pid, *tid, PATIENCE) else {
                self.tally.unstopped += u64::from(thread.clock.used().is_some());
                continue;
            };
            let time = machine::monotonic();
            let walked = match stopped.threads().next() {
                Some((_, Some(false))) => {
                    // The id may be another thread's by now; then this one's clock is gone.
                    let known = stopped.registers(*tid).zip(thread.clock.ran());
                    memory.forget();
                    known.and_then(|(registers, ran)| match doing(&registers) {
                        Doing::Running => Some((SampleKind::Timer, Arc::new(walks.walk(&registers)))),
                        // Meanwhile, it has begun to wait: it is not stopped again for that.
                        _ if self.wall => {
                            let stood = Stood::running((pid, *tid), &registers, ran);
                            Some((SampleKind::Waiting, thread.waiting.stopped(&stood, ran, walks)?))
                        }
                        _ => None,
                    })
                }
                Some((_, None)) => {
                    self.tally.unstopped += 1;
                    thread.is_late();
                    return Looked::LetGo;
                }
                // It was stopped by a signal, or has ended.
                _ => None,
            };
            // Before it is let go: from then on, it may wait for itself.
            let in_call = matches!(walked, Some((SampleKind::Waiting, _)));
            if let Some(single) = &mut thread.single {
                single.stopped(Stop { from, stood: time, in_call });
            }
            let took = stopped.let_go();
            if in_call {
                self.waits.waits += 1;
                self.waits.stops.add(took);
            } else {
                self.tally.stops.add(took);
            }
            let Some((kind, walked)) = walked else { continue };
            let weight = thread.due(self.period);
            pending.push(Pending { tid: *tid, thread: thread.index, time, weight, kind, walked });
        }
        Looked::Whole
    }

    /// Writes the samples whose code is still mapped as it was when the objects were prepared, and leaves the others
    /// out. False: something else is mapped by now.
    pub(super) fn settle(&mut self, target: &mut Target, walks: &Walks<'_>) -> bool {
        let time = machine::monotonic();
        let now = code_of(target.pid);
        let pending = std::mem::take(&mut target.pending);
        if !target.code.is_subset(&now) {
            self.tally.left_out += pending.len() as u64;
            target.threads.values_mut().for_each(|thread| thread.waiting.forget());
            target.language_names = LanguageNames::default();
            return false;
        }
        let is_same = target.code.len() == now.len();
        if is_same {
            target.checked = time;
        }
        let names = walks.names();
        for name in names.names.iter().skip(target.names_written) {
            let mut name = name.clone();
            name.process = target.process;
            self.writer.name(&name);
        }
        target.names_written = names.names.len();
        for Pending { tid, thread, time, weight, kind, walked } in pending {
            let (stack, _) = self.stacks.intern(&walked.words, |node| self.writer.node(node));
            let flags = walked.flags();
            let (stop, kind) = (walked.stop.number(), kind.number());
            self.writer.sample(Sample { thread, stack, time, weight, stop, kind, flags });
            self.tally.samples += 1;
            self.rename(target, tid, thread);
        }
        self.write_waits();
        let before = machine::own_thread_cpu();
        self.take_language_names(target, walks);
        self.naming += machine::own_thread_cpu().saturating_sub(before);
        self.writer.flush();
        is_same
    }
}
