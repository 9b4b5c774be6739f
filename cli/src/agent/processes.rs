//! The processes of this machine, as rules look at them.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use uunwind_elf::process;
use uunwind_push::container;
use uunwind_recorder::machine::Stat;

/// Bytes of a command line or an environment that are looked at.
const MOST: u64 = 1 << 20;
/// The flag of kernel threads in field 9 of proc_pid_stat(5)
/// (<https://github.com/torvalds/linux/blob/v6.1/include/linux/sched.h>, PF_KTHREAD).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// A process and when it began, in ticks since the machine's start: no later process is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Its id.
    pub pid: u32,
    /// Field 22 of proc_pid_stat(5).
    pub start: u64,
}

/// A process that runs a program.
#[derive(Debug)]
pub struct Process {
    /// Which one.
    pub identity: Identity,
    /// The name that the kernel has for it, of 15 bytes at most.
    pub comm: String,
    user: OnceCell<u32>,
    command: OnceCell<Vec<String>>,
    program: OnceCell<String>,
    cgroup: OnceCell<String>,
    container: OnceCell<String>,
    environment: OnceCell<Vec<String>>,
}

/// All processes but the kernel's threads and those that have ended.
pub fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::of).collect()
}

impl Process {
    /// The process with this id; `None`: there is none, or it runs no program.
    pub fn of(pid: u32) -> Option<Process> {
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let (from, to) = (text.iter().position(|b| *b == b'(')?, text.iter().rposition(|b| *b == b')')?);
        let comm = lossy(text.get(from + 1..to)?);
        let stat = Stat::from_bytes(&text);
        if stat.number(9)? & KERNEL_THREAD != 0 || matches!(stat.field(3)?, "Z" | "X") {
            return None;
        }
        Some(Process {
            identity: Identity { pid, start: stat.number(22)? },
            comm,
            user: OnceCell::new(),
            command: OnceCell::new(),
            program: OnceCell::new(),
            cgroup: OnceCell::new(),
            container: OnceCell::new(),
            environment: OnceCell::new(),
        })
    }

    /// Whether this very process still runs.
    pub fn lives(identity: Identity) -> bool {
        Process::of(identity.pid).is_some_and(|process| process.identity == identity)
    }

    /// Whether it runs uu's own program, whichever command of it.
    pub fn is_uu(&self) -> bool {
        let file = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let own = file(Path::new("/proc/self/exe"));
        self.identity.pid == std::process::id()
            || own.is_some() && file(&process::file(self.identity.pid, "exe")) == own
    }

    /// The id of its user.
    pub fn user(&self) -> u32 {
        // Of a process that keeps others out, the folder belongs to root.
        *self.user.get_or_init(|| {
            let status = fs::read_to_string(format!("/proc/{}/status", self.identity.pid)).unwrap_or_default();
            let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
            ids.and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok()).unwrap_or(u32::MAX)
        })
    }

    /// Its command line.
    pub fn command(&self) -> &[String] {
        self.command.get_or_init(|| self.words("cmdline"))
    }

    /// Its environment, `KEY=VALUE` each, as it began; none if that may not be read.
    fn environment(&self) -> &[String] {
        self.environment.get_or_init(|| self.words("environ"))
    }

    /// A variable of its environment.
    pub fn variable(&self, key: &str) -> Option<&str> {
        self.environment().iter().find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
    }

    /// The name of its program's file; empty if that may not be read.
    pub fn program(&self) -> &str {
        self.program.get_or_init(|| {
            let path = uunwind_remote::dump::exe(self.identity.pid);
            let name = Path::new(OsStr::from_bytes(&path)).file_name().unwrap_or_default();
            name.to_string_lossy().trim_end_matches(" (deleted)").to_owned()
        })
    }

    /// What it is called: the file name of the first word of its command line, as for `uu record -p`.
    pub fn name(&self) -> &str {
        let first = self.command().first().map_or("", |word| word.rsplit('/').next().unwrap_or(word));
        if first.is_empty() {
            &self.comm
        } else {
            first
        }
    }

    /// Its control group: the one of the second version, else the first that is listed.
    pub fn cgroup(&self) -> &str {
        self.cgroup.get_or_init(|| {
            let text = fs::read_to_string(format!("/proc/{}/cgroup", self.identity.pid)).unwrap_or_default();
            let unified = text.lines().find_map(|line| line.strip_prefix("0::"));
            let first = || text.lines().find_map(|line| line.splitn(3, ':').nth(2));
            unified.filter(|path| *path != "/").or_else(first).unwrap_or_default().to_owned()
        })
    }

    /// The id of its container; empty: it is in none, or in one that does not say so.
    pub fn container(&self) -> &str {
        self.container.get_or_init(|| container::id(Some(self.identity.pid)).unwrap_or_default())
    }

    fn words(&self, file: &str) -> Vec<String> {
        let mut bytes = Vec::new();
        let opened = File::open(process::file(self.identity.pid, file));
        let read = opened.and_then(|file| file.take(MOST).read_to_end(&mut bytes));
        let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        read.map_or_else(|_| Vec::new(), |_| words.map(lossy).collect())
    }
}

/// The id of a user of this machine, by name or number.
pub fn user_id(name: &str) -> Option<u32> {
    if let Ok(id) = name.parse() {
        return Some(id);
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

/// The name of a user of this machine, or the number if it has none.
pub fn user_name(id: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| id.to_string())
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_described() {
        let own = Process::of(std::process::id()).expect("this process");
        assert!(Process::lives(own.identity) && own.is_uu());
        assert!(!Process::lives(Identity { start: own.identity.start + 1, ..own.identity }));
        assert_eq!(own.user(), rustix::process::geteuid().as_raw());
        assert_eq!(own.command(), std::env::args().collect::<Vec<_>>());
        assert!(own.variable("PATH").is_some() && own.variable("PAT").is_none());
        assert!(own.name().starts_with("uu") && own.program().starts_with("uu"), "{}", own.name());
        assert!(all().iter().any(|process| process.identity == own.identity));
        // The thread that starts all threads of the kernel; in a container it may be any process, or none.
        let is_kernel = fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n");
        assert!(!is_kernel || Process::of(2).is_none());
    }

    #[test]
    fn users_have_names_and_numbers() {
        assert_eq!((user_id("root"), user_id("7"), user_name(0)), (Some(0), Some(7), "root".to_owned()));
        assert_eq!((user_id("no such user"), user_name(4_000_000_001)), (None, "4000000001".to_owned()));
    }
}
