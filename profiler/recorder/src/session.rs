//! The recorder's side of the session memfd.

use rustix::fs::{
    fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create, FallocateFlags, MemfdFlags, SealFlags,
};
use rustix::io::Errno;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use std::ffi::CStr;
use std::io;
use std::mem::{size_of, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use uunwind_ring::layout::{
    session_bytes, ProcessBlock, SessionHeader, ThreadBlock, BLOCKS, BLOCK_BYTES, DATA_OFFSET, FREE,
    OTHER_VERSION_OFFSET, RING_BYTES, RING_OFFSET, SESSION_MAGIC, SESSION_VERSION, STATES_OFFSET,
};

/// Creates an empty memfd that can be [sealed](https://man7.org/linux/man-pages/man2/memfd_create.2.html).
pub fn memory_file(name: &CStr) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(name, flags) {
        // vm.memfd_noexec is 2.
        Err(Errno::ACCESS) => Ok(memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)?),
        other => Ok(other?),
    }
}

/// A shared memory file, mapped for the life of this value.
pub struct SharedMemory {
    fd: OwnedFd,
    base: *mut u8,
    len: usize,
}

// SAFETY: the mapping belongs to no thread, and is unmapped by the last owner.
unsafe impl Send for SharedMemory {}
// SAFETY: what is shared is read and written through atomics; other bytes are written by one publisher, before an
// atomic makes them known.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Creates a sparse memfd of `len` zero bytes, [sealed](https://man7.org/linux/man-pages/man2/memfd_create.2.html)
    /// so that its size cannot change.
    pub fn create(name: &CStr, len: usize) -> io::Result<SharedMemory> {
        SharedMemory::in_file(memory_file(name)?, len)
    }

    /// As [`SharedMemory::create`], in an empty memfd that another process may have made.
    pub fn in_file(fd: OwnedFd, len: usize) -> io::Result<SharedMemory> {
        above_file_limit(|| ftruncate(&fd, len as u64))?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        SharedMemory::mapped(fd, len)
    }

    /// `fd` must have this length, which cannot change.
    fn mapped(fd: OwnedFd, len: usize) -> io::Result<SharedMemory> {
        // SAFETY: a new mapping at an address that the kernel chooses, of a file whose length cannot change.
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

    /// Maps a memfd of this length that another process has made, and that it cannot shrink.
    pub fn of_file(fd: OwnedFd, len: usize) -> io::Result<SharedMemory> {
        let is_whole = fstat(&fd)?.st_size as u64 >= len as u64;
        if !is_whole || !fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        SharedMemory::mapped(fd, len)
    }

    /// Maps the first `len` bytes once more, for writing. This mapping stays when the value is dropped.
    pub fn map_again(&self, len: usize) -> io::Result<*mut u8> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, self.fd.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(at.cast())
    }

    /// Prevents new writable mappings (F_SEAL_FUTURE_WRITE, Linux 5.1). On older kernels targets are trusted not to
    /// write.
    pub fn seal_against_writers(&self) {
        let _ = fcntl_add_seals(&self.fd, SealFlags::FUTURE_WRITE);
    }

    /// The descriptor's number, for the environment of targets.
    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// The file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The file's inode, by which `/proc/PID/maps` names it. 0: unknown.
    pub fn inode(&self) -> u64 {
        fstat(&self.fd).map_or(0, |stat| stat.st_ino)
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

    /// Zeroes `len` bytes at `offset`, and gives their memory back to the kernel.
    pub fn punch(&self, offset: usize, len: usize) -> io::Result<()> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.fd, mode, offset as u64, len as u64)?)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: `create` made this mapping, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Runs a call with the limit of file sizes (`ulimit -f`) raised to the hard limit: it applies to sparse shared memory,
/// too.
fn above_file_limit<T>(call: impl FnOnce() -> T) -> T {
    let limit = getrlimit(Resource::Fsize);
    // Where the limit cannot be raised, the call says what follows from that.
    let _ = setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, ..limit });
    let result = call();
    let _ = setrlimit(Resource::Fsize, limit);
    result
}

/// Structures of plain integers and atomics, for which any bytes are a valid value.
trait AnyBytes {}
impl AnyBytes for ProcessBlock {}
impl AnyBytes for ThreadBlock {}

/// The session's shared memory, in which targets write their records.
pub struct Session {
    memory: SharedMemory,
    blocks: usize,
}

impl Session {
    /// Creates the session, with this number of blocks, and writes its header.
    pub fn create(blocks: usize) -> io::Result<Session> {
        Session::in_file(memory_file(c"uu-session")?, blocks)
    }

    /// As [`Session::create`], in an empty memfd that another process may have made.
    pub fn in_file(fd: OwnedFd, blocks: usize) -> io::Result<Session> {
        let blocks = blocks.clamp(1, BLOCKS);
        let memory = SharedMemory::in_file(fd, session_bytes(blocks))?;
        let header = memory.at(0, size_of::<SessionHeader>()).ok_or(io::ErrorKind::InvalidInput)?;
        let value = SessionHeader {
            magic: SESSION_MAGIC,
            version: SESSION_VERSION,
            block_bytes: BLOCK_BYTES as u32,
            blocks: blocks as u32,
            recorder: std::process::id(),
            threads_without_block: AtomicU32::new(0),
            processes_without_block: AtomicU32::new(0),
            claim_hint: AtomicU32::new(0),
            bell: AtomicU32::new(0),
            openings: AtomicU32::new(0),
            resting: AtomicU32::new(0),
        };
        // SAFETY: the header lies inside the mapping, which is page-aligned, and no other process has it mapped yet.
        unsafe { header.cast::<SessionHeader>().write(value) };
        Ok(Session { memory, blocks })
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// The descriptor's number, for the environment of targets.
    pub fn fd(&self) -> i32 {
        self.memory.fd()
    }

    /// The whole memory, as targets map it.
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// The header. Only its atomics may be relied on; targets can write to all of it.
    pub fn header(&self) -> &SessionHeader {
        // SAFETY: the mapping is larger than the header and page-aligned; any bytes are a valid header.
        unsafe { &*self.memory.base.cast::<SessionHeader>() }
    }

    /// Says whether processes ring the bell when they, or threads, begin. A pass after this call finds those that have
    /// begun before and did not ring.
    pub fn set_resting(&self, rests: bool) {
        self.header().resting.store(u32::from(rests), Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The session version of a target that could not record because its version differs from [`SESSION_VERSION`].
    pub fn other_version(&self) -> Option<u32> {
        let version = self.memory.half(OTHER_VERSION_OFFSET)?.load(Ordering::Relaxed);
        Some(version).filter(|version| ![0, SESSION_VERSION].contains(version))
    }

    /// State of a block; [`FREE`] when there is no such block.
    pub fn state(&self, block: usize) -> u32 {
        let at = if block < self.blocks { self.memory.half(STATES_OFFSET + block * 4) } else { None };
        at.map_or(FREE, |state| state.load(Ordering::Acquire))
    }

    fn offset(&self, block: usize) -> Option<usize> {
        (block < self.blocks).then(|| DATA_OFFSET + block * BLOCK_BYTES)
    }

    fn snapshot<T: AnyBytes>(&self, block: usize) -> Option<T> {
        let from = self.offset(block)?;
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

    /// A word of a process's block, after its header; `None`: there is none at this offset.
    pub fn process_word(&self, block: usize, offset: usize) -> Option<&AtomicU64> {
        let inside = (RING_OFFSET..BLOCK_BYTES).contains(&offset);
        self.memory.word(self.offset(block).filter(|_| inside)?.checked_add(offset)?)
    }

    /// Publishes to a process how much of its log of frees is read.
    pub fn set_frees_tail(&self, block: usize, tail: u64) {
        let offset = self.offset(block).map(|b| b + std::mem::offset_of!(ProcessBlock, frees_tail));
        if let Some(word) = offset.and_then(|o| self.memory.word(o)) {
            word.store(tail, Ordering::Release);
        }
    }

    /// Write position of a block's ring: the number of bytes that its thread has written so far.
    pub fn head(&self, block: usize) -> u64 {
        let offset = self.offset(block).map(|b| b + std::mem::offset_of!(ThreadBlock, head));
        offset.and_then(|o| self.memory.word(o)).map_or(0, |head| head.load(Ordering::Acquire))
    }

    /// Publishes the read position of a block's ring to its thread.
    pub fn set_tail(&self, block: usize, tail: u64) {
        let offset = self.offset(block).map(|b| b + std::mem::offset_of!(ThreadBlock, tail));
        if let Some(word) = offset.and_then(|o| self.memory.word(o)) {
            word.store(tail, Ordering::Release);
        }
    }

    /// Copies the ring's bytes between the positions `from` and `to` (multiples of 8, at most the ring's size apart).
    pub fn copy_ring(&self, block: usize, from: u64, to: u64, out: &mut Vec<u8>) {
        out.clear();
        let Some(ring) = self.offset(block).map(|b| b + RING_OFFSET) else { return };
        for position in (from..to).step_by(8).take(RING_BYTES / 8) {
            let Some(word) = self.memory.word(ring + (position % RING_BYTES as u64) as usize) else { return };
            out.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
    }

    /// Zeroes a block, gives its memory back, and lets targets claim it again.
    pub fn free(&self, block: usize) {
        let Some(offset) = self.offset(block) else { return };
        if self.memory.punch(offset, BLOCK_BYTES).is_err() {
            // Slower, and the memory stays allocated, but with the same effect.
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
        let session = Session::create(8).expect("memfd");
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
        assert!(session.thread(8).is_none() && session.state(8) == FREE);
    }
}
