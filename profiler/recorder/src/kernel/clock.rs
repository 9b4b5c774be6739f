//! Perf events as the clock of all threads, beside their timers: one for each thread that the recorder learns of. A
//! thread's timer times its samples until its event has come for the first time.

use super::event::Event;
use super::filter::Filter;
use super::functions::KernelFunctions;
use super::grant::Granted;
use super::opener::Opener;
use super::stitch::Stitch;
use crate::machine::kernel_hz;
use crate::survey::{has_mapping, SESSION_MAPPING};
use rustix::process::{getrlimit, Resource};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use uunwind_core::frame::semantic_word;
use uunwind_recording::{Name, KERNEL};
use uunwind_ring::samples::Words;

/// The first version of Linux in which a filter keeps back an event's signal, too (6.11), and in which the end of an
/// event whose signal is due does not wait for its thread ("perf: Fix hang while freeing sigtrap event").
const LINUX: (u32, u32) = (6, 15);
/// The first id of the names of kernel functions, above those that a process and a watcher give to names.
const IDS: u32 = 3 << 30;

/// What all events have in common.
pub struct KernelClock {
    opener: Opener,
    stacks: bool,
    period: u64,
    /// Length of the kernel's tick, in ns.
    tick: u64,
    failed: Option<(u64, io::Error)>,
    /// As many events as live have a copy.
    token: Arc<()>,
    /// Most events at once: half of the files that uu may open.
    most: usize,
    functions: Option<KernelFunctions>,
    /// Names by the addresses of their functions.
    ids: HashMap<u64, u32>,
    /// Process and id of each name that was written.
    written: HashSet<(u32, u32)>,
}

impl KernelClock {
    /// For this rate. `stacks`: samples have their stacks in the kernel. `helper`: where a process with rights listens
    /// that opens events ([`super::helper`]). `may_be_partial`: events of the user mode are better than none. Fails
    /// with a reason for people; the second value is what is missing, for people, too.
    pub fn new(
        rate: u32,
        stacks: bool,
        helper: Option<&Path>,
        may_be_partial: bool,
    ) -> Result<(KernelClock, Option<String>), String> {
        if linux().is_some_and(|version| version < LINUX) {
            return Err(format!("the kernel is older than Linux {}.{}", LINUX.0, LINUX.1));
        }
        // Above it, the kernel leaves samples out.
        let most = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap_or_default();
        if most.trim().parse().is_ok_and(|most: u32| most < rate) {
            return Err(format!("kernel.perf_event_max_sample_rate is {}, below {rate}; raise it", most.trim()));
        }
        let period = 1_000_000_000 / u64::from(rate.max(1));
        let tries = |opener: Opener| match opener.open(std::process::id(), period, stacks) {
            Ok(_) => Ok(opener),
            Err(e) => Err(refused("perf_event_open", &e)),
        };
        let full = match helper {
            Some(path) => Granted::connect(path)
                .map_err(|e| format!("{}: {}", path.display(), connecting(&e)))
                .and_then(|granted| tries(Opener::Helper(granted)).map_err(|e| format!("{}: {e}", path.display()))),
            None => Filter::load().map_err(|e| refused("bpf", &e)).and_then(|filter| tries(Opener::Own(filter))),
        };
        let (opener, missing) = match full {
            Ok(opener) => (opener, None),
            // The handler recognises a system call on this machine only.
            Err(why) if may_be_partial && cfg!(target_arch = "x86_64") => match tries(Opener::UserMode) {
                Ok(opener) => (opener, Some(partial(&why, stacks))),
                Err(_) => return Err(why),
            },
            Err(why) => return Err(why),
        };
        let clock = KernelClock {
            // Now, since it takes longer than a ring has room for.
            functions: (stacks && !opener.is_user_mode()).then(|| opener.functions()),
            opener,
            stacks,
            period,
            tick: 1_000_000_000 / u64::from(kernel_hz().max(1)),
            failed: None,
            token: Arc::new(()),
            most: getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize / 2),
            ids: HashMap::new(),
            written: HashSet::new(),
        };
        Ok((clock, missing))
    }

    /// Whether the events sample the user mode alone.
    pub fn is_user_mode(&self) -> bool {
        self.opener.is_user_mode()
    }

    fn periods(&self, time: u64) -> u32 {
        u32::try_from((time + self.period / 2) / self.period).unwrap_or(u32::MAX)
    }

    fn open(&self, tid: u32) -> io::Result<Event> {
        self.opener.open(tid, self.period, self.stacks)
    }

    /// Begins to time a thread. `armed`: its CPU time when its timer began, in ns; 0: it has not. `None`: it keeps its
    /// timer.
    pub fn begin(&mut self, pid: u32, tid: u32, armed: u64) -> Option<Stitch> {
        let open = || match Arc::strong_count(&self.token) > self.most {
            true => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            false => self.open(tid),
        };
        let begun = open().and_then(|event| {
            // A target may write any numbers into its block, and the signal of an event kills a thread that has no
            // handler. Looked at after the event was opened: if the thread executes another program from now on, the
            // event ends.
            if !handles_sigtrap(pid, tid)? || has_mapping(pid, SESSION_MAPPING) != Some(true) {
                return Ok(None);
            }
            event.start()?;
            Ok(Some(event))
        });
        match begun {
            Ok(event) => {
                let used = if armed == 0 { 0 } else { cpu(pid, tid).saturating_sub(armed) };
                let token = Arc::clone(&self.token);
                let (before, tick) = (self.periods(used), self.periods(self.tick));
                let user_mode = self.is_user_mode().then_some(self.period);
                Some(Stitch::new(event?, before, tick, user_mode, token))
            }
            Err(e) if matches!(e.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)) => None,
            Err(e) => {
                self.failed.get_or_insert((0, e)).0 += 1;
                None
            }
        }
    }

    /// A line for people about threads that got no event.
    pub fn trouble(&self) -> Option<String> {
        let (threads, error) = self.failed.as_ref()?;
        Some(format!("{threads} threads got no perf event and were timed by the kernel's tick: {error}"))
    }

    /// The frames of these addresses, leaf first. `name` is given each name that the process did not have yet.
    pub fn frames(&mut self, process: u32, addresses: &[u64], mut name: impl FnMut(&Name)) -> Vec<Words> {
        let functions = self.functions.get_or_insert_with(|| self.opener.functions());
        let frame = |(at, address): (usize, &u64)| {
            // All but the innermost are return addresses.
            let function = functions.at(address.wrapping_sub(u64::from(at > 0)));
            let start = function.map_or(0, |function| function.start);
            let next = IDS.saturating_add(self.ids.len() as u32);
            let id = *self.ids.entry(start).or_insert(next);
            if self.written.insert((process, id)) {
                let (text, file) = function.map_or(("[unknown]", ""), |f| (f.name.as_str(), f.module.as_str()));
                let (text, file) = (text.to_owned(), file.to_owned());
                name(&Name { process, id, plugin: KERNEL.into(), code: start, name: text, file, ..Name::default() });
            }
            Words { word: semantic_word(KERNEL, id), second: 0 }
        };
        addresses.iter().enumerate().map(frame).collect()
    }
}

/// Why this call failed, for people.
fn refused(call: &str, error: &io::Error) -> String {
    let needs = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; it takes root, or CAP_PERFMON and CAP_BPF, or `uu kernel-events`",
        _ => "",
    };
    format!("{call}: {error}{needs}")
}

/// Why a connection to a helper failed, for people.
fn connecting(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => "it is not root that listens there".to_owned(),
        Some(libc::ESRCH) => "it is in another pid namespace; run both in the same one".to_owned(),
        Some(libc::ENOENT | libc::ECONNREFUSED) => format!("{error}; start `uu kernel-events` as root"),
        Some(libc::EACCES) => format!("{error}; `uu kernel-events --user` says who may connect"),
        _ => error.to_string(),
    }
}

/// What events of the user mode lack, for people.
fn partial(why: &str, stacks: bool) -> String {
    let without = if stacks { ". Kernel frames are left out" } else { "" };
    format!(
        "perf events sample the user mode alone ({why}): system calls are sampled at the kernel's tick, and other time \
         in the kernel, such as that of page faults, stands apart{without}"
    )
}

/// The kernel's version.
fn linux() -> Option<(u32, u32)> {
    let name = rustix::system::uname();
    let mut parts = name.release().to_str().ok()?.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Whether the thread's program handles SIGTRAP
/// ([proc_pid_status(5)](https://man7.org/linux/man-pages/man5/proc_pid_status.5.html)).
fn handles_sigtrap(pid: u32, tid: u32) -> io::Result<bool> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"))?;
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    Ok(caught & 1 << (libc::SIGTRAP - 1) != 0)
}

/// CPU time of a thread, in ns; 0 if it cannot be read.
fn cpu(pid: u32, tid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0)
}
