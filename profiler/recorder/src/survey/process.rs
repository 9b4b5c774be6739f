//! Reads processes from [proc(5)](https://man7.org/linux/man-pages/man5/proc.5.html). A process may end at any time, so
//! every file may be missing.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use uunwind_elf::process;

/// A process by pid and start time (in ticks since boot): a pid alone may be used again.
pub type Id = (u32, u64);

/// A process at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Process id.
    pub pid: u32,
    /// Process id of its parent.
    pub parent: u32,
    /// Start time, in clock ticks since boot.
    pub start: u64,
    /// Command name, at most 15 bytes.
    pub name: String,
    /// It has ended with all of its threads, but its parent has not waited for it yet.
    pub zombie: bool,
    /// Address of its arguments (field arg_start), which differs after each exec; 0 where uu may not read it.
    pub image: u64,
}

impl Seen {
    /// Pid and start time, which identify a process.
    pub fn id(&self) -> Id {
        (self.pid, self.start)
    }

    /// Whether it still exists, at least as a zombie. Then all that was read under its pid before this call was about
    /// it.
    pub fn is_there(&self) -> bool {
        see(self.pid).is_some_and(|now| now.start == self.start)
    }
}

/// The process that has this pid now.
pub fn see(pid: u32) -> Option<Seen> {
    let parsed = |path: String| {
        // All of it is there at the first read: it is shorter than this, and its size is said to be 0.
        let mut bytes = [0; 2048];
        let len = File::open(path).ok()?.read(&mut bytes).ok()?;
        parse(pid, &String::from_utf8_lossy(bytes.get(..len)?))
    };
    let main = parsed(format!("/proc/{pid}/stat"))?;
    let other = main.zombie.then(|| process::stand_in(pid)).flatten();
    let other = other.and_then(|tid| parsed(format!("/proc/{pid}/task/{tid}/stat")));
    // Its main thread has ended, and another one lives: they have the arguments in common.
    Some(other.map_or(main.clone(), |Seen { zombie, image, .. }| Seen { zombie, image, ..main }))
}

/// All processes. They are read one after the other, so a pid may be reused before the last one is read.
pub fn list() -> Vec<Seen> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(see).collect()
}

/// Parses the contents of [`/proc/PID/stat`](https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html).
fn parse(pid: u32, stat: &str) -> Option<Seen> {
    // The name, in parentheses, may contain any character; the fields after it may not.
    let (before, after) = stat.rsplit_once(") ")?;
    let name = before.split_once(" (")?.1.to_owned();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let zombie = matches!(*fields.first()?, "Z" | "X");
    // ppid is field 4, starttime 22, arg_start 48; the state is field 3.
    let field = |number: usize| fields.get(number.checked_sub(3)?)?.parse::<u64>().ok();
    let image = field(48).unwrap_or(0);
    Some(Seen { pid, parent: u32::try_from(field(4)?).ok()?, start: field(22)?, name, zombie, image })
}

/// Path of a process's executable.
pub fn executable(pid: u32) -> Option<String> {
    let path = std::fs::read_link(process::file(pid, "exe")).ok()?;
    Some(path.to_string_lossy().into_owned())
}

/// A process's credentials, pid namespaces and filters, from
/// [`/proc/PID/status`](https://man7.org/linux/man-pages/man5/proc_pid_status.5.html).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Real and effective user id.
    pub user: [u32; 2],
    /// Real and effective group id.
    pub group: [u32; 2],
    /// Its pids in the pid namespace of `/proc` and in each nested one. Empty before Linux 4.1.
    pub pids: Vec<u32>,
    /// Number of filters of system calls that it runs under. `None` before Linux 5.9, and where the kernel has none.
    pub filters: Option<u32>,
}

/// The status of a process, given by its pid, "self", or "PID/task/TID" for one of its threads.
pub fn status(pid: &str) -> Option<Status> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = |name: &str| -> Vec<u32> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or_else(Vec::new, |line| line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
    };
    let two = |numbers: Vec<u32>| Some([*numbers.first()?, *numbers.get(1)?]);
    let filters = numbers("Seccomp_filters:").first().copied();
    Some(Status { user: two(numbers("Uid:"))?, group: two(numbers("Gid:"))?, pids: numbers("NSpid:"), filters })
}

/// Initial environment of a process. `None` where uu may not read it, and for a process that has just ended, which has
/// no arguments either.
pub fn environment(pid: u32) -> Option<Vec<u8>> {
    let read = |name| std::fs::read(process::file(pid, name)).ok();
    let environment = read("environ")?;
    if !environment.is_empty() {
        return Some(environment);
    }
    // During an exec both files are empty, the environment a little longer; so it is read again once there are
    // arguments.
    let has_begun = read("cmdline").is_some_and(|arguments| !arguments.is_empty());
    has_begun.then(|| read("environ")).flatten()
}

/// The value of a variable in an environment.
pub fn variable<'a>(environment: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let entries = environment.split(|byte| *byte == 0);
    entries.into_iter().find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// Whether a path exists in the process's root directory; `None` where uu may not look.
pub fn sees(pid: u32, path: &Path) -> Option<bool> {
    let root = process::file(pid, "root");
    std::fs::read_link(&root).ok()?;
    Some(root.join(path.strip_prefix("/").unwrap_or(path)).exists())
}

/// Whether the name of one of the process's mappings contains `name`; `None` where uu may not look.
pub fn has_mapping(pid: u32, name: &str) -> Option<bool> {
    let mut mappings = uunwind_elf::maps::of(pid).ok()?.peekable();
    // A process that has just ended has no mappings.
    mappings.peek()?;
    Some(mappings.any(|mapping| mapping.has_in_name(name)))
}

/// Whether two processes share their memory, as a vfork child and its parent do
/// ([kcmp(2)](https://man7.org/linux/man-pages/man2/kcmp.2.html)).
pub fn share_memory(one: u32, other: u32) -> bool {
    const KCMP_VM: libc::c_long = 1;
    let (one, other) = (libc::c_long::from(one), libc::c_long::from(other));
    // SAFETY: a plain system call, which compares and changes nothing.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_anything() {
        let after = "S 12 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 9 9";
        let seen = parse(5, &format!("5 (a) b) ( c) {after}")).expect("a process");
        let name = "a) b) ( c".to_owned();
        assert_eq!(seen, Seen { pid: 5, parent: 12, start: 777, name, zombie: false, image: 0 });
        assert!(parse(5, "5 (a) S 1").is_none() && parse(5, "").is_none());
    }

    #[test]
    fn the_own_process_is_seen() {
        let own = std::process::id();
        let seen = list().into_iter().find(|seen| seen.pid == own).expect("itself");
        // SAFETY: these calls have no preconditions and cannot fail.
        let parent = std::os::unix::process::parent_id();
        let user = [rustix::process::getuid().as_raw(), rustix::process::geteuid().as_raw()];
        assert!(seen.parent == parent && !seen.zombie && seen.image != 0);
        assert_eq!(has_mapping(own, "memfd:nothing of that name"), Some(false));
        assert_eq!(has_mapping(own, "[vdso]"), Some(true));
        let status = status(&own.to_string()).expect("its own");
        assert!(status.user == user && status.pids.first().is_none_or(|pid| *pid == own), "{status:?}");
        assert!(share_memory(own, own) && !share_memory(own, parent));
        assert_eq!(sees(own, Path::new("/proc/self/exe")), Some(true));
        assert_eq!(sees(own, Path::new("/proc/nonexistent")), Some(false));
        let path = std::env::var("PATH").expect("PATH");
        let environment = environment(own).expect("its own");
        assert_eq!(variable(&environment, "PATH"), Some(path.as_bytes()));
        assert_eq!(variable(&environment, "PAT"), None);
    }
}
