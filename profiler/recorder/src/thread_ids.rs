//! Ids of threads in another pid namespace: a thread block has the id that the thread has there, and the kernel says
//! which one it has here (`NSpid` in
//! [`/proc/PID/task/TID/status`](https://man7.org/linux/man-pages/man5/proc_pid_status.5.html)).

use crate::survey::status;
use std::collections::HashMap;
use std::io;

/// The threads of one process.
#[derive(Default)]
pub struct ThreadIds {
    /// Id in the process's own namespace -> id here.
    found: HashMap<u32, u32>,
    /// Id here -> id there, of those that were looked at and live.
    seen: HashMap<u32, u32>,
}

impl ThreadIds {
    /// The id here of a thread that has this one there, of a process with this id here. `None`: it has ended. Errors:
    /// the process's threads cannot be listed, as after its end.
    pub fn of(&mut self, pid: u32, inner: u32) -> io::Result<Option<u32>> {
        let found = self.found.get(&inner).copied();
        if let Some(outer) = found.filter(|outer| inner_id(pid, *outer) == Some(inner)) {
            return Ok(Some(outer));
        }
        self.look(pid)?;
        Ok(self.found.get(&inner).copied().filter(|outer| found != Some(*outer)))
    }

    /// The same, of a thread that may have ended meanwhile, and was here at an earlier look. 0: not known.
    pub fn known(&mut self, pid: u32, inner: u32) -> u32 {
        let found = self.found.get(&inner).copied();
        found.or_else(|| self.of(pid, inner).ok()?).unwrap_or(0)
    }

    /// Looks at the threads that were not here at the last look.
    fn look(&mut self, pid: u32) -> io::Result<()> {
        let entries = std::fs::read_dir(uunwind_elf::process::file(pid, "task"))?;
        let threads = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let mut before = std::mem::take(&mut self.seen);
        for outer in threads {
            let Some(inner) = before.remove(&outer).or_else(|| inner_id(pid, outer)) else { continue };
            self.seen.insert(outer, inner);
            self.found.insert(inner, outer);
        }
        Ok(())
    }
}

/// The id that a thread has in its own namespace.
fn inner_id(pid: u32, tid: u32) -> Option<u32> {
    status(&format!("{pid}/task/{tid}"))?.pids.last().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_this_process_are_found_while_they_live() {
        let (own, mut ids) = (std::process::id(), ThreadIds::default());
        assert_eq!(ids.of(own, own).expect("its threads"), Some(own));
        let (say, said) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            say.send(uunwind_core::syscall::gettid()).expect("it is heard");
            let _ = ended.recv();
        });
        let tid = said.recv().expect("its id");
        assert_eq!(ids.of(own, tid).expect("its threads"), Some(tid));
        drop(end);
        thread.join().expect("it ends");
        // The kernel may show it for a moment.
        while std::path::Path::new(&format!("/proc/{own}/task/{tid}")).exists() {
            std::thread::yield_now();
        }
        assert_eq!(ids.of(own, tid).expect("its threads"), None);
        assert_eq!((ids.known(own, tid), ids.known(own, u32::MAX)), (tid, 0));
    }
}
