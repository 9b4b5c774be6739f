//! A process into which samplers go. Its id may be given away when it has ended, while one goes in: the other process
//! must not get it.

use super::remote_call::Trouble;
use rustix::io::Errno;
use rustix::process::{pidfd_getfd, pidfd_open, Pid, PidfdFlags, PidfdGetfdFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use uunwind_elf::process::stand_in;
use uunwind_recorder::child::{self, wait};

/// A process, as it was when its id became known.
#[derive(Clone)]
pub struct Process {
    /// Its id, as long as it lives.
    pub pid: u32,
    pidfd: Arc<OwnedFd>,
}

impl Process {
    /// The one that has this id now.
    pub fn of(pid: u32) -> io::Result<Process> {
        Ok(Process { pid, pidfd: Arc::new(child::pidfd(pid)?) })
    }

    /// A descriptor that becomes readable when it ends.
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        wait([self.poll_fd()], 0).iter().any(|ready| *ready)
    }

    /// An error if it has ended. If not, a thread that stands still was found by its id, and is its own: until that
    /// goes on, the id is not given away.
    pub fn must_live(&self) -> Result<(), Trouble> {
        if self.has_ended() {
            Err(Trouble::Failed(Errno::SRCH.into()))
        } else {
            Ok(())
        }
    }

    /// One of its open files, by its number there.
    pub fn file(&self, number: i32) -> io::Result<OwnedFd> {
        let get = |pidfd: &OwnedFd| Ok(pidfd_getfd(pidfd, number, PidfdGetfdFlags::empty())?);
        // A main thread that has ended has no files, and its process's may be asked of another one.
        stand_in(self.pid).map_or_else(|| get(&self.pidfd), |tid| get(&self.of_thread(tid)?))
    }

    /// A descriptor of one of its threads (Linux 6.9).
    fn of_thread(&self, tid: u32) -> io::Result<OwnedFd> {
        /// `PIDFD_THREAD`, which is `O_EXCL`
        /// (<https://github.com/torvalds/linux/blob/v6.9/include/uapi/linux/pidfd.h>).
        const THREAD: u32 = 0o200;
        let id = i32::try_from(tid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let pidfd = pidfd_open(id, PidfdFlags::from_bits_retain(THREAD))?;
        // By now: its id may have been given to another process before.
        if stand_in(self.pid) == Some(tid) && !self.has_ended() {
            Ok(pidfd)
        } else {
            Err(Errno::SRCH.into())
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::image::Sampler;
    use crate::preflight::Place;
    use crate::{Injected, Settings, SIGNAL};
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;
    use uunwind_clock::Instant;
    use uunwind_recorder::session::memory_file;
    use uunwind_remote_sampler::prepared::Image;

    /// A shell's commands, the last of which is to sleep.
    pub fn waits(script: &str) -> Child {
        let child = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().expect("sh");
        let line = || std::fs::read_to_string(format!("/proc/{}/syscall", child.id())).unwrap_or_default();
        let begun = Instant::now();
        while !line().starts_with(&format!("{} ", libc::SYS_clock_nanosleep)) {
            assert!(begun.elapsed() < Duration::from_secs(60), "sleep does not sleep");
            std::thread::yield_now();
        }
        child
    }

    fn end(mut child: Child) {
        child.kill().expect("it runs");
        child.wait().expect("its end");
    }

    /// A process that has got the id of one that has ended, while a sampler goes in, is left as it is.
    #[test]
    fn another_process_with_this_id_gets_no_sampler() {
        let before = waits("exec sleep 3600");
        let process = Process::of(before.id()).expect("it lives");
        end(before);
        let other = waits("exec sleep 3600");
        let pid = other.id();
        assert!(Process::of(pid).is_ok_and(|other| other.must_live().is_ok()), "it lives");
        let process = Process { pid, ..process };
        assert!(process.must_live().is_err(), "it has ended, and only its id is in use");
        let place = Place::of(pid, SIGNAL).expect("an ordinary process");
        let settings = Settings { rate: 99, flags: 0, parent: 1, origin: 0, image: Image::of(pid) };
        let files = [c"a", c"b"].map(|name| memory_file(name).expect("memory"));
        let put = Injected::put_with(&process, Sampler::empty(), place, &settings, &files);
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
        end(other);
        let trouble = put.err().expect("no sampler");
        assert!(matches!(&trouble, Trouble::Failed(error) if error.raw_os_error() == Some(libc::ESRCH)), "{trouble:?}");
        assert!(!maps.contains("memfd"), "{maps}");
    }
}
