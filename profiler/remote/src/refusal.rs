//! Why a process cannot be looked at: what decides, and the remedy.

use crate::doing;
use crate::threads::tids;
use object::elf;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::process;
use uunwind_recorder::machine::Stat;

/// The flag of kernel threads in field 9 of proc_pid_stat(5)
/// (<https://github.com/torvalds/linux/blob/v6.1/include/linux/sched.h>, PF_KTHREAD).
const KERNEL_THREAD: u64 = 0x0020_0000;
/// Longest wait for another uu that traces the process, and how often it is asked for.
const OTHERS: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);
/// Number of CAP_SYS_PTRACE (capabilities(7)).
const SYS_PTRACE: u32 = 19;

/// Why there are no stacks.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// A thread's id was given; the thread, and its process.
    #[error("{0} is a thread of process {1}: give {1}")]
    Thread(u32, u32),
    /// It has ended, and waits for its parent to take notice.
    #[error("process {0} has ended and is a zombie: it has no stacks any more")]
    Zombie(u32),
    /// It is a part of the kernel; its name.
    #[error("process {0} ({1}) is a thread of the kernel: it runs no program")]
    Kernel(u32, String),
    /// Its program is not one for x86-64.
    #[error("process {0} runs a 32-bit program: uu walks 64-bit ones")]
    Narrow(u32),
    /// Another process traces it; its id and name.
    #[error("process {pid} is traced by process {tracer} ({name}): end that one first, or ask it for the stacks")]
    Traced {
        /// The process.
        pid: u32,
        /// Who traces it.
        tracer: u32,
        /// That one's name.
        name: String,
    },
    /// The kernel forbids it.
    #[error("process {pid} may not be traced ({error}): {why}")]
    Forbidden {
        /// The process.
        pid: u32,
        /// What the kernel said.
        error: io::Error,
        /// What decides, and the remedy.
        why: String,
    },
    /// Something else failed.
    #[error("process {0} cannot be read: {1}")]
    Unreadable(u32, io::Error),
}

/// Finds out what stands in the way before anything is done. Another uu that traces the process is waited for: it does
/// so for a moment only.
pub fn check(pid: u32) -> Result<(), DumpError> {
    let begun = Instant::now();
    loop {
        match check_now(pid) {
            Err(DumpError::Traced { name, .. }) if name == "uu" && begun.elapsed() < OTHERS => {
                uunwind_clock::sleep(PAUSE);
            }
            other => return other,
        }
    }
}

fn check_now(pid: u32) -> Result<(), DumpError> {
    if tids(pid).is_err() {
        return Err(DumpError::NoProcess(pid));
    }
    // The kernel lets a thread's id stand for its process in /proc, though not everywhere.
    if let Some(process) = process_of(pid) {
        return Err(DumpError::Thread(pid, process));
    }
    if flags(pid) & KERNEL_THREAD != 0 {
        return Err(DumpError::Kernel(pid, doing::name(pid, pid)));
    }
    // In the folder of another thread if only the main thread has ended.
    if field(pid, "State").is_some_and(|state| state.starts_with('Z')) {
        return Err(DumpError::Zombie(pid));
    }
    if is_narrow(pid) {
        return Err(DumpError::Narrow(pid));
    }
    let number = |of: u32, name: &str| field(of, name).and_then(|number| number.parse::<u32>().ok());
    match number(pid, "TracerPid") {
        Some(thread) if thread != 0 => {
            // One of the tracer's threads.
            let tracer = number(thread, "Tgid").unwrap_or(thread);
            Err(DumpError::Traced { pid, tracer, name: doing::name(tracer, tracer) })
        }
        _ => Ok(()),
    }
}

/// The process of a thread that is not its first; `None` if that is the id of a process, or of nothing.
pub fn process_of(tid: u32) -> Option<u32> {
    field(tid, "Tgid")?.parse().ok().filter(|process| *process != tid)
}

/// Why the kernel refused, and what to do.
pub fn refused(pid: u32, error: io::Error) -> DumpError {
    if tids(pid).is_err() || error.raw_os_error() == Some(libc::ESRCH) {
        return DumpError::NoProcess(pid);
    }
    // It may have come in between.
    if let Err(other) = check(pid) {
        return other;
    }
    if !matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) {
        return DumpError::Unreadable(pid, error);
    }
    DumpError::Forbidden { pid, error, why: Standing::of(pid).why() }
}

/// What the kernel looks at when it decides whether uu may trace a process
/// ([ptrace(2)](https://man7.org/linux/man-pages/man2/ptrace.2.html), "Ptrace access mode checking"; Yama:
/// <https://docs.kernel.org/admin-guide/LSM/Yama.html>).
#[derive(Clone, Debug, Default)]
struct Standing {
    /// User of uu, and of the process.
    own: u32,
    user: u32,
    /// The process keeps others out: its files in /proc belong to root though it does not.
    is_closed: bool,
    /// uu has CAP_SYS_PTRACE.
    has_capability: bool,
    /// A filter of system calls keeps uu from ptrace.
    is_filtered: bool,
    /// kernel.yama.ptrace_scope; empty without Yama.
    scope: String,
    /// uu and the process are in one user namespace.
    is_same_namespace: bool,
}

impl Standing {
    fn of(pid: u32) -> Standing {
        let ids = field(pid, "Uid").unwrap_or_default();
        let user = ids.split_ascii_whitespace().next().and_then(|id| id.parse().ok()).unwrap_or(u32::MAX);
        let owner = fs::metadata(format!("/proc/{pid}")).map_or(user, |of| of.uid());
        let own_capabilities = field(std::process::id(), "CapEff").unwrap_or_default();
        let capabilities = u64::from_str_radix(&own_capabilities, 16).unwrap_or(0);
        let namespace = |of: &dyn Display| fs::read_link(format!("/proc/{of}/ns/user")).ok();
        Standing {
            own: rustix::process::geteuid().as_raw(),
            user,
            is_closed: owner != user,
            has_capability: capabilities >> SYS_PTRACE & 1 != 0,
            is_filtered: is_filtered(),
            scope: fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default().trim().to_owned(),
            // If the other's cannot be read, that is for another reason.
            is_same_namespace: namespace(&pid).is_none_or(|other| namespace(&"self") == Some(other)),
        }
    }

    /// What decides, and the remedy.
    fn why(&self) -> String {
        let root = if self.own == 0 {
            "give uu CAP_SYS_PTRACE (in a container: `--cap-add SYS_PTRACE`)"
        } else {
            "run uu as root"
        };
        if self.is_filtered {
            return "a filter of system calls (seccomp) keeps uu from ptrace, as containers set it: run uu outside of the \
                    container, or with a profile that allows ptrace"
                .to_owned();
        }
        if self.scope == "3" {
            return "kernel.yama.ptrace_scope is 3, so nobody may, until the machine is started again".to_owned();
        }
        if !self.has_capability {
            if self.user != self.own {
                return format!("it belongs to user {}, and uu runs as user {}: {root}", self.user, self.own);
            }
            if self.is_closed {
                return format!("it is set-uid, has capabilities, or has closed itself (PR_SET_DUMPABLE): {root}");
            }
            match self.scope.as_str() {
                "1" => {
                    return format!(
                        "kernel.yama.ptrace_scope is 1, so only its parents may: {root}, or set it to 0 \
                         (`sysctl kernel.yama.ptrace_scope=0`)"
                    )
                }
                "2" => return format!("kernel.yama.ptrace_scope is 2, so only CAP_SYS_PTRACE may: {root}"),
                _ => {}
            }
        }
        if !self.is_same_namespace {
            return "it is in another user namespace, over which uu has no rights: run uu as root of the machine"
                .to_owned();
        }
        "a security policy of this machine forbids it (SELinux, AppArmor or the like; its log says which rule)"
            .to_owned()
    }
}

/// Whether ptrace itself is forbidden to uu: without a filter, the kernel looks for process 0, of which there is none.
fn is_filtered() -> bool {
    // SAFETY: no pointer is passed, and no process has this id.
    let result = unsafe { libc::ptrace(libc::PTRACE_SEIZE, 0, 0usize, 0usize) };
    result < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// A field of `/proc/PID/status`, of a live thread if there is any.
fn field(pid: u32, name: &str) -> Option<String> {
    let status = fs::read_to_string(process::file(pid, "status")).ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(":\t")?.to_owned()))
}

/// The kernel's flags of a process; 0 if they cannot be read.
fn flags(pid: u32) -> u64 {
    Stat::of(pid).and_then(|stat| stat.number(9)).unwrap_or(0)
}

/// Whether an error says that a process or a thread has ended.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Whether the process's program is a 32-bit one; false if its file cannot be read.
pub fn is_narrow(pid: u32) -> bool {
    let mut head = [0; 5];
    let read = File::open(process::file(pid, "exe")).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head.starts_with(elf::ELFMAG.as_slice()) && head[4] == elf::ELFCLASS32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_is_named_with_its_remedy() {
        let plain = Standing { own: 7, user: 7, is_same_namespace: true, ..Standing::default() };
        let scope = |scope: &str| Standing { scope: scope.to_owned(), ..plain.clone() };
        for (standing, words) in [
            (Standing { is_filtered: true, ..plain.clone() }, ["seccomp", "outside of the container"]),
            (Standing { user: 0, ..plain.clone() }, ["belongs to user 0, and uu runs as user 7", "run uu as root"]),
            (Standing { own: 0, ..plain.clone() }, ["belongs to user 7", "CAP_SYS_PTRACE"]),
            (Standing { is_closed: true, ..plain.clone() }, ["PR_SET_DUMPABLE", "run uu as root"]),
            (scope("1"), ["ptrace_scope is 1", "sysctl kernel.yama.ptrace_scope=0"]),
            (scope("2"), ["ptrace_scope is 2", "run uu as root"]),
            (Standing { has_capability: true, ..scope("3") }, ["ptrace_scope is 3", "started again"]),
            (Standing { is_same_namespace: false, ..plain.clone() }, ["user namespace", "root of the machine"]),
            (Standing { has_capability: true, ..scope("1") }, ["security policy", "log"]),
        ] {
            let why = standing.why();
            assert!(words.iter().all(|word| why.contains(word)), "{standing:?}: {why}");
        }
    }

    #[test]
    fn this_process_is_no_part_of_the_kernel_and_may_call_ptrace() {
        let pid = std::process::id();
        assert!(flags(pid) & KERNEL_THREAD == 0 && !is_narrow(pid) && !is_filtered());
        assert!(check(pid).is_ok());
        // The test runs in a thread of its own.
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let why = check(tid).expect_err("a thread").to_string();
        assert!(tid != pid && why.contains(&format!("{tid} is a thread of process {pid}: give {pid}")), "{why}");
        let standing = Standing::of(pid);
        assert!(standing.user == standing.own && standing.is_same_namespace, "{standing:?}");
    }
}
