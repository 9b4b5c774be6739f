//! Which block belongs to which process and thread, and when it may be used again.

use crate::child::{self, pidfd};
use crate::ended::wait_status;
use crate::free_reader::FreeReader;
use crate::kernel::records::UserAt;
use crate::kernel::stitch::Stitch;
use crate::machine;
use crate::mappings::Mappings;
use crate::ring_reader::RingReader;
use crate::samples::Samples;
use crate::session::Session;
use crate::survey::{has_mapping, see, Id, Seen, SESSION_MAPPING};
use crate::thread_ids::ThreadIds;
use crate::thread_names::ThreadNames;
use rustix::io::Errno;
use rustix::process::test_kill_process;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use uunwind_core::plugin::trimmed;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::EMBEDDER;
use uunwind_elf::process;
use uunwind_recording::{Counters, LockWait, Process};
use uunwind_ring::layout::{ProcessBlock, PLUGIN_OFF};

/// Bytes of a command line that are kept.
const COMMAND_BYTES: u64 = 4096;

/// A process whose block is in use.
pub struct ProcessUse {
    /// Index in the recording.
    pub index: u32,
    /// Process id.
    pub pid: u32,
    /// Time at which the block was claimed (CLOCK_MONOTONIC, ns).
    pub start: u64,
    /// Start time in ticks since boot, which distinguishes it from other processes with this pid. `None` when it was
    /// gone before its block was seen.
    began: Option<u64>,
    /// Another process had the same pid when the block was seen.
    reused: bool,
    pidfd: Option<OwnedFd>,
    /// Path of its executable, read while the process lived; empty when it was gone before.
    pub exe: Vec<u8>,
    /// It had ended when its block was seen, and its first object, the program, has not been read yet.
    pub is_unnamed: bool,
    /// Rings of its threads that were found damaged.
    pub damaged_rings: u64,
    /// Records of its threads that could not be understood.
    pub damaged_records: u64,
    /// Bytes of the records of its threads' samples.
    pub sample_bytes: u64,
    /// Periods that the samples of its timers stand for.
    pub periods: u64,
    /// CPU time of its threads before their sampling began that neither a sample nor a start stands for, in ns.
    pub cpu_before: u64,
    /// Time for which its threads that have ended could run and had no processor, in ns.
    pub run_delay: u64,
    /// Plugins as last written to the recording: a process may open them after its claim.
    pub plugins: Vec<String>,
    /// Looks for the names that languages have for its threads.
    pub thread_names: ThreadNames,
    /// Ids of its threads, if it is in another pid namespace.
    pub thread_ids: Option<ThreadIds>,
    /// Reads what it frees.
    pub frees: FreeReader,
    /// What it has mapped.
    pub mappings: Mappings,
}

/// A thread whose block is in use.
pub struct ThreadUse {
    /// Index in the recording.
    pub index: u32,
    /// Block of its process.
    pub process_block: usize,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Its id in its own pid namespace.
    pub own_tid: u32,
    /// Reading end of its ring.
    pub reader: RingReader,
    /// Decodes its samples.
    pub samples: Samples,
    /// Losses already written to the recording: samples and weight.
    pub lost: (u64, u64),
    /// The name that its language has for it.
    pub language_name: Option<String>,
    /// Number of looks for such a name.
    pub looks: u8,
    /// Its name was read again after its first sample.
    pub renamed: bool,
    /// It has a sample, or has lost one.
    pub is_sampled: bool,
    /// For how long it could run and had no processor (ns), as the kernel said at the first look and at the last one.
    pub run_delays: Option<(u64, u64)>,
    /// CPU time that it had used by the last look (ns).
    pub cpu: u64,
    /// When its block was claimed (CLOCK_MONOTONIC, ns).
    pub began: u64,
    /// CPU time that it had used by then (ns); 0: not known.
    pub cpu_before: u64,
    /// Where it was interrupted for its next sample.
    pub place: Option<UserAt>,
    /// Of what allocation its next sample is: number and size.
    pub allocation: Option<(u64, u64)>,
    /// Of what wait its next sample is.
    pub wait: Option<LockWait>,
    /// The samples that a perf event takes of it.
    pub stitch: Option<Box<Stitch>>,
}

/// The use of a block. Small, as each pass goes through those of all blocks.
pub enum Use {
    /// The block belongs to a process.
    Process(Box<ProcessUse>),
    /// The block belongs to a thread.
    Thread(Box<ThreadUse>),
}

impl ProcessUse {
    /// Takes over a process block that was just seen.
    pub fn new(index: u32, header: &ProcessBlock, exe: Vec<u8>) -> ProcessUse {
        let pidfd = pidfd(header.pid).ok();
        // Read after the descriptor was opened: a process that began before the claim has had the pid all the time.
        let seen = see(header.pid);
        let reused = seen.as_ref().is_some_and(|seen| is_later(seen, header.start_time));
        let began = seen.filter(|_| !reused).map(|seen| seen.start);
        ProcessUse {
            index,
            pid: header.pid,
            start: header.start_time,
            began,
            reused,
            pidfd: pidfd.filter(|_| !reused),
            exe,
            is_unnamed: false,
            damaged_rings: 0,
            damaged_records: 0,
            sample_bytes: 0,
            periods: 0,
            cpu_before: 0,
            run_delay: 0,
            plugins: plugins(header),
            thread_names: ThreadNames::default(),
            thread_ids: None,
            frees: FreeReader::default(),
            mappings: Mappings::default(),
        }
    }

    /// A descriptor that becomes readable when the process ends
    /// ([pidfd_open(2)](https://man7.org/linux/man-pages/man2/pidfd_open.2.html)).
    pub fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// Identity of the process, also after its pid was reused. `None` when it was gone before its block was seen.
    pub fn id(&self) -> Option<Id> {
        Some((self.pid, self.began?))
    }

    /// Whether the process has ended, according to the kernel.
    pub fn is_gone(&self) -> bool {
        let is_other = |seen: Seen| self.began.is_some_and(|began| began != seen.start);
        // For a process of another user the call fails with EPERM, so it exists.
        let is_free = || child::process(self.pid).is_ok_and(|pid| test_kill_process(pid) == Err(Errno::SRCH));
        match &self.pidfd {
            _ if self.reused => true,
            Some(fd) => child::wait([fd.as_fd()], 0) == [true],
            None => is_free() || see(self.pid).is_some_and(is_other),
        }
    }

    /// Its raw wait status; `None` while it runs, or if it is not known.
    pub fn wait_status(&self) -> Option<i32> {
        self.is_gone().then(|| wait_status(self.pid, self.poll_fd()))?
    }

    /// Its counters, from a copy of its block's header.
    pub fn counters(&self, header: &ProcessBlock) -> Counters {
        let get = |counter: &std::sync::atomic::AtomicU32| u64::from(counter.load(Ordering::Relaxed));
        Counters {
            timers_failed: get(&header.timers_failed),
            nested: get(&header.nested),
            small_stack: get(&header.small_stack),
            faults_contained: get(&header.faults_contained),
            names_lost: get(&header.names_lost),
            reserved: 0,
            objects_full: get(&header.objects_full),
            disabled: get(&header.disabled),
            cpu_ended: header.cpu_ended.load(Ordering::Relaxed),
            damaged_rings: self.damaged_rings,
            damaged_records: self.damaged_records,
            frames_emitted: header.frames_emitted.load(Ordering::Relaxed),
            frames_reused: header.frames_reused.load(Ordering::Relaxed),
            interpreted: header.interpreted.load(Ordering::Relaxed),
            frames_lost: get(&header.frames_lost),
            sample_bytes: self.sample_bytes,
            cpu_before: self.cpu_before,
            run_delay: self.run_delay,
            allocations_lost: header.events_lost.load(Ordering::Relaxed),
            allocated_lost: header.events_lost_size.load(Ordering::Relaxed),
            untracked: header.untracked.load(Ordering::Relaxed),
            paused: header.paused_periods.load(Ordering::Relaxed),
            // Written at the end of the recording, when all of it is known.
            waits_unseen: 0,
            frees_unseen: header.frees_unseen.load(Ordering::Relaxed),
            frees_lost: header
                .frees_lost
                .load(Ordering::Relaxed)
                .saturating_add(self.frees.lost)
                .saturating_add(self.mappings.lost),
        }
    }
}

/// Whether a process is a later one than the process with the same pid that claimed a block at this time
/// (CLOCK_MONOTONIC, ns). The times of a process in another [time
/// namespace](https://man7.org/linux/man-pages/man7/time_namespaces.7.html) cannot be compared, but it still has the
/// session mapped.
fn is_later(seen: &Seen, claimed: u64) -> bool {
    seen.start > machine::ticks_since_boot(claimed)
        && has_mapping(seen.pid, SESSION_MAPPING) == Some(false)
        && seen.is_there()
}

/// The process as it is written to the recording.
pub fn describe(header: &ProcessBlock) -> Process {
    let exe = std::fs::read_link(process::file(header.pid, "exe")).ok();
    let exe = exe.map_or_else(Vec::new, |path| path.into_os_string().into_encoded_bytes());
    Process {
        pid: header.pid,
        parent: header.parent,
        origin: header.origin,
        start: header.start_time,
        exe,
        plugins: plugins(header),
        command: command(header.pid),
    }
}

/// The command line of a process, or its beginning; empty if it is gone.
fn command(pid: u32) -> Vec<Vec<u8>> {
    let mut line = Vec::new();
    let file = std::fs::File::open(process::file(pid, "cmdline"));
    let _ = file.and_then(|file| file.take(COMMAND_BYTES).read_to_end(&mut line));
    Process::words(&line)
}

/// Names of a process's plugins by index.
pub fn plugins(header: &ProcessBlock) -> Vec<String> {
    header.plugins.iter().map(|name| String::from_utf8_lossy(trimmed(name)).into_owned()).collect()
}

/// Failures of a process's plugins, one line for each plugin.
pub fn plugin_failures(header: &ProcessBlock) -> Vec<String> {
    let counts = header.plugin_failures.iter().zip(&header.plugin_reasons).zip(&header.plugins);
    let line = |(index, ((failures, reason), name)): (usize, ((&AtomicU32, &AtomicU32), &[u8; 16]))| {
        let (failures, reason) = (failures.load(Ordering::Relaxed), reason.load(Ordering::Relaxed));
        let last = StopReason::from_number((reason & !PLUGIN_OFF) as u16).map_or("unknown reason", StopReason::text);
        let who = match trimmed(name) {
            b"" if index == usize::from(EMBEDDER) => "the reading of an embedder's frames".to_owned(),
            b"" => "a window's function".to_owned(),
            name => format!("plugin \"{}\"", String::from_utf8_lossy(name)),
        };
        let off = if reason & PLUGIN_OFF == 0 { "" } else { ", and was switched off there" };
        let times = if failures == 1 { "once" } else { &format!("{failures} times") };
        (failures > 0).then(|| format!("{who} failed {times} in process {} (last: {last}){off}", header.pid))
    };
    counts.enumerate().filter_map(line).collect()
}

impl ThreadUse {
    /// Whether the thread is gone without having marked its block as ended: killed by another thread's exec, or ended
    /// by a raw exit call.
    pub fn is_gone(&self) -> bool {
        // SAFETY: signal 0 sends nothing.
        let result = unsafe { libc::syscall(libc::SYS_tgkill, self.pid, self.tid, 0) };
        result != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
    }

    /// Losses (samples, weight) in the counters of its block that are not written to the recording yet.
    pub fn new_losses(&mut self, session: &Session, block: usize) -> Option<(u64, u64)> {
        let header = session.thread(block)?;
        let now = (header.lost.load(Ordering::Relaxed), header.lost_weight.load(Ordering::Relaxed));
        let new = (now.0.saturating_sub(self.lost.0), now.1.saturating_sub(self.lost.1));
        self.lost = (now.0.max(self.lost.0), now.1.max(self.lost.1));
        (new != (0, 0)).then_some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_block_is_not_that_of_the_next_process_with_its_pid() {
        let mut cat = Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
        let session = Session::create(16).expect("memfd");
        let header = |start_time| ProcessBlock { pid: cat.id(), start_time, ..session.process(0).expect("a block") };
        // It began after the time 0, and has no session mapped.
        let before = ProcessUse::new(0, &header(0), Vec::new());
        assert!(before.is_gone() && before.id().is_none() && before.poll_fd().is_none());
        let claimed = ProcessUse::new(0, &header(machine::monotonic()), Vec::new());
        assert!(!claimed.is_gone());
        assert_eq!(claimed.id(), see(cat.id()).map(|seen| seen.id()));
        // Where the kernel has no such descriptors.
        let same = ProcessUse { pidfd: None, ..claimed };
        assert!(!same.is_gone());
        assert!(ProcessUse { began: same.began.map(|began| began - 1), ..same }.is_gone());
        drop(cat.stdin.take());
        let _ = cat.wait();
    }
}
