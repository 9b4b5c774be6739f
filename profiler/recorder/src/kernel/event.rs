//! A CPU-clock event for one thread, and its ring
//! ([perf_event_open(2)](https://man7.org/linux/man-pages/man2/perf_event_open.2.html)).
//!
//! The clock of such an event is a high-resolution timer that runs while the thread does, so its rate is not bound to
//! the kernel's tick. The event ends with the last descriptor of it, also when the recorder is killed, and when the
//! thread calls exec.
//!
//! Each sample of a [signalling](Event::signalling) one also makes the kernel send SIGTRAP to the thread, before it
//! executes another instruction in user mode. Unlike the signals of F_SETSIG, this one does not end a system call
//! early: it is sent when the thread is on its way back.

use super::filter::Filter;
use super::records::{records, PerfRecord, SAMPLE_TYPE, USER_REGISTERS};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// `struct perf_event_attr` up to `sig_data` (PERF_ATTR_SIZE_VER7).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
    aux_sample_size: u32,
    reserved_too: u32,
    sig_data: u64,
}

const _: () = assert!(size_of::<Attributes>() == 128);

const TYPE_SOFTWARE: u32 = 1;
const COUNT_SW_CPU_CLOCK: u64 = 0;
/// Counts nothing.
const COUNT_SW_DUMMY: u64 = 9;
/// Bits of the word of flags.
const DISABLED: u64 = 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
const USE_CLOCKID: u64 = 1 << 25;
const CONTEXT_SWITCH: u64 = 1 << 26;
/// Linux 5.13.
const REMOVE_ON_EXEC: u64 = 1 << 36;
const SIGTRAP: u64 = 1 << 37;
/// PERF_FLAG_FD_CLOEXEC.
const FD_CLOEXEC: usize = 1 << 3;

/// Pages of a ring's records, a power of two: 64 KiB hold 0.1 s of stacks of 80 frames at 1 kHz.
const PAGES: usize = 16;
/// The same for rates above that.
const MANY_PAGES: usize = 64;
/// The same for events of the user mode, whose samples have no stacks: 0.1 s at 10 kHz. Less memory, of which one
/// without rights may lock little.
pub const USER_MODE_PAGES: usize = 16;
/// The same for a thread's switches: 1,300 of them.
const SWITCH_PAGES: usize = 8;
/// Offsets in the page before the records (`struct perf_event_mmap_page`).
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// What an event may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// The thread in user mode and in the kernel.
    All,
    /// The thread in user mode only: time in the kernel is in no sample.
    UserMode,
}

/// What an event that signals its thread samples.
#[derive(Clone, Copy)]
pub enum Signalling<'a> {
    /// The thread in user mode and in the kernel.
    All {
        /// No sample is taken, and no signal sent, where this one says so.
        filter: &'a Filter,
        /// The samples have the stack in the kernel.
        stacks: bool,
    },
    /// The thread in user mode only, so that it needs no filter: no signal becomes due inside exec. The kernel asks for
    /// no rights beyond those to trace the thread, unless kernel.perf_event_paranoid is above 2.
    UserMode,
}

/// An event and its ring.
pub struct Event {
    fd: OwnedFd,
    base: *mut u8,
    bytes: usize,
    /// Bytes of records.
    ring: usize,
    tail: u64,
    /// Records that were damaged; the kernel writes none.
    pub damaged: u64,
}

// SAFETY: the mapping is the event's own, and may be read and unmapped by any thread.
unsafe impl Send for Event {}

impl Event {
    /// Begins to sample the thread, once in `period` nanoseconds of its CPU time. Fails with EACCES or EPERM where the
    /// kernel does not allow it (perf_event_paranoid, a thread of another user), with EINVAL before Linux 5.13.
    pub fn open(tid: u32, period: u64, sees: Sees) -> io::Result<Event> {
        let hidden = if sees == Sees::UserMode { EXCLUDE_KERNEL } else { 0 };
        let attributes = Attributes { sample_period: period, flags: hidden, ..Attributes::default() };
        Event::map(Event::make(tid, attributes)?, Event::pages(period))
    }

    /// The descriptor of an event that signals the thread, with `data` as the signal's `si_perf_data`. It does not
    /// begin before [`Event::start`], nor in another program that the thread has executed by then.
    pub fn signalling(tid: u32, period: u64, data: u64, what: Signalling<'_>) -> io::Result<OwnedFd> {
        let hidden = match what {
            Signalling::All { stacks: true, .. } => 0,
            Signalling::All { stacks: false, .. } => EXCLUDE_CALLCHAIN_KERNEL,
            Signalling::UserMode => EXCLUDE_KERNEL | EXCLUDE_CALLCHAIN_KERNEL,
        };
        let flags = hidden | DISABLED | SIGTRAP;
        let attributes = Attributes {
            config: COUNT_SW_CPU_CLOCK,
            sample_period: period,
            flags,
            sig_data: data,
            ..Attributes::default()
        };
        let fd = Event::make(tid, attributes)?;
        if let Signalling::All { filter, .. } = what {
            filter.attach(fd.as_fd())?;
        }
        Ok(fd)
    }

    /// Begins to record when the thread is taken off its CPU, and given one. The kernel asks for no rights beyond those
    /// to trace the thread, unless kernel.perf_event_paranoid is above 2.
    pub fn switches(tid: u32) -> io::Result<Event> {
        let attributes =
            Attributes { config: COUNT_SW_DUMMY, flags: EXCLUDE_KERNEL | CONTEXT_SWITCH, ..Attributes::default() };
        Event::map(Event::make(tid, attributes)?, SWITCH_PAGES)
    }

    /// Pages of the ring of an event with stacks in the kernel, for this period.
    pub fn pages(period: u64) -> usize {
        if period < 1_000_000 {
            MANY_PAGES
        } else {
            PAGES
        }
    }

    /// The descriptor of an event with these attributes, those that all have apart.
    fn make(tid: u32, attributes: Attributes) -> io::Result<OwnedFd> {
        let shared = EXCLUDE_HYPERVISOR | SAMPLE_ID_ALL | EXCLUDE_CALLCHAIN_USER | USE_CLOCKID | REMOVE_ON_EXEC;
        let attributes = Attributes {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            sample_type: SAMPLE_TYPE,
            flags: attributes.flags | shared,
            sample_regs_user: USER_REGISTERS,
            clockid: libc::CLOCK_MONOTONIC,
            ..attributes
        };
        // SAFETY: a valid structure of the size that stands in it; any CPU, no group.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, tid, -1, -1, FD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that the kernel has just made, owned by nobody else.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }

    /// The event with this descriptor, and a new ring of this number of pages, a power of two.
    pub fn map(fd: OwnedFd, pages: usize) -> io::Result<Event> {
        let page = rustix::param::page_size();
        let bytes = (1 + pages) * page;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Event { fd, base: base.cast(), bytes, ring: pages * page, tail: 0, damaged: 0 })
    }

    /// Begins to sample, for an event that waits for it.
    pub fn start(&self) -> io::Result<()> {
        const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
        // SAFETY: an ioctl of this kind of descriptor, which takes a number.
        match unsafe { libc::ioctl(self.fd.as_raw_fd(), PERF_EVENT_IOC_ENABLE as _, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// How full the ring is, in percent.
    pub fn fullness(&self) -> u64 {
        let head = self.word(DATA_HEAD).load(Ordering::Acquire);
        head.wrapping_sub(self.tail).saturating_mul(100) / self.ring as u64
    }

    /// Takes all records out of the ring.
    pub fn drain(&mut self, mut record: impl FnMut(PerfRecord)) {
        let head = self.word(DATA_HEAD).load(Ordering::Acquire);
        let length = (head.wrapping_sub(self.tail) as usize).min(self.ring);
        let mut bytes = Vec::with_capacity(length);
        let first = self.tail as usize % self.ring;
        let records_at = self.bytes - self.ring;
        for at in (0..length).step_by(8) {
            let word = self.word(records_at + (first + at) % self.ring).load(Ordering::Relaxed);
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        self.tail = head;
        self.word(DATA_TAIL).store(head, Ordering::Release);
        for found in records(&bytes) {
            match found {
                Ok(found) => record(found),
                Err(_) => self.damaged += 1,
            }
        }
    }

    /// Stops the sampling; what the ring holds stays.
    pub fn stop(&self) {
        const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;
        // SAFETY: an ioctl of this kind of descriptor, which takes a number.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), PERF_EVENT_IOC_DISABLE as _, 0) };
    }

    /// The word at `offset`, which lies in the mapping and is a multiple of 8.
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.bytes);
        // SAFETY: inside the mapping, aligned, and the kernel writes to it as another process would.
        unsafe { &*self.base.add(offset).cast::<AtomicU64>() }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: `open` made this mapping, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests;
