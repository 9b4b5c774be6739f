//! The program's end, and signals that come to uu meanwhile.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The program as a process that is waited for once.
pub struct Child {
    pid: u32,
    pidfd: Option<OwnedFd>,
    ended: Option<Ended>,
}

/// How it ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Raw wait status.
    pub status: i32,
    /// CPU time of it and the children it waited for, in ns.
    pub cpu: u64,
}

/// A descriptor that becomes readable when a process ends; `Err(ESRCH)` when it is gone.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; the descriptor it gives is close-on-exec and ours alone.
    match unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) } {
        fd if fd < 0 => Err(io::Error::last_os_error()),
        // SAFETY: as above.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
    }
}

impl Child {
    /// Takes over a child of this process that nobody else waits for.
    pub fn new(pid: u32) -> Child {
        Child { pid, pidfd: pidfd(pid).ok(), ended: None }
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// A descriptor to poll for its end, where the kernel has such.
    pub fn poll_fd(&self) -> Option<i32> {
        self.pidfd.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<Ended> {
        if self.ended.is_none() {
            let mut status = 0;
            // SAFETY: all-zero is a valid rusage.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            // SAFETY: both pointers are to live locals.
            let got = unsafe { libc::wait4(self.pid as libc::pid_t, &mut status, libc::WNOHANG, &mut usage) };
            if got == self.pid as libc::pid_t {
                self.ended = Some(Ended { status, cpu: nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime) });
            } else if got < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) {
                // Someone made the kernel reap our children: its end is known, its status is not.
                self.ended = Some(Ended { status: 0, cpu: 0 });
            }
        }
        self.ended
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        if self.ended.is_none() {
            // SAFETY: a plain system call; the pid is ours until it was waited for.
            unsafe { libc::kill(self.pid as libc::pid_t, signal) };
        }
    }
}

fn nanoseconds(time: libc::timeval) -> u64 {
    (time.tv_sec as u64) * 1_000_000_000 + (time.tv_usec as u64) * 1000
}

static TERM: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(signal: libc::c_int) {
    if signal == libc::SIGTERM {
        TERM.store(true, Ordering::Relaxed);
    }
}

/// Sets how uu takes signals while it records: SIGTERM is noted, to be forwarded; SIGINT, SIGQUIT and SIGHUP reach the
/// program by themselves and only must not end uu before it; SIGXFSZ (a file as large as `ulimit -f` allows) becomes a
/// failed write. Handlers, unlike ignored signals, do not pass to the program; what was ignored already stays so, for
/// both.
pub fn catch_signals() -> io::Result<()> {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGXFSZ] {
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

/// Whether SIGTERM came since the last call.
pub fn take_term() -> bool {
    TERM.swap(false, Ordering::Relaxed)
}

/// Waits until one of the descriptors is readable, a signal comes or the time is over. Says which are readable.
pub fn wait(fds: &[i32], milliseconds: i32) -> Vec<bool> {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the array is as long as said.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, milliseconds) };
    polled.iter().map(|p| p.revents != 0).collect()
}
