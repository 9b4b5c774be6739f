//! The session memfd, seen from the recorder.

use std::ffi::CStr;
use std::io;
use std::mem::{size_of, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use uunwind_ring::layout::{
    ProcessBlock, SessionHeader, ThreadBlock, BLOCKS, BLOCK_BYTES, DATA_OFFSET, FREE, RING_BYTES, RING_OFFSET,
    SESSION_BYTES, SESSION_MAGIC, SESSION_VERSION, STATES_OFFSET,
};

/// A shared memory file, mapped for the life of this value.
pub struct SharedMemory {
    fd: OwnedFd,
    base: *mut u8,
    len: usize,
}

impl SharedMemory {
    /// A memfd of `len` zero bytes, sparse, that can no longer change its size.
    pub fn create(name: &CStr, len: usize) -> io::Result<SharedMemory> {
        let check = |result: libc::c_int| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
        // SAFETY: `name` is NUL-terminated.
        let fd = check(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })?;
        // SAFETY: the call above just gave this descriptor to us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: plain system calls on a descriptor that we own.
        unsafe {
            check(above_file_limit(|| libc::ftruncate(fd.as_raw_fd(), len as libc::off_t)))?;
            check(libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW))?;
        }
        // SAFETY: a new mapping at an address of the kernel's choice, of a file that has this length for ever.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(SharedMemory { fd, base: base.cast(), len })
    }

    /// Lets nobody else map it for writing (Linux 5.1; before, targets are trusted not to).
    pub fn seal_against_writers(&self) {
        const F_SEAL_FUTURE_WRITE: libc::c_int = 0x10;
        // SAFETY: a plain system call on a descriptor that we own.
        unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_ADD_SEALS, F_SEAL_FUTURE_WRITE) };
    }

    /// The descriptor's number, for the environment of targets.
    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Address of `len` bytes at `offset`, or `None` outside the memory. Other processes may write there at any time.
    pub fn at(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        // SAFETY: offset < end <= len of the mapping.
        (end <= self.len).then(|| unsafe { self.base.add(offset) })
    }

    /// The 64-bit word at `offset`, which must be a multiple of 8.
    pub fn word(&self, offset: usize) -> Option<&AtomicU64> {
        let at = self.at(offset, 8).filter(|_| offset.is_multiple_of(8))?;
        // SAFETY: inside the mapping, aligned, and shared memory is only ever looked at through atomics.
        Some(unsafe { &*at.cast::<AtomicU64>() })
    }

    /// The 32-bit word at `offset`, which must be a multiple of 4.
    pub fn half(&self, offset: usize) -> Option<&AtomicU32> {
        let at = self.at(offset, 4).filter(|_| offset.is_multiple_of(4))?;
        // SAFETY: as for `word`.
        Some(unsafe { &*at.cast::<AtomicU32>() })
    }

    /// Makes `len` bytes at `offset` zero and gives their memory back.
    pub fn punch(&self, offset: usize, len: usize) -> io::Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a plain system call on a descriptor that we own.
        match unsafe { libc::fallocate(self.fd(), mode, offset as libc::off_t, len as libc::off_t) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: `create` made this mapping, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Runs a call with the limit of file sizes (`ulimit -f`) as high as it may go: it counts for sparse shared memory, too.
fn above_file_limit(call: impl FnOnce() -> libc::c_int) -> libc::c_int {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls read and write the structure given.
    unsafe {
        libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit);
        libc::setrlimit(libc::RLIMIT_FSIZE, &libc::rlimit { rlim_cur: limit.rlim_max, ..limit });
    }
    let result = call();
    let error = io::Error::last_os_error();
    // SAFETY: as above; errno is set back for the caller, who reads it next.
    unsafe {
        libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
        *libc::__errno_location() = error.raw_os_error().unwrap_or(0);
    }
    result
}

/// Structures of plain integers and atomics: any bytes are a valid value.
trait AnyBytes {}
impl AnyBytes for ProcessBlock {}
impl AnyBytes for ThreadBlock {}

/// The session.
pub struct Session {
    memory: SharedMemory,
}

impl Session {
    /// Makes the session and writes its header.
    pub fn create() -> io::Result<Session> {
        let memory = SharedMemory::create(c"uu-session", SESSION_BYTES)?;
        let header = memory.at(0, size_of::<SessionHeader>()).ok_or(io::ErrorKind::InvalidInput)?;
        let value = SessionHeader {
            magic: SESSION_MAGIC,
            version: SESSION_VERSION,
            block_bytes: BLOCK_BYTES as u32,
            blocks: BLOCKS as u32,
            recorder: std::process::id(),
            stopped: AtomicU32::new(0),
            threads_without_block: AtomicU32::new(0),
            processes_without_block: AtomicU32::new(0),
            claim_hint: AtomicU32::new(0),
        };
        // SAFETY: the header lies inside the mapping, which is page-aligned, and nobody else knows of it yet.
        unsafe { header.cast::<SessionHeader>().write(value) };
        Ok(Session { memory })
    }

    /// The descriptor's number.
    pub fn fd(&self) -> i32 {
        self.memory.fd()
    }

    /// The header. Only its atomics may be relied on; targets can write to all of it.
    pub fn header(&self) -> &SessionHeader {
        // SAFETY: the mapping is larger than the header and page-aligned; any bytes are a valid header.
        unsafe { &*self.memory.base.cast::<SessionHeader>() }
    }

    /// Tells every target that the recording is over.
    pub fn stop(&self) {
        self.header().stopped.store(1, Ordering::Release);
    }

    /// State of a block.
    pub fn state(&self, block: usize) -> u32 {
        let at = if block < BLOCKS { self.memory.half(STATES_OFFSET + block * 4) } else { None };
        at.map_or(FREE, |state| state.load(Ordering::Acquire))
    }

    fn offset(block: usize) -> Option<usize> {
        (block < BLOCKS).then(|| DATA_OFFSET + block * BLOCK_BYTES)
    }

    fn snapshot<T: AnyBytes>(&self, block: usize) -> Option<T> {
        let from = Session::offset(block)?;
        let mut value = MaybeUninit::<T>::zeroed();
        for at in (0..size_of::<T>()).step_by(8) {
            let word = self.memory.word(from + at)?.load(Ordering::Relaxed).to_ne_bytes();
            let len = word.len().min(size_of::<T>() - at);
            // SAFETY: at + len <= size of T, and the source is a local array.
            unsafe { std::ptr::copy_nonoverlapping(word.as_ptr(), value.as_mut_ptr().cast::<u8>().add(at), len) };
        }
        // SAFETY: every byte is initialised, and T accepts any bytes.
        Some(unsafe { value.assume_init() })
    }

    /// A copy of a process block's header.
    pub fn process(&self, block: usize) -> Option<ProcessBlock> {
        self.snapshot(block)
    }

    /// A copy of a thread block's header.
    pub fn thread(&self, block: usize) -> Option<ThreadBlock> {
        self.snapshot(block)
    }

    /// Bytes that the thread of a block has ever written.
    pub fn head(&self, block: usize) -> u64 {
        let offset = Session::offset(block).map(|b| b + std::mem::offset_of!(ThreadBlock, head));
        offset.and_then(|o| self.memory.word(o)).map_or(0, |head| head.load(Ordering::Acquire))
    }

    /// Tells the thread of a block how far its ring was read.
    pub fn set_tail(&self, block: usize, tail: u64) {
        let offset = Session::offset(block).map(|b| b + std::mem::offset_of!(ThreadBlock, tail));
        if let Some(word) = offset.and_then(|o| self.memory.word(o)) {
            word.store(tail, Ordering::Release);
        }
    }

    /// Copies the ring's bytes between `from` and `to` (positions ever written, multiples of 8, at most a ring apart).
    pub fn copy_ring(&self, block: usize, from: u64, to: u64, out: &mut Vec<u8>) {
        out.clear();
        let Some(ring) = Session::offset(block).map(|b| b + RING_OFFSET) else { return };
        for position in (from..to).step_by(8).take(RING_BYTES / 8) {
            let Some(word) = self.memory.word(ring + (position % RING_BYTES as u64) as usize) else { return };
            out.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
    }

    /// Makes a block zero, gives its memory back, and lets targets claim it again.
    pub fn free(&self, block: usize) {
        let Some(offset) = Session::offset(block) else { return };
        if self.memory.punch(offset, BLOCK_BYTES).is_err() {
            // Slower, and keeps the memory, but as right.
            for at in (0..BLOCK_BYTES).step_by(8) {
                if let Some(word) = self.memory.word(offset + at) {
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
        if let Some(state) = self.memory.half(STATES_OFFSET + block * 4) {
            state.store(FREE, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_ring::layout::LIVE_THREAD;

    #[test]
    fn a_freed_block_is_zero_and_free() {
        let session = Session::create().expect("memfd");
        assert_eq!(session.header().magic, SESSION_MAGIC);
        let state = session.memory.half(STATES_OFFSET + 7 * 4).expect("inside");
        state.store(LIVE_THREAD, Ordering::Release);
        let word = session.memory.word(DATA_OFFSET + 7 * BLOCK_BYTES + RING_OFFSET).expect("inside");
        word.store(77, Ordering::Relaxed);
        session.set_tail(7, 5);
        assert_eq!(session.thread(7).expect("block").tail.load(Ordering::Relaxed), 5);
        session.free(7);
        assert_eq!((session.state(7), word.load(Ordering::Relaxed)), (FREE, 0));
        assert_eq!(session.thread(7).expect("block").tail.load(Ordering::Relaxed), 0);
        assert!(session.thread(BLOCKS).is_none() && session.state(BLOCKS) == FREE);
    }
}
