//! What a thread waits in, and its stack, found at most once a wait.
//!
//! A thread that has not run since it was last found waiting is in the same wait, with the same stack: it is only
//! counted. Of one that has run, the kernel says in which system call it is, and its pc and stack pointer. From these a
//! walk needs no stop, and is right if the thread has not run meanwhile. Only where that walk does not reach the
//! outermost frame, because a frame needs another register, or where the thread pointer is not known yet, is the thread
//! stopped, which no system call notices (`waits`).
//!
//! After a stop, a thread has run: to stop, and to enter its call again. If it is in the same call at the same place,
//! and every word that the walk has read is what it was, its stack is the same, and it is not stopped again. Nor is it
//! while it runs and has not slept since: it is on the way back into its call, which may take long, as in a poll(2) of
//! many files.

use crate::stops::Stops;
use std::sync::Arc;
use std::time::Duration;
use syscalls::Sysno;
use uunwind_recorder::machine::{self, Stat};
use uunwind_remote::clocks::{sleeps, Clock, Ran};
use uunwind_remote::doing::{call_name, doing, Doing};
use uunwind_remote::memory::Memory;
use uunwind_remote::registers::{arguments, call_number, pc, sp, thread_pointer, Registers};
use uunwind_remote::threads::Stopped;
use uunwind_remote::walks::{Walked, Walks};

/// Longest wait for a thread to stop, which on a loaded machine first needs a CPU for it. One that stops when nobody
/// waits any more may end a call early: what a stop interrupts is repaired by the one who waits.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// What a thread that runs between two reads is asked again.
const TRIES: usize = 2;
/// A thread that has used this CPU time after a stop, in ns, is taken to have left its call.
const ENTERING: u64 = 20_000_000;

/// A thread that is blocked, as the kernel shows it
/// ([proc_pid_syscall(5)](https://man7.org/linux/man-pages/man5/proc_pid_syscall.5.html)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Blocked {
    /// Number of the system call; negative: it is blocked outside of one.
    number: i64,
    /// Its first two arguments; `None`: it is in no call.
    arguments: Option<[u64; 2]>,
    sp: u64,
    pc: u64,
}

/// What the kernel says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Blocked(Blocked),
    Running,
    /// It has ended, or may not be looked at.
    Gone,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Waits whose stack was found.
    pub waits: u64,
    /// Those for which the thread was stopped.
    pub stops: Stops,
    /// Times at which a thread was found waiting, and ran again before its stack was found.
    pub missed: u64,
    /// Waits whose stack is cut, because the thread could not be stopped.
    pub unstopped: u64,
}

impl Tally {
    /// What was done, for people.
    pub fn note(&self) -> String {
        let mut note = format!(
            "{} waits were looked at, {} of them by a stop ({}), the others without",
            self.waits,
            self.stops.count,
            self.stops.lengths()
        );
        if self.missed > 0 {
            note += &format!(". Threads that ran again before their stack was found: {}", self.missed);
        }
        if self.unstopped > 0 {
            note += &format!(
                ". Waits with a part of their stack only, whose thread could not be stopped: {}",
                self.unstopped
            );
        }
        note
    }
}

/// What a thread was found doing.
pub enum Found {
    /// It waits, with this stack; and a time in that wait (CLOCK_MONOTONIC, ns).
    Waits(Arc<Walked>, u64),
    /// It runs, or is ready to.
    Runs,
    /// It ran again before its stack was found.
    Missed,
    /// It has ended, or may not be looked at.
    Gone,
    /// The process has mapped other code than it had when it was prepared, and the stack cannot be found without it.
    OtherCode,
    /// It did not stop in time: it is let go when the calling thread ends.
    NotInTime,
}

/// The wait that a thread was last found in.
struct Wait {
    /// How often it had run by then.
    ran: Ran,
    at: Blocked,
    walked: Arc<Walked>,
    /// If it was stopped for its stack.
    stood: Option<Stood>,
    /// Other code is mapped since then: its stack must be found again.
    is_old: bool,
}

/// A thread in a stop, before it is let go.
#[derive(Clone, Copy)]
pub struct Stood {
    registers: Registers,
    /// How often it has run when it is back in its system call, if that is known. One that has run more often may be in
    /// another wait.
    back: Option<u64>,
    /// CPU time that it had used, in ns.
    cpu: u64,
    /// How often it had slept, this stop included, if that is known.
    slept: Option<u64>,
    /// It did not wait: it ran inside its call.
    ran: bool,
    /// It did so in the call that it was stopped in before, as far as can be seen.
    again: bool,
}

impl Stood {
    /// Of a thread that stands still, and was found waiting. `before`: as it was then.
    fn waited(at: (u32, u32), registers: &Registers, before: Ran) -> Stood {
        // It has run to stop, and will to go back.
        Stood::new(at, registers, before, 2, false)
    }

    /// Of a thread that stands still, and was found running.
    pub fn running(at: (u32, u32), registers: &Registers, now: Ran) -> Stood {
        Stood::new(at, registers, now, 1, true)
    }

    fn new((pid, tid): (u32, u32), registers: &Registers, then: Ran, runs: u64, ran: bool) -> Stood {
        let back = (then.times > 0).then(|| then.times.saturating_add(runs));
        Stood { registers: *registers, back, cpu: then.cpu, slept: sleeps(pid, tid), ran, again: false }
    }

    /// Whether a thread that runs is still in the call that it was stopped in. It is if it has not slept since; and one
    /// that was stopped twice in a call has its time to end it.
    fn is_in_call(&self, (pid, tid): (u32, u32), ran: Ran) -> bool {
        let has_slept = || self.slept.is_some_and(|slept| sleeps(pid, tid) != Some(slept));
        ran.cpu.saturating_sub(self.cpu) < ENTERING && (self.again || !has_slept())
    }
}

/// A stop of a thread, for its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// When it was about to be stopped (CLOCK_MONOTONIC, ns).
    pub from: u64,
    /// When it was found to stand still (CLOCK_MONOTONIC, ns).
    pub stood: u64,
    /// It was in a system call, which it has entered again afterwards.
    pub in_call: bool,
}

/// A thread, as one who watches its waits knows it.
#[derive(Default)]
pub struct Waiting {
    last: Option<Wait>,
    /// Its last stop, until somebody takes it.
    pub last_stop: Option<Stop>,
    /// Its thread pointer, which does not change; 0: not known yet.
    thread_pointer: u64,
    /// As it was at its last stop in a call.
    last_stood: Option<Stood>,
}

impl Waiting {
    /// What was found is no longer right: other code is mapped. The thread is not stopped again for the same wait.
    pub fn forget(&mut self) {
        self.last.iter_mut().for_each(|last| last.is_old = true);
    }

    /// Its stack, if it has not run since it was last found waiting.
    pub fn still(&self, ran: Ran) -> Option<&Arc<Walked>> {
        self.last.as_ref().filter(|last| last.ran == ran && !last.is_old).map(|last| &last.walked)
    }

    /// Finds out what a thread does. `is_current`: whether the process still has the code for which it was prepared.
    pub fn look(
        &mut self,
        (pid, tid): (u32, u32),
        clock: &Clock,
        (walks, memory): (&mut Walks<'_>, &Memory),
        is_current: &mut dyn FnMut() -> bool,
        tally: &mut Tally,
    ) -> Found {
        for _ in 0..TRIES {
            let before = machine::monotonic();
            let Some(ran) = clock.ran() else { return Found::Gone };
            if let Some(walked) = self.still(ran) {
                return Found::Waits(walked.clone(), before);
            }
            // If it has run no further below, it waits here: later, its next wait may have begun.
            let time = machine::monotonic();
            let at = match state(pid, tid) {
                State::Blocked(at) => at,
                State::Running => return self.runs((pid, tid), ran, tally),
                State::Gone => return Found::Gone,
            };
            memory.forget();
            if let Some(walked) = self.same(at, memory) {
                if clock.ran() != Some(ran) {
                    continue;
                }
                if let Some(last) = &mut self.last {
                    last.ran = ran;
                }
                return Found::Waits(walked, time);
            }
            let before = self.stood(at, ran);
            let mut walked = match &before {
                Some(stood) => walks.walk(&stood.registers),
                None => walks.walk_blocked(at.pc, at.sp, at.arguments, self.thread_pointer),
            };
            let is_whole = before.is_some()
                || walked.stop.is_complete() && (self.thread_pointer != 0 || !walks.needs_thread_pointer());
            let name = name_of(at.number, pid, tid);
            if clock.ran() != Some(ran) {
                continue;
            }
            if !is_whole {
                let stat = Stat::of_thread(pid, tid);
                let state = stat.as_ref().and_then(|stat| stat.field(3));
                match state {
                    // Its wait is over, and it has no CPU yet.
                    Some("R") => return self.runs((pid, tid), ran, tally),
                    None => return Found::Gone,
                    _ if !is_current() => return Found::OtherCode,
                    Some("S") => return self.stop((pid, tid), (ran, at), clock, (walks, memory), tally),
                    // It waits for a disk, or was stopped by others, and would not stop soon.
                    Some(_) => {}
                }
            }
            tally.unstopped += u64::from(!is_whole);
            tally.waits += 1;
            walked.words.splice(0..0, walks.call(&name, at.number));
            return self.found((ran, at), walked, before, time);
        }
        tally.missed += 1;
        Found::Missed
    }

    /// A thread runs. After a stop, it may be on the way back into its call: it is not stopped again for that.
    fn runs(&self, at: (u32, u32), ran: Ran, tally: &mut Tally) -> Found {
        if !self.last_stood.is_some_and(|stood| stood.is_in_call(at, ran)) {
            return Found::Runs;
        }
        tally.missed += 1;
        Found::Missed
    }

    fn found(&mut self, (ran, at): (Ran, Blocked), walked: Walked, stood: Option<Stood>, time: u64) -> Found {
        Found::Waits(self.keep((ran, at), walked, stood), time)
    }

    fn keep(&mut self, (ran, at): (Ran, Blocked), walked: Walked, stood: Option<Stood>) -> Arc<Walked> {
        let walked = Arc::new(walked);
        self.last = Some(Wait { ran, at, walked: walked.clone(), stood, is_old: false });
        walked
    }

    /// The stack of the last wait, if it is proved that this one has the same.
    fn same(&self, at: Blocked, memory: &Memory) -> Option<Arc<Walked>> {
        let last = self.last_at(at).filter(|last| !last.is_old)?;
        memory.is_unchanged(&last.walked.reads).then(|| last.walked.clone())
    }

    /// A thread that was stopped in this very wait, and then other code was mapped, or memory of its stack's functions
    /// has changed: it is not stopped again, as its registers are those of the stop.
    fn stood(&self, at: Blocked, ran: Ran) -> Option<Stood> {
        let stood = self.last_at(at)?.stood?;
        stood.back.is_some_and(|back| ran.times <= back).then_some(stood)
    }

    /// The last wait, if this one is in the same call at the same place.
    fn last_at(&self, at: Blocked) -> Option<&Wait> {
        let last = self.last.as_ref()?;
        // Some calls go on under another number after a stop.
        let is_restarted = at.number == i64::from(Sysno::restart_syscall as i32);
        let is_there = (at.sp, at.pc) == (last.at.sp, last.at.pc) && (at.number == last.at.number || is_restarted);
        is_there.then_some(last)
    }

    fn stop(
        &mut self,
        (pid, tid): (u32, u32),
        (ran, at): (Ran, Blocked),
        clock: &Clock,
        (walks, memory): (&mut Walks<'_>, &Memory),
        tally: &mut Tally,
    ) -> Found {
        let from = machine::monotonic();
        let stopped = Stopped::one(pid, tid, PATIENCE);
        let stood = machine::monotonic();
        let Ok(stopped) = stopped else {
            // It has ended, or another process traces it: what there is without a stop is better than nothing.
            let mut walked = walks.walk_blocked(at.pc, at.sp, at.arguments, self.thread_pointer);
            if clock.ran() != Some(ran) {
                tally.missed += 1;
                return Found::Missed;
            }
            (tally.waits, tally.unstopped) = (tally.waits + 1, tally.unstopped + 1);
            walked.words.splice(0..0, walks.call(&name_of(at.number, pid, tid), at.number));
            return self.found((ran, at), walked, None, from);
        };
        let found = match stopped.threads().next() {
            Some((_, Some(false))) => {
                // The id may be another thread's by now; then this one's clock is gone.
                let registers = stopped.registers(tid).filter(|_| clock.ran().is_some());
                memory.forget();
                registers.and_then(|registers| self.stopped(&Stood::waited((pid, tid), &registers, ran), ran, walks))
            }
            Some((_, None)) => {
                tally.unstopped += 1;
                return Found::NotInTime;
            }
            // It was stopped by a signal, or has ended.
            _ => None,
        };
        // Before it is let go: from then on, it may wait for itself.
        self.last_stop = Some(Stop { from, stood, in_call: found.is_some() });
        tally.stops.add(stopped.let_go());
        let Some(walked) = found else {
            tally.missed += 1;
            return Found::Missed;
        };
        tally.waits += 1;
        Found::Waits(walked, stood)
    }

    /// The stack of a thread that stands still, if a stop has interrupted it in a system call. It is not stopped again
    /// for the same wait. `ran`: as it was before it is let go.
    pub fn stopped(&mut self, stood: &Stood, ran: Ran, walks: &mut Walks<'_>) -> Option<Arc<Walked>> {
        let registers = &stood.registers;
        self.thread_pointer = thread_pointer(registers);
        let Doing::Waiting(_) = doing(registers) else { return None };
        let [first, second, _] = arguments(registers);
        let arguments = Some([first, second]);
        let mut at = Blocked { number: call_number(registers), arguments, sp: sp(registers), pc: pc(registers) };
        let mut walked = walks.walk(registers);
        let mut again = false;
        if let Some(last) = self.last_at(at) {
            (at.number, again) = (last.at.number, stood.ran && last.stood.is_some());
        }
        walked.words.splice(0..0, walks.call(&call_name(at.number), at.number));
        self.last_stood = Some(Stood { again, ..*stood });
        Some(self.keep((ran, at), walked, Some(*stood)))
    }
}

/// Whether a thread waits.
pub fn is_blocked(pid: u32, tid: u32) -> bool {
    matches!(state(pid, tid), State::Blocked(_))
}

/// What the kernel says of a thread now.
fn state(pid: u32, tid: u32) -> State {
    match std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")) {
        Ok(text) => parse(&text),
        Err(_) => State::Gone,
    }
}

fn parse(text: &str) -> State {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let address = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let (Some(first), [.., sp, pc]) = (words.first(), &words[..]) else {
        return if words == ["running"] { State::Running } else { State::Gone };
    };
    match (first.parse(), address(sp), address(pc)) {
        // That of a thread which has ended.
        (_, Some(0), Some(0)) => State::Gone,
        (Ok(number), Some(sp), Some(pc)) => {
            let arguments = match &words[..] {
                [_, first, second, _, _, _, _, _, _] if number >= 0 => address(first).zip(address(second)),
                _ => None,
            };
            State::Blocked(Blocked { number, arguments: arguments.map(|(first, second)| [first, second]), sp, pc })
        }
        _ => State::Gone,
    }
}

/// What a thread waits in: the name of a system call, or what else blocks it.
fn name_of(number: i64, pid: u32, tid: u32) -> String {
    if number >= 0 {
        return call_name(number);
    }
    match Stat::of_thread(pid, tid).as_ref().and_then(|stat| stat.field(3)) {
        Some("T" | "t") => "a stop".to_owned(),
        _ => "a page fault".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_thread_is_understood() {
        let blocked = |number, arguments, sp, pc| State::Blocked(Blocked { number, arguments, sp, pc });
        let text = "230 0x1 0x8 0x7ffc 0x0 0x0 0x0 0x7ffd2c 0x7f3a\n";
        assert_eq!(parse(text), blocked(230, Some([1, 8]), 0x7ffd2c, 0x7f3a));
        assert_eq!(parse("-1 0x7ffd2c 0x401000\n"), blocked(-1, None, 0x7ffd2c, 0x40_1000));
        assert_eq!(parse("running\n"), State::Running);
        for text in ["-1 0x0 0x0\n", "", "0", "x 0x1 0x2", "7 1 2"] {
            assert_eq!(parse(text), State::Gone, "{text}");
        }
    }
}
