//! The session and the facts, mapped; and the claiming of blocks. Claiming is usable in the child of a fork.

use core::ffi::{c_char, CStr};
use core::sync::atomic::Ordering;
use uunwind_ring::facts::{FactsView, FACTS_BYTES, PUBLISHED_BYTES};
use uunwind_ring::layout::*;
use uunwind_ring::tables::TablesView;

/// What [`uunwind_ring::ENV_SESSION`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Pid of the recorder.
    pub recorder: u32,
    /// Its fd of the session.
    pub session_fd: u32,
    /// Its fd of the facts.
    pub facts_fd: u32,
    /// Samples a second of CPU time.
    pub rate: u32,
    /// `uunwind_ring::FLAG_*`.
    pub flags: u32,
}

impl Setting {
    /// Parses five decimal numbers between colons.
    pub fn parse(text: &[u8]) -> Option<Setting> {
        let mut numbers = [0u32; 5];
        let mut parts = text.split(|b| *b == b':');
        for number in &mut numbers {
            let part = parts.next()?;
            if part.is_empty() {
                return None;
            }
            for b in part {
                let digit = b.checked_sub(b'0').filter(|d| *d < 10)?;
                *number = number.checked_mul(10)?.checked_add(u32::from(digit))?;
            }
        }
        let [recorder, session_fd, facts_fd, rate, flags] = numbers;
        (parts.next().is_none() && (1..=1_000_000).contains(&rate)).then_some(Setting {
            recorder,
            session_fd,
            facts_fd,
            rate,
            flags,
        })
    }
}

/// The mapped session.
#[derive(Clone, Copy)]
pub struct Session {
    base: *mut u8,
}

/// Maps `/proc/<pid>/fd/<fd>`; null when that fails (another user, another pid namespace, no memory).
fn map(pid: u32, fd: u32, bytes: usize, writable: bool) -> *mut u8 {
    let mut path = [0u8; 48];
    let mut len = 0;
    let mut append = |text: &[u8]| {
        for b in text {
            if let Some(place) = path.get_mut(len) {
                *place = *b;
                len += 1;
            }
        }
    };
    let mut digits = [0u8; 10];
    append(b"/proc/");
    append(decimal(pid, &mut digits));
    append(b"/fd/");
    append(decimal(fd, &mut digits));
    append(b"\0");
    let open = |mode: i32| {
        // SAFETY: a NUL-terminated path.
        unsafe {
            libc::open(path.as_ptr().cast::<c_char>(), mode | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY)
        }
    };
    // Looked at before it is opened for writing: the recorder may be gone, and its number another process's.
    let mut fd = checked(open(libc::O_RDONLY), bytes);
    if fd >= 0 && writable {
        // SAFETY: our own descriptor.
        unsafe { libc::close(fd) };
        fd = checked(open(libc::O_RDWR), bytes);
    }
    if fd < 0 {
        return core::ptr::null_mut();
    }
    let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    // SAFETY: the mapping is checked, and the fd closed again.
    unsafe {
        let at = libc::mmap(core::ptr::null_mut(), bytes, protection, libc::MAP_SHARED | libc::MAP_NORESERVE, fd, 0);
        libc::close(fd);
        if at == libc::MAP_FAILED {
            return core::ptr::null_mut();
        }
        libc::madvise(at, bytes, libc::MADV_DONTDUMP);
        at.cast()
    }
}

/// The descriptor, if it is the recorder's memory; else it is closed, and -1.
fn checked(fd: i32, bytes: usize) -> i32 {
    if fd >= 0 && !is_ours(fd, bytes) {
        // SAFETY: our own descriptor.
        unsafe { libc::close(fd) };
        return -1;
    }
    fd
}

/// Whether this is a memfd of the recorder's: of the right size, and sealed against shrinking, so that no access to the
/// mapping can fault.
fn is_ours(fd: i32, bytes: usize) -> bool {
    const F_GET_SEALS: i32 = 1034;
    const F_SEAL_SHRINK: i32 = 2;
    // SAFETY: an open descriptor and a place for its status.
    unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        let seals = libc::fcntl(fd, F_GET_SEALS);
        seals >= 0
            && seals & F_SEAL_SHRINK != 0
            && libc::fstat(fd, &raw mut status) == 0
            && status.st_size as u64 == bytes as u64
    }
}

fn decimal(mut n: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut first = digits.len();
    loop {
        first = first.saturating_sub(1);
        if let Some(place) = digits.get_mut(first) {
            *place = b'0' + (n % 10) as u8;
        }
        n /= 10;
        if n == 0 {
            break;
        }
    }
    digits.get(first..).unwrap_or(&[])
}

/// Maps the facts, and the rule tables behind them.
pub fn map_facts(setting: &Setting) -> Option<(FactsView, TablesView)> {
    let base = map(setting.recorder, setting.facts_fd, PUBLISHED_BYTES, false);
    if base.is_null() {
        return None;
    }
    // SAFETY: PUBLISHED_BYTES are mapped, for ever.
    unsafe { Some((FactsView::new(base)?, TablesView::new(base.add(FACTS_BYTES)))) }
}

impl Session {
    /// Maps the session, if it is one of this version.
    pub fn map(setting: &Setting) -> Option<Session> {
        let base = map(setting.recorder, setting.session_fd, SESSION_BYTES, true);
        if base.is_null() {
            return None;
        }
        let session = Session { base };
        let header = session.header();
        let known = header.magic == SESSION_MAGIC
            && header.version == SESSION_VERSION
            && header.block_bytes as usize == BLOCK_BYTES
            && header.blocks as usize == BLOCKS;
        if !known {
            // SAFETY: mapped above, and nobody has seen it.
            unsafe { libc::munmap(base.cast(), SESSION_BYTES) };
        }
        known.then_some(session)
    }

    /// The first page.
    pub fn header(&self) -> &'static SessionHeader {
        // SAFETY: SESSION_BYTES are mapped for ever; all shared fields are atomic.
        unsafe { &*self.base.cast() }
    }

    /// State of a block.
    pub fn state(&self, block: usize) -> Option<&'static core::sync::atomic::AtomicU32> {
        // SAFETY: the states are mapped for ever; the index is checked.
        (block < BLOCKS)
            .then(|| unsafe { &*self.base.add(STATES_OFFSET).cast::<core::sync::atomic::AtomicU32>().add(block) })
    }

    /// First byte of a block; null when there is no such block.
    pub fn block(&self, block: usize) -> *mut u8 {
        if block >= BLOCKS {
            return core::ptr::null_mut();
        }
        // SAFETY: the block lies inside the mapping.
        unsafe { self.base.add(DATA_OFFSET + block * BLOCK_BYTES) }
    }

    /// Claims a free block: at most [`BLOCKS`] probes. It stays CLAIMED until its header is written.
    pub fn claim(&self) -> Option<usize> {
        let header = self.header();
        let hint = header.claim_hint.fetch_add(1, Ordering::Relaxed) as usize;
        (0..BLOCKS).map(|i| hint.wrapping_add(i) % BLOCKS).find(|block| {
            self.state(*block).is_some_and(|state| {
                state.load(Ordering::Relaxed) == FREE
                    && state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
            })
        })
    }
}

/// The bytes of an environment variable.
pub fn environment(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: constructor context: nobody changes the environment yet.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: a non-null value is NUL-terminated and, in the initial environment, lives as long as the process.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        let setting = Setting { recorder: 12, session_fd: 3, facts_fd: 4, rate: 99, flags: 1 };
        assert_eq!(Setting::parse(b"12:3:4:99:1"), Some(setting));
        for bad in
            [&b""[..], b"1:2:3:4", b"1:2:3:4:5:6", b"1:2:3:0:5", b"a:2:3:4:5", b"99999999999:2:3:4:5", b"1::3:4:5"]
        {
            assert_eq!(Setting::parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
        let mut digits = [0; 10];
        for n in [0, 7, 10, 4_294_967_295u32] {
            assert_eq!(decimal(n, &mut digits), n.to_string().as_bytes());
        }
    }
}
