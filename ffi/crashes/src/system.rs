//! System calls for files and waiting. Async-signal-safe; errno stays as it is.

use core::ffi::CStr;
use core::sync::atomic::AtomicU32;
use uunwind_core::syscall::{self, nr};

/// An open file, closed when it is dropped.
#[derive(Debug)]
pub struct File(u32);

impl File {
    /// Opens a file for reading ([openat(2)](https://man7.org/linux/man-pages/man2/open.2.html)), not blocking.
    pub fn open(path: &CStr) -> Option<File> {
        const O_NONBLOCK_CLOEXEC: usize = 0o4000 | 0o2000000;
        File::open_with(path, O_NONBLOCK_CLOEXEC, 0)
    }

    /// Opens a file with these flags and this mode.
    pub fn open_with(path: &CStr, flags: usize, mode: usize) -> Option<File> {
        const AT_FDCWD: usize = -100isize as usize;
        // SAFETY: a path that ends with a NUL.
        let fd = unsafe { syscall::call(nr::OPENAT, [AT_FDCWD, path.as_ptr() as usize, flags, mode, 0, 0]) };
        u32::try_from(fd).ok().map(File)
    }

    /// An open descriptor, which nothing else closes.
    pub fn of(fd: u32) -> File {
        File(fd)
    }

    /// Waits at most `ns` nanoseconds until it is ready for these events, or at its end
    /// ([poll(2)](https://man7.org/linux/man-pages/man2/poll.2.html)). 0: the time is over; negative: an errno.
    pub fn poll(&self, events: i16, ns: u64) -> isize {
        poll(self.fd(), events, ns)
    }

    /// Its descriptor, which is open as long as this value lives.
    pub fn fd(&self) -> i32 {
        self.0 as i32
    }

    /// Reads once; the bytes that were read.
    pub fn read<'b>(&self, buffer: &'b mut [u8]) -> &'b [u8] {
        self.fill(nr::READ, buffer)
    }

    /// The next entries of a folder, as getdents64(2) packs them.
    pub fn entries<'b>(&self, buffer: &'b mut [u8]) -> &'b [u8] {
        self.fill(nr::GETDENTS64, buffer)
    }

    fn fill<'b>(&self, call: usize, buffer: &'b mut [u8]) -> &'b [u8] {
        // SAFETY: the buffer is writable, and its length is passed.
        let got =
            unsafe { syscall::call(call, [self.0 as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) };
        usize::try_from(got).ok().and_then(|got| buffer.get(..got)).unwrap_or(&[])
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: a file that this value opened.
        unsafe { syscall::call(nr::CLOSE, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

/// As [`File::poll`], of any descriptor.
pub fn poll(fd: i32, events: i16, ns: u64) -> isize {
    #[repr(C)]
    struct PollFd {
        fd: i32,
        events: i16,
        revents: i16,
    }
    let mut poll = PollFd { fd, events, revents: 0 };
    let time = [(ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64];
    // SAFETY: one structure and a timespec.
    unsafe { syscall::call(nr::PPOLL, [(&raw mut poll) as usize, 1, time.as_ptr() as usize, 0, 0, 0]) }
}

/// Waits until the word is not `value` any more, at most `ns` nanoseconds
/// ([futex(2)](https://man7.org/linux/man-pages/man2/futex.2.html)). May return early.
pub fn wait(word: &AtomicU32, value: u32, ns: u64) {
    const FUTEX_WAIT_PRIVATE: usize = 128;
    let time = [(ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64];
    let arguments = [word.as_ptr() as usize, FUTEX_WAIT_PRIVATE, value as usize, time.as_ptr() as usize, 0, 0];
    // SAFETY: a word of this process, and a timespec.
    unsafe { syscall::call(nr::FUTEX, arguments) };
}

/// Wakes all that wait for the word.
pub fn wake(word: &AtomicU32) {
    const FUTEX_WAKE_PRIVATE: usize = 129;
    // SAFETY: a word of this process.
    unsafe { syscall::call(nr::FUTEX, [word.as_ptr() as usize, FUTEX_WAKE_PRIVATE, i32::MAX as usize, 0, 0, 0]) };
}
