//! Why a process cannot be looked at: what decides, and the remedy.

use crate::threads::tids;
use crate::waits;
use std::fs;
use std::io;

/// Why there are no stacks.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// It has ended, and waits for its parent to take notice.
    #[error("process {0} has ended and is a zombie: it has no stacks any more")]
    Zombie(u32),
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

/// Finds out what stands in the way before anything is done.
pub fn check(pid: u32) -> Result<(), DumpError> {
    if tids(pid).is_err() {
        return Err(DumpError::NoProcess(pid));
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    if field("State").is_some_and(|state| state.starts_with('Z')) {
        return Err(DumpError::Zombie(pid));
    }
    match field("TracerPid").and_then(|tracer| tracer.parse().ok()) {
        Some(tracer) if tracer != 0 => Err(DumpError::Traced { pid, tracer, name: waits::name(tracer, tracer) }),
        _ => Ok(()),
    }
}

/// Why the kernel refused, and what to do.
pub fn refused(pid: u32, error: io::Error) -> DumpError {
    if tids(pid).is_err() || error.raw_os_error() == Some(libc::ESRCH) {
        return DumpError::NoProcess(pid);
    }
    if !matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) {
        return DumpError::Unreadable(pid, error);
    }
    use std::os::unix::fs::MetadataExt;
    let owner = fs::metadata(format!("/proc/{pid}")).map(|of| of.uid()).ok();
    let own = rustix::process::geteuid().as_raw();
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let why = match (owner, scope.trim()) {
        (_, "3") => "kernel.yama.ptrace_scope is 3, so nobody may, until the machine is started again".to_owned(),
        (Some(owner), _) if owner != own && own != 0 => {
            format!("it belongs to user {owner}, or has more rights than you. Run uu as root")
        }
        (_, "1") => "kernel.yama.ptrace_scope is 1, so only its parents may. Run uu as root, or set it to 0".to_owned(),
        (_, "2") => "kernel.yama.ptrace_scope is 2, so only root may. Run uu as root".to_owned(),
        _ => "a security policy forbids it (in a container: it needs CAP_SYS_PTRACE)".to_owned(),
    };
    DumpError::Forbidden { pid, error, why }
}
