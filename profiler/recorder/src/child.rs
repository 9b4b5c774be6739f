//! The program's end, and signals that uu receives before it.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{kill_process, pidfd_open, Pid, PidfdFlags, Signal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The program as a child process, which is waited for once.
pub struct Child {
    pid: u32,
    pidfd: Option<OwnedFd>,
    ended: Option<Ended>,
}

/// How the program ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Raw status of [wait4(2)](https://man7.org/linux/man-pages/man2/wait4.2.html).
    pub status: i32,
    /// CPU time of the program and of the children that it waited for, in ns.
    pub cpu: u64,
}

/// A descriptor that becomes readable when a process ends; `Err(ESRCH)` when it is gone.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    Ok(pidfd_open(process(pid)?, PidfdFlags::empty())?)
}

/// A process's number, as system calls take it. 0 is none: they would mean the caller by it.
pub fn process(pid: u32) -> io::Result<Pid> {
    Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput.into())
}

impl Child {
    /// Takes over a child of this process, for which no other code may wait.
    pub fn new(pid: u32) -> Child {
        Child { pid, pidfd: pidfd(pid).ok(), ended: None }
    }

    /// The program's pid.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// A descriptor to poll for its end, where the kernel has pidfds (Linux 5.3).
    pub fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// How the program ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<Ended> {
        if self.ended.is_none() && may_be_waited_for(self.pid) {
            let mut status = 0;
            // SAFETY: all-zero is a valid rusage.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            // SAFETY: both pointers are to live locals.
            let got = unsafe { libc::wait4(self.pid as libc::pid_t, &mut status, libc::WNOHANG, &mut usage) };
            if got == self.pid as libc::pid_t {
                self.ended = Some(Ended { status, cpu: nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime) });
            } else if got < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) {
                // SIGCHLD was ignored when uu began, so the kernel has reaped the child: it has ended, but its status
                // is lost.
                self.ended = Some(Ended { status: 0, cpu: 0 });
            }
        }
        self.ended
    }

    /// Sends the program SIGTERM, if it still runs: its pid is in use until it was waited for.
    pub fn terminate(&self) {
        if let (None, Ok(pid)) = (self.ended, process(self.pid)) {
            // It may have ended in the meantime.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// Whether a child has ended, or is no child. One that another thread of this process traces is reported to all of them
/// when it stops; that is left to the one that waits for it.
pub fn may_be_waited_for(child: u32) -> bool {
    // SAFETY: all-zero is a valid siginfo.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the pointer is to a live local.
    if unsafe { libc::waitid(libc::P_PID, child, &mut info, flags) } != 0 {
        return true;
    }
    // SAFETY: the call has written this field, 0 if there is nothing to report.
    let pid = unsafe { info.si_pid() };
    pid != 0 && matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED)
}

fn nanoseconds(time: libc::timeval) -> u64 {
    (time.tv_sec as u64) * 1_000_000_000 + (time.tv_usec as u64) * 1000
}

static SNAPSHOT: AtomicBool = AtomicBool::new(false);
static TERM: AtomicBool = AtomicBool::new(false);
/// The last received signal of [`ENDING`]; 0: none.
static INTERRUPT: AtomicI32 = AtomicI32::new(0);
/// Many recordings share this process, and signals concern it as a whole.
static SHARED: AtomicBool = AtomicBool::new(false);
/// A signal asked the shared process to end, or to read its settings again.
static END: AtomicBool = AtomicBool::new(false);
static HANGUP: AtomicBool = AtomicBool::new(false);
/// Signals by which people end a program.
const ENDING: [i32; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP];

extern "C" fn on_signal(signal: libc::c_int) {
    if SHARED.load(Ordering::Relaxed) {
        let flag = if signal == libc::SIGHUP { &HANGUP } else { &END };
        flag.fetch_or(signal == libc::SIGHUP || ENDING.contains(&signal), Ordering::Relaxed);
        return;
    }
    if ENDING.contains(&signal) {
        INTERRUPT.store(signal, Ordering::Relaxed);
    }
    if signal == libc::SIGUSR2 {
        SNAPSHOT.store(true, Ordering::Relaxed);
    }
    if signal == libc::SIGTERM {
        TERM.store(true, Ordering::Relaxed);
    }
    crate::rest::wake();
}

/// Installs uu's signal handlers for the time of a recording. SIGTERM is noted, to be forwarded. SIGINT, SIGQUIT and
/// SIGHUP reach the program by themselves, and must not end uu before it. SIGUSR2 asks for a snapshot. SIGXFSZ (a file
/// reached the limit of `ulimit -f`) becomes a failed write. Unlike ignored signals, handlers are not inherited by the
/// program; signals that were ignored already stay ignored in both.
pub fn catch_signals() -> io::Result<()> {
    for signal in ENDING.into_iter().chain([libc::SIGXFSZ, libc::SIGUSR2]) {
        // SAFETY: all-zero is a valid sigaction, and the handler does nothing but store to an atomic.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut old) != 0 {
                return Err(io::Error::last_os_error());
            }
            if old.sa_sigaction == libc::SIG_IGN && signal != libc::SIGTERM {
                continue;
            }
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
            new.sa_flags = libc::SA_RESTART;
            if libc::sigaction(signal, &new, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// As [`catch_signals`], for a process of many recordings: from here on, no signal ends one of them, and none makes a
/// snapshot.
pub fn catch_signals_for_many() -> io::Result<()> {
    SHARED.store(true, Ordering::Relaxed);
    catch_signals()
}

/// Whether a signal has asked a process of many recordings to end.
pub fn asked_to_end() -> bool {
    END.load(Ordering::Relaxed)
}

/// Whether SIGHUP was received by a process of many recordings since the last call.
pub fn take_hangup() -> bool {
    HANGUP.swap(false, Ordering::Relaxed)
}

/// Whether SIGUSR2 was received since the last call with `forget`.
pub fn snapshot_asked(forget: bool) -> bool {
    if forget {
        SNAPSHOT.swap(false, Ordering::Relaxed)
    } else {
        SNAPSHOT.load(Ordering::Relaxed)
    }
}

/// Whether SIGTERM was received since the last call.
pub fn take_term() -> bool {
    TERM.swap(false, Ordering::Relaxed)
}

/// The signal that asks uu to end, if one was received since the last [`forget_interrupt`]. All code that waits for
/// anything but the program checks this.
pub fn interrupted() -> Option<i32> {
    Some(INTERRUPT.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}

/// Forgets the signals received so far: they were meant for the program.
pub fn forget_interrupt() {
    INTERRUPT.store(0, Ordering::Relaxed);
}

/// Lets signals end uu again, as before [`catch_signals`]. Called when the program has ended.
pub fn let_signals_end() {
    if SHARED.load(Ordering::Relaxed) {
        return;
    }
    for signal in ENDING {
        // SAFETY: plain calls; all-zero is a valid sigaction. Signals that were ignored before stay ignored.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut old) == 0 && old.sa_sigaction != libc::SIG_IGN {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// Waits until one of the descriptors is ready for its events
/// ([poll(2)](https://man7.org/linux/man-pages/man2/poll.2.html)), a signal arrives or the time is over.
pub fn wait_for(fds: &mut [PollFd<'_>], milliseconds: u32) {
    let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
    let timeout = Timespec { tv_sec: seconds.into(), tv_nsec: (rest * 1_000_000).into() };
    // After a failure no descriptor is ready, and the caller looks again.
    let _ = poll(fds, Some(&timeout));
}

/// Waits until one of the descriptors is readable, a signal arrives or the time is over. Returns for each whether it is
/// readable.
pub fn wait<'fd>(fds: impl IntoIterator<Item = BorrowedFd<'fd>>, milliseconds: u32) -> Vec<bool> {
    let mut polled: Vec<_> = fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    wait_for(&mut polled, milliseconds);
    polled.iter().map(|polled| !polled.revents().is_empty()).collect()
}
