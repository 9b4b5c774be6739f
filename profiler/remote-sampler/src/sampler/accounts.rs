//! The time of threads: what is due to a sample, and what no sample stands for.

use super::Sampler;
use crate::target::{Target, Watched};
use std::time::Duration;
use uunwind_recorder::machine;
use uunwind_recording::Thread;
use uunwind_remote::clocks::Clock;
use uunwind_remote::doing;
use uunwind_remote::threads::{self, tids};
use uunwind_waits::wait_intervals::Single;
use uunwind_waits::waiting::Waiting;

/// The files of at most this number of threads' clocks are kept open.
const KEPT_OPEN: usize = 256;
/// The same in this number of processes at most.
const KEPT_OPEN_OF: usize = 8;

impl Sampler {
    /// Reads the clocks of all threads of a process. `first`: what they have used so far is left out; else only for
    /// those that are not new.
    pub(super) fn watch(&mut self, target: &mut Target, first: bool) {
        let wall = self.wall;
        let used = |clock: &Clock| clock.used().map(|used| if wall { machine::monotonic() } else { used });
        let (mut gone, tids) = (Vec::new(), tids(target.pid).unwrap_or_default());
        // The clock of a main thread stays when it ends before the others.
        let is_over = |tid: u32| tid == target.pid && !tids.is_empty() && !tids.contains(&tid);
        for (tid, thread) in &mut target.threads {
            if is_over(*tid) {
                gone.push(*tid);
                continue;
            }
            let Some(used) = used(&thread.clock) else {
                gone.push(*tid);
                continue;
            };
            thread.due = thread.due.saturating_add(used.saturating_sub(thread.used));
            thread.used = used;
        }
        gone.iter().filter_map(|tid| target.threads.remove(tid)).for_each(|thread| self.end_of(thread));
        let others: usize = self.targets.iter().take(KEPT_OPEN_OF).map(|other| other.threads.len()).sum();
        for tid in tids {
            if target.threads.len() >= threads::THREADS || target.threads.contains_key(&tid) {
                continue;
            }
            let of = target.threads.len();
            // Of one whose waits are wanted there are two files.
            let files = (others + of).saturating_mul(1 + usize::from(self.wall));
            let kept = of < KEPT_OPEN && self.targets.len() <= KEPT_OPEN_OF && files < self.open_files;
            let clock = match Clock::of(target.pid, tid, kept) {
                Ok(clock) => clock,
                Err(error) => {
                    self.clockless.add(tid, &error);
                    continue;
                }
            };
            let Some(used) = used(&clock) else { continue };
            let (index, name) = (self.thread_count, doing::name(target.pid, tid));
            self.thread_count += 1;
            self.writer.thread(&Thread { process: target.process, tid, name: String::new() });
            self.writer.thread_name(index, &name);
            let due = if first || self.wall { 0 } else { used };
            let (single, waiting) = ((kept && self.wall).then(|| Single::of(tid)).flatten(), Waiting::default());
            target.threads.insert(
                tid,
                Watched {
                    index,
                    clock,
                    used,
                    due,
                    name,
                    inner: None,
                    is_languages: false,
                    looks: 0,
                    waiting,
                    single,
                    asked: None,
                },
            );
        }
    }

    /// Counts what threads of a process have used since the last look, in which nobody looked.
    pub fn skip(&mut self, index: usize) {
        self.with_target(index, |sampler, target| {
            sampler.watch(target, false);
            for thread in target.threads.values_mut() {
                sampler.tally.meanwhile += thread.due;
                thread.due = 0;
            }
        });
    }

    /// The recording is paused: what the process's threads have used, or waited, since the last look is in no sample.
    pub(super) fn pass_over(&mut self, index: usize) {
        self.with_target(index, |sampler, target| {
            sampler.watch(target, false);
            target.threads.values_mut().for_each(|thread| thread.due = 0);
        });
    }

    /// What looks have cost so far: CPU time of this thread, as what is stopped may have to wait for a CPU; without the
    /// looks for threads' names, which have intervals of their own.
    pub(super) fn cost(&self) -> Duration {
        Duration::from_nanos(machine::own_thread_cpu().saturating_sub(self.naming))
    }

    /// The threads of a process are watched no longer.
    pub(super) fn forget(&mut self, target: &mut Target) {
        std::mem::take(&mut target.threads).into_values().for_each(|thread| self.end_of(thread));
        self.write_waits();
    }

    pub(super) fn write_waits(&mut self) {
        let waits = self.singles.taken();
        if !waits.is_empty() {
            self.writer.waits(&waits);
        }
    }

    /// A thread is watched no longer.
    pub(super) fn end_of(&mut self, thread: Watched) {
        if !self.wall {
            return;
        }
        // It may have ended just after the last look, or now.
        let due = thread.due + machine::monotonic().saturating_sub(thread.used);
        // But for the rest of a period, which every thread has.
        self.unseen += if due < self.period { 0 } else { due };
        self.singles.end(thread.single, thread.index);
    }
}
