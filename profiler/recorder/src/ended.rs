//! Which processes a signal ended.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use uunwind_recording::{signal_name, ENDED_BY};

/// At most this number of processes are named.
const NAMED: usize = 5;

/// The processes that a signal ended, as far as that is known.
#[derive(Debug, Default)]
pub struct Ended {
    /// Pid, executable, signal.
    processes: Vec<(u32, String, i32)>,
    /// Pids of those whose stack at their end is in the recording, which the summary shows.
    shown: HashSet<u32>,
}

impl Ended {
    /// The stack at the end of a process is in the recording.
    pub fn is_shown(&mut self, pid: u32) {
        self.shown.insert(pid);
    }

    /// A process has ended, with this raw wait status.
    pub fn add(&mut self, pid: u32, exe: &[u8], status: i32) {
        let is_new = self.processes.iter().all(|(other, ..)| *other != pid);
        if libc::WIFSIGNALED(status) && is_new {
            let exe = String::from_utf8_lossy(exe);
            let name =
                Path::new(&*exe).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            self.processes.push((pid, name, libc::WTERMSIG(status)));
        }
    }

    /// A line for people about those whose stack is not shown.
    pub fn note(&self) -> Option<String> {
        let silent: Vec<_> = self.processes.iter().filter(|(pid, ..)| !self.shown.contains(pid)).collect();
        let one = |(pid, name, signal): &&(u32, String, i32)| {
            let of = if name.is_empty() { format!("process {pid}") } else { format!("{name} (pid {pid})") };
            format!("{of} by {}", signal_name(*signal))
        };
        let list: Vec<String> = silent.iter().take(NAMED).map(one).collect();
        let more = silent.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        (!list.is_empty()).then(|| format!("{ENDED_BY}{}{more}", list.join(", ")))
    }
}

/// The raw wait status of a process that has ended, which need not be a child of this one. `None`: it runs, or its
/// parent has waited for it and the kernel says no more. `descriptor`: its pidfd.
pub fn wait_status(pid: u32, descriptor: Option<BorrowedFd<'_>>) -> Option<i32> {
    descriptor.and_then(of_reaped).or_else(|| of_zombie(&std::fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// Of a process that its parent has waited for (Linux 6.15,
/// [PIDFD_GET_INFO](https://man7.org/linux/man-pages/man2/PIDFD_GET_INFO.2const.html)).
fn of_reaped(descriptor: BorrowedFd<'_>) -> Option<i32> {
    const PIDFD_GET_INFO: libc::Ioctl = 0xc040_ff0b_u32 as libc::Ioctl;
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    /// `struct pidfd_info` of its first version.
    #[repr(C)]
    #[derive(Default)]
    struct PidfdInfo {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const _: () = assert!(size_of::<PidfdInfo>() == 64);
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the kernel writes at most the 64 bytes that the request's number has as its size.
    let failed = unsafe { libc::ioctl(descriptor.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) } != 0;
    (!failed && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}

/// Of a process that its parent has not waited for yet: field `exit_code` of
/// [proc_pid_stat(5)](https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html).
fn of_zombie(stat: &[u8]) -> Option<i32> {
    /// Its number, without the two fields up to the name, which may contain anything.
    const EXIT_CODE: usize = 52 - 3;
    let name = stat.iter().rposition(|byte| *byte == b')')?;
    let fields: Vec<&str> = std::str::from_utf8(stat.get(name + 1..)?).ok()?.split_whitespace().collect();
    matches!(fields.first(), Some(&"Z" | &"X")).then(|| fields.get(EXIT_CODE)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Waits until the child of a test has ended, and leaves it to be waited for.
    fn until_ended(pid: u32) {
        // SAFETY: all-zero is a valid siginfo.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: our own child, and a live local.
        assert_eq!(unsafe { libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED | libc::WNOWAIT) }, 0);
    }

    #[test]
    fn the_status_is_that_which_the_parent_gets() {
        for (script, signal) in [("kill -KILL $$", Some(libc::SIGKILL)), ("exit 3", None)] {
            let mut child = Command::new("sh").args(["-c", script]).spawn().expect("sh");
            let descriptor = crate::child::pidfd(child.id()).expect("a pidfd");
            until_ended(child.id());
            let status = wait_status(child.id(), Some(descriptor.as_fd())).expect("a zombie");
            let waited = child.wait().expect("its end");
            assert_eq!((status, waited.signal()), (waited.into_raw(), signal), "{script}");
            // After the wait, newer kernels still say it, and older ones nothing.
            let later = wait_status(child.id(), Some(descriptor.as_fd()));
            assert!(later.is_none_or(|later| later == status), "{later:?}");
        }
        assert_eq!(wait_status(std::process::id(), None), None, "it runs");
    }

    #[test]
    fn a_name_with_anything_in_it() {
        let fields: Vec<String> = (4..=52).map(|field| if field == 52 { 139 } else { field }.to_string()).collect();
        let stat = format!("12 (a) Z ) (b) Z {}\n", fields.join(" "));
        assert_eq!(of_zombie(stat.as_bytes()), Some(139));
        for bad in ["", "12 (a", "12 (a) R 1 2", "12 (a) Z 1 2", "12 (a) Z"] {
            assert_eq!(of_zombie(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_note_names_whose_stack_is_not_shown() {
        let mut ended = Ended::default();
        ended.add(1, b"/bin/ends", 3 << 8);
        assert_eq!(ended.note(), None);
        ended.add(2, b"/bin/one", libc::SIGKILL);
        ended.add(2, b"/bin/one", libc::SIGKILL);
        ended.add(3, b"", libc::SIGSEGV | 0x80);
        ended.add(4, b"/bin/shown", libc::SIGABRT);
        ended.is_shown(4);
        assert_eq!(ended.note().expect("a note"), "ended by a signal: one (pid 2) by SIGKILL, process 3 by SIGSEGV");
        for pid in 10..20 {
            ended.add(pid, b"/bin/x", libc::SIGTERM);
        }
        assert!(ended.note().expect("a note").ends_with(" and 7 more"));
    }
}
