//! Maps the session and the facts, and claims blocks. Claiming is async-signal-safe, for the child of a fork.

use crate::elsewhere::Files;
use core::ffi::CStr;
use core::sync::atomic::Ordering;
use uunwind_core::syscall::{self, nr};
use uunwind_ring::code_rules::CodeRulesView;
use uunwind_ring::facts::{tables_in, FactsView, CODE_RULES_OFFSET, TABLES_OFFSET};
use uunwind_ring::layout::*;
use uunwind_ring::tables::TablesView;

/// The settings in the environment variable [`uunwind_ring::ENV_SESSION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Pid of the recorder.
    pub recorder: u32,
    /// The recorder's fd of the session's memory.
    pub session_fd: u32,
    /// The recorder's fd of the memory with facts and rule tables.
    pub facts_fd: u32,
    /// Samples a second of CPU time; of events bytes or ns from a sample to the next, on average.
    pub rate: u32,
    /// `uunwind_ring::FLAG_*`.
    pub flags: u32,
}

impl Setting {
    /// CPU time from a tick of a thread's timer to the next, in ns.
    pub fn period(&self) -> u64 {
        1_000_000_000 / u64::from(self.rate.max(1))
    }

    /// Whether `/proc` has the recorder, with the facts that it keeps open; `None` where it may not be looked at.
    /// Async-signal-safe.
    pub fn recorder_is_here(&self) -> Option<bool> {
        const NAME: &[u8] = b"/memfd:uu-facts";
        let path = path_of(self.recorder, self.facts_fd);
        let mut link = [0u8; 16];
        let arguments = [libc::AT_FDCWD as usize, path.as_ptr() as usize, link.as_mut_ptr() as usize, link.len(), 0, 0];
        // SAFETY: a NUL-terminated path, and a buffer of that length.
        let read = unsafe { syscall::call(nr::READLINKAT, arguments) };
        match usize::try_from(read) {
            Ok(length) => Some(link.get(..length).is_some_and(|link| link.starts_with(NAME))),
            Err(_) if read == -(libc::ENOENT as isize) => Some(false),
            Err(_) => None,
        }
    }

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
        let highest = if crate::events::are_sampled(flags) { u32::MAX } else { 1_000_000 };
        (parts.next().is_none() && (1..=highest).contains(&rate)).then_some(Setting {
            recorder,
            session_fd,
            facts_fd,
            rate,
            flags,
        })
    }
}

/// The mapped session: shared memory in which this process writes its records.
#[derive(Clone, Copy)]
pub struct Session {
    base: *mut u8,
    /// Not the header's number, which other processes can change.
    blocks: usize,
}

/// Memory of the recorder's, mapped here.
struct Mapping {
    base: *mut u8,
    bytes: usize,
}

/// How the recorder's memory is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    /// For writing, and the recorder may be gone, so that its pid may belong to another process.
    WriteIfFile,
}

/// `/proc/<pid>/fd/<fd>`, with a NUL after it.
fn path_of(pid: u32, fd: u32) -> [u8; 48] {
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
    path
}

/// A file of the recorder's.
#[derive(Clone, Copy)]
enum Place {
    /// [`/proc/<pid>/fd/<fd>`](https://man7.org/linux/man-pages/man5/proc_pid_fd.5.html).
    Proc(u32, u32),
    /// A descriptor of our own, which stays open.
    Open(usize),
}

/// Maps as much of a file as `part` says of its size; `None` when that fails (another user, another pid namespace, no
/// memory), or when `part` wants nothing. By system calls: each function of libc that the constructor calls costs a
/// short program a lookup, and often a page.
fn map(place: Place, access: Access, part: fn(u64) -> Option<usize>) -> Option<Mapping> {
    let (mode, protection) = match access {
        Access::Read => (libc::O_RDONLY, libc::PROT_READ),
        Access::Write | Access::WriteIfFile => (libc::O_RDWR, libc::PROT_READ | libc::PROT_WRITE),
    };
    let (pid, fd) = match place {
        Place::Proc(pid, fd) => (pid, fd),
        Place::Open(fd) => return map_open(fd, protection, part),
    };
    let path = path_of(pid, fd);
    // Looked at before it is opened for writing, which may do something to what is no file.
    if access == Access::WriteIfFile && !is_file(&path) {
        return None;
    }
    let mode = (mode | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as usize;
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { syscall::call(nr::OPENAT, [libc::AT_FDCWD as usize, path.as_ptr() as usize, mode, 0, 0, 0]) };
    let fd = usize::try_from(fd).ok()?;
    let mapping = map_open(fd, protection, part);
    // SAFETY: our own descriptor, closed once.
    unsafe { syscall::call(nr::CLOSE, [fd, 0, 0, 0, 0, 0]) };
    mapping
}

/// Maps a part of an open file.
fn map_open(fd: usize, protection: i32, part: fn(u64) -> Option<usize>) -> Option<Mapping> {
    let bytes = sealed_size(fd).and_then(part)?;
    let flags = (libc::MAP_SHARED | libc::MAP_NORESERVE) as usize;
    // SAFETY: a new mapping, whose result is checked.
    unsafe {
        let at = usize::try_from(syscall::call(nr::MMAP, [0, bytes, protection as usize, flags, fd, 0])).ok()?;
        syscall::call(nr::MADVISE, [at, bytes, libc::MADV_DONTDUMP as usize, 0, 0, 0]);
        Some(Mapping { base: at as *mut u8, bytes })
    }
}

impl Mapping {
    /// # Safety
    /// Nothing may use it any more.
    unsafe fn unmap(self) {
        // SAFETY: as the caller says.
        unsafe { syscall::call(nr::MUNMAP, [self.base as usize, self.bytes, 0, 0, 0, 0]) };
    }
}

fn is_file(path: &[u8; 48]) -> bool {
    let mode = (libc::O_PATH | libc::O_CLOEXEC) as usize;
    // SAFETY: a NUL-terminated path, a descriptor that is closed once, and a valid structure for its status.
    unsafe {
        let fd = syscall::call(nr::OPENAT, [libc::AT_FDCWD as usize, path.as_ptr() as usize, mode, 0, 0, 0]);
        let Ok(fd) = usize::try_from(fd) else { return false };
        let mut status: libc::stat = core::mem::zeroed();
        let failed = syscall::call(nr::FSTAT, [fd, (&raw mut status) as usize, 0, 0, 0, 0]) != 0;
        syscall::call(nr::CLOSE, [fd, 0, 0, 0, 0, 0]);
        !failed && status.st_mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// The size of a memfd of the recorder, which is [sealed](https://man7.org/linux/man-pages/man2/memfd_create.2.html)
/// against shrinking, so that no access to the mapping can fault; `None`: it is something else.
fn sealed_size(fd: usize) -> Option<u64> {
    const F_GET_SEALS: usize = 1034;
    const F_SEAL_SHRINK: isize = 2;
    // SAFETY: an open descriptor, and a valid structure for its status (libc's is the kernel's).
    unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        let seals = syscall::call(nr::FCNTL, [fd, F_GET_SEALS, 0, 0, 0, 0]);
        let is_sealed = seals >= 0
            && seals & F_SEAL_SHRINK != 0
            && syscall::call(nr::FSTAT, [fd, (&raw mut status) as usize, 0, 0, 0, 0]) == 0;
        is_sealed.then_some(status.st_size as u64)
    }
}

/// Formats a number in decimal.
pub fn decimal(mut n: u32, digits: &mut [u8; 10]) -> &[u8] {
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

/// The mapped facts, and the rules that follow them.
pub struct Published {
    mapping: Mapping,
    pub facts: FactsView,
    pub tables: TablesView,
    pub code_rules: CodeRulesView,
}

impl Published {
    /// Maps them, from these files or those that the setting names. `None` if that fails, or if they are something
    /// else.
    pub fn map(setting: &Setting, files: Option<&Files>) -> Option<Published> {
        let whole = |size| tables_in(size).map(|tables| TABLES_OFFSET + tables);
        let place = files.map_or(Place::Proc(setting.recorder, setting.facts_fd), |files| Place::Open(files.facts));
        let mapping = map(place, Access::Read, whole)?;
        let (base, tables) = (mapping.base, mapping.bytes.saturating_sub(TABLES_OFFSET));
        // SAFETY: all of it is mapped, and stays so if it holds facts that are used; tables_in() has said that it holds
        // the tables' entries.
        unsafe {
            let Some(facts) = FactsView::new(base) else {
                mapping.unmap();
                return None;
            };
            let tables = TablesView::new(base.add(TABLES_OFFSET), tables);
            let code_rules = CodeRulesView::new(base.add(CODE_RULES_OFFSET));
            Some(Published { mapping, facts, tables, code_rules })
        }
    }

    /// Unmaps them, if nothing was copied out of this value.
    pub fn unmap(self) {
        // SAFETY: a mapping of our own that nobody else has seen.
        unsafe { self.mapping.unmap() };
    }
}

impl Session {
    /// The session that another process has mapped here for this one.
    ///
    /// # Safety
    /// All of a session with `blocks` blocks must be mapped for writing at `base`, and stay so.
    pub unsafe fn at(base: *mut u8, blocks: usize) -> Session {
        Session { base, blocks }
    }

    /// Maps the session, from these files or those that the setting names. `None` if that fails, or if the session is
    /// of another version. `has_facts`: the recorder's facts were found, so this is its session.
    pub fn map(setting: &Setting, files: Option<&Files>, has_facts: bool) -> Option<Session> {
        let place = files.map_or(Place::Proc(setting.recorder, setting.session_fd), |files| Place::Open(files.session));
        let access = if has_facts { Access::Write } else { Access::WriteIfFile };
        let whole = |size| blocks_in(size).map(session_bytes);
        let Some(Mapping { base, bytes }) = map(place, access, whole) else {
            // A session of another version has another size.
            let first = |size| (size >= FIRST_PAGE as u64).then_some(FIRST_PAGE);
            let page = map(place, access, first);
            crate::version::look(page.map_or(core::ptr::null_mut(), |page| page.base));
            return None;
        };
        let session = Session { base, blocks: blocks_in(bytes as u64)? };
        let header = session.header();
        let same = header.magic == SESSION_MAGIC
            && header.version == SESSION_VERSION
            && header.block_bytes as usize == BLOCK_BYTES;
        if !same {
            crate::version::look(base);
            session.unmap();
        }
        same.then_some(session)
    }

    /// Gives the shared memory back, and maps zeroed private memory in its place: a thread may still be about to write
    /// there. Async-signal-safe.
    pub fn release(&self) {
        const MADV_DONTDUMP: usize = 16;
        let (base, bytes) = (self.base as usize, self.bytes());
        // SAFETY: these bytes at base are a mapping of our own, and stay one.
        unsafe {
            crate::locked_memory::map(base, bytes, libc::MAP_NORESERVE | libc::MAP_FIXED);
            syscall::call(nr::MADVISE, [base, bytes, MADV_DONTDUMP, 0, 0, 0]);
        }
    }

    /// Unmaps a session that no thread has used.
    pub fn unmap(self) {
        // SAFETY: a mapping of our own that no thread has seen.
        unsafe { Mapping { base: self.base, bytes: self.bytes() }.unmap() };
    }

    /// Bytes of the mapping.
    pub fn bytes(&self) -> usize {
        session_bytes(self.blocks)
    }

    /// The session's header, in its first page.
    pub fn header(&self) -> &'static SessionHeader {
        // SAFETY: the session stays mapped; all shared fields are atomic.
        unsafe { &*self.base.cast() }
    }

    /// The session's first page.
    pub fn first_page(&self) -> *mut u8 {
        self.base
    }

    /// State word of a block; `None` when there is no such block.
    pub fn state(&self, block: usize) -> Option<&'static core::sync::atomic::AtomicU32> {
        // SAFETY: the states are mapped for ever; the index is checked.
        (block < self.blocks)
            .then(|| unsafe { &*self.base.add(STATES_OFFSET).cast::<core::sync::atomic::AtomicU32>().add(block) })
    }

    /// First byte of a block; null when there is no such block.
    pub fn block(&self, block: usize) -> *mut u8 {
        if block >= self.blocks {
            return core::ptr::null_mut();
        }
        // SAFETY: the block lies inside the mapping.
        unsafe { self.base.add(DATA_OFFSET + block * BLOCK_BYTES) }
    }

    /// Claims a free block: at most [`BLOCKS`] probes. It stays CLAIMED until its header is written.
    pub fn claim(&self) -> Option<usize> {
        let header = self.header();
        let hint = header.claim_hint.fetch_add(1, Ordering::Relaxed) as usize;
        let blocks = self.blocks.max(1);
        (0..blocks).map(|i| hint.wrapping_add(i) % blocks).find(|block| {
            self.state(*block).is_some_and(|state| {
                state.load(Ordering::Relaxed) == FREE
                    && state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
            })
        })
    }
}

/// The value of an environment variable. For the constructor only.
pub fn environment(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: called by the constructor, when no other thread changes the environment.
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
