//! The threads of a process with a sampler in it: each has a timer of its own, which a borrowed thread makes.

use super::remote_call::Trouble;
use super::{preflight, Injected, SIGNAL};
use std::collections::HashMap;
use std::time::Duration;
use uunwind_remote::clocks::Clock;
use uunwind_remote::threads::tids;

/// Time between looks for new threads, and for those that have ended.
pub const THREADS: Duration = Duration::from_millis(40);
/// CPU time that passed unsampled is reported from this share of the whole on, and from this time on, in ns.
const MISSED: (f64, u64) = (0.05, 50_000_000);

/// The threads of the process, as they were last seen.
#[derive(Default)]
pub struct Threads {
    known: HashMap<u32, Known>,
    /// CPU time of sampled threads that have ended, in ns.
    ended: u64,
    /// Threads that block the sampler's signal, or have a filter of system calls.
    blocking: u32,
    /// Threads that got no timer.
    refused: u32,
    /// At most this number of their clocks is kept open; others are opened at each look.
    kept: usize,
}

struct Known {
    inner: u32,
    clock: Option<Clock>,
    /// CPU time when it got its timer, and as last seen, in ns.
    from: u64,
    used: u64,
    armed: bool,
    /// Number of looks at which it blocked the signal.
    blocked: u32,
}

impl Threads {
    /// None so far, and at most this number of their clocks kept open.
    pub fn keeping(kept: usize) -> Threads {
        Threads { kept, ..Threads::default() }
    }

    /// Arms threads that were there at the last look already; with `all`, new ones, too.
    pub fn look(&mut self, pid: u32, injected: &mut Injected, all: bool) -> Result<(), Trouble> {
        if !injected.needs_threads() {
            return Ok(());
        }
        let Ok(now) = tids(pid) else { return Ok(()) };
        let mut new = Vec::new();
        for tid in &now {
            if let Some(known) = self.known.get_mut(tid) {
                let used = known.clock.as_ref().and_then(Clock::used);
                known.used = used.unwrap_or(known.used);
                if !known.armed {
                    new.push(*tid);
                }
                continue;
            }
            let clock = Clock::of(pid, *tid, self.known.len() < self.kept).ok();
            let used = clock.as_ref().and_then(Clock::used).unwrap_or(0);
            let inner = preflight::inner_id(pid, *tid);
            self.known.insert(*tid, Known { inner, clock, from: used, used, armed: false, blocked: 0 });
            if all {
                new.push(*tid);
            }
        }
        let gone: Vec<u32> = self.known.keys().filter(|tid| !now.contains(tid)).copied().collect();
        let mut forget = Vec::new();
        for tid in gone {
            let Some(known) = self.known.remove(&tid) else { continue };
            if known.armed {
                self.ended += known.used.saturating_sub(known.from);
                forget.push(known.inner);
            }
        }
        let (mut blocking, mut free) = (Vec::new(), Vec::new());
        for tid in new {
            let Some(known) = self.known.get_mut(&tid) else { continue };
            if !preflight::blocks(pid, tid, SIGNAL) && !preflight::filters(pid, tid) {
                free.push(tid);
            } else if known.blocked + 1 < preflight::LOOKS {
                // It may do so for a moment only, and is looked at again.
                known.blocked += 1;
            } else {
                blocking.push(tid);
            }
        }
        let new = free;
        self.blocking += blocking.len() as u32;
        let failed = if new.is_empty() && forget.is_empty() { Vec::new() } else { injected.arm(&new, &forget)? };
        for tid in new.iter().chain(&blocking) {
            if let Some(known) = self.known.get_mut(tid) {
                known.armed = true;
                if failed.contains(tid) || blocking.contains(tid) {
                    // Looked at as one of which no time is sampled.
                    (known.clock, known.from) = (None, known.used);
                }
            }
        }
        self.refused += failed.len() as u32;
        Ok(())
    }

    /// The process has called exec: the thread that is left has no timer, and all others have ended.
    pub fn forget(&mut self) {
        self.ended = self.sampled();
        self.known.clear();
    }

    /// Reads the CPU times a last time.
    pub fn end(&mut self) {
        for known in self.known.values_mut() {
            known.used = known.clock.as_ref().and_then(Clock::used).unwrap_or(known.used);
        }
    }

    /// CPU time of sampled threads since they have their timers, in ns.
    pub fn sampled(&self) -> u64 {
        let used = |known: &Known| known.used.saturating_sub(known.from);
        self.ended + self.known.values().filter(|known| known.armed).map(used).sum::<u64>()
    }

    /// Adds the times of other threads, of another process.
    pub fn add(&mut self, other: &Threads) {
        self.ended += other.sampled();
        self.blocking += other.blocking;
        self.refused += other.refused;
    }

    /// Notes on what is missing. `cpu_used`: CPU time of the processes, in ns.
    pub fn losses(&self, cpu_used: u64) -> Vec<String> {
        let mut notes = Vec::new();
        if self.blocking > 0 {
            notes.push(format!(
                "{} threads block the sampler's signal (SIGSTKFLT) or have a filter of system calls, and were not sampled",
                self.blocking
            ));
        }
        if self.refused > 0 {
            notes.push(format!("{} threads got no timer (see RLIMIT_SIGPENDING), and were not sampled", self.refused));
        }
        let missed = cpu_used.saturating_sub(self.sampled());
        if missed > MISSED.1 && missed as f64 > cpu_used as f64 * MISSED.0 {
            notes.push(format!(
                "{:.2} s of CPU time passed in threads that had no timer: a new thread gets one after {} to {} ms, a new process later, and shorter ones none",
                missed as f64 / 1e9,
                THREADS.as_millis(),
                2 * THREADS.as_millis()
            ));
        }
        notes
    }
}
