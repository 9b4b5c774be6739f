//! `uu doctor` without arguments: what this system has that uu works with, and what each thing that is missing costs.

use rustix::fs::{memfd_create, MemfdFlags};
use rustix::process::{getrlimit, Resource};
use std::fs;
use std::path::Path;
use uunwind_elf::files;
use uunwind_recorder::kernel::clock::KernelClock;
use uunwind_remote::{trial, DumpError};

/// What is found of one thing.
struct Row {
    what: &'static str,
    /// Whether nothing is missing.
    good: bool,
    found: String,
    /// What that means: what works, or what does not and what to do.
    means: String,
}

/// What is read of the system.
#[derive(Debug, Default)]
struct System {
    /// `uname -r`.
    kernel: String,
    /// The release of the C library that uu itself runs with; `None`: it does not say.
    glibc: Option<String>,
    /// kernel.perf_event_paranoid; `None`: the kernel has no perf events.
    paranoid: Option<i32>,
    /// Why no perf event could be opened, though that was tried.
    no_events: Option<String>,
    /// kernel.yama.ptrace_scope; empty without Yama.
    scope: String,
    /// Why a process that is nobody's child could not be traced, if that was tried and refused.
    untraceable: Option<String>,
    /// Effective capabilities.
    capabilities: u64,
    /// `Seccomp:` of /proc/self/status: 2 is a filter.
    seccomp: String,
    /// Whether memory files (memfd_create) can be made.
    memory_files: bool,
    /// A container's mark.
    container: Option<String>,
    /// Not the machine's first user namespace; not its first pid namespace.
    in_namespaces: [bool; 2],
    /// Soft limit of address space in bytes.
    address_space: Option<u64>,
}

/// Rate in Hz of the perf event that is tried.
const EVENTS: u32 = 99;
/// Linux's numbers of capabilities (capabilities(7)).
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;
/// What a recording maps into a program, about, in bytes (docs/trust.md).
const MAPPED: u64 = 600 << 20;
/// Size limit of a C library that is read, in bytes.
const LIBC_LIMIT: u64 = 256 << 20;
/// The first glibc whose loader has `_dl_find_object`.
const FINDS_OBJECTS: (u32, u32) = (2, 35);

/// The table, as text.
pub fn describe() -> String {
    table(&System::read().rows())
}

fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let mark = if row.good { "ok" } else { "--" };
        text.push_str(&format!("{mark}  {:<15}  {}\n", row.what, row.found));
        for line in row.means.lines() {
            text.push_str(&format!("                     {line}\n"));
        }
    }
    let missing = rows.iter().filter(|row| !row.good).count();
    text.push_str(&match missing {
        0 => "all that uu uses is here\n".to_owned(),
        _ => format!(
            "{missing} of {} limit what uu can do here; `uu record -- PROGRAM` needs none but the C library\n",
            rows.len()
        ),
    });
    text
}

impl System {
    fn read() -> System {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let status = text("/proc/self/status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned()).unwrap_or_default()
        };
        let marks = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
        let named = std::env::var("container").ok().filter(|name| !name.is_empty());
        System {
            kernel: text("/proc/sys/kernel/osrelease"),
            glibc: own_glibc(),
            paranoid: text("/proc/sys/kernel/perf_event_paranoid").parse().ok(),
            no_events: KernelClock::new(EVENTS, false, None, false).err(),
            scope: text("/proc/sys/kernel/yama/ptrace_scope"),
            untraceable: untraceable(),
            capabilities: u64::from_str_radix(&field("CapEff:"), 16).unwrap_or(0),
            seccomp: field("Seccomp:"),
            memory_files: memfd_create(c"uu-doctor", MemfdFlags::CLOEXEC).is_ok(),
            container: marks
                .into_iter()
                .find_map(|(path, name)| fs::exists(path).unwrap_or(false).then(|| name.to_owned()))
                .or(named),
            in_namespaces: [
                text("/proc/self/uid_map").split_ascii_whitespace().last() != Some("4294967295"),
                field("NSpid:").split_ascii_whitespace().count() > 1 || text("/proc/2/comm") != "kthreadd",
            ],
            address_space: getrlimit(Resource::As).current,
        }
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 != 0
    }

    fn rows(&self) -> Vec<Row> {
        let row =
            |what, good, found: &str, means: &str| Row { what, good, found: found.to_owned(), means: means.to_owned() };
        let mut rows = Vec::new();
        let is_tried = version(&self.kernel).is_some_and(|version| version >= (5, 10));
        let means =
            if is_tried { "" } else { "uu is tried on Linux 5.10 and later: an older one may lack what it calls" };
        rows.push(row("kernel", is_tried, &format!("Linux {}", self.kernel), means));
        let finds = self.glibc.as_deref().and_then(version).is_some_and(|version| version >= FINDS_OBJECTS);
        let how = if finds { "by its function" } else { "by its list, without its lock (glibc before 2.35)" };
        let glibc =
            self.glibc.as_ref().map_or("which does not say its release".to_owned(), |glibc| format!("glibc {glibc}"));
        rows.push(row("C library", true, &glibc, &format!("the loader's objects are found {how}")));
        rows.push(self.calls());
        rows.push(self.perf_events());
        rows.push(self.other_processes());
        rows.push(self.place());
        rows.push(match self.address_space {
            None => row("address space", true, "no limit (ulimit -v)", ""),
            Some(bytes) => row(
                "address space",
                bytes > 4 * MAPPED,
                &format!("at most {} MB (ulimit -v)", bytes >> 20),
                &format!("a recording maps {} MB into each program, of which few are used", MAPPED >> 20),
            ),
        });
        rows
    }

    fn calls(&self) -> Row {
        let filter = if self.seccomp == "2" { "a filter (seccomp)" } else { "no filter (seccomp)" };
        let (found, means) = if !self.memory_files {
            (format!("{filter}; memfd_create is refused"), "nothing can be recorded: allow memfd_create")
        } else if self.seccomp == "2" {
            (
                filter.to_owned(),
                "what it refuses is named where it is needed: ptrace and process_vm_readv by `-p` and `uu dump`",
            )
        } else {
            (filter.to_owned(), "")
        };
        Row { what: "system calls", good: self.memory_files, found, means: means.to_owned() }
    }

    fn perf_events(&self) -> Row {
        let may = self.has(CAP_SYS_ADMIN) || self.has(CAP_PERFMON) && self.has(CAP_BPF);
        let found = match self.paranoid {
            Some(level) => format!(
                "kernel.perf_event_paranoid is {level}; {} CAP_PERFMON and CAP_BPF",
                if may { "with" } else { "without" }
            ),
            None => "the kernel has none".to_owned(),
        };
        if let (Some(_), true, Some(why)) = (self.paranoid, may, &self.no_events) {
            let means = format!("`uu record --kernel` is not possible: a try was refused.\n{}", wrapped(why));
            return Row { what: "perf events", good: false, found, means };
        }
        let means = match (self.paranoid, may) {
            (Some(_), true) => String::new(),
            (Some(_), false) => {
                "`uu record --kernel` needs these rights, or root keeps `uu kernel-events` running for\n\
                                 you; without them, timers sample"
                    .to_owned()
            }
            (None, _) => "`uu record --kernel` is not possible".to_owned(),
        };
        Row { what: "perf events", good: self.paranoid.is_some() && may, found, means }
    }

    fn other_processes(&self) -> Row {
        let may = self.has(CAP_SYS_PTRACE);
        let found = match self.scope.as_str() {
            "" => "no restriction by Yama".to_owned(),
            scope => format!("kernel.yama.ptrace_scope is {scope}"),
        };
        // What was tried is the truth, whatever the settings promise.
        if let Some(why) = &self.untraceable {
            let means = format!("`-p` and `uu dump -p` are not possible: a try was refused.\n{}", wrapped(why));
            return Row { what: "other processes", good: false, found, means };
        }
        let (good, means) = match (self.scope.as_str(), may) {
            ("3", _) => (false, "nobody may look into a running process: `-p` and `uu dump -p` are not possible"),
            (_, true) => (true, "with CAP_SYS_PTRACE: `-p` and `uu dump -p` may look at every process"),
            ("" | "0", false) => (true, "`-p` and `uu dump -p` may look at your own processes; at others' as root"),
            ("1", false) => (false, "`-p` and `uu dump -p` take root, or `sysctl kernel.yama.ptrace_scope=0`"),
            _ => (false, "`-p` and `uu dump -p` take CAP_SYS_PTRACE (root)"),
        };
        Row { what: "other processes", good, found, means: means.to_owned() }
    }

    fn place(&self) -> Row {
        let namespaces: Vec<_> = ["user", "pid"]
            .into_iter()
            .zip(self.in_namespaces)
            .filter_map(|(name, is_inside)| is_inside.then_some(format!("a {name} namespace")))
            .collect();
        let container = self.container.as_ref().map(|name| format!("a container ({name})"));
        let inside: Vec<_> = container.into_iter().chain(namespaces).collect();
        let found = if inside.is_empty() { "none".to_owned() } else { inside.join(", ") };
        let means = if inside.is_empty() {
            ""
        } else {
            "programs of this container can be recorded here; those outside are not seen"
        };
        Row { what: "container", good: true, found, means: means.to_owned() }
    }
}

/// A text in lines of at most 100 characters, where its words allow it.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut length = 0;
    for word in text.split(' ') {
        let word_length = word.chars().count();
        if length > 0 {
            let fits = length + 1 + word_length <= 100;
            out.push(if fits { ' ' } else { '\n' });
            length = if fits { length + 1 } else { 0 };
        }
        out.push_str(word);
        length += word_length;
    }
    out
}

/// Why no process of this user may be traced, with what to do; `None`: one could be, or it could not be tried.
fn untraceable() -> Option<String> {
    match trial::attach()?.err()? {
        DumpError::Forbidden { error, why, .. } => Some(format!("{error}: {why}")),
        // It has ended meanwhile, or is traced by others.
        _ => None,
    }
}

/// The first two numbers of a version.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// The release of a C library, by the words that it prints when it is run as a program.
fn release_of(library: &[u8]) -> Option<String> {
    let words = b"stable release version ";
    let at = library.windows(words.len()).position(|part| part == words)? + words.len();
    let version = library.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.');
    let version = String::from_utf8(version.copied().collect()).ok()?;
    Some(version.trim_end_matches('.').to_owned()).filter(|version| version.starts_with("2."))
}

/// Of the C library that uu itself has loaded.
fn own_glibc() -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let is_libc = |path: &&str| path.ends_with("/libc.so.6") || path.contains("/libc-2.");
    let path = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5)).find(is_libc)?;
    release_of(&files::read(Path::new(path), LIBC_LIMIT).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> System {
        System {
            kernel: "6.1.0-13-amd64".to_owned(),
            glibc: Some("2.36".to_owned()),
            memory_files: true,
            paranoid: Some(3),
            capabilities: u64::MAX,
            seccomp: "0".to_owned(),
            ..System::default()
        }
    }

    fn said(system: &System) -> String {
        table(&system.rows())
    }

    #[test]
    fn nothing_is_missing_where_all_is_allowed() {
        assert!(said(&good()).ends_with("all that uu uses is here\n"), "{}", said(&good()));
        assert!(!said(&good()).contains("-- "));
    }

    #[test]
    fn what_is_missing_is_named_with_what_it_costs() {
        let refused = Some("Operation not permitted: a filter keeps uu from ptrace".to_owned());
        let events = Some("perf_event_open: Operation not permitted".to_owned());
        let cases: [(System, &[&str]); 10] = [
            (System { kernel: "4.18.0".to_owned(), ..good() }, &["--  kernel", "Linux 4.18.0", "5.10"]),
            (System { paranoid: None, ..good() }, &["--  perf events", "the kernel has none", "not possible"]),
            (System { capabilities: 0, ..good() }, &["--  perf events", "paranoid is 3; without", "kernel-events"]),
            (System { scope: "1".to_owned(), capabilities: 0, ..good() }, &["--  other proc", "scope is 1", "scope=0"]),
            (System { scope: "3".to_owned(), ..good() }, &["--  other proc", "nobody"]),
            (System { untraceable: refused, ..good() }, &["--  other proc", "a try was refused", "a filter keeps uu"]),
            (System { memory_files: false, ..good() }, &["--  system calls", "memfd_create is refused", "nothing can"]),
            (System { no_events: events, ..good() }, &["--  perf events", "a try was refused", "perf_event_open"]),
            (System { address_space: Some(400 << 20), ..good() }, &["--  address space", "400 MB", "ulimit -v"]),
            (System { glibc: Some("2.31".to_owned()), ..good() }, &["ok  C library", "glibc 2.31", "its list", "2.35"]),
        ];
        for (system, parts) in cases {
            let text = said(&system);
            for part in parts {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }

    #[test]
    fn containers_are_named() {
        let inside = System { container: Some("podman".to_owned()), in_namespaces: [true, true], ..good() };
        assert!(said(&inside).contains("a container (podman), a user namespace, a pid namespace"), "{}", said(&inside));
    }

    /// The kernel's own files, and this process, are the oracle.
    #[test]
    fn this_system_is_read() {
        let here = System::read();
        assert_eq!(format!("{}\n", here.kernel), fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux"));
        assert!(here.memory_files, "uu records on the machine that tests it");
        let said = std::process::Command::new("getconf").arg("GNU_LIBC_VERSION").output().expect("getconf");
        assert_eq!(format!("glibc {}\n", here.glibc.as_deref().expect("glibc")).as_bytes(), said.stdout);
        let text = describe();
        assert!(text.lines().all(|line| line.len() <= 140), "{text}");
    }
}
