//! Files that are open in a process: memfds that it makes for a sampler.

use super::forked::Files;
use super::process::Process;
use super::remote_call::{Borrowed, Trouble};
use rustix::fs::{fcntl_get_seals, fstat, SealFlags};
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use uunwind_elf::process;

/// An open file of the process: its number there, and which file it is (device and inode).
pub type Opened = (u64, (u64, u64));

/// Numbers that a file made in a process gets, at least: the first that the process's limit allows. It goes on while
/// the file is open there, and its own files must get the numbers that they get without it. The lowest free one is the
/// next that it will use, and may be free for a moment only: shells close 2 before they put another file there.
const NUMBERS: [u64; 2] = [512, 128];

/// Makes a memfd in the process, and gets it here.
pub fn file_there(
    thread: &mut Borrowed<'_>,
    process: &Process,
    name: &CStr,
    made: &mut Files,
) -> Result<(Opened, OwnedFd), Trouble> {
    const NOEXEC_SEAL: u64 = 8;
    let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    let name = thread.put(name.to_bytes_with_nul())?;
    let arguments = |flags| [name, flags, 0, 0, 0, 0];
    let fd = match thread.call(libc::SYS_memfd_create, arguments(flags)) {
        // vm.memfd_noexec is 2.
        Err(Trouble::Failed(error)) if error.raw_os_error() == Some(libc::EACCES) => {
            thread.call(libc::SYS_memfd_create, arguments(flags | NOEXEC_SEAL))?
        }
        other => other?,
    };
    let fd = out_of_the_way(thread, fd);
    match empty_memory(process, fd) {
        Ok((file, which)) => {
            made.add(which);
            Ok(((fd, which), file))
        }
        Err(error) => {
            let _ = thread.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
            Err(error.into())
        }
    }
}

/// Gives a file that the thread has just opened a number that the program does not count on, if there is one.
fn out_of_the_way(thread: &mut Borrowed<'_>, fd: u64) -> u64 {
    let mut copy = |least| thread.call(libc::SYS_fcntl, [fd, libc::F_DUPFD_CLOEXEC as u64, least, 0, 0, 0]);
    let Some(other) = NUMBERS.into_iter().find_map(|least| copy(least).ok()) else { return fd };
    let _ = thread.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
    other
}

/// An open memfd of the process, and which file it is. Another thread there may have put any other file in its place:
/// so it is the same opening, with what the process itself may do, and the size of nothing but an empty memfd is ever
/// changed.
fn empty_memory(process: &Process, fd: u64) -> io::Result<(OwnedFd, (u64, u64))> {
    let wrong = || io::Error::other("it has replaced a file of the sampler's");
    let file = process.file(i32::try_from(fd).map_err(|_| wrong())?)?;
    // Only files in memory have seals.
    let seals = fcntl_get_seals(&file).map_err(|_| wrong())?;
    let stat = fstat(&file)?;
    if seals.contains(SealFlags::SEAL) || stat.st_size != 0 {
        return Err(wrong());
    }
    Ok((file, (stat.st_dev, stat.st_ino)))
}

/// Whether a number there still is this file: the program may have closed it, and the number may be of another one now.
pub fn is_still(pid: u32, (fd, which): Opened) -> bool {
    std::fs::metadata(process::file(pid, "fd").join(fd.to_string())).is_ok_and(|file| (file.dev(), file.ino()) == which)
}
