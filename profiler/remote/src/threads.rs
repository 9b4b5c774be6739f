//! Stops the threads of a process, reads their registers, and lets them go again
//! ([ptrace](https://man7.org/linux/man-pages/man2/ptrace.2.html)).
//!
//! Threads are seized, which stops nothing, then all interrupted, then waited for, so that their waits overlap. A
//! thread that the kernel cannot stop (one that waits for its vfork child) is given up after a while. One that is ready
//! to run stops when it gets a CPU, which takes longer on a busy machine. If this process dies, the kernel lets all
//! threads go.

use crate::clocks::is_running;
use crate::doing::repaired;
use crate::registers::{self, set_result, Registers};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::process;
use uunwind_recorder::machine::Stat;
use uunwind_ring::TICK_COOKIE;

/// Longest wait for threads to stop.
const PATIENCE: Duration = Duration::from_millis(500);
/// The same for those that wait for a CPU: the kernel stops them as soon as they get one.
const READY: Duration = Duration::from_secs(5);
/// Longest pause between two questions whether a thread has stopped; whether it has ended is asked this often.
const LONG: Duration = Duration::from_millis(1);
/// Longest wait for the end of a thread that was killed while it stood: it needs a CPU for that.
const KILLED: Duration = READY;
/// Time between two looks for the ends of traced threads.
const ENDS: Duration = Duration::from_millis(10);
/// At most this number of times new threads are looked for.
const ROUNDS: usize = 16;
/// At most this number of threads is stopped.
pub const THREADS: usize = 64 * 1024;

/// A thread of the process.
enum Seized {
    /// It was asked to stop.
    Asked,
    /// It stands still. The signal that it gets when it is let go, or 0; whether the process was stopped before; and
    /// its registers.
    Stopped { signal: i32, before: bool, registers: Option<Box<Registers>> },
}

/// The threads of a process, those that stand still among them. Dropping it lets them go.
pub struct Stopped {
    /// The process.
    pid: u32,
    threads: BTreeMap<u32, Seized>,
    /// When the first of them was asked to stop.
    pub since: Instant,
    /// Their ids, while a thread of this process takes notice of their ends.
    watched: Option<Arc<Mutex<Vec<u32>>>>,
}

/// `PTRACE_EVENT_STOP`, which stands above the signal in a wait's status.
const EVENT_STOP: i32 = 128;

/// Calls ptrace.
///
/// # Safety
/// `data` must be what the request demands.
unsafe fn ptrace(request: libc::c_uint, tid: u32, address: usize, data: usize) -> Result<(), Errno> {
    // SAFETY: passed on.
    let result = unsafe { libc::ptrace(request, tid as libc::pid_t, address, data) };
    if result < 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(())
}

impl Stopped {
    /// Stops every thread of a process. Threads that end meanwhile are left out. Error: the first thread cannot be
    /// traced.
    pub fn all_of(pid: u32) -> io::Result<Stopped> {
        let watched = Some(watch_for_ends()?);
        let mut stopped = Stopped { pid, threads: BTreeMap::new(), since: Instant::now(), watched };
        for round in 0..ROUNDS {
            let mut new = Vec::new();
            for tid in tids(pid)? {
                let is_first = stopped.threads.is_empty();
                if stopped.threads.len() >= THREADS || stopped.threads.contains_key(&tid) {
                    continue;
                }
                // SAFETY: no pointer is passed.
                match unsafe { ptrace(libc::PTRACE_SEIZE, tid, 0, 0) } {
                    Ok(()) => new.push(tid),
                    // It has ended, or is ending.
                    Err(Errno::SRCH) => {}
                    // One that has ended is refused as one is that may not be traced.
                    Err(error) if round == 0 && is_first && !is_zombie(tid) => return Err(error.into()),
                    Err(_) => {}
                }
                stopped.threads.extend(new.last().map(|tid| (*tid, Seized::Asked)));
                if let Some(watched) = &stopped.watched {
                    watched.lock().unwrap_or_else(PoisonError::into_inner).extend(new.last());
                }
            }
            if new.is_empty() {
                break;
            }
            if round == 0 {
                stopped.since = Instant::now();
            }
            for tid in &new {
                // SAFETY: no pointer is passed. A thread that has ended is noticed by the wait.
                let _ = unsafe { ptrace(libc::PTRACE_INTERRUPT, *tid, 0, 0) };
            }
            stopped.wait(&new, PATIENCE, |tid| is_running(pid, tid));
        }
        Ok(stopped)
    }

    /// Stops one thread of a process. If it does not stand still in time, it is let go when the calling thread ends.
    pub fn one(pid: u32, tid: u32, patience: Duration) -> io::Result<Stopped> {
        // SAFETY: no pointer is passed, here and below. A thread that has ended is noticed by the wait.
        unsafe { ptrace(libc::PTRACE_SEIZE, tid, 0, 0) }?;
        let mut stopped =
            Stopped { pid, threads: BTreeMap::from([(tid, Seized::Asked)]), since: Instant::now(), watched: None };
        // SAFETY: as above.
        let _ = unsafe { ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0) };
        stopped.wait(&[tid], patience, |_| false);
        Ok(stopped)
    }

    /// Waits until these threads stand still, but not for ever. `is_ready`: whether a thread is worth a longer wait.
    fn wait(&mut self, tids: &[u32], patience: Duration, is_ready: impl Fn(u32) -> bool) {
        let begun = Instant::now();
        let mut pause = Duration::from_micros(20);
        let mut tids = tids.to_vec();
        tids.reverse();
        while let Some(tid) = tids.pop() {
            loop {
                // Before it is asked for: this thread may have waited for a CPU, too.
                let waited = begun.elapsed();
                match wait_once(tid) {
                    // It ended before it could stop. If that is still not reported, it is a main thread, whose end is
                    // not as long as others live.
                    Waited::Nothing if pause >= LONG && is_zombie(tid) && matches!(wait_once(tid), Waited::Nothing) => {
                        // It stays traced, which hides its end from its parent, until the calling thread ends. Who
                        // has asked for this one alone sees by its state that it must be let go so.
                        if self.watched.is_some() {
                            self.threads.remove(&tid);
                        }
                        break;
                    }
                    Waited::Nothing if waited < patience || waited < READY && is_ready(tid) => {
                        uunwind_clock::sleep(pause);
                        pause = (pause * 2).min(LONG);
                    }
                    // Still asked: it is let go as soon as it stops, when this thread ends.
                    Waited::Nothing => break,
                    Waited::Stopped { event, signal } => {
                        // Without the event, it was about to receive a signal, which it gets when it is let go.
                        let is_group_stop = event == EVENT_STOP && signal != libc::SIGTRAP;
                        let signal = signal_due(tid, event, signal);
                        // At once: if uu is killed before it lets go, the call is repeated all the same.
                        let registers = repair(tid).map(Box::new);
                        self.threads.insert(tid, Seized::Stopped { signal, before: is_group_stop, registers });
                        break;
                    }
                    Waited::Ended => {
                        self.threads.remove(&tid);
                        tids.extend(self.execed(tid));
                        break;
                    }
                }
            }
        }
    }

    /// A thread that calls exec gets the id of the main thread, and stays traced (ptrace(2), "execve(2) under ptrace"):
    /// to be let go, it must stop, too. The id of the process, if that has become of a thread.
    fn execed(&mut self, tid: u32) -> Option<u32> {
        let pid = self.pid;
        if tid == pid || self.threads.contains_key(&pid) {
            return None;
        }
        // SAFETY: no pointer is passed. It fails if this thread does not trace it.
        unsafe { ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0) }.ok()?;
        self.threads.insert(pid, Seized::Asked);
        Some(pid)
    }

    /// The ids of all threads, and of each that stands still, whether it did so before.
    pub fn threads(&self) -> impl Iterator<Item = (u32, Option<bool>)> + '_ {
        self.threads.iter().map(|(tid, seized)| match seized {
            Seized::Asked => (*tid, None),
            Seized::Stopped { before, .. } => (*tid, Some(*before)),
        })
    }

    /// The registers of a thread that stands still, as its system call is to be repeated.
    pub fn registers(&self, tid: u32) -> Option<Registers> {
        match self.threads.get(&tid)? {
            Seized::Stopped { registers, .. } => registers.as_deref().copied(),
            Seized::Asked => None,
        }
    }

    /// Writes a word of the process's memory, whatever the rights of its page are
    /// ([PTRACE_POKEDATA](https://man7.org/linux/man-pages/man2/ptrace.2.html)). A private page that is shared with a
    /// file is copied before. By the thread that has stopped them.
    pub fn write_word(&self, address: u64, value: u64) -> io::Result<()> {
        let standing = self.threads.iter().find(|(_, seized)| matches!(seized, Seized::Stopped { .. }));
        let (tid, _) = standing.ok_or(Errno::SRCH)?;
        // SAFETY: the value is passed itself.
        Ok(unsafe { ptrace(libc::PTRACE_POKEDATA, *tid, address as usize, value as usize) }?)
    }

    /// Lets all threads go. Returns how long they stood still.
    pub fn let_go(mut self) -> Duration {
        self.release();
        self.since.elapsed()
    }

    fn release(&mut self) {
        for (tid, seized) in std::mem::take(&mut self.threads) {
            let Seized::Stopped { signal, .. } = seized else { continue };
            // SAFETY: the signal is passed itself.
            if unsafe { ptrace(libc::PTRACE_DETACH, tid, 0, signal as usize) }.is_err() {
                end_of(tid);
            }
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Threads that were asked and never stopped are let go by the kernel when this thread ends.
        self.release();
    }
}

/// Takes notice of the end of a thread that was killed while it stood still, as exec and exit of another thread do. An
/// exec goes on only when the tracers of all other threads have; and until it is over, the kernel holds up whoever
/// begins to trace a thread of the process (`cred_guard_mutex` in
/// <https://github.com/torvalds/linux/blob/v6.1/kernel/ptrace.c>): both would wait for ever.
pub fn end_of(tid: u32) {
    let begun = Instant::now();
    loop {
        match wait_once(tid) {
            Waited::Nothing if begun.elapsed() < KILLED => uunwind_clock::sleep(Duration::from_micros(100)),
            // Another thread has got its id by exec, and was asked to stop, too.
            Waited::Stopped { event, signal } => {
                let signal = signal_due(tid, event, signal);
                // SAFETY: the signal is passed itself.
                let _ = unsafe { ptrace(libc::PTRACE_DETACH, tid, 0, signal as usize) };
                return;
            }
            Waited::Nothing | Waited::Ended => return,
        }
    }
}

/// The signal that a stopped thread gets when it is let go, by what its stop was reported as; 0: none.
///
/// A tick is not passed on: its sampler may leave the process before the thread runs again, and the signal would end
/// it. That sampler has one sample less.
fn signal_due(tid: u32, event: i32, signal: i32) -> i32 {
    if event == EVENT_STOP || is_tick(tid) {
        0
    } else {
        signal
    }
}

/// Whether the signal that a traced thread is about to receive comes from a sampler's timer: this uu's or another's.
pub fn is_tick(tid: u32) -> bool {
    /// `si_code` of a signal from a POSIX timer (sigaction(2)).
    const SI_TIMER: i32 = -2;
    // SAFETY: integers only.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the request fills the structure, which lives during the call.
    let known = unsafe { ptrace(libc::PTRACE_GETSIGINFO, tid, 0, (&raw mut info) as usize) };
    // SAFETY: a timer's signal has a value.
    known.is_ok() && info.si_code == SI_TIMER && unsafe { info.si_value() }.sival_ptr as u64 >> 32 == TICK_COOKIE
}

/// Begins to take notice of the ends of threads that the calling thread traces, on a thread of its own, as long as the
/// list lives: while the calling thread is held up as [`end_of`] says, it cannot do so itself.
fn watch_for_ends() -> io::Result<Arc<Mutex<Vec<u32>>>> {
    let list = Arc::new(Mutex::new(Vec::new()));
    let watched = Arc::downgrade(&list);
    std::thread::Builder::new().name("uu-ends".to_owned()).spawn(move || {
        while let Some(list) = watched.upgrade() {
            let tids: Vec<u32> = list.lock().unwrap_or_else(PoisonError::into_inner).clone();
            drop(list);
            tids.into_iter().filter(|tid| matches!(ended(*tid), Some(true))).for_each(forget_ended);
            uunwind_clock::sleep(ENDS);
        }
    })?;
    Ok(list)
}

/// Whether a thread has ended, and is not forgotten yet.
fn is_zombie(tid: u32) -> bool {
    Stat::of(tid).is_some_and(|stat| matches!(stat.field(3), Some("Z" | "X")))
}

/// Has the system call repeated that a thread's stop has interrupted. Its registers, if they can be read.
fn repair(tid: u32) -> Option<Registers> {
    let mut registers = registers::read(tid)?;
    if let Some(result) = repaired(&registers) {
        set_result(tid, &mut registers, result);
    }
    Some(registers)
}

/// What a wait for a traced thread has found.
enum Waited {
    Nothing,
    Stopped { event: i32, signal: i32 },
    Ended,
}

/// Asks once for a traced thread ([waitid](https://man7.org/linux/man-pages/man2/waitid.2.html)). The end of a child of
/// this process is left to whoever has started it, and wants its status.
fn wait_once(tid: u32) -> Waited {
    // SAFETY: a successful call has written these fields; the pid is 0 if there was nothing to report.
    let fields = |info: libc::siginfo_t| unsafe { (info.si_pid(), info.si_status(), info.si_code) };
    // A traced thread's stop is reported whatever is asked for, so that only the code distinguishes it from an end. One
    // that has ended counts as no child here: only the next question finds it, and its end is to be taken notice of.
    if let Some((pid, status, libc::CLD_TRAPPED | libc::CLD_STOPPED)) = wait_for(tid, libc::WSTOPPED).map(fields) {
        if pid != 0 {
            return Waited::Stopped { event: status >> 8, signal: status & 0xff };
        }
    }
    match ended(tid) {
        Some(true) => {
            forget_ended(tid);
            Waited::Ended
        }
        // If it has stopped since, it is asked again.
        Some(false) => Waited::Nothing,
        None => Waited::Ended,
    }
}

/// Whether a traced thread has ended, which stays to be reported. `None`: it is not traced.
fn ended(tid: u32) -> Option<bool> {
    let info = wait_for(tid, libc::WEXITED | libc::WNOWAIT)?;
    Some(matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED))
}

/// Takes notice of the end of a traced thread, if it is over and its status is not for others.
fn forget_ended(tid: u32) {
    if is_first_of_child(tid) {
        return;
    }
    wait_for(tid, libc::WEXITED);
}

/// Asks once for events of a traced thread; without any, the fields are 0.
fn wait_for(tid: u32, events: i32) -> Option<libc::siginfo_t> {
    // SAFETY: all-zero is a valid siginfo.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live local.
    let result = unsafe { libc::waitid(libc::P_PID, tid, &mut info, events | libc::WNOHANG | libc::__WALL) };
    (result == 0).then_some(info)
}

/// Whether a thread is the first one of a child of this process.
fn is_first_of_child(tid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok());
    (field("Tgid:"), field("PPid:")) == (Some(tid), Some(std::process::id()))
}

/// Lets the calling thread run before all ordinary ones, if it may: threads that have been let go would take its CPU
/// while others still stand. It ends with the thread, or with [`be_ordinary`].
pub fn prefer_this_thread() {
    schedule(libc::SCHED_FIFO, 1);
}

/// Lets the calling thread run as ordinary ones do.
pub fn be_ordinary() {
    schedule(libc::SCHED_OTHER, 0);
}

fn schedule(policy: i32, priority: i32) {
    let priority = libc::sched_param { sched_priority: priority };
    // SAFETY: plain system call; the structure lives during the call. Without the right, all stays as it was. (Taking
    // the flag back would need one.)
    unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const priority) };
}

/// The ids of the process's threads, the main thread first, unless that has ended and others live. Error: there is no
/// such process.
pub fn tids(pid: u32) -> io::Result<Vec<u32>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    let mut tids: Vec<u32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    tids.sort_by_key(|tid| (*tid != pid, *tid));
    if tids.len() > 1 && process::stand_in(pid).is_some() {
        tids.retain(|tid| *tid != pid);
    }
    Ok(tids)
}

/// The children of a process, without the calling process, which may be one of them and cannot look at itself
/// ([proc_tid_children(5)](https://man7.org/linux/man-pages/man5/proc_tid_children.5.html)).
pub fn children(pid: u32) -> Vec<u32> {
    let own = std::process::id();
    let threads = tids(pid).unwrap_or_default().into_iter();
    let lists = threads.filter_map(|tid| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
        .filter(|child| *child != own)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use uunwind_recorder::child::Child;

    /// A stop is found as a stop, at whatever moment of it the thread is asked for.
    #[test]
    fn a_stop_is_never_taken_for_an_end() {
        let mut command = Command::new("sleep");
        command.arg("3600").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut sleep = command.spawn().expect("sleep");
        for round in 0..20_000 {
            let stopped = Stopped::one(sleep.id(), sleep.id(), PATIENCE).expect("it runs");
            let state = stopped.threads.get(&sleep.id());
            assert!(matches!(state, Some(Seized::Stopped { .. })), "round {round}");
            stopped.let_go();
        }
        sleep.kill().expect("a signal");
        sleep.wait().expect("its end");
    }

    /// A thread that waits for a CPU is waited for beyond the time after which others are given up.
    #[test]
    fn a_thread_that_is_ready_is_waited_for() {
        let mut sleep = Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn().expect("sleep");
        let tid = sleep.id();
        // SAFETY: no pointer is passed, here and below.
        unsafe { ptrace(libc::PTRACE_SEIZE, tid, 0, 0) }.expect("it runs");
        let threads = BTreeMap::from([(tid, Seized::Asked)]);
        let mut stopped = Stopped { pid: tid, threads, since: Instant::now(), watched: None };
        stopped.wait(&[tid], Duration::ZERO, |_| false);
        assert!(matches!(stopped.threads.get(&tid), Some(Seized::Asked)), "nobody has stopped it");
        let asked = std::cell::Cell::new(0);
        stopped.wait(&[tid], Duration::ZERO, |_| {
            asked.set(asked.get() + 1);
            if asked.get() == 3 {
                // SAFETY: as above.
                unsafe { ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0) }.expect("it is traced");
            }
            true
        });
        assert!(matches!(stopped.threads.get(&tid), Some(Seized::Stopped { .. })), "asked {} times", asked.get());
        stopped.let_go();
        sleep.kill().expect("a signal");
        sleep.wait().expect("its end");
    }

    /// A thread that was preferred runs as others do afterwards.
    #[test]
    fn a_preferred_thread_becomes_an_ordinary_one() {
        let policies = std::thread::spawn(|| {
            // SAFETY: plain system call.
            let policy = || unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
            prefer_this_thread();
            let preferred = policy();
            be_ordinary();
            (preferred, policy())
        });
        let (preferred, after) = policies.join().expect("it ends");
        assert!([libc::SCHED_FIFO, libc::SCHED_OTHER].contains(&preferred), "without the right: as it was");
        assert_eq!(after, libc::SCHED_OTHER);
    }

    /// A stop by another thread of this process is not the child's end, and its end is left to whoever waits for it.
    #[test]
    #[allow(clippy::zombie_processes, reason = "`Child` waits for it")]
    fn a_child_that_is_traced_here_keeps_its_status() {
        let sleep = Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn().expect("sleep");
        let mut child = Child::new(sleep.id());
        for _ in 0..20 {
            let stopped = Stopped::one(sleep.id(), sleep.id(), PATIENCE).expect("a child");
            assert!(child.ended().is_none(), "it is stopped");
            stopped.let_go();
        }
        let mut stopped = Stopped::one(sleep.id(), sleep.id(), PATIENCE).expect("a child");
        child.terminate();
        // SAFETY: plain system call; the child is not waited for yet.
        unsafe { libc::kill(sleep.id() as libc::pid_t, libc::SIGKILL) };
        while !matches!(wait_once(sleep.id()), Waited::Ended) {}
        stopped.threads.clear();
        assert_eq!(child.ended().map(|ended| ended.status), Some(libc::SIGKILL));
    }
}
