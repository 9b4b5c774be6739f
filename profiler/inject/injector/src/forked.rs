//! Files that are open in a process for a moment, while a sampler goes in: a child that another thread forks in that
//! moment has them, too, and keeps them until it calls exec. They are closed there.

use super::opened::{is_still, Opened};
use super::preflight::Code;
use super::{with_thread, PATIENCE};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::process;
use uunwind_recorder::machine;
use uunwind_recorder::survey::share_memory;
use uunwind_remote::threads::children;
use uunwind_ring::injected::Region;

/// The beginning of a process is known to a clock tick.
const TICK: Duration = Duration::from_millis(10);

/// Files that were opened in a process: device and inode.
#[derive(Default)]
pub struct Files {
    files: Vec<(u64, u64)>,
    /// Since when (CLOCK_MONOTONIC, ns).
    since: u64,
}

impl Files {
    /// None so far.
    pub fn new() -> Files {
        Files { files: Vec::new(), since: machine::monotonic() }
    }

    /// Another one.
    pub fn add(&mut self, file: (u64, u64)) {
        self.files.push(file);
    }

    /// Closes them in the children that the process has forked since then, and in theirs. They have its code. Returns
    /// which processes keep some, if any do.
    pub fn close_in_children(&self, pid: u32, code: &Code) -> Option<String> {
        if self.files.is_empty() {
            return None;
        }
        let since = self.since.saturating_sub(TICK.as_nanos() as u64);
        let new = |pid| children(pid).into_iter().filter(|child| machine::start_of(*child) >= since);
        let begun = Instant::now();
        let (mut all, mut keep): (Vec<u32>, Vec<u32>) = (new(pid).collect(), Vec::new());
        while let Some(child) = all.pop() {
            all.extend(new(child));
            if !share_memory(child, pid) && !self.close_in(child, code, begun) {
                keep.push(child);
            }
        }
        let names: Vec<String> = keep.iter().map(u32::to_string).collect();
        let what = "forked while the sampler went in, have files of it until they call exec or end";
        (!names.is_empty()).then(|| format!("processes {}, {what}", names.join(", ")))
    }

    /// Closes them in a child. False: it keeps some, or may do so. A child that is gone, or has called exec, has none.
    fn close_in(&self, child: u32, code: &Code, begun: Instant) -> bool {
        let is_left = |open: io::Result<Vec<Opened>>| match open {
            Ok(open) => !open.is_empty(),
            Err(error) => !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
        };
        if let Some(open) = self.open_in(child).ok().filter(|open| !open.is_empty()) {
            // All children together get no more time than one thread.
            if begun.elapsed() <= PATIENCE {
                let _ = with_thread(child, code, Region::default(), |thread| {
                    for file in open.iter().filter(|file| is_still(child, **file)) {
                        thread.call(libc::SYS_close, [file.0, 0, 0, 0, 0, 0])?;
                    }
                    Ok(())
                });
            }
        }
        !is_left(self.open_in(child))
    }

    /// Those of them that a process has open.
    fn open_in(&self, pid: u32) -> io::Result<Vec<Opened>> {
        let entries = std::fs::read_dir(process::file(pid, "fd"))?.flatten();
        let open = entries.filter_map(|entry| {
            let file = std::fs::metadata(entry.path()).ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, (file.dev(), file.ino())))
        });
        Ok(open.filter(|(_, file)| self.files.contains(file)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::fs::File;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use uunwind_clock::Instant;
    use uunwind_elf::maps;
    use uunwind_remote::memory::Memory;

    /// A program, and the children that it forks: all are killed at the end, also where a test fails.
    struct Group(std::process::Child);

    impl Drop for Group {
        fn drop(&mut self) {
            // SAFETY: a plain system call; the group has the id of its first process, which is not waited for before.
            unsafe { libc::kill(-(self.0.id() as libc::pid_t), libc::SIGKILL) };
            let _ = self.0.wait();
        }
    }

    /// A file that a forked child has is closed there, and stays open in the process itself.
    #[test]
    fn a_file_that_a_child_has_got_is_closed_there() {
        let mut files = Files::new();
        // SAFETY: a name that ends with 0; the descriptor is new. Programs inherit it.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"inherited".as_ptr(), 0)) });
        let stat = file.metadata().expect("a file");
        files.add((stat.dev(), stat.ino()));
        // The child calls no exec, and waits for whoever opens the other end, which is never.
        let fifo = std::env::temp_dir().join(format!("uu-forked-{}", std::process::id()));
        let path = CString::new(fifo.as_os_str().as_bytes()).expect("a path");
        // SAFETY: a string that ends with 0.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0, "{}", fifo.display());
        let script = format!("(read line <{}; :) & wait", fifo.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).stdin(Stdio::null()).process_group(0);
        let shell = Group(shell.spawn().expect("sh"));
        let pid = shell.0.id();
        let begun = Instant::now();
        let waits = |child: &u32| {
            let line = std::fs::read_to_string(format!("/proc/{child}/syscall")).unwrap_or_default();
            line.starts_with(&format!("{} ", libc::SYS_openat))
        };
        let child = loop {
            assert!(begun.elapsed() < Duration::from_secs(60), "no child");
            if let Some(child) = children(pid).into_iter().find(waits) {
                break child;
            }
            std::thread::yield_now();
        };
        let mappings: Vec<maps::Mapping> = maps::of(pid).expect("it lives").collect();
        let code = Code::find(&Memory::of(pid), &mappings).expect("libc");
        let open = |pid| files.open_in(pid).expect("it lives").len();
        // SAFETY: a plain system call; the child lives until the last one.
        let signal = |number| unsafe { libc::kill(child as libc::pid_t, number) };
        let before = (open(pid), open(child));
        // No thread of a stopped process can be borrowed.
        signal(libc::SIGSTOP);
        while std::fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| !stat.contains(") T ")) {
            std::thread::yield_now();
        }
        let stopped = (files.close_in_children(pid, &code), open(child));
        signal(libc::SIGCONT);
        let kept = files.close_in_children(pid, &code);
        let after = (open(pid), open(child));
        drop(shell);
        std::fs::remove_file(&fifo).expect("it was made above");
        assert_eq!((before, after, kept), ((1, 1), (1, 0), None));
        assert!(stopped.0.is_some_and(|kept| kept.contains(&child.to_string())) && stopped.1 == 1);
    }
}
