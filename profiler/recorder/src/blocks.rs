//! Which block belongs to which process and thread, and when it may be used again.

use crate::child::pidfd;
use crate::ring_reader::RingReader;
use crate::session::Session;
use crate::strays::Suspect;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use uunwind_core::plugin::trimmed;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::EMBEDDER;
use uunwind_report::recording::{Counters, Process};
use uunwind_ring::layout::{ProcessBlock, PLUGIN_OFF};

/// A process whose block is in use.
pub struct ProcessUse {
    /// Index in the recording.
    pub index: u32,
    /// Process id.
    pub pid: u32,
    /// Time of the claim.
    pub start: u64,
    pidfd: Option<OwnedFd>,
    /// Its executable, read while it lived; empty when it was gone before.
    pub exe: Vec<u8>,
    /// Whether it is another program by now.
    pub suspect: Suspect,
    /// Rings of its threads that were found damaged.
    pub damaged_rings: u64,
    /// Records of its threads that could not be understood.
    pub damaged_records: u64,
    /// Plugins as last written to the recording: a process may open them after its claim.
    pub plugins: Vec<String>,
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
    /// Reading end of its ring.
    pub reader: RingReader,
    /// Losses already written: samples and weight.
    pub lost: (u64, u64),
    /// Its name was looked at again, behind its first sample.
    pub renamed: bool,
}

/// What a block is used for.
pub enum Use {
    /// By a process.
    Process(ProcessUse),
    /// By a thread.
    Thread(ThreadUse),
}

impl ProcessUse {
    /// Takes over a process block that was just seen.
    pub fn new(index: u32, header: &ProcessBlock, exe: Vec<u8>) -> ProcessUse {
        ProcessUse {
            index,
            pid: header.pid,
            start: header.start_time,
            pidfd: pidfd(header.pid).ok(),
            exe,
            suspect: Suspect::default(),
            damaged_rings: 0,
            damaged_records: 0,
            plugins: plugins(header),
        }
    }

    /// A descriptor that becomes readable at its end.
    pub fn poll_fd(&self) -> Option<i32> {
        self.pidfd.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Whether it has ended: asked of the kernel.
    pub fn is_gone(&self) -> bool {
        match &self.pidfd {
            Some(fd) => crate::child::wait(&[fd.as_raw_fd()], 0) == [true],
            // SAFETY: signal 0 sends nothing.
            None => unsafe { libc::kill(self.pid as libc::pid_t, 0) != 0 },
        }
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
            desync: get(&header.desync),
            objects_full: get(&header.objects_full),
            disabled: get(&header.disabled),
            cpu_ended: header.cpu_ended.load(Ordering::Relaxed),
            damaged_rings: self.damaged_rings,
            damaged_records: self.damaged_records,
            frames_told: header.frames_told.load(Ordering::Relaxed),
            frames_reused: header.frames_reused.load(Ordering::Relaxed),
            interpreted: header.interpreted.load(Ordering::Relaxed),
            frames_lost: get(&header.frames_lost),
        }
    }
}

/// The process as it stands in the recording.
pub fn describe(header: &ProcessBlock) -> Process {
    let exe = std::fs::read_link(format!("/proc/{}/exe", header.pid)).ok();
    let exe = exe.map_or_else(Vec::new, |path| path.into_os_string().into_encoded_bytes());
    Process {
        pid: header.pid,
        parent: header.parent,
        origin: header.origin,
        start: header.start_time,
        exe,
        plugins: plugins(header),
    }
}

/// Names of a process's plugins by index.
pub fn plugins(header: &ProcessBlock) -> Vec<String> {
    header.plugins.iter().map(|name| String::from_utf8_lossy(trimmed(name)).into_owned()).collect()
}

/// What went wrong in a process's plugins, one line each.
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
    /// Whether the thread is gone without having said so: killed with its siblings by an exec, or left by a raw exit.
    pub fn is_gone(&self) -> bool {
        // SAFETY: signal 0 sends nothing.
        let result = unsafe { libc::syscall(libc::SYS_tgkill, self.pid, self.tid, 0) };
        result != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
    }

    /// Losses not yet written, by the counters in its block.
    pub fn new_losses(&mut self, session: &Session, block: usize) -> Option<(u64, u64)> {
        let header = session.thread(block)?;
        let now = (header.lost.load(Ordering::Relaxed), header.lost_weight.load(Ordering::Relaxed));
        let new = (now.0.saturating_sub(self.lost.0), now.1.saturating_sub(self.lost.1));
        self.lost = (now.0.max(self.lost.0), now.1.max(self.lost.1));
        (new != (0, 0)).then_some(new)
    }
}
