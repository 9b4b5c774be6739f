//! Files that are open in a process for a moment, while a sampler goes in: a child that another thread forks in that
//! moment has them, too, and keeps them until it calls exec. They are closed there.

use super::place::Code;
use super::{is_still, with_thread};
use crate::threads::children;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use uunwind_recorder::machine;
use uunwind_recorder::survey::share_memory;
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

    /// Closes them in the children that the process has forked since then. They have its code.
    pub fn close_in_children(&self, pid: u32, code: &Code) {
        let since = self.since.saturating_sub(TICK.as_nanos() as u64);
        for child in children(pid) {
            if self.files.is_empty() || machine::start_of(child) < since || share_memory(child, pid) {
                continue;
            }
            let open = self.open_in(child);
            if open.is_empty() {
                continue;
            }
            // A child that is gone, or has called exec, has none any more.
            let _ = with_thread(child, code, Region::default(), |thread| {
                for file in open.iter().filter(|file| is_still(child, **file)) {
                    thread.call(libc::SYS_close, [file.0, 0, 0, 0, 0, 0])?;
                }
                Ok(())
            });
        }
    }

    /// Those of them that a process has open, with their numbers there.
    fn open_in(&self, pid: u32) -> Vec<(u64, (u64, u64))> {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let open = entries.filter_map(|entry| {
            let file = std::fs::metadata(entry.path()).ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, (file.dev(), file.ino())))
        });
        open.filter(|(_, file)| self.files.contains(file)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use std::fs::File;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::process::{Command, Stdio};
    use std::time::Instant;
    use uunwind_elf::maps;

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
        let script = format!("mkfifo {0}; (read line <{0}; :) & wait", fifo.display());
        let mut shell = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).spawn().expect("sh");
        let pid = shell.id();
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
        let before = (files.open_in(pid).len(), files.open_in(child).len());
        files.close_in_children(pid, &code);
        let after = (files.open_in(pid).len(), files.open_in(child).len());
        // SAFETY: a plain system call; the shell waits for it.
        unsafe { libc::kill(child as libc::pid_t, libc::SIGKILL) };
        shell.wait().expect("its end");
        std::fs::remove_file(&fifo).expect("the shell has made it");
        assert_eq!((before, after), ((1, 1), (1, 0)));
    }
}
