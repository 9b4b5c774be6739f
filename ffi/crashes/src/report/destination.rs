//! Where a report goes: a file descriptor of the program's, or a path that is opened when a crash comes.
//!
//! Writing must not wait for ever for a reader: a pipe that no one empties, a terminal that was stopped. The program's
//! descriptor stays blocking, as it may be shared; so a pipe or a terminal is opened once more, and a socket is asked
//! not to wait. Where /proc is missing, what is ready is hoped to have room for what is written.

use crate::system::{self, File};
use crate::threads::Deadline;
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use uunwind_core::errno::{Errno, EBADF, ENAMETOOLONG};
use uunwind_core::syscall::{self, nr};
use uunwind_stacks::decimal::decimal;

/// Longest path, with its NUL.
const PATH: usize = 4096;
/// [`FD`]: no report is written.
const NOWHERE: i32 = -1;
/// [`FD`]: to the path.
const BY_PATH: i32 = -2;

/// Longest time for which a report waits for room, in nanoseconds.
const STALL: u64 = 2_000_000_000;

static FD: AtomicI32 = AtomicI32::new(NOWHERE);
/// Device and inode of the descriptor's file.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);
struct Path(UnsafeCell<[u8; PATH]>);
// SAFETY: written by the holder of `install`'s lock while FD is NOWHERE; read by reports while it is BY_PATH.
unsafe impl Sync for Path {}
static TO: Path = Path(UnsafeCell::new([0; PATH]));

/// Reports go to this descriptor; -1: nowhere. To be called by one thread at a time.
pub fn set_fd(fd: i32) -> Result<(), Errno> {
    FD.store(NOWHERE, Ordering::Release);
    if fd == -1 {
        return Ok(());
    }
    const F_GETFL: usize = 3;
    const O_ACCMODE: isize = 3;
    // SAFETY: takes numbers only.
    let flags = unsafe { syscall::call(nr::FCNTL, [fd as usize, F_GETFL, 0, 0, 0, 0]) };
    let Identity { device, inode, .. } = identity(fd).ok_or(EBADF)?;
    if flags < 0 || flags & O_ACCMODE == 0 {
        return Err(EBADF);
    }
    DEVICE.store(device, Ordering::Relaxed);
    INODE.store(inode, Ordering::Relaxed);
    FD.store(fd, Ordering::Release);
    Ok(())
}

/// Reports go to the file with this path, `%p` in it becoming the process id. To be called by one thread at a time.
pub fn set_path(path: &CStr) -> Result<(), Errno> {
    FD.store(NOWHERE, Ordering::Release);
    let bytes = path.to_bytes_with_nul();
    // A process id has 10 digits at most.
    if bytes.len() > 4001 {
        return Err(ENAMETOOLONG);
    }
    // SAFETY: no report reads it while FD is NOWHERE, but one that began before; that is the program's race.
    let to = unsafe { &mut *TO.0.get() };
    for (to, from) in to.iter_mut().zip(bytes) {
        *to = *from;
    }
    FD.store(BY_PATH, Ordering::Release);
    Ok(())
}

/// What an open file is (`struct stat`).
struct Identity {
    device: u64,
    inode: u64,
    mode: u32,
}

/// Device and inode are the first two words of `struct stat`; the mode is in the next one, or on x86-64 in the one
/// after.
fn identity(fd: i32) -> Option<Identity> {
    let mut stat = [0u64; 32];
    // SAFETY: struct stat has 144 bytes or fewer.
    let failed = unsafe { syscall::call(nr::FSTAT, [fd as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) } != 0;
    let [device, inode, third, fourth, ..] = stat;
    let mode = if cfg!(target_arch = "x86_64") { fourth } else { third } as u32;
    (!failed).then_some(Identity { device, inode, mode })
}

/// An open destination.
#[derive(Debug)]
pub enum Destination {
    /// The program's descriptor.
    Given(i32),
    /// The program's descriptor of a socket.
    Socket(i32),
    /// A file that was opened for this report.
    Opened(File),
}

impl Destination {
    /// `None`: there is none, it cannot be opened, or its number is another file's by now.
    pub fn open() -> Option<Destination> {
        match FD.load(Ordering::Acquire) {
            NOWHERE => None,
            BY_PATH => Destination::at_path(),
            fd => {
                let now = identity(fd)?;
                let set = (DEVICE.load(Ordering::Relaxed), INODE.load(Ordering::Relaxed));
                ((now.device, now.inode) == set).then(|| Destination::given(fd, now.mode))
            }
        }
    }

    fn given(fd: i32, mode: u32) -> Destination {
        const S_IFMT: u32 = 0o170000;
        const S_IFSOCK: u32 = 0o140000;
        const S_IFIFO: u32 = 0o010000;
        const S_IFCHR: u32 = 0o020000;
        match mode & S_IFMT {
            S_IFSOCK => Destination::Socket(fd),
            S_IFIFO => Destination::again(fd),
            S_IFCHR if is_terminal(fd) => Destination::again(fd),
            _ => Destination::Given(fd),
        }
    }

    /// The file of a descriptor, opened once more, not blocking. As this thread's own: the main one may have ended
    /// ([proc_pid_fd(5)](https://man7.org/linux/man-pages/man5/proc_pid_fd.5.html)).
    fn again(fd: i32) -> Destination {
        let mut path = [0u8; 64];
        let mut digits = [0u8; 20];
        let parts = b"/proc/thread-self/fd/".iter().chain(decimal(fd as u64, &mut digits));
        for (to, from) in path.iter_mut().zip(parts) {
            *to = *from;
        }
        let opened = CStr::from_bytes_until_nul(&path)
            .ok()
            .and_then(|path| File::open_with(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC, 0));
        opened.map_or(Destination::Given(fd), Destination::Opened)
    }

    fn at_path() -> Option<Destination> {
        // SAFETY: complete since FD is BY_PATH.
        let pattern = CStr::from_bytes_until_nul(unsafe { &*TO.0.get() }).ok()?;
        let mut path = [0u8; PATH];
        expand(pattern.to_bytes(), syscall::getpid(), &mut path)?;
        let path = CStr::from_bytes_until_nul(&path).ok()?;
        const O_CREAT: usize = 0o100;
        const O_APPEND: usize = 0o2000;
        // A FIFO that no one reads does not hold the program up.
        let flags = O_WRONLY | O_CREAT | O_NOCTTY | O_APPEND | O_NONBLOCK | O_CLOEXEC;
        File::open_with(path, flags, 0o600).map(Destination::Opened)
    }

    /// Its descriptor, which is open as long as this value lives.
    pub fn fd(&self) -> i32 {
        match self {
            Destination::Given(fd) | Destination::Socket(fd) => *fd,
            Destination::Opened(file) => file.fd(),
        }
    }

    /// Writes all of it, until the deadline at the latest, or until there was no room for two seconds. False: something
    /// is lost.
    pub fn write(&self, mut bytes: &[u8], deadline: Deadline) -> bool {
        const EINTR: isize = -4;
        const EAGAIN: isize = -11;
        let mut until = deadline.min(Deadline::after(STALL));
        while !bytes.is_empty() {
            if !self.is_ready(until) {
                return false;
            }
            // A pipe that is ready has room for PIPE_BUF bytes, so that a write of this length does not block.
            let len = bytes.len().min(4096);
            const MSG_DONTWAIT_NOSIGNAL: usize = 0x40 | 0x4000;
            let (call, how) = match self {
                Destination::Socket(_) => (nr::SENDTO, MSG_DONTWAIT_NOSIGNAL),
                _ => (nr::WRITE, 0),
            };
            // SAFETY: bytes that are readable.
            let wrote = unsafe { syscall::call(call, [self.fd() as usize, bytes.as_ptr() as usize, len, how, 0, 0]) };
            match wrote {
                EINTR | EAGAIN if until.left() > 0 => {}
                wrote => match usize::try_from(wrote).ok().filter(|wrote| *wrote > 0) {
                    Some(wrote) => {
                        bytes = bytes.get(wrote..).unwrap_or(&[]);
                        until = deadline.min(Deadline::after(STALL));
                    }
                    None => return false,
                },
            }
        }
        true
    }

    /// Waits until a write would not block.
    fn is_ready(&self, deadline: Deadline) -> bool {
        const POLLOUT: i16 = 4;
        // Where poll fails, as under seccomp, write decides.
        system::poll(self.fd(), POLLOUT, deadline.left()) != 0
    }
}

const O_WRONLY: usize = 1;
const O_NOCTTY: usize = 0o400;
const O_NONBLOCK: usize = 0o4000;
const O_CLOEXEC: usize = 0o2000000;

fn is_terminal(fd: i32) -> bool {
    const TCGETS: usize = 0x5401;
    // The kernel's struct termios has 36 bytes.
    let mut settings = [0u64; 8];
    // SAFETY: room for the answer.
    unsafe { syscall::call(nr::IOCTL, [fd as usize, TCGETS, settings.as_mut_ptr() as usize, 0, 0, 0]) == 0 }
}

/// Copies a path, with `%p` as the process id.
fn expand(pattern: &[u8], pid: u32, out: &mut [u8; PATH]) -> Option<()> {
    let mut at = 0;
    let mut rest = pattern;
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"%p") {
            let mut digits = [0u8; 20];
            let digits = decimal(u64::from(pid), &mut digits);
            out.get_mut(at..at + digits.len())?.copy_from_slice(digits);
            at += digits.len();
            rest = after;
        } else {
            *out.get_mut(at)? = *first;
            at += 1;
            rest = after;
        }
    }
    *out.get_mut(at)? = 0;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_ids_come_into_paths() {
        let mut out = [1; PATH];
        expand(b"/x/%p-%q%p", 4321, &mut out).expect("room");
        assert_eq!(CStr::from_bytes_until_nul(&out), Ok(c"/x/4321-%q4321"));
        assert_eq!(expand(&[b'a'; PATH], 1, &mut out), None);
    }
}
