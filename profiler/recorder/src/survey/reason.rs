//! Why a process of the program's family has no block in the session.

use super::process::{environment, has_mapping, sees, share_memory, status, variable, Seen};
use super::SESSION_MAPPING;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use uunwind_analyse::traits;
use uunwind_ring::ENV_SESSION;

/// Why a process is not recorded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It is a child, and --no-children was given.
    Child,
    /// It is in another pid namespace, and did not ask uu what it is there.
    PidNamespace(Apart),
    /// The loader treats it as set-user-ID ([secure-execution
    /// mode](https://man7.org/linux/man-pages/man8/ld.so.8.html)).
    OtherRights,
    /// It runs as another user and group (the first pair) than uu (the second).
    User([u32; 2], [u32; 2]),
    /// Its environment has neither the session nor the preloaded object.
    Environment,
    /// Its environment has the session, but not the preloaded object.
    PreloadDropped,
    /// The preloaded object does not exist at this path in the process's root directory.
    Root(PathBuf),
    Static,
    /// A child that shares its parent's memory.
    Vfork,
    /// A child with a copy of its parent's memory, which libc did not make, so that nothing of uu's was called in it.
    Cloned,
    /// No reason was found.
    Unknown,
}

/// Why a process in another pid namespace did not ask uu.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Apart {
    /// It is in another network namespace, too, where there is no socket of uu's.
    Network,
    /// It runs under more filters of system calls than uu, which may forbid sockets.
    Filters,
    /// It sees no `/proc`, so that it does not know whether it runs under filters.
    Proc,
    Unknown,
}

impl Apart {
    fn of(process: &Seen, filters: Option<u32>, own: Option<u32>) -> Apart {
        let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let theirs = network(&process.pid.to_string());
        if theirs.is_some() && theirs != network("self") {
            return Apart::Network;
        }
        if filters.unwrap_or(0) > own.unwrap_or(0) {
            return Apart::Filters;
        }
        match sees(process.pid, Path::new("/proc/stat")) {
            Some(false) => Apart::Proc,
            _ => Apart::Unknown,
        }
    }
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Apart::Network => " and another network namespace",
            Apart::Filters => ", under a filter of system calls",
            Apart::Proc => " without a /proc",
            Apart::Unknown => "",
        })
    }
}

impl Reason {
    /// Whether this reason rules out that the process will be recorded.
    pub fn is_certain(&self) -> bool {
        !matches!(self, Reason::Vfork | Reason::Cloned | Reason::Unknown | Reason::PidNamespace(Apart::Unknown))
    }

    /// Whether the process should have been recorded.
    pub fn is_a_loss(&self) -> bool {
        *self != Reason::Child
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Child => write!(f, "children are not recorded with --no-children"),
            Reason::PidNamespace(apart) => write!(
                f,
                "it is in another pid namespace{apart} (a container, unshare, bwrap), where uu cannot be found. Run uu inside it"
            ),
            Reason::OtherRights => write!(
                f,
                "it began with other rights than its user's (set-user-ID, set-group-ID), and the dynamic loader preloads \
                 nothing into such programs. Run uu inside it"
            ),
            Reason::User([user, group], [own_user, own_group]) => write!(
                f,
                "it runs as user {user} and group {group}, and uu as {own_user} and {own_group}: another user may not open the \
                 recording's memory. Run uu as that user, inside the program that changes it"
            ),
            Reason::Environment => write!(
                f,
                "its environment has no LD_PRELOAD and no {ENV_SESSION}: a program between uu and it has cleared the environment, \
                 as env -i and sudo do. Run uu inside that program"
            ),
            Reason::PreloadDropped => write!(
                f,
                "LD_PRELOAD in its environment no longer names uu's object: a program between uu and it has changed or removed \
                 the variable. Keep what was in it"
            ),
            Reason::Root(path) => write!(
                f,
                "{} does not exist in its root directory or mount namespace (chroot, container), so that it cannot be preloaded. \
                 Install uu there, too, and run it inside",
                path.display()
            ),
            Reason::Static => write!(f, "it is statically linked, so that nothing can be loaded into it"),
            Reason::Vfork => write!(
                f,
                "it shares its parent's memory (vfork, or clone with CLONE_VM), where only the parent's own threads are sampled"
            ),
            Reason::Cloned => write!(
                f,
                "it was made by clone(2) itself, as by bwrap, not by fork: it is recorded once it executes a program, or forks"
            ),
            Reason::Unknown => write!(f, "uu's object did not begin to record in it; the reason is not known"),
        }
    }
}

/// The properties of uu that a process is compared with.
pub struct Own {
    /// Effective user and group.
    ids: [u32; 2],
    /// Number of pid namespaces from that of /proc to uu's own, both included.
    namespaces: usize,
    /// Number of filters of system calls that uu runs under.
    filters: Option<u32>,
    /// File name of the preloaded object; empty: the program ran before uu, which has put the sampler in.
    preload: PathBuf,
    without_children: bool,
}

impl Own {
    pub fn new(preload: PathBuf, without_children: bool) -> Own {
        let own = status("self").unwrap_or_default();
        let preload = preload.file_name().map_or(PathBuf::new(), PathBuf::from);
        let (ids, namespaces) = ([own.user[1], own.group[1]], own.pids.len());
        Own { ids, namespaces, filters: own.filters, preload, without_children }
    }

    /// Why a process has no block. `None` when it has ended in the meantime.
    pub fn reason(&self, seen: &Seen, is_program: bool) -> Option<Reason> {
        if self.without_children && !is_program {
            return Some(Reason::Child);
        }
        // Whoever has put the sampler in says what becomes of it; a block comes with the first tick only.
        if self.preload.as_os_str().is_empty() && is_program {
            return None;
        }
        let status = status(&seen.pid.to_string())?;
        let ids = [status.user[1], status.group[1]];
        if status.user[0] != status.user[1] || status.group[0] != status.group[1] {
            return Some(Reason::OtherRights);
        }
        if has_mapping(seen.pid, SESSION_MAPPING) == Some(true) {
            // The mapping is its parent's, which is recorded. The environment says nothing then, since setproctitle may
            // have overwritten it.
            return Some(if share_memory(seen.pid, seen.parent) { Reason::Vfork } else { Reason::Cloned });
        }
        if let Some(environment) = environment(seen.pid) {
            if let Some(reason) = self.lacks(seen.pid, &environment) {
                return Some(reason);
            }
        }
        if ids != self.ids && ids[0] != 0 {
            return Some(Reason::User(ids, self.ids));
        }
        match traits(&uunwind_elf::process::file(seen.pid, "exe")) {
            Ok(traits) if traits.interpreter.is_none() => Some(Reason::Static),
            _ if share_memory(seen.pid, seen.parent) => Some(Reason::Vfork),
            _ if status.pids.len() > self.namespaces => {
                Some(Reason::PidNamespace(Apart::of(seen, status.filters, self.filters)))
            }
            _ => Some(Reason::Unknown),
        }
    }

    /// The reason that a process's environment gives: a variable is missing, or names an object that does not exist.
    fn lacks(&self, pid: u32, environment: &[u8]) -> Option<Reason> {
        let preload = variable(environment, "LD_PRELOAD").unwrap_or_default();
        let paths =
            preload.split(|byte| matches!(byte, b':' | b' ')).map(|path| Path::new(std::ffi::OsStr::from_bytes(path)));
        let preload = paths.into_iter().find(|path| path.file_name() == Some(self.preload.as_os_str()));
        match (preload, variable(environment, ENV_SESSION)) {
            (None, None) => Some(Reason::Environment),
            (None, Some(_)) => Some(Reason::PreloadDropped),
            (Some(path), _) if sees(pid, path) == Some(false) => Some(Reason::Root(path.to_owned())),
            (Some(_), None) => Some(Reason::Environment),
            (Some(_), Some(_)) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A program that waits until it is killed.
    struct Waiting(Child);

    impl Waiting {
        fn start(command: &mut Command) -> Waiting {
            Waiting(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs"))
        }

        /// Why it is not recorded, once it runs this program and the reason is certain.
        fn reason(&self, program: &str) -> Reason {
            let own = Own::new(PathBuf::from("/lib/x/preload.so"), false);
            loop {
                let pid = self.0.id();
                let seen = Seen { pid, parent: std::process::id(), ..Seen::default() };
                let runs = super::super::process::executable(pid).is_some_and(|exe| exe.ends_with(program));
                if let Some(reason) = own.reason(&seen, true).filter(|reason| runs && reason.is_certain()) {
                    return reason;
                }
                std::thread::yield_now();
            }
        }
    }

    impl Drop for Waiting {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn an_environment_shows_what_was_cleared() {
        for (variables, reason) in [
            (&[][..], Reason::Environment),
            (&[("LD_PRELOAD", "/tmp/other.so")], Reason::Environment),
            (&[(ENV_SESSION, "1:2:3:4:5"), ("LD_PRELOAD", "/tmp/other.so")], Reason::PreloadDropped),
            (
                &[(ENV_SESSION, "1:2:3:4:5"), ("LD_PRELOAD", "/nonexistent/preload.so:/tmp/other.so")],
                Reason::Root(PathBuf::from("/nonexistent/preload.so")),
            ),
        ] {
            let mut cat = Command::new("/bin/cat");
            // stderr is discarded, since the loader warns of an object that does not exist.
            cat.env_clear().envs(variables.iter().copied()).stderr(Stdio::null());
            assert_eq!(Waiting::start(&mut cat).reason("/cat"), reason, "{variables:?}");
        }
    }

    #[test]
    fn a_program_that_ran_before_misses_nothing() {
        let own = Own::new(PathBuf::new(), true);
        let cat = Waiting::start(&mut Command::new("/bin/cat"));
        let seen = Seen { pid: cat.0.id(), parent: std::process::id(), ..Seen::default() };
        assert_eq!(own.reason(&seen, true), None);
        assert_eq!(own.reason(&seen, false), Some(Reason::Child));
    }

    /// Runs in a child that shares this process's memory: waits until it is killed.
    extern "C" fn wait_for_a_signal(_: *mut libc::c_void) -> libc::c_int {
        loop {
            // SAFETY: a plain system call, which touches no memory.
            unsafe { libc::syscall(libc::SYS_pause) };
        }
    }

    #[test]
    fn an_environment_says_nothing_of_a_memory_that_is_recorded() {
        let own = Own::new(PathBuf::from("/lib/x/preload.so"), false);
        let reason = |pid| own.reason(&Seen { pid, parent: std::process::id(), ..Seen::default() }, false);
        let mut stack = vec![0u128; 4096];
        // SAFETY: the child uses its stack only, until it is waited for.
        let child = unsafe {
            let top = stack.as_mut_ptr().add(stack.len()).cast();
            libc::clone(wait_for_a_signal, top, libc::CLONE_VM | libc::SIGCHLD, std::ptr::null_mut())
        };
        assert!(child > 0, "{}", std::io::Error::last_os_error());
        // This process was started without a session, so its environment has none, as if it had been overwritten.
        let session = crate::session::Session::create(16).expect("memfd");
        let found = reason(child as u32);
        drop(session);
        // SAFETY: plain system calls on a child of our own.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert_eq!(found, Some(Reason::Vfork));
    }

    #[test]
    fn a_process_of_another_user_is_reported_as_such() {
        // SAFETY: a call without preconditions.
        if unsafe { libc::geteuid() } != 0 {
            uunwind_skips::skipped("the reason why a process of another user is not recorded", "needs root");
            return;
        }
        let preload = std::env::temp_dir().join(format!("uu-survey-{}", std::process::id()));
        std::fs::create_dir_all(&preload).expect("folder");
        let file = preload.join("preload.so");
        std::fs::write(&file, "").expect("file");
        let mut cat = Command::new("setpriv");
        cat.args(["--reuid=65534", "--regid=65534", "--clear-groups", "/bin/cat"]).stderr(Stdio::null());
        cat.env(ENV_SESSION, "1:2:3:4:5").env("LD_PRELOAD", &file);
        assert!(matches!(Waiting::start(&mut cat).reason("/cat"), Reason::User([65534, 65534], _)));
        std::fs::remove_dir_all(preload).expect("removed");
    }
}
