//! Beside a program that does nothing, the recorder rests: it sleeps longer between its passes, until a process rings
//! the session's bell, or uses CPU time.
//!
//! For the latter it has a timer on the CPU clock of each recorded process, whose signal goes to the recorder. The
//! kernel looks at such timers, as at those of the samples, when its tick meets a thread of the process: so whoever is
//! sampled wakes the recorder, without a system call in the handler.

use crate::listener::Waker;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};

/// Passes that find nothing before the recorder rests.
const QUIET: u32 = 25;

/// The eventfd that wakes the recorder; -1: none.
static WAKER: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(_: libc::c_int) {
    wake();
}

/// Wakes the recorder's thread, if it may rest. Async-signal-safe.
pub fn wake() {
    let (fd, one) = (WAKER.load(Ordering::Relaxed), 1u64);
    if fd < 0 {
        return;
    }
    // SAFETY: the calling thread's errno, which the interrupted code must find unchanged; write(2) of eight bytes.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(fd, (&raw const one).cast(), 8);
        *libc::__errno_location() = errno;
    }
}

/// Whether the recorder rests, and the timers of the processes.
pub struct Rest {
    waker: Waker,
    timers: HashMap<u32, Timer>,
    quiet: u32,
    is_on: bool,
}

impl Rest {
    /// From now on, ticks of armed timers and the stops and ends of children wake the recorder's thread, too. At most
    /// one such value is used at a time.
    pub fn new(waker: Waker) -> Rest {
        WAKER.store(waker.poll_fd().as_raw_fd(), Ordering::Relaxed);
        catch(signal());
        // A thread that has called PTRACE_TRACEME stands still until it is released.
        catch(libc::SIGCHLD);
        Rest { waker, timers: HashMap::new(), quiet: 0, is_on: false }
    }

    /// Whether the recorder rests.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Notes a pass. `found`: it found something, or may miss something by a rest. `processes`: those that are
    /// recorded. True: from now on the recorder rests, if one more pass finds nothing either, since a process may have
    /// used CPU time before its timer was armed.
    pub fn note(&mut self, found: bool, processes: impl Iterator<Item = u32>) -> bool {
        // Asked first: what has woken it is forgotten by that.
        if self.waker.is_woken() || found {
            (self.quiet, self.is_on) = (0, false);
            return false;
        }
        self.quiet = self.quiet.saturating_add(1);
        if self.is_on || self.quiet < QUIET {
            return false;
        }
        self.is_on = self.arm(processes);
        if !self.is_on {
            self.quiet = 0;
        }
        self.is_on
    }

    /// Arms the timers of these processes, and forgets those of others. False: one has none.
    fn arm(&mut self, processes: impl Iterator<Item = u32>) -> bool {
        let mut before = std::mem::take(&mut self.timers);
        let mut all = true;
        for pid in processes {
            let timer = before.remove(&pid).map_or_else(|| Timer::of(pid), Ok);
            match timer.and_then(|timer| timer.arm().map(|()| timer)) {
                Ok(timer) => drop(self.timers.insert(pid, timer)),
                Err(_) => all = false,
            }
        }
        all
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.timers.clear();
        WAKER.store(-1, Ordering::Relaxed);
    }
}

fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 5
}

/// Installs the handler, unless the ends of children are ignored, and has the calling thread receive the signal: uu may
/// have been started with it blocked. The program has been started before.
fn catch(signal: libc::c_int) {
    // SAFETY: all-zero is a valid sigaction and signal set; the handler is async-signal-safe.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        let ignored = |old: &libc::sigaction| signal == libc::SIGCHLD && old.sa_sigaction == libc::SIG_IGN;
        if libc::sigaction(signal, std::ptr::null(), &mut old) != 0 || ignored(&old) {
            return;
        }
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
        new.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &new, std::ptr::null_mut());
    }
}

/// A timer on a process's CPU clock
/// ([clock_getcpuclockid(3)](https://man7.org/linux/man-pages/man3/clock_getcpuclockid.3.html)).
struct Timer(libc::timer_t);

impl Timer {
    fn of(pid: u32) -> io::Result<Timer> {
        // CPUCLOCK_SCHED (https://github.com/torvalds/linux/blob/v6.1/include/linux/posix-timers.h): the time of the
        // scheduler, in user and kernel mode.
        let clock = (!(pid as libc::clockid_t) << 3) | 2;
        // SAFETY: all-zero is a valid sigevent.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_SIGNAL, signal());
        let mut timer = std::ptr::null_mut();
        // SAFETY: pointers to live locals.
        if unsafe { libc::timer_create(clock, &mut event, &mut timer) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Timer(timer))
    }

    /// Its signal comes once the process uses CPU time. Errors: the process is gone.
    fn arm(&self) -> io::Result<()> {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let when = libc::itimerspec { it_interval: none, it_value: libc::timespec { tv_sec: 0, tv_nsec: 1 } };
        // SAFETY: a live timer, and a pointer to a live local.
        match unsafe { libc::timer_settime(self.0, 0, &when, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: a live timer, which is not used any more.
        unsafe { libc::timer_delete(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn a_rest_ends_when_a_process_uses_cpu_time_and_not_before() {
        // It waits for a line, and then works.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "read line; while :; do :; done"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut shell = command.spawn().expect("a shell");
        let waker = Waker::new().expect("an eventfd");
        let mut rest = Rest::new(waker.clone());
        let (pid, input) = (shell.id(), shell.stdin.take());
        let is_asleep = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") S "));
        while !is_asleep() {
            std::thread::yield_now();
        }
        let pids = || [pid].into_iter();
        while !rest.note(false, pids()) {}
        // It does nothing: a pass of a rest finds nothing, and is none that begins one.
        assert!(!rest.note(false, pids()) && rest.is_on());
        input.expect("piped").write_all(b"\n").expect("it reads");
        // Only a hang reaches no end.
        while child::wait([waker.poll_fd()], 60_000) != [true] {}
        assert!(!rest.note(false, pids()) && !rest.is_on());
        let _ = shell.kill();
        // Its end, too, wakes: it is a child.
        while child::wait([waker.poll_fd()], 60_000) != [true] {}
        let _ = shell.wait();
        assert!(!rest.arm(pids()), "a process that is gone has no timer");
    }
}
