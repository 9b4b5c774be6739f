//! The folder of `/proc` that answers for a process.
//!
//! The main thread of a process may end before the others
//! ([pthread_exit(3)](https://man7.org/linux/man-pages/man3/pthread_exit.3.html)), and stays as a zombie without memory
//! and files until they have ended, too. Of what the kernel shows under the process's id, `maps`, `cmdline`, `fd` and
//! `map_files` are empty then, `exe`, `cwd` and `root` do not exist, `mem`, `auxv` and `environ` cannot be read, and
//! `stat` has no addresses: each is the thread's own (<https://github.com/torvalds/linux/blob/v6.1/fs/proc/base.c>,
//! `get_task_exe_file`, `mm_access`). Threads share what these show, so that any live one answers for all.
//!
//! Whatever reads `/proc/PID` for what belongs to the memory, the files or the root of a process, asks here.

use std::io;
use std::path::{Path, PathBuf};

/// The folder of the main thread, or once that has ended, of a thread that lives, as `/proc/PID/task/TID`. That of the
/// main thread also where no thread lives, or there is no such process. It is right until that thread ends.
pub fn folder(pid: u32) -> PathBuf {
    stand_in(pid).map_or_else(|| of_main(pid), |tid| of_thread(pid, tid))
}

/// A file in that folder.
pub fn file(pid: u32, name: &str) -> PathBuf {
    folder(pid).join(name)
}

/// The file that is mapped from `start` to `end` (process addresses, as `maps` has them), as a link that leads to that
/// very file. The folder of a thread within its process has no such links; under `/proc`, a thread has them.
pub fn mapped_file(pid: u32, start: u64, end: u64) -> PathBuf {
    let thread = stand_in(pid).unwrap_or(pid);
    PathBuf::from(format!("/proc/{thread}/map_files/{start:x}-{end:x}"))
}

/// The id of a thread that lives, if the main thread has ended. `None`: the main thread lives; or no thread does.
pub fn stand_in(pid: u32) -> Option<u32> {
    if has_memory(&of_main(pid)) {
        return None;
    }
    let entries = std::fs::read_dir(of_main(pid).join("task")).ok()?;
    let mut tids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    tids.find(|tid| *tid != pid && has_memory(&of_thread(pid, *tid)))
}

/// Reads the memory of a process by a system call that takes the id of a thread with memory, such as
/// process_vm_readv(2). Error: that of `read`; ESRCH: the process has ended.
pub fn with_memory<T>(pid: u32, mut read: impl FnMut(u32) -> io::Result<T>) -> io::Result<T> {
    let ended = match read(pid) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => error,
        done => return done,
    };
    let Some(tid) = stand_in(pid) else { return Err(ended) };
    let done = read(tid);
    // If it has ended meanwhile, its id, and what was read, may be another process's.
    if has_memory(&of_thread(pid, tid)) {
        done
    } else {
        Err(ended)
    }
}

fn of_main(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

fn of_thread(pid: u32, tid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/task/{tid}"))
}

/// Whether a thread has memory, and so has not ended. One that may not be looked at counts as one that has.
fn has_memory(folder: &Path) -> bool {
    !std::fs::read_link(folder.join("exe")).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps;

    #[test]
    fn a_process_whose_main_thread_lives_answers_itself() {
        let own = std::process::id();
        assert_eq!((stand_in(own), folder(own)), (None, PathBuf::from(format!("/proc/{own}"))));
        let none = 1 << 30;
        assert_eq!((stand_in(none), folder(none)), (None, PathBuf::from("/proc/1073741824")));
        assert!(maps::of(none).is_err());
    }
}
